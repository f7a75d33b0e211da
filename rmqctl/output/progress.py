"""A progress bar on stderr for work that lasts: only on a terminal, and only after the first second."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from rmqctl.output.sanitise import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SHOWN_AFTER = 1.0
REFRESHED_EVERY = 0.1


class Advancing(Protocol):
    """What the work sees of a bar."""

    def advance(self, n: int = 1) -> None:
        """`n` more units are done."""

    def stop(self) -> None:
        """Take the bar away: somebody is going to be asked."""


class _Silent:
    def advance(self, n: int = 1) -> None:
        """Nobody is looking."""

    def stop(self) -> None:
        """There is nothing to take away."""


class _Bar:
    """Counts always; imports and shows rich only once the work has lasted SHOWN_AFTER seconds."""

    def __init__(self, label: str, total: int | None, unit: str) -> None:
        self._label = visible(label)
        self._total = total
        self._unit = unit
        self._done = 0
        self._next_look = time.monotonic() + SHOWN_AFTER
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def advance(self, n: int = 1) -> None:
        self._done += n
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + REFRESHED_EVERY
        if self._progress is None:
            self._start()
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self._done)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        count = DownloadColumn(binary_units=True) if self._unit == "bytes" else MofNCompleteColumn()
        unit = TextColumn("" if self._unit == "bytes" else self._unit, markup=False)
        # stdout is data: it is never routed through the bar's console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            count,
            unit,
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
        )
        self._task = self._progress.add_task(self._label, total=self._total)
        self._progress.start()

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def _is_shown() -> bool:
    return bool(sys.stderr and sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"))


@contextlib.contextmanager
def waiting(label: str) -> Iterator[None]:
    """Says on stderr, if that is such a terminal, what is being waited for."""
    if not _is_shown():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(visible(label))):
        yield


@contextlib.contextmanager
def progress(label: str, total: int | None = None, unit: str = "bytes") -> Iterator[Advancing]:
    """A bar for `total` units of work (None: not known); `unit` "bytes" shows sizes, any other word a count.

    The bar shows on stderr if that is a terminal that can move its cursor; else advance() does nothing.
    """
    if not _is_shown():
        yield _Silent()
        return
    bar = _Bar(label, total, unit)
    try:
        yield bar
    finally:
        bar.stop()
