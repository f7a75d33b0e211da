"""The chains of an index file: which entry each new one leads on to. Compiled where that is possible."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from store.columns.batch import Int32s
from store.columns.engine import engine

Link = Callable[[Int32s, int, Int32s, int, Int32s], int]


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


def link() -> Link:
    """The fastest `link_plain` there is. Loads numba if it is used at all: ask when bulk work begins."""
    return link_plain if engine().walk_window is None else _load()


@functools.cache
def _load() -> Link:
    try:
        from store.columns import compiling
        from store.mend.kernel_index import link_compiled

        compiled: Link
        for compiled in (link_compiled, compiling.uncached(link_compiled)):
            if _is_right(compiled):
                return compiled
    except Exception:  # noqa: BLE001 - numba and LLVM raise anything; the plain form does the same work
        return link_plain
    return link_plain


def _is_right(compiled: Link) -> bool:
    """Whether it does what the plain form does, tried on a few entries; False if it cannot be run."""
    hashes = np.array([3, 8, -2, 13, 3, 5], np.int32)
    results = []
    for function in (compiled, link_plain):
        table, previous = np.zeros(5, np.int32), np.zeros(6, np.int32)
        try:
            results.append((function(hashes, 5, table, 7, previous), table.tolist(), previous.tolist()))
        except Exception:  # noqa: BLE001 - a damaged cache, a full disk: anything
            return False
    return results[0] == results[1]
