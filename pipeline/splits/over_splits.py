"""Work over all splits of a store, whatever stands at their edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rmqctl.pipeline.engine.engine import Engine
from rmqctl.pipeline.splits.splits import SPLIT_SIZE, WHOLE_FILES, Split, SplitEdgeError, plan_splits
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.store_files import StoreFiles

Result = TypeVar("Result")


def run_over_splits(
    engine: Engine,
    name: str,
    task: Callable[[Split], Result],
    files: StoreFiles,
    *,
    split_size: int = SPLIT_SIZE,
    begin: int | None = None,
    end: int | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """`task` of each split of the log, or of [begin, end) of it; the results in the log's order.

    See Engine.run, plan_splits and `whole_files_at_need`. `progress` is told bytes of the log, as well as they are
    known.
    """

    def work(size: int, told: Progress | None) -> list[Result]:
        splits = plan_splits(files, size, begin, end)
        total = sum(split.end - split.begin for split in splits)
        return engine.run(name, task, splits, on_done_telling(told, total, len(splits)))

    return whole_files_at_need(split_size, work, progress)


def whole_files_at_need(
    split_size: int, work: Callable[[int, Progress | None], Result], progress: Progress | None = None
) -> Result:
    """`work` of the split size; where a huge message hides decoys at an edge (SplitEdgeError), anew of WHOLE_FILES.

    `work` gets `progress`, too. Of work that is done anew it is told the opposite first: less than nothing.
    """
    done = 0

    def telling(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(size)

    try:
        return work(split_size, None if progress is None else telling)
    except SplitEdgeError:
        if split_size == WHOLE_FILES:
            raise
    if done:
        telling(-done)
    return work(WHOLE_FILES, progress)


def on_done_telling(progress: Progress | None, total: int, items: int) -> Callable[[int], None] | None:
    """An Engine's `on_done` that tells `progress` of `total` bytes while `items` are done."""
    if progress is None or not items:
        return None
    done = 0

    def on_done(count: int) -> None:
        nonlocal done
        before, done = done, done + count
        progress(total * done // items - total * before // items)

    return on_done
