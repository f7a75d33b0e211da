"""Appends units to the queues that messages belong to, and keeps few of their files open."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.compiled.notices import say
from rmqctl.store.files.background import share_of_descriptors
from rmqctl.store.files.layout import topic_directory
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.dispatch import QueueSlot
from rmqctl.store.queues.ext_appender import ExtAppender, last_ext_offset
from rmqctl.store.queues.flush import QueueFlusher
from rmqctl.store.queues.queue_table import AnyConsumeQueue, QueueTable

if TYPE_CHECKING:
    import numpy

    from rmqctl.store.survey.log_runs import QueueRun

# queues that keep a descriptor for appending
_MAXIMUM_OPEN_QUEUES = 128


class QueueAppender:
    """Where units of new messages go. Used by one thread. Nothing is flushed: `flusher` is told what was written.

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
        from rmqctl.store.survey.log_runs import consecutive

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
