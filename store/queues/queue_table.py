"""All consume queues of a store: finding, loading and creating them by topic and queue id."""

from __future__ import annotations

import os
from pathlib import Path

from formats.errors import UnreadableError, UnsupportedError
from store.config import StoreConfig
from store.files import io
from store.files.layout import StoreLayout, topic_directory
from store.files.reading import Descriptors
from store.queues.batch_consumequeue import BatchConsumeQueue
from store.queues.consumequeue import UNIT_SIZE, ConsumeQueue

AnyConsumeQueue = ConsumeQueue | BatchConsumeQueue


def list_queues(directory: Path) -> list[tuple[str, int, Path]]:
    """(topic, queue id, directory) below `consumequeue`, in order; names that are no queue ids are skipped."""
    found: list[tuple[str, int, Path]] = []
    for topic in _directories(directory):
        found += [
            (topic, int(name), directory / topic / name)
            for name in _directories(directory / topic)
            if name.isascii() and name.isdigit()
        ]
    return sorted(found, key=lambda item: item[:2])


def _directories(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnreadableError(f"cannot be listed: {error.strerror}", file=directory) from error


def has_rocksdb_queues(layout: StoreLayout) -> bool:
    """Whether the queues are in a RocksDB (storeType=defaultRocksDB), which has the same directory name."""
    return (layout.consumequeue / "CURRENT").is_file()


def rocksdb_error(layout: StoreLayout) -> UnsupportedError:
    """What to say where queues are asked for and lie in a RocksDB."""
    return UnsupportedError(
        "the consume queues are in a RocksDB, which is not read yet",
        file=layout.consumequeue,
        hint="messages are readable by `cat`, and by `query` with --scan",
    )


class QueueTable:
    """Queues by (topic, queue id), loaded on first use."""

    def __init__(self, layout: StoreLayout, config: StoreConfig, descriptors: Descriptors) -> None:
        self.layout = layout
        self._config = config
        self._descriptors = descriptors
        self._queues: dict[tuple[str, int], AnyConsumeQueue] = {}
        self._listed = False

    def all(self) -> list[AnyConsumeQueue]:
        """Every queue that has a directory, by topic and id. UnsupportedError for RocksDB queues."""
        if has_rocksdb_queues(self.layout):
            raise rocksdb_error(self.layout)
        if not self._listed:
            for root in (self.layout.consumequeue, self.layout.batchconsumequeue):
                for topic, queue_id, _ in list_queues(root):
                    self.find(topic, queue_id)
            self._listed = True
        return [self._queues[key] for key in sorted(self._queues)]

    def find(self, topic: str, queue_id: int) -> AnyConsumeQueue | None:
        """The queue, None if it has no directory. UsageError for a topic that cannot be a directory name."""
        key = (topic, queue_id)
        if key not in self._queues:
            if has_rocksdb_queues(self.layout):
                raise rocksdb_error(self.layout)
            for root, is_batch in ((self.layout.consumequeue, False), (self.layout.batchconsumequeue, True)):
                directory = topic_directory(root, topic) / str(queue_id)
                if directory.is_dir():
                    self._queues[key] = self._load(topic, queue_id, directory, is_batch)
                    break
        return self._queues.get(key)

    def find_or_create(self, topic: str, queue_id: int, is_batch: bool = False) -> AnyConsumeQueue:
        """The queue; its directory is created with its first unit."""
        queue = self.find(topic, queue_id)
        if queue is None:
            root = self.layout.batchconsumequeue if is_batch else self.layout.consumequeue
            directory = topic_directory(root, topic) / str(queue_id)
            io.make_directories(directory)
            queue = self._queues[(topic, queue_id)] = self._load(topic, queue_id, directory, is_batch)
        return queue

    def _load(self, topic: str, queue_id: int, directory: Path, is_batch: bool) -> AnyConsumeQueue:
        queue: AnyConsumeQueue
        if is_batch:
            size = self._config.mapper_file_size_batch_consume_queue
            queue = BatchConsumeQueue(topic, queue_id, directory, size, self._descriptors)
        else:
            queue = ConsumeQueue(topic, queue_id, directory, self.consumequeue_file_size(), self._descriptors)
        queue.load()
        return queue

    def consumequeue_file_size(self) -> int | None:
        """Configured size in bytes, rounded up to whole units as RocketMQ does; None to take it from the files."""
        size = self._config.mapped_file_size_consume_queue
        return None if size is None else -(-size // UNIT_SIZE) * UNIT_SIZE

    def topics(self) -> list[str]:
        """Topics with at least one queue."""
        return sorted({queue.topic for queue in self.all()})

    def close(self) -> None:
        """Flush and close what was appended to."""
        for queue in self._queues.values():
            queue.close()
