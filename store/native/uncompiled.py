"""What `cython` and the names of types mean to the plain form of a module. Cython itself reads none of this.

Types say nothing here: a plain integer has no end. Where a value may leave its field, both forms say how it wraps
(`i32`, `u32`, `i64` of memory), so that they agree.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, overload

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])

compiled: bool = False

char: TypeAlias = int
uchar: TypeAlias = int
short: TypeAlias = int
ushort: TypeAlias = int
uint: TypeAlias = int
long: TypeAlias = int
ulong: TypeAlias = int
longlong: TypeAlias = int
ulonglong: TypeAlias = int
Py_ssize_t: TypeAlias = int
size_t: TypeAlias = int
bint: TypeAlias = bool
double: TypeAlias = float

Bytes: TypeAlias = bytes | bytearray | memoryview
"""Bytes that are read: what a store gave."""
WritableBytes: TypeAlias = bytearray | memoryview
Ints: TypeAlias = Any
"""A row of C ints that is written; so are the others."""
UInts: TypeAlias = Any
Longs: TypeAlias = Any
ULongs: TypeAlias = Any
Doubles: TypeAlias = Any
ReadInts: TypeAlias = Any
ReadUInts: TypeAlias = Any
ReadLongs: TypeAlias = Any
IntRows: TypeAlias = Any
"""Rows of equal length, one after the other."""
LongRows: TypeAlias = Any
ReadLongRows: TypeAlias = Any

Place: TypeAlias = bytes
"""Where a range begins, for crc alone."""


class _NoGil(contextlib.AbstractContextManager[None]):
    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, function: _F) -> _F:
        return function


nogil: Final = _NoGil()
"""`with cython.nogil:` lets other threads run; `@cython.nogil` is a function that is called so."""


def views(*arrays: Any) -> Any:
    """Memoryviews of arrays: their elements are plain integers, where those of NumPy overflow."""
    return tuple(memoryview(array) for array in arrays)


@overload
def declare(kind: type[_T], value: Any) -> _T: ...


@overload
def declare(kind: object, value: _T) -> _T: ...


def declare(kind: object, value: Any) -> Any:
    """A value of a module, which the compiled form holds as a C value."""
    return value


def cast(kind: type[_T], value: Any) -> _T:
    """The value itself: nothing is cut off."""
    same: _T = value
    return same


def cfunc(function: _F) -> _F:
    """A function that only compiled code calls."""
    return function


ccall = inline = cfunc


def cclass(kind: type[_T]) -> type[_T]:
    """A class whose attributes are C values."""
    return kind


final = cclass
"""No class takes its methods over: they are called without a look into a table, and can be taken into their callers."""


def exceptval(value: object = None, *, check: bool = True) -> Callable[[_F], _F]:
    """What a C function gives when it raises."""
    return cfunc


def boundscheck(wanted: bool) -> Callable[[_F], _F]:
    """Whether places are compared with the length; False only with a proof beside it."""
    return cfunc


wraparound = cdivision = binding = boundscheck

int: TypeAlias = builtins.int  # the last one: it hides Python's own
