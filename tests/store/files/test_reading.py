"""Reading by position: bounded descriptors, short files, and what lies between holes."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.errors import RemovedError, UnreadableError
from rmqctl.store.files.reading import (
    Descriptors,
    data_extents,
    end_of_nonzero,
    exists,
    first_nonzero,
    is_directory,
    is_file,
    is_link,
    is_real_directory,
    is_real_file,
    is_there,
    read_small_file,
)
from tests.quick import examples
from tests.store.journal.failing import failing

PAGE = 4096


def _open_descriptors(folder: Path) -> int:
    """How many files below `folder` are open. Others come and go by themselves: threads end, garbage is collected."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{number}").startswith(str(folder))
    return found


def test_reads_stop_at_the_end_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    descriptors = Descriptors()
    assert descriptors.read(path, 3, 4) == b"3456"
    assert descriptors.read(path, 8, 100) == b"89"
    assert descriptors.read(path, 10, 1) == b""
    assert descriptors.read(path, 1000, 1) == b""
    descriptors.close()


def test_interrupted_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, length, at: real(descriptor, min(length, 3), at))
    descriptors = Descriptors()
    assert descriptors.read(path, 1, 100) == b"123456789"
    descriptors.close()


def test_nothing_stays_open_of_what_nobody_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    before = _open_descriptors(tmp_path)
    descriptors = Descriptors()
    descriptors.read(path, 0, 1)
    assert _open_descriptors(tmp_path) == before + 1
    del descriptors
    assert _open_descriptors(tmp_path) == before


def test_a_file_is_known_by_every_object_that_names_it_until_it_is_forgotten(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    descriptors = Descriptors(maximum_open=4)
    for content in (b"before", b"behind"):
        for path in (first, second):
            path.unlink(missing_ok=True)
            path.write_bytes(content)
        # more objects than descriptors, and each of them a new one
        names = [Path(str(path)) for path in (first, second) * 4]
        assert [descriptors.read(name, 0, 6) for name in (*names, *names)] == [content] * 16
        descriptors.forget(Path(str(first)))
        descriptors.forget(second)
    for number in range(5):
        (tmp_path / str(number)).write_bytes(str(number).encode())
        assert descriptors.read(first, 0, 6) == b"behind"
        assert descriptors.read(tmp_path / str(number), 0, 9) == str(number).encode()
    first.unlink()
    descriptors.forget(first)
    with pytest.raises(RemovedError):
        descriptors.read(first, 0, 6)
    descriptors.close()


def test_descriptors_are_bounded_and_reused(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(20)]
    for path in paths:
        path.write_text(path.name)
    before = _open_descriptors(tmp_path)
    descriptors = Descriptors(maximum_open=4)
    for _ in range(3):
        for path in paths:
            assert descriptors.read(path, 0, 10) == path.name.encode()
            assert _open_descriptors(tmp_path) <= before + 4
    descriptors.close()
    assert _open_descriptors(tmp_path) == before


def test_the_most_recently_used_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / str(number) for number in range(3)]
    for path in paths:
        path.write_bytes(b"x")
    opened: list[str] = []
    real = os.open

    def counting_open(path: Path, flags: int) -> int:
        opened.append(path.name)
        return real(path, flags)

    monkeypatch.setattr(os, "open", counting_open)
    descriptors = Descriptors(maximum_open=2)
    for number in (0, 1, 0, 2, 0, 1):
        descriptors.read(paths[number], 0, 1)
    assert opened == ["0", "1", "2", "1"]
    descriptors.close()


def test_a_replaced_file_is_seen_after_forget(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    descriptors = Descriptors()
    assert descriptors.read(path, 0, 3) == b"old"
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "new").rename(path)
    descriptors.forget(path)
    descriptors.forget(tmp_path / "unknown")
    assert descriptors.read(path, 0, 3) == b"new"
    descriptors.close()


def test_unreadable_names_file_and_what_to_do(tmp_path: Path) -> None:
    descriptors = Descriptors()
    with pytest.raises(UnreadableError, match="cannot be read") as error:
        descriptors.read(tmp_path, 0, 1)
    assert error.value.file == str(tmp_path)
    assert error.value.hint
    with pytest.raises(RemovedError, match="was removed while the store was read") as removed:
        descriptors.read(tmp_path / "missing", 0, 1)
    assert removed.value.file == str(tmp_path / "missing")
    with pytest.raises(RemovedError):
        list(data_extents(tmp_path / "missing", 0, 10))


def test_the_first_bad_page_is_named_however_much_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    pread = os.pread

    def failing(descriptor: int, length: int, position: int) -> bytes:
        if position < 50_100 and position + length > 50_000:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, length, position)

    monkeypatch.setattr(os, "pread", failing)
    descriptors = Descriptors()
    for position, length in ((0, 100_000), (30_000, 25_000), (50_050, 10)):
        with pytest.raises(UnreadableError, match=r"cannot be read at byte 49152: Input/output error"):
            descriptors.read(path, position, length)
    assert len(descriptors.read(path, 0, 50_000)) == 50_000


def test_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    descriptors = Descriptors()
    with pytest.raises(UnreadableError):
        descriptors.read(tmp_path / "fifo", 0, 1)
    descriptors.close()


def test_threads_share_descriptors(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(8)]
    for path in paths:
        path.write_bytes(path.name.encode() * 1000)
    descriptors = Descriptors(maximum_open=2)
    wrong: list[str] = []

    def read() -> None:
        for turn in range(200):
            path = paths[turn % 8]
            if descriptors.read(path, turn, 5) != path.name.encode() * 5:
                wrong.append(path.name)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    descriptors.close()


PIECES = st.lists(
    st.tuples(st.sampled_from(["hole", "zeros", "data"]), st.integers(1, 3 * PAGE)), min_size=1, max_size=6
)


@settings(max_examples=examples(60), deadline=None)
@given(PIECES, st.data())
def test_zeros_and_holes(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[str, int]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("holes") / "file"
    with path.open("wb") as file:
        for kind, length in pieces:
            if kind == "hole":
                file.seek(length, os.SEEK_CUR)
            else:
                file.write(bytes(length) if kind == "zeros" else b"\0" * (length // 2) + b"x" + b"\0" * (length // 3))
        file.truncate()
    content = path.read_bytes()
    begin = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(begin, len(content)))
    part = content[begin:end]
    descriptors = Descriptors()
    expected = begin + len(part) - len(part.lstrip(b"\0")) if part.strip(b"\0") else None
    assert first_nonzero(descriptors, path, begin, end) == expected
    assert end_of_nonzero(descriptors, path, begin, end) == begin + len(part.rstrip(b"\0"))
    extents = list(data_extents(path, begin, end))
    descriptors.close()
    assert all(begin <= start < stop <= end for start, stop in extents)
    rest = bytearray(part)
    for start, stop in extents:
        rest[start - begin : stop - begin] = bytes(stop - start)
    assert not any(rest)


def test_holes_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 42)
        file.seek(1 << 41)
        file.write(b"x")
    descriptors = Descriptors()
    assert first_nonzero(descriptors, path, 0, 1 << 42) == 1 << 41
    assert end_of_nonzero(descriptors, path, 0, 1 << 42) == (1 << 41) + 1
    assert first_nonzero(descriptors, path, (1 << 41) + 1, 1 << 42) is None
    descriptors.close()


def test_file_system_without_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100) + b"x")

    def unsupported(descriptor: int, position: int, how: int) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "lseek", unsupported)
    assert list(data_extents(path, 10, 101)) == [(10, 101)]
    assert list(data_extents(path, 200, 300)) == []


def test_small_files_are_regular_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert (read_small_file(path, 100), read_small_file(path, 3)) == (b"content", b"con")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "circle").symlink_to("circle")
    for name in ("fifo", "endless", "circle", "."):
        with pytest.raises(UnreadableError):
            read_small_file(tmp_path / name, 10)
    with pytest.raises(FileNotFoundError):
        read_small_file(tmp_path / "nowhere", 10)


def test_what_is_held_stays_open_however_much_else_is_read(tmp_path: Path) -> None:
    """The bound gives way: what another process has removed can be read to its end."""
    paths = [tmp_path / str(number) for number in range(3)]
    for path in paths:
        path.write_text(path.name)
    before = _open_descriptors(tmp_path)
    descriptors = Descriptors(maximum_open=2)
    assert [descriptors.pin(path) for path in paths] == [True] * 3
    assert _open_descriptors(tmp_path) == before + 3
    for path in paths:
        path.unlink()
        descriptors.forget_unless_pinned(path)
    assert [descriptors.read(path, 0, 10) for path in paths] == [b"0", b"1", b"2"]
    for path in paths:
        descriptors.unpin(path)
        descriptors.forget_unless_pinned(path)
        with pytest.raises(RemovedError):
            descriptors.read(path, 0, 10)
    descriptors.close()
    assert _open_descriptors(tmp_path) == before


def test_a_disk_that_does_not_let_a_file_be_opened(tmp_path: Path) -> None:
    """That is no file that was removed: a hold says nothing of it, reading and handing on do."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    descriptors = Descriptors()
    with failing(path, "open", 1):
        assert descriptors.pin(path)
    assert descriptors.read(path, 0, 3) == b"012"
    descriptors.unpin(path)
    descriptors.forget(path)
    with failing(path, "open", 1), pytest.raises(UnreadableError, match="cannot be opened: Input/output") as unreadable:
        descriptors.duplicate(path)
    assert unreadable.value.file == str(path)
    os.close(descriptors.duplicate(path))
    assert not descriptors.pin(tmp_path / "gone")
    with pytest.raises(RemovedError):
        descriptors.duplicate(tmp_path / "gone")
    descriptors.close()


def test_a_small_file_that_the_disk_does_not_give() -> None:
    """This process's own memory is a regular file whose first bytes nobody can read."""
    path = Path("/proc/self/mem")
    with pytest.raises(UnreadableError, match="cannot be read: Input/output error") as unreadable:
        read_small_file(path, 10)
    assert unreadable.value.file == str(path)


def test_a_name_that_no_file_can_have_is_not_there() -> None:
    for ask in (is_there, exists, is_file, is_directory, is_link):
        assert not ask("a\0b")


def test_a_link_is_what_it_leads_to_but_nothing_of_that_itself(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "to-folder").symlink_to(".")
    assert is_file(tmp_path / "to-file")
    assert is_directory(tmp_path / "to-folder")
    assert not is_real_file(tmp_path / "to-file")
    assert not is_real_directory(tmp_path / "to-folder")
    assert is_real_file(tmp_path / "file")
    assert is_real_directory(tmp_path)
