"""An exchange: tasks over items hand out rows by partition, then a second task looks at each partition by itself.

For what must be brought together from all over a store, such as equal keys, in bounded memory: a partition is as small
as the caller makes it. Local workers leave the rows in a temporary folder, Spark's executors in Spark's own shuffle.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rmqctl.pipeline.engine.engine import Engine, OnDone, SparkEngine
from rmqctl.pipeline.engine.scratch import attempt
from rmqctl.pipeline.engine.shuffle import ShuffleReader, ShuffleWriter
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.outputs.temporary import temporary_folder

if TYPE_CHECKING:
    from pyspark import RDD

Item = TypeVar("Item")
Result = TypeVar("Result")
Reduced = TypeVar("Reduced")

Task = Callable[[Item], tuple[Result, Sequence[bytes]]]
"""Gives the item's own result, and what it has for each partition: packed rows, empty bytes for none."""
Reduce = Callable[[Iterable[bytes]], Reduced]
"""Takes what all items have for one partition, in the order of the items."""


def exchange(
    engine: Engine,
    name: str,
    task: Task[Item, Result],
    items: Sequence[Item],
    partitions: int,
    reduce: Reduce[Reduced],
    on_done: OnDone | None = None,
) -> tuple[list[Result], list[Reduced]]:
    """The results of the items and those of the partitions, each in order.

    Both tasks are as Engine.run wants them; `task` gives exactly `partitions` pieces. `on_done` is told of the items.
    The same on every engine. WriteFailedError where the temporary folder has no room.
    """
    if isinstance(engine, SparkEngine):
        return _on_spark(engine, name, task, items, partitions, reduce, on_done)
    with temporary_folder("rmqctl-exchange-") as folder:
        mapped = engine.run(name, functools.partial(_written, task, folder, partitions), items, on_done)
        files = [path for _, path in mapped]
        reduced = engine.run(name, functools.partial(_reduced, reduce, files, partitions), range(partitions))
    return [result for result, _ in mapped], reduced


def _written(task: Task[Any, Any], folder: Path, partitions: int, item: Any) -> tuple[Any, Path]:
    result, pieces = task(item)
    writer = ShuffleWriter(attempt(folder, "rows"), partitions)
    try:
        for partition, piece in enumerate(pieces):
            if piece:
                writer.put(partition, None, [piece])
        writer.finish()
    finally:
        writer.close()
    return result, writer.path


def _reduced(reduce: Reduce[Any], files: Sequence[Path], partitions: int, partition: int) -> Any:
    with Descriptors() as descriptors:
        return reduce(_pieces(files, partitions, partition, descriptors))


def _pieces(files: Sequence[Path], partitions: int, partition: int, descriptors: Descriptors) -> Iterator[bytes]:
    for path in files:
        reader = ShuffleReader(path, partitions, descriptors)
        for _, position, length in reader.entries(partition):
            yield reader.read(position, length)


def _on_spark(
    engine: SparkEngine,
    name: str,
    task: Task[Any, Any],
    items: Sequence[Any],
    partitions: int,
    reduce: Reduce[Any],
    on_done: OnDone | None,
) -> tuple[list[Any], list[Any]]:
    """One job: the items' own results travel in a partition of their own, behind the others."""
    if not items:
        return [], [reduce([]) for _ in range(partitions)]
    numbered = list(enumerate(items))

    def exchanged(mapped: RDD[Any]) -> RDD[Any]:
        pieces = mapped.flatMap(lambda pairs: pairs)
        return pieces.partitionBy(partitions + 1, int).mapPartitionsWithIndex(
            functools.partial(_partition, reduce, partitions)
        )

    found = engine.collected(name, functools.partial(_keyed, task, partitions), numbered, exchanged, on_done)
    by_partition = dict(found)
    return by_partition[partitions], [by_partition[number] for number in range(partitions)]


def _keyed(task: Task[Any, Any], partitions: int, item: tuple[int, Any]) -> list[tuple[int, tuple[int, Any]]]:
    number, plain = item
    result, pieces = task(plain)
    keyed = [(partition, (number, piece)) for partition, piece in enumerate(pieces) if piece]
    return [*keyed, (partitions, (number, result))]


def _partition(reduce: Reduce[Any], partitions: int, index: int, pairs: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    found = [piece for _, piece in sorted((pair for _, pair in pairs), key=lambda pair: pair[0])]
    yield index, found if index == partitions else reduce(found)
