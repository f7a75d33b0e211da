"""`rmqctl truncate`: ends the commitlog at a chosen offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import StoreLocation, below_confirm_option, output_options, rebuild_options, store_options
from rmqctl.flags.types import OFFSET, decide_sizes, tell_index_size
from rmqctl.output.output import note_change

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.options import ChangeOptions


@click.command(
    epilog="""\b
Examples:
  rmqctl truncate -s /data/store --at 1048576 --dry-run     how many messages would be removed
  rmqctl truncate -s /data/store --at 1048576 --yes
  rmqctl undo -s /data/store                                restore them

Exit code 5: the offset is inside a record (the nearest valid ones are named), or before the confirm offset of a store
under a controller (--below-confirm), or messages would be removed and
there is neither --yes nor a terminal."""
)
@store_options
@click.option("--at", type=OFFSET, required=True, metavar="OFFSET", help="Physical offset of the new end of the log.")
@below_confirm_option
@rebuild_options
@output_options
def truncate(
    store: StoreLocation,
    output: Output,
    *,
    at: int,
    below_confirm: bool,
    queue_file_size: int | None,
    index_size: tuple[int, int] | None,
    change: ChangeOptions,
) -> int:
    """End the commitlog at OFFSET, where a message begins or ends.

    All later messages are removed. The command prints their number and prompts; without a terminal it needs --yes.
    Queues, index and checkpoint follow. Removed data is kept in DIR.rmqctl beside the store; `rmqctl undo` restores
    it.
    """
    from rmqctl.opening import open_store, tell_if_open
    from rmqctl.output.terminal import progress
    from rmqctl.reports.changes import print_report

    with open_store(store) as opened:
        assumes_index = decide_sizes(opened.files, queue_file_size, index_size)
        if change.dry_run:
            tell_if_open(opened)
        total = max(0, at - max(opened.files.log.min_offset, 0))
        with progress("reading the commitlog", total, "bytes") as bar:
            report = opened.truncate(at, change=change._replace(below_confirm=below_confirm).reporting(bar.advance))
    note_change(report, "the store was truncated")
    tell_index_size(assumes_index, report.index_files_rebuilt, dry_run=change.dry_run)
    return print_report(report, output, store, no_journal=not change.keep_undo)
