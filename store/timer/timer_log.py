"""The timer log: a unit for each message that was put on the wheel, in files, read as a broker reads them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import BLANK_MAGIC, TIMER_LOG_UNIT
from rmqctl.store.files.layout import StoreLayout, is_file_name
from rmqctl.store.files.presence import is_directory
from rmqctl.store.files.reading import Descriptors, named
from rmqctl.store.timer.timer_state import LOG_FOLDER

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


def pieces(files: list[TimerLogFile], descriptors: Descriptors) -> Iterator[UnitPiece]:
    """Yield the units of the log, a piece at a time, up to the place where a broker stops (#recoverAndRevise)."""
    for file in files:
        step = _CHUNK_UNITS * UNIT_SIZE
        for begin in range(0, file.size, step):
            data = descriptors.read(file.path, begin, min(step, file.size - begin))
            units = np.frombuffer(data, _UNIT, len(data) // UNIT_SIZE)
            is_unit = (units["size"] == UNIT_SIZE) & ((units["magic"] & ~np.int32(_MAGIC_BITS)) == 0)
            count = len(units) if is_unit.all() else int(np.argmin(is_unit))
            end = file.begin + begin + count * UNIT_SIZE
            kept = _kept(units[:count], file.begin + begin)
            if count < len(units) or len(units) * UNIT_SIZE < len(data):
                rest = data[count * UNIT_SIZE : count * UNIT_SIZE + UNIT_SIZE]
                is_full = len(rest) >= 16 and int.from_bytes(rest[12:16], "big", signed=True) == _SIGNED_BLANK
                damage = CorruptError("no unit of the timer log", file=file.path) if any(rest) else None
                yield UnitPiece(file, kept, end, not is_full or file is files[-1], None if is_full else damage)
                if not is_full:
                    return
                break
            yield UnitPiece(file, kept, end, file is files[-1] and begin + step >= file.size)


def _kept(units: TimerUnits, position: int) -> TimerUnits:
    kept = np.empty(len(units), KEPT)
    kept["position"] = position + np.arange(len(units), dtype=np.int64) * UNIT_SIZE
    kept["previous"] = units["previous_pos"]
    kept["out"] = units["write_time"] + units["delay"].astype(np.int64)
    for name in ("physical_offset", "magic"):
        kept[name] = units[name]
    kept["size"] = units["message_size"]
    return kept
