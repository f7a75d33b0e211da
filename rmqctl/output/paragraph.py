"""Prints a line of text as a paragraph: as it is into a pipe, wrapped to the width of a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from rmqctl.output.table import visible

if TYPE_CHECKING:
    from rmqctl.output.output import Output

_NARROWEST = 40


def print_paragraph(output: Output, line: str, indent: str = "", *, style: str | None = None) -> None:
    """Print to stdout, on a terminal in this style; lines after the first one begin with `indent`."""
    for part in wrapped(line, indent, is_terminal=sys.stdout is not None and sys.stdout.isatty()):
        output.text(part, style=style)


def talk_paragraph(output: Output, line: str, indent: str = "") -> None:
    """The same on stderr."""
    for part in wrapped(line, indent, is_terminal=sys.stderr is not None and sys.stderr.isatty()):
        output.talk(part)


def wrapped(line: str, indent: str, *, is_terminal: bool) -> list[str]:
    """The lines of a paragraph, sanitised before they are measured; one line if it is for no terminal."""
    line = visible(line)
    if not is_terminal:
        return [line]
    width = max(shutil.get_terminal_size().columns, _NARROWEST)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False) or [""]
