"""An exchange: tasks over items hand out rows by partition, then a second task looks at each partition by itself.

For what must be brought together from all over a store, such as equal keys, in bounded memory: a partition is as small
as the caller makes it. Local workers leave the rows in a temporary folder, Spark's executors in Spark's own shuffle.
"""

from __future__ import annotations

import functools
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rmqctl.formats.errors import UnreadableError, unreadable
from rmqctl.pipeline.engine import Engine, OnDone, SparkEngine, attempt
from rmqctl.store.files import io
from rmqctl.store.files.outputs import temporary_folder
from rmqctl.store.files.reading import Descriptors

if TYPE_CHECKING:
    from pyspark import RDD

# What tasks hand to the tasks after them: one file a task, its entries sorted into buckets.
#
# Such a file lies in a folder that all machines see. Each entry has a key (plain values, as JSON has them) and bytes;
# a reader takes all entries of one bucket, in the order they were put, without reading the others. Layout: the bytes
# of all entries, then for each bucket a list of [key, position, length] as JSON, then (position, length) of each
# list.

_PLACE = struct.Struct("<QQ")
_BUFFER = 1 << 20
_CUT = "is not what was written: it has become shorter"

_Buffer = bytes | bytearray


def bucket_of(name: str, buckets: int) -> int:
    """The bucket of a name: the same on every machine and in every process."""
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) % buckets


class ShuffleWriter:
    """Writes such a file. The folder must be there; WriteFailedError. `close` in any case.

    It is not flushed onto the disk: it matters as long as the job runs, and a lost one is missed by who reads it.
    """

    def __init__(self, path: Path, buckets: int) -> None:
        self.path = path
        self._entries: list[list[tuple[Any, int, int]]] = [[] for _ in range(buckets)]
        self._buffer = bytearray()
        self._written = 0
        io.create_file(path, 0)
        self._descriptor: int | None = io.open_for_writing(path)

    def put(self, bucket: int, key: Any, data: Sequence[_Buffer] = ()) -> None:
        """The next entry of a bucket; its bytes may come in pieces."""
        length = sum(map(self._write, data))
        self._entries[bucket].append((key, self._written + len(self._buffer) - length, length))

    def _write(self, data: _Buffer) -> int:
        self._buffer += data
        if len(self._buffer) >= _BUFFER:
            self._drain()
        return len(data)

    def _drain(self) -> None:
        assert self._descriptor is not None
        io.write_at(self._descriptor, self.path, self._written, self._buffer)
        self._written += len(self._buffer)
        self._buffer = bytearray()

    def finish(self) -> None:
        """The file is complete: another machine may be the one to read it."""
        places = []
        for entries in self._entries:
            packed = json.dumps(entries).encode("ascii")
            places.append((self._written + len(self._buffer), len(packed)))
            self._write(packed)
        self._write(b"".join(_PLACE.pack(*place) for place in places))
        self._drain()
        self.close()

    def close(self) -> None:
        """Close the file, complete or not."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class ShuffleReader:
    """Reads such files."""

    def __init__(self, path: Path, buckets: int, descriptors: Descriptors) -> None:
        self._path = path
        self._buckets = buckets
        self._descriptors = descriptors

    def entries(self, bucket: int) -> Iterator[tuple[Any, int, int]]:
        """Key, position and length of each entry of a bucket; UnreadableError, also for a file that is not whole."""
        try:
            size = os.stat(self._path).st_size
        except OSError as error:
            raise unreadable(error, self._path) from error
        lists_end = size - _PLACE.size * self._buckets
        if lists_end < 0:
            raise UnreadableError(_CUT, file=self._path)
        places = self.read(lists_end + _PLACE.size * bucket, _PLACE.size * (self._buckets - bucket))
        if sum(_PLACE.unpack_from(places, len(places) - _PLACE.size)) != lists_end:
            raise UnreadableError(_CUT, file=self._path)
        yield from json.loads(self.read(*_PLACE.unpack_from(places, 0)))

    def read(self, position: int, length: int) -> bytes:
        """The bytes of an entry."""
        data = self._descriptors.read(self._path, position, length)
        if len(data) < length:
            raise UnreadableError(_CUT, file=self._path)
        return data


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

    Both tasks are as Engine.run wants them; `task` gives exactly `partitions` pieces. `on_done` gets the items. The
    same on every engine. WriteFailedError if the temporary folder is full.
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
