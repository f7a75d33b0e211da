"""What kernels reach memory with: big-endian loads and stores by address, words, copies, a CRC function by address.

An address stands for a byte of a window. Nothing is checked here: a kernel compares every length with what is left of
the window before it reads, and windows have `state.PADDING` spare bytes behind their end for loads of whole words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmqctl.store.compiled.compiling import inner

_Load = Callable[[int], int]
_Store = Callable[[int, int], None]


def _load(bits: int, big_endian: bool, signed: bool) -> _Load:
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            value = builder.load(pointer, align=1)
            if big_endian and bits > 8:
                value = builder.bswap(value)
            if bits == 64:
                return value
            return (builder.sext if signed else builder.zext)(value, ir.IntType(64))

        return types.int64(types.int64), generate

    return cast(_Load, intrinsic(load))


byte_at = _load(8, big_endian=True, signed=False)
signed_byte_at = _load(8, big_endian=True, signed=True)
short_at = _load(16, big_endian=True, signed=True)
int_at = _load(32, big_endian=True, signed=True)
long_at = _load(64, big_endian=True, signed=True)
word_at = _load(64, big_endian=False, signed=True)
"""Eight bytes, the first one lowest: for comparing and searching eight bytes at a time."""


def _store_word(typing_context: Any, address: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store(arguments[1], pointer, align=1)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


store_word = cast(Callable[[int, int], None], intrinsic(_store_word))
"""Write eight bytes, the lowest one first, wherever they lie."""


_raw_memcpy: Any = cast(Any, cgutils).raw_memcpy


def _store(bits: int) -> _Store:
    """Big-endian, of the low bits of a value."""

    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.IntType(bits)
            low = builder.trunc(arguments[1], kind) if bits < 64 else arguments[1]
            builder.store(
                builder.bswap(low) if bits > 8 else low, builder.inttoptr(arguments[0], kind.as_pointer()), align=1
            )
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return cast(_Store, intrinsic(store))


set_byte, set_short, set_int, set_long = _store(8), _store(16), _store(32), _store(64)


def _copy(typing_context: Any, target: Any, source: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        places = [builder.inttoptr(argument, byte) for argument in arguments[:2]]
        _raw_memcpy(builder, places[0], places[1], arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


copy_bytes = cast(Callable[[int, int, int], None], intrinsic(_copy))
"""copy_bytes(target, source, length): addresses of bytes that do not overlap."""


def _crc_by_address(typing_context: Any, function: Any, address: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        kind = ir.FunctionType(word, [word, ir.IntType(64), ir.IntType(64)])
        called = builder.inttoptr(arguments[0], kind.as_pointer())
        value = builder.call(called, [ir.Constant(word, 0), arguments[1], arguments[2]])
        return builder.zext(value, ir.IntType(64))

    return types.int64(types.int64, types.int64, types.int64), generate


crc_by_address = cast(Callable[[int, int, int], int], intrinsic(_crc_by_address))
"""crc_by_address(function, address, length): CRC-32 of bytes, by a C function (seed, bytes, length) at an address."""


def _zeros_below(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


zeros_below = cast(_Load, intrinsic(_zeros_below))
"""Number of zero bits below the lowest one bit."""


@inner
def swapped(value: int) -> int:
    """The low 32 bits of a value with their bytes in the other order: as a big-endian field has them."""
    return (value & 0xFF) << 24 | (value & 0xFF00) << 8 | (value >> 8) & 0xFF00 | (value >> 24) & 0xFF
