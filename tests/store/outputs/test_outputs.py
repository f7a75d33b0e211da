"""Law 6 for exports: a file or directory appears when it is complete, and nothing is left behind otherwise."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqctl.formats.errors import DiskFullError, RefusedError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.outputs import STANDARD_OUTPUT, OutputFile, OutputStream, new_directory, new_file, staging_of


def test_a_file_gets_its_name_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "out"
    data = [b"a" * 10, b"b" * (3 << 20), b"", b"c"]
    with new_file(path) as output:
        for part in data:
            assert output.write(part) == len(part)
        output.flush()
        output.close()
        assert output.writable()
        assert output.tell() == sum(map(len, data))
        assert not path.exists()
    assert output.closed
    assert path.read_bytes() == b"".join(data)
    assert os.listdir(path.parent) == ["out"]


def interrupted_file(path: Path, error: type[BaseException]) -> None:
    with new_file(path) as output:
        output.write(b"x" * (2 << 20))
        raise error


def interrupted_directory(path: Path, error: type[BaseException]) -> None:
    with new_directory(path) as root:
        (root / "one").write_bytes(b"x")
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_end_in_the_middle_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    for interrupted in (interrupted_file, interrupted_directory):
        with pytest.raises(error):
            interrupted(tmp_path / "deeper", error)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("operation", ["create", "write", "fsync", "rename"])
def test_a_full_disk_leaves_nothing(tmp_path: Path, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def observer(done: str, *_: object) -> None:
        if done == operation:
            raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "out"
    path.write_bytes(b"old")
    monkeypatch.setattr(io, "observer", observer)
    with pytest.raises(DiskFullError), new_file(path, overwrite=True) as output:
        output.write(b"x")
    assert os.listdir(tmp_path) == ["out"]
    assert path.read_bytes() == b"old"


def test_what_is_there_stays_unless_it_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with pytest.raises(RefusedError, match="exists"), new_file(path):
        pass
    with new_file(path, overwrite=True) as output:
        output.write(b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(RefusedError, match="directory"), new_file(tmp_path, overwrite=True):
        pass
    with pytest.raises(RefusedError, match="exists"), new_directory(tmp_path):
        pass
    with pytest.raises(RefusedError, match="exists"), new_directory(path):
        pass


def test_a_directory_gets_its_name_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    path.mkdir()
    with new_directory(path) as root:
        (root / "one").write_bytes(b"x")
        assert list(path.iterdir()) == []
    assert [child.name for child in path.iterdir()] == ["one"]
    assert os.listdir(tmp_path) == ["lake"]


def test_what_a_killed_export_left_is_in_nobodys_way(tmp_path: Path) -> None:
    staging_of(tmp_path / "out").write_bytes(b"half")
    with new_file(tmp_path / "out") as output:
        output.write(b"whole")
    staging_of(tmp_path / "many").mkdir()
    (staging_of(tmp_path / "many") / "half").write_bytes(b"")
    with new_directory(tmp_path / "many"):
        pass
    assert (tmp_path / "out").read_bytes() == b"whole"
    assert sorted(os.listdir(tmp_path)) == ["many", "out"]


def test_nothing_is_written_behind_the_end(tmp_path: Path) -> None:
    output = OutputFile(tmp_path / "out")
    output.finish()
    output.abandon()
    with pytest.raises(AssertionError):
        output.write(b"x" * (2 << 20))


@contextmanager
def standard_output(descriptor: int | None) -> Iterator[None]:
    """Standard output is this, or with None closed."""
    saved = os.dup(1)
    try:
        if descriptor is None:
            os.close(1)
        else:
            os.dup2(descriptor, 1)
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def test_standard_output_that_is_closed(tmp_path: Path) -> None:
    with standard_output(None), pytest.raises(WriteFailedError, match="standard output is closed"):
        OutputStream(STANDARD_OUTPUT)


def test_nobody_reads_standard_output_any_more() -> None:
    """`| head` has ended: that is how it is meant, and no failed write. A pipe with a name is one."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with standard_output(writing):
            output = OutputStream(STANDARD_OUTPUT)
        output.write(b"x" * 100)
        with pytest.raises(BrokenPipeError):
            output.finish()
        output.abandon()
        named = OutputStream(Path(f"/proc/self/fd/{os.dup(writing)}"))
        named.write(b"x" * 100)
        with pytest.raises(WriteFailedError, match="Broken pipe"):
            named.finish()
        named.abandon()
    finally:
        os.close(writing)
