"""Text that people type or pipe, cut into statements of SQL at the semicolons that are not part of them."""

from __future__ import annotations

import re
from typing import NamedTuple

# what may hold a semicolon without ending a statement; an unfinished one reaches to the end of the text
_REST = r"""|(?P<comment>--[^\n]*+|/\*.*?(?:\*/|\Z))|(?P<end>;)"""
_SPARK = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*+(?:'|\Z)|"(?:[^"\\]|\\.)*+(?:"|\Z)|`[^`]*+(?:`|\Z))""" + _REST, re.DOTALL
)
# where a backslash is a character like others, and texts may stand between dollars
_DUCKDB = re.compile(
    r"""(?P<quoted>'[^']*+(?:'|\Z)|"[^"]*+(?:"|\Z)|(?P<dollars>\$(?:[^\W\d]\w*)?\$).*?(?:(?P=dollars)|\Z))""" + _REST,
    re.DOTALL,
)


class Cut(NamedTuple):
    """Whole statements without their semicolons, and what is left behind the last one. Empty ones are left out."""

    statements: list[str]
    rest: str


def cut_statements(text: str, *, of_spark: bool = False) -> Cut:
    """The statements of `text`, of DuckDB or of Spark. A rest of nothing but space and comments is empty."""
    parts = _SPARK if of_spark else _DUCKDB
    statements: list[str] = []
    begin = 0
    for match in parts.finditer(text):
        if match["end"]:
            _add(statements, text[begin : match.start()], parts)
            begin = match.end()
    rest = text[begin:]
    return Cut(statements, rest if _says_something(rest, parts) else "")


def _add(statements: list[str], text: str, parts: re.Pattern[str]) -> None:
    if _says_something(text, parts):
        statements.append(text.strip())


def _says_something(text: str, parts: re.Pattern[str]) -> bool:
    without = parts.sub(lambda match: "" if match["comment"] else match[0], text)
    return bool(without.strip())
