"""`rmqctl repair`: fixes what `check` finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags import options as completing
from rmqctl.flags.options import (
    StoreLocation,
    change_options,
    journal_option,
    no_journal_option,
    output_options,
    queue_file_size_option,
    store_options,
)
from rmqctl.output import outcome as exit_codes
from rmqctl.output.output import note_change
from rmqctl.reports.changes import SHOWN_BRIDGES, print_operations, undo_advice

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.options import ChangeOptions
    from rmqctl.store.repair.repair import RepairReport

_SHOWN_FINDINGS = ("code", "message", "fix")


@click.command(
    epilog="""\b
Examples:
  rmqctl repair -s /data/store --dry-run                    what would be fixed, and how
  rmqctl repair -s /data/store
  rmqctl repair -s /data/store --only RMQ-CFG-001           replace a damaged config file by its backup
  rmqctl repair -s /data/store --only RMQ-OFF-001           consumer offsets past the end of their queues
  rmqctl repair -s /data/store --only RMQ-TIME-001          file times, by which a broker deletes
  rmqctl repair -s /data/store --only RMQ-EPO-004           clear what a slave's truncation left after the log's end
  rmqctl undo -s /data/store                                take it back

Exit code 0: no error or warning is left. 1: some are, which need a decision or another command. 5: refused, or a
decision is needed. --no-journal prompts before it removes anything for good; without a terminal it needs --yes."""
)
@store_options
@click.option(
    "--only",
    multiple=True,
    metavar="CODE",
    shell_complete=completing.codes,
    help="Only findings of this code. Repeatable.",
)
@queue_file_size_option
@change_options(no_journal_option, journal_option)
@output_options
def repair(
    store: StoreLocation, output: Output, *, only: tuple[str, ...], queue_file_size: int | None, change: ChangeOptions
) -> int:
    """Check a store and fix the findings.

    It replaces damage inside the log by filler messages (as `recover --bridge`), cuts a torn tail, fixes queues,
    index and checkpoint, moves stray files beside the store and restores config files from intact backups. Consumer
    offsets, file times and old messages after the log's end change only if you name their code. Removed and
    overwritten data is kept in DIR.rmqctl beside the store; `rmqctl undo` restores it.
    """
    from rmqctl.flags.types import NewFiles, decide_sizes, tell_index_size
    from rmqctl.opening import checked_bytes, open_store, tell_if_open
    from rmqctl.output.terminal import progress
    from rmqctl.store.repair.repair import may_make_queues

    with open_store(store) as opened:
        assumes_index = decide_sizes(
            opened.files, queue_file_size, makes=NewFiles(queues=may_make_queues(only), index=False)
        )
        if change.dry_run:
            tell_if_open(opened)
        total = checked_bytes(opened.files, passes=2)
        with progress("checking and planning", total, "bytes") as bar:
            report = opened.repair(only=only, change=change.reporting(bar.advance))
    note_change(report, "the store was repaired")
    tell_index_size(assumes_index, report.index_files_rebuilt, dry_run=change.dry_run)
    _print(report, output, store, not change.keep_undo)
    return exit_codes.DAMAGE_OR_NOTHING if report.left else exit_codes.OK


def _print(report: RepairReport, output: Output, store: StoreLocation, no_journal: bool) -> None:
    record: dict[str, Any] = {name: getattr(report, name) for name in report.__slots__}
    if output.is_json:
        output.record(record)
        return
    mended, left, bridged, operations = (record.pop(name) for name in ("mended", "left", "bridged", "operations"))
    notes = record.pop("notes")
    output.record(record)
    would = "would be" if report.dry_run else "were"
    _section(output, f"Findings that {would} fixed:", ("code", "findings"), _counted(mended))
    _section(output, f"Damage that {would} replaced by filler messages:", SHOWN_BRIDGES, bridged)
    if report.dry_run:
        print_operations(operations, output)
    for note in notes:
        output.talk(f"note: {note}")
    _section(output, "Left, because they need a decision or another command:", _SHOWN_FINDINGS, left)
    if report.journal:
        output.talk(f"removed and overwritten data is kept in {report.journal}; {undo_advice(store)} restores it")
    elif not operations:
        output.talk("nothing could be fixed without a decision" if left else "there is nothing to fix")
    elif no_journal:
        output.talk("removed data is not kept: this cannot be undone")


def _counted(mended: dict[str, int]) -> list[dict[str, Any]]:
    return [{"code": code, "findings": count} for code, count in mended.items()]


def _section(output: Output, title: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    if rows:
        output.heading(title)
        output.rows(columns, rows)
