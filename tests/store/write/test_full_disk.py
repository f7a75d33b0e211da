"""Full disks: a message is refused whole, and whatever was accepted can still be dispatched."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import DiskFullError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.write.checks import UNIT_COST, Headroom
from tests.processes import run
from tests.store.write.writing import SMALL, message, small, stored_messages


def test_headroom_is_kept_for_queues_and_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 1 << 40
    waited: list[int] = []
    monkeypatch.setattr(io, "free_bytes", lambda _path: free)
    headroom = Headroom(tmp_path, waited.append)
    headroom.settle(1000)
    assert headroom.admit(1 << 32)
    assert waited == [0]
    free = 2 << 20
    headroom.settle(2000)  # a look is due after so much
    assert waited == [0, 1000, 2000]
    assert headroom.admit(1 << 20)
    assert not headroom.admit((1 << 20) + 1)
    free = 1 << 40
    assert headroom.admit(1 << 30)


def test_ordinary_messages_are_counted_together_where_there_is_plenty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 1 << 40
    waited: list[int] = []
    monkeypatch.setattr(io, "free_bytes", lambda _path: free)
    headroom = Headroom(tmp_path, waited.append)
    assert not headroom.admit_ordinary(1)
    headroom.settle(1000)
    assert headroom.admit_ordinary((1 << 32) // 11)
    headroom.settle(2000)
    assert headroom.admit_ordinary(11)
    assert waited == [0]
    headroom.settle(3000)
    assert waited == [0, 1000]
    for left in (1 << 20, 1 << 30):
        free = left
        headroom.admit(1 << 32)
        headroom.settle(4000)
        assert not headroom.admit_ordinary(1)


def test_room_is_counted_when_it_comes_into_the_window_and_then_no_more(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        assert store.put(message()).physical_offset == 0
        writer = store._writing
        file = writer._appender.last_file
        assert file is not None
        writer._puts.close_window()
        limit = min(file.writable_map.reserved, file.size - 8)
        assert writer._puts.room_of(file, limit) == limit - file.wrote_position > 0
        writer._puts.open_window(file, file.writable_map.map, limit, file.start_offset)
        assert writer._puts.room_of(file, limit) == 0


def test_a_disk_without_headroom_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = (1 << 20) + 91 + 6 + 100 + 2 * UNIT_COST
    monkeypatch.setattr(io, "free_bytes", lambda _path: free)
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, allocate_ahead=False) as store:
        assert store.put(message()).status is PutStatus.PUT_OK
        assert store.put(message(101)).status is PutStatus.DISK_FULL
        assert store.put(message(60000)).status is PutStatus.DISK_FULL
        free += 100_000
        assert store.put(message(60000)).queue_offset == 1
        # a refused message that needed a new file leaves none behind
        free -= 100_000
        assert store.put(message(10000)).status is PutStatus.DISK_FULL
        assert len(list((tmp_path / "s" / "commitlog").iterdir())) == 1


@pytest.mark.parametrize("is_ordinary", [True, False])
@pytest.mark.parametrize("as_columns", [False, True])
def test_of_many_messages_none_is_tried_behind_the_first_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_columns: bool, is_ordinary: bool
) -> None:
    monkeypatch.setattr(io, "free_bytes", lambda _path: (1 << 20) + 60000)
    config = small(enabled_append_prop_crc=not is_ordinary)
    messages = [message(size) for size in (0, 1, 60000, 2, 3)]
    with MessageStore.open(tmp_path / "s", "rw", config, create=True, allocate_ahead=False) as store:
        if as_columns:
            import pyarrow as pa

            columns = {"topic": [one.topic for one in messages], "body": [one.body for one in messages]}
            batch = pa.RecordBatch.from_pydict(columns, pa.schema([("topic", pa.string()), ("body", pa.binary())]))
            result = store.put_columns(batch)
            assert (result.stored, sorted(result.refused)) == (2, [2, 3, 4])
            answers = list(result.refused.values())
        else:
            results = store.put_many(messages)
            assert [one.status.is_stored for one in results] == [True, True, False, False, False]
            answers = list(results[2:])
        for answer in answers:
            with pytest.raises(DiskFullError, match="row 7: DISK_FULL"):
                answer.raise_failure("row 7: ")
    assert len(stored_messages(tmp_path / "s", config)) == 2


def test_a_store_that_takes_nothing_judges_no_message(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(broker_role="SLAVE"), create=True) as store:
        for count in (1, 100):  # one by one, and as rows
            with pytest.raises(WriteFailedError, match="SERVICE_NOT_AVAILABLE"):
                store.check_many([message()] * count)
    with MessageStore.open(tmp_path / "t", "rw", SMALL, create=True) as store:
        assert list(store.check_many([message(), message(1 << 23)])) == [1]
        store.put(message(1 << 23)).raise_failure()  # unfit itself: no failure of the store


def test_every_status_is_about_the_message_or_the_store() -> None:
    about_store = {
        PutStatus.SERVICE_NOT_AVAILABLE,
        PutStatus.CREATE_MAPPED_FILE_FAILED,
        PutStatus.OS_PAGE_CACHE_BUSY,
        PutStatus.DISK_FULL,
        PutStatus.UNKNOWN_ERROR,
    }
    assert {status for status in PutStatus if not status.is_stored and not status.is_about_message} == about_store


def test_the_disk_ratio_of_a_broker(tmp_path: Path) -> None:
    config = small(disk_space_warning_level_ratio=0)
    with MessageStore.open(tmp_path / "s", "rw", config, create=True, obey_disk_ratio=True) as store:
        assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    with MessageStore.open(tmp_path / "s", "rw", config) as store:
        assert store.put(message()).status is PutStatus.PUT_OK


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or run(command).returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    yield folder
    run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_really_fills_up(small_disk: Path) -> None:
    stored = 0
    with MessageStore.open(small_disk / "s", "rw", SMALL, create=True) as store:
        for number in range(100_000):
            try:
                result = store.put(message(2000, queue_id=number % 50, properties={"KEYS": f"k{number}"}))
            except WriteFailedError as error:
                assert "No space left" in str(error)  # noqa: PT017 - most puts must not fail
                break
            if not result.status.is_stored:
                assert result.status in (PutStatus.DISK_FULL, PutStatus.CREATE_MAPPED_FILE_FAILED)
                break
            stored += 1
        # everything accepted is dispatched all the same
        store.wait_for_dispatch()
    assert 500 < stored < 2000
    assert not (small_disk / "s" / "abort").exists()
    assert len(stored_messages(small_disk / "s")) == stored
    MessageStore.open(small_disk / "s", "rw", SMALL, full_check=True).close()


def test_a_disk_that_another_process_fills(small_disk: Path) -> None:
    with MessageStore.open(small_disk / "s", "rw", SMALL, create=True) as store:
        store.put(message())
        store.wait_for_dispatch()
        hog = small_disk / "hog"
        with hog.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, io.free_bytes(small_disk))
        time.sleep(1.2)  # the checkpoint cannot be written, and that is no disaster
        refused = []
        for _ in range(50):
            try:
                refused.append(store.put(message(5000)).status)
            except WriteFailedError:
                refused.append(PutStatus.DISK_FULL)
        assert PutStatus.PUT_OK not in refused
        hog.unlink()
        assert store.put(message(5000)).queue_offset == 1
    assert len(stored_messages(small_disk / "s")) == 2
