"""A write that is killed, wherever that is: the store has all of it or nothing when the next one has ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rmqctl.pipeline.spark.sink import write_staged
from rmqctl.pipeline.spark.sink_record import MicroBatch, StagedRows
from tests.pipeline.sink.staged import named, task, whole
from tests.processes import run
from tests.store.write.writing import SMALL

BEFORE, ROWS, LATER = named(0, 6), named(1, 10), named(2, 3)


def _killed(
    folder: Path, tasks: list[StagedRows], batch: MicroBatch | None, base: Path | None, step: int
) -> list[Path]:
    """Stores into which `tasks` were to be written; in all but the last one that was killed at another change."""
    order = {"base": base and str(base), "folder": str(folder), "tasks": tasks, "batch": batch, "step": step}
    ended = run([sys.executable, "-m", "tests.pipeline.sink.killed"], input=json.dumps(order) + "\n", check=True)
    stores = [folder / str(at) / "store" for at in json.loads(ended.stdout)]
    assert len(stores) > 3
    return stores


@pytest.mark.thorough
@pytest.mark.parametrize(("is_new", "step"), [(False, 13), (True, 29)])
def test_a_micro_batch_that_comes_again_is_there_once(tmp_path: Path, is_new: bool, step: int) -> None:
    base = tmp_path / "base"
    tasks = [task(base, 0, ROWS[:6]), task(base, 1, ROWS[6:])]
    if not is_new:
        write_staged(base, SMALL, [task(base, 0, BEFORE)], batch=MicroBatch("query", 6))
    again = []
    for store in _killed(tmp_path, tasks, MicroBatch("query", 7), None if is_new else base, step):
        again.append(write_staged(store, SMALL, tasks, batch=MicroBatch("query", 7)).stored_before)
        write_staged(store, SMALL, [task(base, 0, LATER)], batch=MicroBatch("query", 8))
        assert [one.body for one in whole(store)] == [*([] if is_new else BEFORE), *ROWS, *LATER]
        assert [path.name for path in store.parent.iterdir() if path.name.startswith(".")] == []
    assert (again[0], again[-1]) == (False, True)


@pytest.mark.thorough
def test_a_frame_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    base = tmp_path / "base"
    write_staged(base, SMALL, [task(base, 0, BEFORE)])
    ends = set()
    for store in _killed(tmp_path, [task(base, 0, ROWS)], None, base, 23):
        write_staged(store, SMALL, [task(base, 0, LATER)])
        found = [one.body for one in whole(store)]
        assert found in ([*BEFORE, *LATER], [*BEFORE, *ROWS, *LATER])
        ends.add(len(found))
        assert not (store / "config" / "rmqctlWrites.json").exists()
    assert len(ends) == 2
