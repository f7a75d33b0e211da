"""The one place that asks. What takes something away says how much, asks on a terminal, and elsewhere needs --yes.

Something is: good messages that the store does not have afterwards, whether they are kept or not; anything that
nothing is kept of (a change without a journal, files that `clean` removes, what a change kept, a file that is
replaced); messages that a group has not read and is set behind. What is moved into a journal is not gone; nor are
damaged bytes, of which nobody knows how many messages they were.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.formats.errors import RefusedError, counted
from rmqctl.output.progress import aside

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.store.options import Loss


def agrees(what: str, *, yes: bool) -> bool:
    """Whether a command may do `what`, such as "takes 3 messages away": `yes` says so already, else the person at the
    terminal does. RefusedError where nobody can be asked."""
    if yes:
        return True
    if not _is_terminal():
        raise RefusedError(f"this {what}; there is no terminal to ask at", hint="add --yes")
    from rmqctl.output.table import visible

    with aside():
        return click.confirm(visible(f"This {what}. Go on?"), default=False, err=True)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def confirm_loss(yes: bool, unread: str = "that the group has not read") -> Callable[[Loss], None]:
    """Return what asks whether a change may take so much away. `unread` describes the messages that it passes
    over. click.Abort if the person at the terminal does not want it; RefusedError as `agrees`."""

    def confirm(loss: Loss) -> None:
        if not agrees(_told(loss, unread), yes=yes):
            raise click.Abort

    return confirm


def _told(loss: Loss, unread: str) -> str:
    from rmqctl.output.table import human_size

    told = []
    if loss.messages:
        told.append(f"takes {counted(loss.messages, 'message')} away")
    if loss.skipped:
        told.append(f"passes over {counted(loss.skipped, 'message')} {unread}")
    if loss.files:
        size = f"{human_size(loss.bytes)} in {counted(loss.files, 'file')}"
        told.append(f"removes or overwrites {size} and keeps nothing of it")
    return ", ".join(told)


def require_agreed_file(path: Path, overwrite: bool, yes: bool) -> None:
    """Before a file is written that may be there: whether that one may go. click.Abort and RefusedError as above."""
    from rmqctl.output.table import human_size
    from rmqctl.store.files.reading import is_file

    if not overwrite or not is_file(path):  # into devices and pipes is written, they are not replaced
        return
    if not agrees(f"replaces {path} ({human_size(path.stat().st_size)})", yes=yes):
        raise click.Abort
