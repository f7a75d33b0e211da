"""Which commitlog files a cleaning removes from golden stores (numbers: sections of RocketMQ's cleaning rules)."""

from __future__ import annotations

from rmqctl.store.clean.options import CleanOptions, DiskUsage
from rmqctl.store.journal.log import changes
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.store.clean.cleaning import HOUR, NO_PAUSE, SIZE, age, age_all, log_files, log_starts, reasons, run


def test_3_only_files_older_than_the_reserved_time_go_oldest_first_up_to_the_first_young_one(
    golden_store: GoldenStore,
) -> None:
    store = golden_store("clean")
    age_all(store)
    age(log_files(store)[2], 71 * HOUR)
    report = run(store)
    assert reasons(report) == ["expired", "expired", "young", *["behind_a_kept_file"] * 5, "last"]
    assert log_starts(store) == [SIZE * number for number in range(2, 9)]
    assert (report.min_offset_before, report.min_offset) == (0, 2 * SIZE)
    with StoreFiles(store) as files:
        line = changes(files.layout)[-1]
    assert (line.verb, line.state, line.paths, line.bytes) == (
        "clean", "permanent", len(report.removed), sum(file.size for file in report.removed)
    )  # fmt: skip
    assert line.bytes >= 2 * SIZE


def test_3_the_age_is_reached_to_the_millisecond_and_is_that_of_the_file_not_of_its_messages(
    golden_store: GoldenStore,
) -> None:
    store = golden_store("clean")
    for path in log_files(store):
        age(path, 72 * HOUR - 1)
    assert reasons(run(store))[0] == "young"
    age(log_files(store)[0], 72 * HOUR)
    assert reasons(run(store))[:2] == ["expired", "young"]


def test_a_file_of_the_future_is_said_to_be_one(golden_store: GoldenStore) -> None:
    """A wrong clock, or a copy: it stays, and every file behind it, until its time is over."""
    store = golden_store("clean")
    age_all(store)
    age(log_files(store)[0], -100 * HOUR)
    first = run(store).decisions[0]
    assert (first.because.value, first.detail) == ("young", "last modified in the future, 4 d from now, kept for 3 d")


def test_3_the_last_file_never_goes(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    age_all(store, 10_000)
    report = run(store, CleanOptions(batch_maximum=100, pause=0))
    assert log_starts(store) == [8 * SIZE]
    assert reasons(report) == ["expired"] * 8 + ["last"]
    assert reasons(run(store, CleanOptions(at_once=True, pause=0))) == ["last"]


def test_3_an_empty_file_behind_does_not_make_the_last_one_with_data_go(golden_store: GoldenStore) -> None:
    store = golden_store("prealloc-last")
    age_all(store, 10_000)
    report = run(store, CleanOptions(batch_maximum=100, pause=0))
    assert reasons(report)[-2:] == ["last", "preallocated"]
    assert log_starts(store) == [8 * SIZE, 9 * SIZE]


def test_3_a_run_ends_at_the_batch_maximum_and_the_next_goes_on(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    age_all(store)
    options = CleanOptions(batch_maximum=3, pause=0)
    assert reasons(run(store, options)) == ["expired"] * 3 + ["batch_maximum"] * 5 + ["last"]
    assert reasons(run(store, options)) == ["expired"] * 3 + ["batch_maximum"] * 2 + ["last"]
    assert log_starts(store) == [6 * SIZE, 7 * SIZE, 8 * SIZE]


def test_2_at_once_ignores_age(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    for path in log_files(store):
        age(path, 0)
    assert reasons(run(store))[0] == "young"
    assert reasons(run(store, CleanOptions(at_once=True, batch_maximum=2, pause=0)))[:3] == [
        "at_once",
        "at_once",
        "batch_maximum",
    ]


def test_2_a_scheduled_run_outside_its_hour_with_idle_disks_does_nothing(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    age_all(store)
    before = tree_state(store)
    scheduled = CleanOptions(scheduled=True, delete_when="", pause=0)
    assert reasons(run(store, scheduled)) == ["not_due"] * 8 + ["last"]
    assert tree_state(store) == before
    assert reasons(run(store, scheduled, DiskUsage((80,), 10)))[0] == "expired"


def test_2_a_full_disk_takes_young_files_in_a_scheduled_run_only(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    for path in log_files(store):
        age(path, HOUR)
    full = DiskUsage((95,), 10)
    assert reasons(run(store, NO_PAUSE, full))[0] == "young"
    report = run(store, CleanOptions(scheduled=True, delete_when="", batch_maximum=2, pause=0), full)
    assert reasons(report)[:3] == ["at_once", "at_once", "batch_maximum"]
    assert report.order.disk_full
