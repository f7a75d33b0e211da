"""The broker's dispatch while it starts: which units it puts into which queues, in memory only."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rmqctl.formats.layouts import BATCH_CONSUMEQUEUE_UNIT, CONSUMEQUEUE_UNIT
from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.layout import StoreLayout, topic_directory
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.predict.queue import SimulatedQueue, UnitArray
from rmqctl.store.predict.rules import Rules
from rmqctl.store.queues.dispatch import LMQ_PREFIX, QueueSlot, queue_slots
from rmqctl.store.queues.unit import QueueUnit
from rmqctl.store.survey.log_runs import QueueRun, Run, route

_Key = tuple[str, int, bool]


class SimulatedQueues:
    """The queues of a store by topic, queue id and whether they are batch queues. `sizes`: bytes of a file of each
    kind, batch queues second."""

    def __init__(self, layout: StoreLayout, sizes: tuple[int, int], descriptors: Descriptors) -> None:
        self._layout = layout
        self._sizes = sizes
        self._descriptors = descriptors
        self.by_key: dict[_Key, SimulatedQueue] = {}

    def add(self, topic: str, queue_id: int, is_batch: bool, files: list[tuple[int, Path]] | None) -> SimulatedQueue:
        """A queue with these files, or without any."""
        root = self._layout.batchconsumequeue if is_batch else self._layout.consumequeue
        directory = topic_directory(root, topic) / str(queue_id)
        queue = SimulatedQueue(
            topic, queue_id, directory, self._sizes[is_batch], self._descriptors, is_batch=is_batch, files=files
        )
        self.by_key[topic, queue_id, is_batch] = queue
        return queue

    def find_or_add(self, topic: str, queue_id: int, is_batch: bool) -> SimulatedQueue:
        """The queue; a new one if there is none."""
        return self.by_key.get((topic, queue_id, is_batch)) or self.add(topic, queue_id, is_batch, None)

    def max_physical(self) -> int:
        """The end of the log by the queues; -1 without units (ConsumeQueueStore#getMaxPhyOffsetInConsumeQueue)."""
        return max((queue.max_physical for queue in self.by_key.values()), default=-1)


class SimulatedDispatch:
    """Puts what it takes into the queues; with a `floor` only messages that begin behind it. `unplaceable`: messages
    of topics that cannot be directory names."""

    def __init__(
        self,
        queues: SimulatedQueues,
        log: MappedFileQueue,
        rules: Rules,
        levels: tuple[int, ...],
        batch_topics: set[str],
        *,
        has_light_queues: bool = True,
    ) -> None:
        """`has_light_queues`: the broker gives messages their slots in light queues."""
        self._has_light_queues = has_light_queues
        self._queues = queues
        self._log = log
        self._rules = rules
        self._levels = levels
        self._batch_topics = batch_topics if rules.knows_batches else set()
        self.floor: int | None = None
        self.unplaceable = 0

    def take_run(self, run: Run) -> None:
        """Messages that pass law 3."""
        floor = self.floor
        if floor is not None and run.last_message_offset <= floor:
            return
        if floor is not None and run.physical_offset <= floor:
            run = _behind(run, floor)
        self.unplaceable += run.unplaceable
        route(run, self._log, self._levels, self)

    def take_message(self, message: StoredMessage) -> None:
        """One that only the broker takes. It goes by the offset that the frame claims."""
        if self.floor is None or message.physical_offset > self.floor:
            for slot in queue_slots(message, self._levels, self.is_batch_topic(message.topic, message.queue_id)):
                self.add(slot)

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether the topic's queues have 46-byte units."""
        return topic in self._batch_topics

    def add(self, slot: QueueSlot) -> None:
        """One unit."""
        if not self._has_light_queues and slot.topic.startswith(LMQ_PREFIX):
            return
        is_batch = slot.is_batch and self._rules.knows_batches
        queue = self._queues.find_or_add(slot.topic, slot.queue_id, is_batch)
        queue.put(np.array([slot.unit.queue_offset], np.int64), _packed(slot.unit, is_batch))

    def add_units(self, run: QueueRun) -> None:
        """Units of one queue."""
        if not self._has_light_queues and run.topic.startswith(LMQ_PREFIX):
            return
        self._queues.find_or_add(run.topic, run.queue_id, False).put(run.slots, run.units)


def _behind(run: Run, floor: int) -> Run:
    """The messages of a run that begin behind `floor`."""
    kept = []
    for queue in run.queues:
        mask = queue.units["physical_offset"] > floor
        rows = None if queue.rows is None else queue.rows[mask]
        if mask.any():
            kept.append(queue._replace(slots=queue.slots[mask], units=queue.units[mask], rows=rows))
    special = [(row, message) for row, message in run.special if message.physical_offset > floor]
    return Run(
        run.physical_offset,
        run.end,
        run.messages,
        run.last_message_offset,
        run.last_store_timestamp,
        queues=kept,
        special=special,
    )


def _packed(unit: QueueUnit, is_batch: bool) -> UnitArray:
    if not is_batch:
        packed = CONSUMEQUEUE_UNIT.struct.pack(unit.physical_offset, unit.size, unit.tags_code)
        return np.frombuffer(packed, CONSUMEQUEUE_UNIT.dtype())
    packed = BATCH_CONSUMEQUEUE_UNIT.struct.pack(
        unit.physical_offset, unit.size, unit.tags_code, unit.store_timestamp, unit.queue_offset, unit.batch_size, -1, 0
    )
    return np.frombuffer(packed, BATCH_CONSUMEQUEUE_UNIT.dtype())
