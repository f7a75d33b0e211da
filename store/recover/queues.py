"""All queues of a store against the log: routes each implied slot to the mend of its queue and sums up."""

from __future__ import annotations

from rmqctl.store.compare.lives import Lives, held_by, superseded
from rmqctl.store.files.layout import topic_directory
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.journal.plan import Plan
from rmqctl.store.log.implied import QueueRun
from rmqctl.store.queues.consumequeue import BatchConsumeQueue, QueueKey
from rmqctl.store.queues.dispatch import LMQ_PREFIX, QueueSlot
from rmqctl.store.queues.queue_table import AnyConsumeQueue, QueueTable, is_in_rocksdb_alone
from rmqctl.store.recover.ext_units import ExtUnits, Spill
from rmqctl.store.recover.queue_units import BatchConsumeQueueMend, ConsumeQueueMend, IsGone

AnyMend = ConsumeQueueMend | BatchConsumeQueueMend


class QueuesMend:
    """`is_gone(physical_offset)`: the message is expired or lies in damage that stays, so a unit of it may stay.

    `spill`: see QueueFiles. `log_with_ext`: the log, where units get ext units (enableConsumeQueueExt); else None.
    """

    def __init__(
        self,
        queues: QueueTable,
        descriptors: Descriptors,
        is_gone: IsGone,
        spill: Spill | None = None,
        log_with_ext: MappedFileQueue | None = None,
    ) -> None:
        self._queues = queues
        self._descriptors = descriptors
        self._is_gone = is_gone
        self._spill = spill
        self._log_with_ext = log_with_ext
        self._elsewhere: dict[str, bool] = {}
        self._mends: dict[tuple[str, int], AnyMend] = {
            (queue.topic, queue.queue_id): self._mend(queue) for queue in queues.all()
        }

    def _mend(self, queue: AnyConsumeQueue) -> AnyMend:
        if isinstance(queue, BatchConsumeQueue):
            return BatchConsumeQueueMend(queue, self._queues.batch_file_size(), self._descriptors, self._is_gone)
        ext = topic_directory(self._queues.layout.consumequeue_ext, queue.topic) / str(queue.queue_id)
        size = self._queues.consumequeue_file_size()
        ext_units = None
        if self._log_with_ext is not None:
            ext_units = ExtUnits(ext, self._queues.ext_file_size(), self._descriptors, self._log_with_ext)
        return ConsumeQueueMend(queue, ext, size, self._descriptors, self._is_gone, self._spill, ext_units)

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether the queue has 46-byte units already."""
        return isinstance(self._mends.get((topic, queue_id)), BatchConsumeQueueMend)

    def add(self, slot: QueueSlot) -> None:
        """The log implies this slot."""
        if self._is_elsewhere(slot.topic):
            return
        mend = self._of(slot.topic, slot.queue_id, slot.is_batch)
        if slot.is_further and isinstance(mend, ConsumeQueueMend):
            mend.leave_without_ext(slot.unit.physical_offset)
        mend.add(slot.unit)

    def add_units(self, run: QueueRun) -> None:
        """The log implies these units of a queue that is no batch queue."""
        if self._is_elsewhere(run.topic):
            return
        mend = self._of(run.topic, run.queue_id, False)
        assert isinstance(mend, ConsumeQueueMend)
        mend.add_units(run.slots, run.units)

    def _is_elsewhere(self, topic: str) -> bool:
        """Return whether the queues of a topic may be in a RocksDB alone: then no file is made for them."""
        if not topic.startswith(LMQ_PREFIX):
            return False
        if topic not in self._elsewhere:
            self._elsewhere[topic] = is_in_rocksdb_alone(self._queues.layout, topic)
        return self._elsewhere[topic]

    def _of(self, topic: str, queue_id: int, is_batch: bool) -> AnyMend:
        mend = self._mends.get((topic, queue_id))
        if mend is None:
            mend = self._mends[(topic, queue_id)] = self._mend(self._queues.absent(topic, queue_id, is_batch))
        return mend

    def finish(self, plan: Plan) -> None:
        """Add the changes of all queues to `plan`."""
        for _, mend in sorted(self._mends.items()):
            mend.finish()
            plan.operations += mend.plan.operations

    def lives(self) -> dict[QueueKey, Lives]:
        """Return what later messages have superseded, by queue: of queues whose offsets go back along the log."""
        found = {key: superseded(mend.rows, held_by(mend.queue)) for key, mend in self._mends.items() if mend.conflicts}
        return {key: lives for key, lives in found.items() if lives}

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """The end of each queue, by topic and queue id, once `finish` was called."""
        return {key: mend.end for key, mend in self._mends.items()}

    @property
    def changed(self) -> int:
        """Queues that change."""
        return sum(mend.changed for mend in self._mends.values())

    @property
    def added(self) -> int:
        """Units that are put or put right."""
        return sum(mend.added for mend in self._mends.values())

    @property
    def removed(self) -> int:
        """Units that go or are put right."""
        return sum(mend.removed for mend in self._mends.values())

    @property
    def conflicts(self) -> int:
        """Messages whose slot another message of the log has taken."""
        return sum(mend.conflicts for mend in self._mends.values())
