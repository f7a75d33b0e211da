"""Which statements are answered: those that ask, and those that make or drop a view of the session."""

from __future__ import annotations

import re
from typing import Any

from rmqctl.pipeline.source.tables import TABLES
from rmqctl.pipeline.sql.errors import QueryError

_SPACE = r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)"
_VIEW = re.compile(
    rf"{_SPACE}*(?:create{_SPACE}+(?:or{_SPACE}+replace{_SPACE}+)?temp(?:orary)?|drop){_SPACE}+view{_SPACE}+"
    rf'(?:if{_SPACE}+(?:not{_SPACE}+)?exists{_SPACE}+)?(?:(?:"[^"]*"|\w+)\.)*"?(?P<name>\w*)',
    re.IGNORECASE | re.DOTALL,
)
_VARIABLE = re.compile(rf"{_SPACE}*(?:re)?set{_SPACE}+variable\b", re.IGNORECASE | re.DOTALL)
_EXPLAIN = re.compile(
    rf"{_SPACE}*explain{_SPACE}+(?:analyze{_SPACE}+)?(?:\([^)]*\){_SPACE}*)?", re.IGNORECASE | re.DOTALL
)
_PIVOT = re.compile(r"\b(?:un)?pivot\b|\bpivot_", re.IGNORECASE)


def require_harmless(connection: Any, statement: str) -> str:
    """The kind of a statement, as DuckDB names it; QueryError for one that is not answered, and for several."""
    found = connection.extract_statements(statement)
    if len(found) != 1:
        raise QueryError("there is no statement" if not found else "these are several statements; separate them by ';'")
    kind = str(found[0].type).rpartition(".")[2]
    if not _is_harmless(connection, kind, statement):
        raise QueryError(
            "only queries are answered here: this statement would change something",
            hint="SELECT, EXPLAIN, DESCRIBE, SHOW, SUMMARIZE, SET VARIABLE and CREATE TEMPORARY VIEW are understood",
        )
    return kind


def _is_harmless(connection: Any, kind: str, statement: str) -> bool:
    if kind == "SELECT":
        return True
    if kind == "EXPLAIN":
        inner = _EXPLAIN.match(statement)
        # what is explained with ANALYZE is carried out
        return inner is not None and require_harmless(connection, statement[inner.end() :]) != "EXPLAIN"
    if kind in ("CREATE", "DROP"):
        view = _VIEW.match(statement)
        return view is not None and view["name"].lower() not in TABLES
    if kind == "SET":
        return _VARIABLE.match(statement) is not None
    # what PIVOT becomes: it looks for its columns first
    return kind == "MULTI" and _PIVOT.search(statement) is not None
