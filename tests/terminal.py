"""A terminal for tests: runs rmqctl in a pseudo terminal, and says what stands on its screen afterwards."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path
from typing import NamedTuple

from tests import processes

_PROGRAM = """
import sys
from rmqctl.output import terminal
terminal.SHOWN_AFTER = terminal.REFRESHED_EVERY = {delay}
from rmqctl.main import main
sys.exit(main())
"""
_PIECE = re.compile(r"\x1b\[\??([0-9;]*)([A-Za-z])|[\r\n]|[^\x1b\r\n]+")


class TerminalText(io.StringIO):
    """A stream of this process that says it is a terminal, and keeps what is written."""

    def isatty(self) -> bool:
        return True


class Shown(NamedTuple):
    """What a terminal got, what is to be read on it in the end, and the exit code."""

    sent: str
    screen: list[str]
    code: int


def rmqctl_on_a_terminal(*arguments: str | Path, columns: int = 80, answer: str = "", bars: bool = False) -> Shown:
    """Run rmqctl on a terminal of so many columns; `answer` is typed ahead, with `bars` progress shows at once."""
    program = _PROGRAM.format(delay=0.0 if bars else 1e9)
    return on_a_terminal([sys.executable, "-c", program, *arguments], columns, answer)


def on_a_terminal(command: processes.Command, columns: int = 80, answer: str = "", pager: str = "cat") -> Shown:
    """Run any command so, with this $PAGER; `cat` is none."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = processes.start(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment | {"TERM": "xterm", "LC_ALL": "C.UTF-8", "PAGER": pager},
    )
    os.close(theirs)
    if answer:
        os.write(ours, answer.encode())
    received = bytearray()
    try:
        while piece := os.read(ours, 1 << 16):
            received += piece
    except OSError:  # how Linux tells that nobody has the other end any more
        pass
    os.close(ours)
    code = process.wait()
    sent = received.decode("utf-8")
    return Shown(sent, screen_of(sent), code)


def screen_of(sent: str) -> list[str]:
    """The lines of an endless screen after `sent`: text, carriage returns, lines up and erased lines are understood."""
    lines, row, column = [""], 0, 0
    for piece in _PIECE.finditer(sent):
        text = piece[0]
        if text == "\r":
            column = 0
        elif text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif text.startswith("\x1b"):
            if piece[2] == "A":
                row = max(0, row - int(piece[1] or 1))
            elif piece[2] == "K":
                lines[row] = ""
        else:
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
            column += len(text)
    return [line.rstrip() for line in lines]
