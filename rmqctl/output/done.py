"""Keeps what a command has done by now, so that an output that cannot be written does not hide it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from rmqctl.formats.errors import WriteFailedError


class OutputLostError(WriteFailedError):
    """What was asked for is done, but its result could not be written to standard output."""

    code = "RMQ-E-051"


class _Done(NamedTuple):
    sentence: str
    details: dict[str, Any]


_done: list[_Done] = []


def note_done(sentence: str, **details: Any) -> None:
    """Record a finished change before its result is printed. `sentence` names it; `details` are for --json."""
    _done.append(_Done(sentence, details))


class ChangeReport(Protocol):
    """The part that reports of journalled changes have in common."""

    dry_run: bool
    journal: str | None
    operations: list[dict[str, Any]]


def note_change(report: ChangeReport, sentence: str) -> None:
    """Record a journalled change, unless nothing was changed."""
    if not report.dry_run and (report.journal or report.operations):
        note_done(sentence, journal=report.journal)


def forget_done() -> None:
    """Begin a command, which has done nothing yet."""
    _done.clear()


def output_lost(why: str) -> OutputLostError | None:
    """Return the error of a finished change whose result could not be written, None where nothing was done."""
    if not _done:
        return None
    error = OutputLostError(
        f"{'; '.join(one.sentence for one in _done)}, but the result could not be written to standard output: {why}",
        hint="do not run the command again",
    )
    for one in _done:
        error.details |= one.details
    return error
