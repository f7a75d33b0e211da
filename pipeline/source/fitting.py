"""Makes record batches exactly what Spark expects of a source: its types, its field names, no dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_MICROS = 1000
# Spark counts microseconds in 64 bits: times in ms beyond this have no timestamp
_LATEST_MS = ((1 << 63) - 1) // _MICROS

_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "binary": pa.binary(),
}


def fitted(arrays: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of exactly this schema from arrays by column name.

    Timestamps come in ms. One that no microseconds can say (a damaged head may hold any number) becomes null.
    """
    return pa.RecordBatch.from_arrays([_fitted(arrays[field.name], field.type) for field in schema], schema=schema)


def labelled(arrays: Mapping[str, pa.Array], labels: Mapping[str, str | None], rows: int) -> dict[str, pa.Array]:
    """Arrays of so many rows, and beside them those of columns that hold the same text in every row."""
    return {**arrays, **{name: pa.repeat(pa.scalar(text, pa.string()), rows) for name, text in labels.items()}}


def _fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    if pa.types.is_timestamp(kind):
        times = array.view(pa.int64())
        possible = pc.and_(pc.greater_equal(times, -_LATEST_MS), pc.less_equal(times, _LATEST_MS))
        times = pc.if_else(possible, times, pa.scalar(None, pa.int64()))
        return pc.multiply(times, _MICROS).view(kind)
    return array.cast(kind)


def columns_of(rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> dict[str, pa.Array]:
    """Arrays of rows; `kinds` has the type of each column as Spark's DDL writes it. Timestamps in ms."""
    return {name: pa.array([row.get(name) for row in rows], _TYPES[kind]) for name, kind in kinds.items()}
