"""Count the messages of a commitlog, all of them and topic by topic, on columns if it is large; and map its bytes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.formats.errors import CorruptError, format_time
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import removed_error
from rmqctl.store.journal.log import changes
from rmqctl.store.log.walk import Blank, Damage, walk
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, ConsumeQueue, QueueUnit, StoreTime
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.frames import store_time_at
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from rmqctl.store.log.columns import ColumnRecord, Int64s
    from rmqctl.store.read.reader import StoreReader


# Map of the commitlog: which bytes hold messages, damage, blank frames or nothing, in cells of equal width.

VALID, DAMAGED, BLANK, PREALLOCATED = KINDS = ("valid", "damaged", "blank", "preallocated")
"""Good messages; bytes that are none; frames that fill a file to its end; zeros where nothing is written yet."""
SIGNS = {DAMAGED: "!", VALID: "#", BLANK: "-", PREALLOCATED: "."}
"""A cell is shown by the first of these that it holds."""
CELLS = 128
_BAR_WIDTH = 64


class LogSpan(NamedTuple):
    """Bytes [begin, end) of the commitlog, of one of KINDS. Offsets physical."""

    kind: str
    begin: int
    end: int


def span_of(record: object, begin: int, end: int) -> LogSpan:
    """Return the span of a record of a walk, of whole columns of messages too."""
    if isinstance(record, Damage):
        return LogSpan(DAMAGED, begin, end)
    if isinstance(record, Blank):
        return LogSpan(BLANK, begin, end)
    is_message = isinstance(record, StoredMessage) or hasattr(record, "rows")
    return LogSpan(VALID if is_message else PREALLOCATED, begin, end)


@dataclass(slots=True)
class MapCell:
    """The stretch [begin, end) of the commitlog, and how many of its bytes are of each kind."""

    begin: int
    end: int
    valid: int = 0
    damaged: int = 0
    blank: int = 0
    preallocated: int = 0


class Coverage(NamedTuple):
    """The physical offsets of the first and the last message that the queues, or the index, lead to; None for none.
    `problem`: why that is not known."""

    part: str
    first_offset: int | None
    last_offset: int | None
    problem: str | None = None


@dataclass(slots=True)
class LogCells:
    """`cells`: CELLS of equal width over the files that are there, fewer for a tiny log; the other numbers are their
    sums. `expired_bytes`: before the first file, removed by a cleaning."""

    begin: int
    end: int
    expired_bytes: int
    valid: int = 0
    damaged: int = 0
    blank: int = 0
    preallocated: int = 0
    cells: list[MapCell] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by kind, those of expired files last."""
        return {**{kind: getattr(self, kind) for kind in KINDS}, "expired": self.expired_bytes}

    def row(self) -> dict[str, Any]:
        """Return it as an object of `rmqctl du --map --json`."""
        return asdict(self) | {"coverage": [one._asdict() for one in self.coverage]}

    def bar(self) -> list[str]:
        """Return a heading and the cells as lines of text, a sign for each."""
        signs = [next((sign for kind, sign in SIGNS.items() if getattr(cell, kind)), " ") for cell in self.cells]
        rows = ("".join(signs[begin : begin + _BAR_WIDTH]) for begin in range(0, len(signs), _BAR_WIDTH))
        return [f"commitlog, bytes {self.begin} to {self.end}:", *(f"  {row}" for row in rows)]

    def add(self, span: LogSpan) -> None:
        """Count a span."""
        setattr(self, span.kind, getattr(self, span.kind) + span.end - span.begin)
        begin, end = max(span.begin, self.begin), min(span.end, self.end)
        if begin >= end:
            return
        width = self.cells[0].end - self.cells[0].begin
        for cell in self.cells[(begin - self.begin) // width : (end - 1 - self.begin) // width + 1]:
            inside = min(end, cell.end) - max(begin, cell.begin)
            setattr(cell, span.kind, getattr(cell, span.kind) + inside)


def new_map(files: StoreFiles) -> LogCells:
    """Return the map of a log of which nothing is counted yet."""
    log = files.log
    begin = max(log.min_offset, 0)
    end = max((file.end_offset for file in log.files), default=begin)
    found = LogCells(begin, end, begin, coverage=[_of_queues(files), _of_index(files)])
    width = max(1, -(-(end - begin) // CELLS))
    found.cells = [MapCell(at, min(at + width, end)) for at in range(begin, end, width)]
    return found


def _of_queues(files: StoreFiles) -> Coverage:
    first: list[int] = []
    last: list[int] = []
    try:
        for queue in files.queues.all():
            begin, end = queue.min_offset(files.log.min_offset), queue.max_offset
            ends = (begin, end - 1) if isinstance(queue, ConsumeQueue) else ()
            units = [queue.unit(place) for place in ends if begin < end]
            offsets = [unit.physical_offset for unit in units if unit is not None and unit.is_written]
            first += offsets[:1]
            last += offsets[-1:]
    except CorruptError as error:
        return Coverage("consumequeue", None, None, error.message)
    return Coverage("consumequeue", min(first, default=None), max(last, default=None))


def _of_index(files: StoreFiles) -> Coverage:
    headers = [file.header for file in files.index.files if file.header.index_count > 1]
    first = min((header.begin_physical_offset for header in headers), default=None)
    last = max((header.end_physical_offset for header in headers), default=None)
    return Coverage("index", first, last, "; ".join(problem for _, problem in files.index.problems) or None)


COLUMNS_FROM = 32 * 1024 * 1024
"""Bytes of log from which on the compiled walk is worth loading: loading takes as long as the plain walk of this
many."""


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


OnSpan = Callable[[LogSpan], object]


def count_topics(
    log: MappedFileQueue, events: Events = Events(), on_span: OnSpan | None = None
) -> dict[str, TopicNumbers]:
    """Count the messages of each topic by a walk over the whole log, CRCs checked; `on_span` gets what it passes."""
    count = columns_count_topics if is_large(log) else plain_count_topics
    return count(log, events, on_span)


def plain_count_topics(
    log: MappedFileQueue, events: Events = Events(), on_span: OnSpan | None = None
) -> dict[str, TopicNumbers]:
    """The plain twin of columns_count_topics."""
    topics: dict[str, TopicNumbers] = {}
    for record in walk(log, progress=events.progress):
        if isinstance(record, StoredMessage):
            numbers = topics.setdefault(record.topic, TopicNumbers())
            numbers.add(1, record.total_size, record.store_timestamp, record.store_timestamp)
            numbers.queue_ids.add(record.queue_id)
        if on_span is not None:
            on_span(span_of(record, record.physical_offset, record.end))
    return topics


def columns_count_topics(
    log: MappedFileQueue, events: Events = Events(), on_span: OnSpan | None = None
) -> dict[str, TopicNumbers]:
    """The same on columns, on several cores."""
    from rmqctl.store.log.columns import TopicIds
    from rmqctl.store.log.parallel import walk_parallel
    from rmqctl.store.native.tables import Columns

    table = TopicIds()
    wanted = Columns.HEAD | Columns.TOPIC
    found: list[_TopicColumns] = []
    for part, spans in walk_parallel(log, _topics_of, columns=wanted, topics=table, progress=events.progress):
        if on_span is not None:
            for span in spans:
                on_span(span)
        found = [_joined_topics([*found, *part])] if part else found
    topics: dict[str, TopicNumbers] = {}
    for columns in found:
        topics = {table.names[topic]: TopicNumbers(*numbers) for topic, *numbers in columns.numbers.T.tolist()}
        for queue in columns.queues.tolist():
            queue_id = queue & 0xFFFFFFFF
            topics[table.names[queue >> 32]].queue_ids.add(queue_id - (queue_id >> 31 << 32))
    return topics


class _TopicColumns(NamedTuple):
    """Messages by topic: a row of `numbers` for each field of TopicNumbers, topic ids before them. `queues`: each topic
    id above the 32 bits of a queue id."""

    numbers: Int64s
    queues: Int64s


def _joined_topics(parts: list[_TopicColumns]) -> _TopicColumns:
    """Return the same with one row for each topic."""
    import numpy as np

    numbers = np.concatenate([part.numbers for part in parts], axis=1)
    numbers = numbers[:, np.argsort(numbers[0], kind="stable")]
    ids, starts = np.unique(numbers[0], return_index=True)
    sums = np.add.reduceat(numbers[1:3], starts, axis=1)
    first, last = np.minimum.reduceat(numbers[3], starts), np.maximum.reduceat(numbers[4], starts)
    return _TopicColumns(
        np.stack([ids, *sums, first, last]), np.unique(np.concatenate([part.queues for part in parts]))
    )


def _topics_of(records: Iterator[ColumnRecord]) -> tuple[list[_TopicColumns], list[LogSpan]]:
    import numpy as np

    from rmqctl.store.log.columns import MessageColumns, start_of

    parts: list[_TopicColumns] = []
    spans: list[LogSpan] = []
    for record in records:
        spans.append(span_of(record, start_of(record), record.end))
        if isinstance(record, MessageColumns):
            ids, times = record.topic_id.astype(np.int64), record.store_timestamp
            numbers = np.stack([ids, np.ones_like(ids), record.size.astype(np.int64), times, times])
            queues = ids << 32 | record.queue_id.astype(np.int64) & 0xFFFFFFFF
            parts.append(_joined_topics([_TopicColumns(numbers, queues)]))
    return ([_joined_topics(parts)] if parts else []), spans


# Counting the messages of one queue by its units. Long queues are counted on arrays.

ARRAYS_FROM = 50_000
"""Units of all queues together from which on numpy is worth importing."""
# the last of these that leads to a message nearly always is the very last one
_LATEST_UNITS = 64
_CHUNK_UNITS = 1 << 16

"""Store time in ms of the message that a unit points at, None without one."""


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
            found = (store_time(QueueUnit(slot + place, *units[place].tolist())) for place in map(int, written))
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


# How a store grew: its files by the day on which they were begun, what was removed, what changes keep beside it.

_CLEAN = "clean"


@dataclass(slots=True)
class DaySize:
    """One day in UTC. `log_files`, `index_files`: those still there that were begun on it, with their bytes;
    `log_total_bytes`: of all log files that were begun until then.

    `cleaned_bytes`: of log, queues and index, removed by `rmqctl clean`; `kept_bytes`: on the disk, kept beside the
    store by changes of that day.
    """

    day: str
    log_files: int = 0
    log_bytes: int = 0
    log_total_bytes: int = 0
    index_files: int = 0
    index_bytes: int = 0
    cleaned_bytes: int = 0
    kept_bytes: int = 0


@dataclass(slots=True)
class SizeHistory:
    """`gone_bytes`: of the log's beginning, that no file holds any more; `cleaned_bytes`, `kept_bytes`: of all days.

    `first_store_timestamp`: of the oldest message, ms; None without one.
    """

    path: str
    first_store_timestamp: int | None = None
    gone_bytes: int = 0
    cleaned_bytes: int = 0
    kept_bytes: int = 0
    days: list[DaySize] = field(default_factory=list)


def size_history(files: StoreFiles) -> SizeHistory:
    """Return the days on which the store's size changed. One frame of each commitlog file is read. UnreadableError."""
    found = SizeHistory(str(files.layout.root), gone_bytes=max(0, files.log.min_offset))
    days: dict[str, DaySize] = defaultdict(lambda: DaySize(""))
    for file in files.log.files:
        timestamp = store_time_at(files.log, file.start_offset)
        if found.first_store_timestamp is None:
            found.first_store_timestamp = timestamp
        day = days[_day(_modified_ms(file.path) if timestamp is None else timestamp)]
        day.log_files += 1
        day.log_bytes += file.size
    for index in files.index.files:
        day = days[_day(index.header.begin_timestamp or _modified_ms(index.path))]
        day.index_files += 1
        day.index_bytes += index.geometry.file_size
    for change in changes(files.layout):
        day = days[_day(change.time)]
        if change.verb == _CLEAN:
            day.cleaned_bytes += change.bytes
            found.cleaned_bytes += change.bytes
        day.kept_bytes += change.kept_bytes
        found.kept_bytes += change.kept_bytes
    total = 0
    for name, day in sorted(days.items()):
        total += day.log_bytes
        day.day, day.log_total_bytes = name, total
        found.days.append(day)
    return found


def _modified_ms(path: Path) -> int:
    """Return when a file without a message was written last; RemovedError."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError as error:
        raise removed_error(path) from error


def _day(timestamp: int) -> str:
    return format_time(timestamp).partition("T")[0]


# Messages over time, from a sample of units: enough for a picture, at a cost that does not grow with the store.

_MOST_EXACT, _MOST_SAMPLED = 8192, 1024
_FEWEST_SAMPLES = 4


def messages_over_time(
    reader: StoreReader, topic: str | None, first: int, last: int, parts: int
) -> dict[str, list[int]]:
    """Return for each topic how many messages each of `parts` equal parts of the time [`first`, `last`] has.

    Exact for small stores. Empty where there are too many queues to look at. Times in ms.
    """
    ranges = [(one, one.min_offset(reader.files.log.min_offset), one.max_offset) for one in reader.queues(topic)]
    is_small = sum(end - begin for _, begin, end in ranges) <= _MOST_EXACT
    samples = _MOST_EXACT if is_small else _MOST_SAMPLED // len(ranges)
    counts: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * parts)
    if samples < _FEWEST_SAMPLES:
        return {}
    for queue, begin, end in ranges:
        step = max(1.0, (end - begin) / samples)
        for number in range(min(samples, end - begin)):
            unit = queue.unit(begin + int(number * step))
            time = None if unit is None else reader.unit_store_time(unit)
            if time is not None and first <= time <= last:
                counts[queue.topic][(time - first) * parts // (last - first + 1)] += step
    return {name: [round(count) for count in found] for name, found in counts.items()}
