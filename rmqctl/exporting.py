"""Exports: on this machine, messages as record batches into tables or as lines of text; or as tasks of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.messages.json import ALL_COLUMNS, EXACT_COLUMNS, JSON_ORDER, known_columns, message_json
from rmqctl.store.export.export import TABLES, export_found, export_records
from rmqctl.store.native import is_compiled
from rmqctl.store.options import Events
from rmqctl.store.read.select import PLAIN_BYTES, walked_bytes
from rmqctl.store.scan.schema import has_arrow, require_pyarrow
from rmqctl.store.status import FAST

if TYPE_CHECKING:
    from rmqctl.flags.spark_options import SparkChoice
    from rmqctl.formats.message import StoredMessage
    from rmqctl.messages.json_columns import JsonColumns
    from rmqctl.messages.text import MessageLines
    from rmqctl.output.outcome import ToldDamage
    from rmqctl.output.output import Output
    from rmqctl.store.export.export import ExportReport, Target
    from rmqctl.store.export.writers import Compression
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.read.select import Selection
    from rmqctl.store.store_files import StoreFiles


class Exporting(NamedTuple):
    """Which messages are written where, of them the columns of these names (None: all)."""

    selection: Selection
    names: list[str] | None
    target: Target
    compression: Compression
    damage: ToldDamage


def export_here(store: MessageStore, wanted: Exporting, output: Output) -> ExportReport:
    """Write what is wanted. Lines of text are written message by message where there is no pyarrow, and of so few
    messages that loading it takes longer. UsageError for unknown names, else as `rmqctl.store.export.export`."""
    is_large = walked_bytes(store.files.log, wanted.selection) > PLAIN_BYTES
    is_table = wanted.target.format in TABLES
    if wanted.target.format == "jsonl":
        return (_as_batches if is_compiled() else _plain_lines)(store, wanted)
    if is_large and not is_table and not has_arrow():
        output.talk(f"messages are written one by one because pyarrow is not installed: {FAST}")
        is_large = False
    return (_as_batches if is_table or is_large else _plain_lines)(store, wanted)


def _as_batches(store: MessageStore, wanted: Exporting) -> ExportReport:
    from rmqctl.opening import selected_bytes
    from rmqctl.output.terminal import progress

    selection, names, target, compression, damage = wanted
    lines: JsonColumns | MessageLines | None = None
    if target.format == "jsonl":
        from rmqctl.messages import json_columns

        lines = json_columns.JsonColumns(known_columns(names) or JSON_ORDER)
    elif target.format not in TABLES:
        from rmqctl.messages import text

        lines = text.MessageLines(known_columns(names))
    with progress("exporting", selected_bytes(store.files, selection), "bytes") as bar:
        return store.export(
            target,
            selection.criteria,
            selection.begin,
            selection.end,
            columns=names if lines is None else None,
            compression=compression,
            lines=lines,
            events=Events(progress=bar.advance, damage=damage),
        )


def _plain_lines(store: MessageStore, wanted: Exporting) -> ExportReport:
    from rmqctl.opening import selected_bytes
    from rmqctl.output.terminal import progress

    criteria, begin, end = wanted.selection
    with progress("exporting", selected_bytes(store.files, wanted.selection), "bytes") as bar:
        found = store.messages(criteria, begin, end, events=Events(progress=bar.advance, damage=wanted.damage))
        return _lines_of(found, wanted)


def export_compacted(store: MessageStore, wanted: Exporting) -> ExportReport:
    """Write the newest message of each key of a compacted topic. Errors as for `newest_messages`, and UsageError for
    names that are none."""
    from rmqctl.store.read.compacted import newest_messages

    criteria = wanted.selection.criteria
    assert criteria.topic is not None
    newest = newest_messages(store.files, criteria.topic, criteria.queue_id, Events(damage=wanted.damage))
    found = filter(criteria.matches, newest)
    if wanted.target.format not in TABLES:
        return _lines_of(found, wanted)
    events = Events(damage=wanted.damage)
    return export_found(store.files, found, wanted.target, wanted.selection, events, wanted.names, wanted.compression)


def _lines_of(found: Iterator[StoredMessage], wanted: Exporting) -> ExportReport:
    from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
    from rmqctl.formats.message import unread_body_error
    from rmqctl.output.output import csv_lines, json_line

    target, names = wanted.target, known_columns(wanted.names)
    shows_bodies = names is None or any(name.startswith("body") for name in names)
    bad = 0

    def records() -> Iterator[tuple[str, int, dict[str, Any]]]:
        nonlocal bad
        for message in found:
            error = unread_body_error(message) if shows_bodies and message.sys_flag & SYS_FLAG_COMPRESSED else None
            if error is not None:
                bad += 1
                wanted.damage(error)
            record = message_json(message, stored_body=True)
            if names is not None:
                record = {name: record[name] for name in names if name in record}
            yield message.topic, message.store_timestamp, record

    if target.format == "jsonl":
        report = export_records(records(), target, json_line)
    else:
        line_of = csv_lines(names or [*ALL_COLUMNS, *EXACT_COLUMNS])
        report = export_records(records(), target, line_of, header=line_of(None))
    report.bodies_as_stored = bad
    return report


def export_on_spark(spark: SparkChoice, files: StoreFiles, wanted: Exporting) -> ExportReport:
    """Write what is wanted as tasks of Spark, into a directory of files."""
    from rmqctl.flags.spark_options import job_engine
    from rmqctl.opening import selected_bytes
    from rmqctl.output.terminal import progress
    from rmqctl.pipeline.jobs.export import export_with

    require_pyarrow()
    selection, names, target, compression, damage = wanted
    total = selected_bytes(files, selection)
    with job_engine(spark) as engine, progress("exporting", total, "bytes") as bar:
        return export_with(engine, files, target, selection, Events(bar.advance, damage), names, compression)
