"""A warmed commitlog file: all its pages are there before the first put."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rmqctl.store import Message
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files import mapped_file as writable_map
from rmqctl.store.files.mapped_file_queue import Allocator
from rmqctl.store.log.transient_pool import warming
from rmqctl.store.message_store import MessageStore
from tests.store.logs import opened
from tests.store.write.writing import FILE_SIZE, message, small

WARM = StoreConfig(warm_maped_file_enable=True, flush_least_pages_when_warm_maped_file=4)


@pytest.mark.parametrize("is_sync", [False, True])
@pytest.mark.parametrize("kernel_populates", [False, True])
def test_the_whole_file_has_blocks_and_is_flushed_as_it_is_warmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_sync: bool, kernel_populates: bool
) -> None:
    if not kernel_populates:
        monkeypatch.setattr(writable_map, "_madvise", lambda: lambda *_: -1)
    flushed: list[tuple[int, int]] = []

    def noted(operation: str, path: str, offset: int, length: int) -> None:
        if operation == "fsync" and not Path(path).is_dir():
            flushed.append((offset, length))

    monkeypatch.setattr(io, "observer", noted)
    allocator = Allocator(opened(tmp_path / "log", FILE_SIZE), False, lambda: None, warming(WARM, is_sync))
    file = allocator.take(0)
    step = 4 * io.PAGE_SIZE
    assert flushed == ([(begin, step) for begin in range(0, FILE_SIZE, step)] if is_sync else [])
    assert file.path.stat().st_blocks * 512 >= FILE_SIZE
    assert (file.wrote_position, file.writable_map.reserved) == (0, FILE_SIZE)
    assert not any(file.path.read_bytes())
    file.close()


def test_memory_that_cannot_be_locked_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rmqctl.store.log.transient_pool.lock_memory", lambda _: "Cannot allocate memory")
    config = small(warm_maped_file_enable=True)
    with MessageStore.open(tmp_path / "s", "rw", config, create=True, allocate_ahead=False) as store:
        for _ in range(4):
            assert store.put(message(FILE_SIZE - 1000)).status.is_stored
    [said] = caplog.messages
    assert said.startswith(f"a commitlog file ({FILE_SIZE} bytes) is not locked in memory")


def test_without_the_setting_nothing_is_warmed() -> None:
    assert warming(StoreConfig(), is_sync=True) is None


def test_the_next_warm_file_is_made_when_a_file_begins(tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=1024 * 1024, warm_maped_file_enable=True)
    with MessageStore.open(tmp_path / "store", "rw", config=config, create=True) as store:
        store.put(Message("Topic", b"body"))
        following = tmp_path / "store" / "commitlog" / f"{1024 * 1024:020d}"
        until = time.monotonic() + 10
        while not following.exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert following.exists()
