"""Arrow columns as JSON or CSV texts, a whole column at a time: what `json` and `csv` write of each value by itself.

Importing this module imports pyarrow. JSON texts are escaped and lines joined by kernels (`text_engine`). Where nothing
is compiled, and in CSV, values with anything in them that is to be escaped are escaped one by one, and all others,
nearly all of most columns, are never touched as Python objects.
"""

from __future__ import annotations

import binascii
import csv
import functools
import io
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqctl.messages.text_engine import text_kernels
from rmqctl.output.sanitise import visible, visible_json
from rmqctl.output.times import format_time
from rmqctl.store.scan.arrays import fixed_texts

Escape = Callable[[str], str]
"""One value as it stands in the text."""

_DAY = 24 * 60 * 60 * 1000
# what format_time writes as a date: from the year 1 to the end of 9999, in ms
_DATES = -62_135_596_800_000, 253_402_300_800_000
_DATE_LENGTH = len("2023-11-14T")
_to_base64 = functools.partial(binascii.b2a_base64, newline=False)


def _unclean(characters: str) -> NDArray[np.bool_]:
    """By byte: what is no printable ASCII, or one of these characters."""
    table = np.ones(256, np.bool_)
    table[0x20:0x7F] = False
    table[list(characters.encode("ascii"))] = True
    return table


_JSON_UNCLEAN, _CSV_UNCLEAN = _unclean('"\\'), _unclean('",')


def _json_text(value: str) -> str:
    """A text as it stands between quotes in JSON, without what a terminal would obey. (json.dumps, visible_json)"""
    return visible_json(encode_basestring(value)[1:-1])


def _json_in_csv(value: str) -> str:
    """The same in a list or object that is a quoted field of CSV."""
    return visible(encode_basestring(value)[1:-1]).replace('"', '""')


def _csv_text(value: str) -> str:
    """A text as a field of CSV. (cells.csv_value, csv.writer)"""
    line = io.StringIO()
    # by itself an empty field would be quoted
    csv.writer(line, lineterminator="\n").writerow([visible(value, keep_newlines=True), ""])
    return line.getvalue()[: -len(",\n")]


def json_texts(values: pa.Array) -> pa.Array:
    """Texts as they stand between quotes in JSON; null where they are null."""
    return _escaped(values, _JSON_UNCLEAN, _json_text)


def csv_texts(values: pa.Array) -> pa.Array:
    """Texts as fields of CSV; null where they are null."""
    return _escaped(values, _CSV_UNCLEAN, _csv_text)


def _escaped(values: pa.Array, unclean: NDArray[np.bool_], escape: Escape) -> pa.Array:
    """Values that are not clean as `escape` writes them. A dictionary is escaped, not what points to it."""
    if pa.types.is_dictionary(values.type):
        return _escaped(values.dictionary, unclean, escape).take(values.indices)
    compiled = text_kernels() if escape is _json_text else None
    if compiled is not None:
        return compiled.escaped(values)
    places = _places_of(values, unclean)
    if not len(places):
        return values
    mask = np.zeros(len(values), np.bool_)
    mask[places] = True
    found = values.take(pa.array(places)).to_pylist()
    written = pa.array([None if value is None else escape(value) for value in found], pa.string())
    return pc.replace_with_mask(values, pa.array(mask), written)


def _places_of(values: pa.Array, unclean: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Which values have a byte that is not clean."""
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return np.zeros(0, np.int64)
    edges = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    found = np.flatnonzero(unclean[np.frombuffer(data, np.uint8)[edges[0] : edges[-1]]])
    if not len(found):
        return np.zeros(0, np.int64)
    # empty values share an edge with the next one: the last of them is the one that holds the byte
    return np.unique(np.searchsorted(edges, found + edges[0], "right") - 1)


class Nested(NamedTuple):
    """How JSON inside a line is written."""

    escape: Escape
    quote: str


IN_JSON = Nested(_json_text, '"')
IN_CSV = Nested(_json_in_csv, '""')


def json_lists(values: pa.Array, how: Nested) -> pa.Array:
    """Lists of texts as they stand between the brackets."""
    edges, (items,) = _items(values, values.values)
    escaped = _escaped(items, _JSON_UNCLEAN, how.escape)
    return _joined(edges, pc.binary_join_element_wise(how.quote, escaped, how.quote, ""))


def json_maps(values: pa.Array, how: Nested) -> pa.Array:
    """Maps of texts as they stand between the braces."""
    edges, children = _items(values, values.keys, values.items)
    keys, items = (_escaped(child, _JSON_UNCLEAN, how.escape) for child in children)
    quote = how.quote
    return _joined(edges, pc.binary_join_element_wise(quote, keys, f"{quote}: {quote}", items, quote, ""))


def _items(values: pa.Array, *children: pa.Array) -> tuple[NDArray[np.int32], list[pa.Array]]:
    """Where the entries of each list or map begin and end, and the entries of these alone."""
    edges = values.offsets.to_numpy()
    begin, end = int(edges[0]), int(edges[-1])
    return edges - edges[0], [child.slice(begin, end - begin) for child in children]


def _joined(edges: NDArray[np.int32], texts: pa.Array) -> pa.Array:
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(edges, pa.int32()), texts), ", ")


def base64_texts(values: pa.Array) -> pa.Array:
    """Bytes as base64; null where they are null."""
    if values.null_count == len(values):
        return pa.nulls(len(values), pa.string())
    return pa.array([None if value is None else _to_base64(value) for value in values.to_pylist()], pa.binary()).view(
        pa.string()
    )


def utf8_texts(values: pa.Array) -> pa.Array:
    """Bytes as texts; null where they are no UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        # Python only checks: the bytes stay where they are
        good = pa.array([_is_text(value) for value in values.to_pylist()], pa.bool_())
        return (
            pc.if_else(good, values, None).cast(pa.string()) if good.true_count else pa.nulls(len(values), pa.string())
        )


def _is_text(value: bytes | None) -> bool:
    try:
        return value is not None and (value.isascii() or value.decode("utf-8") is not None)
    except UnicodeDecodeError:
        return False


def time_texts(values: pa.Array) -> pa.Array:
    """Times in ms as ISO 8601 in UTC. (times.format_time)"""
    times = values.cast(pa.int64()).to_numpy()
    if not len(times) or times.min() < _DATES[0] or times.max() >= _DATES[1]:
        return pa.array(map(format_time, times.tolist()), pa.string())
    days, rest = np.divmod(times, _DAY)
    distinct, numbers = np.unique(days, return_inverse=True)
    dates = b"".join(format_time(day * _DAY)[:_DATE_LENGTH].encode("ascii") for day in distinct.tolist())
    made = np.empty((len(times), len("2023-11-14T22:13:20.000Z")), np.uint8)
    made[:, :_DATE_LENGTH] = np.frombuffer(dates, np.uint8).reshape(-1, _DATE_LENGTH)[numbers]
    made[:, [13, 16, 19, 23]] = np.frombuffer(b"::.Z", np.uint8)
    left = rest.astype(np.int32)
    for place, unit in _DIGITS:
        digit, left = np.divmod(left, unit)
        made[:, place] = digit + ord("0")
    return fixed_texts(made)


# where the digits of a time of day stand, and how many ms one of each is
_DIGITS: Sequence[tuple[int, int]] = (
    (11, 36_000_000),
    (12, 3_600_000),
    (14, 600_000),
    (15, 60_000),
    (17, 10_000),
    (18, 1000),
    (20, 100),
    (21, 10),
    (22, 1),
)


def numbers(values: pa.Array) -> pa.Array:
    """Integers as decimal digits."""
    return values.cast(pa.int64()).cast(pa.string())


def joined(parts: Sequence[Any]) -> pa.Array:
    """Columns and constants of each row, one behind the other; a null is nothing. One of them is a column at least."""
    compiled = text_kernels()
    if compiled is not None:
        return compiled.joined(parts)
    return pc.binary_join_element_wise(*parts, "", null_handling="skip")
