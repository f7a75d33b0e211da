"""Tiered storage against its table, itself, the queues of the store and the commitlog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, counted
from rmqctl.formats.layouts import LOCAL_TIERED_INDEX_ITEM, LOCAL_TIERED_INDEX_SLOT, TIERED_INDEX_HEADER
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.cross import LogSeen
from rmqctl.store.check.rocksdb import are_queues_readable
from rmqctl.store.config.tiered_table import TABLE, queue_offsets
from rmqctl.store.files.reading import is_directory
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.queues.consumequeue import sparse_units
from rmqctl.store.read.compacted import CompactedQueue, compacted_queues
from rmqctl.store.read.tiered import Segment, TieredQueue, TieredStorage, has_segments, tiered_folder, tiered_storage
from rmqctl.store.read.tiered_index import LocalIndex, index_problems, local_indexes
from rmqctl.store.store_files import StoreFiles


def tiered_findings(files: StoreFiles, seen: LogSeen, events: Events = UNHEARD) -> Iterator[Finding]:
    """Yield what is wrong with the copies in tiered storage, where its folder is known. `progress` gets the bytes of
    messages. UnreadableError."""
    try:
        storage = tiered_storage(files, UNHEARD)
    except NotFoundError:
        return
    if not is_directory(storage.folder):
        if any(any(sizes.values()) for sizes in (storage.table or {}).values()):
            yield Finding("RMQ-TIER-001", "the folder of tieredStoreFilePath is not there", storage.folder)
        return
    has_table = storage.table is not None
    if not has_table and has_segments(storage.folder):
        text = f"no {TABLE} names the segments below {storage.folder}"
        yield Finding("RMQ-TIER-006", text, files.layout.config / TABLE)
    try:
        copies = storage.queues()
    except CorruptError:  # of several brokers, and no table says which
        return
    for copy in copies:
        yield from _of_copy(copy, events, has_table=has_table, is_live=seen.is_live)
    if has_table and not seen.is_live:
        yield from _of_table(files, copies)
    if not seen.is_live:
        yield from _of_index(storage)


def copied_bytes(files: StoreFiles) -> int:
    """Return the bytes of messages in compaction logs and tiered storage, which a check reads besides the commitlog; 0
    where they cannot be listed."""
    try:
        copies = [CompactedQueue(files, *place) for place in compacted_queues(files.layout)]
        size = sum(
            max(unit.size, 0) for one in copies for name in one.names for unit in sparse_units(one.queues / name)
        )
        if tiered_folder(files) is not None:
            size += sum(one.length or 0 for copy in tiered_storage(files, UNHEARD).queues() for one in copy.logs)
    except RmqctlError:
        return 0
    return size


def _finding(copy: TieredQueue, code: str, text: str, path: Path, **more: Any) -> Finding:
    return Finding(code, text, path, topic=copy.topic, queue_id=copy.queue_id, **more)


def _of_copy(copy: TieredQueue, events: Events, *, has_table: bool, is_live: bool) -> Iterator[Finding]:
    for segments in (copy.logs, copy.units):
        for problem, segment in _of_segments(segments, has_table=has_table):
            code = "RMQ-TIER-001" if problem else "RMQ-TIER-004"
            yield _finding(copy, code, problem or "the table does not know it", segment.path)
    end = copy.logs[0].base if copy.logs else 0
    for one in copy.messages(copy.min_offset, copy.max_offset):
        stored = copy.in_store(one.queue_offset)
        if one.message is None:
            where = "the store has it" if stored is not None else "the store does not have it"
            text = f"message {one.queue_offset}: {one.problem}; {where}"
            yield _finding(copy, "RMQ-TIER-002", text, copy.folder, messages=1, data_lost=stored is None)
            continue
        assert one.frame is not None
        events.passed(len(one.frame))
        end = max(end, one.place + len(one.frame))
        if stored is not None and stored.at(one.place) != one.frame:
            text = f"message {one.queue_offset} is another one in the store"
            yield _finding(copy, "RMQ-TIER-003", text, copy.folder, messages=1)
    if copy.logs and copy.logs[-1].end > end and not is_live:
        text = f"{counted(copy.logs[-1].end - end, 'byte')} at its end belong to no unit"
        yield _finding(copy, "RMQ-TIER-004", text, copy.logs[-1].path, bytes=copy.logs[-1].end - end)
    begin = copy.begin_of_store() if are_queues_readable(copy.files) else None
    if begin is not None and copy.max_offset < begin:
        text = f"the copy ends at queue offset {copy.max_offset}, the store begins at {begin}"
        yield _finding(copy, "RMQ-TIER-005", text, copy.folder, messages=begin - copy.max_offset)


def _of_segments(segments: list[Segment], *, has_table: bool) -> Iterator[tuple[str, Segment]]:
    """Yield segments that do not fit with what is wrong, and those that a table does not know with no text."""
    for place, one in enumerate(segments):
        following = segments[place + 1] if place + 1 < len(segments) else None
        if one.length is None:
            if one.said:
                yield f"the table says that it has {counted(one.said, 'byte')}, and it is not there", one
        elif has_table and one.said is None:
            yield "", one
        # the last one may be longer than the table says: a broker takes what it has
        elif one.said is not None and (one.length < one.said or (following and one.length > one.said)):
            yield f"the table says that it has {counted(one.said, 'byte')}, and it has {one.length}", one
        if following is not None and one.length is not None and one.end != following.base:
            yield f"it ends at {one.end}, and the next one begins at {following.base}", one


def _of_table(files: StoreFiles, copies: list[TieredQueue]) -> Iterator[Finding]:
    """Yield queues that the table does not name although it names their segments, and offsets that cannot be."""
    path = files.layout.config / TABLE
    known = queue_offsets(files.layout.config) or {}
    for copy in copies:
        first, end = copy.min_offset, copy.max_offset
        offsets = known.get((copy.topic, copy.queue_id))
        if offsets is None:
            if end > first and any(one.said for one in copy.units):
                yield _finding(copy, "RMQ-TIER-008", "the table has its segments, not the queue", path)
            continue
        low, high = offsets
        if high > end or low > first or not -1 <= low <= high:
            text = f"the table says queue offsets {low} to {high}, its segments have {first} to {end}"
            yield _finding(copy, "RMQ-TIER-008", text, path, expected=end, found=high)
        yield from _beyond_store(files, copy)


def _beyond_store(files: StoreFiles, copy: TieredQueue) -> Iterator[Finding]:
    """Yield a copy that ends beyond the store's queue. After a crash the queue may be short until it is recovered."""
    is_known = are_queues_readable(files) and not files.has_abort()
    queue = files.queues.find(copy.topic, copy.queue_id) if is_known else None
    end = None if queue is None else queue.max_offset
    if end is not None and copy.max_offset > end:
        text = f"the copy ends at queue offset {copy.max_offset}, the store's queue at {end}"
        yield _finding(copy, "RMQ-TIER-009", text, copy.folder, expected=end, found=copy.max_offset)


def _of_index(storage: TieredStorage) -> Iterator[Finding]:
    for path, text in index_problems(storage):
        yield Finding("RMQ-TIER-007", text, path)
    for index in local_indexes(storage.files, UNHEARD):
        for text in _of_local_index(storage.files, index):
            yield Finding("RMQ-TIER-007", text, index.path)


_ITEMS_AT_ONCE = 1 << 16
_MOST_SLOTS = 1 << 25  # which take 128 MiB


def _of_local_index(files: StoreFiles, index: LocalIndex) -> Iterator[str]:
    """Yield what is wrong with slots and chains of a file of the index in the store: the hashes of its items say all of
    both."""
    if index.begin != int(index.path.name):
        yield f"its head says that it was begun at {index.begin}"
    if not 0 < index.slots <= _MOST_SLOTS:
        return
    newest = np.zeros(index.slots, np.int32)
    wrong = 0
    for first in range(1, index.items + 1, _ITEMS_AT_ONCE):
        size = min(_ITEMS_AT_ONCE, index.items + 1 - first) * LOCAL_TIERED_INDEX_ITEM.size
        data = files.descriptors.read(index.path, index.item_at(first), size).ljust(size, b"\0")
        fields = np.frombuffer(data, ">i4").reshape(-1, LOCAL_TIERED_INDEX_ITEM.size // 4)
        wrong += _link(fields[:, 0].astype(np.int64) % index.slots, fields[:, -1].astype(np.int32), first, newest)
    width = LOCAL_TIERED_INDEX_SLOT.size
    for first in range(0, index.slots, _ITEMS_AT_ONCE):
        wanted = newest[first : first + _ITEMS_AT_ONCE]
        size = len(wanted) * width
        data = files.descriptors.read(index.path, TIERED_INDEX_HEADER.size + first * width, size).ljust(size, b"\0")
        wrong += int(np.count_nonzero(wanted != np.frombuffer(data, ">i4")[::2]))
    if wrong:
        yield f"{wrong} of its slots and items do not lead where the hashes of items say"
    in_use = np.count_nonzero(newest)
    if index.used != in_use:
        yield f"its head says {counted(index.used, 'slot')} in use, and it has {in_use}"


def _link(
    slots: np.ndarray[Any, np.dtype[np.int64]],
    previous: np.ndarray[Any, np.dtype[np.int32]],
    first: int,
    newest: np.ndarray[Any, np.dtype[np.int32]],
) -> int:
    """Count the items, numbered from `first` on, that do not lead to the one before them of their slot. `newest` is the
    last item of each slot, and is brought forward."""
    numbers = np.arange(first, first + len(slots), dtype=np.int32)
    order = np.argsort(slots, kind="stable")
    wanted = newest[slots]
    is_same = slots[order[1:]] == slots[order[:-1]]
    wanted[order[1:][is_same]] = numbers[order[:-1][is_same]]
    newest[slots] = numbers
    return int(np.count_nonzero(wanted != previous))
