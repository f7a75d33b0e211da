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
    from rmqctl.queue_file_size import decide_queue_file_size
    from rmqctl.reports.recover_output import print_report

    if bridge and (cut or full):
        raise UsageError("--bridge is for all damage and cuts none", hint="leave out --cut and --full, or --bridge")
    if not dry_run:
        confirm_without_journal(no_journal, yes, journal_in)
    with open_store(store) as opened:
        decide_queue_file_size(opened.files, queue_file_size)
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
