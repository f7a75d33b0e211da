"""A progress bar on stderr for work that lasts: only on a terminal, and only after the first second.

Other output to a terminal is written `aside`: the bar is removed first, and comes back with the next progress. Else
both would share a line.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TextIO

from rmqctl.output.table import said, visible

if TYPE_CHECKING:
    import subprocess

    from rich.progress import Progress, TaskID
    from rich.status import Status


Total = int | Callable[[], int | None] | None

SHOWN_AFTER = 1.0
REFRESHED_EVERY = 0.1

# held by whoever writes to the terminal; a bar that cannot have it at once is not drawn
_terminal = threading.RLock()
_drawn: list[_Drawn] = []
_hushed = threading.Event()


class _Drawn(Protocol):
    """What is drawn on the last line of the terminal."""

    def hide(self) -> None:
        """Remove it until it is drawn again."""


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """While something else is written to the terminal, or asked there: without the bar."""
    with _terminal:
        for one in tuple(_drawn):
            one.hide()
        yield


def hush() -> None:
    """From here on no bar is drawn: something else has the screen, until `unhush`."""
    _hushed.set()
    with _terminal:
        for one in tuple(_drawn):
            one.hide()


def unhush() -> None:
    """The screen is free again."""
    _hushed.clear()


class Advancing(Protocol):
    """What the work sees of a bar."""

    def advance(self, n: int = 1) -> None:
        """`n` more units are done."""


class _Silent:
    def advance(self, n: int = 1) -> None:
        """Ignore progress."""


class _Bar:
    """Counts always; imports and shows rich only once the work has lasted SHOWN_AFTER seconds."""

    def __init__(self, label: str, total: Total, unit: str) -> None:
        self._label = visible(said(label))
        self._total = total
        self._unit = unit
        self._done = 0
        self._most: float = 0
        self._next_look = time.monotonic() + SHOWN_AFTER
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def advance(self, n: int = 1) -> None:
        self._done += n
        now = time.monotonic()
        if now < self._next_look or _hushed.is_set():
            return
        if not _terminal.acquire(blocking=False):
            return
        try:
            self._next_look = now + REFRESHED_EVERY
            self._draw()
        finally:
            _terminal.release()

    def _draw(self) -> None:
        if self._progress is None:
            self._make()
        if self._progress is None or self._task is None:
            return
        self._progress.update(self._task, completed=min(self._done, self._most))
        if self not in _drawn:
            _drawn.append(self)
            self._progress.start()

    def _make(self) -> None:
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
        unit = TextColumn("" if self._unit == "bytes" else said(self._unit), markup=False)
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
        total = self._total() if callable(self._total) else self._total
        # zeros behind the end of a log that is read in splits count as read, and are not in its total
        self._most = float("inf") if total is None else total
        self._task = self._progress.add_task(self._label, total=total)

    def hide(self) -> None:
        """Take it away until the next progress."""
        with _terminal:
            if self in _drawn and self._progress is not None:
                _drawn.remove(self)
                self._progress.stop()


class _Spinner:
    """Turns until something else is written."""

    def __init__(self, status: Status) -> None:
        self._status = status
        status.start()

    def hide(self) -> None:
        """Take it away for good: it has no progress that could bring it back."""
        with _terminal:
            if self in _drawn:
                _drawn.remove(self)
                self._status.stop()


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

    spinner = _Spinner(Console(stderr=True).status(Text(visible(said(label)))))
    _drawn.append(spinner)
    try:
        yield
    finally:
        spinner.hide()


@contextlib.contextmanager
def progress(label: str, total: Total = None, unit: str = "bytes") -> Iterator[Advancing]:
    """A bar for `total` units of work, counted when the bar is first shown if it is a function (None: not known);
    `unit` "bytes" shows sizes, any other word a count.

    The bar shows on stderr if that is a terminal that can move its cursor; else advance() does nothing.
    """
    if not _is_shown():
        yield _Silent()
        return
    bar = _Bar(label, total, unit)
    try:
        yield bar
    finally:
        bar.hide()


# Long text on a terminal goes through a pager: what is longer than the screen, and nothing that a command waits with.

NO_PAGER = "--no-pager"
_LESS = {"LESS": "FRX", "LESSCHARSET": "utf-8"}
_NONE = ("", "cat")


class Pager(io.TextIOBase):
    """Replaces a terminal."""

    def __init__(self, terminal: TextIO, command: str) -> None:
        self._terminal = terminal
        self._command = command
        import shutil

        size = shutil.get_terminal_size()
        self._columns, self._left = max(size.columns, 1), size.lines - 1
        self._kept: list[str] = []
        self._is_watched = False
        self._process: subprocess.Popen[str] | None = None
        self._later: list[str] = []

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the terminal."""
        return self._terminal.encoding

    @property
    def is_running(self) -> bool:
        """Whether a pager has the screen."""
        return self._process is not None

    def isatty(self) -> bool:
        """Return True: its width and colours are those of the terminal."""
        return True

    def fileno(self) -> int:
        """The terminal's, or that of the way to the pager."""
        return self._terminal.fileno() if self._process is None else self._way.fileno()

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Keep it, print it or hand it to the pager. BrokenPipeError once the pager was left, TypeError for bytes."""
        if not isinstance(text, str):
            raise TypeError(f"text is written to a terminal, not {type(text).__name__}")
        if self._process is not None:
            return self._way.write(text)
        if self._is_watched:
            return self._terminal.write(text)
        self._kept.append(text)
        self._left -= sum(-(-max(len(line), 1) // self._columns) for line in text.splitlines())
        if self._left < 0:
            self._start()
        return len(text)

    def flush(self) -> None:
        """Show pending output: the user is watching, and gets no pager any more."""
        if self._process is not None:
            self._way.flush()
        elif self._kept:
            self._is_watched = True
            self._print_kept()

    def say_later(self, text: str) -> None:
        """For stderr, when the screen is free again."""
        self._later.append(text)

    def finish(self) -> None:
        """Print what is kept, or wait until the pager is left; then say what was to be said."""
        if self._process is None:
            self._print_kept()
            return
        with contextlib.suppress(OSError):
            self._way.close()
        while True:
            try:
                self._process.wait()
                break
            except KeyboardInterrupt:  # that is for the pager, which has the terminal
                continue
        self._process = None
        self._is_watched = True
        unhush()
        with contextlib.suppress(OSError):
            sys.stderr.write("".join(self._later))
            sys.stderr.flush()

    @property
    def _way(self) -> TextIO:
        assert self._process is not None
        assert self._process.stdin is not None
        return self._process.stdin  # type: ignore[return-value]

    def _start(self) -> None:
        import subprocess

        environment = _LESS | os.environ
        try:
            self._process = subprocess.Popen(
                self._command, shell=True, stdin=subprocess.PIPE, env=environment, encoding="utf-8", errors="replace"
            )
        except OSError:
            self._is_watched = True
            self._print_kept()
            return
        hush()
        kept, self._kept = self._kept, []
        self._way.write("".join(kept))

    def _print_kept(self) -> None:
        kept, self._kept = self._kept, []
        self._terminal.write("".join(kept))
        self._terminal.flush()


def pager_command() -> str | None:
    """Return $PAGER, else less if installed; None without a pager."""
    import shutil

    named = os.environ.get("PAGER")
    if named is None:
        return "less" if shutil.which("less") else None
    return None if named.strip() in _NONE else named


@contextlib.contextmanager
def paged(wanted: bool) -> Iterator[None]:
    """With a pager for what is printed, if it is `wanted`, and standard output a terminal that can have one."""
    terminal = sys.stdout
    command = pager_command() if wanted and terminal is not None and terminal.isatty() else None
    if command is None or os.environ.get("TERM") in (None, "dumb", "unknown"):
        yield
        return
    pager = Pager(terminal, command)
    sys.stdout = pager
    try:
        yield
    finally:
        sys.stdout = terminal
        pager.finish()


def running() -> Pager | None:
    """The pager that has the screen, if one has."""
    stream = sys.stdout
    return stream if isinstance(stream, Pager) and stream.is_running else None
