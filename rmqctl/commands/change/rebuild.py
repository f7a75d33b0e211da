"""`rmqctl rebuild`: consume queues, index and timer from the commitlog."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import StoreLocation, output_options, rebuild_options, store_options, topic_option
from rmqctl.flags.spark_options import SparkChoice, job_engine, spark_options
from rmqctl.formats.errors import counted
from rmqctl.output import outcome as exit_codes
from rmqctl.output.output import note_change

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.output.output import Output
    from rmqctl.store.options import ChangeOptions
    from rmqctl.store.recover.rebuild import RebuildReport

_TOPIC_COLUMNS = ("topic", "waiting", "due_already", "first_due_timestamp", "delivered", "recalled")


@click.command(
    epilog="""\b
Examples:
  rmqctl rebuild -s /data/store                     queues and index
  rmqctl rebuild -s /data/store --queues -t Orders  the queues of one topic
  rmqctl rebuild -s /data/store --queues files      queue files for a store with its queues in RocksDB
  rmqctl rebuild -s /data/store --index             the key index
  rmqctl rebuild -s /data/store --timer --dry-run   pending messages of the timer, by topic
  rmqctl rebuild -s /data/store --compacted         copies of compacted topics
  rmqctl rebuild -s /nfs/store --master spark://m:7077   on a cluster

Exit code 1 if spans of the log are damaged: their messages got no queue slot, or timed messages cannot be read. 5: a
decision is needed, and nothing was changed. --no-journal prompts before it removes the old files; without a
terminal it needs --yes."""
)
@store_options
@click.option(
    "--queues",
    is_flag=False,
    flag_value="all",
    type=click.Choice(["all", "files"]),
    metavar="[files]",
    help="Only the consume queues; `files`: in files beside a RocksDB.",
)
@click.option("--index", is_flag=True, help="Only the key index.")
@click.option("--timer", is_flag=True, help="Only the timer's files.")
@click.option("--compacted", is_flag=True, help="Only the copies of compacted topics.")
@topic_option.but(
    multiple=True, help="Only the queues of this topic; may be repeated. Implies --queues, without --compacted."
)
@spark_options
@rebuild_options
@output_options
def rebuild(
    store: StoreLocation,
    output: Output,
    spark: SparkChoice,
    queues: str | None,
    index: bool,
    timer: bool,
    compacted: bool,
    topic: tuple[str, ...],
    queue_file_size: int | None,
    index_size: tuple[int, int] | None,
    change: ChangeOptions,
) -> int:
    """Rebuild consume queues and index from the commitlog.

    New files are written beside the store, flushed, then swapped in. The old ones are kept in DIR.rmqctl for `undo`.
    Queues whose messages have all expired stay, because only they know their next offset.

    With --timer, messages of the timer's queue that were neither delivered (no copy in their topic) nor recalled are
    pending again. A broker delivers those that are due when it starts.

    With --compacted, what consumers of compacted topics are given is written from what is good in it and from the
    commitlog. A broker never does that: of a lost folder they get only what is stored later.
    """
    from rmqctl.flags.types import NewFiles, decide_sizes, tell_index_size
    from rmqctl.opening import log_bytes, open_store, tell_if_open
    from rmqctl.output.terminal import progress

    if timer:
        if queues or index or topic or spark.master is not None:
            raise click.UsageError("--timer goes alone: run the command again for queues or index")
        return _rebuild_timer(store, output, change)
    if index and topic:
        raise click.UsageError("the index holds the keys of all topics: --index takes no -t")
    if compacted and (queues or index or spark.master is not None):
        raise click.UsageError("--compacted goes alone, or with -t")
    both = not compacted and not queues and not index and not topic
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_store(store))
        makes = NewFiles(
            queues=bool(queues or (topic and not compacted)) or both, index=index or both, is_asked_for=index
        )
        if queues == "files":
            opened.files.use_queue_files()
        assumes_index = decide_sizes(opened.files, queue_file_size, index_size, makes)
        if change.dry_run:
            tell_if_open(opened)
        how: Callable[..., RebuildReport] = opened.rebuild
        if spark.master is not None:
            from rmqctl.pipeline.jobs.rebuild import rebuild_with

            how = partial(rebuild_with, stack.enter_context(job_engine(spark)), opened.files)
        with progress("reading the commitlog", log_bytes(opened.files), "bytes") as bar:
            report = how(
                **({"compacted": True} if compacted else {}),
                change=change.reporting(bar.advance),
                queues="files" if queues == "files" else makes.queues,
                index=makes.index,
                topics=list(topic),
            )
    note_change(report, "copies were rebuilt" if compacted else "queues or index were rebuilt")
    tell_index_size(assumes_index, report.index_files_rebuilt, dry_run=change.dry_run)
    _print(report, output, store, change, with_log=not compacted)
    return exit_codes.DAMAGE_OR_NOTHING if report.damaged_spans else exit_codes.OK


def _rebuild_timer(store: StoreLocation, output: Output, change: ChangeOptions) -> int:
    from rmqctl.opening import log_bytes, open_store, tell_if_open
    from rmqctl.output.terminal import progress
    from rmqctl.reports.changes import print_operations, undo_advice

    with open_store(store) as opened:
        if change.dry_run:
            tell_if_open(opened)
        with progress("reading the commitlog", log_bytes(opened.files), "bytes") as bar:
            report = opened.rebuild_timer(change=change.reporting(bar.advance))
    note_change(report, "the timer was rebuilt")
    record = {name: getattr(report, name) for name in report.__slots__}
    if not output.is_json:
        record = {
            name: value for name, value in record.items() if name not in ("topics", "operations", "is_size_assumed")
        }
    output.record(record)
    if not output.is_json:
        output.rows(_TOPIC_COLUMNS, report.topics)
        if change.dry_run:
            print_operations(report.operations, output)
    if report.is_size_assumed:
        size = f"the timer log has files of {report.log_file_size} bytes, RocketMQ's default"
        output.talk(f"{size}: where the broker.conf has another mappedFileSizeTimerLog, give it with -c")
    if report.uncertain:
        output.talk(f"damage may hide that {counted(report.uncertain, 'message')} were delivered: `rmqctl check`")
    if report.unreadable:
        output.talk(f"{counted(report.unreadable, 'message')} of the timer cannot be read, and are never delivered")
    if report.journal:
        output.talk(f"the old files are kept in {report.journal}; {undo_advice(store)} brings them back")
    return exit_codes.DAMAGE_OR_NOTHING if report.unreadable or report.uncertain else exit_codes.OK


def _print(
    report: RebuildReport, output: Output, store: StoreLocation, change: ChangeOptions, *, with_log: bool
) -> None:
    from rmqctl.reports.changes import print_operations, tell_deleted, undo_advice, without_deleted
    from rmqctl.store.recover.rebuild import report_row

    record = report_row(report)
    if not output.is_json:
        record["topics"] = len(report.topics)
        del record["operations"]
        without_deleted(record)
    output.record(record)
    if change.dry_run and not output.is_json:
        print_operations(report.operations, output)
    tell_deleted(report.deleted_topic_messages, output)
    if report.damaged_spans and not with_log:
        lost = counted(report.damaged_spans, "message")
        output.talk(f"{lost} of the copies cannot be read, and the commitlog has them no more")
    elif report.damaged_spans:
        spans = counted(report.damaged_spans, "span of the log is damaged", "spans of the log are damaged")
        output.talk(f"{spans} and gave no messages: `rmqctl check` names every one")
    if not change.keep_undo and not change.dry_run:
        output.talk("nothing of the old files was kept: this cannot be undone")
    if report.journal:
        output.talk(f"the old files are kept in {report.journal}; {undo_advice(store)} brings them back")
