"""Appends units to the queues that messages belong to, and keeps few of their files open."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.formats.errors import DiskFullError, WriteFailedError
from rmqctl.formats.layouts import INDEX_SLOT
from rmqctl.store.files import io
from rmqctl.store.files.background import share_of_descriptors
from rmqctl.store.files.layout import topic_directory
from rmqctl.store.files.mapped_file import WritableMap
from rmqctl.store.index.index_file import IndexFile, IndexHeader
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.log.columns import Int32s, Int64s
from rmqctl.store.log.implied import consecutive, packed_entries
from rmqctl.store.native.units import link_entries
from rmqctl.store.options import say
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.consumequeue_ext import ExtAppender, last_ext_offset
from rmqctl.store.queues.dispatch import QueueSlot
from rmqctl.store.queues.queue_table import AnyConsumeQueue, QueueFlusher, QueueTable

if TYPE_CHECKING:
    import numpy

    from rmqctl.store.log.implied import QueueRun

# queues that keep a descriptor for appending
_MAXIMUM_OPEN_QUEUES = 128


class QueueAppender:
    """Where units of new messages go. Used by one thread. Nothing is flushed: `flusher` is notified of what was
    written.

    `has_ext`: units of 20 bytes get ext units (enableConsumeQueueExt), those that `add_with_ext` is given.
    """

    def __init__(
        self, queues: QueueTable, flusher: QueueFlusher, is_batch_topic: Callable[[str], bool], *, has_ext: bool = False
    ) -> None:
        self._queues = queues
        self._flusher = flusher
        self._is_batch_topic = is_batch_topic
        # with ext units each has two
        self._most_open = share_of_descriptors(_MAXIMUM_OPEN_QUEUES) // (2 if has_ext else 1)
        self._open: OrderedDict[tuple[str, int], ConsumeQueue] = OrderedDict()
        self._arrived: set[tuple[str, int]] = set()
        self._has_ext = has_ext
        self._ext: dict[tuple[str, int], ExtAppender] = {}

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether the queues of `topic` have 46-byte units. See log_runs.SlotTarget."""
        return self._is_batch_topic(topic)

    def add(self, slot: QueueSlot) -> None:
        """Append one unit as it is."""
        queue = self._find(slot.topic, slot.queue_id, slot.is_batch, slot.unit.physical_offset)
        queue.append(slot.unit)
        self._wrote(queue, 1)

    def add_with_ext(self, slot: QueueSlot, store_timestamp: int) -> None:
        """The same, after the unit's ext unit if it gets one: none in batch queues and those of multi-dispatch.
        `store_timestamp` (ms): that of the message."""
        if self._has_ext and not slot.is_further and not slot.is_batch:
            queue = self._find(slot.topic, slot.queue_id, False, slot.unit.physical_offset)
            assert isinstance(queue, ConsumeQueue)
            code = self._ext_of(queue).append(slot.unit.tags_code, store_timestamp)
            slot = slot._replace(unit=slot.unit._replace(tags_code=code))
        self.add(slot)

    def add_units(self, run: QueueRun) -> None:
        """Append units of 20 bytes, stretch by stretch of consecutive slots."""
        queue = self._find(run.topic, run.queue_id, False, int(run.units["physical_offset"][0]))
        assert isinstance(queue, ConsumeQueue)
        for begin, end in consecutive(run.slots):
            queue.append_run(int(run.slots[begin]), _bytes_of(run.units[begin:end]))
        self._wrote(queue, len(run.slots))

    def _ext_of(self, queue: ConsumeQueue) -> ExtAppender:
        key = queue.topic, queue.queue_id
        found = self._ext.get(key)
        if found is None:
            directory = topic_directory(self._queues.layout.consumequeue_ext, queue.topic) / str(queue.queue_id)
            size = self._queues.ext_file_size()
            found = self._ext[key] = ExtAppender(
                directory, size, self._queues.descriptors, last_ext_offset(queue), self._flusher.wrote, say
            )
        return found

    def _find(self, topic: str, queue_id: int, is_batch: bool, physical_offset: int) -> AnyConsumeQueue:
        queue = self._queues.find_or_create(topic, queue_id, is_batch)
        if is_batch != (queue.kind == "BatchCQ"):
            raise WriteFailedError(
                f"a message for a {'batch' if is_batch else 'simple'} queue, but the queue is {queue.kind}",
                file=queue.directory,
                physical_offset=physical_offset,
            )
        return queue

    def _wrote(self, queue: AnyConsumeQueue, units: int) -> None:
        # a file that a run leaves behind was flushed then
        self._flusher.wrote(queue.files.files[-1].path, units)
        self._arrived.add((queue.topic, queue.queue_id))
        if isinstance(queue, ConsumeQueue):
            key = queue.topic, queue.queue_id
            self._open[key] = queue
            self._open.move_to_end(key)
            if len(self._open) > self._most_open:
                self._release(self._open.popitem(last=False)[1])

    def take_arrived(self) -> set[tuple[str, int]]:
        """Queues that were appended to since this was asked last."""
        arrived, self._arrived = self._arrived, set()
        return arrived

    def release(self) -> None:
        """Close the descriptors without flushing; for a store that failed."""
        while self._open:
            self._release(self._open.popitem()[1])

    def _release(self, queue: ConsumeQueue) -> None:
        queue.release()
        ext = self._ext.get((queue.topic, queue.queue_id))
        if ext is not None:
            ext.release()


def _bytes_of(units: numpy.ndarray[tuple[int], numpy.dtype[numpy.void]]) -> memoryview:
    import numpy

    return numpy.ascontiguousarray(units).view(numpy.uint8).data


# Puts many index entries at once: the same files as `IndexFile.put` makes one entry after the other.

_SLOT = np.dtype(">i4")
# the first entries for a file are put one by one: its slots are opened where there are more than a few
_FEW = 256
# the slots of a file are not reserved where that would leave less
_KEPT_FREE = 256 * 1024 * 1024


class NewEntries(NamedTuple):
    """Index entries in the order of the log: hash of the key, physical offset and store time (ms) of the message."""

    hashes: Int32s
    offsets: Int64s
    timestamps: Int64s

    def part(self, begin: int, end: int) -> NewEntries:
        """Entries [begin, end)."""
        return NewEntries(self.hashes[begin:end], self.offsets[begin:end], self.timestamps[begin:end])


class _OpenSlots:
    """The slots of one file: a copy as machine integers, and the mapped bytes that follow it."""

    def __init__(self, file: IndexFile) -> None:
        geometry = file.geometry
        begin, end = geometry.slot_position(0), geometry.slot_position(geometry.slots - 1) + INDEX_SLOT.size
        self.file = file
        found = np.frombuffer(file.read_slots(), _SLOT).astype(np.int32)
        found[(found < 0) | (found >= file.header.index_count)] = 0  # no entry's number: see IndexFile.slot
        self.newest: Int32s = found
        self._map = WritableMap(file.path, end, 0)
        try:
            self._map.reserve(end)
        except BaseException:
            self._map.close()
            raise
        self._view = self._map.view(begin, end)

    def set(self, slots: Int64s) -> None:
        """Bring these slots of the file up to date."""
        self._map.will_write(self.file.geometry.slot_position(0), len(slots) * INDEX_SLOT.size)
        bytes_of_slots = np.frombuffer(self._view, _SLOT)
        bytes_of_slots[slots] = self.newest[slots]

    def close(self) -> None:
        """Let go of the map."""
        self._view.release()
        self._map.close()


class IndexBatches:
    """Adds entries to the last file of an index and opens new ones. Used by one thread."""

    def __init__(self, service: IndexService) -> None:
        self._service = service
        self._open: _OpenSlots | None = None
        self._put_singly: tuple[IndexFile | None, int] = (None, 0)

    def put(self, entries: NewEntries) -> int:
        """Add `entries`; the store time of the last one that filled a file, 0 if none did. Not flushed, but full
        files are."""
        full_timestamp = 0
        begin = 0
        while begin < len(entries.hashes):
            file = self._service.open_file(int(entries.timestamps[begin]))
            end = min(len(entries.hashes), begin + file.geometry.entries - file.header.index_count)
            self._put(file, entries.part(begin, end))
            if file.is_full:
                self.close()
                file.close()
                full_timestamp = file.header.end_timestamp
            begin = end
        return full_timestamp

    def _put(self, file: IndexFile, entries: NewEntries) -> None:
        opened = self._opened(file, len(entries.hashes))
        if opened is None:
            for entry in zip(*(column.tolist() for column in entries), strict=True):
                file.put(*entry)
            return
        header = file.header
        is_first = header.index_count <= 1
        begin_timestamp = int(entries.timestamps[0]) if is_first else header.begin_timestamp
        previous: Int32s = np.empty(len(entries.hashes), np.int32)
        used = link_entries(entries.hashes, file.geometry.slots, opened.newest, header.index_count, previous)
        file.put_entries(
            packed_entries(*entries, begin_timestamp, previous).data,
            IndexHeader(
                begin_timestamp,
                int(entries.timestamps[-1]),
                int(entries.offsets[0]) if is_first else header.begin_physical_offset,
                int(entries.offsets[-1]),
                header.hash_slot_count + used,
                header.index_count + len(entries.hashes),
            ),
        )
        opened.set(entries.hashes.astype(np.int64) % file.geometry.slots)

    def _opened(self, file: IndexFile, count: int) -> _OpenSlots | None:
        """Return the slots of `file`; None for a small number of entries, and without space for slots."""
        if self._open is not None and self._open.file is file:
            return self._open
        self.close()
        before = self._put_singly[1] if self._put_singly[0] is file else 0
        self._put_singly = file, before + count
        if before + count < min(_FEW, file.geometry.slots):
            return None
        needed = file.geometry.slots * INDEX_SLOT.size
        if io.free_bytes(self._service.directory) < needed + _KEPT_FREE:
            return None
        try:
            self._open = _OpenSlots(file)
        except DiskFullError:
            return None
        return self._open

    def close(self) -> None:
        """Let go of the slots; what was put stays."""
        if self._open is not None:
            self._open.close()
            self._open = None
