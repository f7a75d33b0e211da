"""The kernel that writes the stored properties of many messages with the same names, in the same order.

Its plain twin are the joins in `arrow_properties`. What it writes to has `SPARE` bytes behind its end, because it is
written and read in whole words; what it reads from needs none. Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

from rmqctl.store.compiled.compiling import kernel
from rmqctl.store.compiled.kernel_memory import copy_bytes, store_word
from rmqctl.store.compiled.kernel_text import find_byte, same_bytes

SPARE = 8
_NAME_END, _PROPERTY_END = 1, 2
_PROPERTY_ENDS = 0x0202020202020202


def make_kernels(stamp: int) -> tuple[Any]:
    """`join_properties`; see `compiling.load_kernels`."""

    @kernel
    def join_properties(
        names: int, name_offsets: Any, values: int, value_offsets: Any, each: int, target: int, places: Any
    ) -> int:
        """Write the `each` properties of every row; `places` gets where rows begin and where the last one ends.

        `names` and `values` are addresses, their offsets those of all properties of all rows. Returns the length; -1 if
        the rows do not all have the names of the first one, or if a separator stands in a value.
        """
        at = target
        rows = len(places) - 1
        number = 0
        for row in range(rows):
            places[row] = at - target
            first = target
            for place in range(each):
                length = name_offsets[number + 1] - name_offsets[number]
                copy_bytes(at, names + name_offsets[number], length)
                expected = name_offsets[place + 1] - name_offsets[place]
                if row:
                    if length != expected or not same_bytes(at, first, length):
                        return -1
                    first += length + value_offsets[place + 1] - value_offsets[place] + 2
                at += length
                store_word(at, _NAME_END)
                at += 1
                length = value_offsets[number + 1] - value_offsets[number]
                copy_bytes(at, values + value_offsets[number], length)
                if find_byte(at, at + length, _PROPERTY_ENDS) < at + length:
                    return -1
                at += length
                store_word(at, _PROPERTY_END)
                at += 1
                number += 1
        places[rows] = at - target
        return (at - target) if stamp else 0

    return (join_properties,)
