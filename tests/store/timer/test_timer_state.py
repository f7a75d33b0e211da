"""The timer's log, as it is written by us and as a broker writes it, over several files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import BLANK_MAGIC, TIMER_LOG_UNIT
from rmqctl.network.broker.delays import write_timer_log
from rmqctl.store.files.layout import StoreLayout, file_name
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.timer.wheel import TimerUnit, timer_log_units

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


def _read(layout: StoreLayout, end: int) -> list[TimerUnit]:
    with Descriptors() as descriptors:
        return list(timer_log_units(layout, descriptors, end))


def test_ours_is_read_as_it_was_written(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path, ())
    end = write_timer_log(layout, _UNITS, NOW, 65_536)
    assert _read(layout, end) == _UNITS
    assert _read(layout, 52) == _UNITS[:1]


def test_one_of_several_files_whose_first_is_gone(tmp_path: Path) -> None:
    layout = _files(tmp_path)
    assert _read(layout, 2 * SIZE + 52) == [*_UNITS, _UNITS[0]]
    assert _read(layout, SIZE + 52) == _UNITS[:1]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    layout = _files(tmp_path)
    with pytest.raises(CorruptError, match="no unit of the timer's log stands at byte 52"):
        _read(layout, 2 * SIZE + 104)
    last = tmp_path / "timerlog" / file_name(2 * SIZE)
    last.write_bytes(_packed(_UNITS[0]) * 4)
    with pytest.raises(CorruptError, match=f"ends at {2 * SIZE + 208}, and should reach up to 1000"):
        _read(layout, 1_000)
    last.rename(tmp_path / "timerlog" / file_name(3 * SIZE))
    with pytest.raises(CorruptError, match="goes on with"):
        _read(layout, 1_000)
    with pytest.raises(CorruptError, match="has no file"):
        _read(StoreLayout(tmp_path / "empty", ()), 52)
