"""`rmqctl export`: messages into files: Parquet, Arrow, CSV or JSON Lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from formats.errors import UsageError
from rmqctl import exit_codes
from rmqctl.damage import ToldDamage
from rmqctl.options import (
    OFFSET,
    StoreLocation,
    key_option,
    offset_option,
    queue_option,
    store_options,
    summary_options,
    tag_option,
    time_options,
    topic_option,
)

if TYPE_CHECKING:
    from rmqctl.output import Output
    from store.export.export import ExportReport, Format, Target
    from store.read.selection import Selection
    from store.store_files import StoreFiles

_FORMATS = ("parquet", "arrow", "csv", "jsonl")
_TABLES = ("parquet", "arrow")
_OF_PARTITIONS = ("topic", "store_timestamp")


@click.command(
    epilog="""\b
Examples:
  rmqctl export -s /data/store all.parquet
  rmqctl export -s /data/store orders.jsonl -t Orders -b '2h ago'
  rmqctl export -s /data/store lake --partition --columns topic,store_timestamp,keys,body
  rmqctl export -s old all.arrow && rmqctl append -s new --create --from all.arrow --as-stored

The file appears under its name when it is complete. Damage is named on stderr and passed; exit code 1 says that there
was some, or that nothing matched. Parquet and Arrow need pyarrow: pip install 'rmqctl[fast]'."""
)
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@store_options
@click.option("--format", "file_format", type=click.Choice(_FORMATS), help="Format; else what the name of FILE says.")
@click.option("--columns", metavar="NAME,…", help="Only these columns; the names are those of `cat --json`.")
@click.option("--partition", is_flag=True, help="FILE becomes a directory of files by topic and day (UTC).")
@click.option("--compression", type=click.Choice(["zstd", "lz4", "none"]), help="Of Parquet and Arrow; zstd.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@topic_option
@queue_option
@tag_option.but(help="Only messages with this tag, or one of these: 'TagA || TagB'.")
@key_option
@offset_option.but(help="From this physical offset on.")
@click.option("--to", "to_offset", type=OFFSET, metavar="OFFSET", help="Before this physical offset.")
@time_options
@summary_options
def export(
    target: Path,
    store: StoreLocation,
    output: Output,
    file_format: Format | None,
    columns: str | None,
    partition: bool,
    compression: Any,
    overwrite: bool,
    topic: str | None,
    queue_id: int | None,
    tag: str | None,
    key: str | None,
    offset: int | None,
    to_offset: int | None,
    begin: int | None,
    end: int | None,
) -> int:
    """Write messages into files, in the order they were stored.

    Everything of a message is written, so that `append --from` makes the same messages of a Parquet, Arrow or JSON
    Lines file. Timestamps are timestamps, bodies are bytes, unpacked; compressed ones also stand there as stored.
    """
    from rmqctl.opening import open_store
    from store.export.export import Target
    from store.read.message_filter import Criteria
    from store.read.selection import Selection

    to = Target(target, _format(target, file_format, partition), partition, overwrite)
    is_table = to.format in _TABLES
    if compression is not None and not is_table:
        raise click.UsageError(f"--compression goes with parquet and arrow, not with {to.format}")
    if partition and overwrite:
        raise click.UsageError("--overwrite replaces files, not the directory of a partitioned export")
    criteria = Criteria(topic, queue_id, tag, key, begin, end)
    _ = criteria.tag_filter  # a malformed expression is said before anything is opened
    selection = Selection(criteria, offset or 0, to_offset)
    names = [name.strip() for name in columns.split(",") if name.strip()] if columns is not None else None
    if names == []:
        raise click.UsageError("--columns names no column")
    damage = ToldDamage(output)
    with open_store(store) as files:
        if is_table:
            report = _tables(files, selection, names, to, compression or "zstd", damage, output)
        else:
            report = _lines(files, selection, names, to, damage)
    output.record(
        {
            "path": str(target),
            "format": to.format,
            "messages": report.messages,
            "files": report.files,
            "partitions": report.partitions if partition else None,
            "bytes": report.bytes,
            "damaged_spans": damage.count,
        }
    )
    return exit_codes.DAMAGE_OR_NOTHING if damage.count else exit_codes.OK


def _format(target: Path, file_format: Format | None, partition: bool) -> Format:
    from store.export.export import format_of

    if file_format is not None:
        return file_format
    return "parquet" if partition else format_of(target)


def _tables(
    files: StoreFiles,
    selection: Selection,
    names: list[str] | None,
    target: Target,
    compression: Any,
    damage: ToldDamage,
    output: Output,
) -> ExportReport:
    from rmqctl.outcome import version
    from rmqctl.progress import progress
    from store.columns import announce_compilation, speed_notice
    from store.export.export import export_batches, metadata_of
    from store.scan.scan import Scan
    from store.scan.schema import column_names, require_pyarrow

    require_pyarrow()
    wanted = column_names(names)
    read = list(wanted) + [name for name in _OF_PARTITIONS if target.partition and name not in wanted]
    criteria = selection.criteria
    # views keep all that was read for a batch: good for Parquet of whole batches, not for rows out of many
    views = target.format == "parquet" and not target.partition and criteria.matches_all
    scan = Scan(files.log, read, selection.begin, selection.end, criteria=criteria, views=views)
    announce_compilation(output.talk)
    try:
        notice = speed_notice()
        if notice is not None:
            output.talk(notice)
        described = {"columns": list(wanted), "begin": selection.begin, "end": selection.end, **vars_of(criteria)}
        schema = scan.schema.with_metadata(metadata_of(files, version(), described))
        with progress("exporting", _length(files, selection), "bytes") as bar:
            return export_batches(scan.batches(damage, bar.advance), schema, wanted, target, compression)
    finally:
        announce_compilation(None)


def vars_of(criteria: Any) -> dict[str, Any]:
    """What was chosen, for the metadata of the file."""
    names = ("topic", "queue_id", "tags", "key", "begin_time", "end_time")
    return {name: getattr(criteria, name) for name in names if getattr(criteria, name) is not None}


def _length(files: StoreFiles, selection: Selection) -> int:
    """Bytes that will be walked."""
    file = files.log.find(selection.begin)
    start = file.start_offset if file is not None else selection.begin
    end = files.log.max_offset if selection.end is None else min(selection.end, files.log.max_offset)
    return max(0, end - max(start, files.log.min_offset))


def _lines(
    files: StoreFiles, selection: Selection, names: list[str] | None, target: Target, damage: ToldDamage
) -> ExportReport:
    from rmqctl.message_json import ALL_COLUMNS, EXACT_COLUMNS, message_json
    from rmqctl.progress import progress
    from store.export.export import export_records
    from store.read.selection import in_log_order

    known = (*ALL_COLUMNS, *EXACT_COLUMNS)
    for name in names or ():
        if name not in known:
            raise UsageError(f"there is no column {name!r}", hint=f"the columns are {', '.join(known)}")

    def records() -> Iterator[tuple[str, int, dict[str, Any]]]:
        for message in in_log_order(files.log, selection, damage, bar.advance):
            record = message_json(message, stored_body=True)
            if names is not None:
                record = {name: record[name] for name in names if name in record}
            yield message.topic, message.store_timestamp, record

    with progress("exporting", _length(files, selection), "bytes") as bar:
        if target.format == "jsonl":
            return export_records(records(), target, _json_line)
        line_of = _csv_lines(names or list(known))
        return export_records(records(), target, line_of, header=line_of(None))


def _json_line(record: Any) -> str:
    import json

    from rmqctl.sanitise import visible_json

    return visible_json(json.dumps(record, ensure_ascii=False, allow_nan=False)) + "\n"


def _csv_lines(columns: list[str]) -> Callable[[Any], str]:
    """Makes a line of a record, and of None the line of names."""
    import csv
    import io

    from rmqctl.cells import csv_value

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")

    def line_of(record: Any) -> str:
        text.seek(0)
        text.truncate()
        writer.writerow(columns if record is None else [csv_value(record.get(name)) for name in columns])
        return text.getvalue()

    return line_of
