"""Text that people type or pipe, cut into statements of SQL at the semicolons that are not part of them."""

from __future__ import annotations

import re
from typing import NamedTuple

# what may hold a semicolon without ending a statement; an unfinished one reaches to the end of the text
_PARTS = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*+(?:'|\Z)|"(?:[^"\\]|\\.)*+(?:"|\Z)|`[^`]*+(?:`|\Z))"""
    r"""|(?P<comment>--[^\n]*+|/\*.*?(?:\*/|\Z))|(?P<end>;)""",
    re.DOTALL,
)


class Cut(NamedTuple):
    """Whole statements without their semicolons, and what is left behind the last one. Empty ones are left out."""

    statements: list[str]
    rest: str


def cut_statements(text: str) -> Cut:
    """The statements of `text`. A rest of nothing but space and comments is empty."""
    statements: list[str] = []
    begin = 0
    for match in _PARTS.finditer(text):
        if match["end"]:
            _add(statements, text[begin : match.start()])
            begin = match.end()
    rest = text[begin:]
    return Cut(statements, rest if _says_something(rest) else "")


def _add(statements: list[str], text: str) -> None:
    if _says_something(text):
        statements.append(text.strip())


def _says_something(text: str) -> bool:
    without = _PARTS.sub(lambda match: "" if match["comment"] else match[0], text)
    return bool(without.strip())
