"""The compiled form of `run_units.by_queue_plain`. Importing this module imports numba."""

from __future__ import annotations

from typing import Any

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.store.compiled.compiling import kernel
from rmqctl.store.compiled.kernel_memory import swapped

# places of the fields in a unit, in words of 32 bits
_OFFSET, _SIZE, _TAGS = (CONSUMEQUEUE_UNIT.offset(name) // 4 for name in ("physical_offset", "size", "tags_code"))


def make_kernels(stamp: int) -> tuple[Any, Any]:
    """`count_units` and `place_units`; see `compiling.load_kernels`. Both return `stamp`."""

    @kernel
    def count_units(topic_ids: Any, queue_ids: Any, taken: Any, queues: int, counts: Any) -> int:
        """Add to `counts` how many rows are taken for each pair of a topic and one of `queues` queue ids."""
        for row in range(len(taken)):
            if taken[row]:
                counts[topic_ids[row] * queues + queue_ids[row]] += 1
        return stamp

    @kernel
    def place_units(
        topic_ids: Any, queue_ids: Any, slots: Any, physical_offsets: Any, sizes: Any, tags_codes: Any, taken: Any,
        queues: int, places: Any, placed_slots: Any, words: Any,
    ) -> int:  # fmt: skip
        """Write the units that are taken, each at the next place of its queue: `placed_slots` and, as rows of 32-bit
        words, their bytes."""
        for row in range(len(taken)):
            if taken[row]:
                code = topic_ids[row] * queues + queue_ids[row]
                at = places[code]
                places[code] = at + 1
                placed_slots[at] = slots[row]
                words[at, _OFFSET] = swapped(physical_offsets[row] >> 32)
                words[at, _OFFSET + 1] = swapped(physical_offsets[row])
                words[at, _SIZE] = swapped(sizes[row])
                words[at, _TAGS] = swapped(tags_codes[row] >> 32)
                words[at, _TAGS + 1] = swapped(tags_codes[row])
        return stamp

    return count_units, place_units
