"""Arrow arrays from numpy arrays, without a copy if possible; and from hosts and message ids."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqctl.formats.hosts import Host
from rmqctl.formats.layouts import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6
from rmqctl.store.log.columns import Bytes, Flags, Int32s, Int64s, MessageColumns
from rmqctl.store.log.property_columns import Texts


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
