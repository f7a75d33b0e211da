"""`rmqctl recover`: ends the log where it is valid and completes queues and index."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from rmqctl.confirm import confirm_messages, confirm_without_journal
from rmqctl.formats.errors import UsageError
from rmqctl.options import (
    QueueFileSize,
    StoreLocation,
    dry_run_option,
    journal_option,
    no_journal_option,
    output_options,
    store_options,
    yes_option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.output.output import Output
    from rmqctl.store.store_files import StoreFiles


@click.command(
    epilog="""\b
Examples:
  rmqctl recover -s /data/store --dry-run     what would change
  rmqctl recover -s /data/store               after a crash
  rmqctl recover -s /data/store --bridge      keep what lies behind damage
  rmqctl recover -s /data/store --cut         give it up, as a broker would

Exit code 0: the store is whole. 1: it is usable, but damage that no broker looks at is left in the log. 5: a decision
is needed, or an earlier change was interrupted; nothing was changed. --cut asks before messages go, how many is said;
where there is no terminal it needs --yes."""
)
@store_options
@click.option(
    "--bridge", is_flag=True, help="Replace damage, wherever it is, by filler messages; all that follows it is kept."
)
@click.option(
    "--cut", is_flag=True, help="End the log at damage even where good messages follow; they are kept beside."
)
@click.option("--full", is_flag=True, help="Let damage anywhere count, not only in the files a broker would check.")
@click.option(
    "--queue-file-size",
    type=QueueFileSize(),
    metavar="BYTES",
    help="Of new consume queue files (mappedFileSizeConsumeQueue), or `default`: RocketMQ's own. Needed where no queue "
    "file is left and -c does not say it.",
)
@dry_run_option
@no_journal_option
@journal_option
@yes_option
@output_options
def recover(
    store: StoreLocation,
    output: Output,
    *,
    bridge: bool,
    cut: bool,
    full: bool,
    queue_file_size: int | None,
    dry_run: bool,
    no_journal: bool,
    journal_in: Path | None,
    yes: bool,
) -> int:
    """Make a store whole after a crash.

    After a clean stop the last three commitlog files count, after a crash those that the checkpoint does not cover.
    A torn tail is cut. Damage with good messages behind it is refused until you say --bridge or --cut. Then consume
    queues and index are made complete for the whole log. What is taken out or overwritten is kept in DIR.rmqctl
    beside the store, and `rmqctl undo` brings it back.
    """
    from rmqctl.opening import open_store, tell_if_open
    from rmqctl.output.progress import progress
    from rmqctl.reports.recover_output import print_report

    if bridge and (cut or full):
        raise UsageError("--bridge is for all damage and cuts none", hint="leave out --cut and --full, or --bridge")
    if not dry_run:
        confirm_without_journal(no_journal, yes, journal_in)
    with open_store(store) as opened:
        _decide_queue_file_size(opened.files, queue_file_size)
        if dry_run:
            tell_if_open(opened)
        total = sum(file.size for file in opened.files.log.files) * (2 if bridge else 1)
        with progress("reading the commitlog", total, "bytes") as bar:
            report = opened.recover(
                bridge=bridge,
                cut=cut,
                full=full,
                dry_run=dry_run,
                keeps=not no_journal,
                arguments=sys.argv[1:],
                journal_in=journal_in,
                progress=bar.advance,
                agree=confirm_messages(yes),
            )
    return print_report(report, output, store, no_journal=no_journal)


def _decide_queue_file_size(files: StoreFiles, given: int | None) -> None:
    """Take the size that was `given`, or tell which one is assumed where the queues may have to be made anew.

    RefusedError where the commitlog shows that this broker has sizes of its own: with queue files of another length
    than its mappedFileSizeConsumeQueue it does not start (MappedFileQueue#doLoad).
    """
    from rmqctl.formats.errors import RefusedError
    from rmqctl.output.output import talk
    from rmqctl.store.journal.interrupted_sizes import keep_interrupted_sizes
    from rmqctl.store.queues.consumequeue import DEFAULT_FILE_SIZE
    from rmqctl.store.queues.queue_table import has_rocksdb_queues
    from rmqctl.store.write.opening.open_for_writing import DEFAULT_COMMITLOG_FILE_SIZE

    if has_rocksdb_queues(files.layout):
        return
    if given is not None:
        if files.config.mapped_file_size_consume_queue not in (None, given):
            raise UsageError(
                "--queue-file-size and mappedFileSizeConsumeQueue of -c differ", hint="leave out one of them"
            )
        files.take_sizes({"mapped_file_size_consume_queue": given})
        return
    keep_interrupted_sizes(files)
    if not files.queues.is_size_assumed or files.log.last_with_data() is None:
        return
    if files.log.file_size != DEFAULT_COMMITLOG_FILE_SIZE:
        raise RefusedError(
            "no consume queue file is left that shows how large they are, and this broker does not use the default "
            f"sizes: its commitlog files have {files.log.file_size} bytes",
            file=files.layout.consumequeue,
            hint="name its broker.conf with -c, or the size: `--queue-file-size BYTES` (mappedFileSizeConsumeQueue), "
            "`--queue-file-size default` if it is RocketMQ's own",
        )
    talk(
        f"no consume queue file is left that shows how large they are: {DEFAULT_FILE_SIZE} bytes are assumed, "
        "RocketMQ's default; -c broker.conf or --queue-file-size says it otherwise"
    )
