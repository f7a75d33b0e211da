"""The map of a file that grows: reserved in larger pieces, faulted in at once, and written by others in the open."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files import mapped_file as writable_map
from rmqctl.store.files.mapped_file import WritableMap

MIB = 1 << 20
SIZE = 64 * MIB


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[WritableMap]:
    """A new file of 64 MiB."""
    io.create_file(tmp_path / "file", SIZE)
    made = WritableMap(tmp_path / "file", SIZE, 0)
    yield made
    made.close()


def test_whoever_writes_little_reserves_little(pages: WritableMap) -> None:
    pages.reserve(100)
    assert pages.reserved == 4 * MIB
    pages.reserve(4 * MIB)
    assert pages.reserved == 4 * MIB
    pages.reserve(4 * MIB + 1)
    assert pages.reserved == 16 * MIB
    pages.reserve(SIZE)
    assert pages.reserved == SIZE


@pytest.mark.parametrize("number", [99, -1])
def test_a_kernel_that_cannot_fault_in_at_once(
    pages: WritableMap, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(writable_map, "_POPULATE_WRITE", number)
    pages.reserve(100)
    pages.reserve(5 * MIB)
    pages.write(5 * MIB - 10, b"0123456789")
    assert pages.path.read_bytes()[5 * MIB - 10 : 5 * MIB] == b"0123456789"


def test_ctrl_c_in_the_middle_of_a_write_leaves_the_map_to_its_frames(tmp_path: Path) -> None:
    """What is raised keeps the frames alive, and these the bytes that were being written."""

    def write(target: memoryview) -> None:
        raise KeyboardInterrupt(len(target))

    io.create_file(tmp_path / "file", MIB)
    pages = WritableMap(tmp_path / "file", MIB, 0)
    with pytest.raises(KeyboardInterrupt), contextlib.closing(pages):
        write(memoryview(pages.map))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pages._descriptor)


def test_a_map_that_somebody_uses_is_not_closed_in_silence(tmp_path: Path) -> None:
    io.create_file(tmp_path / "file", MIB)
    pages = WritableMap(tmp_path / "file", MIB, 0)
    with memoryview(pages.map), pytest.raises(BufferError):
        pages.close()
    pages.close()


class _Watched:
    """A map whose first bytes are looked at after every write into it."""

    def __init__(self, pages: WritableMap) -> None:
        self._map = pages.map
        self.seen: list[bytes] = []

    def __setitem__(self, place: slice, data: bytes) -> None:
        self._map[place] = data
        self.seen.append(self._map[:20])

    def close(self) -> None:
        self._map.close()


def test_a_reader_sees_no_frame_or_all_of_it(pages: WritableMap) -> None:
    pages.reserve(100)
    frame = b"0123456789abcdefghij"
    watched = _Watched(pages)
    pages.map = cast(mmap.mmap, watched)
    pages.write(0, frame)
    assert watched.seen[-1] == frame
    assert all(seen == frame or not any(seen[:8]) for seen in watched.seen)


def resident_bytes(path: Path) -> int:
    """Bytes of the maps of `path` that this process has in its page tables."""
    total, counts = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            counts = line.endswith(str(path))
        elif counts and words[0] == "Rss:":
            total += int(words[1]) * 1024
    return total


def test_pages_are_there_before_they_are_written_to(pages: WritableMap) -> None:
    pages.reserve(100)
    assert resident_bytes(pages.path) == 0
    pages.reserve(5 * MIB)
    deadline = time.monotonic() + 120
    # 16 MiB, and the 16 MiB that come next
    while resident_bytes(pages.path) < 32 * MIB and time.monotonic() < deadline:
        time.sleep(0.01)
    assert resident_bytes(pages.path) == 32 * MIB
    assert not any(pages.path.read_bytes())


def test_closing_waits_for_the_thread_that_populates(pages: WritableMap) -> None:
    pages.reserve(100)
    pages.reserve(5 * MIB)
    pages.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("rmqctl-populate")]
    pages.__init__(pages.path, SIZE, 0)  # type: ignore[misc]  # the fixture closes it again


def test_a_frame_is_announced_as_one_write(pages: WritableMap, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str, int, int]] = []
    pages.reserve(100)
    monkeypatch.setattr(io, "observer", lambda *observed: told.append(observed))
    pages.write(10, b"headheadrest")
    assert pages.path.read_bytes()[:30] == bytes(10) + b"headheadrest" + bytes(8)
    assert told == [("write", str(pages.path), 10, 12)]


def test_a_view_for_others(pages: WritableMap, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.reserve(100)
    with pages.view(10, 20) as view:
        view[2:4] = b"xy"
    assert pages.path.read_bytes()[10:20] == b"\0\0xy\0\0\0\0\0\0"

    def broken(operation: str, _path: str, _offset: int, _length: int) -> None:
        raise OSError(errno.EIO, operation)

    monkeypatch.setattr(io, "observer", broken)
    with pytest.raises(WriteFailedError, match="write failed"):
        pages.will_write(10, 10)
