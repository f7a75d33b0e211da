"""Writes what is kept of the timer beside its messages: how far it is, and, for the next broker, what waits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.layouts import TIMER_CHECKPOINT, TIMER_CHECKPOINT_SIZE, TIMER_LOG_UNIT, TIMER_WHEEL_SLOTS
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, file_name
from rmqctl.store.files.presence import exists, is_directory, is_file
from rmqctl.store.timer.timer_state import (
    CHECKPOINT_FILE,
    LOG_FOLDER,
    MAGIC_DEFAULT,
    MAGIC_TAKES_BACK,
    TimerCheckpoint,
    TimerUnit,
)

_WHEEL = "timerwheel"
_NONE = -1
_HALF_A_TURN_MS = TIMER_WHEEL_SLOTS // 2 * 1000
# what TimerLog leaves free at the end of a file
_BLANK_SIZE = 16


class TimerState(NamedTuple):
    """What is to be written. `units`: None to leave the timer log alone."""

    checkpoint: TimerCheckpoint
    units: Sequence[TimerUnit] | None = None


def write_timer_checkpoint(path: Path, checkpoint: TimerCheckpoint) -> None:
    """Replace the file, old or new but never half."""
    io.make_directories(path.parent)
    io.write_whole(path, TIMER_CHECKPOINT.struct.pack(*checkpoint).ljust(TIMER_CHECKPOINT_SIZE, b"\0"))


def remove_timer_log(layout: StoreLayout) -> None:
    """Remove wheel and log, which say the same as the messages in the timer's queue and its checkpoint."""
    wheel, log = layout.root / _WHEEL, layout.root / LOG_FOLDER
    for path in [wheel, *(sorted(log.iterdir()) if is_directory(log) else [])]:
        if is_file(path):
            io.remove(path)


def has_timer_log(layout: StoreLayout) -> bool:
    """Whether a broker has left a wheel or a log."""
    log = layout.root / LOG_FOLDER
    return exists(layout.root / _WHEEL) or (is_directory(log) and any(log.iterdir()))


def fits(units: Sequence[TimerUnit], now: int, log_size: int) -> bool:
    """Return whether one file of the log holds `units`, and the wheel all of their times around `now` (ms).

    Half a turn of the wheel is a week; the field for a delay has 32 bits, which is less than 25 days.
    """
    is_near = all(abs(unit.out - now) <= _HALF_A_TURN_MS for unit in units)
    return is_near and (len(units) + 1) * TIMER_LOG_UNIT.size + _BLANK_SIZE <= log_size


def write_timer_log(layout: StoreLayout, units: Sequence[TimerUnit], now: int, log_size: int) -> int:
    """Make the log of the units, whose wheel a broker makes of it when it starts, and return where it ends. There must
    be none. `now`: ms."""
    slots: dict[int, int] = {}
    packed = bytearray()
    for unit in units:
        place = len(packed)
        packed += TIMER_LOG_UNIT.struct.pack(
            TIMER_LOG_UNIT.size,
            slots.get(unit.out, _NONE),
            MAGIC_DEFAULT | (MAGIC_TAKES_BACK if unit.takes_back else 0),
            now,
            unit.out - now,
            unit.physical_offset,
            unit.size,
            0,
            0,
        )
        slots[unit.out] = place
    path = layout.root / LOG_FOLDER / file_name(0)
    io.make_directories(path.parent, flushed=True)
    io.create_file(path, log_size)
    io.write_range(path, 0, packed)
    io.flush_file(path)
    return len(packed)


def write_timer_state(layout: StoreLayout, state: TimerState, now: int, log_size: int) -> None:
    """Write the checkpoint, and before it the log if there is to be one."""
    checkpoint = state.checkpoint
    if state.units is not None:
        remove_timer_log(layout)
        end = write_timer_log(layout, state.units, now, log_size) if state.units else 0
        checkpoint = checkpoint._replace(last_timer_log_flush_pos=end)
    write_timer_checkpoint(layout.config / CHECKPOINT_FILE, checkpoint)
