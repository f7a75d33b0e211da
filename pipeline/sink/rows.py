"""Rows of a frame as messages: which columns it may have, of which types, and what of them is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.formats.errors import UsageError
from rmqctl.pipeline.source.tables import BIGINT, BINARY, INT, STRING, TABLES, TIMESTAMP

_REQUIRED = ("topic", "body")
# what a message is made of, as in write.bulk.arrow_rows; all other columns of the view follow from it or from its place
_MADE_OF = (
    *_REQUIRED,
    *("queue_id", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset", "born_timestamp", "born_host"),
    *("tags", "keys", "properties", "stored_properties", "stored_body", "body_error"),
)
_OF_COPIES = ("store_timestamp", "store_host")
_WHOLE = ("tinyint", "smallint", INT, BIGINT)
_ALSO = {INT: _WHOLE, BIGINT: _WHOLE, TIMESTAMP: (TIMESTAMP, BIGINT)}
_BODIES = (BINARY, STRING)


def require_columns(columns: Sequence[tuple[str, str]], as_stored: bool) -> tuple[str, ...]:
    """Which columns of a frame are taken, given names and types as Spark's DDL writes them. UsageError for a column
    that the view `messages` does not have, that has another type or comes twice, and if one is missing."""
    known = TABLES["messages"].columns
    names = [name for name, _ in columns]
    for name, kind in columns:
        if name not in known:
            raise UsageError(f"messages have no column {name!r}", hint=f"their columns are {', '.join(known)}")
        if names.count(name) > 1:
            raise UsageError(f"there are several columns {name!r}")
        allowed = _BODIES if name == "body" else _ALSO.get(known[name].kind, (known[name].kind,))
        if name in (*_MADE_OF, *_OF_COPIES) and kind not in allowed:
            raise UsageError(f"column {name!r} has type {kind}", hint=f"it must be {' or '.join(allowed)}")
    for name in _REQUIRED:
        if name not in names:
            raise UsageError(f"there is no column {name!r}", hint=f"every message needs {' and '.join(_REQUIRED)}")
    wanted = (*_MADE_OF, *_OF_COPIES) if as_stored else _MADE_OF
    return tuple(name for name in names if name in wanted)


def rows_to_stage(batch: pa.RecordBatch, names: Sequence[str], row: int) -> pa.RecordBatch:
    """The columns `names` of a batch whose first row is number `row` of its task. Times become ms: Spark has
    microseconds. UsageError names a row without topic or body."""
    for name in _REQUIRED:
        column = batch.column(name)
        if column.null_count:
            first = pc.index(column.is_null(), True).as_py()
            raise UsageError(f"row {row + first} has no {name}")
    return pa.RecordBatch.from_arrays([_in_milliseconds(batch.column(name)) for name in names], names=list(names))


def _in_milliseconds(array: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(array.type):
        return array
    return pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms", array.type.tz))


def queues_of(batch: pa.RecordBatch) -> Mapping[str, int]:
    """How many queues each topic of a batch of staged rows needs."""
    numbers = batch.column("queue_id") if "queue_id" in batch.schema.names else pa.repeat(pa.scalar(0), batch.num_rows)
    table = pa.table({"topic": batch.column("topic").cast(pa.string()), "queue": pc.fill_null(numbers, 0)})
    found = table.group_by("topic").aggregate([("queue", "max")])
    return {row["topic"]: int(row["queue_max"]) + 1 for row in found.to_pylist()}
