"""`rmqctl du`: disk usage of a store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import StoreLocation, limit_option, output_options, store_options, topics_options
from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError, counted, format_time
from rmqctl.output import outcome as exit_codes
from rmqctl.output.table import said, said_title
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.info.counts import LogCells, SizeHistory
    from rmqctl.store.info.info import StoreUsage
    from rmqctl.store.read.filter import TopicFilter

_TOPIC_COLUMNS = ("topic", "messages", "bytes", "share", "queue_files", "queue_bytes", "queue_on_disk_bytes")
_DROPPABLE = ("queue_files", "queue_bytes", "queue_on_disk_bytes")
_DAY_COLUMNS = (
    "day",
    "log_files",
    "log_bytes",
    "log_total_bytes",
    "index_files",
    "index_bytes",
    "cleaned_bytes",
    "kept_bytes",
)
_PART_COLUMNS = ("part", "files", "bytes", "on_disk_bytes")


@click.command(
    epilog="""\b
Examples:
  rmqctl du -s /data/store                  the largest topics first, then log, queues, index and the rest
  rmqctl du -s /data/store --quick          from the queues alone, without reading the log
  rmqctl du -s /data/store -t 'Order*' -n 5
  rmqctl du -s /data/store --json | jq '.topics[0]'
  rmqctl du -s /data/store --map            where the log holds messages, damage or nothing
  rmqctl du -s /data/store --history        by day: files begun, files cleaned, what changes keep

"On disk" is the space that a file takes: RocketMQ creates files at their full size, and unwritten parts may be
holes. Exit code 1: damaged bytes belong to no topic and are counted; with --quick, the queues lag the log."""
)
@store_options
@topics_options
@click.option("--quick", is_flag=True, help="Do not read the log; sizes come from the queues.")
@click.option("--map", "shows_map", is_flag=True, help="Show where the log holds messages, damage or nothing.")
@click.option("--history", is_flag=True, help="Show by day which files were begun and what was removed.")
@limit_option.but(help="Show only the N largest topics.")
@output_options
def du(
    store: StoreLocation,
    output: Output,
    *,
    topics: TopicFilter,
    quick: bool,
    shows_map: bool,
    history: bool,
    limit: int | None,
) -> int:
    """Show disk usage of a store.

    Topics by size and share of the log; then log, queues, index and other files, by size and by space on disk.

    --history shows how the store grew: by day (UTC) the files that were begun and are still there, what `rmqctl clean`
    removed, and the undo data of that day's changes. A broker keeps no record of the files that it removes: only
    their bytes are known, and how far back the log goes.
    """
    from rmqctl.opening import log_bytes, open_store
    from rmqctl.output.output import talk_paragraph
    from rmqctl.output.table import human_size
    from rmqctl.output.terminal import progress
    from rmqctl.reports.changes import told_users
    from rmqctl.store.info.info import disk_usage

    if history:
        if quick or shows_map or topics.names or limit is not None:
            raise UsageError("--history is of the whole store", hint="leave out --quick, --map, -t and -n")
        with open_store(store) as opened:
            _print_history(opened.size_history(), output)
        return exit_codes.OK
    if quick and shows_map:
        raise UsageError("--map reads the commitlog, and --quick does not")
    behind: list[CorruptError] = []
    with open_store(store) as opened:
        total = None if quick else log_bytes(opened.files)
        with progress("reading the commitlog", total, "bytes") as bar:
            reader = opened.reader.telling(Events(bar.advance, damage=behind.append))
            usage = disk_usage(reader, quick=quick, behind=topics)
    usage.topics = [topic for topic in usage.topics if topics.matches(topic.topic)]
    if topics.names and not usage.topics:
        raise NotFoundError("no topic matched", hint="`rmqctl ls --topics` lists the topics")
    shown, rest = usage.topics[:limit], usage.topics[limit:] if limit is not None else []
    usage.topics = shown
    _print(usage, len(rest), output, with_map=shows_map)
    if usage.held:
        pids = sorted({one.process for one in usage.held})
        sizes = {one.file: one.bytes for one in usage.held}
        talk_paragraph(
            output,
            f"{'process' if len(pids) == 1 else 'processes'} {', '.join(map(str, pids))} still "
            f"{'holds' if len(pids) == 1 else 'hold'} {counted(len(sizes), 'deleted file')}, "
            f"{human_size(sum(sizes.values()))} on the disk: the space is free once the file is closed, at the "
            "latest when the process ends (`du --json` names the files: held)",
        )
    for line in told_users(usage.in_use, "of the store"):
        refused = "`clean` and `purge` refuse until it ends; what is removed under it stays on the disk"
        talk_paragraph(output, f"{line}: {refused}")
    if usage.damaged_bytes:
        output.talk(f"{counted(usage.damaged_bytes, 'byte')} of the log are damaged: `rmqctl check` says where")
    for error in behind:
        exit_codes.ToldDamage(output)(error)
    return exit_codes.DAMAGE_OR_NOTHING if usage.damaged_bytes or behind else exit_codes.OK


def _print_history(history: SizeHistory, output: Output) -> None:
    from rmqctl.output.table import human_size

    record = asdict(history)
    if output.is_json:
        output.record(record)
        return
    output.rows(_DAY_COLUMNS, record["days"])
    if history.gone_bytes:
        by_us = f"`rmqctl clean` removed {human_size(history.cleaned_bytes)} of log, queues and index; "
        output.talk(
            f"{human_size(history.gone_bytes)} of the log are gone: {by_us if history.cleaned_bytes else ''}"
            "a broker records nothing of what it removes"
        )
    if history.gone_bytes and history.first_store_timestamp is not None:
        output.talk(
            f"the oldest message is of {format_time(history.first_store_timestamp)}: less than fileReservedTime ago, a "
            "broker that had too little space removed younger files"
        )
    if history.kept_bytes:
        output.talk(
            f"{human_size(history.kept_bytes)} on the disk are kept by changes for `undo`: `rmqctl log --prune` "
            "frees them"
        )


def _print(usage: StoreUsage, more: int, output: Output, *, with_map: bool) -> None:
    record = usage.row()
    if not with_map:
        del record["map"]
    if output.is_json:
        output.record(record)
        return
    rows: list[dict[str, Any]] = record["topics"]
    if output.format == "csv":
        output.rows(_TOPIC_COLUMNS, rows)
        return
    output.rows(_TOPIC_COLUMNS, [row | {"share": f"{row['share']:.1%}"} for row in rows], droppable=_DROPPABLE)
    if more:
        output.text(said(f"and {counted(more, 'smaller topic')}"))
    if rows:
        output.text("")
    output.rows(_PART_COLUMNS, [*record["parts"], record["total"]])
    if with_map and usage.map is not None:
        _print_map(usage.map, output)


def _print_map(found: LogCells, output: Output) -> None:
    """Print the log as a bar, a sign for each cell, and how far queues and index reach in it."""
    from rmqctl.store.info.counts import SIGNS

    output.text("")
    for line in found.bar():
        output.text(said(line))
    rows = [
        {"kind": said_title(kind), "sign": SIGNS.get(kind, ""), "bytes": size} for kind, size in found.sizes.items()
    ]
    output.rows(("kind", "sign", "bytes"), rows)
    output.text("")
    output.rows(("part", "first_offset", "last_offset", "problem"), [one._asdict() for one in found.coverage])
