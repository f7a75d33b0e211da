"""The end of the log as its appender tells it, and when the next file is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.layouts import BLANK_FRAME
from rmqctl.store.commitlog.append import DirectSink, LogAppender, PooledSink
from rmqctl.store.files.allocate import Allocator
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from tests.store.logs import opened

SIZE = 1000


class Asked(Allocator):
    """An allocator that makes nothing ahead, and notes what it was asked for."""

    def __init__(self, log: MappedFileQueue) -> None:
        super().__init__(log, False, lambda: None)
        self.asked: list[int] = []

    def ask(self, start_offset: int) -> None:
        self.asked.append(start_offset)


def an_appender(folder: Path) -> tuple[LogAppender, Asked]:
    log = opened(folder / "log", SIZE)
    allocator = Asked(log)
    return LogAppender(log, DirectSink(), allocator), allocator


def put(appender: LogAppender, size: int) -> int:
    """Append so many bytes; where they stand."""
    room = appender.reserve(size)
    at = room.physical_offset
    appender.append(room, b"x" * size, 1)
    return at


def ends(appender: LogAppender) -> tuple[int, MappedFile | None]:
    return appender.end_offset, appender.last_file


def test_the_next_file_is_asked_for_once_more_than_half_of_this_one_is_used(tmp_path: Path) -> None:
    appender, allocator = an_appender(tmp_path)
    put(appender, SIZE // 2)
    assert allocator.asked == []
    put(appender, 1)
    assert allocator.asked == [SIZE]
    put(appender, SIZE // 2 + 1)
    assert allocator.asked == [SIZE, 2 * SIZE]


def test_the_end_and_the_file_that_is_appended_to(tmp_path: Path) -> None:
    appender, _ = an_appender(tmp_path)
    assert ends(appender) == (0, None)
    put(appender, SIZE - BLANK_FRAME.size - 1)
    [first] = appender._log.files
    assert ends(appender) == (SIZE - BLANK_FRAME.size - 1, first)
    # eight bytes stay for a blank frame, and not one less
    assert put(appender, 1) == SIZE - BLANK_FRAME.size - 1
    assert put(appender, 10) == SIZE
    assert first.is_full
    assert ends(appender) == (SIZE + 10, appender._log.files[1])
    # a file that is full without a blank frame is not closed with another one
    appender._log.files[1].set_positions(SIZE)
    assert ends(appender) == (2 * SIZE, None)
    room = appender.reserve(1)
    assert room.full_file is None
    appender.cancel(room)
    assert put(appender, 5) == 2 * SIZE


def test_a_room_that_is_given_up_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    appender, _ = an_appender(tmp_path)
    put(appender, 900)
    before = sorted(path.name for path in (tmp_path / "log").iterdir())
    for size in (50, 200):
        room = appender.reserve(size)
        assert room.is_new_file == (size == 200)
        appender.cancel(room)
        assert sorted(path.name for path in (tmp_path / "log").iterdir()) == before
    assert put(appender, 20) == 900


@pytest.mark.parametrize("limit", [100, 101])
def test_a_pool_commits_by_itself_when_its_limit_is_reached(tmp_path: Path, limit: int) -> None:
    """Again and again: what was committed counts no more."""
    log = opened(tmp_path / "log", SIZE)
    appender = LogAppender(log, PooledSink(limit), Asked(log))
    committed = []
    for _ in range(8):
        put(appender, 50)
        committed.append(log.files[0].committed_position)
    every = 2 if limit == 100 else 3
    assert committed == [50 * (number - number % every) for number in range(1, 9)]
