"""The timer wheel on disk: a slot for each second, with the first and the last unit of its chain in the timer log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats.errors import CorruptError, refuse_exhausted
from rmqctl.formats.layouts import (
    BLANK_MAGIC,
    TIMER_CHECKPOINT,
    TIMER_CHECKPOINT_SIZE,
    TIMER_LOG_UNIT,
    TIMER_WHEEL_SLOT,
    TIMER_WHEEL_SLOTS,
)
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.config_files import look_at_pair
from rmqctl.store.files.layout import StoreLayout, is_file_name
from rmqctl.store.files.reading import Descriptors, is_directory, is_file, is_there, named, read_small_file, status_of

WHEEL_FILE = "timerwheel"
SLOT_SIZE = TIMER_WHEEL_SLOT.size
WHEEL_SIZE = TIMER_WHEEL_SLOTS * SLOT_SIZE
# timerPrecisionMs by default, and others that a broker takes
PRECISION_MS = 1000
PRECISIONS = (1000, 500, 200, 100)
_BLANK_SLOTS = 60
_SLOT = TIMER_WHEEL_SLOT.dtype()
_CHUNK = SLOT_SIZE * 65_536


def roll_window_ms(config: StoreConfig, precision: int = PRECISION_MS) -> int:
    """Return how long a message waits before a broker stores it once more (ms, timerRollWindowSlot)."""
    slots, most = config.timer_roll_window_slot, TIMER_WHEEL_SLOTS // 2 - _BLANK_SLOTS
    return (slots if 2 <= slots <= most else most) * precision


def wheel_ms(precision: int) -> int:
    """Return how far the wheel reaches (ms): a broker that was down for longer does not look back
    (TimerMessageStore.TIMER_WHEEL_TTL_DAY, less TIMER_BLANK_SLOTS)."""
    return (TIMER_WHEEL_SLOTS // 2 - _BLANK_SLOTS) * precision


WheelSlots = np.ndarray[Any, np.dtype[np.void]]
LIVE_SLOT = np.dtype([("index", np.int64), ("time", np.int64), ("first", np.int64), ("last", np.int64)])
"""What is kept of a slot; `time` in ms."""


class WheelFile(NamedTuple):
    """The file that a broker reads the wheel from; `flushed`: the end of the timer log that a snapshot covers, None for
    `timerwheel` itself."""

    path: Path
    flushed: int | None = None


def wheel_files(layout: StoreLayout, reads_snapshots: bool | None = None) -> list[WheelFile]:
    """Return every file of the wheel that is there, the one that a broker reads first.

    `reads_snapshots`: timerWheelSnapshotFlush; with it a broker reads the newest snapshot and never writes `timerwheel`
    again, so if that is newer than the snapshots, None means false. UnreadableError.
    """
    with named(layout.root):
        snapshots = [
            WheelFile(path, int(path.suffix[1:]))
            for path in layout.root.glob(f"{WHEEL_FILE}.*")
            if path.suffix[1:].isascii() and path.suffix[1:].isdigit()
        ]
    snapshots.sort(key=lambda one: -(one.flushed or 0))
    plain = layout.root / WHEEL_FILE
    if not is_there(plain):
        # a broker that reads no snapshots makes an empty wheel
        return [WheelFile(plain), *snapshots] if reads_snapshots is False else snapshots
    if reads_snapshots is None:
        reads_snapshots = bool(snapshots) and _modified(snapshots[0].path) >= _modified(plain)
    if snapshots and reads_snapshots:
        return [*snapshots, WheelFile(plain)]
    return [WheelFile(plain), *snapshots]


def _modified(path: Path) -> int:
    status = status_of(path)
    return 0 if status is None else status.st_mtime_ns


def used_slots(path: Path, descriptors: Descriptors, read_time: int) -> WheelSlots:
    """Return the slots of the wheel file `path` that may be those of `read_time` (ms) or later; their times are as they
    are stored. CorruptError for a file of a wrong length: a broker does not start with it. UnreadableError."""
    with named(path):
        size = path.stat().st_size
    if size not in (0, WHEEL_SIZE):
        raise CorruptError(
            f"{size} bytes instead of {WHEEL_SIZE}: no broker starts with it",
            file=path,
            hint="`rmqctl repair` replaces it",
        )
    found: list[WheelSlots] = []
    for begin in range(0, size, _CHUNK):
        data = descriptors.read(path, begin, min(_CHUNK, size - begin))
        slots = np.frombuffer(data, _SLOT, len(data) // SLOT_SIZE)
        index = begin // SLOT_SIZE + np.arange(len(slots), dtype=np.int64)
        times = slots["time"].astype(np.int64)
        is_live = (times >= read_time // PRECISION_MS) & (times % TIMER_WHEEL_SLOTS == index)
        if is_live.any():
            live = np.empty(int(np.count_nonzero(is_live)), LIVE_SLOT)
            live["index"], live["time"] = index[is_live], times[is_live]
            live["first"], live["last"] = slots["first_pos"][is_live], slots["last_pos"][is_live]
            found.append(live)
    return np.concatenate(found) if found else np.empty(0, LIVE_SLOT)


def precision_of(used: WheelSlots, near: int) -> int | None:
    """Return the timerPrecisionMs of the broker that put the last message on the wheel, whose time is not far from
    `near` (ms); None where that does not show."""
    times = used["time"][used["last"] == used["last"].max()] if len(used) else used["time"]
    latest = {int(times.min()), int(times.max())} if len(times) else set()
    fitting = [one for one in PRECISIONS if any(abs(time * one - near) < near // 3 for time in latest)]
    return next((one for one in fitting if near % one == 0), next(iter(fitting), None))


def live_slots(used: WheelSlots, read_time: int, precision: int) -> WheelSlots:
    """Return the slots that a broker of this precision still looks at, by time (ms). What another precision has left is
    none of them: its times are long past, or never come."""
    first = read_time // precision
    is_live = (used["time"] >= first) & ((first <= 0) | (used["time"] < first + TIMER_WHEEL_SLOTS))
    slots = used[is_live]
    slots["time"] *= precision
    return slots[np.argsort(slots["time"], kind="stable")]


class SlotAt(NamedTuple):
    """A slot with its place in the wheel; `time` in ms."""

    number: int
    time: int
    first: int
    last: int
    num: int
    magic: int

    def packed(self, precision: int = PRECISION_MS) -> bytes:
        """Return its bytes in the wheel."""
        time = self.time // precision
        return TIMER_WHEEL_SLOT.struct.pack(time, self.first, self.last, self.num, self.magic)


def slots_from(path: Path, descriptors: Descriptors, position: int, precision: int = PRECISION_MS) -> list[SlotAt]:
    """Return the slots whose last unit is at `position` of the timer log or after it. UnreadableError."""
    with named(path):
        size = path.stat().st_size
    found: list[SlotAt] = []
    for begin in range(0, size, _CHUNK):
        data = descriptors.read(path, begin, min(_CHUNK, size - begin))
        slots = np.frombuffer(data, _SLOT, len(data) // SLOT_SIZE)
        for number in np.flatnonzero((slots["last_pos"] >= position) & (slots["time"] > 0)).tolist():
            time, first, last, num, magic = slots[number].tolist()
            found.append(SlotAt(begin // SLOT_SIZE + number, time * precision, first, last, num, magic))
    return found


# What a timer has kept of its state: how far it is (TimerCheckpoint), and what it has put on its wheel (TimerLog).
#
# The wheel itself is not read: it links the units of the log by the second in which they are due, which they say
# themselves, and a broker makes it of them when it starts.

CHECKPOINT_FILE = "timercheck"
LOG_FOLDER = "timerlog"
METRICS_FILE = "timermetrics"
# mappedFileSizeTimerLog
_LOG_FILE_SIZE = 104_857_600
# TimerMessageStore.MAGIC_DEFAULT, MAGIC_DELETE; other bits than the lowest four make no unit (#recoverAndRevise)
MAGIC_DEFAULT, MAGIC_TAKES_BACK = 1, 4


class TimerCheckpoint(NamedTuple):
    """How far the timer is. Of the messages before `last_timer_queue_offset` in its queue those are delivered that were
    due before `last_read_time_ms`; the timer of a broker reads them again from `master_timer_queue_offset` on, if that
    is smaller."""

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0


class TimerUnit(NamedTuple):
    """A message that waits, as the timer log has it: looked at again at `out` (ms), when it is due or, if that is
    further away than the wheel is large, to be put on the wheel once more."""

    out: int
    physical_offset: int
    size: int
    takes_back: bool = False


def read_timer_checkpoint(config: Path, *, empty_as_missing: bool = False) -> TimerCheckpoint:
    """Return the checkpoint in the folder `config`, by default that of a timer that never ran.

    `empty_as_missing`: a file of 0 bytes counts as none, as for a broker, which maps it and reads zeros. CorruptError
    for one that is too short; UnreadableError.
    """
    path = config / CHECKPOINT_FILE
    try:
        data = read_small_file(path, TIMER_CHECKPOINT_SIZE)
    except FileNotFoundError:
        return TimerCheckpoint()
    if empty_as_missing and not data:
        return TimerCheckpoint()
    if len(data) < TIMER_CHECKPOINT.size:
        raise CorruptError(
            f"{len(data)} bytes are no checkpoint of the timer",
            file=path,
            hint="move it away, and messages that are due are delivered again; or set timerWheelEnable=false",
        )
    return TimerCheckpoint(*TIMER_CHECKPOINT.unpack_from(data))


def timer_counts(config: Path) -> dict[str, int] | None:
    """Return how many messages wait for each topic by timermetrics, which brokers only show; None where neither the
    file nor its backup says."""
    for one in look_at_pair(config / METRICS_FILE):
        counts = one.value.get("timingCount") if isinstance(one.value, dict) else None
        if isinstance(counts, dict):
            found = {topic: metric.get("count") for topic, metric in counts.items() if isinstance(metric, dict)}
            return {topic: count for topic, count in found.items() if isinstance(count, int)}
    return None


def known_log_file_size(layout: StoreLayout, config: StoreConfig) -> int | None:
    """Return the size of a file of the timer log: as configured, else that of most files, None if there are none."""
    if config.mapped_file_size_timer_log is not None:
        return config.mapped_file_size_timer_log
    folder = layout.root / LOG_FOLDER
    try:
        sizes = [path.stat().st_size for path in folder.iterdir() if is_file(path)]
    except OSError as error:
        refuse_exhausted(error, folder)
        return None
    return max(sizes, key=lambda size: (sizes.count(size), size), default=0) or None


def log_file_size(layout: StoreLayout, config: StoreConfig) -> int:
    """Return the size of a new file of the timer log."""
    return known_log_file_size(layout, config) or _LOG_FILE_SIZE


# The timer log: a unit for each message that was put on the wheel, in files, read as a broker reads them.

UNIT_SIZE = TIMER_LOG_UNIT.size
# TimerMessageStore.MAGIC_ROLL, MAGIC_DELETE; other bits than the lowest four make no unit (#isMagicOK)
MAGIC_ROLL, MAGIC_DELETE = 2, 4
_MAGIC_BITS = 0xF
_SIGNED_BLANK = BLANK_MAGIC - (1 << 32)
_UNIT = TIMER_LOG_UNIT.dtype()
_CHUNK_UNITS = 65_536

TimerUnits = np.ndarray[Any, np.dtype[np.void]]
KEPT = np.dtype(
    [
        ("position", np.int64),
        ("previous", np.int64),
        ("out", np.int64),
        ("physical_offset", np.int64),
        ("size", np.int32),
        ("magic", np.int32),
        ("topic_hash", np.int32),
    ]
)
"""What is kept of a unit: `out` is the time (ms) of its slot."""


class TimerLogFile(NamedTuple):
    """One file of the timer log: the position of its first byte, and its size."""

    begin: int
    path: Path
    size: int

    @property
    def end(self) -> int:
        """Position after its last byte."""
        return self.begin + self.size


class UnitPiece(NamedTuple):
    """Units that follow one another. `is_last`: no unit follows in the log. `damage`: what is there instead, None for
    zeros or the end of the last file."""

    file: TimerLogFile
    units: TimerUnits
    end: int
    is_last: bool = False
    damage: CorruptError | None = None


def log_files(layout: StoreLayout) -> list[TimerLogFile]:
    """Return the files of the log in order. CorruptError for a gap between two of them; UnreadableError."""
    folder = layout.root / LOG_FOLDER
    with named(folder):
        names = sorted(path for path in folder.iterdir() if is_file_name(path.name)) if is_directory(folder) else []
        files = [TimerLogFile(int(path.name), path, path.stat().st_size) for path in names]
    for before, after in pairwise(files):
        if before.end != after.begin:
            raise CorruptError(
                f"the timer log continues with {after.path.name}, but {before.path.name} ends at {before.end}",
                file=folder,
            )
    return files


def pieces(files: list[TimerLogFile], descriptors: Descriptors, precision: int = PRECISION_MS) -> Iterator[UnitPiece]:
    """Yield the units of the log, a piece at a time, up to the place where a broker stops (#recoverAndRevise)."""
    for file in files:
        step = _CHUNK_UNITS * UNIT_SIZE
        for begin in range(0, file.size, step):
            data = descriptors.read(file.path, begin, min(step, file.size - begin))
            units = np.frombuffer(data, _UNIT, len(data) // UNIT_SIZE)
            is_unit = (units["size"] == UNIT_SIZE) & ((units["magic"] & ~np.int32(_MAGIC_BITS)) == 0)
            count = len(units) if is_unit.all() else int(np.argmin(is_unit))
            end = file.begin + begin + count * UNIT_SIZE
            kept = _kept(units[:count], file.begin + begin, precision)
            if count < len(units) or len(units) * UNIT_SIZE < len(data):
                rest = data[count * UNIT_SIZE : count * UNIT_SIZE + UNIT_SIZE]
                is_full = len(rest) >= 16 and int.from_bytes(rest[12:16], "big", signed=True) == _SIGNED_BLANK
                damage = CorruptError("no unit of the timer log", file=file.path) if any(rest) else None
                yield UnitPiece(file, kept, end, not is_full or file is files[-1], None if is_full else damage)
                if not is_full:
                    return
                break
            yield UnitPiece(file, kept, end, file is files[-1] and begin + step >= file.size)


def _kept(units: TimerUnits, position: int, precision: int) -> TimerUnits:
    kept = np.empty(len(units), KEPT)
    kept["position"] = position + np.arange(len(units), dtype=np.int64) * UNIT_SIZE
    kept["previous"] = units["previous_pos"]
    kept["out"] = (units["write_time"] + units["delay"].astype(np.int64)) // precision * precision
    for name in ("physical_offset", "magic", "topic_hash"):
        kept[name] = units[name]
    kept["size"] = units["message_size"]
    return kept


def timer_precision(layout: StoreLayout, config: StoreConfig, descriptors: Descriptors) -> int:
    """Return timerPrecisionMs as configured, else as the broker had it that used the wheel last, or the timer log where
    there is no wheel; the default where none says. UnreadableError."""
    if config.timer_precision_ms is not None:
        return config.timer_precision_ms
    try:
        read_time = read_timer_checkpoint(layout.config, empty_as_missing=True).last_read_time_ms
        found = [one.path for one in wheel_files(layout, config.timer_wheel_snapshot_flush)]
        if not found or not is_file(found[0]):
            return precision_of_log(layout, descriptors)
        used = used_slots(found[0], descriptors, read_time)
        return precision_of(used, read_time or time.time_ns() // 1_000_000) or precision_of_log(layout, descriptors)
    except CorruptError:
        return PRECISION_MS


def precision_of_log(layout: StoreLayout, descriptors: Descriptors) -> int:
    """Return the widest slots that the units of the last file of the timer log fit, whose times are those of slots; the
    default where none do. CorruptError for a log with a gap; UnreadableError."""
    times = [piece.units["out"] % PRECISION_MS for piece in pieces(log_files(layout)[-1:], descriptors, 1)]
    return next((one for one in PRECISIONS if not any((part % one).any() for part in times)), PRECISION_MS)
