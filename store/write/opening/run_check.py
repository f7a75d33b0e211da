"""Whether the queues agree with runs of messages: `queue_check` on columns, for long logs."""

from __future__ import annotations

import numpy as np

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.commitlog.one_message import walked_message
from rmqctl.store.commitlog.walk import walk
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.dispatch import QueueSlot
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_runs import Digest, QueueRun, Run, consecutive, route
from rmqctl.store.survey.run_units import read_units
from rmqctl.store.write.opening.queue_check import QueueEndCheck


class _Differs(Exception):  # noqa: N818 - ends the fast way of a run, not the check
    """A queue does not hold what a run implies."""


class RunCheck:
    """Holds queues against runs. What is not plainly right is left to `queues`, message by message."""

    def __init__(self, files: StoreFiles, queues: QueueEndCheck) -> None:
        self.digest = Digest(queues.delay_levels, tags=True)
        self._log = files.log
        self._queues = queues

    def check(self, run: Run) -> None:
        """RefusedError, that of the first message, unless every unit that the run implies stands in its slot."""
        try:
            route(run, self._log, self._queues.delay_levels, self)
        except (_Differs, RefusedError):
            for record in walk(self._log, run.physical_offset, crc_from=run.end):
                if record.physical_offset >= run.end:
                    break
                if isinstance(record, StoredMessage):
                    self._queues.check(record)

    def last_message(self, run: Run) -> StoredMessage:
        """The last message of a run."""
        offset = run.last_message_offset
        return walked_message(self._log, offset, run.end - offset)

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether units of the topic have 46 bytes."""
        return topic in self._queues.batch_topics

    def add(self, slot: QueueSlot) -> None:
        """RefusedError unless the unit stands in its slot."""
        self._queues.check_slot(slot)

    def add_units(self, run: QueueRun) -> None:
        """_Differs unless all units stand in their slots."""
        cursor = self._queues.cursor(run.topic, run.queue_id, False)
        if cursor is None or not isinstance(cursor.queue, ConsumeQueue):
            raise _Differs
        for begin, end in consecutive(run.slots):
            found = read_units(cursor.queue, int(run.slots[begin]), end - begin)
            wanted = run.units[begin:end]
            for field in ("physical_offset", "size"):
                if not np.array_equal(found[field], wanted[field]):
                    raise _Differs
        cursor.end = int(run.slots[-1]) + 1
