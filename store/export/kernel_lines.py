"""Kernels that write lines of text from Arrow columns: texts escaped for JSON, and columns joined row by row.

Importing this module imports numba. Buffers are given by address; words are read only where eight bytes are left, so
that they need no spare bytes behind their ends.
"""

from __future__ import annotations

from typing import Any

from rmqctl.store.compiled.compiling import inner, kernel
from rmqctl.store.compiled.kernel_memory import byte_at, copy_bytes, set_byte, word_at, zeros_below
from rmqctl.store.compiled.kernel_text import character_size

_HIGH_BITS = 0x8080808080808080 - (1 << 64)
_ONES = 0x0101010101010101
_SPACES, _QUOTES, _BACKSLASHES, _DELETES = 0x20 * _ONES, 0x22 * _ONES, 0x5C * _ONES, 0x7F * _ONES
_QUOTE, _BACKSLASH, _DELETE, _SMALL_U = ord('"'), ord("\\"), 0x7F, ord("u")
_HALF = 0xFFFFFFFF


@inner
def next_unclean(at: int, end: int) -> int:
    """Address of the first byte that is no printable ASCII, a quote or a backslash; `end` if there is none."""
    while end - at >= 8:
        word = word_at(at)
        quote, backslash, delete = word ^ _QUOTES, word ^ _BACKSLASHES, word ^ _DELETES
        found = (
            (word - _SPACES) & ~word
            | word
            | (quote - _ONES) & ~quote
            | (backslash - _ONES) & ~backslash
            | (delete - _ONES) & ~delete
        ) & _HIGH_BITS
        if found:
            return at + (zeros_below(found) >> 3)
        at += 8
    while at < end:
        byte = byte_at(at)
        if byte < 0x20 or byte >= _DELETE or byte in (_QUOTE, _BACKSLASH):
            return at
        at += 1
    return end


@inner
def code_point(at: int, size: int) -> int:
    """The character of `size` bytes, of valid UTF-8."""
    if size == 2:
        return (byte_at(at) & 0x1F) << 6 | byte_at(at + 1) & 0x3F
    if size == 3:
        return (byte_at(at) & 0xF) << 12 | (byte_at(at + 1) & 0x3F) << 6 | byte_at(at + 2) & 0x3F
    high = (byte_at(at) & 7) << 18 | (byte_at(at + 1) & 0x3F) << 12
    return high | (byte_at(at + 2) & 0x3F) << 6 | byte_at(at + 3) & 0x3F


@inner
def set_unit(target: int, unit: int) -> None:
    r"""Write a UTF-16 unit as `\uXXXX`."""
    set_byte(target, _BACKSLASH)
    set_byte(target + 1, _SMALL_U)
    for place in range(4):
        digit = unit >> (12 - 4 * place) & 0xF
        set_byte(target + 2 + place, digit + (48 if digit < 10 else 87))


@inner
def set_escape(target: int, point: int) -> int:
    """Write a code point as one or two UTF-16 units; the bytes written."""
    if point < 0x10000:
        set_unit(target, point)
        return 6
    set_unit(target, 0xD800 + ((point - 0x10000) >> 10))
    set_unit(target + 6, 0xDC00 + (point & 0x3FF))
    return 12


def _make_escape(stamp: int) -> Any:
    """The kernel; `stamp` is `compiling.source_stamp()`, so that code of an older source is never taken."""

    @kernel
    def escape(offsets: int, data: int, rows: int, short: Any, unsafe: Any, made: Any, target: int) -> int:
        """Escape texts to `target` and note in `made` where each begins and ends; the bytes written. With a `target`
        of 0 they are only counted.

        `short`: by byte, the letter behind a backslash that stands for it, or 0. `unsafe`: by code point, whether it
        is written as an escape.
        """
        if rows < 0:
            return stamp
        used = 0
        for row in range(rows):
            word = word_at(offsets + 4 * row)
            at, end = data + (word & _HALF), data + (word >> 32 & _HALF)
            while at < end:
                stop = next_unclean(at, end)
                if target:
                    copy_bytes(target + used, at, stop - at)
                used += stop - at
                at = stop
                if at == end:
                    break
                byte = byte_at(at)
                if byte >= 0x80:
                    size = character_size(at, end - at)
                    point = code_point(at, size)
                    if not unsafe[point]:
                        if target:
                            copy_bytes(target + used, at, size)
                        used += size
                    else:
                        if target:
                            set_escape(target + used, point)
                        used += 6 if point < 0x10000 else 12
                    at += size
                    continue
                if short[byte]:
                    if target:
                        set_byte(target + used, _BACKSLASH)
                        set_byte(target + used + 1, short[byte])
                    used += 2
                else:
                    if target:
                        set_unit(target + used, byte)
                    used += 6
                at += 1
            if target:
                made[row + 1] = used
        return used

    return escape


def _make_join(stamp: int) -> Any:
    """The kernel; `stamp` as for _make_escape."""

    @kernel
    def join(offsets: Any, data: Any, lengths: Any, rows: int, made: Any, target: int) -> int:
        """Join texts and constants row by row to `target` and note in `made` where each row ends; the bytes written.

        By part: the addresses of its offsets and data; of a constant 0, its bytes and its length.
        """
        if rows < 0:
            return stamp
        used = 0
        for row in range(rows):
            for part in range(len(offsets)):
                begin, length = 0, lengths[part]
                if offsets[part]:
                    word = word_at(offsets[part] + 4 * row)
                    begin = word & _HALF
                    length = (word >> 32 & _HALF) - begin
                copy_bytes(target + used, data[part] + begin, length)
                used += length
            made[row + 1] = used
        return used

    return join


def make_kernels(stamp: int) -> tuple[Any, Any]:
    """`escape` and `join`; see `compiling.load_kernels`."""
    return _make_escape(stamp), _make_join(stamp)
