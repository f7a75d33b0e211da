"""Adds a property to messages of a record batch. Importing this module imports pyarrow.

The plain twin is `{**message.properties, name: value}` of each row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.formats import properties as names
from rmqctl.formats.errors import UsageError
from rmqctl.store.columns.batch import Flags, Int64s
from rmqctl.store.scan.arrays import bitmap
from rmqctl.store.write.bulk.arrow_properties import checked, edges_of, flags, texts_of_keys, texts_of_tags

_MAP = pa.map_(pa.string(), pa.string())


class _Entries(NamedTuple):
    """Names and values of properties one behind the other; by row how many."""

    names: Any
    values: Any
    counts: Int64s


def lacking(batch: pa.RecordBatch, name: str) -> Flags:
    """By row whether a property of this name is missing and could be added: not where properties are given as stored.
    UsageError for columns that cannot be stored."""
    try:
        lacks = np.ones(batch.num_rows, np.bool_)
        if "stored_properties" in batch.schema.names:
            lacks &= flags(batch.column("stored_properties").is_null())
        if "properties" in batch.schema.names:
            found = _of_map(batch.column("properties"))
            has = flags(pc.equal(found.names, name).fill_null(False))
            lacks[np.repeat(np.arange(batch.num_rows), found.counts)[has]] = False
        return lacks
    except pa.ArrowException as error:
        raise UsageError(f"the columns cannot be stored: {error}") from error


def with_property(batch: pa.RecordBatch, rows: Flags, name: str, values: Callable[[int], pa.Array]) -> pa.RecordBatch:
    """`batch` with another property behind all others of these `rows`, which lack it. `values` gives so many texts.

    The others of a row are those of `properties`, where that is null or missing those that `tags` and `keys` make.
    UsageError for columns that cannot be stored; no values are asked for then.
    """
    if not rows.any():
        return batch
    try:
        present, parts = _given(batch, rows)
        count = int(rows.sum())
        parts.append(_Entries(pa.repeat(pa.scalar(name), count), values(count), rows.astype(np.int64)))
        made = _merged(parts, present | rows)
    except pa.ArrowException as error:
        raise UsageError(f"the columns cannot be stored: {error}") from error
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return pa.RecordBatch.from_pydict(columns | {"properties": made})


def _given(batch: pa.RecordBatch, rows: Flags) -> tuple[Flags, list[_Entries]]:
    """Which rows have a map, and in order what these have in it and what `keys` and `tags` give the other `rows`."""
    parts: list[_Entries] = []
    present = np.zeros(batch.num_rows, np.bool_)
    if "properties" in batch.schema.names:
        column = batch.column("properties")
        present = flags(column.is_valid())
        parts.append(_of_map(column))
    for name, texts in ((names.KEYS, texts_of_keys(batch)), (names.TAGS, texts_of_tags(batch))):
        if texts is not None:
            there = flags(texts.is_valid()) & rows & ~present
            found = texts.filter(pa.array(there))
            parts.append(_Entries(pa.repeat(pa.scalar(name), len(found)), found, there.astype(np.int64)))
    return present, parts


def _of_map(column: Any) -> _Entries:
    if not pa.types.is_map(column.type):
        raise UsageError(f"properties must be a map of texts, not {column.type}")
    edges = edges_of(column, len(column.keys))
    counts = np.where(flags(column.is_valid()), np.diff(edges), 0)
    begin, length = int(edges[0]), int(edges[-1] - edges[0])
    found = [checked(one.slice(begin, length)).cast(pa.string()) for one in (column.keys, column.items)]
    if int(counts.sum()) != length:  # entries of a row that is null
        kept = pa.array(np.repeat(counts > 0, np.diff(edges)))
        found = [one.filter(kept) for one in found]
    return _Entries(found[0], found[1], counts)


def _merged(parts: list[_Entries], present: Flags) -> pa.Array:
    """A map array: of each row the entries of all parts in their order; null where not `present`."""
    edges = np.zeros(len(present) + 1, np.int64)
    np.cumsum(sum(part.counts for part in parts), out=edges[1:])
    order = np.empty(edges[-1], np.int64)
    places, before = edges[:-1].copy(), 0
    for part in parts:
        total = int(part.counts.sum())
        within = np.arange(total) - np.repeat(np.cumsum(part.counts) - part.counts, part.counts)
        order[np.repeat(places, part.counts) + within] = np.arange(before, before + total)
        places += part.counts
        before += total
    sides = zip(*(part[:2] for part in parts), strict=True)
    keys, items = (pa.concat_arrays(side).take(pa.array(order)) for side in sides)
    children = pa.StructArray.from_arrays([keys, items], fields=[_MAP.key_field, _MAP.item_field])
    buffers = [bitmap(present), pa.py_buffer(edges.astype(np.int32))]
    return pa.Array.from_buffers(_MAP, len(present), buffers, children=[children])
