"""What the timer still has to deliver: messages on the wheel as a broker recovers it, those that it puts there when it
starts, and those that no broker delivers. The one rule for `delays`, `check` and `repair`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqctl.store.log.columns import Flags, Int32s, Int64s, distinct
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.timer.recovered import RecoveredTimer, joined
from rmqctl.store.timer.timed_columns import (
    ODD,
    TIMED_ROW,
    TimedReader,
    TimedRows,
    UnitRows,
    in_order,
    no_rows,
    taken_back,
)
from rmqctl.store.timer.wheel import TimerUnits

# TimerMessageStore.TIMER_WHEEL_TTL_DAY, less TIMER_BLANK_SLOTS: a broker that was down for longer does not look back
WHEEL_MS = (7 * 86_400 - 60) * 1000
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
    message of the timer.
    """

    rows: TimedRows = field(default_factory=no_rows)
    topics: list[str] = field(default_factory=list)
    recalls: int = 0
    recalled: int = 0
    old_recalls: int = 0
    again: int = 0
    damaged: int = 0
    foreign: int = 0

    def __len__(self) -> int:
        return len(self.rows)

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
        is_old = rows["slot_time"] < now - WHEEL_MS
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
        timer, found, read = self._timer, PendingTimer(), self._read
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
    order = np.lexsort((linked["out"], linked["physical_offset"]))
    places, times = linked["physical_offset"][order], linked["out"][order]
    found: Int64s = rows["out"].copy()
    last = np.searchsorted(places, rows["physical_offset"], "right") - 1
    is_linked = last >= 0
    is_linked[is_linked] = places[last[is_linked]] == rows["physical_offset"][is_linked]
    found[is_linked] = times[last[is_linked]]
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
