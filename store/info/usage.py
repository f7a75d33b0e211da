"""What takes up the room of a store: its topics by size, and its log, queues, index and the rest on the disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import UnreadableError
from rmqctl.store.commitlog.walk import Damage, Progress
from rmqctl.store.files.trees import on_disk_bytes
from rmqctl.store.info.held_files import FileInUse, HeldFile, files_in_use, held_files
from rmqctl.store.info.log_numbers import count_topics
from rmqctl.store.info.queue_numbers import arrays_pay, count_queue
from rmqctl.store.read.reader import StoreReader

LOG, QUEUES, INDEX, REST = "commitlog", "consumequeue", "index", "rest"


@dataclass(slots=True)
class TopicUsage:
    """`bytes`: of its messages in the log; `share`: of those of all topics, 0 to 1. The queue files' sizes are apparent
    and on disk."""

    topic: str
    messages: int = 0
    bytes: int = 0
    share: float = 0.0
    queue_files: int = 0
    queue_bytes: int = 0
    queue_on_disk_bytes: int = 0


@dataclass(slots=True)
class PartUsage:
    """Files of a part of the store: `bytes` as their sizes say, `on_disk_bytes` without the holes of sparse files."""

    part: str
    files: int = 0
    bytes: int = 0
    on_disk_bytes: int = 0


@dataclass(slots=True)
class StoreUsage:
    """`counted_from`: commitlog or consumequeue. `damaged_bytes`: of the log, of no topic; None where it was not read.

    `held`: deleted files that processes still hold, which are not in `total`; `in_use`: the others that they hold.
    """

    path: str
    counted_from: str
    messages: int = 0
    message_bytes: int = 0
    damaged_bytes: int | None = None
    topics: list[TopicUsage] = field(default_factory=list)
    parts: list[PartUsage] = field(default_factory=list)
    total: PartUsage = field(default_factory=lambda: PartUsage("total"))
    held: list[HeldFile] = field(default_factory=list)
    in_use: list[FileInUse] = field(default_factory=list)


def disk_usage(reader: StoreReader, *, quick: bool = False, progress: Progress | None = None) -> StoreUsage:
    """Count the messages of each topic by a walk over the log, or `quick` by the units of the queues, and the files.

    Units say how large their messages are; a message in several queues counts in each of them then, and one that no
    queue has in none. UnsupportedError for `quick` where queues are in a RocksDB; UnreadableError.
    """
    layout = reader.files.layout
    usage = StoreUsage(str(layout.root), QUEUES if quick else LOG)
    topics: dict[str, TopicUsage] = {}
    if quick:
        _count_queues(reader, topics)
    else:
        damages: list[Damage] = []
        for name, numbers in count_topics(reader.files.log, progress, damages.append).items():
            topics[name] = TopicUsage(name, numbers.messages, numbers.bytes)
        usage.damaged_bytes = sum(damage.end - damage.physical_offset for damage in damages)
    _count_files(reader, usage, topics)
    usage.held, usage.in_use = held_files(layout), files_in_use(layout)
    usage.messages = sum(topic.messages for topic in topics.values())
    usage.message_bytes = sum(topic.bytes for topic in topics.values())
    for topic in topics.values():
        topic.share = topic.bytes / usage.message_bytes if usage.message_bytes else 0.0
    usage.topics = sorted(topics.values(), key=lambda topic: (-topic.bytes, -topic.queue_on_disk_bytes, topic.topic))
    return usage


def _count_queues(reader: StoreReader, topics: dict[str, TopicUsage]) -> None:
    minimum = reader.files.log.min_offset
    queues = reader.queues()
    on_arrays = arrays_pay(queues, minimum)
    for queue in queues:
        numbers = count_queue(queue, queue.min_offset(minimum), lambda _: 0, on_arrays)
        topic = topics.setdefault(queue.topic, TopicUsage(queue.topic))
        topic.messages += numbers.messages
        topic.bytes += numbers.bytes


def _count_files(reader: StoreReader, usage: StoreUsage, topics: dict[str, TopicUsage]) -> None:
    layout = reader.files.layout
    log, queues, index, rest = (PartUsage(part) for part in (LOG, QUEUES, INDEX, REST))
    of_queues = (layout.consumequeue, layout.batchconsumequeue, layout.consumequeue_ext)
    for folder in layout.commitlog:
        for path, status in _files_below(folder):
            _add(log, path, status)
    for folder in of_queues:
        for path, status in _files_below(folder):
            _add(queues, path, status)
            below = path.relative_to(folder).parts
            # TOPIC/QUEUE/FILE; a RocksDB has none of these
            if len(below) == 3:
                topic = topics.setdefault(below[0], TopicUsage(below[0]))
                topic.queue_files += 1
                topic.queue_bytes += status.st_size
                topic.queue_on_disk_bytes += on_disk_bytes(status, path)
    for path, status in _files_below(layout.index):
        _add(index, path, status)
    counted = {*map(_real, (*layout.commitlog, *of_queues, layout.index))}
    for path, status in _files_below(layout.root, lambda folder: _real(folder) not in counted):
        _add(rest, path, status)
    usage.parts = [log, queues, index, rest]
    for part in usage.parts:
        usage.total.files += part.files
        usage.total.bytes += part.bytes
        usage.total.on_disk_bytes += part.on_disk_bytes


def _real(path: Path) -> str:
    return os.path.realpath(path)


def _add(part: PartUsage, path: Path, status: Any) -> None:
    part.files += 1
    part.bytes += status.st_size
    part.on_disk_bytes += on_disk_bytes(status, path)


def _files_below(
    root: Path, is_wanted: Callable[[Path], bool] = lambda _: True
) -> Iterator[tuple[Path, os.stat_result]]:
    """Regular files with their sizes; a file or folder that is removed meanwhile is left out."""

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise UnreadableError(f"cannot be listed: {error.strerror}", file=error.filename)

    for directory, names, entries in os.walk(root, onerror=failed):
        names[:] = sorted(name for name in names if is_wanted(Path(directory, name)))
        for entry in entries:
            path = Path(directory, entry)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, status
