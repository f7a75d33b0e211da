"""Messages that gRPC consumers get and are done with (ReceiveMessageActivity, AckMessageActivity)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from rmqctl.formats.errors import UsageError
from rmqctl.network.broker.members import filter_of
from rmqctl.network.grpc.clients import GrpcClient, max_attempts
from rmqctl.network.grpc.messages import message_of, milliseconds
from rmqctl.network.grpc.pops import Pops, ReceiptHandle, none_found, parse_receipt_handle
from rmqctl.network.grpc.protocol import Code, v2
from rmqctl.network.grpc.service import (
    OK,
    GrpcBroker,
    StatusError,
    filter_kind,
    group_of,
    status_of,
    topic_of,
)
from rmqctl.network.remoting import pop_headers
from rmqctl.network.remoting.requests import ANY_QUEUE, RequestError
from rmqctl.store.pop.records import MOST_AT_ONCE
from rmqctl.store.read.filter import SQL92

_SHORTEST_POLL_MS, _LONGEST_POLL_MS = 5_000, 20_000
# from this version on clients know the code for too short a deadline
_KNOWS_POLLING_TIME = "5.0.3"
_SHORTEST_INVISIBLE_MS, _LONGEST_INVISIBLE_MS = 10_000, 43_200_000
_RENEWED_INVISIBLE_MS = 60_000
_FROM_LAST = 1
_NACK_MS = 1000
_MOST_ENTRIES = 10_000
# an answer has to be on its way before the client gives up
_BEFORE_DEADLINE_MS = 200
# bytes of messages that are on their way to clients, of all together
_MOST_ON_THEIR_WAY = 256 * 1024 * 1024


class Consuming:
    """What consumers ask."""

    def __init__(self, service: GrpcBroker, pops: Pops) -> None:
        self._service = service
        self._broker = service.broker
        self._pops = pops
        self._renewals = Renewals(service, pops)
        self._on_their_way = 0

    # ---- messages go out

    async def receive(self, request: Any, client: GrpcClient, seconds: float | None) -> AsyncGenerator[Any, None]:
        """Yield a status, messages, and when that was. `seconds`: what is left of the call's time."""
        group, topic = group_of(request.group), topic_of(request.message_queue.topic)
        kind, expression = filter_kind(request.filter_expression), request.filter_expression.expression or "*"
        try:
            wanted = filter_of(kind, expression)
        except UsageError as error:
            # as at RocketMQ's proxy, which leaves SQL92 to its broker
            is_sql = kind == SQL92 and request.filter_expression.expression
            code = Code.INTERNAL_SERVER_ERROR if is_sql else Code.ILLEGAL_FILTER_EXPRESSION
            raise StatusError(code, str(error)) from error
        if self._broker.topics.find(topic) is None:
            raise StatusError(Code.INTERNAL_SERVER_ERROR, f"topic {topic} does not exist")
        poll = _poll_time(request, client, seconds)
        invisible = _RENEWED_INVISIBLE_MS
        if not request.auto_renew:
            invisible = milliseconds(request.invisible_duration)
            _require_invisible(invisible)
        if self._on_their_way > _MOST_ON_THEIR_WAY:
            raise StatusError(Code.TOO_MANY_REQUESTS, "too many messages are on their way to clients that do not read")
        if request.batch_size <= 0:
            # as at RocketMQ's proxy, which looks for no message until the time is over
            await asyncio.sleep(poll / 1000)
            raise none_found()
        settings = self._broker.group(group)
        header = pop_headers.PopRequest(
            consumer_group=group, topic=topic, queue_id=ANY_QUEUE, poll_time=poll, born_time=self._broker.clock(),
            order=settings["consumeMessageOrderly"] is True, attempt_id=request.attempt_id or None, exp_type=kind,
            exp=expression, max_msg_nums=min(request.batch_size, MOST_AT_ONCE), invisible_time=invisible,
            init_mode=_FROM_LAST,
        )  # fmt: skip
        left = deque(await self._pops.pop(client, header))
        size = sum(stored.total_size for stored, _ in left)
        self._on_their_way += size
        try:
            has_begun = False
            while left:
                stored, handle = left[0]
                properties = stored.properties()
                if not wanted.matches_properties(properties):
                    await self._pops.acknowledge(client, group, topic, handle)
                elif stored.reconsume_times >= max_attempts(settings):
                    await self._pops.forward(client, group, topic, handle)
                else:
                    if not has_begun:
                        has_begun = True
                        yield v2.ReceiveMessageResponse(status=OK)
                    if request.auto_renew:
                        self._renewals.note(client, group, topic, handle)
                    yield v2.ReceiveMessageResponse(message=message_of(stored, properties, topic, handle.text))
                left.popleft()
            if not has_begun:
                raise StatusError(Code.MESSAGE_NOT_FOUND, "no match message")
        finally:
            self._on_their_way -= size
            for _, handle in left:
                # the client is gone: another one gets it soon
                self._service.spawn(self._pops.change(client, group, topic, handle, _NACK_MS))

    async def renew(self) -> None:
        """Renew what is due, from time to time."""
        await self._renewals.step()

    def gone(self, client: GrpcClient) -> None:
        """A client is gone: others get what it had."""
        self._renewals.gone(client)

    # ---- messages are done with

    async def acknowledge(self, request: Any, client: GrpcClient) -> Any:
        """Messages are done with, each by its handle."""
        group, topic = group_of(request.group), topic_of(request.topic)
        if len(request.entries) > _MOST_ENTRIES:
            raise StatusError(Code.BAD_REQUEST, f"more than {_MOST_ENTRIES} entries")
        entries = []
        for entry in request.entries:
            status = OK
            try:
                handle = await self._renewals.take(group, entry.receipt_handle)
                if self._pops.is_outstanding(handle, group, topic):
                    await self._pops.acknowledge(client, group, topic, handle)
            except (StatusError, RequestError) as error:
                status = self._service.failed("AckMessage", error)
            entries.append(
                v2.AckMessageResultEntry(
                    message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status
                )
            )
        return v2.AckMessageResponse(status=_of_all([entry.status for entry in entries]), entries=entries)

    async def change_invisible(self, request: Any, client: GrpcClient) -> Any:
        """A message stays invisible for another time from now on, and has another handle."""
        group, topic = group_of(request.group), topic_of(request.topic)
        wanted = milliseconds(request.invisible_duration)
        _require_invisible(wanted, shortest=0)
        handle = await self._renewals.take(group, request.receipt_handle)
        if not self._pops.is_outstanding(handle, group, topic):
            raise StatusError(Code.INVALID_RECEIPT_HANDLE, "the message is acknowledged")
        handle = await self._pops.change(client, group, topic, handle, wanted, suspend=request.suspend)
        return v2.ChangeInvisibleDurationResponse(status=OK, receipt_handle=handle.text)

    async def forward(self, request: Any, client: GrpcClient) -> Any:
        """A consumer gives a message up."""
        group, topic = group_of(request.group), topic_of(request.topic)
        handle = await self._renewals.take(group, request.receipt_handle)
        if self._pops.is_outstanding(handle, group, topic):
            await self._pops.forward(client, group, topic, handle)
        return v2.ForwardMessageToDeadLetterQueueResponse(status=OK)


def _of_all(statuses: Sequence[Any]) -> Any:
    """Return the status of an answer with several entries."""
    codes = {status.code for status in statuses}
    if len(codes) > 1:
        return status_of(Code.MULTIPLE_RESULTS, "mixed results")
    return status_of(codes.pop()) if codes else status_of(Code.INTERNAL_SERVER_ERROR, "there are no entries")


def _require_invisible(milliseconds: int, shortest: int = _SHORTEST_INVISIBLE_MS) -> None:
    if milliseconds < shortest:
        raise StatusError(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {shortest}")
    if milliseconds > _LONGEST_INVISIBLE_MS:
        raise StatusError(
            Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {_LONGEST_INVISIBLE_MS}"
        )


def _poll_time(request: Any, client: GrpcClient, seconds: float | None) -> int:
    """Return for how long a call may wait (ms). `seconds`: what is left of its time."""
    left = None if seconds is None else int(seconds * 1000)
    if request.HasField("long_polling_timeout") or left is None:
        wanted = milliseconds(request.long_polling_timeout)
    else:
        wanted = left - (0 if client.settings is None else milliseconds(client.settings.request_timeout) // 2)
    wanted = min(max(wanted, _SHORTEST_POLL_MS), _LONGEST_POLL_MS)
    if left is None or wanted <= left:
        return wanted
    if left < _SHORTEST_POLL_MS:
        is_known = client.version >= _KNOWS_POLLING_TIME
        raise StatusError(
            Code.ILLEGAL_POLLING_TIME if is_known else Code.BAD_REQUEST,
            "The deadline time remaining is not enough for polling, please check network condition",
        )
    return left - _BEFORE_DEADLINE_MS


# Messages that clients want for as long as they work on them: invisible for longer before their time is over.
#
# (DefaultReceiptHandleManager, RenewStrategyPolicy)
_AHEAD_MS = 10_000
_MINUTE_MS = 60_000
# how long each renewal is for
_MINUTES = (1, 3, 5, 10, 30, 60)
_LONGEST_MS = 3 * 60 * _MINUTE_MS
_MOST_FAILURES = 3
_MOST = 100_000
# what a client that is gone had is for others soon
_GONE_MS = 1000


class _Renewed:
    """A message that a client has, with its handle of now."""

    def __init__(self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle) -> None:
        self.client, self.group, self.topic, self.handle = client, group, topic, handle
        self.popped_at = handle.pop.popped_at
        self.times = self.failures = 0
        self.task: asyncio.Task[None] | None = None


class Renewals:
    """Messages by the handles that clients were given."""

    def __init__(self, service: GrpcBroker, pops: Pops) -> None:
        self._service = service
        self._pops = pops
        self._renewed: dict[tuple[str, str], _Renewed] = {}

    def note(self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle) -> None:
        """A client is given a message. Beyond a bound, none is renewed: they come again after their time."""
        if len(self._renewed) < _MOST:
            self._renewed[group, handle.text] = _Renewed(client, group, topic, handle)

    async def take(self, group: str, text: str) -> ReceiptHandle:
        """Return the handle of now of a message, given the client's, and renew it no more. Raises: StatusError."""
        found = self._renewed.pop((group, text), None)
        if found is None:
            return parse_receipt_handle(text)
        if found.task is not None:
            await asyncio.wait([found.task])
        return found.handle

    async def step(self) -> None:
        """Renew what is over soon, and forget what is over."""
        now = self._service.broker.clock()
        due = [(key, one) for key, one in self._renewed.items() if one.handle.expires_at - now < _AHEAD_MS]
        for key, one in due:
            is_over = one.handle.expires_at <= now or now - one.popped_at >= _LONGEST_MS
            if is_over or one.failures >= _MOST_FAILURES:
                self._renewed.pop(key, None)
            elif key in self._renewed:
                one.task = asyncio.create_task(self._renew(one))
                await asyncio.wait([one.task])
                one.task = None

    async def _renew(self, one: _Renewed) -> None:
        time = _MINUTES[min(one.times, len(_MINUTES) - 1)] * _MINUTE_MS
        try:
            if self._pops.is_outstanding(one.handle, one.group, one.topic):
                one.handle = await self._change(one, time)
            one.times += 1
        except (StatusError, RequestError):
            one.failures += 1

    def _change(self, one: _Renewed, milliseconds: int) -> Any:
        return self._pops.change(one.client, one.group, one.topic, one.handle, milliseconds)

    def gone(self, client: GrpcClient) -> None:
        """A client is gone: others get what it had."""
        for key in [key for key, one in self._renewed.items() if one.client is client]:
            self._service.spawn(self._change(self._renewed.pop(key), _GONE_MS))
