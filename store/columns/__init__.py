"""The commitlog as columns: the same walk as `store.commitlog.walk`, with runs of messages as arrays.

for record in walk_columns(log, columns=Columns.DISPATCH):
    if isinstance(record, MessageColumns): ...   # else Blank, Empty or Damage
"""

from __future__ import annotations

from store.columns.batch import ColumnRecord, Columns, MessageColumns, NeedsPlain
from store.columns.engine import announce_compilation, speed_notice
from store.columns.parallel import LogCheck, check_log, walk_parallel
from store.columns.topics import TopicTable
from store.columns.walk import walk_columns

__all__ = [
    "ColumnRecord",
    "Columns",
    "LogCheck",
    "MessageColumns",
    "NeedsPlain",
    "TopicTable",
    "announce_compilation",
    "check_log",
    "speed_notice",
    "walk_columns",
    "walk_parallel",
]
