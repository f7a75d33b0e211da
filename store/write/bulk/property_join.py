"""Loads and tries the kernel that joins properties, and gives it its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from rmqctl.store.compiled.tried import loaded_once, tried_kernels
from rmqctl.store.log.columns import Int64s

Join = Callable[..., int]


def joined_properties(names: Any, values: Any, rows: int, each: int) -> tuple[memoryview, Int64s] | None:
    """The stored properties of `rows` rows, each of `each` names and values, with the places where rows begin and the
    last one ends. Two pyarrow.StringArray without nulls, whose offsets are in order.

    None where nothing is compiled, where rows have other names than the first, or where a value holds a separator.
    """
    join = join_kernel()
    return None if join is None else _joined(join, names, values, rows, each)


def _joined(join: Join, names: Any, values: Any, rows: int, each: int) -> tuple[memoryview, Int64s] | None:
    from rmqctl.store.write.bulk.kernel_join import SPARE

    name_at, name_offsets = _texts(names)
    value_at, value_offsets = _texts(values)
    total = int(name_offsets[-1] - name_offsets[0]) + int(value_offsets[-1] - value_offsets[0]) + 2 * rows * each
    target = np.empty(total + SPARE, np.uint8)
    places = np.empty(rows + 1, np.int64)
    if join(name_at, name_offsets, value_at, value_offsets, each, target.ctypes.data, places) < 0:
        return None
    return target.data, places


def _texts(array: Any) -> tuple[int, Any]:
    """Address of the texts and their offsets."""
    data = array.buffers()[2]
    return 0 if data is None else data.address, value_offsets(array, np.int32)


def value_offsets(array: Any, kind: type[np.int32 | np.int64]) -> Any:
    """Where the values of an array of texts or bytes begin and the last one ends; `kind` as the array's type has it.

    Others write files with more bytes there, of no whole number, or with none where there is no value.
    """
    if not len(array):
        return np.zeros(1, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array) + 1, array.offset * np.dtype(kind).itemsize)


@loaded_once
def join_kernel() -> Join | None:
    """The compiled one, None where nothing is compiled."""
    found = tried_kernels("rmqctl.store.write.bulk.kernel_join", lambda tried: _is_right(tried[0]), is_waited_for=False)
    return None if found is None else found[0]


def _is_right(join: Join) -> bool:
    """Whether it does what it should, tried on a few rows."""
    names = pa.array(["TAGS", "longer name", "TAGS", "longer name"])
    good, bad = pa.array(["", "ä" * 9, "t", "value"]), pa.array(["", "", "a\x02b", ""])
    wanted = [f"TAGS\x01{tag}\x02longer name\x01{value}\x02".encode() for tag, value in (("", "ä" * 9), ("t", "value"))]
    made = _joined(join, names, good, 2, 2)
    if made is None or _joined(join, names, bad, 2, 2) is not None or _joined(join, good, names, 2, 2) is not None:
        return False
    data, places = bytes(made[0]), made[1]
    return [data[places[row] : places[row + 1]] for row in range(2)] == wanted
