"""What the timer still has to deliver: messages on the wheel as a broker recovers it, those that it puts there when it
starts, and those that no broker delivers. The one rule for `delays`, `check` and `repair`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import java_long, whole_number
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, TIMER_WHEEL_SLOTS
from rmqctl.formats.message import StoredMessage
from rmqctl.store.log import columns
from rmqctl.store.log.column_walk import columns_at
from rmqctl.store.log.columns import Flags, Int32s, Int64s, MessageColumns, TopicIds, distinct
from rmqctl.store.log.property_columns import FoundProperties, found_properties
from rmqctl.store.native.tables import Columns
from rmqctl.store.native.text import topic_hash
from rmqctl.store.queues.consumequeue import ConsumeQueue, QueueUnit
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.timer.recovered import RecoveredTimer, due_time, joined
from rmqctl.store.timer.wheel import PRECISION_MS, TimerUnits, wheel_ms

# What messages of the timer's queue say of themselves, as columns: when they are due, for whom, and which of them are
# taken back. The one rule for what waits and for a timer that is built again (recover/timer.py).

TIMED_NEEDS = Columns.HEAD | Columns.TOPIC | Columns.BYTES
"""What the walk has to give for `timed_columns`."""
_UNITS_AT_ONCE = 16_384
ODD = np.int64((int.from_bytes(os.urandom(8)) >> 1) | 1)
"""What makes one number of two, so that hostile values cannot collide."""
TimedRows = np.ndarray[Any, np.dtype[np.void]]
TIMED_ROW = np.dtype(
    [
        ("queue_offset", np.int64),
        ("physical_offset", np.int64),
        ("out", np.int64),
        ("key", np.int64),
        ("size", np.int32),
        ("topic", np.int32),
        ("queue_id", np.int32),
        ("on_wheel", np.bool_),
        ("to_enqueue", np.bool_),
        ("in_rocksdb", np.bool_),
        ("is_roll", np.bool_),
        ("slot_time", np.int64),
    ]
)
_PROPERTIES = (
    names.UNIQUE_KEY,
    names.TIMER_OUT_MS,
    names.REAL_TOPIC,
    names.REAL_QUEUE_ID,
    names.TIMER_ROLL_TIMES,
    names.TIMER_DELETE_UNIQUE_KEY,
)
_LARGEST_INT = (1 << 31) - 1
_SEED = int.from_bytes(os.urandom(8)) >> 1


class Recall(NamedTuple):
    """A message that takes another one back, which is due at `out` (ms). `key`: hash of the unique key; `old_form`:
    topic and hash of the key, where it may be `topic+key`, the form of RocketMQ 5.3.3: no topic holds a +."""

    out: int
    key: int
    old_form: tuple[str, int] | None


class TimedColumns(NamedTuple):
    """`rows`: of each message its place in the queue and the commitlog, its size, when it is due (`out`, ms), a hash
    of its unique `key` in this process, without one of birth and body, the number of its topic, its queue (-1: none),
    and whether it was stored once more because it waits for long (`is_roll`). `recalls` by their place. `foreign`:
    messages that are none of these."""

    rows: TimedRows
    recalls: dict[int, Recall]
    foreign: int


def no_rows() -> TimedRows:
    """Return no row."""
    return np.empty(0, TIMED_ROW)


def timed_columns(batch: MessageColumns, topics: dict[str, int], *, are_copies: bool = False) -> TimedColumns:
    """Return what these messages say of the timer. `topics` numbers the topics they are for, and takes new ones.
    `are_copies`: those that a timer delivered, which are in these topics themselves."""
    properties = found_properties(batch, *_PROPERTIES)
    rows = np.zeros(len(batch), TIMED_ROW)
    for name in ("queue_offset", "physical_offset", "size"):
        rows[name] = getattr(batch, name)
    out = rows["out"] = properties.whole_numbers(names.TIMER_OUT_MS, due_time)
    if are_copies:
        found = [topics.setdefault(topic, len(topics)) for topic in batch.topics.names]
        rows["topic"] = np.array(found, np.int32)[batch.topic_id]
    else:
        queue_id = properties.whole_numbers(names.REAL_QUEUE_ID, whole_number)
        rows["queue_id"] = np.where(queue_id < _LARGEST_INT, queue_id, -1)
        rows["topic"] = _real_topics(properties, topics)
    with_key, hashes = properties.hashes(names.UNIQUE_KEY, _SEED)
    rows["key"][with_key] = hashes
    rows["key"] = np.where(rows["key"] == 0, batch.born_timestamp * ODD + batch.body_crc, rows["key"])
    rows["is_roll"][properties.places(names.TIMER_ROLL_TIMES)[0]] = True
    is_timed = (out >= 0) & (rows["topic"] >= 0)
    recalls: dict[int, Recall] = {}
    is_message = is_timed.copy()
    for row, text in zip(*properties.texts(names.TIMER_DELETE_UNIQUE_KEY, is_timed), strict=True):
        topic, plus, key = text.partition(b"+")
        old_form = (topic.decode(), _key_hash(key)) if plus else None
        recalls[int(rows["physical_offset"][row])] = Recall(int(out[row]), _key_hash(text), old_form)
        is_message[row] = False
    return TimedColumns(rows[is_message], recalls, int(np.count_nonzero(~is_timed)))


def _key_hash(key: bytes) -> int:
    return java_long(topic_hash(_SEED, key))


def _real_topics(properties: FoundProperties, topics: dict[str, int]) -> Int32s:
    """Return the numbers of the topics that messages are for, -1 for none. Nearly all of a batch are for one."""
    numbers = np.full(properties.starts.shape[1], -1, np.int32)
    rows, starts, ends = properties.places(names.REAL_TOPIC)
    if len(rows):
        first = properties.window[starts[0] : ends[0]].tobytes()
        is_first = properties.has_text(names.REAL_TOPIC, first)
        numbers[is_first] = topics.setdefault(first.decode(), len(topics))
        rows, texts = properties.texts(names.REAL_TOPIC, ~is_first)
        numbers[rows] = [topics.setdefault(text.decode(), len(topics)) for text in texts]
    return numbers


def taken_back(rows: TimedRows, recalls: Mapping[int, Recall], topics: list[str]) -> tuple[Flags, Flags]:
    """Return which messages are recalled, and which of these by a recall in the form of 5.3.3, `topic+key`. `topics`
    by their numbers."""
    by_key = {(recall.out, recall.key) for recall in recalls.values()}
    by_topic = {(recall.out, *recall.old_form) for recall in recalls.values() if recall.old_form}
    recalled, old_form = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    times = np.array(sorted({recall.out for recall in recalls.values()}), np.int64)
    numbers = np.flatnonzero(np.isin(rows["out"], times))
    for number, (out, topic, key) in zip(
        numbers.tolist(), rows[numbers][["out", "topic", "key"]].tolist(), strict=True
    ):
        old_form[number] = (out, topics[topic], key) in by_topic
        recalled[number] = old_form[number] or (out, key) in by_key
    return recalled, old_form


def in_order(rows: TimedRows, name: str) -> TimedRows:
    """Return the rows by a column; the same array, as it is large, where they are in order."""
    column = rows[name]
    return rows if (column[1:] >= column[:-1]).all() else rows[np.argsort(column, kind="stable")]


UnitRows = np.ndarray[Any, np.dtype[np.void]]
_UNIT = np.dtype(
    [("queue_offset", np.int64), ("physical_offset", np.int64), ("size", np.int32), ("tags_code", np.int64)]
)
_STORED_UNIT = CONSUMEQUEUE_UNIT.dtype()


class TimedReader:
    """Reads messages of the timer's `queue` as rows: by the slots of the queue, or by their places. `topics` numbers
    their topics, `recalls` are those that were read, by their places. `slots`: how many of the queue were read;
    `foreign`, `damaged`: what was no message of the timer, and what could not be read, which is reported."""

    def __init__(self, reader: StoreReader, queue: AnyConsumeQueue | None) -> None:
        self._reader = reader
        self._queue = queue
        self.topics: dict[str, int] = {}
        self.recalls: dict[int, Recall] = {}
        self.slots = self.foreign = self.damaged = 0

    def at(self, places: Int64s, sizes: Int64s | Int32s) -> Iterator[TimedRows]:
        """Yield the messages that units of the timer log, or entries of the RocksDB, lead to."""
        order = np.lexsort((sizes, places))
        places, sizes = places[order], sizes[order].astype(np.int64)
        is_first = np.ones(len(places), np.bool_)
        is_first[1:] = (places[1:] != places[:-1]) | (sizes[1:] != sizes[:-1])
        places, sizes = places[is_first], sizes[is_first]

        def one(number: int) -> StoredMessage | None:
            place = int(places[number])
            try:
                message = self._reader.lookup(place)
                if message.total_size == int(sizes[number]):
                    return message
                self.foreign += 1
            except NotFoundError:
                # what expired before it was due is no damage
                self.foreign += place >= self._reader.files.log.min_offset
            except CorruptError as error:
                self.report(error)
            return None

        return self._rows(places, sizes, one, lambda batch, part: np.ones(len(batch), np.bool_))

    def queued(self, begin: int, end: int, wanted: Callable[[UnitRows], Flags] | None = None) -> Iterator[TimedRows]:
        """Yield the messages of these slots of the timer's queue, those that `wanted` says."""
        queue = self._queue
        if queue is None:
            return
        view = self._reader.view_without_ext(queue)
        for units in units_of(queue, begin, end):
            self.slots += len(units)
            chosen = units if wanted is None else units[wanted(units)]
            chosen = chosen[np.argsort(chosen["physical_offset"], kind="stable")]

            def one(number: int, chosen: UnitRows = chosen) -> StoredMessage | None:
                try:
                    return view.message_of(QueueUnit(*chosen[number].tolist()))
                except NotFoundError:  # removed by a cleaner while we looked
                    return None
                except CorruptError as error:
                    self.report(error)
                    return None

            def belongs(batch: MessageColumns, part: slice, chosen: UnitRows = chosen) -> Flags:
                fits: Flags = (batch.queue_id == 0) & (batch.queue_offset == chosen["queue_offset"][part])
                return fits & batch.is_of_topic(TIMER_TOPIC)

            sizes = chosen["size"].astype(np.int64)
            yield from self._rows(chosen["physical_offset"], sizes, one, belongs)

    def _rows(
        self,
        places: Int64s,
        sizes: Int64s,
        one: Callable[[int], StoredMessage | None],
        belongs: Callable[[MessageColumns, slice], Flags],
    ) -> Iterator[TimedRows]:
        """Yield what messages at `places`, in order, say of the timer; `one` looks at a place that is not as usual."""
        files = self._reader.files
        topics = TopicIds()
        for part, batch in columns_at(files.log, places, sizes, topics, TIMED_NEEDS):
            alone: Iterable[int] = range(part.start, part.stop)
            if batch is not None:
                fits = belongs(batch, part)
                yield self._taken(batch if fits.all() else batch.take(np.flatnonzero(fits)))
                alone = [part.start + number for number in np.flatnonzero(~fits).tolist()]
            messages = [message for message in map(one, alone) if message is not None]
            if messages:
                yield self._taken(columns.batch_of(messages, files.log, topics, TIMED_NEEDS))

    def _taken(self, batch: MessageColumns) -> TimedRows:
        columns = timed_columns(batch, self.topics)
        self.foreign += columns.foreign
        self.recalls.update(columns.recalls)
        return columns.rows

    def report(self, error: CorruptError) -> None:
        """Report what cannot be read, and count it."""
        self._reader.events.damaged(error)
        self.damaged += 1


def units_of(queue: AnyConsumeQueue, begin: int, end: int) -> Iterator[UnitRows]:
    """Yield the units of slots [begin, end), a chunk at a time."""
    if not isinstance(queue, ConsumeQueue):
        units = np.array([tuple(unit)[:4] for unit in queue.units(begin, end)], _UNIT)
        for first in range(0, len(units), _UNITS_AT_ONCE):
            yield units[first : first + _UNITS_AT_ONCE]
        return
    for slot, data in queue.unit_bytes(begin, end, _UNITS_AT_ONCE):
        stored = np.frombuffer(data, _STORED_UNIT)
        chunk = np.empty(len(stored), _UNIT)
        chunk["queue_offset"] = slot + np.arange(len(stored), dtype=np.int64)
        for name in ("physical_offset", "size", "tags_code"):
            chunk[name] = stored[name]
        yield chunk


# how far the delivery of a broker may be behind the clock when it stops
_DELIVERED_AT_ONCE_MS = 60_000
_ROWS = 16_384
_IDENTITY = ["key", "out", "queue_offset"]


class TimedMessage(NamedTuple):
    """One message of the timer's queue that is not delivered. `out`: when it is due (ms).

    `on_wheel`: a slot leads to it; `to_enqueue`: a broker puts it there, or into the RocksDB, when it starts;
    `in_rocksdb`: it is there. None of these: no broker delivers it.
    """

    queue_offset: int
    physical_offset: int
    size: int
    out: int
    topic: str
    queue_id: int | None
    on_wheel: bool
    to_enqueue: bool
    in_rocksdb: bool

    @property
    def is_lost(self) -> bool:
        """Whether no broker delivers it."""
        return not (self.on_wheel or self.to_enqueue or self.in_rocksdb)


@dataclass(slots=True)
class PendingTimer:
    """What waits in the timer: `rows` in the order of its queue, `topics` by the numbers in them.

    `recalls`: how many messages take others back; `recalled`: how many are taken back so; `old_recalls`: those of them
    in the form of 5.3.3, which a broker 5.5.0 ignores. `again`: messages that were delivered and are put on the wheel
    once more. `damaged`: messages that cannot be read; `foreign`: units and slots that lead to something else than a
    message of the timer. `precision` (ms): of the wheel.
    """

    rows: TimedRows = field(default_factory=no_rows)
    topics: list[str] = field(default_factory=list)
    recalls: int = 0
    recalled: int = 0
    old_recalls: int = 0
    again: int = 0
    damaged: int = 0
    foreign: int = 0
    precision: int = PRECISION_MS

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def reach_ms(self) -> int:
        """How long a message may be overdue that a broker still delivers when it starts, but for a minute."""
        return TIMER_WHEEL_SLOTS // 2 * self.precision

    @property
    def lost(self) -> TimedRows:
        """Messages that no broker delivers."""
        lost: TimedRows = self.rows[ways_of(self.rows) == 0]
        return lost

    @property
    def twice(self) -> TimedRows:
        """Messages that a broker has at two places, or puts at another one: it delivers them twice."""
        twice: TimedRows = self.rows[ways_of(self.rows) > 1]
        return twice

    def messages(self, rows: TimedRows | None = None) -> Iterator[TimedMessage]:
        """Yield the messages of these rows, of all for None."""
        rows = self.rows if rows is None else rows
        for begin in range(0, len(rows), _ROWS):
            for row in rows[begin : begin + _ROWS].tolist():
                offset, place, out, _, size, topic, queue_id, *ways, _, _ = row
                known = None if queue_id < 0 else queue_id
                yield TimedMessage(offset, place, size, out, self.topics[topic], known, *ways)

    def of_topics(self, wanted: Callable[[str], bool]) -> TimedRows:
        """Return the rows of messages for the topics that `wanted` says."""
        numbers = [number for number, topic in enumerate(self.topics) if wanted(topic)]
        return self.rows[np.isin(self.rows["topic"], numbers)]

    def is_passed(self, now: int, rows: TimedRows | None = None) -> Flags:
        """Return which of these rows, of all for None, no broker that starts at `now` (ms) delivers."""
        rows = self.rows if rows is None else rows
        is_old = rows["slot_time"] < now - wheel_ms(self.precision)
        passed: Flags = ~(rows["to_enqueue"] | rows["in_rocksdb"]) & (~rows["on_wheel"] | is_old)
        return passed

    def by_topic(self, numbers: Int32s | None = None) -> Mapping[str, int]:
        """Return how many of the rows with these numbers of topics, of all for None, wait for each topic."""
        counts = np.bincount(self.rows["topic"] if numbers is None else numbers, minlength=len(self.topics))
        return {topic: count for topic, count in zip(self.topics, counts.tolist(), strict=True) if count}


def pending_messages(reader: StoreReader, queue: AnyConsumeQueue | None, timer: RecoveredTimer) -> PendingTimer:
    """Return what the recovered `timer` has still to deliver of its `queue`. UnreadableError."""
    return _Pending(reader, queue, timer).read()


class _Pending:
    def __init__(self, reader: StoreReader, queue: AnyConsumeQueue | None, timer: RecoveredTimer) -> None:
        self._reader = reader
        self._queue = queue
        self._timer = timer
        self._read = TimedReader(reader, queue)
        self._parts: list[TimedRows] = []
        self._read_time = max(timer.checkpoint.last_read_time_ms, timer.delivered_ms)

    def read(self) -> PendingTimer:
        """Read every message that may wait."""
        timer, read = self._timer, self._read
        found = PendingTimer(precision=timer.precision)
        for rows in read.at(*timer.places(linked=True)):
            rows["on_wheel"] = True
            self._parts.append(rows)
        if timer.storage is not None:
            held = [(row.physical_offset, row.size) for row in timer.storage.timers(timer.delivered_ms, read.report)]
            places = np.array(held, np.int64).reshape(-1, 2)
            for rows in read.at(places[:, 0], places[:, 1]):
                rows["in_rocksdb"] = True
                self._parts.append(rows)
        waiting = distinct(np.concatenate([np.empty(0, np.int64), *(part["physical_offset"] for part in self._parts)]))
        read_time, taken = self._read_time, timer.checkpoint.last_timer_queue_offset
        for rows in read.queued(timer.queue_offset, timer.queue_end):
            delivered = (
                (rows["out"] < read_time) & (rows["queue_offset"] < taken) & ~np.isin(rows["physical_offset"], waiting)
            )
            found.again += int(np.count_nonzero(delivered))
            rows["to_enqueue"] = True
            self._parts.append(rows[~delivered])
        for rows in read.at(*timer.places(linked=False)):
            self._parts.append(rows[rows["out"] >= read_time])
        for rows in self._without_unit():
            self._parts.append(rows[rows["out"] >= read_time])
        rows = _once(joined(self._parts, TIMED_ROW))
        rows["slot_time"] = _slot_times(rows, timer.linked)
        found.topics, found.recalls = list(read.topics), len(read.recalls)
        found.damaged, found.foreign = read.damaged, read.foreign
        again = _stored_again(rows)
        rows = rows[~again] if again.any() else rows
        recalled, old_form = taken_back(rows, read.recalls, found.topics)
        found.recalled = int(np.count_nonzero(recalled))
        # what no broker delivers needs no recall
        found.old_recalls = int(np.count_nonzero(old_form & (ways_of(rows) > 0)))
        found.rows = rows[~recalled] if found.recalled else rows
        return found

    def _without_unit(self) -> Iterator[TimedRows]:
        """Yield messages that the timer has passed and has no unit of: it delivered them at once, or never had them."""
        timer, queue = self._timer, self._queue
        begin, end = timer.queue_begin, timer.queue_offset
        if queue is None or end <= begin:
            return
        last = queue.unit(timer.queue_end - 1)
        # a log that was cut without the timer leaves units of messages that are gone
        is_sound = last is not None and not (timer.known > last.physical_offset).any()
        if is_sound and np.count_nonzero(distinct(timer.known) >= self._reader.files.log.min_offset) >= end - begin:
            return
        taken = [_pairs(part["physical_offset"], part["size"]) for part in self._parts]
        known = np.concatenate([_pairs(timer.known, timer.known_sizes), *taken])
        # one that was stored again, as it was far off, has its entry at the newer copy
        in_rocksdb = np.concatenate([no_rows(), *(part[part["in_rocksdb"]] for part in self._parts)])
        newer = set(in_rocksdb[["key", "out"]].tolist())

        def wanted(units: UnitRows) -> Flags:
            pairs = _pairs(units["physical_offset"], units["size"])
            is_written = (units["physical_offset"] >= 0) & (units["size"] > 0)
            return is_written & ~np.isin(pairs, known)

        # what was due already when the timer read it was delivered at once, and has no unit
        stopped = self._reader.files.checkpoint()
        last_stored = 0 if stopped is None else stopped.physic_msg_timestamp
        at_once = min(last_stored, self._read_time + _DELIVERED_AT_ONCE_MS)
        for rows in self._read.queued(begin, end, wanted):
            is_known = np.array([one in newer for one in rows[["key", "out"]].tolist()], np.bool_)
            yield rows[(rows["out"] >= at_once) & ~is_known]


def _pairs(places: Int64s, sizes: Int32s) -> Int64s:
    """Return place and size as one number each. Hostile values cannot collide."""
    return places * ODD + sizes


def ways_of(rows: TimedRows) -> Int64s:
    """Return at how many places a broker has each message, or puts it."""
    ways: Int64s = np.sum([rows["on_wheel"], rows["to_enqueue"], rows["in_rocksdb"]], axis=0, dtype=np.int64)
    return ways


def _once(rows: TimedRows) -> TimedRows:
    """Return each message once, in the order of the queue: on the wheel, or to be put there, if any row of it is."""
    rows = in_order(rows, "physical_offset")
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = rows["physical_offset"][1:] != rows["physical_offset"][:-1]
    begins = np.flatnonzero(is_first)
    if len(begins) < len(rows):
        merged = rows[begins]
        for name in ("on_wheel", "to_enqueue", "in_rocksdb"):
            merged[name] = np.logical_or.reduceat(rows[name], begins)
        rows = merged
    return in_order(rows, "queue_offset")


def _slot_times(rows: TimedRows, linked: TimerUnits) -> Int64s:
    """Return the time (ms) of the slot that each message is in, the last one; when it is due where it is in none. A
    rebuild has put messages into later slots, and a roll into earlier ones."""
    places, times = np.ascontiguousarray(linked["physical_offset"]), linked["out"]
    if not (places[1:] > places[:-1]).all():
        order = np.lexsort((times, places))
        places, times = places[order], times[order]
    found: Int64s = rows["out"].copy()
    for begin in range(0, len(rows), _ROWS):
        wanted = rows["physical_offset"][begin : begin + _ROWS]
        last = np.searchsorted(places, wanted, "right") - 1
        numbers = np.flatnonzero(last >= 0)
        numbers = numbers[places[last[numbers]] == wanted[numbers]]
        found[begin + numbers] = times[last[numbers]]
    return found


def _stored_again(rows: TimedRows) -> Flags:
    """Return which messages that no broker delivers were stored once more, when the wheel was too small for them."""
    rolls = rows[rows["is_roll"]]
    found: Flags = ways_of(rows) == 0
    if not len(rolls) or not found.any():
        return np.zeros(len(rows), np.bool_)
    latest = {(key, out): offset for key, out, offset in rolls[_IDENTITY].tolist()}
    numbers = np.flatnonzero(found)
    for number, (key, out, offset) in zip(numbers.tolist(), rows[numbers][_IDENTITY].tolist(), strict=True):
        found[number] = latest.get((key, out), -1) > offset
    return found
