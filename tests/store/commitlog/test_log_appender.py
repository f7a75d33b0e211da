"""The end of the log as its appender tells it, and when the next file is asked for."""

from __future__ import annotations

import mmap
import resource
from pathlib import Path

import pytest

from rmqctl.formats.layouts import BLANK_FRAME
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import Allocator, MappedFileQueue
from rmqctl.store.log import transient_pool
from rmqctl.store.log.append import DirectSink, FileNotCreatedError, LogAppender
from rmqctl.store.log.transient_pool import PooledSink, TransientStorePool, lock_memory
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


def test_a_file_borrows_a_buffer_and_gives_it_back_when_it_is_written(tmp_path: Path) -> None:
    log, pool = opened(tmp_path / "log", SIZE), TransientStorePool(2, SIZE)
    sink = PooledSink(pool)
    appender = LogAppender(log, sink, Asked(log))
    room = appender.reserve(50)
    assert pool.available == 1
    appender.cancel(room)
    assert pool.available == 2
    put(appender, SIZE - 100)
    put(appender, 200)
    assert (pool.available, log.max_offset) == (0, SIZE)
    # the third file finds no buffer: what is before it is readable with it
    put(appender, SIZE - 208)
    put(appender, 300)
    assert (pool.available, log.max_offset) == (2, 2 * SIZE + 300)
    assert [file.committed_position for file in log.files] == [SIZE, SIZE, 300]
    put(appender, 50)
    assert log.max_offset == 2 * SIZE + 350
    assert not sink.commit()


def test_bytes_of_an_earlier_file_do_not_come_out_of_a_buffer_again(tmp_path: Path) -> None:
    log, pool = opened(tmp_path / "log", SIZE), TransientStorePool(1, SIZE)
    sink = PooledSink(pool)
    appender = LogAppender(log, sink, Asked(log))
    for number in range(1, 4):
        room = appender.reserve(SIZE - 100 * number)
        appender.append(room, bytes([number]) * (SIZE - 100 * number), 1)
        if number > 1:
            sink.commit()
    for number, file in enumerate(log.files[:2], 1):
        data = file.path.read_bytes()
        end = SIZE - 100 * number
        assert data[:end] == bytes([number]) * end
        assert data[end : end + 8] == (100 * number).to_bytes(4, "big") + bytes.fromhex("cbd43194")
        assert not any(data[end + 8 :])


def test_without_a_buffer_no_file_is_begun_where_that_fails_fast(tmp_path: Path) -> None:
    log, pool = opened(tmp_path / "log", SIZE), TransientStorePool(1, SIZE, fails_fast=True)
    sink = PooledSink(pool)
    appender = LogAppender(log, sink, Asked(log))
    put(appender, SIZE - 100)
    with pytest.raises(FileNotCreatedError, match="no buffer"):
        appender.reserve(200)
    assert len(log.files) == 1
    put(appender, 100 - 8)
    sink.commit()
    with pytest.raises(FileNotCreatedError, match="no buffer"):
        appender.reserve(200)


def test_a_pool_that_runs_low_or_cannot_be_locked_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transient_pool, "lock_memory", lambda _: "Cannot allocate memory")
    pool = TransientStorePool(5, SIZE)
    lent = [pool.borrow() for _ in range(6)]
    assert [buffer is None for buffer in lent] == [False] * 5 + [True]
    [locked, *low] = caplog.messages
    assert "is not locked in memory and may be swapped out: Cannot allocate memory; RLIMIT_MEMLOCK is" in locked
    assert low == [f"the transient store pool has {left} left" for left in ("1 buffer", "0 buffers", "0 buffers")]


def test_a_map_is_locked_in_memory() -> None:
    with mmap.mmap(-1, 1 << 16) as mapped:
        before = _locked_kib()
        reason = lock_memory(mapped)
        mapped[: 1 << 15] = b"x" * (1 << 15)
        if reason is None:
            assert _locked_kib() - before >= 32
        else:
            assert resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] != resource.RLIM_INFINITY, reason


def _locked_kib() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmLck"))
    return int(line.split()[1])
