"""The one place that asks: before what cannot be undone or takes messages away, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from rmqctl.formats.errors import RefusedError, UsageError
from rmqctl.formats.wording import counted
from rmqctl.output.progress import aside


def confirm_without_journal(no_journal: bool, yes: bool, journal_in: Path | None = None) -> None:
    """Before a change of which nothing is kept. click.Abort if the person at the terminal does not want it; UsageError
    where it is said as well what is to be kept in."""
    if no_journal and journal_in is not None:
        raise UsageError("--no-journal keeps nothing, and --journal says where", hint="leave one of them out")
    if no_journal and not confirm("Without a journal this cannot be undone. Go on?", yes=yes):
        raise click.Abort


def confirm_messages(yes: bool) -> Callable[[int], None]:
    """What asks whether so many messages may go. click.Abort if the person at the terminal does not want it;
    RefusedError where nobody can be asked."""

    def agree(count: int) -> None:
        what = counted(count, "message")
        if not confirm(f"This takes {what} away. Go on?", yes=yes, why=f"this takes {what} away"):
            raise click.Abort

    return agree


def confirm(question: str, *, yes: bool, why: str = "this needs a confirmation") -> bool:
    """Whether to go on: `yes` says so already, else the person at the terminal does.

    RefusedError, with the reason `why`, where nobody can be asked.
    """
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise RefusedError(f"{why}, and there is no terminal to ask at", hint="add --yes")
    with aside():
        return click.confirm(question, default=False, err=True)
