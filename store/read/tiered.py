"""Tiered storage: the copy of each queue in segments outside of the store, which may go back further than the store.

The table of segments is in the store (config/tieredStoreMetadata.json); where it is lost or damaged the names and
lengths of the segments say the same (FlatFileStore#load, FlatAppendFile#recover).
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import re
import shlex
from collections.abc import Iterator
from copy import copy as copy_of
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError, UncertainError, UnreadableError, counted
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.formats.message import FrameDamage, Reason, StoredMessage, decode_message
from rmqctl.store.config.tiered_table import LOG, TABLE, UNITS, SegmentTable, read_segment_table
from rmqctl.store.files.layout import is_queue_name, is_safe_topic, topic_directory
from rmqctl.store.files.reading import exists, is_directory, listed, status_of
from rmqctl.store.files.remote import reachable
from rmqctl.store.log.search import MAXIMUM_FRAME_SIZE
from rmqctl.store.options import Events
from rmqctl.store.read.compacted import StoredFrame, message_in_log
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Selection
from rmqctl.store.store_files import StoreFiles

INDEX_TOPIC = "rmq_sys_INDEX"
SEGMENT = re.compile(r"[0-9a-f]{8}([0-9]{20})")
_CLUSTER = re.compile(r"[0-9a-f]{8}_.+")
_UNITS_AT_ONCE = 1 << 15
_OF_STORES = (
    "commitlog consumequeue consumequeue_ext batchconsumequeue index config timerlog compaction kvStore".split()
)


class Segment(NamedTuple):
    """A file of a copy. `base`: its first offset; `said`: bytes by the table, None if that does not know it; `length`:
    bytes of the file, None without one."""

    path: Path
    base: int
    said: int | None
    length: int | None

    @property
    def end(self) -> int:
        """The offset after its last byte."""
        return self.base + (self.length or 0)

    def holds(self, offset: int, size: int) -> bool:
        """Return whether bytes lie in it."""
        return self.base <= offset and offset + size <= self.end


class TieredMessage(NamedTuple):
    """What a unit of a copy says, and the frame and message that it leads to; None for both with what is wrong.
    `place`: offset in the segments of the log."""

    queue_offset: int
    place: int
    tags_code: int
    frame: bytes | None
    message: StoredMessage | None
    problem: str = ""


class TieredQueue:
    """The copy of one queue; `logs` and `units` are its segments, in order."""

    def __init__(self, files: StoreFiles, topic: str, queue_id: int, logs: list[Segment], units: list[Segment]) -> None:
        """Read nothing yet."""
        self.files = files
        self.topic, self.queue_id, self.logs, self.units = topic, queue_id, logs, units

    @property
    def folder(self) -> Path:
        """Where its segments are."""
        return (self.units or self.logs)[0].path.parent.parent

    @functools.cached_property
    def min_offset(self) -> int:
        """Its first queue offset: units stay longer than segments of the log that expired. UnreadableError."""
        first = -(-self.units[0].base // CONSUMEQUEUE_UNIT.size) if self.units else 0
        begin = self.logs[0].base if self.logs else 0
        if begin <= 0 or first >= self.max_offset:
            return first
        return bisect.bisect_left(range(self.max_offset), begin, first, self.max_offset, key=self.place)

    def place(self, queue_offset: int) -> int:
        """Return where the unit at a queue offset leads to; 0 without one."""
        width, at = CONSUMEQUEUE_UNIT.size, queue_offset * CONSUMEQUEUE_UNIT.size
        segment = next((one for one in self.units if one.length and one.holds(at, width)), None)
        if segment is None:
            return 0
        data = self.files.descriptors.read(segment.path, at - segment.base, width)
        return int(CONSUMEQUEUE_UNIT.unpack_from(data.ljust(width, b"\0"), 0)[0])

    @property
    def max_offset(self) -> int:
        """The queue offset after its last one."""
        first = -(-self.units[0].base // CONSUMEQUEUE_UNIT.size) if self.units else 0
        return max((one.end // CONSUMEQUEUE_UNIT.size for one in self.units if one.length), default=first)

    def messages(self, begin: int, end: int) -> Iterator[TieredMessage]:
        """Yield what is at the queue offsets [begin, end), as far as there are units. UnreadableError."""
        width = CONSUMEQUEUE_UNIT.size
        for segment in self.units:
            first = max(begin, -(-segment.base // width))
            last = min(end, segment.end // width)
            for start in range(first, last, _UNITS_AT_ONCE):
                size = min(_UNITS_AT_ONCE, last - start) * width
                data = self.files.descriptors.read(segment.path, start * width - segment.base, size)
                for at in range(0, len(data) - width + 1, width):
                    yield self._message(start + at // width, *CONSUMEQUEUE_UNIT.unpack_from(data, at))

    def message(self, queue_offset: int) -> TieredMessage | None:
        """Return what is at a queue offset; None where no unit is."""
        return next(self.messages(queue_offset, queue_offset + 1), None)

    def _message(self, queue_offset: int, place: int, size: int, tags_code: int) -> TieredMessage:
        message, problem = self.decoded(place, size)
        if message is not None:
            said = message.topic, message.queue_id, message.queue_offset
            if said != (self.topic, self.queue_id, queue_offset):
                problem = f"its unit leads to message {message.queue_offset} of {message.topic}"
        if message is None or problem:
            return TieredMessage(queue_offset, place, tags_code, None, None, problem)
        return TieredMessage(queue_offset, place, tags_code, self._frame(place, size), message)

    def _frame(self, place: int, size: int) -> bytes | None:
        """Return bytes of its log; None where no segment has them all."""
        segment = next((one for one in self.logs if one.length and one.holds(place, size)), None)
        if segment is None or not 0 < size <= MAXIMUM_FRAME_SIZE:
            return None
        return self.files.descriptors.read(segment.path, place - segment.base, size)

    def decoded(self, place: int, size: int) -> tuple[StoredMessage | None, str]:
        """Return the message at an offset of its log, or what is wrong there. UnreadableError."""
        data = self._frame(place, size)
        if data is None:
            return None, f"no segment has the {size} bytes at {place}"
        try:
            try:
                message = decode_message(data, 0, len(data), place)
            except FrameDamage as damage:
                if damage.reason is not Reason.PROPERTY_CRC:
                    raise
                # it covers the place in the commitlog, which was overwritten; that of the body is good
                message = decode_message(data, 0, len(data), place, check_crc=False)
        except FrameDamage as damage:
            return None, damage.detail
        if message.total_size != size:
            return None, f"the message at {place} has {message.total_size} bytes, not {size}"
        return message, ""

    def begin_of_store(self) -> int | None:
        """Return from which queue offset on the commitlog has the queue; None where it has nothing of it."""
        queue = self.files.queues.find(self.topic, self.queue_id)
        if queue is None or not self.files.log.files:
            return None
        begin = queue.min_offset(self.files.log.min_offset)
        return begin if begin < queue.max_offset else None

    def in_store(self, queue_offset: int) -> StoredFrame | None:
        """Return the message as the store has it; None where it has none. UnreadableError."""
        return message_in_log(self.files, self.topic, self.queue_id, queue_offset)


def tiered_folder(files: StoreFiles) -> Path | None:
    """Return the folder of tieredStoreFilePath; where no setting says it, one in the store that looks like it."""
    said = files.config.tiered_store_file_path
    if said:
        return reachable(said)
    for name in listed(files.layout.root):
        folder = files.layout.root / name
        # what else is in a store has topics below it, and many of them
        if name not in _OF_STORES and is_directory(folder) and has_segments(folder):
            return folder
    return None


def has_segments(folder: Path) -> bool:
    """Return whether a tiered folder has a segment of a queue. UnreadableError."""
    for broker in brokers_of(folder):
        for topic in listed(broker):
            for queue_id in listed(broker / topic):
                if any(SEGMENT.fullmatch(name) for name in listed(broker / topic / queue_id / UNITS)):
                    return True
    return False


class TieredStorage(NamedTuple):
    """The tiered folder of a store, and its table of segments; None where that is lost or damaged."""

    files: StoreFiles
    folder: Path
    table: SegmentTable | None

    def brokers(self) -> list[Path]:
        """Return the folders of brokers; of several, those that have a topic of the table. UnreadableError."""
        found = brokers_of(self.folder)
        topics = {topic for _, topic, _ in self.table or () if is_safe_topic(topic)}
        known = [one for one in found if any(exists(one / topic) for topic in topics)]
        return known if len(found) > 1 and known else found

    def queues(self, topic: str | None = None, queue_id: int | None = None) -> list[TieredQueue]:
        """Return the copies of all queues, of those of a topic, or of one. CorruptError where several brokers have one
        there and no table chooses, UnreadableError."""
        if not is_directory(self.folder):
            text = "the folder of tieredStoreFilePath is not there"
            raise UnreadableError(text, file=self.folder, hint="mount it, or correct -c")
        brokers = self.brokers()
        if self.table is None and len(brokers) > 1:
            names = ", ".join(one.name for one in brokers)
            raise CorruptError(f"{TABLE} is lost, and the folder is of several brokers ({names})", file=self.folder)
        places: dict[tuple[str, int], Path] = {}
        for broker in brokers:
            for name in listed(broker) if topic is None else [topic]:
                if is_safe_topic(name) and name != INDEX_TOPIC:
                    of_topic = topic_directory(broker, name)
                    places |= {(name, int(one)): of_topic / one for one in listed(of_topic) if is_queue_name(one)}
        for _, name, number in self.table or ():
            if topic in (None, name) and is_safe_topic(name) and brokers:
                places.setdefault((name, number), topic_directory(brokers[0], name) / str(number))
        return [
            TieredQueue(self.files, *place, *(_segments(path / kind, kind, place, self.table) for kind in (LOG, UNITS)))
            for place, path in sorted(places.items())
            if queue_id in (None, place[1])
        ]


def tiered_storage(files: StoreFiles, events: Events = Events()) -> TieredStorage:
    """Return the tiered storage of a store. A damaged table is reported. NotFoundError where no folder is known,
    UnreadableError."""
    folder = tiered_folder(files)
    if folder is None:
        hint = "name the broker.conf with tieredStoreFilePath by -c"
        raise NotFoundError("no folder of tiered storage is known", file=files.layout.root, hint=hint)
    try:
        table = read_segment_table(files.layout.config)
    except CorruptError as error:
        events.damaged(error)
        table = None
    return TieredStorage(files, folder, table)


def brokers_of(folder: Path) -> list[Path]:
    """Return the folders of brokers in a tiered folder. UnreadableError."""
    return [
        folder / cluster / broker
        for cluster in listed(folder)
        if _CLUSTER.fullmatch(cluster)
        for broker in listed(folder / cluster)
        if is_directory(folder / cluster / broker)
    ]


def _segments(folder: Path, kind: str, place: tuple[str, int], table: SegmentTable | None) -> list[Segment]:
    """Return the segments of a folder and of the table, in order."""
    named = {int(found[1]): folder / found[0] for found in map(SEGMENT.fullmatch, listed(folder)) if found}
    said = (table or {}).get((kind, *place), {})
    segments = []
    for base in sorted({*named, *said}):
        path = named.get(base) or folder / segment_name(base)
        status = status_of(path) if base in named else None
        segments.append(Segment(path, base, said.get(base), None if status is None else status.st_size))
    return segments


def segment_name(base: int) -> str:
    """Return the name of a segment by its first offset (MessageStoreUtil#offset2FileName)."""
    return f"{hashlib.md5(str(base).encode(), usedforsecurity=False).hexdigest()[:8]}{base:020d}"


def joined_messages(reader: StoreReader, selection: Selection, events: Events) -> Iterator[StoredMessage]:
    """Yield the messages of a topic queue by queue: first those that only tiered storage has, with a physical offset of
    -1, then those of the store. `begin` and `end` are queue offsets.

    NotFoundError for a topic that neither has. What is damaged in the copy and messages that neither has are reported.
    """
    criteria = selection.criteria
    assert criteria.topic is not None
    copies = {
        one.queue_id: one for one in tiered_storage(reader.files, events).queues(criteria.topic, criteria.queue_id)
    }
    own = {
        queue.queue_id
        for queue in reader.files.queues.of_topics(criteria.topic.__eq__)
        if criteria.queue_id in (None, queue.queue_id)
    }
    if not copies and not own:
        raise NotFoundError(
            f"neither the store nor tiered storage has topic {criteria.topic!r}"
            + ("" if criteria.queue_id is None else f", queue {criteria.queue_id}"),
            file=reader.files.layout.root,
        )
    for queue_id in sorted({*copies, *own}):
        begin = selection.begin
        if queue_id in copies:
            copy = copies[queue_id]
            until = copy.begin_of_store()
            for message in _of_copy(copy, begin, _least(copy.max_offset, until, selection.end), events):
                if criteria.matches(message):
                    yield message
            _tell_hole(copy, until, selection, events)
            begin = max(begin, copy.max_offset if until is None else until)
        if queue_id in own and (selection.end is None or begin < selection.end):
            of_queue = copy_of(criteria)
            of_queue.queue_id = queue_id
            chosen = selection._replace(criteria=of_queue, begin=begin)
            yield from reader.telling(events).messages(chosen, "queue")


def _least(*offsets: int | None) -> int:
    return min(offset for offset in offsets if offset is not None)


def _of_copy(copy: TieredQueue, begin: int, end: int, events: Events) -> Iterator[StoredMessage]:
    for one in copy.messages(begin, end):
        if one.message is not None:
            yield one.message._replace(physical_offset=-1)
        else:
            text = f"message {one.queue_offset} of {copy.topic}, queue {copy.queue_id}: {one.problem}"
            events.damaged(CorruptError(text, file=copy.folder))


def _tell_hole(copy: TieredQueue, until: int | None, selection: Selection, events: Events) -> None:
    """Report messages that were removed from the store before they were copied."""
    if until is not None and max(copy.max_offset, selection.begin) < until:
        first = max(copy.max_offset, selection.begin)
        events.damaged(
            UncertainError(
                f"{counted(until - first, 'message')} of {copy.topic}, queue {copy.queue_id}, from offset {first} on: "
                "neither the store nor tiered storage has them",
                file=copy.folder,
                hint=f"a broker starts the copy of the queue again: save it first, `rmqctl cat --tiered "
                f"-t {shlex.quote(copy.topic)} --json --stored-bodies`",
            )
        )


def tiered_rows(files: StoreFiles, topic: str | None, queue_id: int | None, events: Events) -> Iterator[dict[str, Any]]:
    """Yield a row of each queue: what the copy has of it, and what the store has. Errors as for
    `tiered_storage` and `TieredStorage.queues`."""
    for copy in tiered_storage(files, events).queues(topic, queue_id):
        begin = copy.begin_of_store()
        queue = files.queues.find(copy.topic, copy.queue_id)
        first = copy.message(copy.min_offset)
        yield {
            "topic": copy.topic,
            "queue_id": copy.queue_id,
            "tiered_min_offset": copy.min_offset,
            "tiered_max_offset": copy.max_offset,
            "min_offset": begin,
            "max_offset": None if begin is None or queue is None else queue.max_offset,
            "in_neither": 0 if begin is None else max(begin - copy.max_offset, 0),
            "segments": len(copy.logs) + len(copy.units),
            "bytes": sum(one.length or 0 for one in [*copy.logs, *copy.units]),
            "first_store_timestamp": None if first is None or first.message is None else first.message.store_timestamp,
        }
