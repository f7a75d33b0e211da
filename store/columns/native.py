"""Makes a kernel a function of Python that takes objects as they are: for work on one message, where an ordinary call
of compiled code would take longer than the work. Importing this module imports numba.

Nothing is checked or converted, the GIL is held, and what the kernel gives back is the address of a new reference, or 0
with an exception.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from numba import types

from store.columns.compiling import c_function

# the arguments come as an array (METH_FASTCALL, in the stable ABI since Python 3.10)
_AS_ARRAY = 0x80
_SIGNATURE = types.int64(types.int64, types.int64, types.int64)


class _Definition(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


TYPE_AT, SIZE_AT, ITEMS_AT, BYTES_AT = 8, 16, 24, 32
"""Where, in bytes from its start, an object has its type; a tuple or bytes their length, a tuple its items, bytes their
content."""


def is_possible() -> bool:
    """Whether this Python calls functions so: CPython of 64 bits with its GIL, whose objects are laid out as ever."""
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8 or not has_gil:
        return False
    data, fields = b"bytes", ("", 0)
    return (
        all(_word_at(one, TYPE_AT) == id(type(one)) for one in ("", 0, None, sys, data, fields))
        and (_word_at(data, SIZE_AT), _word_at(fields, SIZE_AT)) == (len(data), len(fields))
        and [_word_at(fields, ITEMS_AT + 8 * place) for place in range(2)] == list(map(id, fields))
        and ctypes.string_at(id(data) + BYTES_AT, len(data)) == data
    )


def _word_at(thing: object, place: int) -> int:
    return ctypes.c_size_t.from_address(id(thing) + place).value


class Native:
    """A kernel that is compiled to be called so. It gets `bound`, the addresses of objects one behind the other as an
    object of type bytes; those of its arguments one behind the other; and their number."""

    def __init__(self, kernel: Callable[[int, int, int], int]) -> None:
        """Raises whatever numba raises."""
        self._compiled = c_function(kernel, _SIGNATURE)
        self._definition = _Definition(kernel.__name__.encode(), self._compiled.address, _AS_ARRAY, None)

    def bound_to(self, objects: Sequence[object]) -> Callable[..., Any]:
        """The function of Python that calls the kernel with these objects."""
        addresses = struct.pack(f"{len(objects)}N", *map(id, objects))
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
        # what should be its module is there to keep everything alive that it refers to
        return cast(Callable[..., Any], make(ctypes.addressof(self._definition), addresses, (self, tuple(objects))))
