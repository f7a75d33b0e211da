"""Record batches of messages as lines of CSV: the same text as `message_json` and `csv.writer` make of each message.

Importing this module imports pyarrow. Values with anything in them that is to be escaped are escaped one by one; all
others, nearly all of most columns, are never touched as Python objects.
"""

from __future__ import annotations

import binascii
import csv
import functools
import io
from collections.abc import Callable, Sequence
from functools import cached_property
from json.encoder import encode_basestring
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqctl.messages.json import ALL_COLUMNS, EXACT_COLUMNS
from rmqctl.output.table import visible
from rmqctl.output.times import format_time
from rmqctl.store.scan.batches import fixed_texts

Escape = Callable[[str], str]
"""One value as in the text."""

_DAY = 24 * 60 * 60 * 1000
# what format_time writes as a date: from the year 1 to the end of 9999, in ms
_DATES = -62_135_596_800_000, 253_402_300_800_000
_DATE_LENGTH = len("2023-11-14T")
_to_base64 = functools.partial(binascii.b2a_base64, newline=False)


def _unclean(characters: str) -> NDArray[np.bool_]:
    """By byte: other than printable ASCII, or one of these characters."""
    table = np.ones(256, np.bool_)
    table[0x20:0x7F] = False
    table[list(characters.encode("ascii"))] = True
    return table


_JSON_UNCLEAN, _CSV_UNCLEAN = _unclean('"\\'), _unclean('",')


def _json_in_csv(value: str) -> str:
    """Return a text as between quotes of JSON in a list or object that is a quoted field of CSV."""
    return visible(encode_basestring(value)[1:-1]).replace('"', '""')


def _csv_text(value: str) -> str:
    """A text as a field of CSV. (cells.csv_value, csv.writer)"""
    line = io.StringIO()
    # by itself an empty field would be quoted
    csv.writer(line, lineterminator="\n").writerow([visible(value, keep_newlines=True), ""])
    return line.getvalue()[: -len(",\n")]


def csv_texts(values: pa.Array) -> pa.Array:
    """Texts as fields of CSV; null where they are null."""
    return _escaped(values, _CSV_UNCLEAN, _csv_text)


def _escaped(values: pa.Array, unclean: NDArray[np.bool_], escape: Escape) -> pa.Array:
    """Values that are not clean as `escape` writes them. A dictionary is escaped, not what points to it."""
    if pa.types.is_dictionary(values.type):
        return _escaped(values.dictionary, unclean, escape).take(values.indices)
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


# of a text in JSON, in a quoted field
_QUOTE = '""'


def json_lists(values: pa.Array) -> pa.Array:
    """Lists of texts as they stand between the brackets."""
    edges, (items,) = _items(values, values.values)
    escaped = _escaped(items, _JSON_UNCLEAN, _json_in_csv)
    return _joined(edges, pc.binary_join_element_wise(_QUOTE, escaped, _QUOTE, ""))


def json_maps(values: pa.Array) -> pa.Array:
    """Maps of texts as they stand between the braces."""
    edges, children = _items(values, values.keys, values.items)
    keys, items = (_escaped(child, _JSON_UNCLEAN, _json_in_csv) for child in children)
    return _joined(edges, pc.binary_join_element_wise(_QUOTE, keys, f"{_QUOTE}: {_QUOTE}", items, _QUOTE, ""))


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
    return pc.binary_join_element_wise(*parts, "", null_handling="skip")


class _Messages:
    """The columns of a batch, and what several fields are made of."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.column = batch.column

    @cached_property
    def plain_body(self) -> pa.Array:
        """Bodies that are texts. A body that could not be unpacked does not count, even if its bytes look like text."""
        body = utf8_texts(self.column("body"))
        failed = self.column("body_error").is_valid()
        return pc.if_else(failed, None, body) if failed.true_count else body

    @cached_property
    def binary_body(self) -> pa.Array:
        """All other bodies as base64."""
        is_text = self.plain_body.is_valid()
        body = self.column("body")
        return base64_texts(pc.if_else(is_text, None, body) if is_text.true_count else body)


Make = Callable[[_Messages], pa.Array]


class _Field(NamedTuple):
    """A field of a line: the columns of the batch it is made from, and how it is made. A null is an empty field."""

    needs: tuple[str, ...]
    csv: Make


def _bare(name: str, make: Callable[[pa.Array], pa.Array]) -> _Field:
    """A field with nothing in it that is to be escaped."""
    return _Field((name,), lambda messages: make(messages.column(name)))


def _text(name: str) -> _Field:
    return _bare(name, csv_texts)


def _nested(name: str, make: Callable[[pa.Array], pa.Array], begin: str, end: str) -> _Field:
    """Lists or objects. Those of nothing need no quotes."""

    def csv(messages: _Messages) -> pa.Array:
        made = make(messages.column(name))
        quoted = pc.binary_join_element_wise('"' + begin, made, end + '"', "")
        return pc.if_else(pc.equal(pc.binary_length(made), 0), begin + end, quoted)

    return _Field((name,), csv)


_BODY = ("body", "body_error")
_FIELDS: dict[str, _Field] = {
    "msg_id": _text("msg_id"),
    "unique_key": _text("unique_key"),
    "topic": _text("topic"),
    "queue_id": _bare("queue_id", numbers),
    "queue_offset": _bare("queue_offset", numbers),
    "physical_offset": _bare("physical_offset", numbers),
    "size": _bare("size", numbers),
    "store_timestamp": _bare("store_timestamp", numbers),
    "store_time": _bare("store_timestamp", time_texts),
    "born_timestamp": _bare("born_timestamp", numbers),
    "born_time": _bare("born_timestamp", time_texts),
    "store_host": _text("store_host"),
    "born_host": _text("born_host"),
    "sys_flag": _bare("sys_flag", numbers),
    "flag": _bare("flag", numbers),
    "transaction": _text("transaction"),
    "compression": _text("compression"),
    "body_crc": _bare("body_crc", numbers),
    "crc_ok": _bare("crc_ok", lambda values: values.cast(pa.string())),
    "reconsume_times": _bare("reconsume_times", numbers),
    "prepared_transaction_offset": _bare("prepared_transaction_offset", numbers),
    "tags": _text("tags"),
    "keys": _nested("keys", json_lists, "[", "]"),
    "properties": _nested("properties", json_maps, "{", "}"),
    "properties_base64": _bare("stored_properties", base64_texts),
    "body_size": _bare("body_size", numbers),
    "body": _Field(_BODY, lambda messages: csv_texts(messages.plain_body)),
    "body_base64": _Field(_BODY, lambda messages: messages.binary_body),
    "body_error": _text("body_error"),
    "stored_body_base64": _bare("stored_body", base64_texts),
}


class MessageLines:
    """Makes lines of CSV of batches that have the columns `needs`. `header` begins every file."""

    def __init__(self, names: Sequence[str] | None) -> None:
        """`names`: fields of `message_json`, none of them twice; None: all."""
        self._names = tuple(names or (*ALL_COLUMNS, *EXACT_COLUMNS))
        self.needs = tuple(dict.fromkeys(need for name in self._names for need in _FIELDS[name].needs))
        self.header = ",".join(self._names) + "\n"

    def lines(self, batch: pa.RecordBatch) -> memoryview:
        """The lines of all messages of a batch, UTF-8."""
        made = self._csv(_Messages(batch))
        _, offsets, data = made.buffers()
        if not len(made) or data is None:
            return memoryview(b"")
        edges = memoryview(offsets).cast("i")
        return memoryview(data)[edges[made.offset] : edges[made.offset + len(made)]]

    def _csv(self, messages: _Messages) -> pa.Array:
        parts: list[Any] = []
        for name in self._names:
            made = _FIELDS[name].csv(messages)
            parts += [made.fill_null("") if made.null_count else made, ","]
        parts[-1] = "\n"
        if len(self._names) == 1:  # a line of nothing would be no line
            parts[0] = pc.if_else(pc.equal(pc.binary_length(parts[0]), 0), '""', parts[0])
        return joined(parts)
