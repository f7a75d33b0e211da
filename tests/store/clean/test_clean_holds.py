"""Files that readers hold while a cleaning wants them gone (RocketMQ's rule 4)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from rmqctl.formats.errors import RemovedError
from rmqctl.store.clean.cleaner import Cleaner
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, truth
from tests.store.clean.cleaning import IDLE, NO_PAUSE, NOW, SIZE, age_all, log_files, reasons
from tests.store.index.offsets import offsets_of


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def aged(golden_store: GoldenStore) -> Iterator[StoreFiles]:
    store = golden_store("clean")
    age_all(store)
    with StoreFiles(store) as files:
        yield files


def test_4_a_file_that_a_reader_holds_is_refused_and_forced_after_the_interval(aged: StoreFiles) -> None:
    clock = Clock()
    cleaner = Cleaner(aged, CleanOptions(batch_maximum=2, pause=0), clock=clock)
    first = aged.log.files[0]
    with first.hold() as held:
        assert held
        report = cleaner.run(NOW, IDLE)
        assert reasons(report)[:3] == ["held", "behind_a_kept_file", "behind_a_kept_file"]
        assert first.path.exists()
        assert len(first.read(0, 100)) == 100, "the reader goes on reading"
        assert aged.log.min_offset == SIZE, "the offset lies behind a file that is on its way out"
        with first.hold() as second:
            assert not second, "no new reader"
        clock.now += 119_999
        assert reasons(cleaner.run(NOW, IDLE))[0] == "held"
        clock.now += 1
        report = cleaner.run(NOW, IDLE)
        assert reasons(report)[:3] == ["expired", "expired", "batch_maximum"]
        assert not first.path.exists()
        with pytest.raises(RemovedError, match="was removed while the store was read"):
            first.read(0, 100)
    assert first.reference.count < 0
    assert aged.log.min_offset == 2 * SIZE
    assert next(file.start_offset for file in aged.log.files) == 2 * SIZE


def test_4_a_released_file_goes_in_the_next_run(aged: StoreFiles) -> None:
    clock = Clock()
    cleaner = Cleaner(aged, CleanOptions(batch_maximum=1, pause=0), clock=clock)
    first = aged.log.files[0]
    with first.hold():
        assert reasons(cleaner.run(NOW, IDLE))[0] == "held"
    assert first.path.exists()
    clock.now += 1
    assert reasons(cleaner.run(NOW, IDLE))[0] == "expired"
    assert not first.path.exists()


def test_4_a_held_file_in_the_middle_ends_the_run_there(aged: StoreFiles) -> None:
    cleaner = Cleaner(aged, NO_PAUSE, clock=Clock())
    with aged.log.files[2].hold():
        assert reasons(cleaner.run(NOW, IDLE))[:4] == ["expired", "expired", "held", "behind_a_kept_file"]
    assert aged.log.files[0].start_offset == 2 * SIZE


def test_4_a_reader_who_comes_while_files_are_removed_keeps_all_behind_his(aged: StoreFiles) -> None:
    """Else there would be a hole in the log."""
    with contextlib.ExitStack() as reader:
        second = aged.log.files[1]

        def come(_: float) -> None:
            reader.enter_context(second.hold())

        cleaner = Cleaner(aged, CleanOptions(batch_maximum=4, pause=1), clock=Clock(), sleep=come)
        assert reasons(cleaner.run(NOW, IDLE))[:4] == ["expired", "held"] + ["behind_a_kept_file"] * 2
        starts = [int(path.name) for path in log_files(aged.root)]
        assert starts == list(range(SIZE, SIZE * (len(starts) + 1), SIZE))


def test_4_a_hanging_first_file_is_retried_even_when_nothing_asks_for_a_deletion(aged: StoreFiles) -> None:
    clock = Clock()
    first = aged.log.files[0]
    with first.hold():
        assert reasons(Cleaner(aged, NO_PAUSE, clock=clock).run(NOW, IDLE))[0] == "held"
    idle = Cleaner(aged, CleanOptions(scheduled=True, delete_when="", pause=0), clock=clock)
    report = idle.run(NOW, IDLE)
    assert reasons(report)[0] == "expired"
    assert not first.path.exists()
    assert aged.log.files[0].start_offset == SIZE


def test_4_the_retry_has_its_own_interval(aged: StoreFiles) -> None:
    clock = Clock()
    first = aged.log.files[0]
    idle = Cleaner(aged, CleanOptions(scheduled=True, delete_when="", pause=0), clock=clock)
    idle.run(NOW, IDLE)
    with first.hold():
        assert not first.destroy(120_000, clock.now)
    clock.now += 119_999
    idle.run(NOW, IDLE)
    assert first.path.exists()
    clock.now += 1
    idle.run(NOW, IDLE)
    assert not first.path.exists()


def test_4_a_held_queue_file_stays_while_its_commitlog_goes(aged: StoreFiles) -> None:
    queue = aged.queues.find("topic-with-dash", 0)
    assert queue is not None
    clock = Clock()
    cleaner = Cleaner(aged, CleanOptions(batch_maximum=3, pause=0), clock=clock)
    first = queue.files.files[0]
    with first.hold():
        report = cleaner.run(NOW, IDLE)
        mine = [decision for decision in report.decisions if decision.path == first.path]
        assert [decision.because.value for decision in mine] == ["held"]
        clock.now += 60_000
        cleaner.run(NOW, IDLE)
        assert not first.path.exists(), "60 s are the most for a queue file"


def test_4_a_query_holds_its_index_file(aged: StoreFiles) -> None:
    clock = Clock()
    row = truth("clean").messages[0]
    first = aged.index.files[0]
    answers = offsets_of(aged.index, row["topic"], row["properties"]["UNIQ_KEY"])
    assert next(answers) == 0
    Cleaner(aged, NO_PAUSE, clock=clock).run(NOW, IDLE)
    assert first.path.exists()
    assert next(answers, None) is None
    Cleaner(aged, NO_PAUSE, clock=clock).run(NOW, IDLE)
    assert not first.path.exists()


def test_3_there_is_a_pause_between_two_files_and_none_behind_the_last(aged: StoreFiles) -> None:
    pauses: list[float] = []
    Cleaner(aged, CleanOptions(batch_maximum=3), clock=Clock(), sleep=pauses.append).run(NOW, IDLE)
    in_log = 2
    assert pauses[:in_log] == [0.1, 0.1]


def test_4_a_file_that_is_released_while_those_before_it_are_removed_goes_with_them(aged: StoreFiles) -> None:
    with contextlib.ExitStack() as reader:
        reader.enter_context(aged.log.files[1].hold())
        cleaner = Cleaner(aged, CleanOptions(batch_maximum=4, pause=1), clock=Clock(), sleep=lambda _: reader.close())
        report = cleaner.run(NOW, IDLE)
        assert reasons(report)[:3] == ["expired", "expired", "behind_a_kept_file"]
        second = next(one for one in report.removed if one.start_offset == SIZE)
        assert second.detail == "was held by a reader before"
        assert aged.log.files[0].start_offset == 2 * SIZE
