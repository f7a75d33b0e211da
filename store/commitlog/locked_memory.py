"""Keeping a map in memory: none of its pages is swapped out (mlock2)."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource

# mlock2(2), Linux 4.4: pages are locked as they come into memory, so that a large map takes no more than is used
_ON_FAULT = 1


def lock_memory(mapped: mmap.mmap) -> str | None:
    """Lock the pages of a map in memory, those to come as they come, until it is unmapped. Return None, or why that
    cannot be."""
    try:
        mlock2 = ctypes.CDLL(None, use_errno=True).mlock2
    except AttributeError:
        return "this C library has no mlock2"
    mlock2.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)
    first = ctypes.c_char.from_buffer(mapped)
    try:
        failed = mlock2(ctypes.addressof(first), len(mapped), _ON_FAULT)
    finally:
        del first  # while it lives the map cannot be closed
    return os.strerror(ctypes.get_errno()) if failed else None


def unlocked_sentence(what: str, size: int, reason: str) -> str:
    """Return what to say of memory of `size` bytes that `lock_memory` could not lock."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    allowed = "unlimited" if limit == resource.RLIM_INFINITY else f"{limit} bytes"
    return (
        f"{what} ({size} bytes) is not locked in memory and may be swapped out: {reason}; RLIMIT_MEMLOCK is {allowed} "
        "(`ulimit -l unlimited` before the start raises it)"
    )
