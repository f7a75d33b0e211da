"""Puts salvaged messages into the new store, at their old queue offsets or at new ones."""

from __future__ import annotations

import base64
import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE
from rmqctl.formats.errors import UnreadableError, counted
from rmqctl.formats.layouts import DLEDGER_MAGIC
from rmqctl.formats.message import FrameDamage, Message, StoredMessage, decode_message
from rmqctl.formats.notebook import as_html
from rmqctl.formats.properties import (
    INNER_MULTI_DISPATCH,
    MAXIMUM_PROPERTIES_SIZE,
    encode_properties,
    has_queue_slot,
    is_inner_batch,
)
from rmqctl.store.compare.lives import Lives
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.journal.kept import Blob
from rmqctl.store.log.search import ENTRY_HEAD_SIZE
from rmqctl.store.log.walk import unreadable_number
from rmqctl.store.queues.consumequeue import QueueKey, QueueUnit
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, FurtherSlots, QueueSlot, queue_slots, split_further
from rmqctl.store.write.prepare import copy_of
from rmqctl.store.write.writer import StoreWriter

# Messages of many runs in the order of their log: by physical offset, equal ones once.

_CHUNK = 1 << 20
_ENTRY_MAGIC = DLEDGER_MAGIC.to_bytes(4, "big")


class KeptRun(NamedTuple):
    """Good frames at the bytes [position, end) of source number `source`. Sorts by the log's order."""

    physical_offset: int
    source: int
    position: int
    end: int


class Found(NamedTuple):
    """A message, and where it was found."""

    message: StoredMessage
    source: int
    position: int


class Merge:
    """Reads the runs again, in order. `duplicates`: messages of which another copy came first."""

    def __init__(self, files: Sequence[MappedFile], runs: list[KeptRun]) -> None:
        self._files = files
        self._runs = sorted(runs)
        self.duplicates = 0

    def messages(self) -> Iterator[Found]:
        """Every message once. Two with the same physical offset and other content are two messages. UnreadableError
        where a source has changed meanwhile."""
        waiting = iter(self._runs)
        following = next(waiting, None)
        heap: list[tuple[int, int, bytes, int, Iterator[tuple[int, bytes, int]]]] = []
        offset, seen = -1, set[bytes]()
        number = 0
        while heap or following is not None:
            while following is not None and (not heap or following.physical_offset < heap[0][0]):
                # a run joins when its turn comes, so that few are open at a time
                _push(heap, number, following.source, self._frames(following))
                number += 1
                following = next(waiting, None)
            physical_offset, order, frame, position, frames = heapq.heappop(heap)
            source = order & 0xFFFFFFFF
            _push(heap, order >> 32, source, frames)
            if physical_offset != offset:
                offset, seen = physical_offset, set()
            digest = hashlib.blake2b(frame, digest_size=16).digest()
            if digest in seen:
                self.duplicates += 1
                continue
            seen.add(digest)
            yield Found(self._decoded(frame, physical_offset, source, position), source, position)

    def _frames(self, run: KeptRun) -> Iterator[tuple[int, bytes, int]]:
        """Physical offset, bytes and position of each frame of a run."""
        file = self._files[run.source]
        window, begin = b"", run.position
        position = run.position
        while position < run.end:
            at = position - begin
            if file.holds_entries and file.read(position, 4) == _ENTRY_MAGIC:
                position += ENTRY_HEAD_SIZE
                continue
            size = int.from_bytes(window[at : at + 4], "big", signed=True) if at + 4 <= len(window) else 0
            if size <= 0 or at + size > len(window):
                head = file.read(position, 4)
                size = int.from_bytes(head, "big", signed=True)
                if not 0 < size <= run.end - position:
                    raise self._changed(run.source, position)
                window, begin, at = file.read(position, min(max(size, _CHUNK), run.end - position)), position, 0
            frame = window[at : at + size]
            if len(frame) < size:
                raise self._changed(run.source, position)
            yield run.physical_offset + position - run.position, frame, position
            position += size

    def one(self, source: int, position: int, physical_offset: int) -> StoredMessage:
        """One message once more."""
        file = self._files[source]
        size = int.from_bytes(file.read(position, 4), "big", signed=True)
        return self._decoded(file.read(position, max(0, size)), physical_offset, source, position)

    def _decoded(self, frame: bytes, physical_offset: int, source: int, position: int) -> StoredMessage:
        try:
            return decode_message(frame, 0, len(frame), physical_offset, check_crc=False, unsigned=True)
        except FrameDamage as damage:
            raise self._changed(source, position) from damage

    def _changed(self, source: int, position: int) -> UnreadableError:
        return UnreadableError(
            "has changed while it was read",
            file=self._files[source].path,
            physical_offset=position,
            hint="salvage from a copy, or when nothing writes to it",
        )


def _push(
    heap: list[tuple[int, int, bytes, int, Iterator[tuple[int, bytes, int]]]],
    number: int,
    source: int,
    frames: Iterator[tuple[int, bytes, int]],
) -> None:
    """The next frame of a run; nothing if it has none. The run's number makes entries differ before their bytes."""
    frame = next(frames, None)
    if frame is not None:
        heapq.heappush(heap, (frame[0], number << 32 | source, frame[1], frame[2], frames))


# What a new store cannot hold of messages whose length of topic or properties overflows its field.

_MOST = MAXIMUM_PROPERTIES_SIZE - PROPERTY_CRC_SIZE


def fitting(message: StoredMessage) -> tuple[StoredMessage, dict[str, str]]:
    """Return the message without the properties that do not fit, the largest first, and those properties."""
    if len(message.property_bytes) <= MAXIMUM_PROPERTIES_SIZE:
        return message, {}
    properties = message.properties()
    sizes = {name: len(encode_properties({name: value})) for name, value in properties.items()}
    total = sum(sizes.values())
    dropped: dict[str, str] = {}
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if total <= _MOST:
            break
        total -= sizes[name]
        dropped[name] = properties.pop(name)
    return message._replace(property_bytes=encode_properties(properties)), dropped


def content(message: StoredMessage) -> dict[str, str | dict[str, str]]:
    """Return body and properties for a row of the lost and found."""
    return {"body_base64": base64.b64encode(message.body).decode("ascii"), "properties": message.properties()}


# What a salvage tells: a summary, and the lost and found as JSON Lines in a file beside the new store.


@dataclass(slots=True)
class SalvageReport:
    """Counts of messages unless named otherwise. `found`: good ones, stale ones and copies included. `salvaged`: those
    in the new store. `duplicates`: copies of a message that came before. `stale`: older than what precedes them.
    `renumbered`: stored, but not at their old queue offset. `left_out`: good ones that no store should have.
    `strange_*`: spans without a message. `causes`: rows of the lost and found by cause."""

    _repr_html_ = as_html

    store: str
    lost_and_found: str | None
    sources: int = 0
    bytes_read: int = 0
    runs: int = 0
    found: int = 0
    salvaged: int = 0
    duplicates: int = 0
    stale: int = 0
    renumbered: int = 0
    left_out: int = 0
    strange_spans: int = 0
    strange_bytes: int = 0
    topics: int = 0
    queues: int = 0
    commitlog_file_size: int = 0
    config_files: list[str] = field(default_factory=list)
    causes: dict[str, int] = field(default_factory=dict)


class LostAndFound:
    """Rows: source, begin, end (bytes of the source), cause, detail; `physical_offset`, `topic`, `queue_id` and
    `queue_offset` if it is a message. Written as they come.

    Of a message with a length that overflows: `properties`, those that the new store lacks; `body_base64` as well where
    the whole message is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._blob = Blob(path)
        self.causes: Counter[str] = Counter()

    def add(
        self, source: Path, begin: int, end: int, cause: str, detail: str, **more: int | str | dict[str, str]
    ) -> None:
        """One row. The texts are raw in JSON's own escapes: nothing in the file is outside ASCII."""
        self.causes[cause] += 1
        row = {"source": str(source), "begin": begin, "end": end, "cause": cause, "detail": detail, **more}
        self._blob.put((json.dumps(row) + "\n").encode("ascii"))

    def finish(self) -> None:
        """Everything to disk."""
        self._blob.finish()

    def close(self) -> None:
        """Let go of the file."""
        self._blob.close()


Offsets = Literal["keep", "renumber"]
_BATCH = 1024
_BATCH_BYTES = 8 * 1024 * 1024
# Slots that are only filled: a hostile offset must not fill the disk
_FILLER_FREE = 4_000_000
_FILLER_PER_MESSAGE = 100
_LARGEST_QUEUE_OFFSET = 1 << 58
# what the names of all properties begin with that give a message more than one slot
_INNER = b"INNER_"


class SalvageWriter:
    """Takes messages in the order of their log; `finish` puts what had to wait."""

    def __init__(
        self,
        store: StoreWriter,
        offsets: Offsets,
        sources: Sequence[Path],
        rows: LostAndFound,
        report: SalvageReport,
        queue_file_units: int,
        lives: Mapping[QueueKey, Lives],
    ) -> None:
        self._store = store
        self._keeps = offsets == "keep"
        self._sources = sources
        self._rows = rows
        self._report = report
        self._levels = store.files.config.delay_levels_to_write()
        self._queue_file_units = queue_file_units
        self._lives = lives
        self._filler = _FILLER_FREE + _FILLER_PER_MESSAGE * report.found
        self._next: dict[tuple[str, int], int] = {}
        # the new store has no place that no message has, and counts further queues on by places
        self._further = FurtherSlots(lambda topic, queue_id: None)
        self._taken: list[Found] = []
        self._taken_bytes = 0
        self._late: list[tuple[int, int, int]] = []
        self.batch_topics: dict[str, int] = {}

    def add(self, found: Found) -> None:
        """One message."""
        unfit = _unfit(found.message)
        if unfit is not None:
            self._leave_out(found, *unfit)
            return
        self._taken.append(found)
        self._taken_bytes += found.message.total_size
        if len(self._taken) >= _BATCH or self._taken_bytes >= _BATCH_BYTES:
            self._put_taken()

    def finish(self, merge: Merge) -> None:
        """The last ones, and those of which the offset was taken: at the end of their queues."""
        self._put_taken()
        late, self._late, keeps = self._late, [], self._keeps
        self._keeps = False
        for source, position, physical_offset in late:
            self.add(Found(merge.one(source, position, physical_offset), source, position))
        self._put_taken()
        self._keeps = keeps
        self._report.queues = len(self._next)
        self._report.topics = len({topic for topic, _ in self._next})

    def _put_taken(self) -> None:
        taken, self._taken, self._taken_bytes = self._taken, [], 0
        fitted = [fitting(found.message)[0] for found in taken]
        copies = list(map(copy_of, fitted))
        refused = self._store.check_many(copies, as_stored=True)
        ready: list[tuple[Found, Message]] = []
        for number, found in enumerate(taken):
            if number in refused:
                self._leave_out(found, "refused", refused[number])
                continue
            slots = self._slots_of(fitted[number])
            ahead = list(self._ahead(slots)) if self._keeps else []
            why = self._why_late(found.message, slots) if self._keeps else None
            if why is not None:
                self._late.append((found.source, found.position, found.message.physical_offset))
                self._note(found, "renumbered", why)
                continue
            if ahead:
                self._put(ready)
                ready = []
                for slot in ahead:
                    self._store.advance_queue(slot.topic, slot.queue_id, slot.unit.queue_offset)
            ready.append((found, copies[number]))
            for slot in slots:
                self._count(slot)
        self._put(ready)

    def _slots_of(self, message: StoredMessage) -> list[QueueSlot]:
        """Its queue slots; tags do not matter here."""
        if _INNER in message.property_bytes or is_inner_batch(message.sys_flag):
            slots = queue_slots(message, self._levels)
            return [self._further.placed(slot) for slot in slots]
        if not has_queue_slot(message.sys_flag):
            return []
        unit = QueueUnit(message.queue_offset, message.physical_offset, message.total_size, 0)
        return [QueueSlot(message.topic, message.queue_id, unit, False)]

    def _count(self, slot: QueueSlot) -> None:
        key = slot.topic, slot.queue_id
        begin = slot.unit.queue_offset if self._keeps else self._next.get(key, 0)
        self._next[key] = begin + slot.unit.batch_size
        if slot.is_batch:
            self.batch_topics[slot.topic] = max(self.batch_topics.get(slot.topic, 0), slot.queue_id + 1)

    def _why_late(self, message: StoredMessage, slots: list[QueueSlot]) -> str | None:
        """Return why a message does not get its old queue offset; None where it does."""
        lives = self._lives.get((message.topic, message.queue_id))
        earlier = lives.find(message.queue_offset, message.physical_offset) if lives and slots else None
        if earlier is not None and earlier.is_deleted:
            return "its topic was deleted and created again: a later message has its queue offset"
        return None if self._fits(slots) else "its queue offset is taken, or too far from the others"

    def _ahead(self, slots: list[QueueSlot]) -> Iterator[QueueSlot]:
        """Slots that lie behind the next one of their queue."""
        for slot in slots:
            if slot.unit.queue_offset > self._next.get((slot.topic, slot.queue_id), 0):
                yield slot

    def _fits(self, slots: list[QueueSlot]) -> bool:
        """Whether the old offsets can be kept; what has to be filled for them is counted then."""
        filler = 0
        for slot in slots:
            key, offset = (slot.topic, slot.queue_id), slot.unit.queue_offset
            known = self._next.get(key)
            if offset < (known or 0) or offset > _LARGEST_QUEUE_OFFSET:
                return False
            if not slot.is_batch:
                # a queue begins with the file of its first unit; before that nothing is filled
                filler += offset % self._queue_file_units if known is None else offset - known
        if filler > self._filler:
            return False
        self._filler -= filler
        return True

    def _put(self, ready: list[tuple[Found, Message]]) -> None:
        if not ready:
            return
        results = self._store.put_many([copied for _, copied in ready], as_stored=True, is_batch=False)
        for (found, _), result in zip(ready, results, strict=True):
            result.raise_failure()
            if not result.status.is_stored:
                self._leave_out(found, "refused", str(result.detail or result.status))
                continue
            self._report.salvaged += 1
            self._report.renumbered += result.queue_offset != found.message.queue_offset
            _, dropped = fitting(found.message)
            if dropped:
                what = counted(len(dropped), "property that does not fit was", "properties that do not fit were")
                self._note(found, "overflow", f"stored; {what} left out", properties=dropped)

    def _leave_out(self, found: Found, cause: str, detail: str) -> None:
        self._report.left_out += 1
        more = content(found.message) if found.message.overflows else {}
        self._note(found, cause, detail, **more)

    def _note(self, found: Found, cause: str, detail: str, **more: str | dict[str, str]) -> None:
        message = found.message
        self._rows.add(
            self._sources[found.source],
            found.position,
            found.position + message.total_size,
            cause,
            detail,
            physical_offset=message.physical_offset,
            topic=message.topic,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            **more,
        )


def _unfit(message: StoredMessage) -> tuple[str, str] | None:
    """Why a good message must not get into a store: cause and detail."""
    if not is_safe_topic(message.topic):
        return "topic", "the topic cannot be a directory name"
    if message.queue_id < 0 or message.queue_offset < 0:
        return "queue", "queue id or queue offset is negative"
    if _INNER not in message.property_bytes and message.topic != SCHEDULE_TOPIC:
        return None
    listed = message.properties().get(INNER_MULTI_DISPATCH, "")
    if listed and not all(is_safe_topic(name) for name in split_further(listed)):
        return "topic", "a further queue of it cannot be a directory name"
    why = unreadable_number(message)
    return ("unreadable", f"a broker ends its log at such a message: {why}") if why else None
