"""An export as a directory of files by topic and day: `topic=NAME/day=YYYY-MM-DD/part-0.parquet`.

The names are those that Hive, Spark, DuckDB and pyarrow understand. The columns stay in the files as well, so that each
file is complete in itself."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import numpy as np

from rmqctl.formats.errors import CorruptError
from rmqctl.store.files import io
from rmqctl.store.files.outputs import OutputFile
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.native.tables import Columns
from rmqctl.store.scan.chosen import Maker

if TYPE_CHECKING:
    import pyarrow as pa


DAY = 24 * 60 * 60 * 1000
"""In ms."""

_MOST_OPEN = 32
_PENDING_BYTES = 96 * 1024 * 1024
_LONGEST_NAME = 180
_HASH_DIGITS = 16

_Item_contra = TypeVar("_Item_contra", contravariant=True)
_Written = TypeVar("_Written")


class Partition(NamedTuple):
    """A topic and a day, counted from 1970-01-01 in UTC."""

    topic: str
    day: int

    @property
    def directory(self) -> Path:
        """Relative path. Any topic name becomes one path component."""
        name = quote(self.topic, safe="")
        if len(name) > _LONGEST_NAME:
            digest = hashlib.sha256(self.topic.encode("utf-8")).hexdigest()[:_HASH_DIGITS]
            name = f"{name[:_LONGEST_NAME]}-{digest}"
        return Path(f"topic={name}", f"day={np.datetime64(self.day, 'D')}")


class PartWriter(Protocol[_Item_contra]):
    """What a partition needs of a writer. `pending_bytes`: what it has gathered in memory."""

    @property
    def pending_bytes(self) -> int: ...

    def write(self, item: _Item_contra) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Partitions(Generic[_Written]):
    """Writes items into the files of their partitions; few files are open at a time, and little is gathered.

    A partition that comes back after its file was closed gets a further one.
    """

    def __init__(self, root: Path, suffix: str, writer: Callable[[OutputFile], PartWriter[_Written]]) -> None:
        self._root = root
        self._suffix = suffix
        self._writer = writer
        self._open: OrderedDict[Partition, tuple[OutputFile, PartWriter[_Written]]] = OrderedDict()
        self._parts: dict[Partition, int] = {}
        self.files = 0
        self.bytes = 0

    @property
    def count(self) -> int:
        """Partitions so far."""
        return len(self._parts)

    def write(self, partition: Partition, item: _Written) -> None:
        """Write an item of a partition."""
        if partition not in self._open:
            self._begin(partition)
        self._open.move_to_end(partition)
        self._open[partition][1].write(item)

    def limit_memory(self) -> None:
        """Write blocks that are small yet where all partitions together hold too much, the largest first."""
        writers = sorted((writer for _, writer in self._open.values()), key=lambda writer: -writer.pending_bytes)
        pending = sum(writer.pending_bytes for writer in writers)
        if pending < _PENDING_BYTES:
            return
        for writer in writers:
            if pending < _PENDING_BYTES // 2:
                break
            pending -= writer.pending_bytes
            writer.flush()

    def close(self) -> None:
        """End all files."""
        while self._open:
            self._end(next(iter(self._open)))

    def abandon(self) -> None:
        """Close all files as they are."""
        for output, _ in self._open.values():
            output.abandon()
        self._open.clear()

    def _begin(self, partition: Partition) -> None:
        if len(self._open) >= _MOST_OPEN:
            self._end(next(iter(self._open)))
        number = self._parts.get(partition, 0)
        self._parts[partition] = number + 1
        directory = self._root / partition.directory
        io.make_directories(directory)
        output = OutputFile(directory / f"part-{number}{self._suffix}")
        self._open[partition] = output, self._writer(output)
        self.files += 1

    def _end(self, partition: Partition) -> None:
        output, writer = self._open.pop(partition)
        writer.close()
        output.finish()
        self.bytes += output.size


def partitioned(batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """A batch with the columns topic and store_timestamp cut into its partitions, the order within each kept."""
    import pyarrow as pa

    topics = batch.column("topic")
    ids: np.ndarray[Any, Any] = topics.indices.to_numpy()
    days: np.ndarray[Any, Any] = batch.column("store_timestamp").view(pa.int64()).to_numpy() // DAY
    if not len(ids):
        return
    order = np.lexsort((days, ids))
    changes = np.flatnonzero((np.diff(ids[order]) != 0) | (np.diff(days[order]) != 0)) + 1
    for rows in np.split(order, changes):
        partition = Partition(topics.dictionary[int(ids[rows[0]])].as_py(), int(days[rows[0]]))
        yield partition, batch if len(rows) == len(ids) else batch.take(pa.array(rows))


class MadeLines(Protocol):
    """Lines of some messages, and what to report of bodies among them, by row."""

    @property
    def text(self) -> memoryview: ...

    @property
    def rows(self) -> int: ...

    @property
    def damage(self) -> Sequence[tuple[int, CorruptError]]: ...


class LinesOfWalk(Maker[MadeLines], Protocol):
    """Makes lines of text of what a walk of the log gives: `needs` of it."""

    @property
    def needs(self) -> Columns: ...


class TextFile:
    """Lines into one file, at once."""

    pending_bytes = 0

    def __init__(self, output: OutputFile) -> None:
        self._output = output

    def write(self, text: memoryview) -> None:
        """Write some lines."""
        self._output.write(text)

    def flush(self) -> None:
        """Nothing is gathered here."""

    def close(self) -> None:
        """Nothing is left."""


class PartedLines:
    """Makes lines, and says for which partition they are: None unless `is_parted`. `needs`: of the walk."""

    def __init__(self, lines: LinesOfWalk, is_parted: bool) -> None:
        self._lines = lines
        self._is_parted = is_parted
        self.needs_bodies = lines.needs_bodies
        self.needs = lines.needs | Columns.TOPIC | Columns.HEAD if is_parted else lines.needs

    def batches(self, batch: MessageColumns) -> Iterator[tuple[Partition | None, MadeLines]]:
        """The lines in order, of one partition after the other."""
        for partition, rows in self._parts(batch):
            for lines in self._lines.batches(rows):
                yield partition, lines

    def _parts(self, batch: MessageColumns) -> Iterator[tuple[Partition | None, MessageColumns]]:
        if not self._is_parted:
            yield None, batch
            return
        from rmqctl.store.export.partitions import DAY, Partition

        ids, days = batch.topic_id, batch.store_timestamp // DAY
        order = np.lexsort((days, ids))
        changes = np.flatnonzero((np.diff(ids[order]) != 0) | (np.diff(days[order]) != 0)) + 1
        for rows in np.split(order, changes) if batch.rows else ():
            partition = Partition(batch.topic(int(rows[0])), int(days[rows[0]]))
            yield partition, batch if len(rows) == batch.rows else batch.take(rows)
