"""Record batches of messages as lines of JSON or CSV: the same text as `message_json` makes of each message by itself.

Importing this module imports pyarrow. The plain twin is `message_json` with `json.dumps` or `csv.writer`.
"""

from __future__ import annotations

import binascii
import csv
import functools
import io
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from json.encoder import encode_basestring
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqctl.messages.json import ALL_COLUMNS, EXACT_COLUMNS, JSON_ORDER
from rmqctl.output.table import UNSAFE_RANGES, visible, visible_json
from rmqctl.output.times import format_time
from rmqctl.store.compiled.tried import loaded_once, tried_kernels
from rmqctl.store.scan.arrays import fixed_texts

# Loads and tries the kernels that write texts, and gives them their arrays: twins of functions of `text_arrays`.
#
# Importing this module imports pyarrow.

_LARGEST = (1 << 31) - 1
_SHORT = {'"': '"', "\\": "\\", "\n": "n", "\r": "r", "\t": "t", "\f": "f", "\b": "b"}
_SAMPLE = ["", None, 'a "\\\n\x01\x7f', "clean", "long enough for words: ä\u202e\U0001f600\U000e0041", "\x85 \ud7ff"]
_ESCAPED = [
    "",
    None,
    'a \\"\\\\\\n\\u0001\\u007f',
    "clean",
    "long enough for words: ä\\u202e\U0001f600\\udb40\\udc41",
    "\\u0085 \ud7ff",
]


class TextKernels(NamedTuple):
    """The two kernels of `rmqctl.store.export.kernel_lines`, for Arrow arrays of strings."""

    escape: Callable[..., int]
    join: Callable[..., int]

    def escaped(self, texts: pa.Array) -> pa.Array:
        """Texts as they stand between quotes in JSON; null where they are null."""
        rows = len(texts)
        if not rows:
            return texts
        present = texts.is_valid().buffers()[1] if texts.null_count else None
        filled = _filled(texts)
        edges = _edges(filled)
        made = np.zeros(rows + 1, np.int32)
        given = (*_addresses(filled), rows, _short_escapes(), _unsafe_points(), made)
        size = self.escape(*given, 0)
        if size == edges[-1] - edges[0]:  # every escape is longer than what it stands for
            return texts
        target = np.empty(_checked(size), np.uint8)
        self.escape(*given, target.ctypes.data)
        return pa.Array.from_buffers(pa.string(), rows, [present, *map(pa.py_buffer, (made, target))])

    def joined(self, parts: Sequence[str | pa.Array]) -> pa.Array:
        """Arrays of as many texts, and constants, one behind the other row by row; a null is nothing. There is an
        array at least."""
        merged = _merged(parts)
        rows = next(len(part) for part in merged if not isinstance(part, bytes))
        held = np.frombuffer(b"".join(part for part in merged if isinstance(part, bytes)) + b"\0", np.uint8)
        places = np.zeros((3, len(merged)), np.int64)
        constant, size = held.ctypes.data, 0
        for number, part in enumerate(merged):
            if isinstance(part, bytes):
                places[:, number] = 0, constant, len(part)
                constant += len(part)
                size += rows * len(part)
            elif rows:
                edges = _edges(part)
                places[:2, number] = _addresses(part)
                size += int(edges[-1] - edges[0])
        made, target = np.zeros(rows + 1, np.int32), np.empty(_checked(size), np.uint8)
        self.join(*places, rows, made, target.ctypes.data)
        return pa.Array.from_buffers(pa.string(), rows, [None, *map(pa.py_buffer, (made, target))])


def text_kernels() -> TextKernels | None:
    """The compiled twins; None where nothing can be compiled."""
    return _load()


@loaded_once
def _load() -> TextKernels | None:
    found = tried_kernels(
        "rmqctl.store.export.kernel_lines", lambda tried: _is_right(TextKernels(*tried)), is_waited_for=False
    )
    return None if found is None else TextKernels(*found)


def _is_right(tried: TextKernels) -> bool:
    """Whether they give what is expected of a few texts."""
    escaped = tried.escaped(pa.array(["left out", *_SAMPLE], pa.string()).slice(1))
    joined = tried.joined(["<", ">", escaped, "|"])
    expected = [f"<>{text or ''}|" for text in _ESCAPED]
    return bool(escaped.to_pylist() == _ESCAPED and joined.to_pylist() == expected)


def _merged(parts: Sequence[str | pa.Array]) -> list[bytes | pa.Array]:
    """The parts without nulls, constants that follow one another as one."""
    merged: list[Any] = []
    for part in parts:
        if not isinstance(part, str):
            merged.append(_filled(part))
        elif merged and isinstance(merged[-1], bytes):
            merged[-1] += part.encode("utf-8")
        else:
            merged.append(part.encode("utf-8"))
    return merged


def _filled(texts: pa.Array) -> pa.Array:
    return texts.fill_null("") if texts.null_count else texts


def _edges(texts: pa.Array) -> NDArray[np.int32]:
    """Where each text begins and the last one ends in the data of the array."""
    return np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]


def _addresses(texts: pa.Array) -> tuple[int, int]:
    """Of the offsets and the data."""
    _, offsets, data = texts.buffers()
    return offsets.address + texts.offset * np.int32().itemsize, data.address if data is not None else 0


def _checked(size: int) -> int:
    if size > _LARGEST:
        raise OverflowError(f"{size} bytes of text in one batch")
    return max(1, size)


@functools.cache
def _short_escapes() -> NDArray[np.uint8]:
    """By byte: the letter behind a backslash that stands for it, else 0. (json.dumps)"""
    table = np.zeros(256, np.uint8)
    for character, letter in _SHORT.items():
        table[ord(character)] = ord(letter)
    return table


@functools.cache
def _unsafe_points() -> NDArray[np.uint8]:
    """By code point: whether a terminal would obey or hide it."""
    table = np.zeros(sys.maxunicode + 1, np.uint8)
    for first, last in UNSAFE_RANGES:
        table[first : last + 1] = 1
    return table


# Arrow columns as JSON or CSV texts, a whole column at a time: what `json` and `csv` write of each value by itself.
#
# Importing this module imports pyarrow. JSON texts are escaped and lines joined by kernels (`text_engine`). Where
# nothing is compiled, and in CSV, values with anything in them that is to be escaped are escaped one by one, and all
# others, nearly all of most columns, are never touched as Python objects.

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


class _Messages:
    """The columns of a batch, and what several fields are made of."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.column = batch.column

    @cached_property
    def plain_body(self) -> pa.Array:
        """Bodies that are texts. One that could not be unpacked is none, whatever its bytes look like."""
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
    """A field of a line: the columns of the batch it is made from, and how `json` and `csv` write it.

    `quote`: what stands around it in JSON. A null is no field at all in JSON where the field `may_be_absent`, `null`
    elsewhere, and an empty field of CSV.
    """

    needs: tuple[str, ...]
    json: Make
    csv: Make
    quote: str = ""
    may_be_absent: bool = False


def _bare(name: str, make: Callable[[pa.Array], pa.Array], quote: str = "") -> _Field:
    """A field with nothing in it that is to be escaped."""

    def made(messages: _Messages) -> pa.Array:
        return make(messages.column(name))

    return _Field((name,), made, made, quote)


def _text(name: str, may_be_absent: bool = False) -> _Field:
    return _Field(
        (name,),
        lambda messages: json_texts(messages.column(name)),
        lambda messages: csv_texts(messages.column(name)),
        '"',
        may_be_absent,
    )


def _base64(name: str) -> _Field:
    return _bare(name, base64_texts, '"')._replace(may_be_absent=True)


def _nested(name: str, make: Callable[[pa.Array, Nested], pa.Array], begin: str, end: str) -> _Field:
    """Lists or objects. Those of nothing need no quotes in CSV."""

    def json(messages: _Messages) -> pa.Array:
        return pc.binary_join_element_wise(begin, make(messages.column(name), IN_JSON), end, "")

    def csv(messages: _Messages) -> pa.Array:
        made = make(messages.column(name), IN_CSV)
        quoted = pc.binary_join_element_wise('"' + begin, made, end + '"', "")
        return pc.if_else(pc.equal(pc.binary_length(made), 0), begin + end, quoted)

    return _Field((name,), json, csv)


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
    "store_time": _bare("store_timestamp", time_texts, '"'),
    "born_timestamp": _bare("born_timestamp", numbers),
    "born_time": _bare("born_timestamp", time_texts, '"'),
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
    "properties_base64": _base64("stored_properties"),
    "body_size": _bare("body_size", numbers),
    "body": _Field(
        _BODY,
        lambda messages: json_texts(messages.plain_body),
        lambda messages: csv_texts(messages.plain_body),
        '"',
        may_be_absent=True,
    ),
    "body_base64": _Field(
        _BODY, lambda messages: messages.binary_body, lambda messages: messages.binary_body, '"', may_be_absent=True
    ),
    "body_error": _text("body_error", may_be_absent=True),
    "stored_body_base64": _base64("stored_body"),
}


class MessageLines:
    """Makes lines of batches that have the columns `needs`. `header` begins every file."""

    def __init__(self, names: Sequence[str] | None, *, is_json: bool) -> None:
        """`names`: fields of `message_json`, none of them twice; None: all. CSV unless `is_json`."""
        self._is_json = is_json
        self._names = tuple(names or (JSON_ORDER if self._is_json else (*ALL_COLUMNS, *EXACT_COLUMNS)))
        self.needs = tuple(dict.fromkeys(need for name in self._names for need in _FIELDS[name].needs))
        self.header = "" if self._is_json else ",".join(self._names) + "\n"

    def lines(self, batch: pa.RecordBatch) -> memoryview:
        """The lines of all messages of a batch, UTF-8."""
        messages = _Messages(batch)
        made = self._json(messages) if self._is_json else self._csv(messages)
        _, offsets, data = made.buffers()
        if not len(made) or data is None:
            return memoryview(b"")
        edges = memoryview(offsets).cast("i")
        return memoryview(data)[edges[made.offset] : edges[made.offset + len(made)]]

    def _json(self, messages: _Messages) -> pa.Array:
        parts: list[Any] = []
        # a field that may be absent takes the comma before it along: where that is the first one, it is cut off again
        is_first_sure = not _FIELDS[self._names[0]].may_be_absent
        for place, name in enumerate(self._names):
            field = _FIELDS[name]
            comma = "" if place == 0 and is_first_sure else ", "
            parts += _json_parts(f'{comma}"{name}": ', field.json(messages), field)
        if is_first_sure:
            return joined(["{", *parts, "}\n"])
        # even if no field is in any of them there are as many lines
        fields = joined([pa.repeat("", len(messages.column(self.needs[0]))), *parts])
        return joined(["{", pc.utf8_slice_codeunits(fields, 2), "}\n"])

    def _csv(self, messages: _Messages) -> pa.Array:
        parts: list[Any] = []
        for name in self._names:
            made = _FIELDS[name].csv(messages)
            parts += [made.fill_null("") if made.null_count else made, ","]
        parts[-1] = "\n"
        if len(self._names) == 1:  # a line of nothing would be no line
            parts[0] = pc.if_else(pc.equal(pc.binary_length(parts[0]), 0), '""', parts[0])
        return joined(parts)


def _json_parts(before: str, value: pa.Array, field: _Field) -> list[Any]:
    """What a line consists of for one field, `before` first. Long values are copied once, with the line."""
    parts = [before + field.quote, value, field.quote]
    if not value.null_count:
        return parts
    if field.may_be_absent:
        return [] if value.null_count == len(value) else [pc.binary_join_element_wise(*parts, "")]
    quoted = pc.binary_join_element_wise(field.quote, value, field.quote, "")
    return [before, quoted.fill_null("null")]
