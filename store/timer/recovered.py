"""What a broker makes of the timer's files when it starts (TimerMessageStore#recover): which units of the timer log it
has on its wheel then, and from where on it reads the timer's queue."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from rmqctl.formats.errors import CorruptError, NotFoundError, UnreadableError
from rmqctl.store.files.presence import is_file, status_of
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.timer.timer_log import KEPT, UNIT_SIZE, TimerUnits, log_files, pieces
from rmqctl.store.timer.timer_state import CHECKPOINT_FILE, TimerCheckpoint, read_timer_checkpoint
from rmqctl.store.timer.wheel import LIVE_SLOT, WheelFile, WheelSlots, live_slots, wheel_files

# TimerMessageStore#reviseQueueOffset looks no further back
_LOOKED_BACK = 20_000
# file times of copies and of other time zones are hours off, not days
_MOST_AHEAD_MS = 86_400_000


@dataclass(slots=True)
class RecoveredTimer:
    """The timer after the start of a broker. Positions are in the timer log, offsets in the timer's queue, times in ms.

    `units`: those whose second has not come yet, in the order of the log, and `on_wheel` which of them a slot leads to.
    `last`: the last unit of the log; `known`, `known_sizes`: offset in the commitlog and size of what each unit leads
    to. `has_checkpoint`: timercheck is there and not empty; `checkpoint_written_ms`: when it was modified;
    `latest_ms`: the same, or now if that is later. `broken`: positions that slots or units lead to, where no unit is.
    `ahead`: slots whose last unit is at the end of the log or after it. `damage`: of wheel or log, each of which a
    broker takes as far as it is good. `due`: of every unit, only where `is_read_ahead`.
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
    due: np.ndarray[tuple[int], np.dtype[np.int64]] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def is_read_ahead(self) -> bool:
        """Whether the checkpoint claims that messages are delivered which are due in a day or later.

        A broker writes it every second, with a time that the clock has reached.
        """
        latest = self.latest_ms
        return latest is not None and self.checkpoint.last_read_time_ms > latest + _MOST_AHEAD_MS

    @property
    def has_files(self) -> bool:
        """Whether the timer has left a wheel, a log or a checkpoint."""
        return self.has_checkpoint or self.wheel is not None or self.log_end > 0

    @property
    def linked(self) -> TimerUnits:
        """The units that a slot leads to."""
        return self.units[self.on_wheel]

    @property
    def unlinked(self) -> TimerUnits:
        """TimerUnits whose time has not come and that no slot leads to: a broker never delivers their messages."""
        return self.units[~self.on_wheel]


def recover_timer(reader: StoreReader, queue: AnyConsumeQueue | None) -> RecoveredTimer:
    """Recover the timer of the store that `reader` reads, as a broker does when it starts. `queue`: the timer's.

    Only what lies between the last checkpoint and seven days ago is left out here: that depends on when a broker
    starts. CorruptError for a damaged checkpoint; UnreadableError.
    """
    files = reader.files
    layout = files.layout
    checkpoint = read_timer_checkpoint(layout.config, empty_as_missing=True)
    found = status_of(layout.config / CHECKPOINT_FILE)
    begin = 0 if queue is None else queue.min_offset(files.log.min_offset)
    end = 0 if queue is None else queue.max_offset
    timer = RecoveredTimer(checkpoint, found is not None and found.st_size > 0, end, begin, end)
    if found is not None:
        # the clock of a file system may be far behind the broker's; none that starts from now on reads an earlier time
        timer.checkpoint_written_ms = found.st_mtime_ns // 1_000_000
        timer.latest_ms = max(timer.checkpoint_written_ms, time.time_ns() // 1_000_000)
    slots = _read_wheel(reader, timer)
    flushed = checkpoint.last_timer_log_flush_pos
    if timer.wheel is not None and timer.wheel.flushed:
        flushed = timer.wheel.flushed
    scanned_from = _read_log(reader, timer, flushed)
    _link(timer, slots, scanned_from)
    _revise_queue_offset(reader, timer, queue)
    return timer


def _read_wheel(reader: StoreReader, timer: RecoveredTimer) -> WheelSlots:
    found = wheel_files(reader.files.layout)
    if not found:
        return np.empty(0, LIVE_SLOT)
    timer.wheel = found[0]
    if not is_file(found[0].path):
        timer.damage.append(CorruptError("not a regular file: no broker starts with it", file=found[0].path))
        return np.empty(0, LIVE_SLOT)
    try:
        return live_slots(found[0].path, reader.files.descriptors, timer.checkpoint.last_read_time_ms)
    except CorruptError as error:
        timer.damage.append(error)
        return np.empty(0, LIVE_SLOT)


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
    for piece in pieces(files, reader.files.descriptors):
        live.append(piece.units[piece.units["out"] >= timer.checkpoint.last_read_time_ms])
        known.append(piece.units["physical_offset"].copy())
        sizes.append(piece.units["size"].copy())
        if timer.is_read_ahead:
            due.append(piece.units["out"].copy())
        timer.log_end = piece.end
        if len(piece.units):
            timer.last = piece.units[-1:].copy()
        if piece.damage is not None:
            timer.damage.append(piece.damage)
    timer.units = np.concatenate(live) if live else timer.units
    timer.known = np.concatenate(known) if known else timer.known
    timer.known_sizes = np.concatenate(sizes) if sizes else timer.known_sizes
    timer.due = np.concatenate(due) if due else timer.due
    return begins[-1] if begins else files[0].begin


def _link(timer: RecoveredTimer, slots: WheelSlots, scanned_from: int) -> None:
    """Set which units are on the wheel: those that the wheel on disk leads to, and the ones that a broker links again,
    from `scanned_from` on."""
    last_of = dict(zip(slots["time"].tolist(), slots["last"].tolist(), strict=True))
    units = timer.units
    timer.ahead = int(np.count_nonzero(slots["last"] >= timer.log_end))
    # "wheel ahead of log": linked once more from the smallest position that such a slot begins with
    first = slots["first"][slots["last"] > timer.log_end]
    again = min(scanned_from, int(first.min())) if len(first) else scanned_from
    linked_again = units[units["position"] >= again]
    last_of.update(zip(linked_again["out"].tolist(), linked_again["position"].tolist(), strict=True))
    place = {position: number for number, position in enumerate(units["position"].tolist())}
    on_wheel = np.zeros(len(units), bool)
    to_walk = [position for position in last_of.values() if position >= 0]
    previous = units["previous"].tolist()
    while to_walk:
        position = to_walk.pop()
        number = place.get(position)
        if number is None:
            timer.broken.append(position)
        elif not on_wheel[number]:
            on_wheel[number] = True
            if 0 <= previous[number] < position:
                to_walk.append(previous[number])
    timer.on_wheel = on_wheel


def _revise_queue_offset(reader: StoreReader, timer: RecoveredTimer, queue: AnyConsumeQueue | None) -> None:
    """Set where a broker goes on in the timer's queue (#reviseQueueOffset)."""
    offset = timer.checkpoint.last_timer_queue_offset
    if len(timer.last) and int(timer.last["position"][0]) + UNIT_SIZE == timer.log_end:
        revised = _offset_of(reader, queue, int(timer.last["physical_offset"][0]), int(timer.last["size"][0]))
        offset = offset if revised is None else revised + 1
    offset = min(offset, timer.checkpoint.master_timer_queue_offset)
    timer.queue_offset = min(max(offset, timer.queue_begin), timer.queue_end)


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
