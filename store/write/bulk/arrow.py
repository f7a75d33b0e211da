"""Messages of an Arrow record batch as rows for a bulk append. Importing this module imports pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.formats import properties as names
from rmqctl.formats.compression import compress
from rmqctl.formats.errors import UsageError
from rmqctl.formats.layouts import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_COMPRESSED, SYS_FLAG_STORE_HOST_V6
from rmqctl.formats.message import LOCAL_HOST, Host, Message, parse_host
from rmqctl.formats.properties import compression_type
from rmqctl.store.log.columns import Flags, Int64s
from rmqctl.store.native.properties import join_properties
from rmqctl.store.native.tables import HOST_TABLE, Frame, FrameSpan
from rmqctl.store.native.uncompiled import Bytes, views
from rmqctl.store.scan.batches import bitmap
from rmqctl.store.scan.schema import COLUMNS
from rmqctl.store.write.bulk.bulk import NO_TIME, BulkRows
from rmqctl.store.write.prepare import STORED_UNUSUAL, property_template
from rmqctl.store.write.put import packed_host

# The stored form of the properties of a record batch, made by Arrow's own functions: no message becomes an object.
#
# The plain twin is `rmqctl.formats.properties.encode_properties` of each row's properties.

# beyond so many pairs of a message and a name it is not looked for names that come twice: the slow path takes all
_LARGEST_TABLE = 1 << 26
_ARE_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)


class Spans(NamedTuple):
    """Binary values: where each begins and ends in the bytes that are held."""

    held: Bytes
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
    return Spans(memoryview(data if data is not None else b"").cast("B"), places[:-1], places[1:])


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
    return _either(spans, found, there), there


def _either(one: Spans, other: Spans, is_other: Flags) -> Spans:
    """The values of `other` where that is said, else those of `one`: copied into the same bytes."""
    held: list[memoryview] = []
    places: list[tuple[Int64s, Int64s]] = []
    before = 0
    for spans in (one, other):
        # of a slice of a table only what is its own
        begin, end = int(spans.starts.min()), int(spans.ends.max())
        held.append(memoryview(spans.held)[begin:end])
        places.append((spans.starts + (before - begin), spans.ends + (before - begin)))
        before += end - begin
    starts, ends = (np.where(is_other, places[1][side], places[0][side]) for side in range(2))
    return Spans(b"".join(held), starts, ends)


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
    joined = None if each is None or found.null_count else _joined_properties(keys, items, len(usual), each)
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


def _joined_properties(names: Any, values: Any, rows: int, each: int) -> tuple[memoryview, Int64s] | None:
    """The stored properties of `rows` rows, each of `each` names and values, with the places where rows begin and the
    last one ends. Two pyarrow.StringArray without nulls, whose offsets are in order.

    None where rows have other names than the first, or where a value holds a separator.
    """
    name_ends, value_ends = value_offsets(names, np.int32), value_offsets(values, np.int32)
    total = int(name_ends[-1] - name_ends[0]) + int(value_ends[-1] - value_ends[0]) + 2 * rows * each
    target, places = np.empty(total, np.uint8), np.empty(rows + 1, np.int64)
    name_ends, value_ends, filled, noted = views(name_ends, value_ends, target, places)
    if join_properties(_data(names), name_ends, _data(values), value_ends, each, filled, noted) < 0:
        return None
    return filled, places


def _data(texts: Any) -> memoryview:
    data = texts.buffers()[2]
    return memoryview(b"" if data is None else data).cast("B")


def value_offsets(array: Any, kind: type[np.int32 | np.int64]) -> Any:
    """Where the values of an array of texts or bytes begin and the last one ends; `kind` as the array's type has it.

    Others write files with more bytes there, of no whole number, or with none where there is no value.
    """
    if not len(array):
        return np.zeros(1, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array) + 1, array.offset * np.dtype(kind).itemsize)


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
    """What the property KEYS is by `keys`, null where there are none; None without the column. UsageError for keys that
    cannot be separated."""
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


_NUMBERS = {
    Frame.QUEUE_ID: "queue_id",
    Frame.FLAG: "flag",
    Frame.SYS_FLAG: "sys_flag",
    Frame.RECONSUME_TIMES: "reconsume_times",
    Frame.PREPARED: "prepared_transaction_offset",
}
_HOST_BITS = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
# a host of IPv6, which sends a row to the slow path
_NO_HOST = -1


def rows_of_batch(batch: pa.RecordBatch, is_copy: bool = False) -> BulkRows:
    """Rows of a batch with the columns of `rmqctl.store.scan.schema`, of which `topic` and `body` must be there.

    Kept is what a producer sets: topic, queue, flags, born time and host, properties, body; of copies also store time
    and store host. The rest is computed. Properties are those of `properties`, where that is null or missing those that
    `tags` and `keys` make; `stored_properties` and `stored_body` replace both and `body` where they are not null.
    UsageError for other columns, types and missing values.
    """
    try:
        batch.validate()
        return _rows(batch, is_copy)
    except (pa.ArrowException, UnicodeError) as error:
        raise UsageError(f"the columns cannot be stored: {error}") from error


def _rows(batch: pa.RecordBatch, is_copy: bool) -> BulkRows:
    for name in batch.schema.names:
        if name not in COLUMNS:
            raise UsageError(f"there is no column {name!r}", hint=f"the columns are {', '.join(COLUMNS)}")
    for name in ("topic", "body"):
        if name not in batch.schema.names or _has_missing(batch.column(name)):
            raise UsageError(f"every message needs a {name}")
    count = batch.num_rows
    columns = np.zeros((len(Frame), count), np.int64)
    for place, name in _NUMBERS.items():
        if name in batch.schema.names:
            columns[place] = _integers(checked(batch.column(name)), 0)
    columns[Frame.SYS_FLAG] &= ~_HOST_BITS
    columns[Frame.BORN_TIMESTAMP] = _times(batch, "born_timestamp")
    columns[Frame.STORE_TIMESTAMP] = _times(batch, "store_timestamp") if is_copy else NO_TIME
    topics, columns[Frame.TOPIC] = _told_apart(_texts(batch.column("topic")))
    born_hosts, columns[Frame.BORN_HOST] = _hosts(batch, "born_host", LOCAL_HOST)
    store_hosts, columns[Frame.STORE_HOST] = _hosts(batch, "store_host", None) if is_copy else ([], HOST_TABLE)
    columns[Frame.STORE_HOST, columns[Frame.STORE_HOST] > HOST_TABLE] += len(born_hosts)
    body, has_stored_body = with_stored(batch, "stored_body", value_spans(checked(batch.column("body"))))
    properties = properties_of_batch(batch)
    usual = properties.usual & (columns[Frame.BORN_HOST] != _NO_HOST) & (columns[Frame.STORE_HOST] != _NO_HOST)
    usual &= (columns[Frame.SYS_FLAG] & SYS_FLAG_COMPRESSED == 0) | has_stored_body
    spans = np.zeros((2, len(FrameSpan), count), np.int64)
    spans[:, FrameSpan.BODY] = body.starts, body.ends
    spans[:, FrameSpan.PROPERTIES] = properties.data.starts, properties.data.ends
    return BulkRows(
        columns, spans[0], spans[1], body.held, properties.data.held, topics, [bytes(8), *born_hosts, *store_hosts],
        usual, _Messages(batch, columns, topics, is_copy).message, is_copy,
    )  # fmt: skip


def _has_missing(array: Any) -> bool:
    """Whether there is a null among the values, or, which Arrow does not count, one in the dictionary of them."""
    if array.null_count or not pa.types.is_dictionary(array.type):
        return bool(array.null_count)
    return bool(array.dictionary.null_count and checked(array).cast(array.type.value_type).null_count)


def _times(batch: pa.RecordBatch, name: str) -> Int64s | int:
    if name not in batch.schema.names:
        return NO_TIME
    return _integers(_milliseconds(checked(batch.column(name))), NO_TIME)


def _integers(array: Any, missing: int) -> Int64s:
    return np.asarray(array.cast(pa.int64()).fill_null(missing).to_numpy(zero_copy_only=False), np.int64)


def _milliseconds(array: Any) -> Any:
    return array.cast(pa.timestamp("ms", array.type.tz)) if pa.types.is_timestamp(array.type) else array


def _texts(array: Any) -> Any:
    """An array of texts, as they are where each has one number already. A dictionary may hold the same one twice."""
    kind = checked(array).type
    if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
        texts = array.dictionary
        if not texts.null_count and len(texts.unique()) == len(texts):
            return array
    return array.cast(pa.string())


def _told_apart(array: Any) -> tuple[list[Any], Int64s]:
    """The different values and the number of each one; -1 for null."""
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return encoded.dictionary.to_pylist(), _integers(encoded.indices, -1)


def _hosts(batch: pa.RecordBatch, name: str, missing: Host | None) -> tuple[list[bytes], Int64s | int]:
    """Packed hosts, and the number of each message's from 1: _NO_HOST for one that has no packed form, HOST_TABLE for
    a null where there is no `missing` to stand for it."""
    texts, numbers = _told_apart(_texts(batch.column(name))) if name in batch.schema.names else ([], -1)
    hosts = [*map(parse_host, texts), *([] if missing is None else [missing])]
    packed = [packed_host(host) for host in hosts]
    places = [_NO_HOST if one is None else number for number, one in enumerate(packed, start=1)]
    # a null is number -1: the last place
    by_number = np.array(places if missing is not None else [*places, HOST_TABLE], np.int64)
    return [one or bytes(8) for one in packed], by_number[numbers]


class _Messages:
    """Single rows as messages, for those that take the slow path."""

    def __init__(self, batch: pa.RecordBatch, columns: Int64s, topics: list[str], is_copy: bool) -> None:
        self._batch = batch
        self._columns = columns
        self._topics = topics
        self._is_copy = is_copy

    def message(self, row: int) -> Message:
        """The row as a message; UsageError for a property that is no text."""
        columns = self._columns
        sys_flag = int(columns[Frame.SYS_FLAG, row])
        born, stored = int(columns[Frame.BORN_TIMESTAMP, row]), int(columns[Frame.STORE_TIMESTAMP, row])
        body = self._value("stored_body", row)
        if body is None:
            body = self._value("body", row)
            body = body.encode("utf-8") if isinstance(body, str) else body
            kind = compression_type(sys_flag)
            if kind is not None and self._value("body_error", row) is None:
                body = compress(body, kind)
        host = _text(self._value("born_host", row))
        store_host = _text(self._value("store_host", row)) if self._is_copy else None
        return Message(
            topic=self._topics[int(columns[Frame.TOPIC, row])],
            body=body,
            queue_id=int(columns[Frame.QUEUE_ID, row]),
            flag=int(columns[Frame.FLAG, row]),
            properties=self._properties_of(row),
            property_bytes=self._value("stored_properties", row),
            sys_flag=sys_flag,
            born_timestamp=None if born == NO_TIME else born,
            born_host=LOCAL_HOST if host is None else parse_host(host),
            store_timestamp=None if stored == NO_TIME else stored,
            store_host=None if store_host is None else parse_host(store_host),
            reconsume_times=int(columns[Frame.RECONSUME_TIMES, row]),
            prepared_transaction_offset=int(columns[Frame.PREPARED, row]),
        )

    def _value(self, name: str, row: int) -> Any:
        return self._batch.column(name)[row].as_py() if name in self._batch.schema.names else None

    def _properties_of(self, row: int) -> dict[str, str]:
        pairs = self._value("properties", row)
        if pairs is None:
            keys, tags = self._value("keys", row), self._value("tags", row)
            pairs = [(names.KEYS, " ".join(map(_text, keys)))] if keys else []
            pairs += [] if tags is None else [(names.TAGS, tags)]
        found = {_text(name): _text(value) for name, value in pairs}
        if None in found.values():
            raise UsageError("a property without a value")
        return found


def _text(value: Any) -> Any:
    """Texts may come as bytes, which are known to be UTF-8 by now."""
    return value.decode("utf-8") if isinstance(value, bytes) else value


# Adds a property to messages of a record batch. Importing this module imports pyarrow.
#
# The plain twin is `{**message.properties, name: value}` of each row.

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
    """`batch` with another property behind all others of these `rows`, which lack it. `values` gives that number of
    texts.

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
