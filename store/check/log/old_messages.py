"""Messages of the log that are older than those before them: left after a truncation, which only moves positions.

Two things show it: queue offsets that were given already, and in a store under a controller another master's address
than that of the epoch (apache/rocketmq#10666). A clock that was set back shows neither.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

import numpy as np

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.sys_flag import has_queue_slot
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.commitlog.walk import walk
from rmqctl.store.config.epoch_file import Epoch
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.read.frames import message_at
from rmqctl.store.survey.log_runs import QueueRun, Run
from rmqctl.store.survey.tail import Tail


class OldMessages:
    """Takes the runs of the valid log in order. `tail`: how the log ends; `epochs`: of the epoch file, ascending."""

    def __init__(self, log: MappedFileQueue, tail: Tail, epochs: Sequence[Epoch]) -> None:
        self._log = log
        self._tail = tail
        self._epochs = epochs
        self._masters: dict[int, str | None] = {}
        self._reported: set[int] = set()
        self._slots: dict[tuple[str, int], int] = {}
        self._last_message_offset = -1

    def pass_run(self, run: Run, jumps: Sequence[int]) -> Iterator[Finding]:
        """Yield what the first such place of a run is; `jumps`: messages stored earlier than the one before them."""
        for physical_offset in jumps:
            if run.physical_offset <= physical_offset < run.end:
                found = self._judge(run, physical_offset)
                if found is not None:
                    yield found
                    break
        for queue in run.queues:
            key = queue.topic, queue.queue_id
            self._slots[key] = max(self._slots.get(key, -1), int(queue.slots.max()))
        self._last_message_offset = run.last_message_offset

    def _judge(self, run: Run, physical_offset: int) -> Finding | None:
        message = self._message(physical_offset)
        if message is None:
            return None
        return self._given_twice(run, message) or self._of_another_master(run, message)

    def _given_twice(self, run: Run, message: StoredMessage) -> Finding | None:
        """Return a finding if the message takes a queue offset given already."""
        if not has_queue_slot(message.sys_flag):
            return None
        known = self._slots.get((message.topic, message.queue_id), -1)
        for queue in run.queues:
            if (queue.topic, queue.queue_id) == (message.topic, message.queue_id):
                before = queue.slots[_offsets(queue) < message.physical_offset]
                known = max(known, int(before.max()) if len(before) else -1)
        if message.queue_offset > known:
            return None
        text = f"older than the message before it, and queue offset {message.queue_offset} was given already"
        return self._finding("RMQ-LOG-015", text, run, message, known + 1, message.queue_offset)

    def _of_another_master(self, run: Run, message: StoredMessage) -> Finding | None:
        """Return a finding if another broker stored the message than the master of its epoch."""
        number = bisect.bisect_right([epoch.start for epoch in self._epochs], message.physical_offset) - 1
        if number < 0 or number in self._reported:
            return None
        master, host = self._master(number), str(message.store_host)
        if master is None or master == host:
            return None
        self._reported.add(number)
        epoch = self._epochs[number].number
        text = f"older than the message before it, and stored by {host}: the master of epoch {epoch} is {master}"
        return self._finding("RMQ-EPO-004", text, run, message, master, host)

    def _master(self, number: int) -> str | None:
        """Return the address of an epoch's master, which its first message has; None where that is not known."""
        if number not in self._masters:
            start = max(self._epochs[number].start, self._log.min_offset)
            # a blank frame may come before it
            first = (one for _, one in zip(range(2), walk(self._log, start), strict=False))
            message = next((one for one in first if isinstance(one, StoredMessage)), None)
            self._masters[number] = None if message is None else str(message.store_host)
        return self._masters[number]

    def _finding(
        self, code: str, text: str, run: Run, message: StoredMessage, expected: str | int, found: str | int
    ) -> Finding:
        file = self._log.find(message.physical_offset)
        return Finding(
            code,
            text,
            None if file is None else file.path,
            message.physical_offset,
            message.topic,
            message.queue_id,
            expected,
            found,
            data_lost=False,
            # where newer messages follow, a cut would take them along
            fix=f"rmqctl repair --only {code}" if self._is_end_left_over(run, message.physical_offset) else "",
        )

    def _is_end_left_over(self, run: Run, physical_offset: int) -> bool:
        """Return whether all that follows up to the log's end is older than the message before the offset."""
        before = [self._last_message_offset]
        for queue in run.queues:
            offsets = _offsets(queue)
            before += offsets[offsets < physical_offset][-1:].tolist()
        before += [one.physical_offset for _, one in run.special if one.physical_offset < physical_offset]
        message = self._message(max(before))
        return message is not None and self._tail.is_left_over(message.store_timestamp)

    def _message(self, physical_offset: int) -> StoredMessage | None:
        if physical_offset < 0:
            return None
        try:
            return message_at(self._log, physical_offset)
        except RmqctlError:
            return None


def _offsets(queue: QueueRun) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return queue.units["physical_offset"].astype(np.int64)
