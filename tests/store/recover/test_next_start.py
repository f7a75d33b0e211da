"""After a recovery the next broker takes nothing away: what counts is where that looks, not where the last one did."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store.options import ChangeOptions
from rmqctl.store.predict import predict
from rmqctl.store.recover.bridge import recover_bridging
from rmqctl.store.recover.recover import RecoverReport, recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.store.check.breaking import HEAD, LOG_FILE_SIZE, flip, messages


def recovered(store: Path, **options: Any) -> RecoverReport:
    with StoreFiles(store) as files:
        return recover(files, **options)


def assert_keeps_all(store: Path) -> None:
    """The next broker finds nothing to take away, and what was recovered is whole."""
    with StoreFiles(store) as files:
        found = predict(files, "4.9.8")
    assert (found.loads, found.messages_lost, found.queues_changed) == (True, 0, [])
    assert recovered(store, change=ChangeOptions(dry_run=True)).operations == []


def test_damage_where_the_next_broker_looks_counts_after_a_crash_too(golden_store: GoldenStore) -> None:
    """Without `abort` that begins three files from the end, though the checkpoint covers all but the last."""
    store = golden_store("clean")
    (store / "abort").touch()
    (store / "checkpoint").write_bytes((1 << 44).to_bytes(8, "big") * 3 + bytes(4072))
    damaged = next(one for one in messages(store) if one.physical_offset > 7 * LOG_FILE_SIZE and len(one.body) > 50)
    flip(store, damaged, HEAD.size + 20)
    with pytest.raises(RefusedError, match="good messages"):
        recovered(store)
    report = recovered(store, cut=True)
    assert (report.start_offset, report.end_offset) == (6 * LOG_FILE_SIZE, damaged.physical_offset)
    assert report.damaged == []
    assert_keeps_all(store)


def test_damage_counts_where_a_cut_brings_it_among_the_last_files(golden_store: GoldenStore) -> None:
    """And the index, of which a part is written by then, is made for what is left."""
    store = golden_store("clean")
    shutil.rmtree(store / "index")
    starts = [6 * LOG_FILE_SIZE, 5 * LOG_FILE_SIZE, LOG_FILE_SIZE]
    damaged = [next(one for one in messages(store) if one.physical_offset >= start and one.body) for start in starts]
    for one in damaged:
        flip(store, one, HEAD.size)
    report = recovered(store, cut=True)
    assert (report.start_offset, report.end_offset) == (3 * LOG_FILE_SIZE, damaged[1].physical_offset)
    assert [row["physical_offset"] for row in report.damaged] == [damaged[2].physical_offset]
    assert_keeps_all(store)


def test_garbage_behind_a_file_that_is_too_long_goes_with_its_length(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    last = max((store / "commitlog").iterdir())
    with last.open("ab") as file:
        file.write(b"\xee" * 100)
    assert recovered(store).truncated_bytes == 100 + LOG_FILE_SIZE - (2135612 - 8 * LOG_FILE_SIZE)
    assert last.stat().st_size == LOG_FILE_SIZE
    assert_keeps_all(store)


@pytest.mark.parametrize("bridge", [False, True])
def test_a_file_in_the_middle_that_is_too_long_is_cut(golden_store: GoldenStore, bridge: bool) -> None:
    """What is behind its length stands in no log: nothing is lost, and no other way would be left."""
    store = golden_store("clean")
    path = store / f"commitlog/{5 * LOG_FILE_SIZE:020d}"
    path.write_bytes(path.read_bytes() + b"\xee" * 10)
    with StoreFiles(store) as files:
        report = recover_bridging(files) if bridge else recover(files)
    assert (report.messages, report.damaged, report.bridged) == (2500, [], [])
    assert [row["operation"] for row in report.operations if "commitlog" in row["path"]] == ["resize"]
    assert_keeps_all(store)
