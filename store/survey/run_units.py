"""The units that the messages of a run imply, brought together by queue. Compiled where that is possible."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.store.columns.batch import Flags, Int32s, Int64s
from rmqctl.store.compiled.tried import Kernels, loaded_once, tried_kernels
from rmqctl.store.queues.consumequeue import ConsumeQueue

Units = NDArray[np.void]
UNIT = CONSUMEQUEUE_UNIT.dtype()
"""A unit of 20 bytes as it stands in a queue file."""
# numpy brings fields into the machine's byte order when it moves them: it must not see any
_OPAQUE = np.dtype((np.void, UNIT.itemsize))
# beyond so many pairs of a topic and a queue id numpy sorts them
_MOST_CODES = 1 << 16


def read_units(queue: ConsumeQueue, begin: int, count: int) -> Units:
    """What stands in `count` slots of a queue from `begin` on; zeros where there is no file or it is short."""
    pieces: list[bytes] = []
    position, end = begin * UNIT.itemsize, (begin + count) * UNIT.itemsize
    for file in queue.files.files:
        if file.end_offset <= position:
            continue
        if position >= end or file.start_offset >= end:
            break
        if file.start_offset > position:
            pieces.append(bytes(file.start_offset - position))
            position = file.start_offset
        length = min(end, file.end_offset) - position
        pieces.append(file.read(position - file.start_offset, length).ljust(length, b"\0"))
        position += length
    pieces.append(bytes(end - position))
    return np.frombuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces), UNIT)


def joined_units(parts: Sequence[Units]) -> Units:
    """One behind the other, at least one part."""
    return np.concatenate([part.view(_OPAQUE) for part in parts]).view(UNIT)


class UnitColumns(NamedTuple):
    """What the units of some messages are made of, a row each. `taken`: the rows that have one."""

    topic_ids: Int32s
    queue_ids: Int32s
    slots: Int64s
    physical_offsets: Int64s
    sizes: Int32s
    tags_codes: Int64s
    taken: Flags


class QueueUnits(NamedTuple):
    """Units of one queue in the order of the messages. `rows`: the places of these, ascending, where they matter."""

    topic_id: int
    queue_id: int
    slots: Int64s
    units: Units
    rows: Int64s | None


def units_by_queue(parts: Sequence[UnitColumns], with_rows: bool) -> Iterator[QueueUnits]:
    """The units of all parts by topic and queue, in ascending order of their numbers; queue ids are not negative."""
    if not parts:
        return
    compiled = None if with_rows else unit_kernels()
    highest = max(int(part.queue_ids[part.taken].max(initial=0)) for part in parts)
    topics = max(int(part.topic_ids.max(initial=0)) for part in parts) + 1
    if compiled is None or topics * (highest + 1) > _MOST_CODES:
        yield from by_queue_plain(parts, with_rows)
    else:
        yield from _by_queue_compiled(compiled, parts, topics, highest + 1)


def by_queue_plain(parts: Sequence[UnitColumns], with_rows: bool) -> Iterator[QueueUnits]:
    """The plain form of `units_by_queue`: numpy sorts."""
    taken = np.concatenate([part.taken for part in parts])
    topics, queue_ids, slots = (np.concatenate([part[at] for part in parts])[taken] for at in range(3))
    if not len(topics):
        return
    fields = np.empty(len(taken), UNIT)
    for name, at in (("physical_offset", 3), ("size", 4), ("tags_code", 5)):
        fields[name] = np.concatenate([part[at] for part in parts])
    codes = topics.astype(np.int64) * (int(queue_ids.max()) + 1) + queue_ids
    # numpy sorts 16-bit numbers in one pass
    order = np.argsort(codes.astype(np.uint16) if int(codes.max()) <= 0xFFFF else codes, kind="stable")
    codes = codes[order]
    edges = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(codes)]
    slots, units = slots[order], fields.view(_OPAQUE)[taken][order].view(UNIT)
    rows = np.flatnonzero(taken)[order] if with_rows else None
    for begin, end in itertools.pairwise(edges):
        first = int(order[begin])
        yield QueueUnits(
            int(topics[first]),
            int(queue_ids[first]),
            slots[begin:end],
            units[begin:end],
            None if rows is None else rows[begin:end],
        )


def _by_queue_compiled(
    compiled: Kernels, parts: Sequence[UnitColumns], topics: int, queues: int
) -> Iterator[QueueUnits]:
    count_units, place_units = compiled
    counts = np.zeros(topics * queues, np.int64)
    for part in parts:
        count_units(part.topic_ids, part.queue_ids, part.taken, queues, counts)
    ends = np.cumsum(counts)
    places = ends - counts
    slots = np.empty(int(ends[-1]), np.int64)
    units = np.empty(int(ends[-1]), UNIT)
    words = units.view(np.uint32).reshape(-1, UNIT.itemsize // 4)
    for part in parts:
        place_units(*part, queues, places, slots, words)
    for code in np.flatnonzero(counts).tolist():
        begin, end = int(ends[code] - counts[code]), int(ends[code])
        yield QueueUnits(code // queues, code % queues, slots[begin:end], units[begin:end], None)


@loaded_once
def unit_kernels() -> Kernels | None:
    """The compiled ones, None where nothing is compiled."""
    return tried_kernels("rmqctl.store.survey.kernel_run_units", _is_right)


def _is_right(tried: Kernels) -> bool:
    """Whether they do what the plain form does, tried on a few rows."""
    rows = np.arange(7)
    part = UnitColumns(
        (rows % 2).astype(np.int32), (rows % 3).astype(np.int32), rows << 33, (rows << 40) + 5,
        (rows * 99991).astype(np.int32), rows - (3 << 40), rows != 2,
    )  # fmt: skip
    found = _by_queue_compiled(tried, [part, part], 2, 3)
    return _as_lists(found) == _as_lists(by_queue_plain([part, part], False))


def _as_lists(found: Iterator[QueueUnits]) -> list[object]:
    """Something that can be compared."""
    return [(one.topic_id, one.queue_id, one.slots.tolist(), one.units.tobytes()) for one in found]
