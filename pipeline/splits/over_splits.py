"""Work over all splits of a store, whatever stands at their edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

from rmqctl.pipeline.engine.engine import Engine
from rmqctl.pipeline.splits.splits import (
    SPLIT_SIZE,
    WHOLE_FILES,
    Split,
    SplitEdgeError,
    open_split,
    plan_splits,
    take_split,
)
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.store_files import StoreFiles

Result = TypeVar("Result")


def run_over_splits(
    engine: Engine,
    name: str,
    task: Callable[[StoreFiles, Split], Result],
    files: StoreFiles,
    *,
    split_size: int = SPLIT_SIZE,
    begin: int | None = None,
    end: int | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """`task` of each split of the log, or of [begin, end) of it, with its store opened; the results in the log's order.

    See `run_bundles`, plan_splits and `whole_files_at_need`. `progress` is told bytes of the log, as well as they are
    known.
    """

    def work(size: int, told: Progress | None) -> list[Result]:
        return run_bundles(engine, name, task, plan_splits(files, size, begin, end), size, told)

    return whole_files_at_need(split_size, work, progress)


def run_bundles(
    engine: Engine,
    name: str,
    task: Callable[[StoreFiles, Split], Result],
    splits: Sequence[Split],
    size: int,
    progress: Progress | None = None,
) -> list[Result]:
    """`task` of each split; the results in the order of the splits, which is the log's.

    See `run_by_bundles`.
    """
    return list(chain.from_iterable(run_by_bundles(engine, name, partial(_each, task), splits, size, progress)))


def run_by_bundles(
    engine: Engine,
    name: str,
    task: Callable[[StoreFiles, Sequence[Split]], Result],
    splits: Sequence[Split],
    size: int,
    progress: Progress | None = None,
) -> list[Result]:
    """`task` of each bundle of splits; the results in the log's order.

    Small files have small splits: neighbours of `size` bytes together are one item of the engine, for which the store
    is opened once. See `of_bundle` and Engine.run.
    """
    bundles = list(bundled(splits, size))
    total = sum(split.end - split.begin for split in splits)
    told = on_done_telling(progress, total, len(bundles))
    return engine.run(name, partial(of_bundle, task), bundles, told)


def bundled(splits: Sequence[Split], size: int) -> Iterator[tuple[Split, ...]]:
    """Neighbours together, of at most `size` bytes unless one alone has more."""
    bundle: list[Split] = []
    held = 0
    for split in splits:
        length = split.end - split.begin
        if bundle and held + length > size:
            yield tuple(bundle)
            bundle, held = [], 0
        bundle.append(split)
        held += length
    if bundle:
        yield tuple(bundle)


def of_bundle(task: Callable[[StoreFiles, Sequence[Split]], Result], bundle: Sequence[Split]) -> Result:
    """Task: `task` of some splits of one store, which are in the log's order, with the store opened: queues and index
    once. Of the log it takes what each split needs, see `take_split`."""
    with open_split(bundle[0]) as files:
        return task(files, bundle)


def as_one(splits: Sequence[Split]) -> Split:
    """Neighbouring splits, at least one, as one."""
    files = {file.path: file for split in splits for file in split.files}
    return splits[0]._replace(end=splits[-1].end, files=tuple(files.values()))


def _each(task: Callable[[StoreFiles, Split], Result], files: StoreFiles, splits: Sequence[Split]) -> list[Result]:
    results = []
    for split in splits:
        take_split(files, split)
        results.append(task(files, split))
    return results


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
