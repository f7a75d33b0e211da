"""The timer's log, as it is written by us and as a broker writes it, over several files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import BLANK_MAGIC, TIMER_LOG_UNIT
from rmqctl.network.broker.delays import write_timer_log
from rmqctl.store.files.layout import StoreLayout, file_name
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.timer.wheel import MAGIC_TAKES_BACK, TimerUnit, log_files, pieces

NOW = 1_800_000_000_000
# with a blank that is longer than a unit, and no room for one beside it (TimerLog#append)
SIZE = 220
_UNITS = [TimerUnit(NOW + 1_000 * number, 4_000 + number, 300, number == 2) for number in range(3)]


def _packed(unit: TimerUnit) -> bytes:
    magic = 4 | 1 if unit.takes_back else 1
    return TIMER_LOG_UNIT.struct.pack(52, -1, magic, NOW, unit.out - NOW, unit.physical_offset, unit.size, 0, 0)


def _files(root: Path) -> StoreLayout:
    """Two files: the first one is full, as TimerLog fills it up with a blank."""
    folder = root / "timerlog"
    folder.mkdir()
    blank = (SIZE - 156).to_bytes(4, "big") + bytes(8) + BLANK_MAGIC.to_bytes(4, "big")
    (folder / file_name(SIZE)).write_bytes((b"".join(map(_packed, _UNITS)) + blank).ljust(SIZE, b"\0"))
    (folder / file_name(2 * SIZE)).write_bytes(_packed(_UNITS[0]).ljust(SIZE, b"\0"))
    return StoreLayout(root, ())


def _read(layout: StoreLayout) -> tuple[list[TimerUnit], list[CorruptError | None]]:
    with Descriptors() as descriptors:
        found = list(pieces(log_files(layout), descriptors))
    units = [
        TimerUnit(int(row["out"]), int(row["physical_offset"]), int(row["size"]), bool(row["magic"] & MAGIC_TAKES_BACK))
        for piece in found
        for row in piece.units
    ]
    return units, [piece.damage for piece in found]


def test_ours_is_read_as_it_was_written(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path, ())
    assert write_timer_log(layout, _UNITS, NOW, 65_536) == 3 * TIMER_LOG_UNIT.size
    assert _read(layout) == (_UNITS, [None])


def test_one_of_several_files_whose_first_is_gone(tmp_path: Path) -> None:
    assert _read(_files(tmp_path)) == ([*_UNITS, _UNITS[0]], [None, None])


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    layout = _files(tmp_path)
    last = tmp_path / "timerlog" / file_name(2 * SIZE)
    last.write_bytes(_packed(_UNITS[0]) + b"\1" * 52)
    units, (_, damage) = _read(layout)
    assert units == [*_UNITS, _UNITS[0]]
    assert damage is not None
    assert damage.file == str(last)
    last.rename(tmp_path / "timerlog" / file_name(3 * SIZE))
    with pytest.raises(CorruptError, match="continues with"):
        _read(layout)
