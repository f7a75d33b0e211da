"""What all calls of the gRPC service share: who calls, what the broker is asked, and how refusals are answered.

A call asks the broker by the requests of remoting, in this process: their rules are the only ones. A refusal is a
status in the answer, as at RocketMQ's proxy; the call itself succeeds.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine
from typing import Any, NamedTuple
from urllib.parse import unquote

from rmqctl.formats.errors import RmqctlError
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.tables import is_system_group
from rmqctl.network.grpc.protocol import Code, v2
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.headers import Header
from rmqctl.network.remoting.requests import Caller, HeaderFields, RequestError, Session, Shared, Tell
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
