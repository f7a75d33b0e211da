"""Kernels over text: UTF-8 as strict as Python's, Java's string hash over it, and comparing bytes by words."""

from __future__ import annotations

from rmqctl.store.compiled.compiling import inner
from rmqctl.store.compiled.kernel_memory import byte_at, word_at, zeros_below

_HIGH_BITS = 0x8080808080808080 - (1 << 64)
_ONES = 0x0101010101010101
_POWER_8 = 31**8 % (1 << 32)


@inner
def is_utf8(address: int, length: int) -> bool:
    """Whether bytes.decode("utf-8") takes these bytes: no surrogates, nothing overlong, nothing above U+10FFFF."""
    end = address + length
    at = address
    while at < end:
        left = end - at
        high = word_at(at) & _HIGH_BITS
        if left < 8:
            high &= (1 << (8 * left)) - 1
        if high == 0:
            at += 8
            continue
        at += zeros_below(high) >> 3
        size = character_size(at, end - at)
        if size == 0:
            return False
        at += size
    return True


@inner
def character_size(at: int, left: int) -> int:
    """Bytes of the character that is not ASCII at `at`; 0 if it is none or has more than `left` bytes."""
    first = byte_at(at)
    second = byte_at(at + 1)
    if first < 0xC2 or left < 2 or second & 0xC0 != 0x80:
        return 0
    if first < 0xE0:
        return 2
    if left < 3 or byte_at(at + 2) & 0xC0 != 0x80:
        return 0
    if first < 0xF0:
        # overlong below U+0800, surrogates from U+D800 on
        return 0 if (first == 0xE0 and second < 0xA0) or (first == 0xED and second >= 0xA0) else 3
    if left < 4 or byte_at(at + 3) & 0xC0 != 0x80 or first > 0xF4:
        return 0
    return 0 if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second >= 0x90) else 4


@inner
def hash_on(state: int, address: int, length: int) -> int:
    """String.hashCode continued from `state` over the UTF-16 units of valid UTF-8. Only the low 32 bits count."""
    end = address + length
    at = address
    while at < end:
        if end - at >= 8 and word_at(at) & _HIGH_BITS == 0:
            high = (byte_at(at) * 31 + byte_at(at + 1)) * 961 + byte_at(at + 2) * 31 + byte_at(at + 3)
            low = (byte_at(at + 4) * 31 + byte_at(at + 5)) * 961 + byte_at(at + 6) * 31 + byte_at(at + 7)
            state = state * _POWER_8 + high * 923521 + low
            at += 8
            continue
        first = byte_at(at)
        if first < 0x80:
            state = state * 31 + first
            at += 1
        elif first < 0xE0:
            state = state * 31 + ((first & 0x1F) << 6 | byte_at(at + 1) & 0x3F)
            at += 2
        elif first < 0xF0:
            state = state * 31 + ((first & 0xF) << 12 | (byte_at(at + 1) & 0x3F) << 6 | byte_at(at + 2) & 0x3F)
            at += 3
        else:
            point = (first & 7) << 18 | (byte_at(at + 1) & 0x3F) << 12
            point = (point | (byte_at(at + 2) & 0x3F) << 6 | byte_at(at + 3) & 0x3F) - 0x10000
            state = (state * 31 + (0xD800 | point >> 10)) * 31 + (0xDC00 | point & 0x3FF)
            at += 4
    return state


@inner
def same_bytes(left: int, right: int, length: int) -> bool:
    """Whether two spans of `length` bytes are equal."""
    at = 0
    while length - at >= 8:
        if word_at(left + at) != word_at(right + at):
            return False
        at += 8
    if at == length:
        return True
    return (word_at(left + at) ^ word_at(right + at)) & ((1 << (8 * (length - at))) - 1) == 0


@inner
def find_byte(address: int, end: int, pattern: int) -> int:
    """Address of the first byte equal to the one that `pattern` repeats eight times; `end` if there is none."""
    at = address
    while at < end:
        word = word_at(at) ^ pattern
        found = (word - _ONES) & ~word & _HIGH_BITS
        if found:
            return min(at + (zeros_below(found) >> 3), end)
        at += 8
    return end
