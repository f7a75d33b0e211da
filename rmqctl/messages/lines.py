"""Lines of JSON as columns of messages: the same messages as `message_input` makes of each line by itself.

Importing this module imports pyarrow and numba.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqctl.messages.input import NAMED_BY
from rmqctl.messages.json import JSON_ORDER
from rmqctl.store.compiled.tried import loaded_once, tried_kernels
from rmqctl.store.log.columns import Bytes, Flags, Int32s, Int64s
from rmqctl.store.scan.arrays import Texts, bitmap, texts

Read = Callable[..., int]

_INT, _LONG = (1 << 31) - 1, (1 << 63) - 1
# the least, the most, and whether null means that there is none
_NUMBERS = {
    "queue_id": (0, _INT, False),
    "flag": (-_INT - 1, _INT, False),
    "sys_flag": (-_INT - 1, _INT, False),
    "reconsume_times": (-_INT - 1, _INT, False),
    "prepared_transaction_offset": (-_LONG - 1, _LONG, False),
    "born_timestamp": (-_LONG - 1, _LONG, True),
    "store_timestamp": (-_LONG - 1, _LONG, True),
}
_TEXTS = ("topic", "body", "born_host", "store_host", "tags", "stored_properties", "stored_body")
_BYTES = ("body", "stored_properties", "stored_body")
_IN_BASE64 = {"body_base64": "body", "properties_base64": "stored_properties", "stored_body_base64": "stored_body"}
_NEEDED = ("topic", "body")
_NEEDED_BY_COPIES = ("store_timestamp", "store_host")
_SAMPLE = (
    b'{"topic": "T\\u00e9", "body": "a\\n", "queue_id": 3, "tags": "t", "keys": ["k", "l"]}\r\n\n'
    b'{"topic": "T", "body": "", "size": 1.5e3, "flag": 1.0}\n'
    b'{"body_base64":"/w==","properties":{"a":"b","c":"d"},"keys":["k"],"topic":"U","born_timestamp":-7,"crc_ok":true,'
    b'"msg_id":"7F"}'
)


class LineColumns(NamedTuple):
    """Messages of some lines in the columns of `rmqctl.store.scan.schema`; by row its line, counted from 0.

    `new`: by row what `message_input.is_new` says. `odd`: line, begin and end of lines that are not among them;
    `total`: all lines, blank ones too.
    """

    batch: pa.RecordBatch
    lines: Int32s
    new: Flags
    odd: list[tuple[int, int, int]]
    total: int


def reader_of_lines() -> Read | None:
    """The kernel, for `columns_of_lines`; None where nothing can be compiled."""
    return _load()


@loaded_once
def _load() -> Read | None:
    found = tried_kernels("rmqctl.store.scan.kernel_json_lines", lambda tried: _is_right(tried[0]), is_waited_for=False)
    return None if found is None else found[0]


def _is_right(read: Read) -> bool:
    """Whether it reads a few lines as it must."""
    found = columns_of_lines(read, _SAMPLE, False)
    rows = [{name: value for name, value in row.items() if value} for row in found.batch.to_pylist()]
    told = found.lines.tolist(), found.new.tolist(), [line for line, _, _ in found.odd], found.total
    return told == ([0, 3], [True, False], [2], 4) and rows == [
        {"queue_id": 3, "topic": "Té", "body": b"a\n", "tags": "t", "keys": ["k", "l"]},
        {"born_timestamp": -7, "topic": "U", "body": b"\xff", "properties": [("a", "b"), ("c", "d")]},
    ]


def columns_of_lines(read: Read, text: bytes | memoryview, as_stored: bool) -> LineColumns:
    """The messages of the lines of a text, of less than 2 GiB, as far as they are written plainly: what is odd, or
    wrong, is left to `message_input`. With `as_stored` a line without store time and store host is."""
    from rmqctl.store.scan.kernel_json_lines import LINES, ODD, ROWS, SPARE

    padded = np.frombuffer(b"".join((text, bytes(SPARE))), np.uint8)
    # several times as fast as counting in bytes, which goes from one to the next
    line_ends, quotes = (int(np.count_nonzero(padded == sign)) for sign in b'\n"')
    rows = line_ends + 1
    counted = len(_NUMBERS) + len(NAMED_BY)
    numbers, has_number = np.empty((counted, rows), np.int64), np.empty((counted, rows), np.bool_)
    offsets, has_text = np.zeros((len(_TEXTS), rows + 1), np.int32), np.empty((len(_TEXTS), rows), np.bool_)
    list_rows, has_map = np.zeros((2, rows + 1), np.int32), np.empty(rows, np.bool_)
    # every key has two quotes, and every entry of a map more
    list_offsets = np.zeros((3, quotes // 2 + 1), np.int32)
    # what a text means is never longer than how it is written
    data = [np.empty(len(text) + SPARE, np.uint8) for _ in range(len(_TEXTS) + len(list_offsets))]
    addresses = np.array([one.ctypes.data for one in data], np.int64)
    line_of, odd, answer = np.empty(rows, np.int32), np.empty((3, rows), np.int64), np.zeros(3, np.int64)
    fields = _fields()
    needed_numbers, rules = _rules(as_stored)
    read(
        padded.ctypes.data, len(text), fields.names.ctypes.data, fields.edges, fields.kinds, fields.limits,
        fields.digits, rules, _TEXTS.index("tags"), needed_numbers,
        numbers, has_number, offsets, addresses[: len(_TEXTS)], has_text,
        list_rows, np.zeros(5, np.int64), has_map, list_offsets, addresses[len(_TEXTS) :],
        line_of, odd, answer,
    )  # fmt: skip
    found = int(answer[ROWS])
    # a column that no row has is left out
    columns: dict[str, pa.Array] = {}
    for place, name in enumerate(_NUMBERS):
        if has_number[place, :found].any():
            columns[name] = _numbers(numbers[place, :found], has_number[place, :found])
    for place, name in enumerate(_TEXTS):
        if name in _NEEDED or has_text[place, :found].any():
            kind = pa.binary() if name in _BYTES else pa.string()
            columns[name] = texts(Texts(offsets[place, : found + 1], data[place], has_text[place, :found]), kind)
    ends = list_rows[[0, 1, 1], found]
    keys, names, values = (
        texts(Texts(list_offsets[place, : end + 1], data[len(_TEXTS) + place])) for place, end in enumerate(ends)
    )
    if len(keys):
        columns["keys"] = pa.ListArray.from_arrays(pa.array(list_rows[0, : found + 1]), keys)
    if has_map[:found].any():
        columns["properties"] = _maps(list_rows[1, : found + 1], has_map[:found], names, values)
    left = odd[:, : int(answer[ODD])]
    return LineColumns(
        pa.RecordBatch.from_pydict(columns), line_of[:found], np.equal(numbers[len(_NUMBERS) :, :found].max(axis=0), 0),
        list(zip(*left.tolist(), strict=True)), int(answer[LINES]),
    )  # fmt: skip


def _numbers(values: Int64s, present: Flags) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [bitmap(present), pa.py_buffer(values)])


def _maps(edges: Int32s, present: Flags, names: pa.Array, values: pa.Array) -> pa.Array:
    kind = pa.map_(pa.string(), pa.string())
    entries = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, len(present), [bitmap(present), pa.py_buffer(edges)], children=[entries])


class _Fields(NamedTuple):
    """The fields of a line as the kernel asks for them: see `read_lines`."""

    names: Bytes
    edges: Int64s
    kinds: Int64s
    limits: Int64s
    digits: NDArray[np.int8]


@functools.cache
def _fields() -> _Fields:
    from rmqctl.store.scan.kernel_json_lines import SPARE

    names = [name.encode("ascii") for name in JSON_ORDER]
    limits = np.array([tuple(map(int, limit)) for limit in _NUMBERS.values()], np.int64).T
    digits = np.full(256, -1, np.int8)
    digits[list(f"{string.ascii_uppercase}{string.ascii_lowercase}{string.digits}+/".encode())] = np.arange(64)
    return _Fields(
        np.frombuffer(b"".join(names) + bytes(SPARE), np.uint8),
        np.cumsum([0, *map(len, names)]),
        np.array([_kind(name) for name in JSON_ORDER], np.int64).T.copy(),
        limits.copy(),
        digits,
    )


def _kind(name: str) -> tuple[int, int]:
    """The kind of a field, and its place in the columns of that kind."""
    from rmqctl.store.scan.kernel_json_lines import BASE64, IGNORED, KEYS, LENGTH, MAP, NULL, NUMBER, TEXT

    if name in NAMED_BY:
        return LENGTH, len(_NUMBERS) + NAMED_BY.index(name)
    if name in _NUMBERS:
        return NUMBER, list(_NUMBERS).index(name)
    if name in _IN_BASE64:
        return BASE64, _TEXTS.index(_IN_BASE64[name])
    if name in _TEXTS:
        return TEXT, _TEXTS.index(name)
    return {"keys": KEYS, "properties": MAP, "body_error": NULL}.get(name, IGNORED), 0


def _rules(as_stored: bool) -> tuple[Flags, Int64s]:
    """By number whether no row may lack it; by text what the kernel asks of it."""
    from rmqctl.store.scan.kernel_json_lines import NEEDED, NOT_EMPTY

    needed = (*_NEEDED, *(_NEEDED_BY_COPIES if as_stored else ()))
    rules = [NEEDED * (name in needed) | NOT_EMPTY * (name not in _BYTES) for name in _TEXTS]
    return np.array([name in needed for name in (*_NUMBERS, *NAMED_BY)], np.bool_), np.array(rules, np.int64)
