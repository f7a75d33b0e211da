"""Where a walk may begin: the nearest message before a place, never one that only stands in a body."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store.commitlog import resync
from rmqctl.store.commitlog.frame_search import FrameSearch
from rmqctl.store.commitlog.resync import sure_start
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.reading import Descriptors
from tests.store.logs import BODY_AT, blank, changed, frame

START_OFFSET = 5000


def with_decoys(position: int) -> bytes:
    """A message of which the body is two that are right in every respect, standing where they say."""
    at = START_OFFSET + position + BODY_AT
    first = frame(at, b"first decoy")
    return frame(START_OFFSET + position, first + frame(at + len(first), b"second"))


def a_log(ending: bytes = b"") -> tuple[bytes, list[int]]:
    """Messages, of which some have decoys, and the positions where they begin; the last has some."""
    data, begins = b"", []
    for number in range(10):
        begins.append(len(data))
        data += with_decoys(len(data)) if number % 3 == 0 else frame(START_OFFSET + len(data), b"x" * 9 * number)
    return data + ending, begins


def assert_sure(folder: Path, data: bytes, begins: list[int]) -> None:
    """At every position the nearest of `begins`, if it is not further away than is looked back there."""
    path = folder / "file"
    path.write_bytes(data)
    search = FrameSearch(MappedFile(path, START_OFFSET, len(data), Descriptors()), len(data))
    for position in range(2, len(data)):
        looked_back = [resync._FIRST_SPAN * 8**times for times in range(5) if resync._FIRST_SPAN * 8**times < position]
        nearest = max(begin for begin in (0, *begins) if begin <= position)
        expected = nearest if position - nearest <= max(looked_back, default=-1) else 0
        assert sure_start(search, START_OFFSET, position, len(data)) == expected, position


@pytest.mark.parametrize("span", [1, 90, 700])
@pytest.mark.parametrize("ending", [b"", bytes(100), blank(100)], ids=["full", "zeros", "blank"])
def test_the_nearest_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, span: int, ending: bytes) -> None:
    monkeypatch.setattr(resync, "_FIRST_SPAN", span)
    monkeypatch.setattr(resync, "_CACHED", 100)
    data, begins = a_log(ending)
    assert_sure(tmp_path, data, begins)


def test_what_stands_in_a_blank_is_none_of_the_log_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_FIRST_SPAN", 90)
    data, begins = a_log()
    left_over = frame(START_OFFSET + len(data) + 8, b"left over")
    assert_sure(tmp_path, data + blank(8 + len(left_over))[:8] + left_over, begins)


def test_a_damaged_message_is_not_certain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in it is not, either."""
    monkeypatch.setattr(resync, "_FIRST_SPAN", 1)
    data, begins = a_log()
    for number in (3, 5, 9):
        assert_sure(
            tmp_path, changed(data, begins[number] + BODY_AT + 2, b"?"), [b for b in begins if b != begins[number]]
        )
