"""Further stores beside the one that a query is about, each under a name of its own, as databases are attached."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from rmqctl.formats.errors import UsageError
from rmqctl.pipeline.stores.several import path_list
from rmqctl.store.remote.address import absolute_place

MAIN = "main"
"""The schema of the store that is not attached, as DuckDB and SQLite call it."""

# what the engines call schemas and catalogs of theirs
_TAKEN = frozenset(
    (
        MAIN,
        "temp",
        "system",
        "memory",
        "information_schema",
        "pg_catalog",
        "global_temp",
        "default",
        "session",
        "builtin",
    )
)


def attached_stores(given: Sequence[str]) -> dict[str, str]:
    """Paths by name, of texts NAME=PATH; UsageError for what is none, and for a name that is taken."""
    found: dict[str, str] = {}
    for text in given:
        name, separator, path = text.partition("=")
        name = name.strip()
        if not separator or not path.strip():
            raise UsageError(f"{text!r} attaches no store", hint="write it as b=/data/broker-b/store")
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise UsageError(
                f"{name!r} cannot be the name of a store", hint="take letters, digits and _: it is for SQL"
            )
        if name.lower() in _TAKEN or name.lower() in found:
            raise UsageError(f"the name {name!r} is taken", hint="give the store another one")
        found[name.lower()] = absolute(path.strip())
    return found


def absolute(path: str | Sequence[str]) -> str:
    """What the data source takes for a path, a pattern or several paths, seen from any working directory."""
    several = path_list(path) if isinstance(path, str) else tuple(path)
    if several is not None:
        return json.dumps([absolute_place(one) for one in several])
    return absolute_place(str(path))


def options_by_schema(
    path: str | Sequence[str], options: Mapping[str, str], attached: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """What the data source is told of each store, by the name of its schema. A broker.conf is about `path` alone."""
    further = {name: value for name, value in options.items() if name != "config"}
    return {
        MAIN: {**options, "path": absolute(path)},
        **{name: {**further, "path": absolute(one)} for name, one in attached.items()},
    }
