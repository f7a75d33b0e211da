"""Sends of a producer: attempts, retries, time-outs (DefaultMQProducerImpl#sendDefaultImpl, MQClientAPIImpl)."""

from __future__ import annotations

import time
from concurrent.futures import Future

from rmqctl.formats.errors import RemoteError, RmqctlError
from rmqctl.network.clients.client import BrokerError, Client
from rmqctl.network.clients.producing.backpressure import AsyncLimits
from rmqctl.network.clients.producing.deadlines import Deadlines
from rmqctl.network.clients.producing.fault_strategy import FaultStrategy
from rmqctl.network.clients.producing.hooks import ASYNC, ONEWAY, SYNC, ProducerHooks, SendHookContext
from rmqctl.network.clients.producing.publish_routes import BrokerUnknownError, PublishRoutes
from rmqctl.network.clients.producing.requests import Outgoing, OutgoingRequests, SendResult
from rmqctl.network.clients.producing.settings import ProducerSettings
from rmqctl.network.remoting.codes import RequestCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import MessageQueue

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
        fields = {"topic": topics[0], "queueId": 0}
        try:
            seconds = self._settings.detect_timeout / 1000
            self._client.ask(address, RequestCode.GET_MAX_OFFSET, fields, seconds=seconds)
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
        another one, within `seconds` in all; an answer is not (onExceptionImpl). With backpressure the caller waits
        while too much is on its way."""
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
            future = connection.submit(sender._requests.request(self._outgoing, queue))
        except RemoteError as error:
            self._fail(queue, started, error, is_reachable=False)
            return

        def late() -> None:
            connection.abandon(future)
            error = RemoteError(f"{address}: request {self._outgoing.code} is not answered in time")
            self._fail(queue, started, error, is_reachable=True)

        number = sender._deadlines.add(max(self._until - started, 0.0), late)

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
