"""The compiled forms of `index_entries.link_plain` and `pack_plain`. Importing this module imports numba."""

from __future__ import annotations

from typing import Any

from rmqctl.formats.layouts import INDEX_ENTRY
from rmqctl.store.compiled.compiling import kernel
from rmqctl.store.compiled.kernel_memory import swapped
from rmqctl.store.log.implied import LARGEST_DIFFERENCE

# places of the fields in an entry, in words of 32 bits
_HASH, _OFFSET, _TIME, _PREVIOUS = (INDEX_ENTRY.offset(name) // 4 for name, *_ in INDEX_ENTRY.fields)
_LARGEST_DIFFERENCE = LARGEST_DIFFERENCE


def make_kernels(stamp: int) -> tuple[Any, Any]:
    """`link_compiled` and `pack_compiled`; see `compiling.load_kernels`."""

    @kernel
    def link_compiled(hashes: Any, slots: int, table: Any, number: int, previous: Any) -> int:
        """See `index_entries.link_plain`."""
        used = 0
        for at in range(len(hashes)):
            slot = hashes[at] % slots
            before = table[slot]
            previous[at] = before
            if before == 0:
                used += 1
            table[slot] = number + at
        return used if stamp else 0

    @kernel
    def pack_compiled(hashes: Any, offsets: Any, timestamps: Any, first: int, previous: Any, words: Any) -> int:
        """See `index_entries.pack_plain`."""
        for at in range(len(hashes)):
            seconds = 0
            if first > 0 and timestamps[at] > first:
                seconds = min((timestamps[at] - first) // 1000, _LARGEST_DIFFERENCE)
            words[at, _HASH] = swapped(hashes[at])
            words[at, _OFFSET] = swapped(offsets[at] >> 32)
            words[at, _OFFSET + 1] = swapped(offsets[at])
            words[at, _TIME] = swapped(seconds)
            words[at, _PREVIOUS] = swapped(previous[at])
        return stamp

    return link_compiled, pack_compiled
