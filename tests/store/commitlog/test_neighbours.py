"""The nearest valid messages around a place of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.resync import neighbours
from tests.store.logs import blank, changed, frame, frames, log_of

SIZE = 4096


def _offsets(log: MappedFileQueue, place: int, reach: int = 1 << 20) -> tuple[int | None, int | None]:
    found = neighbours(log, place, reach)
    return (
        found.before.physical_offset if found.before else None,
        found.after.physical_offset if found.after else None,
    )


def test_around_every_byte_of_a_damaged_log(tmp_path: Path) -> None:
    made = frames([b"a" * 50, b"b" * 60, b"c" * 70, b"d" * 80])
    starts = [sum(map(len, made[:number])) for number in range(4)]
    whole = b"".join([*made[:1], b"\x07" * len(made[1]), *made[2:]])
    data = whole + blank(SIZE - len(whole))
    second = frame(SIZE, b"next file")
    log = log_of(tmp_path / "log", data, second.ljust(SIZE, b"\0"))
    good = [starts[0], starts[2], starts[3], SIZE]
    for place in range(0, 2 * SIZE + 50, 7):
        before = max((one for one in good if one < place), default=None)
        after = min((one for one in good if one > place), default=None)
        assert _offsets(log, place) == (before, after), place


def test_a_message_inside_a_body_is_not_one(tmp_path: Path) -> None:
    first = frame(0, b"")
    decoy = frame(len(first) + 100, b"decoy")
    outer = frame(len(first), b"x" * (100 - 88) + decoy + b"x" * 300)
    last = frame(len(first) + len(outer), b"last")
    log = log_of(tmp_path / "log", (first + outer + last).ljust(SIZE, b"\0"))
    assert (first + outer).index(decoy) == len(first) + 100
    for place in range(len(first) + 1, len(first) + len(outer)):
        assert _offsets(log, place) == (len(first), len(first) + len(outer)), place


def test_damage_in_a_body_does_not_hide_the_next_message(tmp_path: Path) -> None:
    made = frames([b"a" * 50, b"b" * 60, b"c" * 70])
    data = b"".join(made)
    log = log_of(tmp_path / "log", changed(data, len(made[0]) + 90, b"\xff").ljust(SIZE, b"\0"))
    assert _offsets(log, len(made[0])) == (0, len(made[0]) + len(made[1]))


@pytest.mark.parametrize("reach", [1000, 1 << 20])
def test_it_says_how_far_it_looked(tmp_path: Path, reach: int) -> None:
    size = 1 << 18
    first = frame(0, b"first")
    last = frame(size - 400, b"last")
    noise = b"\x05" * (size - 400 - len(first))
    log = log_of(tmp_path / "log", first + noise + last + blank(400 - len(last)))
    found = neighbours(log, size // 2, reach)
    if reach == 1000:
        assert found == (None, None, size // 2 - 1000, size // 2 + 1 + 1000)
    else:
        assert _offsets(log, size // 2, reach) == (0, size - 400)


def test_zeros_at_the_end_do_not_count(tmp_path: Path) -> None:
    first = frame(0, b"first")
    log = log_of(tmp_path / "log", first.ljust(1 << 18, b"\0"))
    assert _offsets(log, 200_000, 1000) == (0, None)
