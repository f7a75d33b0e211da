"""What a broker makes of the timer's files when it starts (TimerMessageStore#recover): which units of the timer log it
has on its wheel then, and from where on it reads the timer's queue.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import parse_long
from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, UnreadableError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.config.config_files import backup_of
from rmqctl.store.files.reading import is_file, is_there, status_of
from rmqctl.store.log.columns import Flags, Int32s, Int64s
from rmqctl.store.log.parallel import give_back_memory
from rmqctl.store.native.uncompiled import views
from rmqctl.store.native.units import mark_earlier
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.rocksdb.message_storage import MessageStorage
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.wheel import (
    CHECKPOINT_FILE,
    KEPT,
    LIVE_SLOT,
    METRICS_FILE,
    PRECISION_MS,
    UNIT_SIZE,
    TimerCheckpoint,
    TimerUnits,
    WheelFile,
    WheelSlots,
    live_slots,
    log_files,
    pieces,
    precision_of,
    precision_of_log,
    read_timer_checkpoint,
    used_slots,
    wheel_files,
)

# TimerMessageStore#reviseQueueOffset looks no further back
_LOOKED_BACK = 20_000
# file times of copies and of other time zones are hours off, not days
_MOST_AHEAD_MS = 86_400_000
_GIVEN_BACK_AT_ONCE = 131_072


@dataclass(slots=True)
class RecoveredTimer:
    """The timer after the start of a broker. Positions are in the timer log, offsets in the timer's queue, times in ms.

    `units`: those whose second has not come yet, in the order of the log, and `on_wheel` which of them a slot leads to.
    `last`: the last unit of the log; `known`, `known_sizes`: offset in the commitlog and size of what each unit leads
    to. `has_checkpoint`: timercheck is there and not empty; `checkpoint_written_ms`: when it was modified;
    `latest_ms`: the same, or now if that is later. `broken`: positions that slots or units lead to, where no unit is.
    `ahead`: slots whose last unit is at the end of the log or after it. `damage`: of wheel or log, each of which a
    broker takes as far as it is good. `storage`: the RocksDB that has the messages since timerRocksDBEnable was on, of
    which those due before `delivered_ms` are delivered. `due`: of every unit, only where `is_read_ahead`.
    `has_metrics`: timermetrics or its backup is there. `precision`: what a slot of the wheel is wide.
    """

    checkpoint: TimerCheckpoint
    has_checkpoint: bool
    queue_offset: int
    queue_begin: int
    queue_end: int
    log_begin: int = 0
    log_end: int = 0
    units: TimerUnits = field(default_factory=lambda: np.empty(0, KEPT))
    on_wheel: np.ndarray[tuple[int], np.dtype[np.bool_]] = field(default_factory=lambda: np.empty(0, bool))
    last: TimerUnits = field(default_factory=lambda: np.empty(0, KEPT))
    known: np.ndarray[tuple[int], np.dtype[np.int64]] = field(default_factory=lambda: np.empty(0, np.int64))
    known_sizes: np.ndarray[tuple[int], np.dtype[np.int32]] = field(default_factory=lambda: np.empty(0, np.int32))
    broken: list[int] = field(default_factory=list)
    ahead: int = 0
    wheel: WheelFile | None = None
    damage: list[CorruptError] = field(default_factory=list)
    checkpoint_written_ms: int | None = None
    latest_ms: int | None = None
    storage: MessageStorage | None = None
    delivered_ms: int = 0
    due: np.ndarray[tuple[int], np.dtype[np.int64]] = field(default_factory=lambda: np.empty(0, np.int64))
    has_metrics: bool = False
    precision: int = PRECISION_MS

    @property
    def read_slot(self) -> int:
        """The time of the slot that the timer reads next."""
        return self.checkpoint.last_read_time_ms // self.precision * self.precision

    @property
    def has_run(self) -> bool:
        """Whether a timer was here: without any file of it, no broker has read the timer's queue yet."""
        return self.has_files or self.has_metrics or self.storage is not None

    @property
    def is_read_ahead(self) -> bool:
        """Whether the checkpoint claims that messages are delivered which are due in a day or later.

        A broker writes it every second, with a time that the clock has reached.
        """
        latest = self.latest_ms
        return latest is not None and self.checkpoint.last_read_time_ms > latest + _MOST_AHEAD_MS

    @property
    def taken(self) -> int:
        """The offset in the timer's queue up to which the timer says that it has its messages."""
        wheel = self.checkpoint.last_timer_queue_offset
        return wheel if self.storage is None else max(wheel, self.queue_offset)

    @property
    def has_files(self) -> bool:
        """Whether the timer has left a wheel, a log or a checkpoint."""
        return self.has_checkpoint or self.wheel is not None or self.log_end > 0

    @property
    def linked(self) -> TimerUnits:
        """The units that a slot leads to."""
        return self.units if self.on_wheel.all() else self.units[self.on_wheel]

    def places(self, *, linked: bool) -> tuple[Int64s, Int32s]:
        """Return where the messages of these units are in the commitlog, and their sizes."""
        chosen = self.on_wheel if linked else ~self.on_wheel
        return self.units["physical_offset"][chosen], self.units["size"][chosen]


def recover_timer(
    reader: StoreReader,
    queue: AnyConsumeQueue | None,
    *,
    reads_snapshots: bool | None = None,
    reads_rocksdb: bool = True,
) -> RecoveredTimer:
    """Recover the timer of the store that `reader` reads, as a broker does when it starts. `queue`: the timer's.

    `reads_snapshots`: whether that reads snapshots of the wheel; None: as its configuration, else the files, say.
    Its timerPrecisionMs: see `timer_precision`.
    `reads_rocksdb`: whether that knows a timer in RocksDB, which it has on where it was on, if no configuration says.
    Only the time between the last checkpoint and seven days ago is left out here: that depends on when a broker starts.
    CorruptError for a damaged checkpoint; UnreadableError.
    """
    files = reader.files
    layout = files.layout
    checkpoint = read_timer_checkpoint(layout.config, empty_as_missing=True)
    found = status_of(layout.config / CHECKPOINT_FILE)
    begin = 0 if queue is None else queue.min_offset(files.log.min_offset)
    end = 0 if queue is None else queue.max_offset
    timer = RecoveredTimer(checkpoint, found is not None and found.st_size > 0, end, begin, end)
    timer.precision = files.config.timer_precision_ms or _precision_of_log(files)
    if found is not None:
        # the clock of a file system may be far behind the broker's; none that starts from now on reads an earlier time
        timer.checkpoint_written_ms = found.st_mtime_ns // 1_000_000
        timer.latest_ms = max(timer.checkpoint_written_ms, time.time_ns() // 1_000_000)
    if reads_snapshots is None:
        reads_snapshots = files.config.timer_wheel_snapshot_flush
    slots = _read_wheel(reader, timer, reads_snapshots)
    flushed = checkpoint.last_timer_log_flush_pos
    if timer.wheel is not None and timer.wheel.flushed:
        flushed = timer.wheel.flushed
    scanned_from = _read_log(reader, timer, flushed)
    _link(timer, slots, scanned_from)
    _revise_queue_offset(reader, timer, queue)
    if reads_rocksdb and files.config.timer_rocksdb_enable is not False:
        _take_in_rocksdb(reader, timer)
    metrics = layout.config / METRICS_FILE
    timer.has_metrics = any(is_there(path) for path in (metrics, backup_of(metrics)))
    return timer


def _precision_of_log(files: StoreFiles) -> int:
    try:
        return precision_of_log(files.layout, files.descriptors)
    except CorruptError:  # reading it says so
        return PRECISION_MS


def _read_wheel(reader: StoreReader, timer: RecoveredTimer, reads_snapshots: bool | None) -> WheelSlots:
    found = wheel_files(reader.files.layout, reads_snapshots)
    if not found or not is_there(found[0].path):
        return np.empty(0, LIVE_SLOT)
    timer.wheel = found[0]
    if not is_file(found[0].path):
        timer.damage.append(CorruptError("not a regular file: no broker starts with it", file=found[0].path))
        return np.empty(0, LIVE_SLOT)
    read_time = timer.checkpoint.last_read_time_ms
    try:
        used = used_slots(found[0].path, reader.files.descriptors, read_time)
    except CorruptError as error:
        timer.damage.append(error)
        return np.empty(0, LIVE_SLOT)
    if reader.files.config.timer_precision_ms is None:
        timer.precision = precision_of(used, read_time or timer.latest_ms or 0) or timer.precision
    return live_slots(used, read_time, timer.precision)


def _read_log(reader: StoreReader, timer: RecoveredTimer, flushed: int) -> int:
    """Read the log into `timer`; return the position from which on a broker links units again."""
    try:
        files = log_files(reader.files.layout)
    except CorruptError as error:
        timer.damage.append(error)
        return 0
    if not files:
        return 0
    timer.log_begin = timer.log_end = files[0].begin
    scanned_from = max(0, flushed - files[-1].size)
    begins = [file.begin for file in files if file.begin <= scanned_from]
    live, known, sizes, due = [], [], [], []
    for piece in pieces(files, reader.files.descriptors, timer.precision):
        live.append(piece.units[piece.units["out"] >= timer.read_slot])
        known.append(piece.units["physical_offset"].copy())
        sizes.append(piece.units["size"].copy())
        if timer.is_read_ahead:
            due.append(piece.units["out"].copy())
        timer.log_end = piece.end
        if len(piece.units):
            timer.last = piece.units[-1:].copy()
        if piece.damage is not None:
            timer.damage.append(piece.damage)
    timer.units = joined(live, KEPT)
    timer.known = np.concatenate(known) if known else timer.known
    timer.known_sizes = np.concatenate(sizes) if sizes else timer.known_sizes
    timer.due = np.concatenate(due) if due else timer.due
    return begins[-1] if begins else files[0].begin


def joined(parts: list[TimerUnits], kind: np.dtype[Any]) -> TimerUnits:
    """Return the rows of all parts, each of which goes as soon as it is copied."""
    rows, at, given_back = np.empty(sum(map(len, parts)), kind), 0, 0
    parts.reverse()
    while parts:
        part = parts.pop()
        rows[at : at + len(part)] = part
        at += len(part)
        del part
        if at - given_back >= _GIVEN_BACK_AT_ONCE:
            give_back_memory()
            given_back = at
    return rows


def _link(timer: RecoveredTimer, slots: WheelSlots, scanned_from: int) -> None:
    """Set which units are on the wheel: those that the wheel on disk leads to, and the ones that a broker links again,
    from `scanned_from` on."""
    units = timer.units
    # searched often: not each time from place to place
    positions = np.ascontiguousarray(units["position"])
    timer.ahead = int(np.count_nonzero(slots["last"] >= timer.log_end))
    # "wheel ahead of log": linked once more from the smallest position that such a slot begins with
    first = slots["first"][slots["last"] > timer.log_end]
    again = min(scanned_from, int(first.min())) if len(first) else scanned_from
    linked_again = units[np.searchsorted(positions, again) :]
    times = np.concatenate([slots["time"], linked_again["out"]])
    lasts = np.concatenate([slots["last"], linked_again["position"]])
    # the last word on each time
    order = np.argsort(times, kind="stable")
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = times[order][1:] != times[order][:-1]
    heads = lasts[order[is_last]]
    heads = heads[heads >= 0]
    found, is_unit = _numbers(heads, positions)
    broken = heads[~is_unit]
    linked = np.zeros(len(units), np.bool_)
    linked[found[is_unit]] = True
    del times, lasts, order, is_last
    # each unit leads to an earlier one, if to any
    before = np.where(units["previous"] < positions, units["previous"], -1)
    earlier, is_unit = _numbers(before, positions)
    earlier[~is_unit] = -1
    mark_earlier(*views(linked.view(np.uint8), earlier))
    timer.on_wheel = linked
    timer.broken = [*broken.tolist(), *before[linked & ~is_unit & (before >= 0)].tolist()]


def _numbers(found: Int64s, positions: Int64s) -> tuple[Int64s, Flags]:
    """Return where each of `found` is among `positions`, which ascend, and whether it is there."""
    numbers = np.searchsorted(positions, found)
    there = numbers < len(positions)
    there[there] = positions[numbers[there]] == found[there]
    return numbers, there


def _revise_queue_offset(reader: StoreReader, timer: RecoveredTimer, queue: AnyConsumeQueue | None) -> None:
    """Set where a broker goes on in the timer's queue (#reviseQueueOffset)."""
    offset = timer.checkpoint.last_timer_queue_offset
    if len(timer.last) and int(timer.last["position"][0]) + UNIT_SIZE == timer.log_end:
        revised = _offset_of(reader, queue, int(timer.last["physical_offset"][0]), int(timer.last["size"][0]))
        offset = offset if revised is None else revised + 1
    offset = min(offset, timer.checkpoint.master_timer_queue_offset)
    timer.queue_offset = min(max(offset, timer.queue_begin), timer.queue_end)


def _take_in_rocksdb(reader: StoreReader, timer: RecoveredTimer) -> None:
    """Take in what a RocksDB has: the wheel takes no new message beside it (TimerMessageRocksDBStore#start)."""
    try:
        storage = reader.files.message_storage
        scanned = None if storage is None else storage.scanned_to(timer.damage.append)
        if storage is None or (scanned is None and next(storage.timers(0, timer.damage.append), None) is None):
            return
        timer.delivered_ms = storage.delivered_to(timer.damage.append) or 0
    except CorruptError as error:
        timer.damage.append(error)
        return
    timer.storage = storage
    timer.queue_offset = min(max(timer.queue_offset, scanned or 0), timer.queue_end)


def refuse_waiting_in_rocksdb(files: StoreFiles) -> None:
    """Raise RefusedError where the timer of 5.5.0 has what waits in RocksDB (timerRocksDBEnable): it delivers these,
    and would deliver what is on a wheel as well. CorruptError where that cannot be read."""
    storage = files.message_storage
    waiting = None if storage is None else next(storage.timers(storage.delivered_to() or 0), None)
    if storage is not None and waiting is not None:
        raise RefusedError(
            "timed messages wait in this RocksDB: with a wheel a broker delivers them twice",
            file=storage.folder,
            hint="a broker with timerRocksDBEnable=true delivers them; without it, move this directory away first",
        )


def _offset_of(reader: StoreReader, queue: AnyConsumeQueue | None, physical_offset: int, size: int) -> int | None:
    """Return the offset in the timer's queue of the message that is stored there; None where none can be read."""
    try:
        message = reader.lookup(physical_offset)
    except (CorruptError, NotFoundError, UnreadableError):
        return None
    if message.total_size != size:
        return None
    if queue is None or message.topic != TIMER_TOPIC:
        return message.queue_offset
    for offset in range(message.queue_offset, max(-1, message.queue_offset - _LOOKED_BACK), -1):
        unit = queue.unit(offset)
        if unit is not None and (unit.physical_offset, unit.size) == (physical_offset, size):
            return offset
    return message.queue_offset


# Which messages of the timer's queue still wait, told one by one: for the timer of `serve`.


class WaitingMessages:
    """Pending messages, as far as `take` got them: when each is due (ms), by its offset in the timer's queue."""

    def __init__(self, checkpoint: TimerCheckpoint, end: int, roll_window: int) -> None:
        """`end`: of the timer's queue; `roll_window`: ms after which a broker stores a message once more."""
        self.due: dict[int, int] = {}
        self.taken_back: dict[int, dict[str, int]] = {}
        """By the time when they are due: unique keys that are not delivered then, and the offset of who said so."""
        # before this offset what was due before that time is delivered
        self.known = min(max(checkpoint.last_timer_queue_offset, 0), end)
        self._delivered_before = checkpoint.last_read_time_ms
        self._roll_window = roll_window
        # by id and time, messages that a broker may have stored once more
        self._long: dict[tuple[str, int], int] = {}

    def take(self, offset: int, stored: StoredMessage) -> int | None:
        """When the message at `offset` of the queue is due, if it waits; None if it was delivered, or takes another one
        back. Messages come in the order of the queue. CorruptError for a message that is not of the timer."""
        properties = stored.properties()
        out = due_time(properties.get(names.TIMER_OUT_MS, ""))
        if out is None or names.REAL_TOPIC not in properties:
            raise CorruptError(f"the message at {stored.physical_offset} does not say when it is due, and where")
        unique_key = properties.get(names.UNIQUE_KEY, "")
        if offset < self.known and out < self._delivered_before:
            return None
        if names.TIMER_ROLL_TIMES in properties:
            self.due.pop(self._long.pop((unique_key, out), -1), None)
        taken_back = properties.get(names.TIMER_DELETE_UNIQUE_KEY)
        if taken_back is not None:
            self.taken_back.setdefault(out, {})[taken_back] = offset
            return None
        if offset < self.known and out - stored.store_timestamp >= self._roll_window:
            self._long[unique_key, out] = offset
        self.due[offset] = out
        return out

    def is_taken_back(self, unique_key: str, out: int) -> bool:
        """Whether the message with this key that is due at `out` is not to be delivered."""
        return unique_key in self.taken_back.get(out, {})


def due_time(text: str) -> int | None:
    """Return the time (ms) in the property TIMER_OUT_MS; None if it is invalid."""
    time = parse_long(text)
    return time if time is not None and time >= 0 else None


def first_to_read(checkpoint: TimerCheckpoint, begin: int) -> int:
    """The offset from which on the timer's queue, which begins at `begin`, has to be read to know all that waits."""
    again = checkpoint.master_timer_queue_offset
    return max(begin, again) if 0 <= again < checkpoint.last_timer_queue_offset else begin
