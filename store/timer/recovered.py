"""What a broker makes of the timer's files when it starts (TimerMessageStore#recover): which units of the timer log it
has on its wheel then, and from where on it reads the timer's queue.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import parse_long, whole_number
from rmqctl.formats.errors import CorruptError, NotFoundError, UnreadableError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.config.config_files import backup_of
from rmqctl.store.files.reading import is_file, is_there, status_of
from rmqctl.store.log.columns import distinct
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.timer.wheel import (
    CHECKPOINT_FILE,
    KEPT,
    LIVE_SLOT,
    METRICS_FILE,
    UNIT_SIZE,
    TimerCheckpoint,
    TimerUnits,
    WheelFile,
    WheelSlots,
    live_slots,
    log_files,
    pieces,
    read_timer_checkpoint,
    wheel_files,
)

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
    broker takes as far as it is good. `due`: of every unit, only where `is_read_ahead`. `has_metrics`: timermetrics or
    its backup is there.
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
    has_metrics: bool = False

    @property
    def has_run(self) -> bool:
        """Whether a timer was here: without any file of it, no broker has read the timer's queue yet."""
        return self.has_files or self.has_metrics

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


def recover_timer(
    reader: StoreReader, queue: AnyConsumeQueue | None, *, reads_snapshots: bool | None = None
) -> RecoveredTimer:
    """Recover the timer of the store that `reader` reads, as a broker does when it starts. `queue`: the timer's.

    `reads_snapshots`: whether that reads snapshots of the wheel; None: as its configuration, else the files, say.
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
    if reads_snapshots is None:
        reads_snapshots = files.config.timer_wheel_snapshot_flush
    slots = _read_wheel(reader, timer, reads_snapshots)
    flushed = checkpoint.last_timer_log_flush_pos
    if timer.wheel is not None and timer.wheel.flushed:
        flushed = timer.wheel.flushed
    scanned_from = _read_log(reader, timer, flushed)
    _link(timer, slots, scanned_from)
    _revise_queue_offset(reader, timer, queue)
    metrics = layout.config / METRICS_FILE
    timer.has_metrics = any(is_there(path) for path in (metrics, backup_of(metrics)))
    return timer


def _read_wheel(reader: StoreReader, timer: RecoveredTimer, reads_snapshots: bool | None) -> WheelSlots:
    found = wheel_files(reader.files.layout, reads_snapshots)
    if not found or not is_there(found[0].path):
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


# Which messages of the timer's queue still wait: the one rule, for the timer of `serve` and for questions alike.

# timerRollWindowSlot: what waits longer than so many seconds is stored once more by a broker when they are over
_ROLL_MS = 172_800_000


class WaitingMessages:
    """What waits, as far as `take` was told of it: when each is due (ms), by its offset in the timer's queue."""

    def __init__(self, checkpoint: TimerCheckpoint, end: int) -> None:
        """`end`: of the timer's queue."""
        self.due: dict[int, int] = {}
        self.taken_back: dict[int, dict[str, int]] = {}
        """By the time when they are due: unique keys that are not delivered then, and the offset of who said so."""
        # before this offset what was due before that time is delivered
        self.known = min(max(checkpoint.last_timer_queue_offset, 0), end)
        self._delivered_before = checkpoint.last_read_time_ms
        # by id and time, messages that a broker may have stored once more
        self._long: dict[tuple[str, int], int] = {}

    def take(self, offset: int, stored: StoredMessage) -> int | None:
        """When the message at `offset` of the queue is due, if it waits; None if it was delivered, or takes another one
        back. Messages come in the order of the queue. CorruptError for one that is none of the timer's."""
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
        if offset < self.known and out - stored.store_timestamp >= _ROLL_MS:
            self._long[unique_key, out] = offset
        self.due[offset] = out
        return out

    def is_taken_back(self, unique_key: str, out: int) -> bool:
        """Whether the message with this key that is due at `out` is not to be delivered."""
        return unique_key in self.taken_back.get(out, {})


def due_time(text: str) -> int | None:
    """The time (ms) in the property TIMER_OUT_MS; None for what is none."""
    time = parse_long(text)
    return time if time is not None and time >= 0 else None


def first_to_read(checkpoint: TimerCheckpoint, begin: int) -> int:
    """The offset from which on the timer's queue, which begins at `begin`, has to be read to know all that waits."""
    again = checkpoint.master_timer_queue_offset
    return max(begin, again) if 0 <= again < checkpoint.last_timer_queue_offset else begin


# What the timer still has to deliver: messages on the wheel as a broker recovers it, those that it puts there when it
# starts, and those that no broker delivers. The one rule for `delays`, `check` and `repair`.

# TimerMessageStore.TIMER_WHEEL_TTL_DAY, less TIMER_BLANK_SLOTS: a broker that was down for longer does not look back
WHEEL_MS = (7 * 86_400 - 60) * 1000
# how far the delivery of a broker may be behind the clock when it stops
_DELIVERED_AT_ONCE_MS = 60_000


class TimedMessage(NamedTuple):
    """One message of the timer's queue that is not delivered. `out`: when it is due (ms).

    `on_wheel`: a slot leads to it; `to_enqueue`: a broker puts it there when it starts. Neither: no broker delivers it.
    """

    queue_offset: int
    physical_offset: int
    size: int
    out: int
    topic: str
    queue_id: int | None
    unique_key: str
    on_wheel: bool
    to_enqueue: bool

    @property
    def is_lost(self) -> bool:
        """Whether no broker delivers it."""
        return not (self.on_wheel or self.to_enqueue)


@dataclass(slots=True)
class PendingTimer:
    """What waits in the timer, in the order of its queue. `recalls`: messages that take others back, by their place in
    the commitlog; `recalled`: how many are taken back so; `old_recalls`: those of them in the form of 5.3.3, which a
    broker 5.5.0 ignores. `again`: messages that were delivered and are put on the wheel once more. `damaged`: messages
    that cannot be read; `foreign`: units and slots that lead to something else than a message of the timer."""

    messages: list[TimedMessage] = field(default_factory=list)
    recalls: list[TimedMessage] = field(default_factory=list)
    recalled: int = 0
    old_recalls: int = 0
    again: int = 0
    damaged: int = 0
    foreign: int = 0

    @property
    def lost(self) -> list[TimedMessage]:
        """Messages that no broker delivers."""
        return [one for one in self.messages if one.is_lost]

    @property
    def twice(self) -> int:
        """How many are on the wheel and are put there once more: a broker delivers them twice."""
        return sum(one.on_wheel and one.to_enqueue for one in self.messages)


def pending_messages(reader: StoreReader, queue: AnyConsumeQueue | None, timer: RecoveredTimer) -> PendingTimer:
    """Return what the recovered `timer` has still to deliver of its `queue`. UnreadableError."""
    return _Pending(reader, queue, timer).read()


class _Pending:
    def __init__(self, reader: StoreReader, queue: AnyConsumeQueue | None, timer: RecoveredTimer) -> None:
        self._reader = reader
        self._queue = queue
        self._timer = timer
        self._found = PendingTimer()
        self._by_place: dict[int, TimedMessage] = {}
        self._rolled: set[tuple[str, int]] = set()
        # unique keys by the time when what takes them back is due
        self._taken_back: dict[int, set[str]] = {}

    def read(self) -> PendingTimer:
        """Read every message that may wait."""
        for place, size in dict.fromkeys(_targets(self._timer.linked)):
            self._take(self._at(place, size), on_wheel=True)
        for message in self._queued(self._timer.queue_offset, self._timer.queue_end):
            self._take(message, to_enqueue=True)
        for place, size in dict.fromkeys(_targets(self._timer.unlinked)):
            self._take(self._at(place, size))
        for message in self._without_unit():
            self._take(message)
        found = self._found
        for one in sorted(self._by_place.values(), key=lambda one: one.queue_offset):
            keys = self._taken_back.get(one.out, set())
            old_form = f"{one.topic}+{one.unique_key}" in keys
            if one.is_lost and (one.unique_key, one.out) in self._rolled:
                continue  # stored once more when the wheel was too small for it
            if one.unique_key in keys or old_form:
                found.recalled += 1
                # what no broker delivers needs no recall
                found.old_recalls += old_form and not one.is_lost
            else:
                found.messages.append(one)
        return found

    def _at(self, place: int, size: int) -> StoredMessage | None:
        try:
            message = self._reader.lookup(place)
            if message.total_size == size:
                return message
            self._found.foreign += 1
        except NotFoundError:
            # what expired before it was due is no damage
            self._found.foreign += place >= self._reader.files.log.min_offset
        except CorruptError as error:
            self._damage(error)
        return None

    def _queued(self, begin: int, end: int) -> Iterator[StoredMessage]:
        if self._queue is None:
            return
        view = self._reader.view_without_ext(self._queue)
        for unit in self._queue.units(begin, end):
            try:
                yield view.message_of(unit)
            except NotFoundError:  # removed by a cleaner while we looked
                continue
            except CorruptError as error:
                self._damage(error)

    def _without_unit(self) -> Iterator[StoredMessage]:
        """Messages that the timer has passed and has no unit of: it delivered them at once, or it never had them."""
        timer, queue = self._timer, self._queue
        begin, end = timer.queue_begin, timer.queue_offset
        if queue is None or end <= begin:
            return
        last = queue.unit(timer.queue_end - 1)
        # a log that was cut without the timer leaves units of messages that are gone
        is_sound = last is not None and not (timer.known > last.physical_offset).any()
        if is_sound and np.count_nonzero(distinct(timer.known) >= self._reader.files.log.min_offset) >= end - begin:
            return
        places = set(zip(timer.known.tolist(), timer.known_sizes.tolist(), strict=True))
        # what was due already when the timer read it was delivered at once, and has no unit
        stopped = self._reader.files.checkpoint()
        last_stored = 0 if stopped is None else stopped.physic_msg_timestamp
        at_once = min(last_stored, timer.checkpoint.last_read_time_ms + _DELIVERED_AT_ONCE_MS)
        view = self._reader.view_without_ext(queue)
        for unit in queue.units(begin, end):
            if unit.is_written and (unit.physical_offset, unit.size) not in places:
                try:
                    message = view.message_of(unit)
                except NotFoundError:
                    continue
                except CorruptError as error:
                    self._damage(error)
                    continue
                out = due_time(message.properties().get(names.TIMER_OUT_MS, ""))
                if out is None or out >= at_once:
                    yield message

    def _take(self, message: StoredMessage | None, *, on_wheel: bool = False, to_enqueue: bool = False) -> None:
        if message is None:
            return
        known = self._by_place.get(message.physical_offset)
        if known is not None:
            self._by_place[message.physical_offset] = known._replace(to_enqueue=known.to_enqueue or to_enqueue)
            return
        properties = message.properties()
        out = due_time(properties.get(names.TIMER_OUT_MS, ""))
        if out is None or names.REAL_TOPIC not in properties:
            self._found.foreign += 1
            return
        checkpoint = self._timer.checkpoint
        if not on_wheel and out < checkpoint.last_read_time_ms:
            is_before = message.queue_offset < checkpoint.last_timer_queue_offset
            if not to_enqueue or is_before:
                self._found.again += to_enqueue
                return
        key = properties.get(names.UNIQUE_KEY, "")
        if names.TIMER_ROLL_TIMES in properties:
            self._rolled.add((key, out))
        one = TimedMessage(
            message.queue_offset,
            message.physical_offset,
            message.total_size,
            out,
            properties[names.REAL_TOPIC],
            whole_number(properties.get(names.REAL_QUEUE_ID, "")),
            key,
            on_wheel,
            to_enqueue,
        )
        taken_back = properties.get(names.TIMER_DELETE_UNIQUE_KEY)
        if taken_back is None:
            self._by_place[message.physical_offset] = one
        else:
            self._taken_back.setdefault(out, set()).add(taken_back)
            self._found.recalls.append(one)

    def _damage(self, error: CorruptError) -> None:
        self._reader.events.damaged(error)
        self._found.damaged += 1


def _targets(units: TimerUnits) -> Iterator[tuple[int, int]]:
    """Return the commitlog offset and the size of what each unit leads to."""
    return zip(units["physical_offset"].tolist(), units["size"].tolist(), strict=True)
