"""The Arrow columns of a message: their names (those of its JSON), their types and what of the log they are made from.

Three things differ from the JSON because Arrow has types: timestamps are timestamps, `body` holds the bytes of the
plain body whatever they are, and what JSON gives as base64 are bytes: `stored_body` and `stored_properties`.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqctl.formats import properties as names
from rmqctl.formats.errors import ExhaustedError, UnsupportedError, UsageError, refuse_exhausted
from rmqctl.formats.hosts import Host
from rmqctl.formats.layouts import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6
from rmqctl.formats.properties import encode_properties, parse_properties, split_keys
from rmqctl.store.log.columns import Bytes, Flags, Int32s, Int64s, MessageColumns
from rmqctl.store.native.tables import Columns
from rmqctl.store.status import FAST

_HEAD, _TOPIC, _BYTES = Columns.HEAD, Columns.TOPIC, Columns.BYTES
_PROPERTIES = Columns.BYTES
_BODY = Columns.HEAD | Columns.BYTES


class SchemaColumn(NamedTuple):
    """`kind` names the Arrow type, see `_type_of`; `needs` are the groups of columns of the walk it is made from."""

    kind: str
    needs: Columns


COLUMNS: dict[str, SchemaColumn] = {
    "msg_id": SchemaColumn("string", _HEAD | _BYTES),
    "unique_key": SchemaColumn("string", _PROPERTIES),
    "topic": SchemaColumn("topic", _TOPIC),
    "queue_id": SchemaColumn("int32", _HEAD),
    "queue_offset": SchemaColumn("int64", _HEAD),
    "physical_offset": SchemaColumn("int64", Columns.NONE),
    "size": SchemaColumn("int32", Columns.NONE),
    "store_timestamp": SchemaColumn("time", _HEAD),
    "born_timestamp": SchemaColumn("time", _HEAD),
    "store_host": SchemaColumn("string", _HEAD | _BYTES),
    "born_host": SchemaColumn("string", _HEAD | _BYTES),
    "sys_flag": SchemaColumn("int32", _HEAD),
    "flag": SchemaColumn("int32", _HEAD),
    "transaction": SchemaColumn("name", _HEAD),
    "compression": SchemaColumn("name", _HEAD),
    "body_crc": SchemaColumn("int32", _HEAD),
    "crc_ok": SchemaColumn("bool", Columns.NONE),
    "reconsume_times": SchemaColumn("int32", _HEAD),
    "prepared_transaction_offset": SchemaColumn("int64", _HEAD),
    "tags": SchemaColumn("string", _PROPERTIES),
    "keys": SchemaColumn("strings", _PROPERTIES),
    "properties": SchemaColumn("map", _PROPERTIES),
    "stored_properties": SchemaColumn("bytes", _PROPERTIES),
    "body_size": SchemaColumn("int32", _BODY),
    "body": SchemaColumn("body", _BODY),
    "body_error": SchemaColumn("string", _BODY),
    "stored_body": SchemaColumn("bytes", _BODY),
}
"""All columns in their order.

`stored_properties` holds the stored bytes where writing `properties` again would not give them, and is null elsewhere;
`stored_body` the stored body of a compressed message, null elsewhere; `body_error` why such a body cannot be unpacked:
then `body` is as stored.
"""


def require_pyarrow() -> None:
    """UnsupportedError unless pyarrow can be imported."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        refuse_exhausted(error)
        raise UnsupportedError(f"Arrow and Parquet need pyarrow, which is not installed here: {FAST}") from error


def has_arrow() -> bool:
    """Whether there is pyarrow."""
    try:
        require_pyarrow()
    except (UnsupportedError, ExhaustedError):
        return False
    return True


def column_names(columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns asked for, None meaning all; UsageError for a name that is none, or that comes twice."""
    if columns is None:
        return tuple(COLUMNS)
    for name in columns:
        if name not in COLUMNS:
            raise UsageError(f"there is no column {name!r}", hint=f"the columns are {', '.join(COLUMNS)}")
        if list(columns).count(name) > 1:
            raise UsageError(f"column {name!r} is asked for twice")
    if not columns:
        raise UsageError("no column is asked for")
    return tuple(columns)


def needed(names: Sequence[str]) -> Columns:
    """What the walk has to give for these columns."""
    groups = Columns.NONE
    for name in names:
        groups |= COLUMNS[name].needs
    return groups


def arrow_schema(names: Sequence[str], views: bool) -> pa.Schema:
    """The schema of the columns; with `views` the bodies are `binary_view`, which need no copy."""
    import pyarrow as pa

    return pa.schema([pa.field(name, _type_of(COLUMNS[name].kind, views)) for name in names])


def _type_of(kind: str, views: bool) -> pa.DataType:
    import pyarrow as pa

    if kind == "body":
        return pa.binary_view() if views else pa.binary()
    types = {
        "string": pa.string(),
        "strings": pa.list_(pa.string()),
        "map": pa.map_(pa.string(), pa.string()),
        "bytes": pa.binary(),
        "bool": pa.bool_(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "time": pa.timestamp("ms", "UTC"),
        "topic": pa.dictionary(pa.int32(), pa.string()),
        "name": pa.dictionary(pa.int8(), pa.string()),
    }
    return types[kind]


# Arrow arrays out of numpy arrays, without a copy where there is none to be had.


class Texts(NamedTuple):
    """Texts one behind the other in `data`, UTF-8; text n is data[offsets[n]:offsets[n + 1]]. None: null where not
    `present`; `present` None: none is null."""

    offsets: Int32s
    data: Bytes
    present: Flags | None = None


def number_array(values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    """An array of fixed width over the memory of `values`."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def words_at(data: Bytes, positions: Int32s) -> NDArray[np.uint32]:
    """Four bytes from each position on, as they lie in memory, wherever that is."""
    overlapping = np.ndarray((max(0, len(data) - 3),), np.uint32, np.ascontiguousarray(data), 0, (1,))
    return overlapping[positions]


def bitmap(present: Flags | None) -> pa.Buffer | None:
    """Arrow's validity bits; None if nothing is null."""
    if present is None or bool(present.all()):
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def texts(made: Texts, kind: pa.DataType | None = None) -> pa.Array:
    """An array of strings, or of `kind` (binary)."""
    buffers = [bitmap(made.present), pa.py_buffer(made.offsets), pa.py_buffer(made.data)]
    return pa.Array.from_buffers(kind or pa.string(), len(made.offsets) - 1, buffers)


def fixed_texts(characters: Bytes) -> pa.Array:
    """Strings of one length: a row of ASCII bytes each."""
    rows, length = characters.shape
    offsets = np.arange(0, (rows + 1) * length, length, dtype=np.int32)
    return texts(Texts(offsets, characters.reshape(-1)))


# Columns that stand in the property strings, plainly: the twin of `kernel_properties`.


class PropertyParts(enum.IntFlag):
    """What is asked of the properties; what is not costs nothing and comes out empty."""

    UNIQUE_KEY = 1
    TAGS = 2
    KEYS = 4
    MAP = 8
    STORED = 16


class PropertyColumns(NamedTuple):
    """Lists are given as Arrow has them: the items of row n are [offsets[n], offsets[n + 1]).

    `stored` holds the property string where `properties` does not give it back.
    """

    unique_key: Texts
    tags: Texts
    key_offsets: Int32s
    keys: Texts
    map_offsets: Int32s
    map_names: Texts
    map_values: Texts
    stored: Texts


class _Writer:
    """Collects texts."""

    def __init__(self) -> None:
        self._ends = [0]
        self._parts: list[bytes] = []
        self._present: list[bool] = []

    def add(self, text: bytes | None) -> None:
        self._parts.append(text or b"")
        self._ends.append(self._ends[-1] + len(text or b""))
        self._present.append(text is not None)

    def count(self) -> int:
        return len(self._parts)

    def made(self, nullable: bool) -> Texts:
        data = np.frombuffer(b"".join(self._parts), np.uint8)
        present = np.array(self._present, np.bool_) if nullable else None
        return Texts(np.array(self._ends, np.int32), data, present)


def plain_columns(strings: Iterable[bytes], wanted: PropertyParts) -> PropertyColumns:
    """The columns of property strings, which must be UTF-8."""
    unique_key, tags, keys, map_names, map_values, stored = (_Writer() for _ in range(6))
    key_offsets, map_offsets = [0], [0]
    for string in strings:
        found = parse_properties(string)
        if wanted & PropertyParts.UNIQUE_KEY:
            unique_key.add(_encoded(found.get(names.UNIQUE_KEY)))
        if wanted & PropertyParts.TAGS:
            tags.add(_encoded(found.get(names.TAGS)))
        if wanted & PropertyParts.KEYS:
            for key in split_keys(found.get(names.KEYS)):
                keys.add(key.encode("utf-8"))
            key_offsets.append(keys.count())
        if wanted & PropertyParts.MAP:
            for name, value in found.items():
                map_names.add(name.encode("utf-8"))
                map_values.add(value.encode("utf-8"))
            map_offsets.append(map_names.count())
        if wanted & PropertyParts.STORED:
            stored.add(string if encode_properties(found) != string else None)
    return PropertyColumns(
        unique_key.made(True),
        tags.made(True),
        np.array(key_offsets, np.int32),
        keys.made(False),
        np.array(map_offsets, np.int32),
        map_names.made(False),
        map_values.made(False),
        stored.made(True),
    )


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8")


def strings_at(window: Bytes, positions: Int32s, lengths: Int32s) -> list[bytes]:
    """The bytes at each position."""
    held = np.ascontiguousarray(window).data
    ends = (positions + lengths).tolist()
    return [bytes(held[begin:end]) for begin, end in zip(positions.tolist(), ends, strict=True)]


# Columns with hosts in them: their text, and the broker's message ids. Few hosts send many messages.

_V4, _V6 = 4, 16
_LOW = np.uint64(0xFFFFFFFF)


def host_texts(batch: MessageColumns, which: str) -> pa.Array:
    """`store` or `born` hosts as `ip:port`. (Host.__str__)"""
    is_v6 = _is_v6(batch, which)
    if not is_v6.any():
        return _texts(host_bytes(batch, which, _V4))
    if is_v6.all():
        return _texts(host_bytes(batch, which, _V6))
    return _merged(is_v6, *(_texts(host_bytes(batch.take(of), which, size)) for of, size in _split(is_v6)))


def message_ids(batch: MessageColumns) -> pa.Array:
    """Upper-case hex of store host and physical offset. (format_offset_message_id)"""
    is_v6 = _is_v6(batch, "store")
    if not is_v6.any():
        return _ids(batch, _V4)
    if is_v6.all():
        return _ids(batch, _V6)
    return _merged(is_v6, *(_ids(batch.take(of), size) for of, size in _split(is_v6)))


def host_bytes(batch: MessageColumns, which: str, size: int) -> Bytes:
    """Address and port of each row as they are stored, a row of size + 4 bytes each."""
    is_born = which == "born"
    found = np.empty((batch.rows, size + 4), np.uint8)
    words = found.view(">i4")
    words[:, 0] = batch.born_host_start if is_born else batch.store_host_start
    words[:, -1] = batch.born_host_port if is_born else batch.store_host_port
    if size > _V4:
        positions = batch.born_host_position if is_born else batch.store_host_position
        assert batch.window is not None
        for number in range(1, size // 4):
            words[:, number] = words_at(batch.window, positions + 4 * number).view(">i4")
    return found


def _is_v6(batch: MessageColumns, which: str) -> Flags:
    bit = SYS_FLAG_BORN_HOST_V6 if which == "born" else SYS_FLAG_STORE_HOST_V6
    flags: Flags = (batch.sys_flag & bit) != 0
    return flags


def _split(is_v6: Flags) -> tuple[tuple[Int64s, int], tuple[Int64s, int]]:
    return (np.flatnonzero(~is_v6), _V4), (np.flatnonzero(is_v6), _V6)


def _merged(is_v6: Flags, narrow: pa.Array, wide: pa.Array) -> pa.Array:
    """Two arrays as one, in the order of the rows."""
    order = np.where(is_v6, len(narrow) + np.cumsum(is_v6) - 1, np.cumsum(~is_v6) - 1)
    return pa.concat_arrays([narrow, wide]).take(pa.array(order))


def _texts(stored: Bytes) -> pa.Array:
    width = stored.shape[1]
    if _is_one(stored):
        return _repeated(_text(stored[0].tobytes()), len(stored))
    fixed = pa.Array.from_buffers(pa.binary(width), len(stored), [None, pa.py_buffer(stored)])
    if width == _V4 + 4:  # eight bytes hash fastest as a number
        encoded = fixed.view(pa.int64()).dictionary_encode()
        distinct = encoded.dictionary.view(pa.binary(width)).to_pylist()
    else:
        encoded = fixed.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
    return pa.array(map(_text, distinct), pa.string()).take(encoded.indices)


def _is_one(stored: Bytes) -> bool:
    """Whether all rows, of at least eight bytes, are the same, of which there is at least one: a store has one store
    host, most of the time."""
    if not len(stored):
        return False
    words = stored.view(np.uint64 if stored.shape[1] == _V4 + 4 else np.uint32)
    return bool((words == words[0]).all())


def _text(stored: bytes) -> str:
    return str(Host(stored[:-4], int.from_bytes(stored[-4:], "big", signed=True)))


@functools.lru_cache(maxsize=8)
def _repeated(text: str, count: int) -> pa.Array:
    # batch by batch it is the same host and, mostly, as many messages
    return fixed_texts(np.tile(np.frombuffer(text.encode("ascii"), np.uint8), (count, 1)))


def _ids(batch: MessageColumns, size: int) -> pa.Array:
    hosts = host_bytes(batch, "store", size)
    digits = np.empty((batch.rows, 2 * (size + 12)), np.uint8)
    edge = 2 * (size + 4)
    words = digits.view(">u8")
    host_words = hex_digits(hosts[:1] if _is_one(hosts) else hosts).view(">u8")
    for place in range(edge // 8):
        words[:, place] = host_words[:, place]
    offsets = batch.physical_offset.view(np.uint64)
    words[:, -2], words[:, -1] = _eight_digits(offsets >> np.uint64(32)), _eight_digits(offsets & _LOW)
    return fixed_texts(digits)


def _eight_digits(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers of 32 bits as eight upper-case hex digits, the first one highest: all at once, by arithmetic."""
    for shift, mask in ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F)):
        numbers = (numbers | numbers << np.uint64(shift)) & np.uint64(mask)
    is_letter = (numbers + np.uint64(0x0606060606060606)) >> np.uint64(4) & np.uint64(0x0101010101010101)
    return numbers + np.uint64(0x3030303030303030) + is_letter * np.uint64(ord("A") - ord("9") - 1)


def hex_digits(data: Bytes) -> Bytes:
    """Rows of bytes as rows of upper-case hex digits. (bytes.hex)"""
    return _HEX[data].view(np.uint8)


# the two digits of each byte, side by side
_HEX = np.frombuffer(bytes(range(256)).hex().upper().encode("ascii"), np.uint16)
