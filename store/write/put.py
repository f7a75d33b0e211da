"""The slow path of a put: checks, encoding, queue offsets and the append under the lock (CommitLog#asyncPutMessage)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rmqctl.formats.errors import DiskFullError, UsageError, WriteFailedError
from rmqctl.formats.layouts import (
    BLANK_FRAME,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
    TRANSACTION_MASK,
)
from rmqctl.formats.message import NO_PROPERTIES, FrameParts, Host, Message, format_offset_message_id, frame_bytes
from rmqctl.formats.notebook import as_html
from rmqctl.formats.properties import parse_properties
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.mapped_file import MappedFile, monotonic_ms
from rmqctl.store.log.append import FileNotCreatedError, FlushService, LogAppender
from rmqctl.store.native.put import KnownTopic, NextOffset, PutState
from rmqctl.store.queues.consumequeue import QueueKey
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.status import PutStatus
from rmqctl.store.write.checks import (
    UNIT_COST,
    Headroom,
    Refusal,
    StoreCondition,
    check_batch,
    check_fits_file,
    check_store,
    check_topic,
)
from rmqctl.store.write.dispatch import CheckpointKeeper, RunningState
from rmqctl.store.write.prepare import Preparation, Prepared, Writer, property_template, property_writer

# The next queue offset of every queue, as a put assigns them (QueueOffsetOperator).


class OffsetTable:
    """Next offset by (topic, queue id); 0 for a queue that never had a message. LMQ queues are in here too, with id 0.

    Not safe by itself: it is used under the put lock only.
    """

    def __init__(self) -> None:
        self._next: dict[QueueKey, NextOffset] = {}

    def load(self, queues: Iterable[AnyConsumeQueue]) -> None:
        """Take the ends of `queues` as they are on disk (ConsumeQueueStore#recoverOffsetTable)."""
        for queue in queues:
            self.entry((queue.topic, queue.queue_id)).value = queue.max_offset

    def entry(self, key: QueueKey) -> NextOffset:
        """Return the object that holds the queue's next offset; the same one for good."""
        return self._next.setdefault(key, NextOffset())

    def next_offset(self, key: QueueKey) -> int:
        """The offset the queue's next message gets."""
        found = self._next.get(key)
        return 0 if found is None else found.value

    def advance(self, key: QueueKey, count: int) -> None:
        """Count `count` messages that are in the log now."""
        self.entry(key).value += count


# What a put answers.

STORED = PutStatus.PUT_OK
_HINTS = {
    PutStatus.DISK_FULL: "free some space, then go on",
    PutStatus.CREATE_MAPPED_FILE_FAILED: "free some space, then go on",
    PutStatus.OS_PAGE_CACHE_BUSY: "the disk is too slow now: try again later",
}


class PutResult(NamedTuple):
    """How a put ended. The ids and offsets are None unless the message is stored; `detail` says why it is not.

    A message that takes no place in a queue (prepared, rolled back) has queue offset 0, as in its frame.
    """

    status: PutStatus
    queue_offset: int | None = None
    physical_offset: int | None = None
    detail: str = ""
    store_host: Host | None = None

    def _repr_html_(self) -> str:
        return as_html(self)

    @property
    def message_id(self) -> str | None:
        """The broker's offset id: made when it is asked for, because most callers of many puts do not."""
        if self.store_host is None or self.physical_offset is None:
            return None
        return format_offset_message_id(self.store_host, self.physical_offset)

    @property
    def is_failure(self) -> bool:
        """Whether the store could not take a message of which nothing bad is known: see `raise_failure`."""
        return not self.status.is_stored and not self.status.is_about_message

    def raise_failure(self, place: str = "") -> None:
        """WriteFailedError, DiskFullError for a full disk, if the store could not take the message. Nothing where it is
        stored or is unfit itself. `place`: what the error begins with, such as which message it is."""
        if not self.is_failure:
            return
        error = DiskFullError if self.status is PutStatus.DISK_FULL else WriteFailedError
        raise error(f"{place}{self.status}: {self.detail}", hint=_HINTS.get(self.status))


class PendingPut(NamedTuple):
    """A put that did not wait for the disk. To be sure that it is on disk, wait until everything before the physical
    offset `durable_at` is; 0: there is nothing to wait for, or the message does not ask for it."""

    results: Sequence[PutResult]
    durable_at: int = 0


def put_until_failure(messages: Sequence[Message], put: Callable[[Message], PutResult]) -> list[PutResult]:
    """Put messages one after the other. If the store cannot take one, the rest get the same answer untried: a smaller
    message that still fits would leave a gap in the middle, and a caller that retries the rest would store it twice."""
    results: list[PutResult] = []
    for message in messages:
        result = put(message)
        results.append(result)
        if result.status is not STORED and result.is_failure:
            results += [result] * (len(messages) - len(results))
            break
    return results


class _Outcome(NamedTuple):
    """Results in order; if any is stored, `end_offset` is behind the last frame, and whether to wait for the disk."""

    results: list[PutResult]
    end_offset: int = 0
    is_waiting: bool = False


class PutServices(NamedTuple):
    """What a put works with."""

    config: StoreConfig
    state: RunningState
    preparation: Preparation
    appender: LogAppender
    offsets: OffsetTable
    headroom: Headroom
    flush: FlushService
    checkpoint: CheckpointKeeper
    puts: PutState
    known: Known
    on_append: Callable[[], None]


class Putter:
    """Puts messages, from any number of threads. fsyncs are waited for outside the put lock."""

    def __init__(self, services: PutServices, file_size: int, clock: Callable[[], int]) -> None:
        """`clock` tells the wall time in ms."""
        self._services = services
        self._file_size = file_size
        self._clock = clock
        self._puts = services.puts
        services.state.on_failure(self._puts.close_window)

    def put(self, message: Message, as_stored: bool) -> PutResult:
        """Put one message on the slow path, and wait for the disk if it asks for that."""
        return self._wait(self._put_all([message], as_stored, is_batch=False))[0]

    def put_at_once(self, messages: Sequence[Message], is_batch: bool) -> PendingPut:
        """Put one message, or a classic batch, without waiting for the disk."""
        outcome, flush = self._put_all(messages, as_stored=False, is_batch=is_batch), self._services.flush
        if flush.is_sync and outcome.end_offset and not outcome.is_waiting:
            flush.wake()
        return PendingPut(outcome.results, outcome.end_offset if flush.is_sync and outcome.is_waiting else 0)

    def put_many(self, messages: Sequence[Message], as_stored: bool, is_batch: bool) -> list[PutResult]:
        """Put messages, as one classic batch or one after the other, and wait for the disk once for all of them."""
        if is_batch:
            return self._wait(self._put_all(messages, as_stored, is_batch=True))
        outcomes: list[_Outcome] = []

        def put(message: Message) -> PutResult:
            outcomes.append(self._put_all([message], as_stored, is_batch=False))
            return outcomes[-1].results[0]

        results = put_until_failure(messages, put)
        return self._wait(
            _Outcome(
                results,
                max((outcome.end_offset for outcome in outcomes), default=0),
                any(outcome.is_waiting for outcome in outcomes),
            )
        )

    def check(self, message: Message, as_stored: bool) -> PutResult | None:
        """How a put of `message` would be refused, None if nothing speaks against it now. Stores nothing."""
        prepared = self._prepare([message], as_stored, is_batch=False)
        return self._refused(prepared, 1).results[0] if isinstance(prepared, Refusal) else None

    def finish(self) -> None:
        """Wait for the put that is under way; the store must be marked closed, so that none follows."""
        with self._puts.lock:
            self._puts.drop_window()

    def _wait(self, outcome: _Outcome) -> list[PutResult]:
        flush = self._services.flush
        if not flush.is_sync or not outcome.end_offset:
            return outcome.results
        if not outcome.is_waiting:
            flush.wake()
            return outcome.results
        if flush.wait_for(outcome.end_offset):
            return outcome.results
        detail = f"stored, but not on disk after {self._services.config.sync_flush_timeout} ms"
        return [
            result._replace(status=PutStatus.FLUSH_DISK_TIMEOUT, detail=detail) if result.status.is_stored else result
            for result in outcome.results
        ]

    def _condition(self) -> StoreCondition:
        state, begin = self._services.state, self._puts.begin_in_lock
        busy = None if begin is None else monotonic_ms() - begin
        return StoreCondition(state.is_closed, state.failure is None, busy)

    def _put_all(self, messages: Sequence[Message], as_stored: bool, is_batch: bool) -> _Outcome:
        """Store all of `messages` in one file, or none of them."""
        if not messages:
            raise UsageError("there is no message to put")
        services = self._services
        prepared = self._prepare(messages, as_stored, is_batch)
        if not isinstance(prepared, Refusal):
            services.headroom.settle(services.appender.end_offset)
            if services.headroom.is_over_ratio:
                prepared = Refusal(
                    PutStatus.SERVICE_NOT_AVAILABLE, "the disk is fuller than diskSpaceWarningLevelRatio"
                )
        if isinstance(prepared, Refusal):
            return self._refused(prepared, len(messages))
        puts = self._puts
        with puts.lock:
            puts.begin_in_lock = monotonic_ms()
            try:
                stored = self._append(prepared)
                if not is_batch and isinstance(stored, _Outcome):
                    self._learn(messages[0], prepared[0])
            finally:
                puts.begin_in_lock = None
        if isinstance(stored, Refusal):
            return self._refused(stored, len(messages))
        services.on_append()
        return stored

    def _learn(self, message: Message, prepared: Prepared) -> None:
        """A message has taken the slow path: if it was an ordinary one, those that follow may take the fast path."""
        puts, known, services = self._puts, self._services.known, self._services
        if not known.is_possible:
            return
        key = (message.topic, message.queue_id)
        # a copy may have a topic that new messages may not have
        may_follow = not prepared.is_copy or check_topic(message.topic) is None
        # what waits in the topic of delayed messages must have a delay, which only the slow path looks at
        if prepared.key == key and prepared.is_simple and may_follow and message.topic != SCHEDULE_TOPIC:
            known.learn(*key, services.offsets.entry(key))
        file = services.appender.last_file
        if file is not None:
            limit = _limit_of(file)
            if services.headroom.admit_ordinary(puts.room_of(file, limit)):
                puts.open_window(file, file.writable_map.map, limit, file.start_offset)
        if not services.state.is_writeable or services.headroom.is_over_ratio:
            puts.close_window()

    def _refused(self, refusal: Refusal, count: int) -> _Outcome:
        failure = self._services.state.failure
        detail = refusal.detail if failure is None else f"{refusal.detail}: {failure}"
        return _Outcome([PutResult(refusal.status, detail=detail)] * count)

    def _prepare(self, messages: Sequence[Message], as_stored: bool, is_batch: bool) -> list[Prepared] | Refusal:
        services = self._services
        condition = self._condition()
        refusal = check_store(condition, services.config)
        if refusal is not None:
            return refusal
        now = self._clock()
        found: list[Prepared] = []
        for message in messages:
            prepared = services.preparation.prepare(message, now, condition, as_stored)
            if isinstance(prepared, Refusal):
                return prepared
            found.append(prepared)
        if is_batch:
            properties: list[Mapping[str, str]] = [
                one.properties if one.property_bytes is None else parse_properties(one.property_bytes)
                for one in messages
            ]
            refusal = check_batch(list(messages), properties, [item.properties_size for item in found], services.config)
        return refusal or check_fits_file(sum(item.parts.total_size for item in found), self._file_size) or found

    def _append(self, prepared: list[Prepared]) -> _Outcome | Refusal:
        """Under the put lock: offsets, space, frames; then everything becomes visible."""
        services = self._services
        refusal = check_store(self._condition()._replace(time_in_lock=None), services.config)
        if refusal is not None:
            return refusal
        assigned, taken = self._assign(prepared)
        if isinstance(assigned, Refusal):
            return assigned
        total = sum(parts.total_size for parts, _ in assigned)
        # late properties can have made a frame longer
        refusal = check_fits_file(total, self._file_size)
        if refusal is not None:
            return refusal
        try:
            room = services.appender.reserve(total)
        except FileNotCreatedError as error:
            return Refusal(PutStatus.CREATE_MAPPED_FILE_FAILED, str(error))
        try:
            if not services.headroom.admit(total + sum(item.units for item in prepared) * UNIT_COST):
                services.appender.cancel(room)
                return Refusal(PutStatus.DISK_FULL, "no space would be left for queues and index")
            data, outcome = self._frames(room.physical_offset, prepared, assigned)
        except BaseException:
            services.appender.cancel(room)
            raise
        if room.is_new_file:
            # a file that is full is closed as soon as it is on disk
            self._puts.drop_window()
        try:
            services.appender.append(room, data, self._puts.last_timestamp)
        finally:
            # whatever interrupts us: a message that is in the log has used up its offset
            if services.appender.end_offset >= outcome.end_offset:
                for key, count in taken.items():
                    services.offsets.advance(key, count)
        return outcome

    def _assign(self, prepared: list[Prepared]) -> tuple[list[tuple[FrameParts, int]] | Refusal, dict[QueueKey, int]]:
        """Frames with their queue offsets, and how many offsets each queue gives away for them."""
        offsets = self._services.offsets
        taken: dict[QueueKey, int] = {}

        def take(key: QueueKey, count: int) -> int:
            before = taken.get(key, 0)
            taken[key] = before + count
            return offsets.next_offset(key) + before

        assigned: list[tuple[FrameParts, int]] = []
        for item in prepared:
            queue_offset = take(item.key, item.slots) if item.key is not None else 0
            parts: FrameParts | Refusal = item.parts
            if item.is_late:
                # a queue that is listed twice has one slot of the message, as LmqDispatch#wrapLmqDispatch numbers it
                multi_offsets = {key: take(key, 1) for key in dict.fromkeys(item.multi) if key is not None}
                parts = self._services.preparation.complete(item, queue_offset, multi_offsets)
            if isinstance(parts, Refusal):
                return parts, {}
            assigned.append((parts, queue_offset))
        return assigned, taken

    def _frames(
        self, physical_offset: int, prepared: list[Prepared], assigned: list[tuple[FrameParts, int]]
    ) -> tuple[bytes, _Outcome]:
        """The frames as they will stand at `physical_offset`. The store time is that of this moment."""
        now = self._clock()
        frames: list[bytes] = []
        results: list[PutResult] = []
        for item, (parts, queue_offset) in zip(prepared, assigned, strict=True):
            timestamp = now if item.store_timestamp is None else item.store_timestamp
            if timestamp < self._puts.last_timestamp:
                self._services.checkpoint.lower(timestamp, physical_offset)
            self._puts.last_timestamp = timestamp
            frames.append(frame_bytes(parts, queue_offset, physical_offset, timestamp))
            results.append(PutResult(PutStatus.PUT_OK, queue_offset, physical_offset, "", parts.store_host))
            physical_offset += parts.total_size
        return b"".join(frames), _Outcome(results, physical_offset, any(item.is_waiting for item in prepared))


def _limit_of(file: MappedFile) -> int:
    """Return the position up to which ordinary messages may use the space reserved in `file`."""
    return min(file.writable_map.reserved, file.size - BLANK_FRAME.size)


# flags that make a message take the slow path
UNUSUAL_FLAGS = TRANSACTION_MASK | SYS_FLAG_INNER_BATCH | SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_REMEMBERED = 4096
_LARGEST_TOPIC = 127


def packed_host(host: Host | None) -> bytes | None:
    """Encode an IPv4 host as the eight bytes of a frame; None for IPv6 or an invalid host."""
    if host is None:
        return None
    try:
        ip = host.as_written.ip
        return ip + host.port.to_bytes(4, "big", signed=True) if len(ip) == 4 else None
    except (AttributeError, OverflowError, TypeError):
        return None


class Known:
    """What one store knows of its ordinary messages.

    `is_possible`: whether there is a fast path in this store at all. `topics` by name, and `names` of properties, each
    with its stored bytes and the separator after them: keys of both are plain strings, whose comparison runs no foreign
    code.
    """

    def __init__(self, config: StoreConfig, store_host: Host) -> None:
        self.is_possible = _is_ordinary_store(config) and not store_host.is_v6
        self.largest_body = config.max_message_size
        self.store_host = store_host
        self.packed_store_host = packed_host(store_host) or bytes(8)
        self.topics: dict[str, KnownTopic] = {}
        self.names: dict[str, bytes] = {}
        self._writers: dict[tuple[str, ...], Writer] = {}

    def learn(self, topic: str, queue_id: int, entry: NextOffset) -> None:
        """A message for this queue has taken the slow path, as new and into this very queue of 20-byte units. Under the
        put lock."""
        if type(topic) is not str or type(queue_id) is not int:
            return
        known = self.topics.get(topic)
        if known is None:
            encoded = topic.encode("utf-8")
            if len(encoded) > _LARGEST_TOPIC:
                return
            field = TOPIC_LENGTH_V1.struct.pack(len(encoded)) + encoded
            known = self.topics[topic] = KnownTopic(field, {})
        known.queues[queue_id] = entry

    def properties_of(self, properties: Mapping[str, str]) -> bytes | None:
        """Return the stored form of ordinary properties; None for others, and for other types than strings."""
        if type(properties) is not dict and properties is not NO_PROPERTIES:
            return None
        write = self._writer_of(tuple(properties))
        if write is None:
            return None
        try:
            text = write(properties)
            return None if text is None else text.encode()
        except (UnicodeError, TypeError):
            return None

    def learn_names(self, properties: Mapping[str, str]) -> None:
        """Know the names of these properties, if they are ordinary."""
        if len(self.names) < _REMEMBERED and property_template(tuple(properties)) is not None:
            # half of a surrogate pair: the slow path refuses such a message and tells why
            with contextlib.suppress(UnicodeError):
                self.names.update({name: f"{name}\x01".encode() for name in properties})

    def _writer_of(self, property_names: tuple[str, ...]) -> Writer | None:
        write = self._writers.get(property_names)
        if write is None:
            write = property_writer(property_names)
            if write is not None and len(self._writers) < _REMEMBERED:
                self._writers[property_names] = write
        return write


def _is_ordinary_store(config: StoreConfig) -> bool:
    """Whether messages of this store can take the fast path: not where frames go elsewhere or are completed late."""
    return (
        not config.uses_transient_store_pool
        and not config.enabled_append_prop_crc
        and (not config.is_slave or config.duplication_enable)
    )
