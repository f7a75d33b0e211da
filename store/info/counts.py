"""Counting the messages of a commitlog: all of them, and topic by topic. Large logs are counted on columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.walk import Damage, walk
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, ConsumeQueue, QueueUnit
from rmqctl.store.queues.offset_by_time import StoreTime
from rmqctl.store.queues.queue_table import AnyConsumeQueue

if TYPE_CHECKING:
    from rmqctl.store.log.columns import ColumnRecord

COLUMNS_FROM = 32 * 1024 * 1024
"""Bytes of log from which on the compiled walk is worth loading: that takes as long as the plain walk of so many."""


def is_large(log: MappedFileQueue) -> bool:
    """Whether a look at the whole log is done faster on columns."""
    return sum(file.size for file in log.files) >= COLUMNS_FROM


@dataclass(slots=True)
class LogNumbers:
    """What a walk over the commitlog counts. `end`: physical offset behind the last message."""

    messages: int = 0
    bytes: int = 0
    end: int = 0
    first_store_timestamp: int | None = None
    last_store_timestamp: int | None = None
    damages: list[Damage] = field(default_factory=list)

    def add(self, message: StoredMessage) -> None:
        """Count one message."""
        self.messages += 1
        self.bytes += message.total_size
        self.end = message.end
        if self.first_store_timestamp is None:
            self.first_store_timestamp = message.store_timestamp
        self.last_store_timestamp = message.store_timestamp

    def join(self, later: LogNumbers) -> None:
        """Count what was counted of a later part of the log."""
        self.damages += later.damages
        if not later.messages:
            return
        self.messages += later.messages
        self.bytes += later.bytes
        self.end = later.end
        if self.first_store_timestamp is None:
            self.first_store_timestamp = later.first_store_timestamp
        self.last_store_timestamp = later.last_store_timestamp


def count_log(log: MappedFileQueue, events: Events = Events()) -> LogNumbers:
    """Walk the whole log, CRCs checked, and count."""
    return columns_count_log(log, events) if is_large(log) else plain_count_log(log, events)


def plain_count_log(log: MappedFileQueue, events: Events = Events()) -> LogNumbers:
    """The plain twin of columns_count_log."""
    numbers = LogNumbers(end=max(log.min_offset, 0))
    for record in walk(log, progress=events.progress):
        if isinstance(record, StoredMessage):
            numbers.add(record)
        elif isinstance(record, Damage):
            numbers.damages.append(record)
    return numbers


def columns_count_log(log: MappedFileQueue, events: Events = Events()) -> LogNumbers:
    """The same on columns, on several cores."""
    from rmqctl.store.log.parallel import walk_parallel
    from rmqctl.store.native.tables import Columns

    numbers = LogNumbers(end=max(log.min_offset, 0))
    for part in walk_parallel(log, _numbers_of, columns=Columns.HEAD, progress=events.progress):
        numbers.join(part)
    return numbers


def _numbers_of(records: Iterator[ColumnRecord]) -> LogNumbers:
    from rmqctl.store.log.columns import MessageColumns

    numbers = LogNumbers()
    for record in records:
        if isinstance(record, MessageColumns):
            times = record.store_timestamp
            part = LogNumbers(record.rows, record.end - record.begin, record.end, int(times[0]), int(times[-1]))
            numbers.join(part)
        elif isinstance(record, Damage):
            numbers.damages.append(record)
    return numbers


@dataclass(slots=True)
class TopicNumbers:
    """Messages of one topic. Times in ms, the smallest and the largest."""

    messages: int = 0
    bytes: int = 0
    first_store_timestamp: int | None = None
    last_store_timestamp: int | None = None
    queue_ids: set[int] = field(default_factory=set)

    def add(self, messages: int, size: int, first: int, last: int) -> None:
        """Count messages."""
        self.messages += messages
        self.bytes += size
        known = self.first_store_timestamp, self.last_store_timestamp
        self.first_store_timestamp = first if known[0] is None else min(known[0], first)
        self.last_store_timestamp = last if known[1] is None else max(known[1], last)


OnSpan = Callable[[Damage], object]


def count_topics(
    log: MappedFileQueue, events: Events = Events(), on_damage: OnSpan | None = None
) -> dict[str, TopicNumbers]:
    """The messages of each topic, by a walk over the whole log, CRCs checked; `on_damage` is told what is none."""
    count = columns_count_topics if is_large(log) else plain_count_topics
    return count(log, events, on_damage)


def plain_count_topics(
    log: MappedFileQueue, events: Events = Events(), on_damage: OnSpan | None = None
) -> dict[str, TopicNumbers]:
    """The plain twin of columns_count_topics."""
    topics: dict[str, TopicNumbers] = {}
    for record in walk(log, progress=events.progress):
        if isinstance(record, StoredMessage):
            numbers = topics.setdefault(record.topic, TopicNumbers())
            numbers.add(1, record.total_size, record.store_timestamp, record.store_timestamp)
            numbers.queue_ids.add(record.queue_id)
        elif isinstance(record, Damage) and on_damage is not None:
            on_damage(record)
    return topics


def columns_count_topics(
    log: MappedFileQueue, events: Events = Events(), on_damage: OnSpan | None = None
) -> dict[str, TopicNumbers]:
    """The same on columns, on several cores."""
    from rmqctl.store.log.columns import TopicIds
    from rmqctl.store.log.parallel import walk_parallel
    from rmqctl.store.native.tables import Columns

    table = TopicIds()
    topics: dict[str, TopicNumbers] = {}
    wanted = Columns.HEAD | Columns.TOPIC
    for part, damages in walk_parallel(log, _topics_of, columns=wanted, topics=table, progress=events.progress):
        for damage in damages:
            if on_damage is not None:
                on_damage(damage)
        for topic_id, later in part.items():
            numbers = topics.setdefault(table.names[topic_id], TopicNumbers())
            assert later.first_store_timestamp is not None
            assert later.last_store_timestamp is not None
            numbers.add(later.messages, later.bytes, later.first_store_timestamp, later.last_store_timestamp)
            numbers.queue_ids |= later.queue_ids
    return topics


def _topics_of(records: Iterator[ColumnRecord]) -> tuple[dict[int, TopicNumbers], list[Damage]]:
    import numpy as np

    from rmqctl.store.log.columns import MessageColumns

    topics: dict[int, TopicNumbers] = {}
    damages: list[Damage] = []
    for record in records:
        if isinstance(record, Damage):
            damages.append(record)
        if not isinstance(record, MessageColumns):
            continue
        order = np.argsort(record.topic_id, kind="stable")
        ids, starts = np.unique(record.topic_id[order], return_index=True)
        sizes = np.add.reduceat(record.size[order].astype(np.int64), starts).tolist()
        firsts = np.minimum.reduceat(record.store_timestamp[order], starts).tolist()
        lasts = np.maximum.reduceat(record.store_timestamp[order], starts).tolist()
        counts = np.diff([*starts.tolist(), record.rows]).tolist()
        queue_ids = np.split(record.queue_id[order], starts[1:])
        for place, topic_id in enumerate(ids.tolist()):
            numbers = topics.setdefault(topic_id, TopicNumbers())
            numbers.add(counts[place], sizes[place], firsts[place], lasts[place])
            numbers.queue_ids.update(np.unique(queue_ids[place]).tolist())
    return topics, damages


# Counting the messages of one queue by its units. Long queues are counted on arrays.

ARRAYS_FROM = 50_000
"""Units of all queues together from which on numpy is worth importing."""
# the last of these that leads to a message nearly always is the very last one
_LATEST_UNITS = 64
_CHUNK_UNITS = 1 << 17

"""Store time in ms of the message that a unit points at, None if there is none."""


@dataclass(slots=True)
class QueueNumbers:
    """`messages` and `bytes` as the units say; times in ms of the first and last message that can be read."""

    messages: int = 0
    bytes: int = 0
    first_store_timestamp: int | None = None
    last_store_timestamp: int | None = None


def arrays_pay(queues: Iterable[AnyConsumeQueue], commitlog_min_offset: int) -> bool:
    """Return whether these queues have enough units, all together, to count them on arrays."""
    units = 0
    for queue in queues:
        units += queue.max_offset - queue.min_offset(commitlog_min_offset)
        if units >= ARRAYS_FROM:
            return True
    return False


def count_queue(queue: AnyConsumeQueue, minimum: int, store_time: StoreTime, on_arrays: bool) -> QueueNumbers:
    """Count the units from queue offset `minimum` on; `on_arrays` where the queues have many, see `arrays_pay`."""
    if on_arrays and isinstance(queue, ConsumeQueue):
        return arrays_count_queue(queue, minimum, store_time)
    return plain_count_queue(queue, minimum, store_time)


def plain_count_queue(queue: AnyConsumeQueue, minimum: int, store_time: StoreTime) -> QueueNumbers:
    """The plain twin of arrays_count_queue."""
    numbers = QueueNumbers()
    latest: deque[QueueUnit] = deque(maxlen=_LATEST_UNITS)
    for unit in queue.units(minimum):
        if unit.is_written:
            numbers.messages += unit.batch_size
            numbers.bytes += unit.size
            latest.append(unit)
            if numbers.first_store_timestamp is None:
                numbers.first_store_timestamp = store_time(unit)
    numbers.last_store_timestamp = _last_time(queue, minimum, latest, store_time)
    return numbers


def arrays_count_queue(queue: ConsumeQueue, minimum: int, store_time: StoreTime) -> QueueNumbers:
    """The same on arrays."""
    import numpy as np

    kind = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
    assert kind.itemsize == CONSUMEQUEUE_UNIT.size
    numbers = QueueNumbers()
    latest: deque[QueueUnit] = deque(maxlen=_LATEST_UNITS)
    for slot, data in queue.unit_bytes(minimum, chunk_units=_CHUNK_UNITS):
        units = np.frombuffer(data, kind)
        sizes = units["size"].astype(np.int64)
        written = np.flatnonzero((units["physical_offset"] >= 0) & (sizes > 0) & (sizes < PLACEHOLDER_SIZE))
        numbers.messages += len(written)
        numbers.bytes += int(sizes[written].sum())
        for place in written[-_LATEST_UNITS:].tolist():
            latest.append(QueueUnit(slot + place, *units[place].tolist()))
        if numbers.first_store_timestamp is None:
            found = (store_time(QueueUnit(slot + place, *units[place].tolist())) for place in written.tolist())
            numbers.first_store_timestamp = next((time for time in found if time is not None), None)
    numbers.last_store_timestamp = _last_time(queue, minimum, latest, store_time)
    return numbers


def _last_time(queue: AnyConsumeQueue, minimum: int, latest: Iterable[QueueUnit], store_time: StoreTime) -> int | None:
    """Store time of the last message that can be read: nearly always one of the `latest` units'."""
    for unit in reversed([*latest]):
        time = store_time(unit)
        if time is not None:
            return time
    last = None
    for unit in queue.units(minimum):
        time = store_time(unit) if unit.is_written else None
        last = time if time is not None else last
    return last
