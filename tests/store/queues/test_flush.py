"""Which files of queues are flushed when, with the folders that lead to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.queues.queue_table import _FEW_FILES, _UNITS_OF_A_PAGE, QueueFlusher


class Disk:
    """Notes what is flushed; can be made to fail."""

    def __init__(self) -> None:
        self.files: list[Path] = []
        self.folders: list[Path] = []
        self.is_broken = False

    def __call__(self, operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "fsync":
            if self.is_broken:
                raise OSError(5, "Input/output error")
            (self.folders if Path(path).is_dir() else self.files).append(Path(path))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    monkeypatch.setattr(io, "observer", found)
    return found


def queue_files(root: Path, count: int) -> list[Path]:
    """So many files, each of a queue of its own."""
    paths = [root / "consumequeue" / "T" / str(number) / ("0" * 20) for number in range(count)]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    return paths


def test_a_few_files_are_flushed_each_time(tmp_path: Path, disk: Disk) -> None:
    flusher = QueueFlusher()
    paths = queue_files(tmp_path, _FEW_FILES)
    for path in paths:
        flusher.wrote(path)
    assert flusher.flush(False)
    assert disk.files == paths
    assert flusher.flush(False)
    assert len(disk.files) == _FEW_FILES


def test_of_many_those_that_are_worth_it_and_in_the_end_all(tmp_path: Path, disk: Disk) -> None:
    flusher = QueueFlusher()
    paths = queue_files(tmp_path, _FEW_FILES + 1)
    for number, path in enumerate(paths):
        flusher.wrote(path, 2 * _UNITS_OF_A_PAGE - 1)
        if number % 2:
            flusher.wrote(path)
    assert not flusher.flush(False)
    assert disk.files == paths[1::2]
    assert flusher.flush(True)
    assert disk.files == [*paths[1::2], *paths[::2]]
    # what was flushed counts from nothing again
    for path in paths:
        flusher.wrote(path, 2 * _UNITS_OF_A_PAGE - 1)
    assert not flusher.flush(False)
    assert len(disk.files) == len(paths)


def test_the_folders_that_lead_to_a_new_file_are_flushed_once(tmp_path: Path, disk: Disk) -> None:
    """Those of queue, topic and `consumequeue`, and the store's, in which the last of these stands; no other."""
    flusher = QueueFlusher()
    first, second = queue_files(tmp_path, 2)
    for _ in range(2):
        flusher.wrote(first)
        flusher.flush(True)
    topic = first.parent.parent
    assert disk.folders == [first.parent, topic, topic.parent, tmp_path]
    flusher.wrote(second)
    flusher.flush(True)
    assert disk.folders[4:] == [second.parent, topic]


def test_a_file_that_is_gone_is_passed_over_and_a_disk_that_fails_is_not(tmp_path: Path, disk: Disk) -> None:
    flusher = QueueFlusher()
    gone, there = queue_files(tmp_path, 2)
    flusher.wrote(gone)
    flusher.wrote(there)
    gone.unlink()
    assert flusher.flush(True)
    assert disk.files == [gone, there]
    flusher.wrote(there)
    disk.is_broken = True
    with pytest.raises(WriteFailedError, match="Input/output"):
        flusher.flush(True)


def test_what_is_worth_a_flush_is_a_setting(tmp_path: Path) -> None:
    """flushConsumeQueueLeastPages, of which no file is left out where there are few."""
    paths = [tmp_path / f"{number:020d}" for number in range(100)]
    for path in paths:
        path.write_bytes(bytes(20))
    for pages, is_all in ((0, True), (1, False)):
        flusher = QueueFlusher(pages)
        for path in paths:
            flusher.wrote(path)
        assert flusher.flush(is_thorough=False) is is_all
        assert flusher.flush(is_thorough=True)
