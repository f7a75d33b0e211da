"""Where a walk may begin: the nearest message before a place, never one that only stands in a body."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.layouts import BLANK_MAGIC, FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.formats.message import MINIMUM_FRAME_SIZE
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.log import resync
from rmqctl.store.log.resync import sure_start
from rmqctl.store.log.search import FrameSearch
from tests.quick import examples
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


# --- heads that claim one another's places, held against a plain loop (law 8) ----------------------------------------

LOOK_BACK, MAXIMUM = 150, 400
_OFFSET_AT = FRAME_HEADS[0].offset("physical_offset")


def plain_unclaimed(window: bytes, begin: int, start_offset: int, end: int) -> list[int]:
    """The same as `resync._unclaimed`, head by head."""
    found, reached = [], 0
    for place in range(len(window) - 7):
        size, magic = struct.unpack_from(">iI", window, place)
        if magic not in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, BLANK_MAGIC):
            continue
        left = end - begin - place
        said = window[place + _OFFSET_AT : place + _OFFSET_AT + 8]
        is_here = len(said) == 8 and int.from_bytes(said, "big") == start_offset + begin + place
        is_possible = MINIMUM_FRAME_SIZE <= size <= min(left, MAXIMUM)
        is_message = magic != BLANK_MAGIC
        if is_message and is_here and is_possible and reached <= place:
            found.append(begin + place)
        if size == left if not is_message else is_possible and (is_here or size < FRAME_HEADS[3].size):
            reached = max(reached, place + min(size, LOOK_BACK))
    return found


@st.composite
def windows(draw: st.DrawFn) -> tuple[bytes, int, int, int]:
    """Heads in a window, most of which know their place: the window, where it stands, where the file begins and ends.

    Their sizes are those at which something changes, or lead to the next head or one byte beside it.
    """
    data = bytearray(draw(st.sampled_from((8, 9, 36, 120, 330, 500))))
    begin, start_offset = draw(st.sampled_from((0, 1, 700))), draw(st.sampled_from((0, 5000)))
    end = begin + len(data) + draw(st.sampled_from((0, 1, 200)))
    places = draw(st.lists(st.integers(0, len(data) - 7), min_size=1, max_size=6, unique=True).map(sorted))
    for place, following in zip(places, [*places[1:], len(data)], strict=True):
        left = end - begin - place
        sizes = (91, 92, 99, 100, 111, 112, 149, 150, 151, left - 1, left, left + 1, MAXIMUM, MAXIMUM + 1)
        beside = [following - place + step for step in (-1, 0, 1)]
        size = draw(st.sampled_from([*sizes, *beside]))
        magic = draw(st.sampled_from((MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, BLANK_MAGIC, 0xDAA320AA)))
        stands_at = start_offset + begin + place + draw(st.sampled_from((0, 0, 0, 1)))
        head = struct.pack(">iI", size, magic) + bytes(_OFFSET_AT - 8) + struct.pack(">q", stands_at)
        data[place : place + len(head)] = head[: len(data) - place]
    return bytes(data), begin, start_offset, end


@settings(max_examples=examples(2000), deadline=None)
@given(windows())
def test_whom_no_head_reaches_over_as_a_plain_loop_says(asked: tuple[bytes, int, int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resync, "LOOK_BACK", LOOK_BACK)
        patch.setattr(resync, "MAXIMUM_FRAME_SIZE", MAXIMUM)
        patch.setattr(resync, "_CACHED", 100)
        assert resync._unclaimed(*asked).tolist() == plain_unclaimed(*asked)


def test_in_the_bytes_of_a_place_alone_nothing_is_found() -> None:
    for length in range(8):
        assert resync._unclaimed(bytes(length), 0, 0, 100).tolist() == []
