"""`rmqctl export`: messages into files: Parquet, Arrow, CSV or JSON Lines."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from rmqctl.flags.options import (
    StoreLocation,
    as_recovered_option,
    columns_option,
    selection_options,
    store_options,
    summary_options,
    yes_option,
)
from rmqctl.flags.spark_options import SparkChoice, spark_options
from rmqctl.formats.errors import NotFoundError, counted
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import ToldDamage, hidden_by_damage, report_unsearched
from rmqctl.output.output import note_done

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.export.export import ExportReport, Format, Target
    from rmqctl.store.read.select import Selection

_FORMATS = ("parquet", "arrow", "csv", "json", "jsonl")


@click.command(
    epilog="""\b
Examples:
  rmqctl export -s /data/store all.parquet
  rmqctl export -s /data/store orders.jsonl -t Orders -b '2h ago'
  rmqctl export -s /data/store lake --partition --columns topic,store_timestamp,keys,body
  rmqctl export -s /data/store lake --partition --master 'local[*]'
  rmqctl export -s /data/store --what config json    topics, groups and offsets as JSON files, from RocksDB too
  rmqctl export -s old all.arrow && rmqctl append -s new --create --from all.arrow --as-stored

The file appears under its name when it is complete; a link is followed, and devices and pipes are written into. `-` is
standard output: with --format, and the summary is on stderr. Files inside a store are refused.
With --master (Spark) FILE is a directory of files, and one named _SUCCESS; all machines of a cluster have to see it,
and the store. Damage is reported on stderr and skipped. Exit code 1: there was damage, or nothing matched.
Parquet and Arrow need pyarrow, which the extra `fast` brings."""
)
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@store_options
@as_recovered_option
@click.option(
    "--format",
    "file_format",
    type=click.Choice(_FORMATS),
    help="Format; else what the name of FILE says. `json` is JSON Lines, as everywhere.",
)
@click.option(
    "--what",
    type=click.Choice(["messages", "config"]),
    default="messages",
    help="`config`: FILE becomes a directory of topics.json, subscriptionGroup.json and consumerOffset.json.",
)
@columns_option
@click.option("--compacted", is_flag=True, help="As `cat --compacted`.")
@click.option("--partition", is_flag=True, help="FILE becomes a directory of files by topic and day (UTC).")
@click.option("--compression", type=click.Choice(["zstd", "lz4", "none"]), help="Of Parquet and Arrow; zstd.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there: asks, or needs --yes.")
@yes_option
@spark_options
@selection_options("From this physical offset on.", "Before this physical offset.")
@summary_options
def export(
    target: Path,
    store: StoreLocation,
    output: Output,
    file_format: Format | Literal["json"] | None,
    what: str,
    columns: str | None,
    compacted: bool,
    partition: bool,
    compression: Any,
    overwrite: bool,
    yes: bool,
    spark: SparkChoice,
    selection: Selection,
) -> int:
    """Write messages into files, in the order they were stored.

    All fields of a message are written, so that `append --from` restores the same messages from a Parquet, Arrow or
    JSON Lines file. Timestamps are timestamps, bodies are bytes, unpacked; compressed ones are also written as stored.
    """
    if what == "config":
        others = (compacted, partition, compression, columns, overwrite, spark.master)
        if any(others) or file_format not in (None, "json", "jsonl"):
            raise click.UsageError("--what config writes JSON files, and goes with no option of messages")
        return _export_config(target, store, output)
    from rmqctl.exporting import Exporting, export_compacted, export_here, export_on_spark
    from rmqctl.messages.json import column_list
    from rmqctl.opening import open_store
    from rmqctl.output.outcome import require_agreed_file
    from rmqctl.store.export.export import Target, require_target
    from rmqctl.store.files.remote import address_of, as_written, is_address

    chosen_format: Format | None = "jsonl" if file_format == "json" else file_format
    if is_address(target) and (overwrite or spark.master):
        raise click.UsageError("what is at an address is not replaced, and not written by Spark: leave out the flag")
    to = Target(target, _format(target, chosen_format, partition or spark.master is not None), partition, overwrite)
    _check(to, compression, spark, selection if compacted else None)
    names, named = column_list(columns), as_written(target)
    damage = ToldDamage(output)
    with contextlib.ExitStack() as until_written:
        opened = until_written.enter_context(open_store(store))
        if is_address(target):
            from rmqctl.store.files.remote import uploaded

            to = to._replace(path=until_written.enter_context(uploaded(address_of(target))))
            target = to.path
        is_directory = partition or spark.master is not None
        require_target(target, opened.files.layout, overwrite=overwrite, is_directory=is_directory)
        require_agreed_file(target, overwrite, yes)
        wanted = Exporting(selection, names, to, compression or "zstd", damage)
        try:
            if compacted:
                report = export_compacted(opened, wanted)
            elif spark.master is not None:
                report = export_on_spark(spark, opened.files, wanted)
            else:
                report = export_here(opened, wanted, output)
        except NotFoundError as error:
            report_unsearched(selection.criteria, damage)
            lost = opened.files.lost_log()
            if lost is not None:
                raise lost from None
            if damage.count:
                raise hidden_by_damage(damage.count, error) from error
            raise
    _tell(report, to, named, damage, output)
    report_unsearched(selection.criteria, damage)
    return exit_codes.DAMAGE_OR_NOTHING if damage.count else exit_codes.OK


def _check(to: Target, compression: Any, spark: SparkChoice, compacted: Selection | None) -> None:
    """UsageError for options that do not go together. `compacted`: what is chosen of a compacted topic."""
    from rmqctl.store.export.export import TABLES

    is_table = to.format in TABLES
    if compression is not None and not is_table:
        raise click.UsageError(f"--compression goes with parquet and arrow, not with {to.format}")
    if (to.partition or spark.master) and to.overwrite:
        raise click.UsageError("--overwrite replaces files, not the directory of a partitioned export or one on Spark")
    if spark.master and not is_table:
        raise click.UsageError(f"--master writes parquet or arrow, not {to.format}")
    if compacted is None:
        return
    if spark.master or compacted.criteria.topic is None or compacted.begin or compacted.end is not None:
        raise click.UsageError("--compacted writes one topic (-t), without -o, --to and --master")


def _export_config(target: Path, store: StoreLocation, output: Output) -> int:
    from rmqctl.opening import open_store
    from rmqctl.store.export.export import export_config

    with open_store(store) as opened:
        rows = export_config(opened.files, target)
    note_done(f"{counted(len(rows), 'file was', 'files were')} written to {target}", path=str(target))
    output.rows(("file", "entries", "counter", "source"), rows)
    return exit_codes.OK


def _tell(report: ExportReport, to: Target, named: str, damage: ToldDamage, output: Output) -> None:
    """The summary: on stderr where the messages are on standard output."""
    from rmqctl.reports.changes import tell_left_behind
    from rmqctl.store.files.outputs import STANDARD_OUTPUT

    if to.path == STANDARD_OUTPUT:
        output.talk(f"{counted(report.messages, 'message')} in {counted(report.bytes, 'byte')} on standard output")
        return
    what = counted(report.messages, "message was", "messages were")
    note_done(f"{what} written to {named}", path=named, messages=report.messages)
    tell_left_behind(output, to.path.absolute().parent)
    output.record(
        {
            "path": named,
            "format": to.format,
            "messages": report.messages,
            "files": report.files,
            "partitions": report.partitions if to.partition else None,
            "bytes": report.bytes,
            "damaged_spans": damage.count - report.bodies_as_stored,
            "bodies_as_stored": report.bodies_as_stored,
        }
    )


def _format(target: Path, file_format: Format | None, is_directory: bool) -> Format:
    """The format of what is written. UsageError where nothing says it, or where it cannot be."""
    from rmqctl.store.export.export import SUFFIXES, format_of
    from rmqctl.store.files.outputs import STANDARD_OUTPUT

    if target == STANDARD_OUTPUT and is_directory:
        raise click.UsageError("a partitioned export or one on Spark needs a directory, not standard output")
    if target == STANDARD_OUTPUT and file_format is None:
        raise click.UsageError("standard output has no name that says a format: add --format")
    if file_format is not None:
        return file_format
    return SUFFIXES.get(target.suffix.lower(), "parquet") if is_directory else format_of(target)
