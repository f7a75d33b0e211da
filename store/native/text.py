"""UTF-8 as strict as Python's, and Java's string hash over it, for ranges that `memory` compared with the length."""

from __future__ import annotations

from rmqctl.store.native import uncompiled as cython

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.views import Bytes, Place

if not cython.compiled:
    from rmqctl.store.native.uncompiled import Bytes, Place


# odd, and far from a power of two; and the bits of a word
_MULTIPLIER, _ALL_BITS = 0x9E3779B97F4A7C15, 0xFFFFFFFFFFFFFFFF


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _character_size(place: Place, at: cython.Py_ssize_t, left: cython.Py_ssize_t) -> cython.int:
    """Bytes of the non-ASCII character at a place; 0 if no character begins there or it has more than `left` bytes."""
    first: cython.int = place[at]
    second: cython.int
    if first < 0xC2 or first > 0xF4 or left < 2:
        return 0
    second = place[at + 1]
    if second & 0xC0 != 0x80:
        return 0
    if first < 0xE0:
        return 2
    if left < 3 or place[at + 2] & 0xC0 != 0x80:
        return 0
    if first < 0xF0:
        # overlong below U+0800, surrogates from U+D800 on
        return 0 if (first == 0xE0 and second < 0xA0) or (first == 0xED and second >= 0xA0) else 3
    if left < 4 or place[at + 3] & 0xC0 != 0x80:
        return 0
    return 0 if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second >= 0x90) else 4


def is_utf8_of(place: Place, length: cython.Py_ssize_t) -> cython.bint:
    """Whether bytes.decode("utf-8") takes these bytes: no surrogates, nothing overlong, nothing above U+10FFFF."""
    at: cython.Py_ssize_t = 0
    size: cython.int
    while at < length:
        # eight bytes of ASCII in one step
        if (
            length - at >= 8
            and (
                place[at]
                | place[at + 1]
                | place[at + 2]
                | place[at + 3]
                | place[at + 4]
                | place[at + 5]
                | place[at + 6]
                | place[at + 7]
            )
            < 0x80
        ):
            at += 8
        elif place[at] < 0x80:
            at += 1
        else:
            size = _character_size(place, at, length - at)
            if size == 0:
                return False
            at += size
    return True


def hash_of(state: cython.int, place: Place, length: cython.Py_ssize_t) -> cython.int:
    """String.hashCode continued from `state` over the UTF-16 units of valid UTF-8, which the caller has looked at."""
    hash_: cython.uint = cython.cast(cython.uint, state)
    at: cython.Py_ssize_t = 0
    first: cython.uint
    point: cython.uint
    while at < length:
        first = place[at]
        # four bytes of ASCII in one step: what they add does not wait for the hash before
        if length - at >= 4 and (first | place[at + 1] | place[at + 2] | place[at + 3]) < 0x80:
            hash_ = hash_ * 923521 + ((first * 31 + place[at + 1]) * 961 + (place[at + 2] * 31 + place[at + 3]))
            at += 4
        elif first < 0x80:
            hash_ = hash_ * 31 + first
            at += 1
        elif first < 0xE0:
            hash_ = hash_ * 31 + ((first & 0x1F) << 6 | (place[at + 1] & 0x3F))
            at += 2
        elif first < 0xF0:
            hash_ = hash_ * 31 + ((first & 0xF) << 12 | (place[at + 1] & 0x3F) << 6 | (place[at + 2] & 0x3F))
            at += 3
        else:
            point = (first & 7) << 18 | (place[at + 1] & 0x3F) << 12
            point = (point | (place[at + 2] & 0x3F) << 6 | (place[at + 3] & 0x3F)) - 0x10000
            hash_ = (hash_ * 31 + (0xD800 | point >> 10)) * 31 + (0xDC00 | (point & 0x3FF))
            at += 4
    if cython.compiled:
        return cython.cast(cython.int, hash_)
    return (hash_ + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def topic_hash_of(seed: cython.ulonglong, place: Place, length: cython.Py_ssize_t) -> cython.ulonglong:
    """Where the search for a topic begins in the table of topics, which takes the low bits."""
    state: cython.ulonglong = seed ^ cython.cast(cython.ulonglong, length)
    word: cython.ulonglong
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    while at < length:
        end = min(at + 8, length)
        word = 0
        while at < end:
            word = word << 8 | place[at]
            at += 1
        state = (state ^ word) * _MULTIPLIER & _ALL_BITS
        state ^= state >> 32
    return state


def is_utf8(data: Bytes) -> bool:
    """Whether all of `data` is UTF-8."""
    length: cython.Py_ssize_t = len(data)
    if length == 0:
        return True
    if cython.compiled:
        return is_utf8_of(cython.address(data[0]), length)
    return is_utf8_of(bytes(data), length)


def java_hash(state: cython.int, data: Bytes) -> int:
    """String.hashCode continued from `state` over UTF-8; ValueError for anything else."""
    length: cython.Py_ssize_t = len(data)
    if not is_utf8(data):
        raise ValueError("no UTF-8")
    if length == 0:
        return state
    if cython.compiled:
        return hash_of(state, cython.address(data[0]), length)
    return hash_of(state, bytes(data), length)


def topic_hash(seed: cython.longlong, data: Bytes) -> int:
    """Where the search for a topic begins: `topic_hash_of` all of `data`."""
    length: cython.Py_ssize_t = len(data)
    if length == 0:
        return seed
    if cython.compiled:
        return topic_hash_of(cython.cast(cython.ulonglong, seed), cython.address(data[0]), length)
    return topic_hash_of(seed, bytes(data), length)
