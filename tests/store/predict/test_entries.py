"""What a start in DLedger mode cuts of a DLedger log. tests/interop/test_dledger.py compares it with RocketMQ."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.store.predict.predicting import predict
from rmqctl.store.predict.prediction import Prediction
from rmqctl.store.store_files import StoreFiles
from tests.goldens import log_golden, tree_state
from tests.rmqctl.looking import run
from tests.store.recover.test_entries import END, FILE_SIZE, HEAD, data_file, entries_of, index_file, put_at


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
