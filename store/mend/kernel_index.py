"""The compiled forms of `index_entries.link_plain` and `pack_plain`. Importing this module imports numba."""

from __future__ import annotations

from typing import Any

from formats.layouts import INDEX_ENTRY
from store.columns.compiling import kernel
from store.columns.kernel_words import swapped
from store.mend import index_entries

# Places of the fields in an entry, in words of 32 bits. Numbers, not names: numba's cache would not notice that an
# imported constant changed.
_HASH, _OFFSET, _TIME, _PREVIOUS = 0, 1, 3, 4
_LARGEST_DIFFERENCE = 0x7FFFFFFF
assert [INDEX_ENTRY.offset(name) for name, *_ in INDEX_ENTRY.fields] == [0, 4, 12, 16]
assert index_entries.LARGEST_DIFFERENCE == _LARGEST_DIFFERENCE


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
    return used


@kernel
def pack_compiled(hashes: Any, offsets: Any, timestamps: Any, first: int, previous: Any, words: Any) -> None:
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
