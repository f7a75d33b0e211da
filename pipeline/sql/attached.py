"""Names of views in a statement for Spark.

A temporary view of Spark's has no schema. So `b.messages`, of the store that is attached as b, is a view whose name has
a dot in it, and a statement that names it is given to Spark with that name.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from rmqctl.pipeline.source.tables import TABLES
from rmqctl.pipeline.sql.plans import each, kind_of, nodes
from rmqctl.pipeline.stores.attaching import MAIN

_NAMES = ("UnresolvedRelation", "UnresolvedTableOrView", "UnresolvedView", "UnresolvedTable")
# where no alias may follow
_TABLE = re.compile(r"\btable\s+$", re.IGNORECASE)
_CLAUSE = re.compile(r"\s+(?:tablesample|version|timestamp|system_time|for|with|watermark)\b", re.IGNORECASE)


def session_view(schema: str, view: str) -> str:
    """What a view of a store is called in the session of Spark."""
    return view if schema == MAIN else f"{schema}.{view}"


def with_session_views(statement: str, plan: Any, schemas: Collection[str]) -> str:
    """A statement, parsed as `plan`, with the names of the session for views that it names with a schema."""
    found: dict[int, tuple[int, str]] = {}
    for node, parent in nodes(plan):
        if kind_of(node) not in _NAMES:
            continue
        parts = [str(part).lower() for part in each(node.multipartIdentifier())]
        begin, end = node.origin().startIndex(), node.origin().stopIndex()
        if len(parts) != 2 or parts[0] not in schemas or parts[1] not in TABLES or not begin.isDefined():
            continue
        name = f"`{session_view(*parts)}`"
        is_named = parent is not None and kind_of(parent) == "SubqueryAlias"
        before, behind = statement[: begin.get()], statement[end.get() + 1 :]
        if kind_of(node) == _NAMES[0] and not is_named and not _TABLE.search(before) and not _CLAUSE.match(behind):
            name += f" as {parts[1]}"
        found[begin.get()] = (end.get() + 1, name)
    for begin in sorted(found, reverse=True):
        statement = f"{statement[:begin]}{found[begin][1]}{statement[found[begin][0] :]}"
    return statement
