"""Rebuild wheel, timer log and checkpoint from the messages of the timer's queue: `rmqctl rebuild --timer`.

A message waits unless a later frame in its topic has its key and time (delivered), a later message of the timer has
them and was rolled (stored once more), or a recall names them. What the files of the timer say does not count.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats.checksums import java_hash
from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError
from rmqctl.formats.layouts import (
    BLANK_MAGIC,
    TIMER_CHECKPOINT,
    TIMER_CHECKPOINT_SIZE,
    TIMER_LOG_UNIT,
    TIMER_WHEEL_SLOT,
    TIMER_WHEEL_SLOTS,
)
from rmqctl.formats.notebook import as_html
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, file_name
from rmqctl.store.files.reading import exists
from rmqctl.store.journal.journal import changing
from rmqctl.store.journal.plan import Install, MoveAway, Plan, Staging, install_config
from rmqctl.store.log.columns import Flags, MessageColumns
from rmqctl.store.options import ChangeOptions, Events
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.filter import Criteria, TopicFilter, is_pattern
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Selection
from rmqctl.store.scan.chosen import scan_made
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.pending import (
    ODD,
    TIMED_NEEDS,
    TIMED_ROW,
    TimedReader,
    TimedRows,
    in_order,
    no_rows,
    taken_back,
    timed_columns,
)
from rmqctl.store.timer.recovered import joined, refuse_waiting_in_rocksdb
from rmqctl.store.timer.wheel import (
    CHECKPOINT_FILE,
    LOG_FOLDER,
    MAGIC_DEFAULT,
    MAGIC_ROLL,
    METRICS_FILE,
    PRECISION_MS,
    SLOT_SIZE,
    UNIT_SIZE,
    WHEEL_FILE,
    WHEEL_SIZE,
    TimerCheckpoint,
    known_log_file_size,
    log_file_size,
    read_timer_checkpoint,
    roll_window_ms,
    timer_precision,
    wheel_files,
)

# The timer's files as a broker writes them: the timer log and the wheel of the messages that wait, the checkpoint
# what TimerLog leaves free at the end of a file
_BLANK_SIZE = 16

WAITING = np.dtype([("out", np.int64), ("physical_offset", np.int64), ("size", np.int32), ("topic_hash", np.int32)])
"""A message that waits: when it is due (ms), its place in the commitlog, String.hashCode of its topic."""

WaitingRows = np.ndarray[Any, np.dtype[np.void]]
Positions = np.ndarray[tuple[int], np.dtype[np.int64]]
_SLOTS_AT_ONCE = 4096
_UNIT = TIMER_LOG_UNIT.dtype()
_SLOT = TIMER_WHEEL_SLOT.dtype()


def last_unit(queue: AnyConsumeQueue | None) -> QueueUnit | None:
    """Return the last unit of the timer's queue, None for an empty queue. RefusedError where it leads to no message: a
    broker goes on in the queue after the message of the timer log's last unit."""
    if queue is None or queue.max_offset <= 0:
        return None
    last = queue.unit(queue.max_offset - 1)
    if last is None or not last.is_written:
        raise RefusedError(
            f"unit {queue.max_offset - 1} of {TIMER_TOPIC} leads to no message",
            hint=f"run `rmqctl rebuild --queues -t {TIMER_TOPIC}` first",
        )
    return last


class NewTimer:
    """The timer log and the wheel for `waiting` messages, in the order of their queue, of a timer that has come to
    `read_time` (ms). What is due before gets the next second that a broker looks at, what is due after the roll window
    the unit of a message that is to be stored once more.

    The last unit leads to `last`, where a broker goes on in the queue; if that does not wait, in a second that no
    broker looks at.
    """

    def __init__(
        self,
        waiting: WaitingRows,
        last: QueueUnit | None,
        read_time: int,
        file_size: int,
        roll_window: int,
        precision: int = PRECISION_MS,
    ) -> None:
        read_time = -(-read_time // precision) * precision
        self._precision = precision
        rows = waiting.copy()
        rows["out"] = np.maximum(rows["out"], read_time)
        if last is not None and (not len(rows) or int(rows["physical_offset"][-1]) != last.physical_offset):
            ending = np.array([(read_time - precision, last.physical_offset, last.size, 0)], WAITING)
            rows = np.concatenate([rows, ending])
        self.file_size = file_size
        per_file = max((file_size - _BLANK_SIZE) // UNIT_SIZE, 1)
        number = np.arange(len(rows), dtype=np.int64)
        self._positions = number // per_file * file_size + number % per_file * UNIT_SIZE
        self._per_file = per_file
        self._units = _units(rows, self._positions, read_time, roll_window, precision)

    @property
    def log_end(self) -> int:
        """Position after the last unit."""
        return int(self._positions[-1]) + UNIT_SIZE if len(self._positions) else 0

    def log_pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes of each file of the log, with the position of its first one."""
        for number in range(0, len(self._units), self._per_file):
            data = self._units[number : number + self._per_file].tobytes()
            if number + self._per_file < len(self._units):
                data += (self.file_size - len(data)).to_bytes(4, "big") + bytes(8) + BLANK_MAGIC.to_bytes(4, "big")
            yield number // self._per_file * self.file_size, data

    def write_log(self, folder: Path) -> None:
        """Write the files of the log into `folder`, which must not be there."""
        for begin, data in self.log_pieces():
            io.make_directories(folder)
            path = folder / file_name(begin)
            io.create_file(path, self.file_size)
            io.write_range(path, 0, data)

    def write_wheel(self, path: Path) -> None:
        """Write the wheel that leads to the units; it has holes where no message waits."""
        slots = np.zeros(TIMER_WHEEL_SLOTS, _SLOT)
        is_live = self._units["delay"] >= 0
        times = (self._units["write_time"] + self._units["delay"])[is_live] // self._precision
        positions = self._positions[is_live]
        seconds, first, counts = np.unique(times, return_index=True, return_counts=True)
        index = seconds % TIMER_WHEEL_SLOTS
        slots["time"][index], slots["first_pos"][index], slots["num"][index] = seconds, positions[first], counts
        # of units with the same second the last one stays
        slots["last_pos"][times % TIMER_WHEEL_SLOTS] = positions
        io.make_directories(path.parent)
        io.create_file(path, WHEEL_SIZE)
        for begin in range(0, TIMER_WHEEL_SLOTS, _SLOTS_AT_ONCE):
            piece = slots[begin : begin + _SLOTS_AT_ONCE]
            if piece["time"].any():
                io.write_range(path, begin * SLOT_SIZE, piece.tobytes())


def _units(rows: WaitingRows, positions: Positions, read_time: int, roll_window: int, precision: int) -> WaitingRows:
    late = rows["out"] - read_time
    is_rolled = late >= roll_window
    slots = roll_window // precision
    window = np.where(late - roll_window < slots // 3 * precision, slots // 2 * precision, roll_window)
    delay = np.where(is_rolled, window, late)
    delay -= delay % precision
    units = np.zeros(len(rows), _UNIT)
    units["size"], units["write_time"], units["delay"] = UNIT_SIZE, read_time, delay
    units["magic"] = np.where(is_rolled, MAGIC_DEFAULT | MAGIC_ROLL, MAGIC_DEFAULT)
    units["physical_offset"], units["message_size"] = rows["physical_offset"], rows["size"]
    units["topic_hash"], units["previous_pos"] = rows["topic_hash"], -1
    order = np.argsort(delay, kind="stable")
    follows = np.flatnonzero(np.diff(delay[order]) == 0)
    units["previous_pos"][order[follows + 1]] = positions[order[follows]]
    return units


def plan_timer(
    layout: StoreLayout,
    plan: Plan,
    staging: Staging,
    new: NewTimer,
    checkpoint: TimerCheckpoint,
    counts: Mapping[str, int],
) -> None:
    """Plan that log, wheel and checkpoint become those of the `new` timer, whose queue is read up to where `checkpoint`
    says, and timermetrics the `counts` by topic. Snapshots of the wheel go: a broker with timerWheelSnapshotFlush would
    prefer them."""
    log, wheel = layout.root / LOG_FOLDER, layout.root / WHEEL_FILE
    staged_log, staged_wheel = log, wheel
    if staging is not None:
        staged_log, staged_wheel = staging() / LOG_FOLDER, staging() / WHEEL_FILE
        new.write_log(staged_log)
        new.write_wheel(staged_wheel)
    if new.log_end:
        plan.add(Install(staged_log, log, (new.log_end // new.file_size + 1) * new.file_size))
    elif exists(log):
        plan.add(MoveAway(log))
    plan.add(Install(staged_wheel, wheel, WHEEL_SIZE))
    for one in wheel_files(layout):
        if one.path != wheel:
            plan.add(MoveAway(one.path))
    wanted = checkpoint._replace(last_timer_log_flush_pos=new.log_end)
    data = TIMER_CHECKPOINT.struct.pack(*wanted).ljust(TIMER_CHECKPOINT_SIZE, b"\0")
    install_config(plan, staging, layout.config / CHECKPOINT_FILE, data)
    now = checkpoint.last_read_time_ms
    metrics = {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": now},
        "timingCount": {topic: {"count": count, "timeStamp": now} for topic, count in sorted(counts.items())},
    }
    text = json.dumps(metrics, ensure_ascii=False, separators=(",", ":"))
    install_config(plan, staging, layout.config / METRICS_FILE, text.encode("utf-8"))


_CHUNK = 65_536
_MESSAGE, _ROLLED, _COPY = 0, 1, 2


class TimerTopic(NamedTuple):
    """What the timer holds for one topic. `due_already`: those of `waiting` whose time has passed."""

    topic: str
    waiting: int = 0
    due_already: int = 0
    delivered: int = 0
    recalled: int = 0
    first_due_timestamp: int | None = None


@dataclass(slots=True)
class TimerReport:
    """What a rebuild of the timer found and made. `messages` of the timer's queue: those that wait, were delivered,
    recalled or rolled (stored once more), the `recalls` themselves, and `unreadable` ones.

    `uncertain`: waiting messages that are due already, whose delivered copy damage later in the log may hide: a broker
    may deliver them twice. `is_size_assumed`: neither configuration nor files say how large the files of the timer log
    are, and a broker starts only with those that have its mappedFileSizeTimerLog. `journal` is the folder with the old
    files, `operations` the plan.
    """

    _repr_html_ = as_html

    messages: int = 0
    waiting: int = 0
    due_already: int = 0
    delivered: int = 0
    recalled: int = 0
    rolled: int = 0
    recalls: int = 0
    unreadable: int = 0
    uncertain: int = 0
    log_file_size: int = 0
    is_size_assumed: bool = False
    journal: str | None = None
    dry_run: bool = False
    topics: list[dict[str, Any]] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)


class _Outcomes(NamedTuple):
    """Which messages were delivered, which rolled, which recalled; of each at most one."""

    delivered: Flags
    rolled: Flags
    recalled: Flags


def _outcomes(rows: TimedRows, copies: TimedRows, timed: TimedReader) -> _Outcomes:
    """Return what became of messages of the timer's queue, `rows` in its order. `copies`: those that were delivered."""
    count, topics = len(rows), np.array([hash(topic) for topic in timed.topics], np.int64)
    # what a message and its delivered copy have in common; of the rows no copy is made, as they are large
    identities = np.concatenate(
        [(topics[some["topic"]] * ODD + some["key"]) * ODD + some["out"] for some in (rows, copies)]
    )
    kinds = np.full(len(identities), _COPY, np.int8)
    kinds[:count] = np.where(rows["is_roll"], _ROLLED, _MESSAGE)
    order = np.lexsort((np.concatenate([rows["physical_offset"], copies["physical_offset"]]), identities))
    follows = np.flatnonzero(np.diff(identities[order]) == 0)
    # of most there is nothing else
    several = np.zeros(len(order), np.bool_)
    several[follows] = several[follows + 1] = True
    order = order[several]
    delivered, rolled = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    before: int | None = None
    waiting: deque[int] = deque()
    for begin in range(0, len(order), _CHUNK):
        numbers = order[begin : begin + _CHUNK]
        for number, identity, kind in zip(
            numbers.tolist(), identities[numbers].tolist(), kinds[numbers].tolist(), strict=True
        ):
            if identity != before:
                before, waiting = identity, deque()
            if kind != _MESSAGE and waiting:
                (delivered if kind == _COPY else rolled)[waiting.popleft()] = True
            if kind != _COPY:
                waiting.append(number)
    recalled, _ = taken_back(rows, timed.recalls, list(timed.topics))
    return _Outcomes(delivered, rolled, recalled & ~delivered & ~rolled)


def _copies(files: StoreFiles, rows: TimedRows, topics: dict[str, int], events: Events) -> TimedRows:
    """Return the messages that a timer delivered, of these topics and after the first of `rows`."""
    # a damaged topic may look like a pattern
    wanted = TopicFilter(() if any(map(is_pattern, topics)) else sorted(topics))
    first = int(rows["physical_offset"].min()) if len(rows) else files.log.max_offset
    chosen, known = Selection(Criteria(wanted), begin=first), len(topics)
    found = [no_rows()]
    for batch in scan_made(files.log, chosen, TIMED_NEEDS, _Whole(), events):
        copies = timed_columns(batch, topics, are_copies=True).rows
        found.append(copies[copies["topic"] < known])
    return np.concatenate(found)


class _Whole:
    """Messages as the walk gives them."""

    needs_bodies = False

    @staticmethod
    def batches(batch: MessageColumns) -> Iterator[MessageColumns]:
        """Yield the batch."""
        yield batch


def rebuild_timer(files: StoreFiles, change: ChangeOptions, *, now: int) -> TimerReport:
    """Rebuild the timer of the store opened as `files`, which is stale afterwards: open it again.

    `now` (ms): the time from which on a broker delivers; what is due before is delivered at its start.
    NotFoundError without messages in the timer's queue, StoreInUseError; RefusedError for a queue whose end is damaged,
    and where RocksDB holds what waits.
    """

    def ends(head: dict[str, Any]) -> bool:
        return head.get("verb") == "rebuild" and head.get("arguments") == change.command_line

    with changing(files, "rebuild", change, ends) as planned:
        store = planned.files
        queue = store.queues.find(TIMER_TOPIC, 0)
        if queue is None or queue.max_offset <= queue.min_offset(store.log.min_offset):
            raise NotFoundError(
                f"the queue of {TIMER_TOPIC} has no messages", hint=f"`rmqctl rebuild --queues -t {TIMER_TOPIC}`"
            )
        refuse_waiting_in_rocksdb(store)
        last = last_unit(queue)
        report = TimerReport(dry_run=planned.is_dry)
        waiting = _read(store, queue, now, report, change.events)
        precision = timer_precision(store.layout, store.config, store.descriptors)
        read_time = now - now % precision
        report.log_file_size = log_file_size(store.layout, store.config)
        report.is_size_assumed = known_log_file_size(store.layout, store.config) is None
        window = roll_window_ms(store.config, precision)
        new = NewTimer(waiting, last, read_time, report.log_file_size, window, precision)
        checkpoint = _known(store)._replace(
            last_read_time_ms=read_time,
            last_timer_queue_offset=queue.max_offset,
            master_timer_queue_offset=queue.max_offset,
        )
        counts = {row["topic"]: row["waiting"] for row in report.topics if row["waiting"]}
        plan_timer(store.layout, planned.plan, planned.staging, new, checkpoint, counts)
        report.operations = planned.rows()
    report.journal = planned.kept_in
    return report


def _known(files: StoreFiles) -> TimerCheckpoint:
    """Return the checkpoint that is there, for its version; an empty one where it is damaged."""
    try:
        return read_timer_checkpoint(files.layout.config, empty_as_missing=True)
    except CorruptError:
        return TimerCheckpoint()


def _read(files: StoreFiles, queue: AnyConsumeQueue, now: int, report: TimerReport, events: Events) -> WaitingRows:
    """Return what waits, in the order of the queue, and count everything in `report`."""
    reader = StoreReader(files, Events(damage=lambda error: None))
    timed = TimedReader(reader, queue)
    parts = list(timed.queued(queue.min_offset(files.log.min_offset), queue.max_offset))
    rows = in_order(joined(parts, TIMED_ROW), "queue_offset")
    report.messages, report.recalls = timed.slots, len(timed.recalls)
    report.unreadable = report.messages - len(rows) - report.recalls
    last_damage = -1

    def note(error: CorruptError) -> None:
        nonlocal last_damage
        place = files.log.max_offset if error.physical_offset is None else error.physical_offset
        last_damage = max(last_damage, place)

    by_number = list(timed.topics)
    copies = _copies(files, rows, timed.topics, Events(events.progress, note))
    delivered, rolled, recalled = _outcomes(rows, copies, timed)
    waits = ~(delivered | rolled | recalled)
    outs, places = rows["out"], rows["physical_offset"]
    is_due = waits & (outs < now)
    report.waiting, report.due_already = int(waits.sum()), int(is_due.sum())
    report.delivered, report.rolled, report.recalled = int(delivered.sum()), int(rolled.sum()), int(recalled.sum())
    report.uncertain = int(np.count_nonzero(is_due & (places < last_damage)))
    numbers = rows["topic"]
    of_each = (waits, is_due, delivered, recalled)
    counts = [np.bincount(numbers[chosen], minlength=len(by_number)).tolist() for chosen in of_each]
    hashes = np.array([java_hash(topic) for topic in by_number], np.int32)
    for number, topic in sorted(enumerate(by_number), key=lambda one: one[1]):
        mine = outs[waits & (numbers == number)]
        first = int(mine.min()) if len(mine) else None
        waiting, due, copied, back = (count[number] for count in counts)
        report.topics.append(TimerTopic(topic, waiting, due, copied, back, first)._asdict())
    waiting_rows = np.zeros(report.waiting, WAITING)
    waiting_rows["out"], waiting_rows["physical_offset"] = outs[waits], places[waits]
    waiting_rows["size"] = rows["size"][waits]
    waiting_rows["topic_hash"] = hashes[numbers[waits]]
    return waiting_rows
