"""The entries of an index file, many at once: which entry each leads on to, and its bytes. Compiled where possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.layouts import INDEX_ENTRY
from rmqctl.store.columns.batch import Int32s, Int64s
from rmqctl.store.compiled.tried import loaded_once, tried_kernels

ENTRY = INDEX_ENTRY.dtype()
LARGEST_DIFFERENCE = 0x7FFFFFFF
_SECOND = 1000

Link = Callable[[Int32s, int, Int32s, int, Int32s], int]
Pack = Callable[[Int32s, Int64s, Int64s, int, Int32s, NDArray[np.uint32]], object]


class IndexKernels(NamedTuple):
    """`link`: see link_plain. `pack`: see pack_plain."""

    link: Link
    pack: Pack


def link_plain(hashes: Int32s, slots: int, table: Int32s, number: int, previous: Int32s) -> int:
    """Put entries `number`, `number` + 1, … with these hashes; returns how many slots they are the first of.

    `table` has the newest entry of each of the `slots`, 0 for none, and is brought up to date. `previous` is filled
    with the entry that was the newest of the slot before each one. (IndexFile#putKey)
    """
    used = 0
    newest = table.data
    for at, hashed in enumerate(hashes.tolist()):
        slot = hashed % slots
        before = newest[slot]
        previous[at] = before
        used += before == 0
        newest[slot] = number + at
    return used


def pack_plain(
    hashes: Int32s, offsets: Int64s, timestamps: Int64s, first: int, previous: Int32s, words: NDArray[np.uint32]
) -> None:
    """Fill `words`, the entries' bytes as one row of 32-bit words each. `first`: the time of the file's first entry."""
    entries = words.view(ENTRY)[:, 0]
    entries["key_hash"] = hashes
    entries["physical_offset"] = offsets
    entries["time_difference"] = time_differences(timestamps, first)
    entries["previous_entry"] = previous


def time_differences(timestamps: Int64s, first: int) -> Int64s:
    """What entries of these times hold in a file whose first entry has the time `first`, all in ms: the whole seconds
    between, as far as the field can say. A damaged time may be anything. (IndexFile#putKey)"""
    if first <= 0:
        return np.zeros(len(timestamps), np.int64)
    later = np.maximum(timestamps, first) - first
    differences: Int64s = np.minimum(later // _SECOND, LARGEST_DIFFERENCE)
    return differences


def new_words(count: int) -> NDArray[np.uint32]:
    """Room for the bytes of that many entries, for `pack`."""
    return np.empty((count, ENTRY.itemsize // 4), np.uint32)


_PLAIN = IndexKernels(link_plain, pack_plain)


def kernels() -> IndexKernels:
    """The fastest there are. Loads numba if it is used at all: ask when bulk work begins."""
    return _load()


@loaded_once
def _load() -> IndexKernels:
    found = tried_kernels("rmqctl.store.survey.kernel_index", lambda tried: _is_right(IndexKernels(*tried)))
    return _PLAIN if found is None else IndexKernels(*found)


def _is_right(compiled: IndexKernels) -> bool:
    """Whether they do what the plain ones do, tried on a few entries."""
    hashes = np.array([3, 8, -2, 13, 3, 5], np.int32)
    offsets = np.arange(6, dtype=np.int64) << 30
    timestamps = np.array([5, 6000, -1, 1 << 62, 3, 7005], np.int64)
    results = []
    for link, pack in (compiled, _PLAIN):
        table, previous, words = np.zeros(5, np.int32), np.zeros(6, np.int32), np.zeros_like(new_words(6))
        used = link(hashes, 5, table, 7, previous)
        pack(hashes, offsets, timestamps, 5, previous, words)
        results.append((used, table.tolist(), previous.tolist(), words.tolist()))
    return results[0] == results[1]
