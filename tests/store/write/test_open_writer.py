"""What a store that is opened for writing goes by: whose host, which clock, and which of its services."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rmqctl.formats.message import LOCAL_HOST, Host
from rmqctl.store.status import PutStatus
from rmqctl.store.write import writer as open_writer
from rmqctl.store.write.writer import StoreWriter
from rmqctl.store.write.writer import open_writer as opened
from tests.store.write.writing import FILE_SIZE, SMALL, message, small, stored_messages, wait_until

ONE, TWO = Host(b"\1\2\3\4", 5), Host(b"\6\7\x08\x09", 10)


def test_messages_get_the_host_that_is_given_else_that_of_the_last_one(tmp_path: Path) -> None:
    for given in (None, ONE, None, TWO, None):
        writer = opened(tmp_path / "s", SMALL, create=True, store_host=given)
        assert writer.put(message()).store_host == (given or writer._store_host)
        writer.close()
    assert [one.store_host for one in stored_messages(tmp_path / "s")] == [LOCAL_HOST, ONE, ONE, TWO, TWO]


@pytest.mark.parametrize("is_given", [False, True])
def test_the_clock_is_the_one_that_is_given_else_that_of_the_system(tmp_path: Path, is_given: bool) -> None:
    writer = opened(tmp_path / "s", SMALL, create=True, clock=(lambda: 1_700_000_000_000) if is_given else None)
    begun = time.time_ns() // 1_000_000
    for _ in range(3):
        writer.put(message())
    writer.close()
    ended = time.time_ns() // 1_000_000
    for one in stored_messages(tmp_path / "s"):
        if is_given:
            assert one.store_timestamp == 1_700_000_000_000
        else:
            assert begun <= one.store_timestamp <= ended


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_services_are_those_that_are_asked_for(tmp_path: Path, is_asked_for: bool) -> None:
    config = small(disk_space_warning_level_ratio=0)
    writer = opened(
        tmp_path / "s",
        config,
        create=True,
        allocate_ahead=is_asked_for,
        clean_expired=is_asked_for,
        obey_disk_ratio=is_asked_for,
    )
    assert writer.is_cleaning == is_asked_for
    status = writer.put(message(FILE_SIZE * 3 // 4)).status
    assert status is (PutStatus.SERVICE_NOT_AVAILABLE if is_asked_for else PutStatus.PUT_OK)
    writer.close()


def test_the_next_file_is_made_ahead_only_if_that_is_asked_for(tmp_path: Path) -> None:
    for is_ahead in (True, False):
        root = tmp_path / str(is_ahead)
        writer = opened(root, SMALL, create=True, allocate_ahead=is_ahead)
        writer.put(message(FILE_SIZE * 3 // 4))
        if is_ahead:
            wait_until(lambda: len(list((root / "commitlog").iterdir())) == 3)  # noqa: B023 - waited for here
        else:
            time.sleep(0.05)
            assert len(list((root / "commitlog").iterdir())) == 1
        writer.close()


def test_a_store_that_cannot_be_begun_with_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path / "s", SMALL, create=True).close()

    def interrupted(*_: object, **__: object) -> StoreWriter:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(open_writer, "StoreWriter", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path / "s", SMALL)
    assert not (tmp_path / "s" / "abort").exists()
    writer = opened(tmp_path / "s", SMALL)
    assert (tmp_path / "s" / "abort").exists()
    writer.close()
