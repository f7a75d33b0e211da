"""A run of messages as Arrow record batches: each column asked for, and no other, is made from the walk's columns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import (
    COMPRESSION_MASK,
    COMPRESSION_SHIFT,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_STORE_HOST_V6,
    TRANSACTION_MASK,
)
from rmqctl.formats.message import Host
from rmqctl.formats.properties import TRANSACTION_NAMES, compression_name
from rmqctl.store.log.columns import Bytes, Flags, Int32s, Int64s, MessageColumns, TopicIds
from rmqctl.store.log.property_columns import PropertyColumns, PropertyParts, Texts, property_columns
from rmqctl.store.read.select import OnDamage
from rmqctl.store.scan.chosen import Bodies, is_compressed, not_unpacked, unpacked_parts, unread_bodies
from rmqctl.store.scan.schema import COLUMNS, arrow_schema

# Arrow arrays from numpy arrays, without a copy if possible; and from hosts and message ids.


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
    """Upper-case hex of store host and physical offset, null for messages that are not in the log.
    (format_offset_message_id)"""
    not_in_log = batch.physical_offset < 0
    if not_in_log.any():
        import pyarrow.compute as pc

        return pc.if_else(pa.array(not_in_log), None, _message_ids(batch))
    return _message_ids(batch)


def _message_ids(batch: MessageColumns) -> pa.Array:
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


# Body columns: views of the bodies in the batch's own memory; what producers compressed is unpacked.

# what a view holds itself: its length, then either all of a short text, or four bytes of it, a buffer and an offset
_INLINE = 12
_PREFIX = 4
_VIEW = 16


def body_array(bodies: Bodies, views: bool) -> pa.Array:
    """The bodies as `binary_view`, or copied as `binary`."""
    rows = len(bodies.lengths)
    held = np.zeros((rows, _VIEW), np.uint8)
    words = held.view(np.int32)
    words[:, 0] = bodies.lengths
    words[:, 2] = bodies.is_unpacked
    words[:, 3] = bodies.positions
    if not bodies.is_unpacked.any() and rows and bodies.lengths.min() > _INLINE:
        words[:, 1] = words_at(bodies.window, bodies.positions).view(np.int32)
        return _held(bodies, held, views)
    for data, of in ((bodies.window, ~bodies.is_unpacked), (bodies.unpacked, bodies.is_unpacked)):
        long = np.flatnonzero(of & (bodies.lengths > _INLINE))
        words[long, 1] = words_at(data, bodies.positions[long]).view(np.int32)
        short = np.flatnonzero(of & (bodies.lengths <= _INLINE))
        held[short, _PREFIX:] = _inlined(data, bodies.positions[short], bodies.lengths[short])
    return _held(bodies, held, views)


def _held(bodies: Bodies, held: Bytes, views: bool) -> pa.Array:
    buffers = [None, *map(pa.py_buffer, (held, np.ascontiguousarray(bodies.window), bodies.unpacked))]
    array = pa.Array.from_buffers(pa.binary_view(), len(held), buffers)
    return array if views else array.cast(pa.binary())


def _inlined(data: Bytes, positions: Int32s, lengths: Int32s) -> Bytes:
    """Texts of at most _INLINE bytes, a row of as many each, filled with zeros."""
    places = np.arange(_INLINE)
    there = places < lengths[:, np.newaxis]
    # what is not there may lie behind the end of the data
    found = np.where(there, positions[:, np.newaxis] + places, 0)
    return np.where(there, data[found], 0).astype(np.uint8) if len(data) else np.zeros(there.shape, np.uint8)


def error_array(bodies: Bodies) -> pa.Array:
    """Why bodies are as stored, null for those that are not."""
    if not bodies.errors:
        return pa.nulls(len(bodies.lengths), pa.string())
    return pa.array([bodies.errors.get(place) for place in range(len(bodies.lengths))], pa.string())


def stored_bodies(batch: MessageColumns) -> pa.Array:
    """Compressed bodies as stored, null for plain ones."""
    compressed = is_compressed(batch)
    if not compressed.any():
        return pa.nulls(batch.rows, pa.binary())
    ends = np.cumsum(np.where(compressed, batch.body_length, 0), dtype=np.int32)
    parts = b"".join(map(batch.body, np.flatnonzero(compressed).tolist()))
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    return texts(Texts(offsets, np.frombuffer(parts or b"\0", np.uint8), compressed), pa.binary())


def bodies_not_unpacked(batch: pa.RecordBatch) -> Iterator[CorruptError]:
    """Yield what to report of the rows of a batch whose bodies could not be unpacked; clients unpack no empty body."""
    if "body_error" not in batch.schema.names:
        return
    errors = batch.column("body_error")
    if errors.null_count == len(errors):
        return
    places = batch.column("physical_offset") if "physical_offset" in batch.schema.names else None
    stored = batch.column("body") if "body" in batch.schema.names else None
    for row in np.flatnonzero(errors.is_valid()).tolist():
        if stored is None or len(stored[row].as_py()):
            place = None if places is None else places[row].as_py()
            yield not_unpacked(errors[row].as_py(), place)


# Bodies are unpacked until they are this many bytes, then another batch begins: a bomb fills no memory.
UNPACKED_BYTES = 32 * 1024 * 1024
_BODY_COLUMNS = frozenset(("body", "body_size", "body_error"))
_TRANSACTION_SHIFT = 2
_KINDS = (COMPRESSION_MASK >> COMPRESSION_SHIFT) + 1
_OF_PROPERTIES = {
    "unique_key": PropertyParts.UNIQUE_KEY,
    "tags": PropertyParts.TAGS,
    "keys": PropertyParts.KEYS,
    "properties": PropertyParts.MAP,
    "stored_properties": PropertyParts.STORED,
}


class BatchMaker:
    """Makes batches of one schema. `views`: bodies stay where they are, in memory that the batch keeps."""

    def __init__(self, names: Sequence[str], views: bool, on_damage: OnDamage | None = None) -> None:
        """`names` as of `schema.column_names`; `on_damage` gets bodies in the column `body` that do not unpack."""
        self._on_damage = on_damage if "body" in names else None
        self.names = tuple(names)
        self.views = views
        self.schema = arrow_schema(names, views)
        self.needs_bodies = not _BODY_COLUMNS.isdisjoint(names)
        self.wanted = PropertyParts(sum(flag for name, flag in _OF_PROPERTIES.items() if name in names))
        self._topic_names: tuple[TopicIds | None, pa.Array] = (None, pa.array([], pa.string()))

    def batches(self, batch: MessageColumns) -> Iterator[pa.RecordBatch]:
        """The messages as record batches, in order. Nearly always one batch."""
        for part, unpacked in unpacked_parts(batch, UNPACKED_BYTES, needs_bodies=self.needs_bodies):
            if self._on_damage is not None and unpacked is not None:
                for error in unread_bodies(part, unpacked):
                    self._on_damage(error)
            made = _Rows(self, part, unpacked)
            arrays = [made.column(name) for name in self.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def topic_names(self, topics: TopicIds) -> pa.Array:
        """The topics met so far, as a dictionary; one array for many batches."""
        of, names = self._topic_names
        if of is not topics or len(names) != len(topics.names):
            names = pa.array(topics.names[: len(topics.names)], pa.string())
            self._topic_names = topics, names
        return names


class _Rows:
    """The rows of one record batch, column by column."""

    def __init__(self, maker: BatchMaker, batch: MessageColumns, unpacked: Bodies | None) -> None:
        self._maker = maker
        self.batch = batch
        self._unpacked = unpacked

    def column(self, name: str) -> pa.Array:
        """A column by name."""
        make = _MAKERS.get(name)
        if make is not None:
            return make(self)
        return number_array(getattr(self.batch, name), self._maker.schema.field(name).type)

    @property
    def bodies(self) -> Bodies:
        assert self._unpacked is not None
        return self._unpacked

    @cached_property
    def properties(self) -> PropertyColumns:
        return property_columns(
            self.batch, self.batch.property_position, self.batch.property_length, self._maker.wanted
        )

    def topic(self) -> pa.Array:
        names = self._maker.topic_names(self.batch.topics)
        return pa.DictionaryArray.from_arrays(number_array(self.batch.topic_id, pa.int32()), names)

    def transaction(self) -> pa.Array:
        codes = (self.batch.sys_flag & TRANSACTION_MASK) >> _TRANSACTION_SHIFT
        return pa.DictionaryArray.from_arrays(number_array(codes.astype(np.int8), pa.int8()), _TRANSACTIONS)

    def compression(self) -> pa.Array:
        flags = self.batch.sys_flag
        codes = _COMPRESSION_OF_KIND[(flags & COMPRESSION_MASK) >> COMPRESSION_SHIFT]
        present = bitmap((flags & SYS_FLAG_COMPRESSED) != 0)
        indices = pa.Array.from_buffers(pa.int8(), len(codes), [present, pa.py_buffer(codes)])
        return pa.DictionaryArray.from_arrays(indices, _COMPRESSIONS)

    def crc_ok(self) -> pa.Array:
        # the walk yields no message whose CRC does not hold
        return numbers_of_true(self.batch.rows)

    def keys(self) -> pa.Array:
        made = self.properties
        return pa.ListArray.from_arrays(number_array(made.key_offsets, pa.int32()), texts(made.keys))

    def map(self) -> pa.Array:
        made = self.properties
        offsets = number_array(made.map_offsets, pa.int32())
        return pa.MapArray.from_arrays(offsets, texts(made.map_names), texts(made.map_values))

    @property
    def views(self) -> bool:
        return self._maker.views


def numbers_of_true(count: int) -> pa.Array:
    """`count` times true."""
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(b"\xff" * (-(-count // 8)))])


_TRANSACTIONS = pa.array([TRANSACTION_NAMES[number << _TRANSACTION_SHIFT] for number in range(4)], pa.string())
_KIND_NAMES = [str(compression_name(SYS_FLAG_COMPRESSED | number << COMPRESSION_SHIFT)) for number in range(_KINDS)]
_DISTINCT = list(dict.fromkeys(_KIND_NAMES))
_COMPRESSIONS = pa.array(_DISTINCT, pa.string())
_COMPRESSION_OF_KIND = np.array([_DISTINCT.index(name) for name in _KIND_NAMES], np.int8)

_MAKERS: dict[str, Callable[[_Rows], pa.Array]] = {
    "msg_id": lambda of: message_ids(of.batch),
    "store_host": lambda of: host_texts(of.batch, "store"),
    "born_host": lambda of: host_texts(of.batch, "born"),
    "topic": _Rows.topic,
    "transaction": _Rows.transaction,
    "compression": _Rows.compression,
    "crc_ok": _Rows.crc_ok,
    "unique_key": lambda of: texts(of.properties.unique_key),
    "tags": lambda of: texts(of.properties.tags),
    "keys": _Rows.keys,
    "properties": _Rows.map,
    "stored_properties": lambda of: texts(of.properties.stored, pa.binary()),
    "body": lambda of: body_array(of.bodies, of.views),
    "body_size": lambda of: number_array(of.bodies.lengths, pa.int32()),
    "body_error": lambda of: error_array(of.bodies),
    "stored_body": lambda of: stored_bodies(of.batch),
}
assert _MAKERS.keys() <= COLUMNS.keys()
