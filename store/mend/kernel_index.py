"""The compiled form of `index_link.link_plain`. Importing this module imports numba."""

from __future__ import annotations

from typing import Any

from store.columns.compiling import kernel


@kernel
def link_compiled(hashes: Any, slots: int, table: Any, number: int, previous: Any) -> int:
    """See `index_link.link_plain`."""
    used = 0
    for at in range(len(hashes)):
        slot = hashes[at] % slots
        before = table[slot]
        previous[at] = before
        if before == 0:
            used += 1
        table[slot] = number + at
    return used
