"""`rmqctl du --history`: how the store grew, day by day, and what of it is gone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.output.table import human_size
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run
from tests.store.check.breaking import log_file, messages, put_field

_DAY_MS = 86_400_000


def _spread_over_days(store: Path) -> dict[str, int]:
    """Make each three commitlog files of one day, an empty day between; return the bytes of each day's files."""
    files = sorted((store / "commitlog").iterdir())
    begin = messages(store)[0].store_timestamp // _DAY_MS * _DAY_MS
    for message in messages(store):
        number = int(log_file(store, message.physical_offset)[0].name) // files[0].stat().st_size
        put_field(store, message.physical_offset, "store_timestamp", begin + number // 3 * 2 * _DAY_MS + number)
    return {str(day): 3 * files[0].stat().st_size for day in range(3)}


def _bytes(store: Path) -> int:
    return sum(path.stat().st_size for path in store.rglob("*") if path.is_file())


def test_a_day_has_the_files_that_were_begun_on_it(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    sizes = _spread_over_days(store)
    before = tree_state(store)
    (row,) = run("du", "--history", "-s", store, "--json").objects
    assert tree_state(store) == before
    days = row["days"]
    assert [(day["log_files"], day["log_bytes"]) for day in days if day["log_files"]] == [(3, sizes["0"])] * 3
    assert [day["log_total_bytes"] for day in days if day["log_files"]] == [sizes["0"] * times for times in (1, 2, 3)]
    assert sum(day["index_files"] for day in days) == len(list((store / "index").iterdir()))
    index_sizes = sum(path.stat().st_size for path in (store / "index").iterdir())
    assert sum(day["index_bytes"] for day in days) == index_sizes
    assert (row["gone_bytes"], row["cleaned_bytes"], row["kept_bytes"]) == (0, 0, 0)


def test_what_was_cleaned_is_said_and_by_whom(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    files = sorted((store / "commitlog").iterdir())
    size = files[0].stat().st_size
    for path in files[:2]:  # as a broker that had too little space
        path.unlink()
    now = time.time()
    for path in files[2:]:
        os.utime(path, (now, now))
    for path in files[2:5]:
        os.utime(path, (1_000_000_000, 1_000_000_000))
    before = _bytes(store)
    done = run("clean", "-s", store, "--yes")
    assert done.code == exit_codes.OK, done.err
    row = run("du", "--history", "-s", store, "--json").objects[0]
    cleaned = before - _bytes(store)
    assert cleaned >= 3 * size
    assert (row["gone_bytes"], row["cleaned_bytes"]) == (5 * size, cleaned)
    assert [day["cleaned_bytes"] for day in row["days"] if day["cleaned_bytes"]] == [cleaned]
    text = run("du", "--history", "-s", store)
    assert f"{human_size(5 * size)} of the log are gone: `rmqctl clean` removed {human_size(cleaned)}" in text.err
    assert "the oldest message is of 20" in text.err


def test_what_a_change_keeps_beside_the_store_counts(golden_store: GoldenStore) -> None:
    store = golden_store("torn-zero")
    assert run("recover", "-s", store).code == exit_codes.OK
    assert run("rebuild", "--index", "-s", store).code == exit_codes.OK
    log = run("log", "-s", store, "--json").objects
    row = run("du", "--history", "-s", store, "--json").objects[0]
    assert row["kept_bytes"] == sum(change["kept_bytes"] for change in log) > 0


@pytest.mark.parametrize("option", ["--quick", "-t TopicTest"])
def test_it_stands_alone(golden_store: GoldenStore, option: str) -> None:
    done = run("du", "--history", *option.split(), "-s", golden_store("clean"))
    assert (done.code, "--history" in done.err) == (exit_codes.USAGE, True)


def test_an_empty_store_has_no_days(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    assert run("du", "--history", "-s", store, "--json").objects[0]["days"] == []


def test_nothing_is_said_to_be_gone_of_a_whole_log(golden_store: GoldenStore) -> None:
    done = run("du", "-s", golden_store("clean"), "--history")
    assert "removed" not in done.out + done.err
