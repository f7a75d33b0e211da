"""The check by tasks finds what the check in one process finds, for any split size, on processes and on Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.errors import UnreadableError
from rmqctl.pipeline.engine import Engine, LocalEngine, SparkEngine
from rmqctl.pipeline.jobs.check import check_with, kept
from rmqctl.pipeline.splits import SPLIT_SIZE, WHOLE_FILES
from rmqctl.store.check.check import check
from rmqctl.store.check.cross import Level, Subset, TalliedRun
from rmqctl.store.files.reading import is_directory
from rmqctl.store.log.implied import UNIT, QueueRun
from rmqctl.store.options import Events
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, tree_state
from tests.quick import every, sample
from tests.rmqctl.looking import run
from tests.store.check.breaking import config_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SIZES = (33_333, SPLIT_SIZE)
_MORE_SIZES = (7_001, WHOLE_FILES)
_SOME = (
    "clean",
    "crash",
    "gap",
    "cq-truncated",
    "crc-flip-last",
    "torn-zero-clean",
    "index-garbage",
    "lmq",
    "innerbatch",
)

Rows = list[dict[str, Any]]


def _here(store: Path, name: str, level: Level = Level.DEFAULT) -> tuple[Rows, dict[str, Any]]:
    with StoreFiles(store, config_of(name, store)) as files:
        found = check(files, level)
        return _rows([finding.row() for finding in found]), _summary(found.summary.row())


def _by(engine: Engine, store: Path, name: str, **options: Any) -> tuple[Rows, dict[str, Any]]:
    with StoreFiles(store, config_of(name, store)) as files:
        found = check_with(engine, files, **options)
        return _rows([finding.row() for finding in found]), _summary(found.summary.row())


def _rows(rows: Rows) -> Rows:
    return sorted(rows, key=str)


def _summary(summary: dict[str, Any]) -> dict[str, Any]:
    return {**summary, "duration_ms": 0}


@pytest.mark.parametrize("name", sample(GOLDENS, ["crash", "gap"]))
def test_same_as_in_one_process(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    before = tree_state(store)
    expected = _here(store, name)
    engine = LocalEngine(1)
    for size in (*_SIZES, *_MORE_SIZES) if name in _SOME else _SIZES:
        assert _by(engine, store, name, split_size=size) == expected, size
    assert tree_state(store) == before


@pytest.mark.parametrize("name", every(3, ["features", "crc-flip-third", "tail-garbage-clean"]))
def test_other_levels_and_shares(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    engine = LocalEngine(1)
    for level in (Level.QUICK, Level.FULL):
        assert _by(engine, store, name, level=level, split_size=30_000) == _here(store, name, level)
    with StoreFiles(store) as files:
        expected = _rows([finding.row() for finding in check(files, subset=Subset(2, 3))])
    assert _by(engine, store, name, subset=Subset(2, 3), split_size=30_000)[0] == expected


def test_relative_paths_are_told_as_given(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_store("short-middle")
    monkeypatch.chdir(store.parent)
    relative = Path(store.name)
    expected = _here(relative, "short-middle")
    assert _by(LocalEngine(1), relative, "short-middle", split_size=9_000) == expected


def test_a_large_log_is_not_cut_into_any_number_of_tasks(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver takes what each task says of each queue. Files that are told as one are fewer still."""
    store = golden_store("clean")
    monkeypatch.setattr("rmqctl.pipeline.jobs.check._MOST_TASKS", 3)
    passed: list[int] = []
    assert _by(LocalEngine(1), store, "clean", split_size=30_000, events=Events(passed.append)) == _here(store, "clean")
    assert len([size for size in passed if size]) <= 4
    passed.clear()
    _by(LocalEngine(1), store, "clean", split_size=WHOLE_FILES, events=Events(passed.append))
    assert len([size for size in passed if size]) == 9


def test_tasks_look_for_no_queue_that_the_driver_has_listed(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ten thousand queues that was a tenth of a check, once more for each task."""
    store = golden_store("clean")
    asked: list[str] = []

    def told(path: Path) -> bool:
        asked.append(str(path))
        return is_directory(path)

    monkeypatch.setattr("rmqctl.store.queues.queue_table.is_directory", told)
    assert _by(LocalEngine(1), store, "clean", split_size=100_000) == _here(store, "clean")
    assert asked == []


def test_in_processes(golden_store: GoldenStore) -> None:
    store = golden_store("cq-truncated")
    passed: list[int] = []
    found = _by(LocalEngine(2, alone_for=0), store, "cq-truncated", split_size=100_000, events=Events(passed.append))
    assert found == _here(store, "cq-truncated")
    assert sum(passed) == 9 * 262144


def test_on_spark(spark: SparkSession, golden_store: GoldenStore) -> None:
    engine = SparkEngine(spark)
    for name in _SOME:
        store = golden_store(name)
        assert _by(engine, store, name, split_size=90_000) == _here(store, name), name


def test_kept_rows_tell_what_the_whole_run_tells() -> None:
    @given(st.lists(st.integers(0, 20), min_size=1), st.lists(st.integers(0, 60)))
    def check_rows(slots: list[int], jumps: list[int]) -> None:
        units = np.zeros(len(slots), UNIT)
        units["physical_offset"] = np.arange(len(slots)) * 3
        queue = QueueRun("T", 0, np.array(slots, np.int64), units, None)
        few = kept(queue, jumps)
        assert (few.slots.min(), few.slots.max()) == (min(slots), max(slots))
        for jump in jumps:
            before, known = (
                [int(slot) for slot, unit in zip(one.slots, one.units, strict=True) if unit["physical_offset"] < jump]
                for one in (queue, few)
            )
            assert max(before, default=-1) == max(known, default=-1)
        assert len(few.slots) <= 2 + len(set(jumps))

    check_rows()


@pytest.mark.parametrize("name", sample(["clean", "crc-flip-last"], ["crc-flip-last"]))
def test_command_line(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    plain = run("check", "-s", store, "--json")
    by_tasks = run("check", "-s", store, "--json", "--master", "in-process")
    assert (by_tasks.code, sorted(by_tasks.out.splitlines())) == (plain.code, sorted(plain.out.splitlines()))
    assert by_tasks.err == plain.err


def test_command_line_on_spark(spark: SparkSession, golden_store: GoldenStore) -> None:
    """The session of the tests is the one that the command finds."""
    store = golden_store("index-garbage")
    done = run("check", "-s", store, "--json", "--master", "local[2]")
    assert (done.code, {row["code"] for row in done.objects if row["severity"] != "notice"}) == (1, {"RMQ-IDX-010"})


def test_a_compared_run_travels_whole() -> None:
    """Its queues go as columns: each comes out with its rows, and what is of the run itself beside them."""
    units = np.zeros(3, UNIT)
    units["physical_offset"], units["size"] = (100, 300, 700), 99
    queues = [
        QueueRun("A", 0, np.array([4, 7]), units[[0, 2]], None),
        QueueRun("B", 3, np.array([1]), units[1:2], None),
    ]
    error = UnreadableError("gone", file="/a/queue")
    for sent in (queues, []):
        run = TalliedRun(100, 900, 3, 700, 55, 1, sent, queues_error=error)
        run.index_tally.passed(100, 900)
        there = pickle.loads(pickle.dumps(run))
        assert [queue[:2] for queue in there.queues] == [queue[:2] for queue in sent]
        for queue, before in zip(there.queues, sent, strict=True):
            assert queue.slots.tolist() == before.slots.tolist()
            assert queue.units.dtype == UNIT
            assert queue.units.tobytes() == before.units.tobytes()
        assert (there.end, there.unplaceable, there.queues_error.message, there.index_error) == (900, 1, "gone", None)
        assert there.index_tally == run.index_tally
        later = TalliedRun(900, 950, 1, 900, 56, 0, [QueueRun("A", 0, np.array([9]), units[1:2], None)])
        there.join(later)
        assert there.queues[0].slots.tolist() == ([4, 7, 9] if sent else [9])
