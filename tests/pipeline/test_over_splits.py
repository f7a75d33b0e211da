"""Many small files are few tasks, and each task opens the store once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.pipeline import splits as over_splits
from rmqctl.pipeline.engine import LocalEngine
from rmqctl.pipeline.jobs.check import CheckOrder, check_splits, check_with
from rmqctl.pipeline.splits import (
    SPLIT_SIZE,
    WHOLE_FILES,
    Split,
    bundled,
    open_split,
    plan_splits,
    run_bundles,
    split_columns,
    split_runs,
)
from rmqctl.store.check.cross import TalliedRun
from rmqctl.store.compare.queues import QueuesComparison, QueuesTally
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.log.implied import Digest, Run
from rmqctl.store.options import Events
from rmqctl.store.queues.queue_table import QueueTable
from rmqctl.store.store_files import StoreFiles
from tests.opened import store_path


def _splits(*lengths: int) -> list[Split]:
    ends = [sum(lengths[: number + 1]) for number in range(len(lengths))]
    return [Split("/store", StoreConfig(), end - length, end) for length, end in zip(lengths, ends, strict=True)]


def test_neighbours_of_the_size_asked_for() -> None:
    splits = _splits(3, 3, 3, 3, 20, 5, 5, 1)
    assert [[one.end - one.begin for one in bundle] for bundle in bundled(splits, 10)] == [
        [3, 3, 3], [3], [20], [5, 5], [1],
    ]  # fmt: skip
    assert list(bundled(splits, WHOLE_FILES)) == [(split,) for split in splits]
    assert list(bundled([], 10)) == []


def _messages(files: StoreFiles, split: Split) -> tuple[int, int]:
    found = split_columns(files, split)
    return split.begin, sum(record.rows for record in found if isinstance(record, MessageColumns))


def test_each_split_has_its_result_in_order() -> None:
    with StoreFiles(store_path("clean")) as files:
        splits = plan_splits(files, SPLIT_SIZE)
        assert len(splits) > 5
        told: list[int] = []
        found = run_bundles(LocalEngine(1), "count", _messages, splits, 600_000, Events(progress=told.append))
        apart = run_bundles(LocalEngine(1), "count", _messages, splits, 0)
    assert found == apart
    assert [begin for begin, _ in found] == [split.begin for split in splits]
    assert sum(count for _, count in found) == 2500
    assert len(told) == len(list(bundled(splits, 600_000)))
    assert sum(told) == splits[-1].end


@pytest.mark.parametrize(("size", "most"), [(SPLIT_SIZE, 1), (600_000, 5)])
def test_a_check_by_tasks_opens_the_queues_once_a_task(monkeypatch: pytest.MonkeyPatch, size: int, most: int) -> None:
    """On a store of small files; before, each of them was a task, and each task listed all queues."""
    opened: list[StoreFiles] = []

    def counted(split: Split) -> StoreFiles:
        opened.append(open_split(split))
        return opened[-1]

    monkeypatch.setattr(over_splits, "open_split", counted)
    tables: list[QueueTable] = []
    begun = QueueTable.__init__

    def counted_tables(table: QueueTable, *given: object) -> None:
        tables.append(table)
        begun(table, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(QueueTable, "__init__", counted_tables)
    with StoreFiles(store_path("clean")) as files:
        assert list(check_with(LocalEngine(1), files, split_size=size)) == []
    assert 1 <= len(opened) <= most
    assert len(tables) <= most + 1


def test_sound_small_files_are_told_as_one() -> None:
    """All of a task's but the last one, behind damage in which messages of an older log could stand. Before, each file
    had its tallies, and a task of 500 files with 200 queues told 35 MB."""
    with StoreFiles(store_path("clean")) as files:
        splits = plan_splits(files)
        doubtful = files.log.files[-1].start_offset
        order = CheckOrder(is_full=False, with_queues=True, queues=None, survey=None, doubtful_from=doubtful)
        several, last = check_splits(order, files, splits)
        apart = [one for split in splits for one in check_splits(order, files, [split])]
    assert len(apart) == len(splits) > 5
    assert several.look.messages == sum(one.look.messages for one in apart[:-1])
    assert last.look.messages == apart[-1].look.messages
    (run,) = [record for record in several.records if isinstance(record, TalliedRun)]
    runs = [record for one in apart[:-1] for record in one.records if isinstance(record, TalliedRun)]
    assert (run.physical_offset, run.end, run.messages) == (0, runs[-1].end, sum(one.messages for one in runs))
    tally = QueuesTally()
    for one in runs:
        tally.merge(one.queues_tally)
    assert run.queues_tally.queues == tally.queues
    highest: dict[tuple[str, int], int] = {}
    for queue in (queue for one in runs for queue in one.queues):
        key = (queue.topic, queue.queue_id)
        highest[key] = max(highest.get(key, -1), int(queue.slots.max()))
    assert {(queue.topic, queue.queue_id): int(queue.slots.max()) for queue in run.queues} == highest


def test_a_queue_is_read_once_for_many_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0
    read = Descriptors.read

    def counted(descriptors: Descriptors, path: Path, position: int, length: int) -> bytes:
        nonlocal reads
        reads += "consumequeue" in path.parts
        return read(descriptors, path, position, length)

    with StoreFiles(store_path("clean")) as files:
        comparison = QueuesComparison(files)
        runs = [run for split in plan_splits(files) for run in split_runs(files, split, Digest(()))]
        monkeypatch.setattr(Descriptors, "read", counted)
        for run in runs:
            if isinstance(run, Run):
                comparison.take(run)
        tally = comparison.tally
    of_runs = sum(len(run.queues) for run in runs if isinstance(run, Run))
    # a read for each file of a queue; before, one for each queue in each run
    assert 0 < len(tally.queues) <= reads < of_runs / 2
