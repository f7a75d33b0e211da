"""The stored form of the properties of a record batch, made by Arrow's own functions: no message becomes an object.

The plain twin is `rmqctl.formats.properties.encode_properties` of each row's properties.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.formats import properties as names
from rmqctl.formats.errors import UsageError
from rmqctl.store.columns.batch import Flags, Int64s
from rmqctl.store.columns.frames import Held
from rmqctl.store.write.bulk.property_join import joined_properties, value_offsets
from rmqctl.store.write.property_text import STORED_UNUSUAL, property_template

# beyond so many pairs of a message and a name it is not looked for names that come twice: the slow path takes all
_LARGEST_TABLE = 1 << 26
_ARE_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


class Spans(NamedTuple):
    """Binary values: where each begins and ends in the bytes that are held."""

    held: Held
    starts: Int64s
    ends: Int64s


class Properties(NamedTuple):
    """Stored properties by row. `usual`: rows whose properties are these bytes and nothing special."""

    data: Spans
    usual: Flags


def value_spans(array: Any) -> Spans:
    """The values of an array of texts or bytes, not copied but for 32-bit offsets; of length 0 where null."""
    if pa.types.is_binary_view(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.binary())
    wide = array.cast(pa.large_binary())
    data, places = wide.buffers()[2], value_offsets(wide, np.int64)
    return Spans(Held(data.address if data is not None else 0, wide), places[:-1], places[1:])


def with_stored(batch: pa.RecordBatch, name: str, spans: Spans) -> tuple[Spans, Flags]:
    """`spans`, replaced by the bytes of a column where that is there and not null; and where that is so.

    UsageError for a column that is not of bytes.
    """
    if name not in batch.schema.names or batch.column(name).null_count == batch.num_rows:
        return spans, np.zeros(batch.num_rows, np.bool_)
    column = checked(batch.column(name))
    if not any(test(column.type) for test in _ARE_BYTES):
        raise UsageError(f"{name} must be bytes, not {column.type}")
    found, there = value_spans(column), flags(column.is_valid())
    # both are reached from one address: offsets between buffers are numbers like any other
    distance = found.held.address - spans.held.address
    held = Held(spans.held.address, (spans.held.owner, found.held.owner))
    starts = np.where(there, found.starts + distance, spans.starts)
    return Spans(held, starts, np.where(there, found.ends + distance, spans.ends)), there


def flags(array: Any) -> Flags:
    """A boolean array without nulls as numpy has it."""
    return np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)


def properties_of_batch(batch: pa.RecordBatch) -> Properties:
    """What `properties` say; for rows where they are null or missing what `tags` and `keys` say; and instead of both
    the bytes of `stored_properties` where those are not null."""
    made = _made_properties(batch)
    spans, is_stored = with_stored(batch, "stored_properties", made.data)
    if not is_stored.any():
        return made
    texts = batch.column("stored_properties").cast(pa.binary()).cast(pa.string())
    unusual = flags(pc.match_substring_regex(texts, STORED_UNUSUAL).fill_null(False))
    return Properties(spans, np.where(is_stored, ~unusual, made.usual))


def _made_properties(batch: pa.RecordBatch) -> Properties:
    usual = np.ones(batch.num_rows, np.bool_)
    short = _of_tags_and_keys(batch, usual)
    if "properties" not in batch.schema.names:
        return Properties(value_spans(short), usual)
    found = batch.column("properties")
    if not pa.types.is_map(found.type):
        raise UsageError(f"properties must be a map of texts, not {found.type}")
    edges = edges_of(found, len(found.keys))
    begin, length = int(edges[0]), int(edges[-1] - edges[0])
    keys, items = (checked(one.slice(begin, length)).cast(pa.string()) for one in (found.keys, found.items))
    edges = edges - begin
    each = _names_each(keys, items, edges)
    joined = None if each is None or found.null_count else joined_properties(keys, items, len(usual), each)
    if joined is not None:
        held, places = joined
        return Properties(Spans(held, places[:-1], places[1:]), usual)
    segments = pc.binary_join_element_wise(keys, "\x01", items, "\x02", "").cast(pa.large_binary())
    _judge(keys, items, edges, usual, segments)
    is_null = flags(found.is_null())
    both = value_spans(pa.concat_arrays([segments, short.cast(pa.large_binary())]) if is_null.any() else segments)
    # the segments of a row lie one behind the other: where its first begins and its last ends is all there is to say
    places = np.append(both.starts, both.ends[-1:] if len(both.ends) else [0])
    starts, ends = places[edges[:-1]], places[edges[1:]]
    if is_null.any():
        starts = np.where(is_null, both.starts[length:], starts)
        ends = np.where(is_null, both.ends[length:], ends)
    return Properties(Spans(both.held, starts, ends), usual)


def _names_each(names: Any, values: Any, edges: Int64s) -> int | None:
    """How many properties every row has; None where these are different numbers, none, a null, or of a first row whose
    names come twice or need more than to be written down."""
    counts = np.diff(edges)
    each = int(counts[0]) if len(counts) else 0
    if not each or names.null_count or values.null_count or not np.all(counts == each):
        return None
    first = names.slice(0, each).to_pylist()
    return each if property_template(tuple(first)) is not None and len(set(first)) == each else None


def checked(array: Any) -> Any:
    """`array`, whose offsets, numbers and texts are as they must be; pyarrow.ArrowInvalid else."""
    array.validate(full=True)
    return array


def edges_of(found: Any, length: int) -> Int64s:
    """Where the entries of each value of a list or map array begin and end among all `length` of them.

    Looked at here because Arrow's own check looks at all entries, of however few values a slice is.
    """
    edges = np.asarray(found.offsets.to_numpy(zero_copy_only=False), np.int64)
    if not len(edges):
        return np.zeros(1, np.int64)
    if edges[0] < 0 or edges[-1] > length or np.any(edges[1:] < edges[:-1]):
        raise pa.ArrowInvalid("the offsets of a list are out of order")
    return edges


def _judge(keys: Any, items: Any, edges: Int64s, usual: Flags, segments: Any) -> None:
    """Rows with names or values that need more than to be written down are not usual."""
    encoded = keys.dictionary_encode()
    known = encoded.dictionary.to_pylist()
    if len(usual) * len(known) > _LARGEST_TABLE or keys.null_count:
        usual[:] = False
        return
    numbers = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)
    special = np.array([property_template((name,)) is None for name in known] or [False], np.bool_)
    if not special.any() and not items.null_count and _has_one_separator_each(segments) and _is_uniform(numbers, edges):
        return
    bad = flags(pc.match_substring(items, "\x02").fill_null(True))
    bad |= special[numbers]
    rows = np.repeat(np.arange(len(usual)), np.diff(edges))
    usual[rows[bad]] = False
    met = np.bincount(rows * len(known) + numbers) if len(numbers) else np.zeros(0, np.int64)
    usual[np.flatnonzero(met > 1) // max(1, len(known))] = False


def _has_one_separator_each(segments: Any) -> bool:
    """Whether only the ends of these segments are separators."""
    spans = value_spans(segments)
    if not len(segments):
        return True
    _, _, data = segments.buffers()
    found = np.frombuffer(data, np.uint8)[spans.starts[0] : spans.ends[-1]] == ord(names.PROPERTY_SEPARATOR)
    return int(np.count_nonzero(found)) == len(segments)


def _is_uniform(numbers: Int64s, edges: Int64s) -> bool:
    """Whether all rows have the same names in the same order, none of them twice."""
    counts = np.diff(edges)
    each = int(counts[0]) if len(counts) else 0
    if not np.all(counts == each):
        return False
    table = numbers.reshape(len(counts), each)
    return each == 0 or (len(set(table[0].tolist())) == each and bool(np.all(table == table[0])))


def _of_tags_and_keys(batch: pa.RecordBatch, usual: Flags) -> Any:
    """An array of the properties that `keys` and `tags` make, empty where both are null."""
    written = []
    for name, values in ((names.KEYS, texts_of_keys(batch)), (names.TAGS, texts_of_tags(batch))):
        if values is None:
            continue
        usual &= ~flags(pc.match_substring(values, "\x02").fill_null(False))
        written.append(pc.binary_join_element_wise(name + "\x01", values, "\x02", ""))
    if not written:
        return pa.repeat(pa.scalar("", pa.string()), batch.num_rows)
    return pc.binary_join_element_wise(*(one.fill_null("") for one in written), "")


def texts_of_keys(batch: pa.RecordBatch) -> Any:
    """What the property KEYS is by `keys`, null where there are none; None without the column. UsageError for keys
    that cannot be told apart."""
    if "keys" not in batch.schema.names:
        return None
    keys = batch.column("keys")
    if not pa.types.is_list(keys.type):
        raise UsageError(f"keys must be a list of texts, not {keys.type}")
    edges_of(keys, len(keys.values))
    single = checked(keys.flatten())
    if single.null_count or pc.any(pc.or_(pc.match_substring(single, " "), pc.equal(single, ""))).as_py():
        raise UsageError("keys must be texts without spaces", hint="RocketMQ separates keys by spaces")
    # Arrow joins lists of this very type only, not of texts that are never null
    joined = pc.binary_join(keys.cast(pa.list_(pa.string())), " ")
    return pc.if_else(pc.greater(pc.list_value_length(keys), 0), joined, None)


def texts_of_tags(batch: pa.RecordBatch) -> Any:
    """What the property TAGS is by `tags`; None without the column."""
    return checked(batch.column("tags")).cast(pa.string()) if "tags" in batch.schema.names else None
