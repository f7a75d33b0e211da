"""Confirmation of losses: a command prints their size and prompts on a terminal, and needs --yes elsewhere.

Losses are valid messages that the store lacks afterwards, kept or not; data removed without undo (a change without a
journal, files that `clean` removes, undo data, a file that is replaced); unread messages that a group skips. Data moved
into a journal is not gone; nor are damaged bytes, whose number of messages is unknown.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.formats.errors import RefusedError, counted
from rmqctl.output.terminal import aside

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.store.options import Loss


def agrees(what: str, *, yes: bool) -> bool:
    """Return whether a command may do `what`, such as "deletes 3 messages": at once with `yes`, else after a prompt.
    RefusedError without a terminal to prompt on."""
    if yes:
        return True
    if not _is_terminal():
        raise RefusedError(f"this {what}; no terminal to prompt on", hint="confirm with --yes")
    from rmqctl.output.table import said, visible

    with aside():
        return click.confirm(visible(said(f"This {what}. Continue?")), default=False, err=True)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def confirm_loss(yes: bool, unread: str = "that the group has not read") -> Callable[[Loss], None]:
    """Return the callback that confirms a loss. `unread` describes the messages that a group skips. click.Abort if
    the user declines; RefusedError as `agrees`."""

    def confirm(loss: Loss) -> None:
        if not agrees(_told(loss, unread), yes=yes):
            raise click.Abort

    return confirm


def _told(loss: Loss, unread: str) -> str:
    from rmqctl.output.table import human_size

    told = []
    if loss.messages:
        told.append(f"deletes {counted(loss.messages, 'message')}")
    if loss.skipped:
        told.append(f"skips {counted(loss.skipped, 'message')} {unread}")
    if loss.files:
        size = f"{human_size(loss.bytes)} in {counted(loss.files, 'file')}"
        told.append(f"removes or overwrites {size} without undo")
    return ", ".join(told)


def require_agreed_file(path: Path, overwrite: bool, yes: bool) -> None:
    """Confirm that an existing file may be replaced. click.Abort and RefusedError as `agrees`."""
    from rmqctl.output.table import human_size
    from rmqctl.store.files.reading import is_file

    if not overwrite or not is_file(path):  # into devices and pipes is written, they are not replaced
        return
    if not agrees(f"replaces {path} ({human_size(path.stat().st_size)})", yes=yes):
        raise click.Abort
