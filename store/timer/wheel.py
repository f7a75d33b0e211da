"""The timer wheel on disk: a slot for each second, with the first and the last unit of its chain in the timer log."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import TIMER_WHEEL_SLOT, TIMER_WHEEL_SLOTS
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.presence import is_there, status_of
from rmqctl.store.files.reading import Descriptors, named

WHEEL_FILE = "timerwheel"
SLOT_SIZE = TIMER_WHEEL_SLOT.size
WHEEL_SIZE = TIMER_WHEEL_SLOTS * SLOT_SIZE
# timerPrecisionMs
PRECISION_MS = 1000
_SLOT = TIMER_WHEEL_SLOT.dtype()
_CHUNK = SLOT_SIZE * 65_536

WheelSlots = np.ndarray[Any, np.dtype[np.void]]
LIVE_SLOT = np.dtype([("index", np.int64), ("time", np.int64), ("first", np.int64), ("last", np.int64)])
"""What is kept of a slot; `time` in ms."""


class WheelFile(NamedTuple):
    """The file that a broker reads the wheel from; `flushed`: of a snapshot the end of the timer log that it stands
    for, None for `timerwheel` itself."""

    path: Path
    flushed: int | None = None


def wheel_files(layout: StoreLayout) -> list[WheelFile]:
    """Return every file of the wheel that is there, the one that a broker reads first.

    With timerWheelSnapshotFlush a broker reads the newest snapshot and never writes `timerwheel` again, so one that is
    newer than the snapshots shows that the setting was switched off. UnreadableError.
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
        return snapshots
    if snapshots and _modified(snapshots[0].path) >= _modified(plain):
        return [*snapshots, WheelFile(plain)]
    return [WheelFile(plain), *snapshots]


def _modified(path: Path) -> int:
    status = status_of(path)
    return 0 if status is None else status.st_mtime_ns


def live_slots(path: Path, descriptors: Descriptors, read_time: int) -> WheelSlots:
    """Return the slots of the wheel file `path` that a broker still looks at, those of `read_time` (ms) and later, by
    time. CorruptError for a file of a wrong length: a broker does not start with it. UnreadableError."""
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
            live["index"], live["time"] = index[is_live], times[is_live] * PRECISION_MS
            live["first"], live["last"] = slots["first_pos"][is_live], slots["last_pos"][is_live]
            found.append(live)
    slots = np.concatenate(found) if found else np.empty(0, LIVE_SLOT)
    return slots[np.argsort(slots["time"], kind="stable")]


class SlotAt(NamedTuple):
    """A slot with its place in the wheel; `time` in ms."""

    number: int
    time: int
    first: int
    last: int
    num: int
    magic: int

    def packed(self) -> bytes:
        """Return its bytes in the wheel."""
        time = self.time // PRECISION_MS
        return TIMER_WHEEL_SLOT.struct.pack(time, self.first, self.last, self.num, self.magic)


def slots_from(path: Path, descriptors: Descriptors, position: int) -> list[SlotAt]:
    """Return the slots whose last unit is at `position` of the timer log or after it. UnreadableError."""
    with named(path):
        size = path.stat().st_size
    found: list[SlotAt] = []
    for begin in range(0, size, _CHUNK):
        data = descriptors.read(path, begin, min(_CHUNK, size - begin))
        slots = np.frombuffer(data, _SLOT, len(data) // SLOT_SIZE)
        for number in np.flatnonzero((slots["last_pos"] >= position) & (slots["time"] > 0)).tolist():
            time, first, last, num, magic = slots[number].tolist()
            found.append(SlotAt(begin // SLOT_SIZE + number, time * PRECISION_MS, first, last, num, magic))
    return found
