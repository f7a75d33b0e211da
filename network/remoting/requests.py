"""Which requests are served: a table of handlers, and the rules for every answer. No socket is needed.

(NettyRemotingAbstract#processRequestCommand)
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
import math
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from rmqctl.formats.errors import CorruptError, RmqctlError
from rmqctl.network.remoting.codec import RESPONSE_FLAG, RemotingCommand, ResponseCode
from rmqctl.network.remoting.headers import HEADERS, Header
from rmqctl.store.config.releases import DEFAULT_RELEASE, Release

Context_contra = TypeVar("Context_contra", contravariant=True)
Tell = Callable[[str], None]
"""Takes a line for the server's operator."""


class RequestError(Exception):
    """A request that ends with `code`; `remark` is what the client's error says, `fields` stand in the header."""

    def __init__(self, code: ResponseCode, remark: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.fields = fields or {}


class Caller(Protocol):
    """Who asks: a connection, or its substitute in the same process. Compared by identity."""

    @property
    def remote(self) -> str:
        """The caller's address as `ip:port`."""

    @property
    def local_ip(self) -> str:
        """The address at which the caller reached us."""

    def send(self, command: RemotingCommand) -> None:
        """Send the caller a request that needs no answer."""

    def ask(self, command: RemotingCommand, seconds: float) -> Future[RemotingCommand | None]:
        """Send the caller a request: the future has its answer, None if none comes within `seconds`. RequestError where
        it has too many to answer already."""


FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""What RocketMQ's remarks end with (FAQUrl#suggestTodo)."""
_FAQ_OF_4 = "See http://rocketmq.apache.org/docs/faq/ for further details."
# 4.x has no code of its own for them
_CODES_OF_4 = {ResponseCode.INVALID_PARAMETER: ResponseCode.SYSTEM_ERROR}


def _always() -> bool:
    return True


def _nothing() -> None:
    """Do nothing."""


class Suspended(NamedTuple):
    """An answer that may wait for `seconds`: then, or when there is news, `answer` is asked for it, which may be to
    wait on.

    `keys`: topics and queues whose news it waits for, ANY_QUEUE for all of a topic; a broker without writers has none.
    `is_news`: whether there is any for it, asked when a key has some. `on_end`: called when it waits no longer.
    """

    seconds: float
    keys: tuple[tuple[str, int], ...]
    answer: Callable[[], Any]
    is_news: Callable[[], bool] = _always
    on_end: Callable[[], None] = _nothing


class Awaited(Protocol):
    """Something that ends; a Future is one."""

    def done(self) -> bool:
        """Whether it has."""

    def add_done_callback(self, told: Callable[[Any], object], /) -> None:
        """Call `told` with it when it has ended, in any thread; at once if it has."""


class Promised(NamedTuple):
    """An answer that comes when something else is done, such as the disk. `done`, once it is, raises no error; `answer`
    is asked for then."""

    done: Awaited
    answer: Callable[[], RemotingCommand]


ANY_QUEUE = -1
"""All queues of a topic, in the key of an answer that waits."""
Reply = RemotingCommand | Suspended | Promised


class Asked(NamedTuple):
    """A request as it came, and from whom."""

    request: RemotingCommand
    caller: Caller


Handler = Callable[[Context_contra, Any, Asked], Reply]
"""Takes the header that HEADERS has for the code, Header itself where the code has none."""


class WhenReadOnly(enum.Enum):
    """What a broker that only reads does with a kind of request."""

    SERVED = enum.auto()
    REFUSED = enum.auto()
    UNKNOWN = enum.auto()


class Service(NamedTuple, Generic[Context_contra]):
    """One kind of request: what answers it and, in a line, what is given. `is_slow`: it may take longer than other
    clients should have to wait. `is_refusal`: for every content of the request."""

    handler: Handler[Context_contra]
    about: str
    is_slow: bool = False
    is_refusal: bool = False
    when_read_only: WhenReadOnly = WhenReadOnly.SERVED


class HeaderFields(Mapping[str, str]):
    """The fields of a header in this process, encoded when they are first read."""

    def __init__(self, header: Header) -> None:
        self.header = header

    @functools.cached_property
    def _texts(self) -> dict[str, str]:
        return self.header.encode()

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


Services = Mapping[int, Service[Any]]


Intercept = Callable[[RemotingCommand, Callable[[], Reply | None]], Reply | None]
"""Gets a request and what serves it; returns what is answered."""


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
        self.intercept: Intercept | None = None
        """What requests go through first, which tests use for faults."""
        self.guard: Callable[[RemotingCommand, Caller], None] | None = None
        """Raises RequestError for requests that are not permitted."""

    def is_slow(self, request: RemotingCommand) -> bool:
        """Whether `request` should be answered beside the others."""
        service = self.services.get(request.code)
        return service is not None and service.is_slow

    def reply(self, request: RemotingCommand, caller: Caller) -> Reply | None:
        """Return the answer, which may be suspended or promised; None for a oneway request and an invalid one. Never
        raises."""
        if self.intercept is not None:
            return self.intercept(request, lambda: self._served(request, caller))
        return self._served(request, caller)

    def _served(self, request: RemotingCommand, caller: Caller) -> Reply | None:
        if request.is_response:
            return None
        service = self.services.get(request.code)
        if service is None:
            remark = f" request type {request.code} not supported"
            return answered(request, RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark))
        fields = request.fields
        # a request made in this process, for a call of gRPC, was permitted where the call came in
        if self.guard is not None and not isinstance(fields, HeaderFields):
            try:
                self.guard(request, caller)
            except RequestError as error:
                return answered(request, self._failed(request, error))
        if isinstance(fields, HeaderFields):
            header = fields.header
        else:
            try:
                header = (Header if service.is_refusal else HEADERS.get(request.code, Header)).decode(fields)
            except CorruptError as error:
                return answered(request, RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=error.message))
        try:
            reply = service.handler(self.context, header, Asked(request, caller))
        except Exception as error:  # noqa: BLE001 - see _failed
            reply = self._failed(request, error)
        if isinstance(reply, RemotingCommand):
            return answered(request, reply)
        if request.is_oneway:
            return None
        answer = reply.answer
        return reply._replace(answer=lambda: self.now(request, answer))

    def now(self, request: RemotingCommand, answer: Callable[[], Reply]) -> Any:
        """The answer of a request that was suspended or promised, which may have to wait on."""
        try:
            reply = answer()
        except Exception as error:  # noqa: BLE001 - see _failed
            reply = self._failed(request, error)
        if isinstance(reply, RemotingCommand):
            return _tied(reply, request)
        again = reply.answer
        return reply._replace(answer=lambda: self.now(request, again))

    def _failed(self, request: RemotingCommand, error: Exception) -> RemotingCommand:
        """Return the answer after any error of a handler, which must not end the service of other clients."""
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


# Calls that other threads hand over to the loop's: however many come before it gets to them, it is woken once.


class HandOver:
    """For one loop. Any thread may `call`."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def call(self, loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
        """Have `function` called in the thread of `loop`, after those that were handed over before. A loop that has
        ended calls none."""
        self._calls.append(function)
        # first the call, then the look whether somebody comes for it; he takes back the mark before he looks for calls
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._run, loop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_woken = False
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            # one that fails keeps none of the others from being called
            if self._calls:
                loop.call_soon(self._run, loop)


# Answers that wait: until there is news for them, or until they may wait no longer (PullRequestHoldService).

WaitKey = tuple[str, int]
Deliver = Callable[[Any], None]


# answers whose time ends within one of these go together: a timer of the loop's for each would cost as much as the
# rest of a pull that finds nothing, and no client counts on less (the real broker looks every five seconds)
_TICK_SECONDS = 0.1


class HeldReply:
    """One answer that waits, where it goes, and the tick at which it may wait no longer."""

    __slots__ = ("deliver", "is_over", "reply", "tick")

    def __init__(self, reply: Suspended, deliver: Deliver, tick: int) -> None:
        self.reply = reply
        self.deliver = deliver
        self.tick = tick
        self.is_over = False


class Waiting:
    """All answers that wait, by what they wait for. For the thread of the loop alone."""

    def __init__(self, most: int) -> None:
        """`most`: how many may wait at once."""
        self._most = most
        self._held: dict[WaitKey, dict[HeldReply, None]] = {}
        self._ending: dict[int, dict[HeldReply, None]] = {}
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether no more can wait."""
        return self.count >= self._most

    def hold(self, loop: asyncio.AbstractEventLoop, reply: Suspended, deliver: Deliver) -> HeldReply:
        """Let an answer wait; it is delivered in the end, unless it is forgotten before. It is always the same loop."""
        tick = math.ceil((loop.time() + reply.seconds) / _TICK_SECONDS)
        held = HeldReply(reply, deliver, tick)
        ending = self._ending.get(tick)
        if ending is None:
            ending = self._ending[tick] = {}
            loop.call_at(tick * _TICK_SECONDS, self._end, loop, tick)
        ending[held] = None
        for key in reply.keys:
            self._held.setdefault(key, {})[held] = None
        self.count += 1
        return held

    def wake(self, keys: Iterable[WaitKey]) -> None:
        """Wake requests that wait for one of `keys`."""
        for key in keys:
            for one in (key, (key[0], ANY_QUEUE)):
                for held in list(self._held.get(one, ())):
                    # what was given to one may have ended another
                    if not held.is_over and held.reply.is_news():
                        self._give(held)

    def forget(self, held: HeldReply) -> None:
        """Discard the answer; nothing happens if it was delivered."""
        # its tick comes, whether anything ends there or not
        if held.is_over:
            return
        held.is_over = True
        for key in held.reply.keys:
            those = self._held[key]
            del those[held]
            if not those:
                del self._held[key]
        self.count -= 1
        self._ending[held.tick].pop(held, None)
        held.reply.on_end()

    def _end(self, loop: asyncio.AbstractEventLoop, tick: int) -> None:
        ending = self._ending[tick]
        try:
            while ending:
                self._give(next(iter(ending)))
        finally:
            # whatever went wrong with one, the others end
            if ending:
                loop.call_soon(self._end, loop, tick)
            else:
                del self._ending[tick]

    def _give(self, held: HeldReply) -> None:
        self.forget(held)
        held.deliver(held.reply.answer())


# What one client asks, answered: at once, beside the others, when there is news, or when something else is done.
#
# It knows a loop but no socket, so that clients in the same process are served by it too.


class Shared:
    """What all clients of a server share. `slow`: slow requests that wait or run, of which there may be `most_slow`."""

    def __init__(self, processor: Processor[Any], executor: Executor, most_slow: int, most_suspended: int) -> None:
        self.processor = processor
        self.executor = executor
        self.most_slow = most_slow
        self.slow = 0
        self.waiting = Waiting(most_suspended)
        # of what comes at once, such as all messages that one flush has brought to disk
        self.hand_over = HandOver()


class Session:
    """One client's requests. `write` takes what it is answered; nothing is written any more after `close`."""

    def __init__(
        self, shared: Shared, loop: asyncio.AbstractEventLoop, caller: Caller, write: Callable[[RemotingCommand], None]
    ) -> None:
        self._shared = shared
        self._loop = loop
        self._caller = caller
        self._write = write
        self._held: dict[HeldReply, None] = {}
        self._is_closed = False

    def serve(self, request: RemotingCommand) -> None:
        """Answer a request, now or later. In the thread of the loop."""
        shared = self._shared
        if not shared.processor.is_slow(request):
            self._deliver(request, shared.processor.reply(request, self._caller))
        elif shared.slow >= shared.most_slow:
            self._give(answered(request, _busy("too many requests of this kind are waiting")))
        else:
            shared.slow += 1
            future = self._loop.run_in_executor(shared.executor, shared.processor.reply, request, self._caller)
            future.add_done_callback(lambda done: self._deliver_slow(request, done))

    def close(self) -> None:
        """Forget all that waits."""
        self._is_closed = True
        for held in list(self._held):
            self._shared.waiting.forget(held)
        self._held.clear()

    def _deliver_slow(self, request: RemotingCommand, done: asyncio.Future[Any]) -> None:
        self._shared.slow -= 1
        if not done.cancelled():
            self._deliver(request, done.result())

    def _deliver(self, request: RemotingCommand, reply: RemotingCommand | Suspended | Promised | None) -> None:
        if reply is None or isinstance(reply, RemotingCommand):
            self._give(reply)
        elif isinstance(reply, Promised):
            self._promise(reply)
        elif self._is_closed:
            reply.on_end()
        elif self._shared.waiting.is_full:
            reply.on_end()
            self._give(answered(request, _busy("too many pulls are waiting for messages")))
        else:
            self._suspend(request, reply)

    def _suspend(self, request: RemotingCommand, reply: Suspended) -> None:
        def deliver(answer: Reply) -> None:
            self._held.pop(held, None)
            self._deliver(request, answer)

        held = self._shared.waiting.hold(self._loop, reply, deliver)
        self._held[held] = None

    def _promise(self, reply: Promised) -> None:
        def tell(_: Future[Any]) -> None:
            self._shared.hand_over.call(self._loop, lambda: self._give(reply.answer()))

        if reply.done.done():
            self._give(reply.answer())
        else:
            reply.done.add_done_callback(tell)

    def _give(self, answer: RemotingCommand | None) -> None:
        if answer is not None and not self._is_closed:
            self._write(answer)


def _busy(remark: str) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SYSTEM_BUSY, remark=remark)


# A put that is not answered before it is on disk, on slaves, or both; or it has waited for too long.


class PutWait:
    """What a put waits for, by the code that it is answered with if that does not come in time. Any thread may tell.

    `code`: how it ended, once it is `done`; slaves that are late count more than a disk that is
    (CommitLog#handleDiskFlushAndHA). `forget`: to be called when the answer is not needed any more. It is an Awaited:
    creating and completing a Future would take longer than all the rest of a put.
    """

    __slots__ = ("_deadlines", "_is_over", "_lock", "_now", "_told", "code", "forget")

    def __init__(self, now: int) -> None:
        """`now`: ms of the monotonic clock."""
        self.code = ResponseCode.SUCCESS
        self.forget: Callable[[], None] = _nothing
        self._is_over = False
        self._told: Callable[[Any], object] | None = None
        self._now = now
        self._lock = threading.Lock()
        self._deadlines: dict[ResponseCode, int] = {}

    def done(self) -> bool:
        """See Awaited."""
        return self._is_over

    def add_done_callback(self, told: Callable[[Any], object], /) -> None:
        """See Awaited; there may be one."""
        with self._lock:
            if not self._is_over:
                self._told = told
                return
        told(self)

    def wait_for(self, late: ResponseCode, milliseconds: int) -> None:
        """Wait so long for something more. Call this before any notification."""
        self._deadlines[late] = self._now + milliseconds

    def reached(self, late: ResponseCode) -> None:
        """It is there."""
        self._end(late, None)

    def expire(self, now: int) -> None:
        """Wait no more for what should be there by now (ms of the monotonic clock)."""
        for late, deadline in list(self._deadlines.items()):
            if deadline <= now:
                self._end(late, late)

    def _end(self, late: ResponseCode, code: ResponseCode | None) -> None:
        with self._lock:
            if self._deadlines.pop(late, None) is None:
                return
            if code is not None:
                self.code = max(self.code, code)
            if self._deadlines:
                return
            self._is_over = True
            # not kept: who is told knows us, and such circles wait for a collection of garbage
            told, self._told = self._told, None
        if told is not None:
            told(self)
