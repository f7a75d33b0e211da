"""Trace records on their way to the trace topic, in the background (AsyncTraceDispatcher)."""

from __future__ import annotations

import enum
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Any, NamedTuple, Protocol

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, RmqctlError, counted
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.client import without_namespace
from rmqctl.network.clients.hooks import (
    ConsumeHook,
    ConsumeHookContext,
    ConsumeReturn,
    EndTransactionContext,
    MessageType,
    SendHook,
    SendHookContext,
)
from rmqctl.network.clients.producing.requests import DEFAULT_REGION
from rmqctl.network.clients.producing.settings import ProducerSettings
from rmqctl.network.unique_ids import UniqueIds

# Trace records: what a client did with a message, in RocketMQ's encoding (TraceDataEncoder, TraceContext).

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_FIELD, _RECORD = "\x01", "\x02"
_NULL = "null"
_KEY_SEPARATOR = " "


class TraceType(enum.Enum):
    """Kind of a record, by RocketMQ's names."""

    PUB = "Pub"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"
    RECALL = "Recall"


class TraceBean(NamedTuple):
    """One message of a record. None is a value that the message does not have."""

    topic: str | None = None
    message_id: str = ""
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    body_length: int = 0
    message_type: MessageType = MessageType.NORMAL
    offset_message_id: str | None = None
    retry_times: int = 0
    transaction_id: str | None = None
    transaction_state: str = ""
    is_from_check: bool = False


class TraceRecord(NamedTuple):
    """What a client did: `timestamp` in ms since 1970, `cost` in ms; `request_id` joins the start and end of a
    consumption. A record of consumption has a bean for each message, others have one. Decoded, None is unknown."""

    type: TraceType
    beans: Sequence[TraceBean]
    timestamp: int | None
    group: str | None
    region: str | None = DEFAULT_REGION
    cost: int = 0
    is_success: bool = True
    request_id: str = ""
    code: ConsumeReturn | None = ConsumeReturn.SUCCESS


def encode(record: TraceRecord) -> str:
    """Return the text of a record (encoderFromContextBean)."""
    return "".join(_FIELD.join(map(_text, _fields(record, bean))) + _RECORD for bean in record.beans)


def keys_of(record: TraceRecord) -> list[str]:
    """Return the keys by which a record is found: ids and keys of its messages."""
    found: list[str] = []
    for bean in record.beans:
        found.append(bean.message_id)
        found += bean.keys.split(_KEY_SEPARATOR) if bean.keys else ()
    return found


def _fields(record: TraceRecord, bean: TraceBean) -> list[object]:
    head = [record.type.value, record.timestamp, record.region, record.group]
    message = [bean.topic, bean.message_id, bean.tags, bean.keys, bean.store_host]
    match record.type:
        case TraceType.PUB:
            rest = [bean.body_length, record.cost, int(bean.message_type), bean.offset_message_id, record.is_success]
            return [*head, *message, *rest]
        case TraceType.SUB_BEFORE:
            return [*head, record.request_id, bean.message_id, bean.retry_times, bean.keys]
        case TraceType.SUB_AFTER:
            code = None if record.code is None else int(record.code)
            said = [record.request_id, bean.message_id, record.cost, record.is_success, bean.keys, code]
            return [record.type.value, *said, record.timestamp, record.group]
        case TraceType.END_TRANSACTION:
            end = [bean.transaction_id, bean.transaction_state, bean.is_from_check]
            return [*head, *message, int(bean.message_type), *end]
        case TraceType.RECALL:
            return [*head, bean.topic, bean.message_id, record.is_success]


def _text(value: object) -> str:
    if value is None:
        return _NULL
    return str(value).lower() if isinstance(value, bool) else str(value)


def decode(body: bytes) -> list[TraceRecord]:
    """Return the records in the body of a trace message, each with one bean (decoderFromTraceDataString).

    Raises: CorruptError where the body is not made of records.
    """
    try:
        texts = [one for one in body.decode("utf-8").split(_RECORD) if one]
        return [_decoded(one.split(_FIELD)) for one in texts]
    except (ValueError, IndexError) as error:
        raise CorruptError("the body of the trace message is not made of trace records") from error


def _decoded(fields: list[str]) -> TraceRecord:
    return _DECODERS[TraceType(fields[0])](fields)


def _pub(fields: list[str]) -> TraceRecord:
    # clients before 4.5.2 did not write the id of the broker
    has_id = len(fields) > 13
    bean = _message(fields)._replace(
        body_length=int(fields[9]),
        message_type=MessageType(int(fields[11])),
        offset_message_id=_known(fields[12]) if has_id else None,
    )
    is_success = fields[13 if has_id else 12] == "true" if len(fields) > 12 else True
    return _head(fields, bean)._replace(cost=int(fields[10]), is_success=is_success)


def _sub_before(fields: list[str]) -> TraceRecord:
    bean = TraceBean(message_id=fields[5], retry_times=int(fields[6]), keys=_known(fields[7]))
    return _head(fields, bean)._replace(request_id=fields[4])


def _sub_after(fields: list[str]) -> TraceRecord:
    bean = TraceBean(message_id=fields[2], keys=_known(fields[5]))
    has_time = len(fields) > 8
    return TraceRecord(
        TraceType.SUB_AFTER,
        (bean,),
        int(fields[7]) if has_time else None,
        _known(fields[8]) if has_time else None,
        None,
        int(fields[3]),
        fields[4] == "true",
        fields[1],
        ConsumeReturn(int(fields[6])) if len(fields) > 6 and fields[6] else None,
    )


def _end_transaction(fields: list[str]) -> TraceRecord:
    bean = _message(fields)._replace(
        message_type=MessageType(int(fields[9])),
        transaction_id=_known(fields[10]),
        transaction_state=fields[11],
        is_from_check=fields[12] == "true",
    )
    return _head(fields, bean)


def _recall(fields: list[str]) -> TraceRecord:
    bean = TraceBean(topic=_known(fields[4]), message_id=fields[5])
    return _head(fields, bean)._replace(is_success=fields[6] == "true")


def _head(fields: list[str], bean: TraceBean) -> TraceRecord:
    return TraceRecord(TraceType(fields[0]), (bean,), int(fields[1]), _known(fields[3]), _known(fields[2]))


def _message(fields: list[str]) -> TraceBean:
    return TraceBean(_known(fields[4]), fields[5], _known(fields[6]), _known(fields[7]), _known(fields[8]))


def _known(text: str) -> str | None:
    return None if text == _NULL else text


_DECODERS: dict[TraceType, Callable[[list[str]], TraceRecord]] = {
    TraceType.PUB: _pub,
    TraceType.SUB_BEFORE: _sub_before,
    TraceType.SUB_AFTER: _sub_after,
    TraceType.END_TRANSACTION: _end_transaction,
    TraceType.RECALL: _recall,
}


LARGEST_BATCH = 20
LARGEST_MESSAGE = 128_000
"""Bytes of a trace message."""
# the properties of a message have to fit into 32,767 bytes
_LARGEST_KEYS = 16_000
_LARGEST_QUEUE = 2048
_FLUSH_SECONDS = 5.0
_CLOSE_SECONDS = 5.0
_SEND_MS = 5000
_INSTANCE = "PID_CLIENT_INNER_TRACE_PRODUCER"
_GROUP = "_INNER_TRACE_PRODUCER"
_numbers = itertools.count(1)


class TraceProducer(Protocol):
    """The producer that sends trace messages."""

    def start(self) -> None:
        """Start it."""

    def close(self) -> None:
        """End it."""

    def send_soon(self, message: Message) -> Future[Any]:
        """Send a message; the future has the result."""


class TraceOptions(NamedTuple):
    """Topic of traces, and the most records of a batch (traceTopic, traceMsgBatchNum)."""

    topic: str = TRACE_TOPIC
    batch: int = 10

    @classmethod
    def of(cls, settings: ProducerSettings) -> TraceOptions:
        """Return those of a producer."""
        return cls(settings.trace_topic, settings.trace_msg_batch_num)


def trace_group(group: str, kind: str) -> str:
    """Return the group of the next trace producer; `group`: whose messages are traced, `kind`: PRODUCE or CONSUME."""
    return f"{_GROUP}-{group}-{kind}-{next(_numbers)}"


def trace_settings(namesrv: str) -> ProducerSettings:
    """Return the settings of a trace producer."""
    return ProducerSettings(
        send_msg_timeout=_SEND_MS, max_message_size=LARGEST_MESSAGE, instance_name=f"{_INSTANCE}_{namesrv}"
    )


class TraceDispatcher:
    """Takes trace records and sends them in batches; nothing that a traced client does waits for it.

    A batch leaves when `options.batch` records wait (20 at most), or 5 s after the one before it. More than 2048
    waiting records are discarded. `warn` gets a line for records that are lost.
    """

    def __init__(self, make: Callable[[], TraceProducer], options: TraceOptions, warn: Callable[[str], object]) -> None:
        """`make`: called for the producer, in the dispatcher's thread, when the first batch leaves."""
        self.topic = options.topic or TRACE_TOPIC
        self.discarded = 0
        """Number of records that were discarded because too many waited."""
        self._make = make
        self._batch = max(1, min(options.batch, LARGEST_BATCH))
        self._warn = warn
        self._warned: set[str] = set()
        self._changed = threading.Condition()
        self._waiting: deque[TraceRecord] = deque()
        self._is_closing = False
        self._flushed_at = time.monotonic()
        self._producer: TraceProducer | None = None
        self._sending: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="rmqctl-trace", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def append(self, record: TraceRecord) -> bool:
        """Take a record without waiting. Return False where it is discarded."""
        with self._changed:
            if len(self._waiting) >= _LARGEST_QUEUE or self._is_closing:
                self.discarded += 1
                return False
            self._waiting.append(record)
            self._changed.notify()
            return True

    def _run(self) -> None:
        while (records := self._next_batch()) is not None:
            for data, keys in _messages(records):
                self._send(data, keys)

    def _next_batch(self) -> list[TraceRecord] | None:
        """Wait for the next batch; None when the dispatcher is closed and nothing waits."""
        with self._changed:
            while not self._is_closing and len(self._waiting) < self._batch:
                left = self._flushed_at + _FLUSH_SECONDS - time.monotonic()
                if self._waiting and left <= 0:
                    break
                self._changed.wait(left if self._waiting else None)
            if not self._waiting:
                return None
            self._flushed_at = time.monotonic()
            return [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]

    def _send(self, data: str, keys: Iterable[str]) -> None:
        message = Message(self.topic, data.encode(), properties={names.KEYS: " ".join(keys)})
        try:
            if self._producer is None:
                producer = self._make()
                producer.start()
                self._producer = producer
            sent = self._producer.send_soon(message)
        except RmqctlError as error:
            self._lost(error)
            return
        self._sending.add(sent)
        sent.add_done_callback(self._sent)

    def _sent(self, done: Future[Any]) -> None:
        self._sending.discard(done)
        error = done.exception()
        if error is not None:
            self._lost(error)

    def _lost(self, error: BaseException) -> None:
        line = f"trace records for topic {self.topic!r} are lost: {getattr(error, 'message', error)}"
        if line not in self._warned:
            self._warned.add(line)
            self._warn(line)

    def close(self) -> None:
        """Send what waits, for 5 s at most, and end."""
        until = time.monotonic() + _CLOSE_SECONDS
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)
        wait(list(self._sending), max(0.0, until - time.monotonic()))
        left = len(self._waiting)
        if left or self.discarded:
            self._warn(f"{counted(left + self.discarded, 'trace record was', 'trace records were')} not sent")
        if self._producer is not None:
            self._producer.close()


def _messages(records: Iterable[TraceRecord]) -> Iterator[tuple[str, list[str]]]:
    """Yield body and keys of the trace messages for a batch: one for each topic, unless that is too large."""
    by_topic: dict[str | None, list[TraceRecord]] = {}
    for record in records:
        if record.beans and record.region is not None:
            by_topic.setdefault(record.beans[0].topic, []).append(record)
    for of_topic in by_topic.values():
        text, keys = "", dict[str, None]()
        for record in of_topic:
            more, more_keys = encode(record), keys_of(record)
            is_full = len((text + more).encode()) > LARGEST_MESSAGE or _size([*keys, *more_keys]) > _LARGEST_KEYS
            if text and is_full:
                yield text, list(keys)
                text, keys = "", {}
            text += more
            keys |= dict.fromkeys(more_keys)
        yield text, list(keys)


def _size(keys: Iterable[str]) -> int:
    return sum(len(key.encode()) + 1 for key in keys)


# Hooks that trace messages (SendMessageTraceHookImpl, EndTransactionTraceHookImpl, ConsumeMessageTraceHookImpl).

_SENT = "SEND_OK"
_REGION, _SWITCH = "MSG_REGION", "TRACE_ON"


def _now() -> int:
    return time.time_ns() // 1_000_000


def _since(started: float) -> int:
    """Return the ms since a monotonic time."""
    return int((time.monotonic() - started) * 1000)


class SendTrace(SendHook):
    """Traces sends that a broker answered, unless it wants no traces. Of a batch the ids are joined by commas."""

    def __init__(self, dispatcher: TraceDispatcher, namespace: str) -> None:
        self._dispatcher = dispatcher
        self._namespace = namespace

    def before(self, context: SendHookContext) -> None:
        """Take the time."""
        context.notes[self] = _now(), time.monotonic()

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

    def __init__(self, dispatcher: TraceDispatcher, namespace: str) -> None:
        self._dispatcher = dispatcher
        self._namespace = namespace

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
        self._dispatcher.append(TraceRecord(TraceType.END_TRANSACTION, (bean,), _now(), group, region))


class ConsumeTrace(ConsumeHook):
    """Traces the start and the end of each consumption."""

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher
        self._ids = UniqueIds()

    def before(self, context: ConsumeHookContext) -> None:
        """Append the record of the start."""
        wanted = [one for one in context.messages if not one.topic.startswith(self._dispatcher.topic)]
        beans, region = _beans(wanted, context.namespace)
        if beans:
            group = without_namespace(context.namespace, context.group)
            begun = TraceRecord(TraceType.SUB_BEFORE, beans, _now(), group, region, request_id=self._ids.next())
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
                timestamp=_now(),
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
