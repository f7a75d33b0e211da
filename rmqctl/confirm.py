"""The one place that asks: before what cannot be undone, on a terminal only."""

from __future__ import annotations

import sys

import click

from formats.errors import RefusedError


def confirm_without_journal(no_journal: bool, yes: bool) -> None:
    """Before a change of which nothing is kept. click.Abort if the person at the terminal does not want it."""
    if no_journal and not confirm("Without a journal this cannot be undone. Go on?", yes=yes):
        raise click.Abort


def confirm(question: str, *, yes: bool) -> bool:
    """Whether to go on: `yes` says so already, else the person at the terminal does.

    RefusedError where nobody can be asked.
    """
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise RefusedError("this needs a confirmation, and there is no terminal to ask at", hint="add --yes")
    return click.confirm(question, default=False, err=True)
