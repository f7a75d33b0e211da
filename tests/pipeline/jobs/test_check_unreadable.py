"""A disk that fails in places: the check by tasks tells of it, and goes on, as the check in one process does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.pipeline.engine import LocalEngine
from rmqctl.pipeline.jobs.check import check_with
from rmqctl.store.check.check import check
from rmqctl.store.check.cross import Level
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.quick import sample
from tests.store.check.breaking import HEAD, LOG_FILE_SIZE, flip, messages
from tests.store.check.test_unreadable import bad_sector  # noqa: F401 - a fixture

QUEUE = "consumequeue/TopicTest/0/00000000000000000000"
Outcome = tuple[list[dict[str, Any]], dict[str, Any]]


def outcome(store: Path, level: Level, split_size: int | None) -> Outcome:
    """All findings and the summary; by tasks over splits, or for None by this process."""
    with StoreFiles(store) as files:
        if split_size is None:
            found = check(files, level)
        else:
            found = check_with(LocalEngine(1), files, level, split_size=split_size)
        rows = [finding.row() for finding in found]
        return sorted(rows, key=str), {**found.summary.row(), "duration_ms": 0}


def same(store: Path, level: Level = Level.DEFAULT) -> Outcome:
    expected = outcome(store, level, None)
    for split_size in (30_000, 1 << 27):
        assert outcome(store, level, split_size) == expected
    return expected


@pytest.mark.parametrize("numbers", sample([(0,), (4,), (2, 3), (1, 5, 7)], [(2, 3)]))
@pytest.mark.parametrize("level", [Level.DEFAULT, Level.FULL])
def test_commitlog_files(
    numbers: tuple[int, ...],
    level: Level,
    bad_sector: Any,  # noqa: F811
    golden_store: GoldenStore,
) -> None:
    store = golden_store("clean")
    damaged = next(one for one in messages(store) if one.physical_offset > 6 * LOG_FILE_SIZE + 9000 and one.body)
    flip(store, damaged, HEAD.size)
    for number in numbers:
        bad_sector(store / "commitlog" / f"{number * LOG_FILE_SIZE:020d}", 100_000, 104_096)
    rows, summary = same(store, level)
    codes = [row["code"] for row in rows]
    assert (codes.count("RMQ-FILE-006"), codes.count("RMQ-LOG-005")) == (len(numbers), 1)
    assert (summary["complete"], summary["stopped_by"]) == (False, "unreadable")


def test_the_last_commitlog_file(bad_sector: Any, golden_store: GoldenStore) -> None:  # noqa: F811
    store = golden_store("clean")
    bad_sector(store / "commitlog" / f"{8 * LOG_FILE_SIZE:020d}", 0, 4096)
    rows, summary = same(store)
    assert "RMQ-FILE-006" in {row["code"] for row in rows}
    assert summary["stopped_by"] == "unreadable"


def test_the_store_may_be_named_in_any_way(
    bad_sector: Any,  # noqa: F811
    golden_store: GoldenStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = golden_store("clean")
    bad_sector(store / "commitlog" / f"{4 * LOG_FILE_SIZE:020d}", 100_000, 104_096)
    (tmp_path / "link").symlink_to(store)
    monkeypatch.chdir(tmp_path)
    rows, _ = same(Path("link"))
    assert f"link/commitlog/{4 * LOG_FILE_SIZE:020d}" in {row["file"] for row in rows}


@pytest.mark.parametrize(("begin", "end"), [(0, 1 << 30), (200, 240), (3000, 3020)])
def test_a_queue(begin: int, end: int, bad_sector: Any, golden_store: GoldenStore) -> None:  # noqa: F811
    store = golden_store("clean")
    bad_sector(store / QUEUE, begin, end)
    same(store)


@pytest.mark.parametrize(("begin", "end"), [(0, 1 << 30), (100, 200), (30_000, 30_020)])
def test_an_index_file(begin: int, end: int, bad_sector: Any, golden_store: GoldenStore) -> None:  # noqa: F811
    store = golden_store("clean")
    bad_sector(sorted((store / "index").iterdir())[1], begin, end)
    rows, _ = same(store)
    assert "RMQ-FILE-006" in {row["code"] for row in rows}
