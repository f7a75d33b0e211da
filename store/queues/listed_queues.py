"""Queues as one listing found them, for others that read the same store: they need not look for these again."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rmqctl.store.files.layout import file_name
from rmqctl.store.queues.batch_consumequeue import BatchConsumeQueue
from rmqctl.store.queues.consumequeue import ConsumeQueue

PlainFiles = tuple[int, int]
"""The start offset of a queue's first file, and how many files it has, one behind the other."""


class ListedQueues(NamedTuple):
    """Queues of 20-byte units with nothing but files of `file_size` bytes, of which each begins where the one before it
    ends. What is not as plain as that is left to whoever looks. Picklable; columns, as there may be many thousand."""

    file_size: int
    topics: list[str]
    queue_ids: array[int]
    first_offsets: array[int]
    file_counts: array[int]

    @staticmethod
    def of(queues: Iterable[ConsumeQueue | BatchConsumeQueue], file_size: int) -> ListedQueues:
        """Those of the queues that are that plain, of files of this size."""
        listed = ListedQueues(file_size, [], array("q"), array("q"), array("q"))
        for queue in queues:
            files = queue.files
            if not files.files or files.problems or isinstance(queue, BatchConsumeQueue):
                continue
            listed.topics.append(queue.topic)
            listed.queue_ids.append(queue.queue_id)
            listed.first_offsets.append(files.files[0].start_offset)
            listed.file_counts.append(len(files.files))
        return listed

    def by_key(self) -> dict[tuple[str, int], PlainFiles]:
        """The files of each queue, by topic and queue id."""
        files = zip(self.first_offsets, self.file_counts, strict=True)
        return dict(zip(zip(self.topics, self.queue_ids, strict=True), files, strict=True))

    def paths(self, directory: Path, files: PlainFiles) -> list[tuple[Path, int]]:
        """The files of a queue with their sizes, in its directory."""
        first, count = files
        names = [file_name(first + number * self.file_size) for number in range(count)]
        return [(directory / name, self.file_size) for name in names]
