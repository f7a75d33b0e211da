"""`rmqctl resume`: finishes a change that was interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.commands.change.log import outcome
from rmqctl.flags.options import StoreLocation, dry_run_option, output_options, store_options, yes_option
from rmqctl.output.done import note_done

if TYPE_CHECKING:
    from rmqctl.output.output import Output


@click.command(
    epilog="""\b
Examples:
  rmqctl resume -s /data/store --dry-run     which change was interrupted
  rmqctl resume -s /data/store               finish it; `rmqctl undo` goes back instead

Exit code 1 if there is nothing to finish. 5 if the store was used since (`rmqctl undo --give-up` is the way out); and
without --yes where there is no terminal to ask at, if messages would be removed."""
)
@store_options
@dry_run_option
@yes_option
@output_options
def resume(store: StoreLocation, output: Output, dry_run: bool, yes: bool) -> None:
    """Finish a change that was interrupted by a crash, a kill or a full disk.

    Everything that it needs was on disk before it began. An interrupted undo is finished as an undo. If that takes
    messages away it asks first.
    """
    from rmqctl.confirm import agree_to_loss
    from rmqctl.opening import open_store

    with open_store(store) as opened:
        change = opened.resume(dry_run=dry_run, agree=agree_to_loss(yes))
    if not dry_run:
        note_done(f"change {change.id} was finished", change=change.id)
    output.record(outcome(change, dry_run))
    if dry_run:
        output.talk("this is what was interrupted")
    elif change.state == "undone":
        output.talk("the undo is finished: the store is as it was before the change")
    else:
        output.talk("the change is complete")
