"""The files of one queue as a plan will leave them: reading what is there, planning what is to be there."""

from __future__ import annotations

from collections.abc import Callable, Container

from rmqctl.formats.errors import RefusedError
from rmqctl.store.files.layout import file_name
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.files.zeros import end_of_nonzero
from rmqctl.store.journal.blob import Spilled
from rmqctl.store.journal.plan import ClearRange, CreateFile, Install, MoveAway, Plan, Resize, WriteRange
from rmqctl.store.queues.queue_table import QueueTable, list_queues

Spill = Callable[[bytes], Spilled]


def plan_empty_ext(queues: QueueTable, plan: Plan, topics: Container[str] | None = None) -> None:
    """Plan that ext files of no bytes go, those of `topics` (None for all): no unit stands in them, and 4.x does not
    start with one. Where the plan puts a new folder they go with the old one; those that the plan changes stay."""
    renewed = {operation.path for operation in plan.operations if isinstance(operation, Install)}
    changed = set(plan.paths())
    for topic, _, directory in list_queues(queues.layout.consumequeue_ext):
        if (topics is None or topic in topics) and directory not in renewed:
            ext = MappedFileQueue([directory], None, queues.descriptors)
            ext.load()
            for path in ext.empty_files().values():
                if path not in changed:
                    plan.add(MoveAway(path))


class QueueFiles:
    """The files of one queue as they will be: existing ones, and those the plan creates.

    `spill` takes the bytes of the plan, which otherwise stay in memory.
    """

    def __init__(self, queue: MappedFileQueue, file_size: int, plan: Plan, spill: Spill | None = None) -> None:
        self._directory = queue.directories[0]
        self.file_size = file_size
        self._files = {file.start_offset: file for file in queue.files}
        self._empty = queue.empty_files()
        self._created: set[int] = set()
        self._plan = plan
        self._spill = spill
        for file in queue.files:
            if file.start_offset % file_size:
                raise RefusedError(
                    f"the name is no multiple of the file size {file_size}",
                    file=file.path,
                    hint="give the broker's configuration with -c, or rebuild the queues with `rmqctl rebuild`",
                )
            if file.size != file_size:
                plan.add(Resize(file.path, file_size))

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of one file; zeros where there is no file or it is short."""
        start = offset - offset % self.file_size
        file = self._files.get(start)
        data = file.read(offset - start, length) if file is not None else b""
        return data.ljust(length, b"\0")

    def write(self, offset: int, data: bytes) -> None:
        """Plan to put `data`, all of one file."""
        start = offset - offset % self.file_size
        path = self._directory / file_name(start)
        if start not in self._files and start not in self._created:
            is_there = self._empty.pop(start, None) is not None
            self._plan.add(Resize(path, self.file_size) if is_there else CreateFile(path, self.file_size))
            self._created.add(start)
        kept = data if self._spill is None else self._spill(data)
        self._plan.add(WriteRange(path, offset - start, kept))

    def clear_from(self, end: int, descriptors: Descriptors) -> None:
        """Plan that nothing is left at or behind byte `end`, and no file that is still empty."""
        for path in self._empty.values():
            self._plan.add(MoveAway(path))
        for start, file in sorted(self._files.items()):
            if start >= end:
                self._plan.add(MoveAway(file.path))
            elif start + self.file_size > end:
                begin = end - start
                stop = end_of_nonzero(descriptors, file.path, begin, min(file.size, self.file_size))
                if stop > begin:
                    self._plan.add(ClearRange(file.path, begin, stop - begin))
