"""What all calls of the gRPC service share: who calls and may, what the broker is asked, and how refusals are answered.

A call asks the broker by the requests of remoting, in this process: their rules are the only ones. A refusal is a
status in the answer, as at RocketMQ's proxy; the call itself succeeds.
"""

from __future__ import annotations

import asyncio
import base64
import traceback
from collections.abc import Coroutine, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

from rmqctl.formats.errors import RmqctlError
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.tables import is_system_group
from rmqctl.network.grpc.protocol import ClientType, Code, v2
from rmqctl.network.remoting.authentication import Access, Guard
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.headers import Header
from rmqctl.network.remoting.requests import Caller, HeaderFields, RequestError, Session, Shared, Tell
from rmqctl.store.config.accounts import GROUP, TOPIC
from rmqctl.store.config.config_files import brokers_group_problem, is_brokers_own, topic_problem
from rmqctl.store.config.releases import DEFAULT_RELEASE
from rmqctl.store.read.filter import SQL92, TAG

# ResponseBuilder#RESPONSE_CODE_MAPPING; what is not in it is an internal error
_CODES = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}


class StatusError(Exception):
    """A call that ends with `code`; `message` is what the client's error says."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def status_of(code: int, message: str | None = None) -> Any:
    """Return a status; without a message the code's own name."""
    return v2.Status(code=code, message=Code(code).name if message is None else message)


OK = status_of(Code.OK)


def status_of_answer(answer: RemotingCommand) -> Any:
    """Return the status of a broker's answer."""
    if answer.code == ResponseCode.SUCCESS:
        return OK
    code = _CODES.get(ResponseCode(answer.code), Code.INTERNAL_SERVER_ERROR)
    return status_of(code, f"CODE: {answer.code}  DESC: {answer.remark or ''}")


def require_success(answer: RemotingCommand) -> RemotingCommand:
    """Return the broker's answer. Raises: StatusError for one that is not a success."""
    if answer.code != ResponseCode.SUCCESS:
        status = status_of_answer(answer)
        raise StatusError(Code(status.code), status.message)
    return answer


def topic_of(resource: Any) -> str:
    """Return the name of the topic that a call names. Raises: StatusError."""
    problem = "cannot access system topic" if is_brokers_own(resource.name) else topic_problem(resource.name)
    if problem is not None:
        raise StatusError(Code.ILLEGAL_TOPIC, problem)
    return str(resource.name)


def group_of(resource: Any) -> str:
    """Return the name of the consumer group that a call names. Raises: StatusError."""
    is_own = is_system_group(resource.name)
    problem = "cannot use system consumer group" if is_own else brokers_group_problem(resource.name, DEFAULT_RELEASE)
    if problem is not None:
        raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, problem)
    return str(resource.name)


class From(NamedTuple):
    """Who makes a call: its headers, and where it comes from. `authorization` holds the signature of `date_time`."""

    client_id: str
    language: str
    version: str
    remote: str
    authorization: str = ""
    date_time: str = ""


def caller_of(context: Any) -> From:
    """Return who makes a call. Raises: StatusError without an id."""
    headers = {str(name): value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
    client_id = headers.get("x-mq-client-id", "").strip()
    if not client_id:
        raise StatusError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
    # ipv4:127.0.0.1:5000, ipv6:%5B::1%5D:5000, or what `Front` says
    remote = unquote(context.peer()).partition(":")[2].rpartition("/")[2]
    names = ("x-mq-language", "x-mq-client-version")
    language, version = (headers.get(name, "") for name in names)
    return From(
        client_id, language, version, remote, headers.get("authorization", ""), headers.get("x-mq-date-time", "")
    )


class GrpcBroker:
    """A broker that gRPC clients are served by. `shared`: what they share with the clients of remoting.

    `port`: where clients are sent to, which each may reach by a host of its own.
    """

    def __init__(self, broker: Broker, shared: Shared, tell: Tell) -> None:
        self.broker = broker
        self.tell = tell
        self.port = 0
        self.loop = asyncio.get_running_loop()
        self._shared = shared
        self._tasks: set[asyncio.Task[Any]] = set()

    async def ask(self, caller: Caller, code: RequestCode, header: Header, body: bytes = b"") -> RemotingCommand:
        """Return what the broker answers to a request. A call that is cancelled waits no longer."""
        answer: asyncio.Future[RemotingCommand] = self.loop.create_future()

        def write(command: RemotingCommand) -> None:
            if not answer.done():
                answer.set_result(command)

        session = Session(self._shared, self.loop, caller, write)
        session.serve(RemotingCommand(code, HeaderFields(header), body))
        if answer.done():
            return answer.result()
        try:
            return await answer
        finally:
            session.close()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Have something done that no call waits for; what the broker refuses of it is as it was."""
        task = self.loop.create_task(work)
        self._tasks.add(task)

        def done(ended: asyncio.Task[Any]) -> None:
            self._tasks.discard(ended)
            error = None if ended.cancelled() else ended.exception()
            if error is not None and not isinstance(error, (StatusError, RequestError)):
                self.tell(f"work beside the calls failed: {type(error).__name__}: {error}")

        task.add_done_callback(done)

    def failed(self, name: str, error: Exception) -> Any:
        """Return the status of a call that raised."""
        if isinstance(error, StatusError):
            return status_of(error.code, error.message)
        if isinstance(error, RequestError):
            return status_of_answer(RemotingCommand(error.code, remark=error.remark))
        if isinstance(error, RmqctlError):
            self.tell(f"{name} failed: {error}")
            return status_of(Code.INTERNAL_SERVER_ERROR, str(error))
        where = traceback.extract_tb(error.__traceback__)[-1]
        self.tell(f"{name} failed: {type(error).__name__}: {error} ({where.filename}:{where.lineno})")
        return status_of(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")


def filter_kind(expression: Any) -> str:
    """Return the kind of an expression, as requests name it. Raises: StatusError for one that is neither."""
    kinds = {0: TAG, 1: TAG, 2: SQL92}
    if expression.type not in kinds:
        raise StatusError(Code.ILLEGAL_FILTER_EXPRESSION, f"expression type {expression.type} is not known")
    return kinds[expression.type]


# Who may call what: signatures and permissions of gRPC calls, which the users of remoting have as well.

_PRODUCERS = (ClientType.CLIENT_TYPE_UNSPECIFIED, ClientType.PRODUCER)


def permit(guard: Guard, name: str, request: Any, who: From) -> None:
    """Raise StatusError for a call that is refused, with the words of the proxy of 5.5.0."""
    user, signature = _credential(who)
    if guard.is_exempt(user, who.remote):
        return
    try:
        guard.authenticate(user, signature, who.date_time.encode())
        guard.authorize(user, _accesses(name, request), who.remote)
    except RequestError as error:
        raise StatusError(Code.UNAUTHORIZED, error.remark) from error


def _credential(who: From) -> tuple[str, str]:
    """Return user and signature, in Base64, of the header (DefaultAuthenticationContextBuilder#build)."""
    if not who.authorization:
        return "", ""
    if not who.date_time:
        raise StatusError(Code.UNAUTHORIZED, "datetime is null.")
    _, is_split, items = who.authorization.partition(" ")
    if not is_split:
        raise StatusError(Code.UNAUTHORIZED, "authentication header is incorrect.")
    found = {}
    for item in items.split(","):
        key, equals, value = item.strip().partition("=")
        if not equals:
            raise StatusError(Code.UNAUTHORIZED, "authentication keyValues length is incorrect, actual length=1.")
        found[key] = value
    try:
        signature = bytes.fromhex(found.get("Signature", ""))
    except ValueError as error:
        raise StatusError(Code.UNAUTHORIZED, "create authentication context error.") from error
    return found.get("Credential", "").partition("/")[0], base64.b64encode(signature).decode("ascii")


def _accesses(name: str, request: Any) -> Iterator[Access]:
    """Yield what a call needs (DefaultAuthorizationContextBuilder#build). Raises: StatusError without a resource."""
    if name == "SendMessage":
        if not request.messages:
            raise StatusError(Code.UNAUTHORIZED, "message is null.")
        for topic in dict.fromkeys(message.topic.name for message in request.messages):
            yield _named(TOPIC, topic, ("PUB",))
    elif name in ("RecallMessage", "EndTransaction"):
        yield _topic(request.topic, "PUB")
    elif name == "QueryRoute":
        yield _topic(request.topic, "PUB", "SUB")
    elif name == "Heartbeat":
        if request.client_type not in _PRODUCERS:
            yield _group(request.group)
    elif name == "NotifyClientTermination":
        if request.group.name.strip():
            yield _group(request.group)
    elif name == "ChangeInvisibleDuration":
        yield _group(request.group)
    elif name == "ReceiveMessage":
        yield _group(request.group)
        yield _topic(request.message_queue.topic, "SUB")
    elif name == "Telemetry":
        if request.WhichOneof("command") == "settings":
            yield from _of_settings(request.settings)
    else:
        yield _group(request.group)
        yield _topic(request.topic, "SUB")


def _of_settings(settings: Any) -> Iterator[Access]:
    if settings.HasField("publishing"):
        for topic in settings.publishing.topics:
            yield _topic(topic, "PUB")
    elif settings.HasField("subscription"):
        yield _group(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            yield _topic(entry.topic, "SUB")
    else:
        raise StatusError(Code.UNAUTHORIZED, "settings command doesn't have publishing or subscription.")


def _topic(resource: Any, *actions: str) -> Access:
    return _named(TOPIC, resource.name, actions)


def _group(resource: Any) -> Access:
    return _named(GROUP, resource.name, ("SUB",))


def _named(kind: str, name: str, actions: tuple[str, ...]) -> Access:
    if not name.strip():
        raise StatusError(Code.UNAUTHORIZED, f"{kind.lower()} is null.")
    return Access(kind, name, actions)
