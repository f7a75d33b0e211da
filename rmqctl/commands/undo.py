"""`rmqctl undo`: puts a store back to before its last change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.commands.log import outcome
from rmqctl.options import StoreLocation, dry_run_option, output_options, store_options

if TYPE_CHECKING:
    from rmqctl.output import Output


@click.command(
    epilog="""\b
Examples:
  rmqctl undo -s /data/store                     the last change, or one that was interrupted
  rmqctl undo -s /data/store 20261121T070326123Z-recover

Exit code 5 if later changes stand, or anything was written to the store since: no flag forces that, because the store
would be neither old nor new."""
)
@store_options
@click.argument("change_id", required=False, metavar="[ID]")
@dry_run_option
@output_options
def undo(store: StoreLocation, output: Output, change_id: str | None, dry_run: bool) -> None:
    """Put a store back to before its last change: every byte, every file, every time.

    What the change kept in DIR.rmqctl is checked first, and that the store is as the change left it. Further changes
    can be undone one after the other, the last one first.
    """
    from rmqctl.opening import open_store
    from store.files.undo import undo as undo_change

    with open_store(store) as files:
        layout = files.layout
    change = undo_change(layout, change_id, dry_run=dry_run)
    output.record(outcome(change, dry_run))
    if dry_run:
        output.talk("it can be undone: the store is as this change left it, and what it kept is whole")
    else:
        output.talk(f"the store is as it was before; `rmqctl log --prune {change.id}` frees what is left of the change")
