"""The commitlog as columns: the same walk as `store.commitlog.walk`, with runs of messages as arrays.

for record in walk_columns(log, columns=Columns.DISPATCH):
    if isinstance(record, MessageColumns): ...   # else Blank, Empty or Damage
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.columns.batch import ColumnRecord, Columns, MessageColumns, NeedsPlain
    from store.columns.engine import speed_notice
    from store.columns.notices import tell_notices
    from store.columns.parallel import LogCheck, check_log, walk_parallel
    from store.columns.topics import TopicTable
    from store.columns.walk import walk_columns

_HOMES = {
    "ColumnRecord": "batch",
    "Columns": "batch",
    "LogCheck": "parallel",
    "MessageColumns": "batch",
    "NeedsPlain": "batch",
    "TopicTable": "topics",
    "check_log": "parallel",
    "speed_notice": "engine",
    "tell_notices": "notices",
    "walk_columns": "walk",
    "walk_parallel": "parallel",
}

__all__ = [
    "ColumnRecord",
    "Columns",
    "LogCheck",
    "MessageColumns",
    "NeedsPlain",
    "TopicTable",
    "check_log",
    "speed_notice",
    "tell_notices",
    "walk_columns",
    "walk_parallel",
]


def __getattr__(name: str) -> object:
    # Not while the package is imported: two threads that load parts of it for the first time would each wait for the
    # other, and Python would then give one of them half a module.
    if name in _HOMES:
        return getattr(import_module(f"store.columns.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'store.columns' has no attribute {name!r}")
