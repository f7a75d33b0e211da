"""Which requests are served: a table of handlers, and the rules for every answer. No socket is needed.

(NettyRemotingAbstract#processRequestCommand)
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from rmqctl.formats.errors import RmqctlError
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand
from rmqctl.store.config.versions import DEFAULT_RELEASE, Release

Context_contra = TypeVar("Context_contra", contravariant=True)
Tell = Callable[[str], None]
"""Takes a line for whoever looks after the server."""


class RequestError(Exception):
    """A request that ends with `code`; `remark` is what the client's error says, `fields` stand in the header."""

    def __init__(self, code: ResponseCode, remark: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.fields = fields or {}


class Caller(Protocol):
    """Who asks: a connection, or whatever stands for one in the same process. Compared by identity."""

    @property
    def remote(self) -> str:
        """The caller's address as `ip:port`."""

    @property
    def local_ip(self) -> str:
        """The address at which the caller reached us."""

    def send(self, command: RemotingCommand) -> None:
        """Send the caller a request of ours that wants no answer."""

    def ask(self, command: RemotingCommand, seconds: float) -> Future[RemotingCommand | None]:
        """Send the caller a request of ours: the future has its answer, None where none comes in `seconds`.
        RequestError where it has too many to answer already."""


FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""What RocketMQ's remarks end with (FAQUrl#suggestTodo)."""
_FAQ_OF_4 = "See http://rocketmq.apache.org/docs/faq/ for further details."
# 4.x has no code of its own for them
_CODES_OF_4 = {ResponseCode.INVALID_PARAMETER: ResponseCode.SYSTEM_ERROR}


def _always() -> bool:
    return True


class Suspended(NamedTuple):
    """An answer that may wait for `seconds`: then, or when there is news, `answer` is asked for it.

    `key` says what news it waits for; a broker that nobody writes to has none. `is_news`: whether there is any for it,
    asked when the key has some.
    """

    seconds: float
    key: tuple[str, int]
    answer: Callable[[], RemotingCommand]
    is_news: Callable[[], bool] = _always


class Awaited(Protocol):
    """Something that ends; a Future is one."""

    def done(self) -> bool:
        """Whether it has."""

    def add_done_callback(self, told: Callable[[Any], object], /) -> None:
        """Call `told` with it when it has ended, in whatever thread; at once where it has."""


class Promised(NamedTuple):
    """An answer that comes when something else is done, such as the disk. `done`, once it is, raises no error; `answer`
    is asked for then."""

    done: Awaited
    answer: Callable[[], RemotingCommand]


Reply = RemotingCommand | Suspended | Promised
Handler = Callable[[Context_contra, RemotingCommand, Caller], Reply]


class Service(NamedTuple, Generic[Context_contra]):
    """One kind of request: what answers it and, in a line, what is given. `is_slow`: it may take longer than other
    clients should have to wait."""

    handler: Handler[Context_contra]
    about: str
    is_slow: bool = False


Services = Mapping[int, Service[Any]]


class Processor(Generic[Context_contra]):
    """Answers requests by a table of services, refusing with the codes and remarks of `release`."""

    def __init__(
        self,
        context: Context_contra,
        services: Mapping[int, Service[Context_contra]],
        tell: Tell,
        release: Release = DEFAULT_RELEASE,
    ) -> None:
        self.context = context
        self.services = services
        self._tell = tell
        self._is_of_4 = release.is_of_4

    def is_slow(self, request: RemotingCommand) -> bool:
        """Whether `request` should be answered beside the others."""
        service = self.services.get(request.code)
        return service is not None and service.is_slow

    def reply(self, request: RemotingCommand, caller: Caller) -> Reply | None:
        """The answer, which may be suspended or promised; None for a oneway request and what is none. Never raises."""
        if request.is_response:
            return None
        service = self.services.get(request.code)
        if service is None:
            remark = f" request type {request.code} not supported"
            return answered(request, RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark))
        try:
            reply = service.handler(self.context, request, caller)
        except Exception as error:  # noqa: BLE001 - see _failed
            reply = self._failed(request, error)
        if isinstance(reply, RemotingCommand):
            return answered(request, reply)
        if request.is_oneway:
            return None
        answer = reply.answer
        return reply._replace(answer=lambda: self.now(request, answer))

    def now(self, request: RemotingCommand, answer: Callable[[], RemotingCommand]) -> RemotingCommand:
        """The answer of a request that was suspended or promised."""
        try:
            reply = answer()
        except Exception as error:  # noqa: BLE001 - see _failed
            reply = self._failed(request, error)
        return _tied(reply, request)

    def _failed(self, request: RemotingCommand, error: Exception) -> RemotingCommand:
        """What is answered where a handler raised: whatever it is, it must not end the service of all others."""
        if isinstance(error, RequestError):
            code, remark = error.code, error.remark
            if self._is_of_4:
                code, remark = _CODES_OF_4.get(code, code), remark.replace(FAQ, _FAQ_OF_4)
            return RemotingCommand(code, error.fields, remark=remark)
        if isinstance(error, RmqctlError):
            self._tell(f"request {request.code} failed: {error}")
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=str(error))
        where = traceback.extract_tb(error.__traceback__)[-1]
        self._tell(f"request {request.code} failed: {type(error).__name__}: {error} ({where.filename}:{where.lineno})")
        return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def answered(request: RemotingCommand, reply: RemotingCommand) -> RemotingCommand | None:
    """`reply` as the answer to `request`; None where none is wanted."""
    if request.is_oneway:
        return None
    return _tied(reply, request)


def _tied(reply: RemotingCommand, request: RemotingCommand) -> RemotingCommand:
    # not by _replace, which takes three times as long
    code, fields, body, remark, _, _, language, version = reply
    return RemotingCommand(code, fields, body, remark, request.opaque, RESPONSE_FLAG, language, version)


def oneway(code: int, **fields: str) -> RemotingCommand:
    """A request of ours that wants no answer."""
    return RemotingCommand(code, fields, flag=ONEWAY_FLAG)
