"""Exports messages by tasks: they write attempts, the driver gives those that count their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError
from rmqctl.pipeline.engine import Engine, attempt, scratch_folder
from rmqctl.pipeline.exchange import ShuffleReader, ShuffleWriter, bucket_of
from rmqctl.pipeline.queue_pruning import split_batches
from rmqctl.pipeline.splits import Split, run_over_splits
from rmqctl.store.export.export import ExportReport, Target, description, metadata_of
from rmqctl.store.export.partitions import Partition, partitioned
from rmqctl.store.export.writers import Compression, InlineBlocks, IpcWriter, ParquetWriter, TableWriter, only
from rmqctl.store.files import io
from rmqctl.store.files.outputs import OutputFile, new_directory, staging_of
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.options import Events
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.row_filter import RowChooser
from rmqctl.store.read.select import Selection
from rmqctl.store.scan.schema import arrow_schema, column_names, require_pyarrow
from rmqctl.store.status import version
from rmqctl.store.store_files import StoreFiles

# An export's workers: a split into files of its own, or sorted by topic and day; then what is small put together.

# In memory: from this many bytes of one split on a partition gets a file of its own; smaller ones are put together
# into files of about COMPACTED.
OWN_FILE = 32 * 1024 * 1024
COMPACTED = 128 * 1024 * 1024
# what a task gathers of small partitions before it puts it aside
_GATHERED = 96 * 1024 * 1024
_EVERYTHING = Selection()
_NEEDED = ("topic", "store_timestamp")


class ExportOrder(NamedTuple):
    """What all tasks of an export know. `scratch`: a folder that all machines see. Picklable."""

    columns: tuple[str, ...]
    criteria: Criteria
    is_parquet: bool
    compression: Compression
    metadata: Mapping[str, str]
    scratch: str
    buckets: int

    @property
    def suffix(self) -> str:
        """What the names of the files end with."""
        return ".parquet" if self.is_parquet else ".arrow"

    def schema(self, views: bool) -> pa.Schema:
        """That of the files."""
        metadata = {name.encode("utf-8"): value.encode("utf-8") for name, value in self.metadata.items()}
        return arrow_schema(self.columns, views).with_metadata(metadata)


class MadeFile(NamedTuple):
    """A complete file: `attempt` is its place in the scratch folder, `path` that in the target."""

    attempt: str
    path: str
    rows: int
    size: int


class SplitExport(NamedTuple):
    """What came of a split: its file (None without messages, and where it is sorted) or what it puts aside.

    `damages`: with messages that may be meant; `bodies`: those that are in the file as stored."""

    messages: int
    damages: list[CorruptError]
    bodies: list[CorruptError]
    made: MadeFile | None = None
    aside: str | None = None


class _File:
    """A file of batches, complete once it is finished."""

    def __init__(self, order: ExportOrder, name: str, schema: pa.Schema) -> None:
        self.path = attempt(Path(order.scratch), name)
        self.rows = 0
        self._output = OutputFile(self.path)
        kind = ParquetWriter if order.is_parquet else IpcWriter
        self._writer: TableWriter = kind(self._output, schema, order.compression, InlineBlocks())

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._writer.write(batch)

    def finish(self, path: str) -> MadeFile:
        self._writer.close()
        self._output.finish()
        return MadeFile(self.path.name, path, self.rows, self._output.size)

    def abandon(self) -> None:
        self._output.abandon()


def export_split(order: ExportOrder, files: StoreFiles, split: Split) -> SplitExport:
    """Task: the messages of a split as one file."""
    views = order.is_parquet and order.criteria.matches_all
    damages: list[CorruptError] = []
    bodies: list[CorruptError] = []
    file: _File | None = None
    chooser = RowChooser(order.criteria, split.begin)
    try:
        for batch in split_batches(
            files, split, order.columns, chooser, Events(damage=damages.append), bodies.append, views=views
        ):
            file = file or _File(order, "split", order.schema(views))
            file.write(batch)
        if file is None:
            return SplitExport(0, _with_unsearched(order, damages), bodies)
        return SplitExport(file.rows, _with_unsearched(order, damages), bodies, file.finish(""))
    finally:
        if file is not None:
            file.abandon()


def sort_split(order: ExportOrder, files: StoreFiles, split: Split) -> SplitExport:
    """Task: the messages of a split by topic and day, put aside for `compact`."""
    names = [*order.columns, *(name for name in _NEEDED if name not in order.columns)]
    damages: list[CorruptError] = []
    bodies: list[CorruptError] = []
    sorting = _Sorting(order)
    chooser = RowChooser(order.criteria, split.begin)
    try:
        for batch in split_batches(files, split, names, chooser, Events(damage=damages.append), bodies.append):
            for partition, rows in partitioned(batch):
                sorting.add(partition, of_one_topic(only(rows, order.columns), partition.topic))
        return SplitExport(sorting.rows, _with_unsearched(order, damages), bodies, aside=sorting.finish())
    finally:
        sorting.close()


def _with_unsearched(order: ExportOrder, damages: list[CorruptError]) -> list[CorruptError]:
    """Return the damage of a split, with the messages that may be meant."""
    return [*damages, *order.criteria.unsure_errors()]


def of_one_topic(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """The batch, of which all messages are of `topic`, with a dictionary of that topic only: so that the batches of a
    file agree, whichever tasks they come from."""
    place = batch.schema.get_field_index("topic")
    if place < 0:
        return batch
    indices = pa.array(np.zeros(batch.num_rows, np.int32))
    column = pa.DictionaryArray.from_arrays(indices, pa.array([topic], pa.string()))
    return batch.set_column(place, batch.schema.field(place), column)


class _Sorting:
    """Batches by partition: small ones are gathered and put aside, large ones become files."""

    def __init__(self, order: ExportOrder) -> None:
        self.rows = 0
        self._order = order
        self._schema = order.schema(views=False)
        self._aside = ShuffleWriter(attempt(Path(order.scratch), "aside"), order.buckets)
        self._pending: dict[Partition, list[pa.RecordBatch]] = {}
        self._bytes: dict[Partition, int] = {}
        self._gathered = 0
        self._files: dict[Partition, _File] = {}

    def add(self, partition: Partition, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        file = self._files.get(partition)
        if file is not None:
            file.write(batch)
            return
        self._pending.setdefault(partition, []).append(batch)
        size = self._bytes[partition] = self._bytes.get(partition, 0) + batch.nbytes
        self._gathered += batch.nbytes
        if size >= OWN_FILE:
            file = self._files[partition] = _File(self._order, "split", self._schema)
            for one in self._take(partition):
                file.write(one)
        elif self._gathered >= _GATHERED:
            self._put_aside()

    def _take(self, partition: Partition) -> list[pa.RecordBatch]:
        self._gathered -= self._bytes.pop(partition)
        return self._pending.pop(partition)

    def _put_aside(self) -> None:
        for partition in sorted(self._pending):
            size = self._bytes[partition]
            table = pa.Table.from_batches(self._take(partition)).combine_chunks()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
            self._put(partition, [size], [sink.getvalue().to_pybytes()])

    def _put(self, partition: Partition, rest: Sequence[object], data: Sequence[bytes] = ()) -> None:
        bucket = bucket_of(f"{partition.day} {partition.topic}", self._order.buckets)
        self._aside.put(bucket, [partition.topic, partition.day, *rest], data)

    def finish(self) -> str:
        """Everything is on the disk; the name of what was put aside."""
        self._put_aside()
        for partition, file in sorted(self._files.items()):
            made = file.finish("")
            self._put(partition, [made.attempt, made.rows, made.size])
        self._aside.finish()
        return self._aside.path.name

    def close(self) -> None:
        """Let go of all files."""
        self._aside.close()
        for file in self._files.values():
            file.abandon()


def compact(order: ExportOrder, asides: Sequence[str], bucket: int) -> list[MadeFile]:
    """Task: the files of the partitions of a bucket, from what all splits put aside, in their order."""
    found: dict[Partition, list[tuple[ShuffleReader, list[object], int, int]]] = {}
    with Descriptors() as descriptors:
        for name in asides:
            reader = ShuffleReader(Path(order.scratch, name), order.buckets, descriptors)
            for (topic, day, *rest), position, length in reader.entries(bucket):
                found.setdefault(Partition(topic, day), []).append((reader, rest, position, length))
        made: list[MadeFile] = []
        for partition in sorted(found):
            made += _compacted(order, partition, found.pop(partition))
    return made


def _compacted(
    order: ExportOrder, partition: Partition, entries: Sequence[tuple[ShuffleReader, list[object], int, int]]
) -> Iterator[MadeFile]:
    """The files of a partition, numbered in the order of the log."""
    number = gathered = 0
    file: _File | None = None

    def path() -> str:
        return str(partition.directory / f"part-{number}{order.suffix}")

    try:
        for reader, rest, position, length in entries:
            is_file = len(rest) > 1
            if file is not None and (is_file or gathered >= COMPACTED):
                yield file.finish(path())
                file, gathered, number = None, 0, number + 1
            if is_file:
                name, rows, size = rest
                yield MadeFile(str(name), path(), int(str(rows)), int(str(size)))
                number += 1
                continue
            file = file or _File(order, "compacted", order.schema(views=False))
            gathered += int(str(rest[0]))
            for batch in pa.ipc.open_stream(reader.read(position, length)):
                file.write(batch)
        if file is not None:
            yield file.finish(path())
    finally:
        if file is not None:
            file.abandon()


SUCCESS = "_SUCCESS"
"""An empty file that marks such a directory as complete for its readers."""

SPLIT_SIZE = 256 * 1024 * 1024
"""Bytes of the log a task, and so a file: larger than elsewhere, because every file costs its writers and readers."""

# bytes of the log for each bucket of partitions: what one task of the second step puts together
_BUCKET = 256 * 1024 * 1024
_MOST_BUCKETS = 1024


def export_with(
    engine: Engine,
    files: StoreFiles,
    target: Target,
    selection: Selection = _EVERYTHING,
    events: Events = Events(),
    columns: Sequence[str] | None = None,
    compression: Compression = "zstd",
    split_size: int = SPLIT_SIZE,
) -> ExportReport:
    """Write the messages of `selection` into a new directory.

    Its files are `part-NNNNN` in the log's order, or with `partition` `topic=…/day=…/part-N`, where a small topic is
    one file; Parquet or Arrow IPC; and `_SUCCESS`. The same bytes from every engine. Damage is reported and skipped.
    The target has to be on a file system that all machines see.
    NotFoundError, and no directory, if nothing matches; UsageError, RefusedError, WriteFailedError.
    """
    require_pyarrow()
    names = column_names(columns)
    _ = selection.criteria.tag_filter  # a malformed expression is said before anything starts
    if target.path.name in ("", ".", ".."):
        raise UsageError("the export needs the name of a new directory", file=target.path)
    path = target.path.absolute()
    metadata = metadata_of(files, version(), description(selection, names))
    length = max(0, files.log.max_offset - max(files.log.min_offset, 0))
    buckets = min(_MOST_BUCKETS, -(-length // _BUCKET) or 1)
    scratch_path = staging_of(path).with_name(staging_of(path).name + "-scratch")
    report = ExportReport()
    with new_directory(path, files.layout) as root, scratch_folder(scratch_path) as scratch:
        is_parquet = target.format == "parquet"
        order = ExportOrder(names, selection.criteria, is_parquet, compression, metadata, str(scratch), buckets)
        task = partial(sort_split if target.partition else export_split, order)
        results = run_over_splits(
            engine,
            "export",
            task,
            files,
            split_size=split_size,
            begin=selection.begin or None,
            end=selection.end,
            events=events,
        )
        for result in results:
            report.messages += result.messages
            report.bodies_as_stored += len(result.bodies)
            if events.damage is not None:
                for damage in (*result.damages, *result.bodies):
                    events.damage(damage)
        if not report.messages:
            raise NotFoundError("no message matched: nothing was written")
        made = _sorted(engine, order, results) if target.partition else _numbered(order, results)
        _install(scratch, root, made, report)
        report.partitions = len({Path(one.path).parent for one in made}) if target.partition else 0
        io.create_file(root / SUCCESS, 0)
    return report


def _numbered(order: ExportOrder, results: Iterable[SplitExport]) -> list[MadeFile]:
    made = [result.made for result in results if result.made is not None]
    return [one._replace(path=f"part-{number:05d}{order.suffix}") for number, one in enumerate(made)]


def _sorted(engine: Engine, order: ExportOrder, results: Iterable[SplitExport]) -> list[MadeFile]:
    asides = [result.aside for result in results if result.aside is not None]
    task = partial(compact, order, asides)
    return [one for made in engine.run("export: putting together", task, range(order.buckets)) for one in made]


def _install(scratch: Path, root: Path, made: Iterable[MadeFile], report: ExportReport) -> None:
    """Give the files their places; they are on the disk already."""
    for one in made:
        path = root / one.path
        io.make_directories(path.parent)
        io.rename(scratch / one.attempt, path)
        report.files += 1
        report.bytes += one.size
