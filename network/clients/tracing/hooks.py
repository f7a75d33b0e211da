"""Hooks that trace messages (SendMessageTraceHookImpl, EndTransactionTraceHookImpl, ConsumeMessageTraceHookImpl)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rmqctl.formats import properties as names
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.consume_hooks import ConsumeHook, ConsumeHookContext
from rmqctl.network.clients.namespaces import without_namespace
from rmqctl.network.clients.producing.hooks import EndTransactionContext, MessageType, SendHook, SendHookContext
from rmqctl.network.clients.producing.requests import DEFAULT_REGION
from rmqctl.network.clients.tracing.dispatcher import TraceDispatcher
from rmqctl.network.clients.tracing.records import TraceBean, TraceRecord, TraceType
from rmqctl.network.unique_ids import UniqueIds

_SENT = "SEND_OK"
_REGION, _SWITCH = "MSG_REGION", "TRACE_ON"


def _now() -> int:
    return time.time_ns() // 1_000_000


def _since(started: float) -> int:
    """Return the ms since a monotonic time."""
    return int((time.monotonic() - started) * 1000)


class SendTrace(SendHook):
    """Traces sends that a broker answered, unless it wants no traces. Of a batch the ids are joined by commas."""

    def __init__(self, dispatcher: TraceDispatcher, namespace: str, clock: Callable[[], int] = _now) -> None:
        self._dispatcher = dispatcher
        self._namespace = namespace
        self._clock = clock

    def before(self, context: SendHookContext) -> None:
        """Take the time."""
        context.notes[self] = self._clock(), time.monotonic()

    def after(self, context: SendHookContext) -> None:
        """Append the record."""
        result, begun = context.result, context.notes.get(self)
        if result is None or begun is None or not result.is_trace_on:
            return
        begin, started = begun
        message = context.message
        if message.topic.startswith(self._dispatcher.topic):
            return
        given = {} if context.is_batch else message.properties
        bean = TraceBean(
            topic=without_namespace(self._namespace, message.topic),
            message_id=context.unique_key,
            tags=given.get(names.TAGS),
            keys=given.get(names.KEYS),
            store_host=context.address,
            body_length=len(context.body),
            message_type=context.message_type,
            offset_message_id=",".join(result.message_ids),
        )
        group = without_namespace(self._namespace, context.group)
        cost, is_sent = _since(started), result.status == _SENT
        self._dispatcher.append(TraceRecord(TraceType.PUB, (bean,), begin, group, result.region, cost, is_sent))


class EndTransactionTrace:
    """Traces ends of transactions."""

    def __init__(self, dispatcher: TraceDispatcher, namespace: str, clock: Callable[[], int] = _now) -> None:
        self._dispatcher = dispatcher
        self._namespace = namespace
        self._clock = clock

    def __call__(self, context: EndTransactionContext) -> None:
        """Append the record."""
        message: Message = context.message
        given = message.properties
        bean = TraceBean(
            topic=without_namespace(self._namespace, message.topic),
            message_id=context.unique_key,
            tags=given.get(names.TAGS),
            keys=given.get(names.KEYS),
            store_host=context.address,
            message_type=MessageType.TRANSACTION_COMMIT,
            transaction_id=context.unique_key,
            transaction_state=context.state,
            is_from_check=context.is_from_check,
        )
        group = without_namespace(self._namespace, context.group)
        region = given.get(_REGION) or DEFAULT_REGION
        self._dispatcher.append(TraceRecord(TraceType.END_TRANSACTION, (bean,), self._clock(), group, region))


class ConsumeTrace(ConsumeHook):
    """Traces the start and the end of each consumption."""

    def __init__(self, dispatcher: TraceDispatcher, clock: Callable[[], int] = _now) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._ids = UniqueIds()

    def before(self, context: ConsumeHookContext) -> None:
        """Append the record of the start."""
        wanted = [one for one in context.messages if not one.topic.startswith(self._dispatcher.topic)]
        beans, region = _beans(wanted, context.namespace)
        if beans:
            group = without_namespace(context.namespace, context.group)
            begun = TraceRecord(TraceType.SUB_BEFORE, beans, self._clock(), group, region, request_id=self._ids.next())
            context.notes[self] = begun, time.monotonic()
            self._dispatcher.append(begun)

    def after(self, context: ConsumeHookContext) -> None:
        """Append the record of the end."""
        if self not in context.notes:
            return
        begun, started = context.notes[self]
        self._dispatcher.append(
            begun._replace(
                type=TraceType.SUB_AFTER,
                timestamp=self._clock(),
                cost=_since(started) // len(context.messages),
                is_success=context.is_success,
                code=context.returned,
            )
        )


def _beans(messages: Sequence[StoredMessage], namespace: str) -> tuple[list[TraceBean], str | None]:
    """Return what a record says of messages, and their region; without those whose broker wants no traces."""
    beans: list[TraceBean] = []
    region: str | None = None
    for message in messages:
        given = message.properties()
        if given.get(_SWITCH) == "false":
            continue
        region = given.get(_REGION)
        beans.append(
            TraceBean(
                topic=without_namespace(namespace, message.topic),
                message_id=given.get(names.UNIQUE_KEY, message.message_id),
                tags=given.get(names.TAGS),
                keys=given.get(names.KEYS),
                body_length=message.total_size,
                retry_times=message.reconsume_times,
            )
        )
    return beans, region
