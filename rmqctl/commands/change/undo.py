"""`rmqctl undo`: puts a store back to before its last change."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from rmqctl.commands.change.log import outcome
from rmqctl.flags import options as completing
from rmqctl.flags.options import StoreLocation, change_options, output_options, store_options
from rmqctl.output.output import note_done

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.options import ChangeOptions


@click.command(
    epilog="""\b
Examples:
  rmqctl undo -s /data/store                     the last change, or one that was interrupted
  rmqctl undo -s /data/store 20261121T070326123Z-recover
  rmqctl undo -s /data/store --give-up           of one that was interrupted, if the store was used since

Exit code 5 if later changes stand, or anything was written to the store since: no flag forces that, because the store
would be neither old nor new. And without --yes and a terminal, if messages would be deleted."""
)
@store_options
@click.argument("change_id", required=False, metavar="[ID]", shell_complete=completing.changes)
@click.option(
    "--give-up",
    "gives_up",
    is_flag=True,
    help="End an interrupted change without finishing or undoing it. Then run `rmqctl recover`.",
)
@change_options()
@output_options
def undo(store: StoreLocation, output: Output, change_id: str | None, gives_up: bool, change: ChangeOptions) -> None:
    """Undo the last change: restore every byte, file and file time.

    The data in DIR.rmqctl and the state of the store are checked first. Run it again for earlier changes. If messages
    are removed, it prompts.

    An interrupted change cannot be undone once the store was used: newer messages would be lost. --give-up then
    leaves the store as it is and keeps the saved data; run `rmqctl recover` next.
    """
    from rmqctl.opening import open_store

    if gives_up and change_id is not None:
        raise click.UsageError("only what was interrupted can be given up: --give-up takes no ID")

    with open_store(store) as opened:
        done = opened.give_up(change=change) if gives_up else opened.undo(change_id, change=change)
    if not change.dry_run:
        note_done(f"change {done.id} was {'given up' if gives_up else 'undone'}", change=done.id)
    output.record(outcome(done, change.dry_run))
    if gives_up:
        if not change.dry_run:
            output.talk(f"the change is given up; the saved data is in {done.folder}")
            output.talk(f"now let `rmqctl recover -s {shlex.quote(str(store.path))}` make the store whole")
        return
    if change.dry_run:
        output.talk("it can be undone: the store is as this change left it, and what it kept is whole")
    else:
        output.talk(f"the store is as it was before; `rmqctl log --prune {done.id}` frees what is left of the change")


# `rmqctl resume`: finishes a change that was interrupted.


@click.command(
    epilog="""\b
Examples:
  rmqctl resume -s /data/store --dry-run     which change was interrupted
  rmqctl resume -s /data/store               finish it; `rmqctl undo` goes back instead

Exit code 1 if there is nothing to finish. 5 if the store was used since (`rmqctl undo --give-up` is the way out); and
without --yes and a terminal, if messages would be deleted."""
)
@store_options
@change_options()
@output_options
def resume(store: StoreLocation, output: Output, change: ChangeOptions) -> None:
    """Finish a change that was interrupted by a crash, a kill or a full disk.

    An interrupted undo is finished as an undo. If messages are removed, it prompts.
    """
    from rmqctl.opening import open_store

    with open_store(store) as opened:
        done = opened.resume(change=change)
    if not change.dry_run:
        note_done(f"change {done.id} was finished", change=done.id)
    output.record(outcome(done, change.dry_run))
    if change.dry_run:
        output.talk("this is what was interrupted")
    elif done.state == "undone":
        output.talk("the undo is finished: the store is as it was before the change")
    else:
        output.talk("the change is complete")
