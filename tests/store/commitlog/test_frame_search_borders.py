"""The borders of the search behind damage: what still counts as a frame, and what does not any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.message import LARGEST_HEAD_SIZE, MINIMUM_FRAME_SIZE, FrameDamage, Reason
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.log import search as frame_search
from rmqctl.store.log.search import FrameSearch
from tests.store.logs import BODY_AT, blank, changed, frame


def search_of(tmp_path: Path, data: bytes, start_offset: int = 0) -> FrameSearch:
    path = tmp_path / str(start_offset).zfill(20)
    path.write_bytes(data)
    return FrameSearch(MappedFile(path, start_offset, len(data), Descriptors()), len(data))


@pytest.mark.parametrize("front", [0, 1, 30])
def test_the_shortest_frames_at_the_end_of_the_file(tmp_path: Path, front: int) -> None:
    garbage = b"g" * front
    for start_offset, last in ((0, blank(8)), (500, blank(9)), (0, frame(front, b"")), (500, frame(500 + front, b""))):
        search = search_of(tmp_path, garbage + last, start_offset)
        assert search.next_good(0) == front
        assert search.is_framed(front)
        assert not front or not search.is_framed(front - 1)
    assert len(frame(0, b"")) == MINIMUM_FRAME_SIZE


def test_where_a_frame_may_follow(tmp_path: Path) -> None:
    data = b"g" * 10 + frame(10) + bytes(5) + b"last" + bytes(20)
    search = search_of(tmp_path, data)
    end = len(data)
    framed = {place for place in range(end + 3) if search.is_framed(place)}
    # a message, the empty rest of the file, and its end; nothing lies behind that
    assert framed == {10, *range(search.nonzero_end, end + 1)}
    assert search.nonzero_end == end - 20
    assert search_of(tmp_path, b"x" + bytes(10)).nonzero_end == 1
    assert not [place for place in range(20) if search_of(tmp_path, b"g" * 20).is_framed(place)]


@pytest.mark.parametrize("behind", [0, 1, 100])
@pytest.mark.parametrize("body", [LARGEST_HEAD_SIZE - 92, LARGEST_HEAD_SIZE - 91, 300, 40_000])
@pytest.mark.parametrize("by_prefixes", [False, True])
def test_a_good_frame_of_any_size_up_to_the_end_is_good(
    tmp_path: Path, behind: int, body: int, by_prefixes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_prefixes:
        monkeypatch.setattr(frame_search, "_READ_IN_VAIN", -(1 << 40))
        monkeypatch.setattr(frame_search, "_SMALL_FRAME", 0)
    whole = b"g" * 7 + frame(7, b"b" * body) + b"g" * behind
    search = search_of(tmp_path, whole)
    search.check(7)
    search.check(7, check_crc=False)
    wrong = search_of(tmp_path, changed(whole, 7 + BODY_AT, b"?"))
    wrong.check(7, check_crc=False)
    with pytest.raises(FrameDamage) as caught:
        wrong.check(7)
    assert caught.value.reason is Reason.BODY_CRC
    # one byte of it is missing
    with pytest.raises(FrameDamage) as caught:
        search_of(tmp_path, whole[: len(whole) - behind - 1]).check(7)
    assert caught.value.reason is Reason.SIZE


def test_a_file_that_has_become_shorter_is_named_with_the_place(tmp_path: Path) -> None:
    search = search_of(tmp_path, bytes(100), 1000)
    assert search.read(90, 10) == bytes(10)
    with pytest.raises(UnreadableError, match="11 bytes were expected, 10 are left") as caught:
        search.read(90, 11)
    assert caught.value.physical_offset == 1090
    assert caught.value.file == str(tmp_path / "1000".zfill(20))
