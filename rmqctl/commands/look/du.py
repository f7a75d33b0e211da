"""`rmqctl du`: what takes up the room of a store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import StoreLocation, limit_option, output_options, store_options, topics_options
from rmqctl.formats.errors import NotFoundError, UsageError, counted, format_time
from rmqctl.output import outcome as exit_codes
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.info.info import StoreUsage
    from rmqctl.store.info.size_history import SizeHistory
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
  rmqctl du -s /data/store --history        by day: files begun, files cleaned, what changes keep

On disk is what a file takes there: RocketMQ makes its files at their full size, and what is not written yet may be a
hole. Exit code 1: the log is damaged; no topic has what is damaged, and how much that is, is said."""
)
@store_options
@topics_options
@click.option(
    "--quick",
    is_flag=True,
    help="Do not read the log; sizes come from the queues.",
)
@click.option("--history", is_flag=True, help="Show by day which files were begun and what was removed.")
@limit_option.but(help="Show only the N largest topics.")
@output_options
def du(
    store: StoreLocation, output: Output, *, topics: TopicFilter, quick: bool, history: bool, limit: int | None
) -> int:
    """Show disk usage of a store.

    Topics by size and share of the log; then log, queues, index and other files, by size and by space on disk.

    --history shows how the store grew: by day (UTC) the files that were begun and are still there, what `rmqctl clean`
    removed, and what changes of that day keep beside the store. A broker keeps no record of the files that it removes:
    of these only the bytes are known, and how far back the log goes.
    """
    from rmqctl.opening import log_bytes, open_store
    from rmqctl.output.paragraph import talk_paragraph
    from rmqctl.output.progress import progress
    from rmqctl.reports.changes import told_users

    if history:
        if quick or topics.names or limit is not None:
            raise UsageError("--history is of the whole store", hint="leave out --quick, -t and -n")
        with open_store(store, needs_messages=False) as opened:
            _print_history(opened.size_history(), output)
        return exit_codes.OK
    with open_store(store, needs_messages=not quick) as opened:
        total = None if quick else log_bytes(opened.files)
        with progress("reading the commitlog", total, "bytes") as bar:
            usage = opened.disk_usage(quick=quick, events=Events(bar.advance))
    usage.topics = [topic for topic in usage.topics if topics.matches(topic.topic)]
    if topics.names and not usage.topics:
        raise NotFoundError("no topic matched", hint="`rmqctl ls --topics` lists the topics")
    shown, rest = usage.topics[:limit], usage.topics[limit:] if limit is not None else []
    usage.topics = shown
    _print(usage, len(rest), output)
    if usage.held:
        pids = sorted({one.process for one in usage.held})
        sizes = {one.file: one.bytes for one in usage.held}
        talk_paragraph(
            output,
            f"{'process' if len(pids) == 1 else 'processes'} {', '.join(map(str, pids))} still "
            f"{'holds' if len(pids) == 1 else 'hold'} {counted(len(sizes), 'deleted file')}, "
            f"{counted(sum(sizes.values()), 'byte')} on the disk: the space is free once the file is closed, at the "
            "latest when the process ends (`du --json` names the files: held)",
        )
    for line in told_users(usage.in_use, "files of the store"):
        refused = "`clean` and `purge` refuse until it ends; what is removed under it stays on the disk"
        talk_paragraph(output, f"{line}: {refused}")
    if usage.damaged_bytes:
        output.talk(f"{counted(usage.damaged_bytes, 'byte')} of the log are damaged: `rmqctl check` says where")
    return exit_codes.DAMAGE_OR_NOTHING if usage.damaged_bytes else exit_codes.OK


def _print_history(history: SizeHistory, output: Output) -> None:
    record = asdict(history)
    if output.is_json:
        output.record(record)
        return
    output.rows(_DAY_COLUMNS, record["days"])
    if history.gone_bytes:
        by_us = f"`rmqctl clean` removed {history.cleaned_bytes} bytes of log, queues and index; "
        output.talk(
            f"{counted(history.gone_bytes, 'byte')} of the log are gone: {by_us if history.cleaned_bytes else ''}"
            "a broker records nothing of what it removes"
        )
    if history.gone_bytes and history.first_store_timestamp is not None:
        output.talk(
            f"the oldest message is of {format_time(history.first_store_timestamp)}: less than fileReservedTime ago, a "
            "broker that had too little space removed younger files"
        )
    if history.kept_bytes:
        output.talk(
            f"{counted(history.kept_bytes, 'byte')} on the disk are kept by changes for `undo`: `rmqctl log --prune` "
            "frees them"
        )


def _print(usage: StoreUsage, more: int, output: Output) -> None:
    record = asdict(usage) | {
        "held": [one._asdict() for one in usage.held],
        "in_use": [one._asdict() for one in usage.in_use],
    }
    if output.is_json:
        output.record(record)
        return
    rows: list[dict[str, Any]] = record["topics"]
    if output.format == "csv":
        output.rows(_TOPIC_COLUMNS, rows)
        return
    output.rows(_TOPIC_COLUMNS, [row | {"share": f"{row['share']:.1%}"} for row in rows], droppable=_DROPPABLE)
    if more:
        output.text(f"and {counted(more, 'smaller topic')}")
    if rows:
        output.text("")
    output.rows(_PART_COLUMNS, [*record["parts"], record["total"]])
