"""Wraps text by the columns it takes on a terminal: a Chinese character takes two, and a line may end after it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rmqctl.output.table import width_of

# what no line begins with, and what no line ends with
_CLOSING = "，。、；：！？）》」』”…—％"
_OPENING = "（《「『“"
_PIECE = re.compile(r"( +)|([\x21-\x7e\xa0-\u02ff]+)|(.)", re.DOTALL)


def wrap(text: str, width: int, indent: str = "", first: str = "") -> list[str]:
    """Return the lines of a paragraph, each of at most `width` columns where its words allow it. `first` comes before
    the first line, `indent` before the others. Words in Latin script and what hangs on them are not broken."""
    lines: list[str] = []
    line = first
    is_empty, gap = True, ""
    for piece in _pieces(text):
        if piece.isspace():
            gap = piece
            continue
        if not is_empty and width_of(line + gap + piece) > width:
            lines.append(line)
            line, is_empty, gap = indent, True, ""
        line += piece if is_empty else gap + piece
        is_empty, gap = False, ""
    return [*lines, line] if not is_empty or not lines else lines


def _pieces(text: str) -> Iterator[str]:
    """The parts between which a line may be broken; closing marks belong to what is before them, opening ones to what
    follows."""
    pending = ""
    for found in _PIECE.finditer(text):
        piece = found[0]
        is_mark = found[3] is not None and piece in _CLOSING
        if pending and not is_mark and pending[-1] not in _OPENING:
            yield pending
            pending = ""
        if piece.isspace():
            if pending:
                yield pending
                pending = ""
            yield piece
        else:
            pending += piece
    if pending:
        yield pending
