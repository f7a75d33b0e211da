"""Sends of a producer: attempts, retries, time-outs (DefaultMQProducerImpl#sendDefaultImpl, MQClientAPIImpl)."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from rmqctl.formats.errors import RemoteError, RmqctlError
from rmqctl.network.clients.client import BrokerError, Client
from rmqctl.network.clients.hooks import ASYNC, ONEWAY, SYNC, ProducerHooks, SendHookContext
from rmqctl.network.clients.producing.requests import Outgoing, OutgoingRequests, SendResult
from rmqctl.network.clients.producing.routing import BrokerUnknownError, FaultStrategy, PublishRoutes
from rmqctl.network.clients.producing.settings import ProducerSettings
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, RequestCode
from rmqctl.network.remoting.headers import QueueHeader
from rmqctl.store.config.releases import RELEASES

# Limits of asynchronous sends: how many and how many bytes may be on their way (executeAsyncMessageSend).

LEAST_NUMBER, LEAST_SIZE = 10, 1 << 20

# Without enableBackpressureForAsyncMode the limit in number is that of RocketMQ's connections
# (NettySystemConfig#CLIENT_ASYNC_SEMAPHORE_VALUE). They have none in bytes, and end with their heap.

UNASKED_NUMBER, UNASKED_SIZE = 65_535, 100 << 20


class AsyncLimits:
    """Limits of one producer: those of its settings with enableBackpressureForAsyncMode. Safe for threads."""

    def __init__(self, settings: ProducerSettings) -> None:
        number, self._most = UNASKED_NUMBER, UNASKED_SIZE
        self._number_refusal = "invokeAsyncImpl tryAcquire semaphore timeout"
        if settings.enable_backpressure_for_async_mode:
            number = settings.back_pressure_for_async_send_num
            if number < 0:
                number = RELEASES[settings.client_version].async_sends
            number = max(number, LEAST_NUMBER)
            self._most = max(settings.back_pressure_for_async_send_size, LEAST_SIZE)
            self._number_refusal = "send message tryAcquire semaphoreAsyncNum timeout"
        self._takes_larger = not settings.enable_backpressure_for_async_mode
        self._number = _Permits(number)
        self._size = _Permits(self._most)

    def acquire(self, size: int, until: float) -> None:
        """Wait until a message of `size` bytes may be sent; `until`: a monotonic time in s.

        Raises: RemoteError, with RocketMQ's message, where that is not so in time.
        """
        if not self._number.acquire(1, until):
            raise RemoteError(self._number_refusal)
        if not self._size.acquire(self._counted(size), until):
            self._number.release(1)
            raise RemoteError("send message tryAcquire semaphoreAsyncSize timeout")

    def release(self, size: int) -> None:
        """Note that a message of `size` bytes has its result."""
        self._size.release(self._counted(size))
        self._number.release(1)

    def _counted(self, size: int) -> int:
        """A message that is larger than a limit that no setting asked for is sent alone."""
        return min(size, self._most) if self._takes_larger else size


class _Permits:
    """A semaphore whose permits are taken several at a time, first come, first served."""

    def __init__(self, permits: int) -> None:
        self._free = permits
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()

    def acquire(self, count: int, until: float) -> bool:
        """Take permits; return False where they are not free in time."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                left = max(0.0, until - time.monotonic())
                if not left or not self._changed.wait_for(
                    lambda: self._waiting[0] is ticket and self._free >= count, left
                ):
                    return False
                self._free -= count
                return True
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def release(self, count: int) -> None:
        """Return permits."""
        with self._changed:
            self._free += count
            self._changed.notify_all()


# Deadlines of requests that wait for an answer, watched by one thread (NettyRemotingClient#scanResponseTable).

_SCAN_SECONDS = 0.1


class Deadlines:
    """Calls a function when its time has passed, unless it is dropped before. May be used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[float, Callable[[], None]]] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, seconds: float, late: Callable[[], None]) -> int:
        """Have `late` called in `seconds`, in a thread of its own; return the number to drop it by."""
        number = next(self._numbers)
        with self._lock:
            self._waiting[number] = time.monotonic() + seconds, late
            if self._thread is None:
                self._thread = threading.Thread(target=self._scan, name="rmqctl-deadlines", daemon=True)
                self._thread.start()
        return number

    def drop(self, number: int) -> bool:
        """Drop a deadline; return False where it has passed already."""
        with self._lock:
            return self._waiting.pop(number, None) is not None

    def _scan(self) -> None:
        while not self._ended.wait(_SCAN_SECONDS):
            now = time.monotonic()
            with self._lock:
                late = [number for number, (at, _) in self._waiting.items() if at <= now]
                calls = [self._waiting.pop(number)[1] for number in late]
            for call in calls:
                call()

    def close(self) -> None:
        """End the watching."""
        self._ended.set()


# DefaultMQProducer#retryResponseCodes
_TRY_AGAIN = (17, 14, 1, 2, 16, 204, 205, 1500)
_SENT = "SEND_OK"
_VIP_PORTS = 2


class Sender:
    """Sends prepared messages. May be used by many threads."""

    def __init__(
        self, client: Client, settings: ProducerSettings, requests: OutgoingRequests, hooks: ProducerHooks
    ) -> None:
        self._client = client
        self._hooks = hooks
        self._settings = settings
        self._requests = requests
        self.routes = PublishRoutes(client, settings)
        self.strategy = FaultStrategy(settings)
        self._deadlines = Deadlines()
        self._limits = AsyncLimits(settings)

    def start(self) -> None:
        """Start the detector, if the settings want one."""
        self.strategy.start_detector(self.routes.address_of, self._is_serving)

    def _is_serving(self, address: str) -> bool:
        """Return whether a broker answers within detectTimeout."""
        topics = self.routes.topics()
        if not topics:
            return False
        header = QueueHeader(topic=topics[0], queue_id=0)
        try:
            seconds = self._settings.detect_timeout / 1000
            self._client.ask(address, RequestCode.GET_MAX_OFFSET, header, seconds=seconds)
        except RemoteError:
            return False
        return True

    def close(self) -> None:
        """End what goes on in the background."""
        self.routes.close()
        self.strategy.close()
        self._deadlines.close()

    # ---- one attempt after the other

    def send(self, outgoing: Outgoing, chosen: MessageQueue | None, seconds: float) -> SendResult:
        """Send and wait for the answer, within `seconds` in all; one attempt where the queue is chosen. RemoteError."""
        if chosen is not None:
            return self._attempt(outgoing, chosen, seconds)
        publish = self.routes.find(outgoing.topic)
        begin = time.monotonic()
        attempts = 1 + self._settings.retry_times_when_send_failed
        tried: list[str] = []
        stored: SendResult | None = None
        problem: RemoteError | None = None
        for attempt in range(attempts):
            queue = self.strategy.select(publish, tried[-1] if tried else None, is_retry=attempt > 0)
            # the turn has gone past the broker that did not answer, and the next message begins with another one
            left = begin + seconds - time.monotonic()
            if attempt and left <= 0:
                break
            tried.append(queue.broker_name)
            most = self._settings.send_msg_max_timeout_per_request
            if most > -1 and attempt + 1 < attempts:
                left = min(left, most / 1000)
            try:
                stored = self._tracked(outgoing, queue, left)
            except BrokerError as error:
                problem = error
                if error.answer_code not in _TRY_AGAIN:
                    break
            except RemoteError as error:
                problem = error
                self.routes.refresh_soon()
            else:
                if stored.status == _SENT or not self._settings.retry_another_broker_when_not_store_ok:
                    return stored
        if stored is not None:
            return stored
        assert problem is not None
        if len(tried) > 1:
            cost = int((time.monotonic() - begin) * 1000)
            problem.message += f" (sent {len(tried)} times in {cost} ms, to {', '.join(tried)})"
        raise problem

    def _tracked(self, outgoing: Outgoing, queue: MessageQueue, seconds: float) -> SendResult:
        """Send once, and record how it went."""
        started = time.monotonic()
        is_isolated, is_reachable = False, True
        try:
            return self._attempt(outgoing, queue, seconds)
        except BrokerUnknownError:
            raise
        except BrokerError:
            is_isolated, is_reachable = True, False
            raise
        except RemoteError:
            is_isolated, is_reachable = True, not self.strategy.has_detector
            raise
        finally:
            elapsed = time.monotonic() - started
            self.strategy.update(queue.broker_name, elapsed, is_isolated=is_isolated, is_reachable=is_reachable)

    def _attempt(self, outgoing: Outgoing, queue: MessageQueue, seconds: float) -> SendResult:
        address = self._address(queue)
        context = self._hooks.begin(outgoing, queue, address, SYNC)
        try:
            request = self._requests.request(outgoing, queue)
            answer = self._client.connection(address).request(request, max(seconds, 0.001))
            result = self._requests.result(address, answer, outgoing, queue)
        except RmqctlError as error:
            self._hooks.end(context, error=error)
            raise
        self._hooks.end(context, result)
        return result

    def _address(self, queue: MessageQueue) -> str:
        """Return where to send for a queue. BrokerUnknownError."""
        self.routes.find(queue.topic)
        address = self.routes.address(queue)
        if not self._settings.vip_channel_enabled:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - _VIP_PORTS}"

    def send_oneway(self, outgoing: Outgoing, chosen: MessageQueue | None) -> None:
        """Send without an answer, once. RemoteError where that fails."""
        queue = chosen or self.strategy.select(self.routes.find(outgoing.topic), None, is_retry=False)
        address = self._address(queue)
        context = self._hooks.begin(outgoing, queue, address, ONEWAY)
        try:
            self._client.connection(address).oneway(self._requests.request(outgoing, queue))
        except RmqctlError as error:
            self._hooks.end(context, error=error)
            raise
        self._hooks.end(context)

    # ---- in the background

    def send_soon(self, outgoing: Outgoing, chosen: MessageQueue | None, seconds: float) -> Future[SendResult]:
        """Send, and return the future of the result. A broker that cannot be reached, or is lost, is retried with
        another one, within `seconds` in all; an answer is not (onExceptionImpl). The caller waits while too much is
        on its way."""
        until, size = time.monotonic() + seconds, len(outgoing.message.body)
        try:
            self._limits.acquire(size, until)
        except RemoteError as error:
            refused: Future[SendResult] = Future()
            refused.set_exception(error)
            return refused
        try:
            return self._begin_soon(outgoing, chosen, until)
        except BaseException:
            self._limits.release(size)
            raise

    def _begin_soon(self, outgoing: Outgoing, chosen: MessageQueue | None, until: float) -> Future[SendResult]:
        queue = chosen or self.strategy.select(self.routes.find(outgoing.topic), None, is_retry=False)
        return _Soon(self, outgoing, is_chosen=chosen is not None, until=until).begin(queue)


class _Soon:
    """One message that is sent in the background."""

    def __init__(self, sender: Sender, outgoing: Outgoing, *, is_chosen: bool, until: float) -> None:
        self._sender = sender
        self._outgoing = outgoing
        self._is_chosen = is_chosen
        self._until = until
        self._failed = 0
        self._context: SendHookContext | None = None
        self._result: Future[SendResult] = Future()

    def begin(self, queue: MessageQueue) -> Future[SendResult]:
        """Make the first attempt."""
        self._attempt(queue)
        return self._result

    def _attempt(self, queue: MessageQueue) -> None:
        sender, started = self._sender, time.monotonic()
        try:
            address = sender._address(queue)
            if self._context is None:
                self._context = sender._hooks.begin(self._outgoing, queue, address, ASYNC)
            connection = sender._client.connection(address)
            made = sender._requests.request(self._outgoing, queue)
            future = connection.submit(made, max(self._until - started, 0.0))
        except RemoteError as error:
            self._fail(queue, started, error, is_reachable=False)
            return

        def late() -> None:
            connection.abandon(future)
            error = RemoteError(f"{address}: request {self._outgoing.code} is not answered in time")
            self._fail(queue, started, error, is_reachable=True)

        number = sender._deadlines.add(max(self._until - time.monotonic(), 0.0), late)

        def answered(done: Future[RemotingCommand]) -> None:
            if sender._deadlines.drop(number):
                self._take(address, done, queue, started)

        future.add_done_callback(answered)

    def _take(self, address: str, done: Future[RemotingCommand], queue: MessageQueue, started: float) -> None:
        try:
            answer = done.result()
        except RemoteError as error:
            self._fail(queue, started, error, is_reachable=True)
            return
        elapsed = time.monotonic() - started
        try:
            result = self._sender._requests.result(address, answer, self._outgoing, queue)
        except RemoteError as error:
            self._sender.strategy.update(queue.broker_name, elapsed, is_isolated=True, is_reachable=True)
            self._end(error)
            return
        self._sender.strategy.update(queue.broker_name, elapsed, is_isolated=False, is_reachable=True)
        self._end(result)

    def _fail(self, queue: MessageQueue, started: float, error: RemoteError, *, is_reachable: bool) -> None:
        sender, now = self._sender, time.monotonic()
        sender.strategy.update(queue.broker_name, now - started, is_isolated=True, is_reachable=is_reachable)
        self._failed += 1
        if self._failed > sender._settings.retry_times_when_send_async_failed or now >= self._until:
            self._end(error)
            return
        try:
            if not self._is_chosen:
                sender.routes.refresh_soon()
                publish = sender.routes.find(self._outgoing.topic)
                queue = sender.strategy.select(publish, queue.broker_name, is_retry=False)
            self._attempt(queue)
        except RmqctlError as other:
            # in a thread of a connection: only the future can say so
            self._end(other)

    def _end(self, outcome: SendResult | RmqctlError) -> None:
        sender = self._sender
        sender._limits.release(len(self._outgoing.message.body))
        if isinstance(outcome, RmqctlError):
            sender._hooks.end(self._context, error=outcome)
            self._result.set_exception(outcome)
        else:
            sender._hooks.end(self._context, outcome)
            self._result.set_result(outcome)
