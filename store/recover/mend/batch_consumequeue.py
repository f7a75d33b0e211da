"""Compares one batch consumequeue with what the log implies and plans its bytes."""

from __future__ import annotations

from collections.abc import Callable

from rmqctl.store.files.layout import file_name
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.files.zeros import end_of_nonzero
from rmqctl.store.journal.plan import ClearRange, CreateFile, MoveAway, Plan, Resize, WriteRange
from rmqctl.store.queues.batch_consumequeue import UNIT_SIZE, BatchConsumeQueue, pack_batch_unit
from rmqctl.store.queues.unit import QueueUnit
from rmqctl.store.recover.mend.slot_order import has_batch_slot
from rmqctl.store.survey.lives import LifeRows


class BatchConsumeQueueMend:
    """One queue of 46-byte units, which stand one behind the other in the order of the log."""

    def __init__(
        self, queue: BatchConsumeQueue, file_size: int, descriptors: Descriptors, is_gone: Callable[[int], bool]
    ) -> None:
        self.queue = queue
        self.plan = Plan()
        self.added = 0
        self.removed = 0
        self.conflicts = 0
        self.rows = LifeRows()
        self._file_size = file_size
        self._descriptors = descriptors
        self._existing = list(queue.units(0))
        self._wanted = [unit for unit in self._existing if is_gone(unit.physical_offset)]

    @property
    def changed(self) -> bool:
        """Whether anything of this queue is planned to change."""
        return bool(self.plan)

    @property
    def end(self) -> int:
        """The queue offset after the last message."""
        return self._wanted[-1].next_queue_offset if self._wanted else 0

    def add(self, unit: QueueUnit) -> None:
        """The log implies `unit`."""
        if has_batch_slot(unit, self.end, self.rows):
            self._wanted.append(unit)
        else:
            self.conflicts += 1

    def finish(self) -> None:
        """Plan every file whose units differ, and that nothing is left behind the last unit."""
        existing, wanted = set(self._existing), set(self._wanted)
        self.added, self.removed = len(wanted - existing), len(existing - wanted)
        files = {file.start_offset: file for file in self.queue.files.files}
        empty = self.queue.files.empty_files()
        first = min(files, default=0)
        per_file = self._file_size // UNIT_SIZE
        end = first
        for start in range(0, len(self._wanted), per_file):
            data = b"".join(pack_batch_unit(unit) for unit in self._wanted[start : start + per_file])
            path = self.queue.directory / file_name(end)
            file = files.pop(end, None)
            if file is None and empty.pop(end, None) is None:
                self.plan.add(CreateFile(path, self._file_size))
            elif file is None or file.size != self._file_size:
                self.plan.add(Resize(path, self._file_size))
            if file is None or file.read(0, len(data)) != data:
                self.plan.add(WriteRange(path, 0, data))
            if file is not None:
                stop = end_of_nonzero(self._descriptors, path, len(data), min(file.size, self._file_size))
                if stop > len(data):
                    self.plan.add(ClearRange(path, len(data), stop - len(data)))
            end += self._file_size
        for path in [*(file.path for file in files.values()), *empty.values()]:
            self.plan.add(MoveAway(path))
