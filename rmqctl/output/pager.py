"""Long text on a terminal goes through a pager: what is longer than the screen, and nothing that a command waits with.

Standard output is replaced by a stream that keeps a screenful back. What is shorter is printed as it is. What is longer
goes to $PAGER, else to `less`; what is said meanwhile on stderr follows when the pager has ended. A command that says
something in between, or that shows rows as they come (it flushes), is not paged: its reader watches it.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from rmqctl.output.progress import hush, unhush

if TYPE_CHECKING:
    import subprocess

NO_PAGER = "--no-pager"
_LESS = {"LESS": "FRX", "LESSCHARSET": "utf-8"}
_NONE = ("", "cat")


class Pager(io.TextIOBase):
    """Stands in for a terminal."""

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
        """For whoever asks, it is the terminal: so wide, and with colours."""
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
        """Show what there is: whoever wants that is watching, and gets no pager any more."""
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
    """$PAGER, else less where it is there; None where nobody wants any."""
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
