"""Units of consume queues and entries of the key index as columns, and how these are divided among tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, INDEX_ENTRY
from rmqctl.store.index.index_file import IndexFile
from rmqctl.store.queues.batch_consumequeue import BatchConsumeQueue
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.queues.unit import PLACEHOLDER_SIZE
from rmqctl.store.scan.arrays import number_array
from rmqctl.store.store_files import StoreFiles

UNITS = 4_000_000
"""Slots that one task reads, at most."""

_CHUNK_UNITS = 1 << 16
_UNIT = CONSUMEQUEUE_UNIT.dtype()
_CHUNK_ENTRIES = 1 << 16
_ENTRY = INDEX_ENTRY.dtype()
_SECOND = 1000


class QueueRange(NamedTuple):
    """The slots [begin, end) of a queue; all units of a batch queue, whatever they say."""

    topic: str
    queue_id: int
    begin: int
    end: int


def queue_parts(files: StoreFiles, most: int = UNITS) -> list[list[QueueRange]]:
    """All queues in parts of about `most` slots, by topic and queue. UnsupportedError for RocksDB queues.

    Goes by the lengths of files, so that no queue is read.
    """
    parts: list[list[QueueRange]] = []
    room = 0
    for queue in files.queues.all():
        for one in _ranges(queue, most):
            slots = one.end - one.begin
            if slots > room:
                parts.append([])
                room = most
            parts[-1].append(one)
            room -= slots
    return parts


def _ranges(queue: AnyConsumeQueue, most: int) -> Iterator[QueueRange]:
    if isinstance(queue, BatchConsumeQueue):
        yield QueueRange(queue.topic, queue.queue_id, 0, min(most, sum(file.size for file in queue.files.files)))
        return
    if not queue.files.files:
        return
    last = queue.files.files[-1]
    end = (last.start_offset + last.size) // CONSUMEQUEUE_UNIT.size
    for begin in range(queue.first_slot, end, most):
        yield QueueRange(queue.topic, queue.queue_id, begin, min(end, begin + most))


def unit_columns(files: StoreFiles, part: list[QueueRange]) -> Iterator[Mapping[str, pa.Array]]:
    """The written units of a part; the columns of the view `consumequeue`."""
    minimum = max(files.log.min_offset, 0)
    for one in part:
        queue = files.queues.find(one.topic, one.queue_id)
        if isinstance(queue, ConsumeQueue):
            yield from _plain_units(queue, one, minimum)
        elif queue is not None:
            yield _batch_units(queue, minimum)


def _plain_units(queue: ConsumeQueue, one: QueueRange, minimum: int) -> Iterator[Mapping[str, pa.Array]]:
    for slot, data in queue.unit_bytes(one.begin, one.end, _CHUNK_UNITS):
        units = np.frombuffer(data, _UNIT)
        offsets, sizes = units["physical_offset"], units["size"]
        written = np.flatnonzero((offsets >= 0) & (sizes > 0) & (sizes < PLACEHOLDER_SIZE))
        if not len(written):
            continue
        offsets = offsets[written].astype(np.int64)
        yield {
            **_names(queue, len(written)),
            "queue_offset": number_array(slot + written, pa.int64()),
            "physical_offset": number_array(offsets, pa.int64()),
            "size": number_array(sizes[written].astype(np.int32), pa.int32()),
            "tags_code": number_array(units["tags_code"][written].astype(np.int64), pa.int64()),
            "batch_size": number_array(np.ones(len(written), np.int32), pa.int32()),
            "store_timestamp": pa.nulls(len(written), pa.timestamp("ms", "UTC")),
            "is_expired": pa.array(offsets < minimum),
        }


def _batch_units(queue: BatchConsumeQueue, minimum: int) -> Mapping[str, pa.Array]:
    units = list(queue.units(0))
    return {
        **_names(queue, len(units)),
        "queue_offset": pa.array([unit.queue_offset for unit in units], pa.int64()),
        "physical_offset": pa.array([unit.physical_offset for unit in units], pa.int64()),
        "size": pa.array([unit.size for unit in units], pa.int32()),
        "tags_code": pa.array([unit.tags_code for unit in units], pa.int64()),
        "batch_size": pa.array([unit.batch_size for unit in units], pa.int32()),
        "store_timestamp": pa.array([unit.store_timestamp for unit in units], pa.timestamp("ms", "UTC")),
        "is_expired": pa.array([unit.physical_offset < minimum for unit in units], pa.bool_()),
    }


def _names(queue: AnyConsumeQueue, rows: int) -> dict[str, pa.Array]:
    return {
        "topic": pa.repeat(queue.topic, rows),
        "queue_id": pa.repeat(pa.scalar(queue.queue_id, pa.int32()), rows),
        "kind": pa.repeat(queue.kind, rows),
    }


class QueueSums(NamedTuple):
    """`messages` that units lead to and the `bytes` of these, as the units say."""

    messages: int
    bytes: int


def queue_sums(queue: AnyConsumeQueue, minimum: int) -> QueueSums:
    """Counted from the first unit whose message is still in the log, which begins at physical offset `minimum`."""
    first = queue.min_offset(minimum)
    if isinstance(queue, BatchConsumeQueue):
        units = list(queue.units(first))
        return QueueSums(sum(unit.batch_size for unit in units), sum(unit.size for unit in units))
    messages = size = 0
    for columns in _plain_units(queue, QueueRange(queue.topic, queue.queue_id, first, queue.max_offset), minimum):
        messages += len(columns["size"])
        size += int(columns["size"].to_numpy().sum(dtype=np.int64))
    return QueueSums(messages, size)


def index_parts(files: StoreFiles) -> list[str]:
    """Names of the index files; what cannot be an index file is left out."""
    return [file.path.name for file in files.index.files]


def entry_columns(files: StoreFiles, name: str) -> Iterator[Mapping[str, pa.Array]]:
    """The entries of one file, as many as it has; the columns of the view `index_entries`."""
    for file in files.index.files:
        if file.path.name == name:
            yield from _entries(file)


def _entries(file: IndexFile) -> Iterator[Mapping[str, pa.Array]]:
    number = 1
    while number < file.header.index_count:
        data = file.read_entries(number, min(_CHUNK_ENTRIES, file.header.index_count - number))
        entries = np.frombuffer(data[: len(data) - len(data) % INDEX_ENTRY.size], _ENTRY)
        rows = len(entries)
        if not rows:
            return  # the file is cut short
        hashes = entries["key_hash"].astype(np.int32)
        begin = np.int64(file.header.begin_timestamp)
        with np.errstate(over="ignore"):
            times = begin + entries["time_difference"].astype(np.int64) * _SECOND
        yield {
            "file": pa.repeat(file.path.name, rows),
            "entry": number_array(np.arange(number, number + rows, dtype=np.int32), pa.int32()),
            "key_hash": number_array(hashes, pa.int32()),
            "slot": number_array((hashes % file.geometry.slots).astype(np.int32), pa.int32()),
            "physical_offset": number_array(entries["physical_offset"].astype(np.int64), pa.int64()),
            "store_timestamp": number_array(times, pa.timestamp("ms", "UTC")),
            "previous_entry": number_array(entries["previous_entry"].astype(np.int32), pa.int32()),
        }
        number += rows
