"""What a timer has kept of its state: how far it is (TimerCheckpoint), and what it has put on its wheel (TimerLog).

The wheel itself is not read: it links the units of the log by the second in which they are due, which they say
themselves, and a broker makes it of them when it starts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import BLANK_MAGIC, TIMER_CHECKPOINT, TIMER_CHECKPOINT_SIZE, TIMER_LOG_UNIT
from rmqctl.store.files.layout import StoreLayout, file_name, is_file_name
from rmqctl.store.files.presence import is_directory
from rmqctl.store.files.reading import Descriptors, named, read_small_file

CHECKPOINT_FILE = "timercheck"
LOG_FOLDER = "timerlog"
# TimerMessageStore.MAGIC_DEFAULT, MAGIC_DELETE; other bits than the lowest four make no unit (#recoverAndRevise)
MAGIC_DEFAULT, MAGIC_TAKES_BACK = 1, 4
_MAGIC_BITS = 0xF
_CHUNK_UNITS = 16_384
_UNSIGNED = 0xFFFFFFFF


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
    """Return the checkpoint in the folder `config`, one of a timer that never ran if there is none.

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


def timer_log_units(layout: StoreLayout, descriptors: Descriptors, end: int) -> Iterator[TimerUnit]:
    """The units of the log up to position `end`, the oldest first; those of files that are gone had left the wheel.

    CorruptError where there is no log, where it does not reach so far, or where something else stands in it.
    """
    folder = layout.root / LOG_FOLDER
    with named(folder):
        found = list(folder.iterdir()) if is_directory(folder) else []
    files = sorted(path for path in found if is_file_name(path.name))
    if not files:
        raise CorruptError(f"the timer's log has no file, and should reach up to {end}", file=folder)
    position = int(files[0].name)
    for path in files:
        if position >= end:
            return
        if path.name != file_name(position):
            raise CorruptError(f"the timer's log goes on with {path.name} after {file_name(position)}", file=folder)
        with named(path):
            size = path.stat().st_size
        yield from _units_of(path, descriptors, min(size, end - position))
        position += size
    if position < end:
        raise CorruptError(f"the timer's log ends at {position}, and should reach up to {end}", file=files[-1])


def _units_of(path: Path, descriptors: Descriptors, end: int) -> Iterator[TimerUnit]:
    step = TIMER_LOG_UNIT.size
    for begin in range(0, end - step + 1, _CHUNK_UNITS * step):
        data = descriptors.read(path, begin, min(_CHUNK_UNITS * step, (end - begin) // step * step))
        whole = data[: len(data) // step * step]
        for number, unit in enumerate(struct.iter_unpack(TIMER_LOG_UNIT.struct.format, whole)):
            size, _, magic, written, delay, physical_offset, message_size, _, _ = unit
            if magic & _UNSIGNED == BLANK_MAGIC:  # the rest of the file is empty
                return
            if size != step or magic & ~_MAGIC_BITS or not magic:
                raise CorruptError(f"no unit of the timer's log stands at byte {begin + number * step}", file=path)
            yield TimerUnit(written + delay, physical_offset, message_size, bool(magic & MAGIC_TAKES_BACK))
