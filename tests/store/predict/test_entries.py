"""What a start in DLedger mode cuts of a DLedger log. tests/interop/test_dledger.py compares it with RocketMQ."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.store.config.config import StoreConfig
from rmqctl.store.predict.predicting import predict
from rmqctl.store.predict.prediction import Prediction
from rmqctl.store.store_files import StoreFiles
from tests.goldens import log_golden, tree_state
from tests.rmqctl.looking import run
from tests.store.recover.test_entries import END, FILE_SIZE, HEAD, MESSAGES, data_file, entries_of, index_file, put_at
from tests.store.rocksdb.stores import unpacked


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return log_golden("v55-dledger", tmp_path / "golden").store


def predicted(store: Path, broker: str = "5.5.0") -> Prediction:
    before = tree_state(store)
    with StoreFiles(store) as files:
        found = predict(files, broker)
    assert tree_state(store) == before
    return found


@pytest.mark.parametrize("broker", ["5.5.0", "5.3.3", "4.9.8"])
def test_of_a_whole_store_nothing_is_cut(store: Path, broker: str) -> None:
    found = predicted(store, broker)
    assert (found.loads, found.start_offset, found.end_offset, found.is_harmful) == (True, 0, END, False)
    assert (found.end_reason, found.files_deleted, found.queues_changed) == (None, [], [])


def test_what_a_wrong_entry_cuts_is_said(store: Path) -> None:
    at = entries_of(store)[200]
    put_at(store, at.pos + 15, b"\7")
    found = predicted(store)
    assert (found.end_offset, found.messages_lost) == (at.pos, 120)
    assert found.end_reason == f"Recover data file to the end of {data_file(store, 0)}"
    assert f"DLedger ends its log after entry 199: the entry has the number {at.number & ~255 | 7} after 199" in (
        found.warnings
    )
    assert "entry 319 was committed, and the log ends with entry 199" in found.warnings
    # and files of queues without a unit
    assert f"dledger-n0/data/{FILE_SIZE:020d}" in found.files_deleted
    assert sum(row["units_dropped"] for row in found.queues_changed) == 120
    done = run("predict", "-s", store)
    assert done.code == 1
    assert "rmqctl predict --epochs STORE" in done.err
    assert "next: " not in done.out


def test_a_torn_last_message_stays(store: Path) -> None:
    last = entries_of(store)[-1]
    put_at(store, last.pos + HEAD + 60, bytes(100))
    found = predicted(store)
    assert (found.end_offset, found.messages_lost) == (END, 0)
    assert any("1 entry at the end of the log: torn" in one for one in found.warnings)


def test_wrong_lengths_and_gaps_end_the_process(store: Path) -> None:
    with index_file(store).open("r+b") as file:
        file.truncate(1000)
    assert str(predicted(store).error).startswith("Load file failed")
    shutil.rmtree(index_file(store).parent)
    assert predicted(store).loads
    shutil.copyfile(data_file(store, FILE_SIZE), data_file(store, 3 * FILE_SIZE))
    assert str(predicted(store).error).startswith("check data file order failed before recovery")


def test_files_far_after_the_end_stop_it(store: Path) -> None:
    for number in (2, 3, 4):
        with data_file(store, number * FILE_SIZE).open("wb") as file:
            file.truncate(FILE_SIZE)
    put_at(store, entries_of(store)[-1].pos, b"\0")
    assert str(predicted(store).error).startswith("[MONITOR]The processOffset is too small")


def lose(store: Path, *, crashed: bool, queues: bool = True, committed: int | None = None) -> None:
    """Take queues and index away, or make it a killed member, or one that knew another entry to be committed."""
    if crashed:
        (store / "abort").write_bytes(b"1")
    if not queues:
        shutil.rmtree(store / "consumequeue")
        shutil.rmtree(store / "index")
    if committed is not None:
        (store / "dledger-n0" / "checkpoint").write_text(f"endIndex={committed}\ncommittedIndex={committed}\n")


@pytest.mark.parametrize(
    ("broker", "unqueued", "keys", "cut"),
    [("5.5.0", 7, 881, 271283), ("5.3.3", 7, 0, 271283), ("4.9.8", 0, 1004, None)],
)
def test_after_a_crash_queues_are_cut_before_the_end(
    store: Path, broker: str, unqueued: int, keys: int, cut: int | None
) -> None:
    """5.x counts entries of the last file without their heads, and cuts queues there; 4.x dispatches from their end."""
    lose(store, crashed=True)
    found = predicted(store, broker)
    assert (found.messages_lost, found.messages_unqueued, found.index_entries_lost) == (0, unqueued, keys)
    assert found.is_harmful
    assert any(f"queues are cut at {cut}, before the end" in one for one in found.warnings) == (cut is not None)


@pytest.mark.parametrize(
    ("broker", "crashed", "committed", "unqueued"),
    [
        ("5.5.0", False, None, MESSAGES),
        ("5.3.3", False, None, MESSAGES),
        ("4.9.8", False, None, 0),
        # entries after the committed one come again
        ("5.5.0", False, 199, 200),
        ("5.3.3", False, 199, 200),
        # of a crash 5.5.0 reads the last file, from where the checkpoint says that queues are, and cuts it again
        ("5.5.0", True, None, 286),
        ("5.3.3", True, None, 0),
        ("4.9.8", True, None, 0),
    ],
)
def test_what_lost_queues_get_back(
    store: Path, broker: str, crashed: bool, committed: int | None, unqueued: int
) -> None:
    lose(store, crashed=crashed, queues=False, committed=committed)
    found = predicted(store, broker)
    assert found.messages_unqueued == unqueued
    assert sum(row["max_after"] - row["min_after"] for row in found.queues_changed) == MESSAGES - unqueued
    said = any("only entries after the committed one are dispatched" in one for one in found.warnings)
    assert said == (not crashed and unqueued > 0)


def test_queues_past_the_end_of_the_log_are_named(store: Path) -> None:
    """After a crash entries after the end of the log are dispatched, too: DLedger clears nothing."""
    put_at(store, entries_of(store)[20].pos + HEAD - 4, b"\7")
    lose(store, crashed=True)
    found = predicted(store)
    assert (found.messages_lost, found.messages_unqueued) == (300, 0)
    assert any("it ends at 13995: messages that are put until then reach no queue" in one for one in found.warnings)


def test_a_member_without_its_checkpoint_dispatches_all(store: Path) -> None:
    """What its backup says does not count."""
    lose(store, crashed=False, queues=False)
    shutil.copyfile(store / "dledger-n0" / "checkpoint", store / "dledger-n0" / "checkpoint.bak")
    (store / "dledger-n0" / "checkpoint").unlink()
    assert predicted(store).messages_unqueued == 0


def predicted_in_rocksdb(store: Path, broker: str) -> Prediction:
    with StoreFiles(store, StoreConfig(store_type="defaultRocksDB")) as files:
        return predict(files, broker)


@pytest.mark.parametrize("broker", ["5.5.0", "5.3.3"])
@pytest.mark.parametrize(
    ("crashed", "committed", "unqueued"), [(False, None, MESSAGES), (True, None, 0), (False, 199, 200), (True, 199, 0)]
)
def test_what_empty_queues_in_rocksdb_get(
    store: Path, broker: str, crashed: bool, committed: int | None, unqueued: int
) -> None:
    lose(store, crashed=crashed, queues=False, committed=committed)
    found = predicted_in_rocksdb(store, broker)
    assert (found.loads, found.messages_lost, found.messages_unqueued) == (True, 0, unqueued)
    assert sum(row["units_added"] for row in found.queues_changed) == MESSAGES - unqueued
    assert any("With an empty file `abort` the start" in one for one in found.warnings) == (unqueued > 0)


@pytest.mark.parametrize("crashed", [False, True])
def test_queues_in_rocksdb_are_cut_after_a_clean_stop_alone(store: Path, tmp_path: Path, crashed: bool) -> None:
    shutil.rmtree(store / "consumequeue")
    shutil.copytree(unpacked("rocksdb-55-only", tmp_path) / "consumequeue", store / "consumequeue")
    lose(store, crashed=crashed)
    found = predicted_in_rocksdb(store, "5.5.0")
    assert (found.loads, found.messages_unqueued) == (True, 0)
    assert any(row["units_dropped"] for row in found.queues_changed) != crashed
    with StoreFiles(store) as files:
        for row in found.queues_changed:
            queue = files.queues.find(row["topic"], row["queue_id"])
            assert queue is not None
            kept, cut = queue.unit(row["max_after"] - 1), queue.unit(row["max_after"])
            assert kept is None or kept.physical_offset < END
            assert cut is not None
            assert cut.physical_offset >= END


@pytest.mark.parametrize(
    ("name", "crashed", "loads"),
    [("000011.sst", False, False), ("000011.sst", True, True), ("000010.sst", False, False), ("CURRENT", True, False)],
)
def test_a_damaged_rocksdb_stops_a_start_that_reads_it(
    store: Path, tmp_path: Path, name: str, crashed: bool, loads: bool
) -> None:
    """Units are read where some are cut. 5.5.0: "RocksDBException: block checksum mismatch"."""
    shutil.rmtree(store / "consumequeue")
    shutil.copytree(unpacked("rocksdb-55-only", tmp_path) / "consumequeue", store / "consumequeue")
    lose(store, crashed=crashed)
    damaged = store / "consumequeue" / name
    data = bytearray(damaged.read_bytes())
    data[100 % len(data)] ^= 1
    damaged.write_bytes(data)
    found = predicted_in_rocksdb(store, "5.5.0")
    assert found.loads is loads
    assert str(found.error).startswith("load exception: RocksDBException: ") != loads


@pytest.mark.parametrize(
    ("broker", "committed", "again"),
    [("5.5.0", 199, True), ("5.3.3", 318, True), ("5.5.0", None, False), ("5.5.0", 319, False), ("4.9.8", 199, False)],
)
def test_keys_of_the_last_message_are_indexed_again(
    store: Path, broker: str, committed: int | None, again: bool
) -> None:
    """As brokers did it: 5.5.0 had 1,008 entries instead of 1,005, 5.3.3 1,007, and 4.9.8 goes on where queues end."""
    lose(store, crashed=False, committed=committed)
    found = predicted(store, broker)
    assert any("keys of the message at 273006 are put into the index" in one for one in found.warnings) == again
    assert not found.is_harmful
