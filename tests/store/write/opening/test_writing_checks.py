"""What makes a store unfit for writing, part by part: where its log ends, and whether the index holds the last keys."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.layouts import INDEX_HEADER, INDEX_SLOT
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import IndexFile
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.message_store import MessageStore
from tests.store.write.writing import FILE_SIZE, SMALL, message, small, stored_messages

KEYED = {"KEYS": "k"}
LAGS = "the index does not hold the keys of the last messages, or points beyond them"


def new_store(folder: Path, *keyed: bool) -> Path:
    """A store whose messages have keys or none."""
    with MessageStore.open(folder / "s", "rw", SMALL, create=True) as store:
        for has_keys in keyed:
            store.put(message(properties=KEYED if has_keys else {}))
    return folder / "s"


def refusal_of(store: Path, config: StoreConfig = SMALL) -> RefusedError | None:
    """Why it cannot be opened, None if it can; message by message, and nothing is written to it."""
    try:
        MessageStore.open(store, "rw", config).close()
    except RefusedError as error:
        return error
    return None


def last_index(store: Path) -> IndexFile:
    service = IndexService(store / "index", SMALL, Descriptors())
    service.load()
    return service.files[-1]


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_store_for_a_rocksdb_is_not_written_to(tmp_path: Path) -> None:
    store = new_store(tmp_path, False)
    error = refusal_of(store, small(store_type="defaultRocksDB"))
    assert error is not None
    assert error.message == "storeType=defaultRocksDB: the queues of such a store cannot be written"
    assert error.file == str(store)
    error = refusal_of(store, small(enable_dleger_commit_log=True))
    assert error is not None
    assert error.message == "enableDLegerCommitLog=true: logs of DLedger cannot be written"
    assert refusal_of(store) is None


def test_queues_without_a_log_are_refused_with_both_ways_out(tmp_path: Path) -> None:
    """It may lie elsewhere; begun anew its offsets would not fit."""
    store = new_store(tmp_path, False)
    (store / "commitlog").rename(tmp_path / "elsewhere")
    error = refusal_of(store)
    assert error is not None
    assert (error.message, error.file) == ("the store has queues, but no commitlog", str(store / "commitlog"))
    assert "storePathCommitLog" in (error.hint or "")
    assert f"rmqctl recover -s {store}" in (error.hint or "")
    assert not (store / "commitlog").exists()
    assert refusal_of(store, small(store_path_commit_log=str(tmp_path / "elsewhere"))) is None


def test_a_log_without_files_and_queues_is_an_empty_store(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True):
        pass
    shutil.rmtree(tmp_path / "s" / "commitlog")
    for full_check in (False, True):
        with MessageStore.open(tmp_path / "s", "rw", SMALL, full_check=full_check) as store:
            assert store.files.log.max_offset == 0


def test_a_record_behind_zeros_is_told(tmp_path: Path) -> None:
    store = new_store(tmp_path, False, False)
    first, second = stored_messages(store, SMALL)
    (store / "commitlog" / f"{FILE_SIZE:020}").write_bytes(bytes(FILE_SIZE))
    error = refusal_of(store)
    assert error is not None
    assert (error.message, error.physical_offset) == ("a file of zeros follows the end of the log", FILE_SIZE)
    frame = (store / "commitlog" / f"{0:020}").read_bytes()[: first.total_size]
    moved = frame[:28] + FILE_SIZE.to_bytes(8, "big") + frame[36:]
    (store / "commitlog" / f"{FILE_SIZE:020}").write_bytes(moved.ljust(FILE_SIZE, b"\0"))
    error = refusal_of(store)
    assert error is not None
    assert (error.message, error.physical_offset) == ("a record follows zeros in the log", FILE_SIZE)
    assert second.physical_offset == first.total_size


# ---- the index


def test_the_newest_index_file_need_not_be_the_last_by_name(tmp_path: Path) -> None:
    """A broker whose clock went back names it before the one that was full, and `recover` has nothing to change."""
    config = small(max_index_num=4)
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        for _ in range(4):
            store.put(message(properties=KEYED))
    older, newest = sorted((tmp_path / "s" / "index").iterdir())
    newest = newest.rename(newest.with_name("20200101000000000"))
    assert refusal_of(tmp_path / "s", config) is None
    with MessageStore.open(tmp_path / "s", "rw", config) as store:
        store.put(message(properties=KEYED))
    assert sorted((tmp_path / "s" / "index").iterdir())[:2] == [newest, older]
    assert refusal_of(tmp_path / "s", config) is None
    newest.unlink()
    assert refusal_of(tmp_path / "s", config) is None
    sorted((tmp_path / "s" / "index").iterdir())[-1].unlink()
    error = refusal_of(tmp_path / "s", config)
    assert error is not None
    assert error.message == LAGS


@pytest.mark.parametrize("keyed", [(True,), (True, True), (True, False), (False, True), (False,), ()], ids=str)
def test_the_last_keys_have_to_be_in_the_index(keyed: tuple[bool, ...], tmp_path: Path) -> None:
    """Those of a message at the very beginning of the log, too; without any, none is needed."""
    store = new_store(tmp_path, *keyed)
    assert refusal_of(store) is None
    if (store / "index").exists():
        shutil.rmtree(store / "index")
    error = refusal_of(store)
    assert (error is not None) == any(keyed)
    if error is not None:
        assert (error.message, error.file) == (LAGS, str(store / "index"))
        assert f"rmqctl recover -s {store}" in (error.hint or "")
        assert "messageIndexEnable=false" in (error.hint or "")
    assert refusal_of(store, small(message_index_enable=False)) is None


def index_of(store: Path, *offsets: int) -> None:
    """Let the index hold keys of messages at these offsets, and no others."""
    shutil.rmtree(store / "index", ignore_errors=True)
    (store / "index").mkdir()
    service = IndexService(store / "index", SMALL, Descriptors())
    for offset in offsets:
        service.put("TopicA", "k", offset, 1_700_000_000_000)
    service.close()


def test_an_index_that_ends_elsewhere_is_refused(tmp_path: Path) -> None:
    store = new_store(tmp_path, True, True, False)
    first, second, third = stored_messages(store, SMALL)
    end = third.physical_offset + third.total_size
    for offset in (first.physical_offset, third.physical_offset, end, 1 << 40):
        index_of(store, offset)
        assert refusal_of(store) is not None, offset
    index_of(store, second.physical_offset)
    assert refusal_of(store) is None


def test_an_index_that_points_beyond_a_log_without_keys_is_refused(tmp_path: Path) -> None:
    """At the end of the log is beyond it. Keys of messages that are there may be those of an earlier configuration."""
    store = new_store(tmp_path, False)
    end = stored_messages(store, SMALL)[0].total_size
    for offset, is_right in ((end - 1, True), (end, False), (end + 1, False)):
        index_of(store, 0, offset)
        assert (refusal_of(store) is None) == is_right, offset


def test_an_index_file_whose_last_entry_is_not_in_its_chain_is_refused(tmp_path: Path) -> None:
    """A kill came between the two; and so does one before it, which the log's end says nothing of."""
    store = new_store(tmp_path, True, True)
    index = last_index(store)
    last = index.entry(index.header.index_count - 1)
    place = index.geometry.slot_position(last.key_hash)
    for number, is_right in ((last.number, True), (last.number - 1, False), (0, False)):
        overwrite(index.path, place, INDEX_SLOT.struct.pack(number))
        error = refusal_of(store)
        assert (error is None) == is_right, number


def test_an_index_file_without_entries_is_passed_over(tmp_path: Path) -> None:
    """As a broker leaves one that it had just begun."""
    store = new_store(tmp_path, True)
    index = last_index(store)
    empty = store / "index" / "20990101000000000"
    empty.write_bytes(INDEX_HEADER.struct.pack(0, 0, 0, 0, 0, 1).ljust(index.path.stat().st_size, b"\0"))
    assert refusal_of(store) is None
    index.path.unlink()
    assert refusal_of(store) is not None
