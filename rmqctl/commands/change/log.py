"""`rmqctl log`: the changes made to a store, and forgetting what they kept."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags import options as completing
from rmqctl.flags.options import StoreLocation, dry_run_option, output_options, store_options, yes_option
from rmqctl.flags.types import SPAN
from rmqctl.formats.errors import RefusedError, UsageError, counted
from rmqctl.output.output import note_done

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.files.layout import StoreLayout
    from rmqctl.store.journal.entry import Stored
    from rmqctl.store.journal.log import Change
    from rmqctl.store.message_store import MessageStore

COLUMNS = ("id", "state", "files", "bytes", "kept_bytes", "command_line")
# what a narrow terminal goes without, first first
_DROPPABLE = ("files", "bytes")
_FORGETTABLE = ("applied", "undone", "mended", "abandoned", "damaged")


@click.command(
    epilog="""\b
Examples:
  rmqctl log -s /data/store                               what was changed, the oldest first
  rmqctl log -s /data/store --prune --older-than 30d      free the space of old changes
  rmqctl log -s /data/store --prune --dry-run             how much that would be
  rmqctl log -s /data/store --prune 20261121T0703         of one, by its id or how it begins

\b
States:
  applied    done, `rmqctl undo` takes it back    prepared   interrupted: undo or resume
  undone     taken back                           undoing    the undo was interrupted
  permanent  done without keeping anything        forgotten  done, what it kept is removed
  stored     messages were added (append, dlq redrive, serve): cannot be undone
  abandoned  never begun: nothing was changed     damaged    its journal cannot be read
  interrupted  not complete, and nothing was kept: `rmqctl recover` makes the store whole
  given-up   interrupted and left so (`rmqctl undo --give-up`): `rmqctl recover` makes the store whole
  mended     given up, and the store has been made whole since; what it took out is kept"""
)
@store_options
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=completing.changes)
@click.option("--prune", is_flag=True, help="Delete the undo data of these changes (without ID: of all).")
@click.option("--older-than", type=SPAN, metavar="SPAN", help="With --prune: only changes of this age, as 30d.")
@dry_run_option
@yes_option
@output_options
def log(
    store: StoreLocation,
    output: Output,
    ids: tuple[str, ...],
    prune: bool,
    older_than: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """List the changes made to a store and their undo data.

    Each change keeps what it removed or overwrote in DIR.rmqctl beside the store. Delete that with --prune once you
    no longer need the undo. Stored messages and files removed by `clean` are listed too, but cannot be undone.
    """
    from rmqctl.opening import open_store
    from rmqctl.reports.changes import tell_left_behind
    from rmqctl.store.journal.entry import stored

    if older_than is not None and not prune:
        raise UsageError("--older-than says what is to be removed", hint="add --prune")
    if dry_run and not prune:
        raise UsageError("--dry-run says what would be removed", hint="add --prune")
    with open_store(store) as opened:
        layout = opened.files.layout
        found = [opened.find_change(wanted) for wanted in ids] if ids else opened.changes()
        latest = None if prune else _undoable(opened)
        added = [] if prune or ids else stored(layout)
    if not prune:
        rows = [*(row(change, latest) for change in found), *map(_stored_row, added)]
        shown = output.rows(COLUMNS, sorted(rows, key=lambda one: str(one["id"])), droppable=_DROPPABLE)
        if not shown and not output.is_json:
            output.talk("rmqctl has recorded no change of this store")
        tell_left_behind(output, layout.kept.parent, layout.root, layout.config)
        return
    chosen = _chosen(layout, found, older_than, named=bool(ids))
    if dry_run:
        kept = sum(change.kept_bytes for change in chosen)
        output.record({"forgotten": [change.id for change in chosen], "bytes_freed": kept, "dry_run": True})
        return
    if chosen and not _confirmed(chosen, output, yes):
        output.talk("nothing was removed")
        return
    freed = opened.forget(chosen)
    if chosen:
        note_done(f"what {counted(len(chosen), 'change')} kept was removed", bytes_freed=freed)
    output.record({"forgotten": [change.id for change in chosen], "bytes_freed": freed})


def row(change: Change, latest: str | None = None) -> dict[str, Any]:
    """A change as it is printed; `latest` is the one that `undo` would take back."""
    from rmqctl.output.times import format_time

    return {
        "id": change.id,
        "verb": change.verb,
        "state": change.state,
        "timestamp": change.time,
        "time": format_time(change.time),
        "files": change.paths,
        "bytes": change.bytes,
        "kept_bytes": change.kept_bytes,
        "undoable": change.id == latest,
        "command_line": shlex.join(["rmqctl", *change.arguments]),
        "version": change.version,
        "folder": change.folder,
    }


def _stored_row(one: Stored) -> dict[str, Any]:
    """Messages that rmqctl stored, as a change is printed."""
    from rmqctl.output.times import format_time
    from rmqctl.store.journal.log import stamp

    return {
        "id": f"{stamp(one.time)}-{one.verb}",
        "verb": one.verb,
        "state": "stored",
        "timestamp": one.time,
        "time": format_time(one.time),
        "files": None,
        "bytes": one.end - one.begin,
        "kept_bytes": 0,
        "undoable": False,
        "command_line": shlex.join(["rmqctl", *one.arguments]),
        "begin_offset": one.begin,
        "end_offset": one.end,
    }


def outcome(change: Change, dry_run: bool) -> dict[str, Any]:
    """What `undo` and `resume` print of the change that they ended, or would end."""
    return {name: value for name, value in row(change).items() if name != "undoable"} | {"dry_run": dry_run}


def _undoable(opened: MessageStore) -> str | None:
    last = opened.last_change()
    is_possible = (
        last is not None
        and last.folder is not None
        and last.state not in ("damaged", "interrupted", "given-up", "mended")
    )
    return last.id if last is not None and is_possible else None


def _chosen(layout: StoreLayout, found: list[Change], older_than: int | None, *, named: bool) -> list[Change]:
    from rmqctl.output.times import now_ms
    from rmqctl.store.files.lock import lock_holder
    from rmqctl.store.journal.log import id_time

    chosen = []
    # a change that is just being planned in another process looks abandoned
    is_planning = lock_holder(layout.lock) is not None
    for change in found:
        # where the clock was set back, the id has a later time: a change is no older than those before it
        is_old = older_than is None or max(change.time, id_time(change.id)) <= now_ms() - older_than
        if change.state in _FORGETTABLE and is_old and not (change.state == "abandoned" and is_planning):
            chosen.append(change)
        elif named:
            raise RefusedError(
                f"the change {change.id} is {change.state}" if is_old else f"the change {change.id} is younger",
                file=layout.root,
                hint=_how_to_end(change),
            )
    return chosen


def _how_to_end(change: Change) -> str | None:
    if change.state in ("given-up", "interrupted"):
        return "let `rmqctl recover` make the store whole first"
    return "end it first: `rmqctl undo` or `rmqctl resume`" if change.is_unfinished else None


def _confirmed(chosen: list[Change], output: Output, yes: bool) -> bool:
    from rmqctl.output.outcome import agrees
    from rmqctl.output.table import human_size

    size = human_size(sum(change.kept_bytes for change in chosen))
    for change in [] if yes else chosen:
        output.talk(f"{change.id}  {change.state}  {human_size(change.kept_bytes)}")
    messages = sum(change.messages_gone for change in chosen if change.kept_bytes)
    among = f", {counted(messages, 'message')} among it" if messages else ""
    what = f"removes for good what {counted(len(chosen), 'change')} kept ({size}{among}), and with it the way back"
    return agrees(what, yes=yes)
