"""The copies of compacted topics: what consumers of such a topic are given, and the newest message of each key.

A broker answers consumers of a topic with cleanup.policy=COMPACTION from compaction/ alone (CompactionStore).
"""

from __future__ import annotations

import functools
import hashlib
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, UncertainError, UnreadableError, counted
from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.formats.message import FrameDamage, StoredMessage, decode_message
from rmqctl.formats.properties import KEYS
from rmqctl.store.config.config_files import read_config
from rmqctl.store.files.layout import StoreLayout, is_file_name, is_queue_name, is_safe_topic, topic_directory
from rmqctl.store.files.reading import listed, status_of
from rmqctl.store.log.search import MAXIMUM_FRAME_SIZE
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import BATCH_UNIT_SIZE, QueueUnit, sparse_units
from rmqctl.store.read.frames import frame_at
from rmqctl.store.store_files import StoreFiles

COMPACTION, LOGS, QUEUES = "compaction", "compactionLog", "compactionCq"
POSITIONS = "position-checkpoint"
UNKNOWN = -1
"""The position of a queue that was never compacted, or whose position is lost."""
_PLACE = slice(FRAME_HEADS[0].offset("physical_offset"), FRAME_HEADS[0].offset("physical_offset") + 8)
_MOST_READ = 10_000
_POLICY = "cleanup.policy"
_LEAST_QUEUES = 5


class FileSizes(NamedTuple):
    """Sizes of the files of a copy, in bytes."""

    log: int
    queue: int

    @classmethod
    def configured(cls, log: int, queue: int) -> FileSizes:
        """Return what a broker makes of its settings. (CompactionStore#CompactionStore)"""
        queue -= queue % BATCH_UNIT_SIZE
        whole, rest = divmod(log, queue)
        if whole < _LEAST_QUEUES:
            return cls(_LEAST_QUEUES * queue, queue)
        return cls((whole if 0 < rest < queue // 2 else whole + 1) * queue, queue)


class StoredFrame(NamedTuple):
    """A message as it is stored: its frame, and what is in it."""

    frame: bytes
    message: StoredMessage

    def at(self, physical_offset: int) -> bytes:
        """Return the frame as it is stored at another place."""
        return self.frame[: _PLACE.start] + physical_offset.to_bytes(8, "big") + self.frame[_PLACE.stop :]

    @property
    def key(self) -> bytes | None:
        """A digest of all its KEYS, which are one key for a compaction; None without."""
        keys = self.message.properties().get(KEYS)
        return hashlib.md5(keys.encode("utf-8", "surrogateescape"), usedforsecurity=False).digest() if keys else None


class CopiedMessage(NamedTuple):
    """A unit of a copy in the file `name`, and the message that it leads to; None with what is wrong."""

    unit: QueueUnit
    name: str
    stored: StoredFrame | None
    problem: str = ""


def compacted_queues(layout: StoreLayout, topic: str | None = None) -> list[tuple[str, int]]:
    """Return topic and queue id of all copies, or of those of a topic. UnreadableError."""
    found = set()
    for kind in (LOGS, QUEUES):
        folder = layout.root / COMPACTION / kind
        for name in listed(folder) if topic is None else [topic]:
            if is_safe_topic(name):
                found |= {(name, int(one)) for one in listed(topic_directory(folder, name)) if is_queue_name(one)}
    return sorted(found)


def compacted_topics(layout: StoreLayout) -> set[str]:
    """Return the topics with cleanup.policy=COMPACTION in topics.json. CorruptError, UnreadableError."""
    content = read_config(layout.config / "topics.json")
    table = content.get("topicConfigTable") if isinstance(content, dict) else None
    return {
        str(topic)
        for topic, entry in (table if isinstance(table, dict) else {}).items()
        if isinstance(entry, dict)
        and isinstance(entry.get("attributes"), dict)
        and entry["attributes"].get(_POLICY) == "COMPACTION"
    }


def file_sizes(files: StoreFiles) -> FileSizes | None:
    """Return the sizes that the files of all copies have: as configured, else as most of them are; None without any."""
    log, queue = files.config.compaction_mapped_file_size, files.config.compaction_cq_mapped_file_size
    if log is not None and queue is not None and queue >= BATCH_UNIT_SIZE:
        return FileSizes.configured(log, queue)
    found: dict[str, list[int]] = {LOGS: [], QUEUES: []}
    for key in compacted_queues(files.layout):
        copy = CompactedQueue(files, *key)
        for kind, folder, names in ((LOGS, copy.logs, copy.log_names), (QUEUES, copy.queues, copy.queue_names)):
            found[kind] += [status.st_size for name in names if (status := status_of(folder / name)) is not None]
    if not found[LOGS] or not found[QUEUES]:
        return None
    return FileSizes(*(max(sizes, key=lambda size: (sizes.count(size), size)) for sizes in found.values()))


def copied_queues(files: StoreFiles, topic: str | None = None) -> list[tuple[str, int]]:
    """Return topic and queue id of all queues that have a copy or, by their topic's policy, are to have one; or of
    those of a topic. CorruptError, UnreadableError."""
    topics = compacted_topics(files.layout) if files.config.enable_compaction else set()
    wanted = files.queues.of_topics(lambda name: name in topics and topic in (None, name)) if topics else []
    return sorted({*compacted_queues(files.layout, topic), *((queue.topic, queue.queue_id) for queue in wanted)})


def positions(layout: StoreLayout) -> dict[tuple[str, int], int]:
    """Return up to which queue offset each queue is compacted. CorruptError, UnreadableError."""
    content = read_config(layout.root / COMPACTION / POSITIONS)
    table = content.get("queueOffsetMap") if isinstance(content, dict) else None
    found = {}
    for key, position in (table if isinstance(table, dict) else {}).items():
        topic, _, queue_id = str(key).rpartition("_")
        if is_queue_name(queue_id) and isinstance(position, int):
            found[topic, int(queue_id)] = position
    return found


class CompactedQueue:
    """The copy of one queue. `position`: up to which queue offset it is compacted."""

    def __init__(self, files: StoreFiles, topic: str, queue_id: int, position: int = UNKNOWN) -> None:
        """Read nothing yet."""
        self._files = files
        self.topic, self.queue_id, self.position = topic, queue_id, position
        root = files.layout.root / COMPACTION
        self.logs, self.queues = (topic_directory(root / kind, topic) / str(queue_id) for kind in (LOGS, QUEUES))

    @functools.cached_property
    def log_names(self) -> list[str]:
        """Names of the files of the log, in their order."""
        return [name for name in listed(self.logs) if is_file_name(name)]

    @functools.cached_property
    def queue_names(self) -> list[str]:
        """Names of the files of the queue."""
        return [name for name in listed(self.queues) if is_file_name(name)]

    @functools.cached_property
    def _sizes(self) -> dict[str, int]:
        statuses = {name: status_of(self.logs / name) for name in self.log_names}
        return {name: 0 if status is None else status.st_size for name, status in statuses.items()}

    @property
    def names(self) -> list[str]:
        """Names of the files that both have."""
        return sorted(set(self.log_names) & set(self.queue_names))

    def messages(self) -> Iterator[CopiedMessage]:
        """Yield what the units lead to, in the order of the files. UnreadableError."""
        last = -1
        for name in self.names:
            for unit in sparse_units(self.queues / name):
                found = self.message(unit, name, last)
                if found.stored is not None:
                    last = unit.queue_offset
                yield found

    def message(self, unit: QueueUnit, name: str, last: int = -1) -> CopiedMessage:
        """Return what a unit of a file leads to; the unit before it has the queue offset `last`."""
        at = unit.physical_offset - int(name)
        if unit.queue_offset <= last:
            return CopiedMessage(unit, name, None, f"its queue offset does not follow {last}")
        if at < 0 or unit.size > MAXIMUM_FRAME_SIZE or at + unit.size > self._sizes[name]:
            text = f"its unit leads to {unit.physical_offset}, which is not in the file"
            return CopiedMessage(unit, name, None, text)
        data = self._files.descriptors.read(self.logs / name, at, unit.size)
        try:
            message = decode_message(data, 0, len(data), unit.physical_offset)
        except FrameDamage as damage:
            return CopiedMessage(unit, name, None, damage.detail)
        said = message.total_size, message.topic, message.queue_id, message.queue_offset, message.store_timestamp
        if said != (unit.size, self.topic, self.queue_id, unit.queue_offset, unit.store_timestamp):
            return CopiedMessage(unit, name, None, "its unit leads to another message")
        return CopiedMessage(unit, name, StoredFrame(data, message))

    def in_log(self, queue_offset: int) -> StoredFrame | None:
        """Return the message as the commitlog has it; None where that does not have it, or not any more."""
        return message_in_log(self._files, self.topic, self.queue_id, queue_offset)

    def uncompacted(self, known: list[CopiedMessage]) -> int:
        """Return from which queue offset on nothing was compacted: all after the position, and the last file."""
        compacted = (one.unit.queue_offset for one in known if one.name != self.names[-1])
        return max(self.position, max(compacted, default=-1)) + 1

    def lacking(self, begin: int, known: set[int]) -> list[int]:
        """Return the queue offsets from `begin` on of messages with keys that the commitlog has and `known` lacks, of
        at most 10,000 slots."""
        queue = self._files.queues.find(self.topic, self.queue_id)
        if queue is None:
            return []
        begin = max(queue.min_offset(self._files.log.min_offset), begin)
        found = []
        for queue_offset in range(begin, min(queue.max_offset, begin + _MOST_READ)):
            if queue_offset not in known:
                stored = self.in_log(queue_offset)
                if stored is not None and stored.key is not None:
                    found.append(queue_offset)
        return found


def message_in_log(files: StoreFiles, topic: str, queue_id: int, queue_offset: int) -> StoredFrame | None:
    """Return the message at a place of a queue as the commitlog has it; None where it does not have it, or not any
    more. UnreadableError."""
    try:
        queue = files.queues.find(topic, queue_id)
        unit = None if queue is None else queue.unit(queue_offset)
        if unit is None or not unit.is_written:
            return None
        found = StoredFrame(*frame_at(files.log, unit.physical_offset, unit.size))
    except UnreadableError:
        raise
    except RmqctlError:
        return None
    said = found.message.topic, found.message.queue_id, found.message.queue_offset
    return found if said == (topic, queue_id, queue_offset) else None


def newest_messages(files: StoreFiles, topic: str, queue_id: int | None, events: Events) -> Iterator[StoredMessage]:
    """Yield the newest message of each key in each queue's copy, in order of queue and offset; an empty body means that
    its key is deleted. Where the commitlog has the message too, its physical offset is the one there, else -1.

    A message that is damaged in the copy comes from the commitlog where that has it, and is reported. NotFoundError for
    a topic that has no copies and is not compacted, CorruptError, UnreadableError. What a copy lacks is reported, too.
    """
    places = [one for one in copied_queues(files, topic) if queue_id in (None, one[1])]
    if not places:
        raise NotFoundError(
            f"there is no compaction log of topic {topic!r}" + ("" if queue_id is None else f", queue {queue_id}"),
            file=files.layout.root / COMPACTION,
            hint="`rmqctl cat` without --compacted prints what the commitlog has",
        )
    known = _positions_told(files.layout, events)
    for place in places:
        yield from _newest(CompactedQueue(files, *place, known.get(place, UNKNOWN)), events)


def _positions_told(layout: StoreLayout, events: Events) -> dict[tuple[str, int], int]:
    try:
        return positions(layout)
    except CorruptError as error:
        events.damaged(error)
        return {}


def _newest(copy: CompactedQueue, events: Events) -> Iterator[StoredMessage]:
    newest: dict[bytes | None, int] = {}
    found = []
    for one in copy.messages():
        stored = one.stored or copy.in_log(one.unit.queue_offset)
        if one.stored is None:
            events.damaged(
                CorruptError(
                    f"message {one.unit.queue_offset} of {copy.topic}, queue {copy.queue_id}: {one.problem}; "
                    + ("the commitlog has it" if stored is not None else "the commitlog does not have it"),
                    file=copy.logs / one.name,
                    physical_offset=one.unit.physical_offset,
                )
            )
        if stored is not None:
            newest[stored.key] = one.unit.queue_offset
        found.append(one._replace(stored=None))
    only = sorted(set(copy.log_names) ^ set(copy.queue_names))
    if only:
        text = "is a file of only one of compactionLog and compactionCq"
        events.damaged(CorruptError(text, file=copy.logs / only[0]))
    chosen = set(newest.values())
    for one in found:
        if one.unit.queue_offset in chosen:
            kept, logged = copy.message(one.unit, one.name).stored, copy.in_log(one.unit.queue_offset)
            if logged is not None:
                yield logged.message
            elif kept is not None:
                yield kept.message._replace(physical_offset=-1)
    begin = copy.uncompacted(found) if found else 0
    lacking = copy.lacking(begin, {one.unit.queue_offset for one in found})
    if lacking:
        text = f"the copy of {copy.topic}, queue {copy.queue_id} lacks {counted(len(lacking), 'message')}"
        events.damaged(
            UncertainError(
                f"{text}, from offset {lacking[0]} on: no consumer gets them",
                file=copy.queues,
                hint=f"`rmqctl rebuild --compacted -t {shlex.quote(copy.topic)}` adds them",
            )
        )
