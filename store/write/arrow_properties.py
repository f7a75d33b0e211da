"""The stored form of the properties of a record batch, made by Arrow's own functions: no message becomes an object.

The plain twin is `formats.properties.encode_properties` of each row's properties.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from formats import properties as names
from formats.errors import UsageError
from store.columns.batch import Flags, Int64s
from store.columns.frames import Held
from store.write.ordinary import property_template

# beyond so many pairs of a message and a name it is not looked for names that come twice: the whole way takes all
_LARGEST_TABLE = 1 << 26


class Spans(NamedTuple):
    """Binary values: where each begins and ends in the bytes that are held."""

    held: Held
    starts: Int64s
    ends: Int64s


class Properties(NamedTuple):
    """Stored properties by row. `usual`: rows whose properties are these bytes and nothing special."""

    data: Spans
    usual: Flags


def spans_of(array: Any) -> Spans:
    """The values of an array of texts or bytes, not copied but for 32-bit offsets; of length 0 where null."""
    if pa.types.is_binary_view(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.binary())
    wide = array.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    places = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1] if len(wide) else np.zeros(1)
    places = places.astype(np.int64, copy=False)
    return Spans(Held(data.address if data is not None else 0, wide), places[:-1], places[1:])


def properties_of_batch(batch: pa.RecordBatch) -> Properties:
    """What `properties` say; for rows where they are null or missing what `tags` and `keys` say."""
    usual = np.ones(batch.num_rows, np.bool_)
    short = _of_tags_and_keys(batch, usual)
    if "properties" not in batch.schema.names:
        return Properties(spans_of(short), usual)
    found = batch.column("properties")
    if not pa.types.is_map(found.type):
        raise UsageError(f"properties must be a map of texts, not {found.type}")
    edges = _edges(found, len(found.keys))
    begin, length = int(edges[0]), int(edges[-1] - edges[0])
    keys, items = (checked(one.slice(begin, length)).cast(pa.string()) for one in (found.keys, found.items))
    edges = edges - begin
    _judge(keys, items, edges, usual)
    segments = pc.binary_join_element_wise(keys, "\x01", items, "\x02", "")
    both = spans_of(pa.concat_arrays([segments.cast(pa.large_binary()), short.cast(pa.large_binary())]))
    # the segments of a row lie one behind the other: where its first begins and its last ends is all there is to say
    places = np.append(both.starts, both.ends[-1:] if len(both.ends) else [0])
    is_null = np.asarray(found.is_null().to_numpy(zero_copy_only=False), np.bool_)
    starts = np.where(is_null, both.starts[length:], places[edges[:-1]])
    ends = np.where(is_null, both.ends[length:], places[edges[1:]])
    return Properties(Spans(both.held, starts, ends), usual)


def checked(array: Any) -> Any:
    """`array`, whose offsets, numbers and texts are as they must be; pyarrow.ArrowInvalid else."""
    array.validate(full=True)
    return array


def _edges(found: Any, length: int) -> Int64s:
    """Where the entries of each value of a list or map array begin and end among all `length` of them.

    Looked at here because Arrow's own check looks at all entries, of however few values a slice is.
    """
    edges = np.asarray(found.offsets.to_numpy(zero_copy_only=False), np.int64)
    if not len(edges):
        return np.zeros(1, np.int64)
    if edges[0] < 0 or edges[-1] > length or np.any(edges[1:] < edges[:-1]):
        raise pa.ArrowInvalid("the offsets of a list are out of order")
    return edges


def _judge(keys: Any, items: Any, edges: Int64s, usual: Flags) -> None:
    """Rows with names or values that need more than to be written down are not usual."""
    bad = np.zeros(len(keys), np.bool_)
    for column, text in ((items, "\x02"), (keys, "\x01"), (keys, "\x02")):
        bad |= np.asarray(pc.match_substring(column, text).fill_null(True).to_numpy(zero_copy_only=False), np.bool_)
    encoded = keys.dictionary_encode()
    known = encoded.dictionary.to_pylist()
    numbers = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)
    special = np.array([property_template((name,)) is None for name in known] or [False], np.bool_)
    bad |= special[numbers] if len(numbers) else False
    rows = np.repeat(np.arange(len(usual)), np.diff(edges))
    usual[rows[bad]] = False
    if len(usual) * len(known) > _LARGEST_TABLE:
        usual[:] = False
        return
    met = np.bincount(rows * len(known) + numbers) if len(numbers) else np.zeros(0, np.int64)
    usual[np.flatnonzero(met > 1) // max(1, len(known))] = False


def _of_tags_and_keys(batch: pa.RecordBatch, usual: Flags) -> Any:
    """An array of the properties that `keys` and `tags` make, empty where both are null."""
    parts = []
    if "keys" in batch.schema.names:
        keys = batch.column("keys")
        if not pa.types.is_list(keys.type):
            raise UsageError(f"keys must be a list of texts, not {keys.type}")
        _edges(keys, len(keys.values))
        single = checked(keys.flatten())
        if single.null_count or pc.any(pc.or_(pc.match_substring(single, " "), pc.equal(single, ""))).as_py():
            raise UsageError("keys must be texts without spaces", hint="RocketMQ separates keys by spaces")
        joined = pc.if_else(pc.greater(pc.list_value_length(keys), 0), pc.binary_join(keys, " "), None)
        parts.append((names.KEYS, joined))
    if "tags" in batch.schema.names:
        parts.append((names.TAGS, checked(batch.column("tags")).cast(pa.string())))
    if not parts:
        return pa.array([""] * batch.num_rows, pa.string())
    written = []
    for name, values in parts:
        usual &= ~np.asarray(
            pc.match_substring(values, "\x02").fill_null(False).to_numpy(zero_copy_only=False), np.bool_
        )
        written.append(pc.binary_join_element_wise(name + "\x01", values, "\x02", ""))
    return pc.binary_join_element_wise(*(one.fill_null("") for one in written), "")
