"""`rmqctl recover`: ends the log where it is valid and completes queues and index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import StoreLocation, below_confirm_option, output_options, rebuild_options, store_options
from rmqctl.formats.errors import UsageError
from rmqctl.output.output import note_change

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.options import ChangeOptions


@click.command(
    epilog="""\b
Examples:
  rmqctl recover -s /data/store --dry-run     what would change
  rmqctl recover -s /data/store               after a crash
  rmqctl recover -s /data/store --bridge      keep the messages after damage
  rmqctl recover -s /data/store --cut         drop them, as a broker would

Exit code 0: the store is intact. 1: it is usable, but damage that no broker reads is left in the log. 5: a decision
is needed, or an earlier change was interrupted; nothing was changed. --cut prompts before it deletes messages,
--no-journal before it removes anything for good; both print how much. Without a terminal they need --yes."""
)
@store_options
@click.option("--bridge", is_flag=True, help="Replace damage anywhere by filler messages and keep all later messages.")
@click.option("--cut", is_flag=True, help="End the log at damage, even if valid messages follow.")
@click.option("--full", is_flag=True, help="Treat damage in any file, not only in those a broker checks.")
@below_confirm_option
@rebuild_options
@output_options
def recover(
    store: StoreLocation,
    output: Output,
    *,
    bridge: bool,
    cut: bool,
    full: bool,
    below_confirm: bool,
    queue_file_size: int | None,
    index_size: tuple[int, int] | None,
    change: ChangeOptions,
) -> int:
    """Recover a store after a crash.

    A torn tail is cut. Damage with valid messages after it is refused until you give --bridge or --cut. Only damage
    counts that a broker would see: after a clean stop in the last three commitlog files, after a crash in those that
    the checkpoint does not cover. Then consume queues and index are completed for the whole log. Removed and
    overwritten data is kept in DIR.rmqctl beside the store; `rmqctl undo` restores it.
    """
    from rmqctl.flags.types import decide_sizes, tell_index_size
    from rmqctl.opening import log_bytes, open_store, tell_if_open
    from rmqctl.output.terminal import progress
    from rmqctl.reports.changes import print_report

    if bridge and (cut or full):
        raise UsageError("--bridge is for all damage and cuts none", hint="leave out --cut and --full, or --bridge")
    with open_store(store) as opened:
        assumes_index = decide_sizes(opened.files, queue_file_size, index_size)
        if change.dry_run:
            tell_if_open(opened)
        total = log_bytes(opened.files, passes=2 if bridge else 1)
        is_member, has_rocksdb = opened.files.dledger is not None, opened.files.leaves_queues
        with progress("reading the commitlog", total, "bytes") as bar:
            report = opened.recover(
                bridge=bridge,
                cut=cut,
                full=full,
                change=change._replace(below_confirm=below_confirm).reporting(bar.advance),
            )
    note_change(report, "the store was recovered")
    tell_index_size(assumes_index, report.index_files_rebuilt, dry_run=change.dry_run)
    code = print_report(report, output, store, no_journal=not change.keep_undo, is_member=is_member)
    if has_rocksdb:
        output.talk("queues in RocksDB are never written here: the next start of the broker cuts or completes them")
    return code
