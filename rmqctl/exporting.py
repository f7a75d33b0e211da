"""Exports on this machine: messages as record batches into tables, or as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmqctl.formats.errors import UsageError
from rmqctl.store.extras import FAST
from rmqctl.store.read.selection import PLAIN_BYTES, walked_bytes
from rmqctl.store.scan.schema import has_arrow

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.reports.damage import ToldDamage
    from rmqctl.store.export.export import ExportReport, Target
    from rmqctl.store.export.writers import Compression
    from rmqctl.store.read.message_filter import Criteria
    from rmqctl.store.read.selection import Selection
    from rmqctl.store.store_files import StoreFiles

TABLES = ("parquet", "arrow")
_OF_PARTITIONS = ("topic", "store_timestamp")


def export_here(
    files: StoreFiles,
    selection: Selection,
    names: list[str] | None,
    target: Target,
    compression: Compression,
    damage: ToldDamage,
    output: Output,
) -> ExportReport:
    """Write what is selected, of it the columns of these names (None: all). Lines of text are written message by
    message where there is no pyarrow, and of so few messages that loading it takes longer. UsageError for names that
    are none, else as `rmqctl.store.export.export`."""
    is_large = walked_bytes(files.log, selection) > PLAIN_BYTES
    if is_large and target.format not in TABLES and not has_arrow():
        output.talk(f"messages are written one by one because pyarrow is not installed: {FAST}")
        is_large = False
    if target.format in TABLES or is_large:
        return _as_batches(files, selection, names, target, compression, damage, output)
    return _plain_lines(files, selection, names, target, damage)


def _as_batches(
    files: StoreFiles,
    selection: Selection,
    names: list[str] | None,
    target: Target,
    compression: Compression,
    damage: ToldDamage,
    output: Output,
) -> ExportReport:
    from rmqctl.output.progress import progress
    from rmqctl.reports.outcome import version
    from rmqctl.store.export.export import export_batches, metadata_of
    from rmqctl.store.scan.scan import Scan
    from rmqctl.store.scan.schema import column_names, require_pyarrow

    require_pyarrow()
    lines = None
    if target.format in TABLES:
        wanted = column_names(names)
    else:
        from rmqctl.messages.message_lines import MessageLines

        lines = MessageLines(_line_names(names), is_json=target.format == "jsonl")
        wanted = lines.needs
    read = list(wanted) + [name for name in _OF_PARTITIONS if target.partition and name not in wanted]
    criteria = selection.criteria
    # views keep all that was read for a batch: good for Parquet of whole batches, not for rows out of many
    views = target.format == "parquet" and not target.partition and criteria.matches_all
    scan = Scan(files.log, read, selection.begin, selection.end, criteria=criteria, views=views)
    described = description(selection, wanted)
    with progress("exporting", walked_bytes(files.log, selection), "bytes") as bar:
        schema = scan.schema.with_metadata(metadata_of(files, version(), described))
        return export_batches(scan.batches(damage, bar.advance), schema, wanted, target, compression, lines)


def description(selection: Selection, wanted: Sequence[str]) -> dict[str, Any]:
    """What was chosen, for the metadata of the files."""
    chosen = {"columns": list(wanted), "begin": selection.begin, "end": selection.end}
    return {**chosen, **_chosen(selection.criteria)}


def _chosen(criteria: Criteria) -> dict[str, Any]:
    """What was chosen, for the metadata of the file."""
    names = ("topic", "queue_id", "tags", "key", "begin_time", "end_time")
    return {name: getattr(criteria, name) for name in names if getattr(criteria, name) is not None}


def _line_names(names: list[str] | None) -> list[str] | None:
    """The fields asked for; UsageError for a name that is none, or that comes twice."""
    from rmqctl.messages.message_json import ALL_COLUMNS, EXACT_COLUMNS

    known = (*ALL_COLUMNS, *EXACT_COLUMNS)
    for name in names or ():
        if name not in known:
            raise UsageError(f"there is no column {name!r}", hint=f"the columns are {', '.join(known)}")
        if names is not None and names.count(name) > 1:
            raise UsageError(f"column {name!r} is asked for twice")
    return names


def _plain_lines(
    files: StoreFiles, selection: Selection, names: list[str] | None, target: Target, damage: ToldDamage
) -> ExportReport:
    from rmqctl.messages.message_json import ALL_COLUMNS, EXACT_COLUMNS, message_json
    from rmqctl.output.lines import csv_lines, json_line
    from rmqctl.output.progress import progress
    from rmqctl.store.export.export import export_records
    from rmqctl.store.read.selection import in_log_order

    names = _line_names(names)

    def records() -> Iterator[tuple[str, int, dict[str, Any]]]:
        for message in in_log_order(files.log, selection, damage, bar.advance):
            record = message_json(message, stored_body=True)
            if names is not None:
                record = {name: record[name] for name in names if name in record}
            yield message.topic, message.store_timestamp, record

    with progress("exporting", walked_bytes(files.log, selection), "bytes") as bar:
        if target.format == "jsonl":
            return export_records(records(), target, json_line)
        line_of = csv_lines(names or [*ALL_COLUMNS, *EXACT_COLUMNS])
        return export_records(records(), target, line_of, header=line_of(None))
