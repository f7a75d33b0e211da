"""Exports: messages that come as record batches or as records into one file, or into files by topic and day."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import NotFoundError, UsageError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.notebook import as_html
from rmqctl.store.config.config_database import GROUPS, LMQ_OFFSETS, OFFSETS, TOPICS, table_of
from rmqctl.store.config.config_files import load_config
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.outputs import OutputFile, check_output_place, new_directory, new_file, require_new_file
from rmqctl.store.log.walk import walk
from rmqctl.store.options import Events
from rmqctl.store.read.select import Selection
from rmqctl.store.scan.schema import column_names, require_pyarrow
from rmqctl.store.status import version
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.store.export.partitions import LinesOfWalk, Partition, PartWriter
    from rmqctl.store.export.writers import Compression, TableWriter

Format = Literal["parquet", "arrow", "csv", "jsonl"]

SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_SUFFIX_OF: dict[Format, str] = {"parquet": ".parquet", "arrow": ".arrow", "csv": ".csv", "jsonl": ".jsonl"}
SCHEMA_VERSION = "1"
_FOUND_AT_ONCE = 256
_Item = TypeVar("_Item")
LineRecord = Mapping[str, Any]


class LineWriter:
    """Records as lines, behind an optional first line."""

    pending_bytes = 0

    def __init__(self, output: OutputFile, line_of: Callable[[LineRecord], str], header: str = "") -> None:
        """`line_of` makes the line of a record, its line end included."""
        self._output = output
        self._line_of = line_of
        self._output.write(header.encode("utf-8"))

    def write(self, record: LineRecord) -> None:
        """Write one record."""
        self._output.write(self._line_of(record).encode("utf-8"))

    def flush(self) -> None:
        """Nothing is gathered here."""

    def close(self) -> None:
        """Nothing is left."""


class Lines(Protocol):
    """Makes lines of text of a batch; `header` begins every file."""

    @property
    def header(self) -> str: ...

    def lines(self, batch: pa.RecordBatch) -> memoryview: ...


class Target(NamedTuple):
    """Where to: a file, or with `partition` a directory that is not there yet or empty."""

    path: Path
    format: Format
    partition: bool = False
    overwrite: bool = False


@dataclass(slots=True)
class ExportReport:
    """What was written. `bytes`: of the files; `bodies_as_stored`: bodies that do not unpack."""

    _repr_html_ = as_html

    messages: int = 0
    bodies_as_stored: int = 0
    files: int = 0
    partitions: int = 0
    bytes: int = 0


def format_of(path: Path) -> Format:
    """The format that a file's name says; UsageError if it says none."""
    found = SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise UsageError(f"the name {path.name!r} says no format", hint=f"end it with one of {', '.join(SUFFIXES)}")
    return found


def store_identity(files: StoreFiles) -> dict[str, Any]:
    """Which store this is: its path, the range of its commitlog, and the id and time of its first message.

    A broker writes its name nowhere into a store; host and time of the first message tell stores apart.
    """
    record = next(walk(files.log), None)
    first = record if isinstance(record, StoredMessage) else None
    return {
        "path": files.place,
        "min_offset": max(files.log.min_offset, 0),
        "max_offset": files.log.max_offset,
        "first_message_id": first.message_id if first else None,
        "first_store_timestamp": first.store_timestamp if first else None,
    }


def metadata_of(files: StoreFiles, version: str, selection: Mapping[str, Any]) -> dict[str, str]:
    """What every exported file says about itself, as key-value metadata of its schema."""
    return {
        "rmqctl.schema": SCHEMA_VERSION,
        "rmqctl.version": version,
        "rmqctl.store": json.dumps(store_identity(files), ensure_ascii=False),
        "rmqctl.selection": json.dumps(dict(selection), ensure_ascii=False),
    }


def export_batches(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    columns: Sequence[str],
    target: Target,
    compression: Compression = "zstd",
    lines: Lines | None = None,
) -> ExportReport:
    """Write batches of `schema` (with metadata) as Parquet or Arrow IPC, or as `lines`; of them `columns` only.

    A partitioned export needs batches with topic and store_timestamp. NotFoundError, and no file, if there is nothing
    to write; RefusedError, WriteFailedError.
    """
    import pyarrow as pa

    from rmqctl.store.export.partitions import Partitions, partitioned
    from rmqctl.store.export.writers import BlockThread, IpcWriter, ParquetWriter, TextWriter, only

    written = pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
    report = ExportReport()

    def writer(output: OutputFile) -> TableWriter:
        if lines is not None:
            return TextWriter(output, lines.lines, lines.header, thread)
        kind = ParquetWriter if target.format == "parquet" else IpcWriter
        return kind(output, written, compression, thread)

    if not target.partition:
        with new_file(target.path, target.overwrite) as output, BlockThread() as thread:
            single = writer(output)
            for batch in batches:
                report.messages += batch.num_rows
                single.write(only(batch, columns))
            single.close()
            _require_some(report)
            report.files, report.bytes = 1, output.tell()
        return report
    with new_directory(target.path) as root, BlockThread() as thread:
        parts = Partitions(root, _SUFFIX_OF[target.format], writer)
        try:
            for batch in batches:
                report.messages += batch.num_rows
                for partition, rows in partitioned(batch):
                    parts.write(partition, only(rows, columns))
                parts.limit_memory()
            parts.close()
        finally:
            parts.abandon()
        _require_some(report)
        report.files, report.bytes, report.partitions = parts.files, parts.bytes, parts.count
    return report


def export_records(
    records: Iterable[tuple[str, int, LineRecord]],
    target: Target,
    line_of: Callable[[LineRecord], str],
    header: str = "",
) -> ExportReport:
    """Write records as lines of text: `line_of` makes a line, line end included; `header` begins every file.

    Each comes with its topic and its store time in ms. Errors as in export_batches; needs no pyarrow.
    """
    report = ExportReport()

    def writer(output: OutputFile) -> LineWriter:
        return LineWriter(output, line_of, header)

    def told() -> Iterator[tuple[Partition | None, LineRecord]]:
        for _, _, record in records:
            report.messages += 1
            yield None, record

    def parted() -> Iterator[tuple[Partition | None, LineRecord]]:
        from rmqctl.store.export.partitions import DAY, Partition

        for topic, store_timestamp, record in records:
            report.messages += 1
            yield Partition(topic, store_timestamp // DAY), record

    return _written(report, target, writer, parted() if target.partition else told())


def _written(
    report: ExportReport,
    target: Target,
    writer: Callable[[OutputFile], PartWriter[_Item]],
    items: Iterator[tuple[Partition | None, _Item]],
) -> ExportReport:
    """Write items that make lines into one file, or each into that of its partition; `items` count the messages."""
    if not target.partition:
        with new_file(target.path, target.overwrite) as output:
            single = writer(output)
            for _, item in items:
                single.write(item)
            single.close()
            _require_some(report)
            report.files, report.bytes = 1, output.tell()
        return report
    from rmqctl.store.export.partitions import Partitions

    with new_directory(target.path) as root:
        parts = Partitions(root, _SUFFIX_OF[target.format], writer)
        try:
            for partition, item in items:
                assert partition is not None
                parts.write(partition, item)
            parts.close()
        finally:
            parts.abandon()
        _require_some(report)
        report.files, report.bytes, report.partitions = parts.files, parts.bytes, parts.count
    return report


def _require_some(report: ExportReport) -> None:
    if not report.messages:
        raise NotFoundError("no message matched: nothing was written")


# An export of what is selected of a store: a scan, written as tables or as lines of text.

TABLES = ("parquet", "arrow")
_OF_PARTITIONS = ("topic", "store_timestamp")
_OF_BODIES = ("physical_offset", "body_error")


class LinesOfColumns(Lines, Protocol):
    """Makes lines of text of the Arrow columns that it names."""

    @property
    def needs(self) -> Sequence[str]: ...


def require_target(target: Path, layout: StoreLayout, *, overwrite: bool, is_directory: bool) -> None:
    """RefusedError for a place where nothing may be written, or where something is already."""
    if is_directory:
        check_output_place(target, layout)
    else:
        require_new_file(target, overwrite, layout)


def export_selected(
    files: StoreFiles,
    target: Target,
    selection: Selection,
    events: Events = Events(),
    columns: Sequence[str] | None = None,
    compression: Compression = "zstd",
    lines: LinesOfColumns | LinesOfWalk | None = None,
) -> ExportReport:
    """Write the messages of `selection`, in the order they were stored, as Parquet or Arrow with these columns (None:
    all), or as `lines` of text, which name their columns themselves.

    Damage is reported and skipped; where nothing takes it the first is raised, and there is no file. A body that does
    not unpack is written as stored, reported and counted. UsageError for a text format without `lines`, for a table
    with them and for an unknown column; UnsupportedError without pyarrow; RefusedError for a target that exists or is
    inside a store; NotFoundError if no message matched; WriteFailedError.
    """
    if (target.format in TABLES) != (lines is None):
        if lines is None:
            raise UsageError(
                f"{target.format} is text: something has to make lines of messages",
                hint="give `lines`, such as rmqctl.messages.text.MessageLines",
            )
        raise UsageError(f"lines of text are no {target.format}")
    require_target(target.path, files.layout, overwrite=target.overwrite, is_directory=target.partition)
    if lines is not None and isinstance(lines.needs, int):
        return _export_walked(files, target, selection, lines, events)
    require_pyarrow()
    from rmqctl.store.scan.scan import Scan

    wanted = column_names(columns) if lines is None else tuple(lines.needs)
    read = _columns_read(wanted, target)
    # views keep all that was read for a batch: good for Parquet of whole batches, not for rows out of many
    views = target.format == "parquet" and not target.partition and selection.criteria.matches_all
    scan = Scan(files.log, read, selection.begin, selection.end, criteria=selection.criteria, views=views)
    schema = scan.schema.with_metadata(metadata_of(files, version(), description(selection, wanted)))
    batches = scan.batches(Events(events.progress, events.damage))
    return _export_reporting(batches, schema, wanted, target, events, compression, lines)


def _export_reporting(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    columns: Sequence[str],
    target: Target,
    events: Events,
    compression: Compression,
    lines: Lines | None = None,
) -> ExportReport:
    """Write batches, and report the bodies that did not unpack."""
    from rmqctl.store.scan.batches import bodies_not_unpacked

    bad = 0

    def reported() -> Iterator[pa.RecordBatch]:
        nonlocal bad
        for batch in batches:
            for error in bodies_not_unpacked(batch):
                bad += 1
                if events.damage is not None:
                    events.damage(error)
            yield batch

    report = export_batches(reported(), schema, columns, target, compression, lines)
    report.bodies_as_stored = bad
    return report


def _columns_read(wanted: Sequence[str], target: Target) -> list[str]:
    """Return the columns that are needed to write those that are wanted, which come first."""
    read = [*wanted, *(name for name in _OF_PARTITIONS if target.partition and name not in wanted)]
    return [*read, *(name for name in _OF_BODIES if "body" in wanted and name not in read)]


def export_found(
    files: StoreFiles,
    found: Iterator[StoredMessage],
    target: Target,
    selection: Selection,
    events: Events = Events(),
    columns: Sequence[str] | None = None,
    compression: Compression = "zstd",
) -> ExportReport:
    """Write messages as they are found, as a table with these columns (None: all). `selection`: what was looked for.
    Errors as for `export_selected`."""
    require_pyarrow()
    from rmqctl.store.log.columns import TopicIds, batch_of
    from rmqctl.store.native.tables import Columns
    from rmqctl.store.scan.batches import BatchMaker
    from rmqctl.store.scan.schema import needed

    wanted = column_names(columns)
    maker, topics = BatchMaker(_columns_read(wanted, target), views=False), TopicIds()
    groups = needed(maker.names) | Columns.BYTES

    def batches() -> Iterator[pa.RecordBatch]:
        while some := list(itertools.islice(found, _FOUND_AT_ONCE)):
            yield from maker.batches(batch_of(some, files.log, topics, groups))

    schema = maker.schema.with_metadata(metadata_of(files, version(), description(selection, wanted)))
    return _export_reporting(batches(), schema, wanted, target, events, compression)


def _export_walked(
    files: StoreFiles, target: Target, selection: Selection, lines: LinesOfWalk, events: Events
) -> ExportReport:
    """Write lines that are made while the log is walked."""
    from rmqctl.store.export.partitions import PartedLines, TextFile
    from rmqctl.store.scan.chosen import scan_made

    report = ExportReport()
    maker = PartedLines(lines, target.partition)

    def told() -> Iterator[tuple[Partition | None, memoryview]]:
        for partition, some in scan_made(files.log, selection, maker.needs, maker, events):
            report.messages += some.rows
            report.bodies_as_stored += len(some.damage)
            for _, error in some.damage:
                if events.damage is not None:
                    events.damage(error)
            yield partition, some.text

    return _written(report, target, TextFile, told())


def description(selection: Selection, wanted: Sequence[str]) -> dict[str, Any]:
    """What was chosen, for the metadata of the files."""
    given = selection.criteria.described()
    return {"columns": list(wanted), "begin": selection.begin, "end": selection.end, **given}


# Topics, groups and offsets as the JSON files of a broker, from where the store keeps the valid ones
def export_config(files: StoreFiles, target: Path) -> list[dict[str, Any]]:
    """Make the directory `target` with topics.json, subscriptionGroup.json and consumerOffset.json of the tables that a
    broker of this store has, in RocksDB or JSON; a broker that keeps its configuration in JSON starts with them.

    Return a row for each file: `file`, `entries`, the data version's `counter`, and the `source` that it is from. Only
    files that a broker has no table for are left out. NotFoundError without one; CorruptError, UncertainError and
    UnreadableError for a table that cannot be read: no file is written then.
    """
    names = [TOPICS, GROUPS, OFFSETS, *([LMQ_OFFSETS] if files.config.enable_lmq else [])]
    found = {name: load_config(files.layout.config / name) for name in names}
    rows, texts = [], {}
    for name, loaded in found.items():
        if loaded is None or not isinstance(loaded.content, dict):
            continue
        table, version = loaded.content.get(table_of(name)), loaded.content.get("dataVersion")
        counter = version.get("counter") if isinstance(version, dict) else None
        entries = len(table) if isinstance(table, dict) else 0
        rows.append({"file": name, "entries": entries, "counter": counter, "source": str(loaded.source)})
        texts[name] = format_config_json(loaded.content).encode("utf-8")
    if not rows:
        raise NotFoundError("there are no topics, groups or offsets", file=files.layout.config)
    with new_directory(target, files.layout) as staging:
        for name, text in texts.items():
            io.write_whole(staging / name, text)
    return rows
