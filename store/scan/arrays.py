"""Arrow arrays out of numpy arrays, without a copy where there is none to be had."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqctl.store.columns.batch import Bytes, Flags, Int32s


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
