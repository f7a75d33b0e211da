"""Body columns: views of the bodies in the batch's own memory; what producers compressed is unpacked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqctl.formats.compression import decompress
from rmqctl.formats.errors import CorruptError, UnsupportedError
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.formats.sys_flag import compression_type
from rmqctl.store.columns.batch import Bytes, Flags, Int32s, MessageColumns
from rmqctl.store.scan.arrays import Texts, texts, words_at

# what a view holds itself: its length, then either all of a short text, or four bytes of it, a buffer and an offset
_INLINE = 12
_PREFIX = 4
_VIEW = 16


class Bodies(NamedTuple):
    """Plain bodies of some rows: body n is `lengths[n]` bytes from `positions[n]` on, of `unpacked` where
    `is_unpacked` says so and of the batch's window elsewhere. `errors`: why a body is as stored, by its place."""

    window: Bytes
    unpacked: Bytes
    positions: Int32s
    lengths: Int32s
    is_unpacked: Flags
    errors: dict[int, str]


def is_compressed(batch: MessageColumns) -> Flags:
    """Which bodies are stored compressed."""
    flags: Flags = (batch.sys_flag & SYS_FLAG_COMPRESSED) != 0
    return flags


def plain_bodies(batch: MessageColumns, limit: int) -> tuple[Bodies, int]:
    """The bodies of the first rows, and of how many: as many as unpack to less than about `limit` bytes together.

    (StoredMessage.plain_body, rmqctl's message_json: what cannot be unpacked is given as stored.)
    """
    assert batch.window is not None
    compressed = np.flatnonzero(is_compressed(batch))
    positions, lengths = batch.body_position, batch.body_length
    if len(compressed):
        positions, lengths = positions.copy(), lengths.copy()
    is_unpacked = np.zeros(batch.rows, np.bool_)
    errors: dict[int, str] = {}
    parts: list[bytes] = []
    total, taken = 0, batch.rows
    for place in compressed.tolist():
        if total >= limit:
            taken = place
            break
        kind = compression_type(int(batch.sys_flag[place]))
        assert kind is not None
        try:
            part = decompress(bytes(batch.body(place)), kind)
        except (CorruptError, UnsupportedError) as error:
            errors[place] = error.message
            continue
        positions[place], lengths[place], is_unpacked[place] = total, len(part), True
        parts.append(part)
        total += len(part)
    unpacked = np.frombuffer(b"".join(parts), np.uint8) if total else np.empty(0, np.uint8)
    made = Bodies(batch.window, unpacked, positions[:taken], lengths[:taken], is_unpacked[:taken], errors)
    return made, taken


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


def unread_bodies(batch: MessageColumns, made: Bodies) -> Iterator[CorruptError]:
    """Yield what to report of bodies that could not be unpacked; clients unpack no empty body."""
    for row, why in sorted(made.errors.items()):
        if batch.body_length[row]:
            yield _not_unpacked(why, int(batch.physical_offset[row]))


def _not_unpacked(why: str, place: int | None) -> CorruptError:
    return CorruptError(f"the body does not unpack: {why}", physical_offset=place)


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
            yield _not_unpacked(errors[row].as_py(), place)
