"""When files go: a forecast is what cleanings at the foreseen times then do."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.output import outcome as exit_codes
from rmqctl.store.clean.cleaner import clean
from rmqctl.store.clean.forecast import Forecast, _bytes_per_day, forecast_clean
from rmqctl.store.clean.options import CleanOptions, DiskUsage
from rmqctl.store.clean.plan import last_physical_offset
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state, truth
from tests.rmqctl.looking import run
from tests.store.clean.cleaning import HOUR, IDLE, NOW, SIZE, age, log_files
from tests.store.logs import changed, frame, log_of

BROKER = CleanOptions(scheduled=True, pause=0)
MINUTE = 60_000


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    """Nine commitlog files, the first one 150 hours old at NOW, each of the others 20 hours younger."""
    store = golden_store("clean")
    for place, path in enumerate(log_files(store)):
        age(path, (150 - place * 20) * HOUR)
    return store


def _forecast(store: Path, options: CleanOptions = BROKER, usage: DiskUsage = IDLE) -> Forecast:
    with StoreFiles(store) as files:
        return forecast_clean(files, options, NOW, usage)


def test_by_age_at_the_hour_and_cleanings_then_do_just_that(store: Path) -> None:
    found = _forecast(store)
    log = [one for one in found.files if one.kind == "commitlog"]
    for place, one in enumerate(log[:-1]):
        assert one.expires_timestamp == NOW - (150 - place * 20) * HOUR + 72 * HOUR
        assert one.goes_timestamp is not None
        assert one.goes_timestamp >= max(one.expires_timestamp, NOW)
        assert time.localtime(one.goes_timestamp / 1000).tm_hour == 4
        # not a day later than it has to be
        assert one.goes_timestamp < max(one.expires_timestamp, NOW) + 25 * HOUR
        assert one.because == "age"
    assert (log[-1].goes_timestamp, log[-1].because) == (None, "stays")
    assert [one.detail for one in log] == [""] * 8 + ["the last file with data is always kept"]
    times = sorted({one.goes_timestamp for one in found.files if one.goes_timestamp is not None})
    assert len(times) > 2
    for moment in times:
        expected = {one.path for one in found.files if one.goes_timestamp == moment}
        for now, gone in ((moment - MINUTE, set()), (moment, expected)):
            with StoreFiles(store) as files:
                report = clean(files, BROKER, now=now, usage=IDLE)
            assert {decision.path for decision in report.removed} == gone


def test_what_is_behind_a_younger_file_waits_for_it(store: Path) -> None:
    age(log_files(store)[0], 0)
    log = [one for one in _forecast(store).files if one.kind == "commitlog"]
    assert [one.detail for one in log[:3]] == ["", "waits for an older file", "waits for an older file"]
    assert log[0].goes_timestamp == log[1].goes_timestamp == log[2].goes_timestamp


def test_how_many_bytes_are_left_to_each_bound(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.statvfs_result((4096, 10, 1300, 500, 200, 0, 0, 0, 0, 255))
    monkeypatch.setattr("os.statvfs", lambda _: found)
    levels = _forecast(store).levels
    # 8,000 bytes are used, 2,000 are left for who is not root
    assert [(level.percent, level.bytes_left) for level in levels] == [(75, 0), (85, 501), (90, 1001)]
    assert levels[0].reached_timestamp == NOW


def test_a_disk_above_75_does_not_wait_for_the_hour(store: Path) -> None:
    usage = DiskUsage((80,), 80)
    found = _forecast(store, usage=usage)
    log = [one for one in found.files if one.kind == "commitlog"]
    assert [one.goes_timestamp for one in log[:-1]] == [max(NOW, one.expires_timestamp or 0) for one in log[:-1]]
    assert {one.because for one in log[:-1]} == {"disk"}
    with StoreFiles(store) as files:
        report = clean(files, BROKER, now=NOW, usage=usage)
    assert {decision.path for decision in report.removed} == {
        one.path for one in found.files if one.goes_timestamp == NOW
    }


def test_a_disk_above_85_does_not_wait_for_the_age(store: Path) -> None:
    usage = DiskUsage((86,), 50)
    found = _forecast(store, usage=usage)
    assert {one.goes_timestamp for one in found.files if one.because in ("disk", "follows")} == {NOW}
    with StoreFiles(store) as files:
        report = clean(files, BROKER, now=NOW, usage=usage)
    assert {decision.path for decision in report.removed} == {
        one.path for one in found.files if one.goes_timestamp == NOW
    }


def test_what_is_removed_makes_room(store: Path) -> None:
    """After a batch the disks are looked at anew: a file of 20 % of the disk takes it below 85."""
    found = _forecast(
        store, CleanOptions(scheduled=True, batch_maximum=1), DiskUsage((86,), 50, partition_bytes=5 * SIZE)
    )
    log = [one for one in found.files if one.kind == "commitlog"]
    assert [one.because for one in log] == ["disk", *["age"] * 7, "stays"]


def test_the_ratios_are_bounded_as_a_broker_bounds_them(store: Path) -> None:
    found = _forecast(store, CleanOptions(scheduled=True, warning_ratio=99, forcibly_ratio=99, maximum_ratio=99))
    assert [level.percent for level in found.levels] == [95, 85, 90]
    assert [level.percent for level in _forecast(store).levels] == [75, 85, 90]


def test_where_it_cannot_be_known(store: Path) -> None:
    log_files(store)[3].unlink()
    with pytest.raises(RefusedError):
        _forecast(store)
    with StoreFiles(store) as files:
        one_file = files.log.files[-1].path
    for path in log_files(store):
        if path != one_file:
            path.unlink()
    found = _forecast(store)
    assert (found.bytes_per_day, [level.reached_timestamp for level in found.levels if level.bytes_left]) == (
        None,
        [None] * sum(bool(level.bytes_left) for level in found.levels),
    )


def test_a_rocksdb_drops_its_units_by_itself(golden_store: GoldenStore) -> None:
    assert "RocksDB" in " ".join(_forecast(golden_store("rocksdb")).notes)


@pytest.mark.parametrize(
    ("first", "last", "rate"),
    [(1000, 1000 + 24 * HOUR, 500), (1000, 1000 + 6 * HOUR, 2000), (1000, 1000, None), (1000, 999, None)],
)
def test_how_fast_the_log_grows(tmp_path: Path, first: int, last: int, rate: int | None) -> None:
    begins = [frame(0, store_timestamp=first), frame(500, store_timestamp=last)]
    assert _bytes_per_day(log_of(tmp_path, *(one.ljust(500, b"\0") for one in begins))) == rate


@pytest.mark.parametrize("damaged", [0, 1])
def test_nobody_knows_how_fast_a_log_of_damage_grows(tmp_path: Path, damaged: int) -> None:
    files = [frame(0).ljust(500, b"\0"), frame(500, store_timestamp=1_800_000_000_000).ljust(500, b"\0")]
    files[damaged] = changed(files[damaged], 4, b"????")
    assert _bytes_per_day(log_of(tmp_path, *files)) is None


def test_the_command(store: Path) -> None:
    before = tree_state(store)
    done = run("clean", "-s", store, "--forecast", "--now", NOW, "--json")
    assert done.code == exit_codes.OK, done.err
    record = json.loads(done.out)
    with StoreFiles(store, StoreConfig()) as files:
        assert len([one for one in record["files"] if one["kind"] == "commitlog"]) == len(files.log.files)
    table = run("clean", "-s", store, "--forecast", "--now", NOW)
    assert "diskSpaceWarningLevelRatio" in table.out
    assert "commitlog/00000000000000000000" in table.out
    assert run("clean", "-s", store, "--forecast", "--older-than", "1d", "--delete-when", "05").code == exit_codes.OK
    for wrong in ("--at-once", "--crashed", "--dry-run"):
        assert run("clean", "-s", store, "--forecast", wrong).code == exit_codes.USAGE
    assert tree_state(store) == before


def test_hours_that_never_come(store: Path) -> None:
    """Without an hour in deleteWhen files expire and stay, unless a disk is full."""
    found = _forecast(store, CleanOptions(scheduled=True, delete_when=""))
    log = [one for one in found.files if one.kind == "commitlog"]
    assert [one.goes_timestamp for one in log] == [None] * len(log)
    assert {one.detail for one in log[:-1]} == {"deleteWhen names no hour"}
    assert [one.expires_timestamp for one in log[:-1]] == [
        NOW - (150 - place * 20) * HOUR + 72 * HOUR for place in range(len(log) - 1)
    ]
    assert all(one.goes_timestamp is None for one in found.files)


def test_queues_that_point_behind_the_log(store: Path) -> None:
    """The end of the log is lost: whatever points there goes with nothing."""
    log_files(store)[-1].unlink()
    log_files(store)[-1].unlink()
    with StoreFiles(store) as files:
        end = files.log.max_offset
        ahead = {
            file.path
            for queue in files.queues.all()
            for file in queue.files.files[:-1]
            if (last_physical_offset(queue, file) or 0) >= end
        }
        found = forecast_clean(files, BROKER, NOW, IDLE)
    assert ahead
    assert {one.path for one in found.files if one.goes_timestamp is None} >= ahead


def test_queues_in_a_rocksdb(golden_store: GoldenStore) -> None:
    found = _forecast(golden_store("rocksdb"))
    assert [note for note in found.notes if "RocksDB" in note]
    assert {one.kind for one in found.files} == {"commitlog", "index"}


def test_a_store_that_is_not_written_to_is_not_extrapolated(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its whole life may have been two seconds, whose rate would fill any disk in hours."""
    found = _forecast(store)
    assert (found.bytes_per_day, {level.reached_timestamp for level in found.levels} <= {None, NOW}) == (None, True)
    (note,) = [one for one in found.notes if "extrapolated" in one]
    assert note.startswith("the last message was stored ")
    last = max(row["storeTimestamp"] for row in truth("clean").messages)
    monkeypatch.setattr("tests.store.clean.test_forecast.NOW", last + 59 * MINUTE)
    assert _forecast(store).bytes_per_day
    monkeypatch.setattr("tests.store.clean.test_forecast.NOW", last + 61 * MINUTE)
    assert _forecast(store).bytes_per_day is None
