"""Puts salvaged messages into the new store, at their old queue offsets or at new ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from rmqctl.formats.message import Message, StoredMessage
from rmqctl.formats.properties import INNER_MULTI_DISPATCH
from rmqctl.formats.sys_flag import has_queue_slot, is_inner_batch
from rmqctl.formats.wording import counted
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.queues.dispatch import MULTI_DISPATCH_SEPARATOR, SCHEDULE_TOPIC, QueueSlot, queue_slots
from rmqctl.store.queues.unit import QueueUnit
from rmqctl.store.salvage.merge import Found, Merge
from rmqctl.store.salvage.overflow import content, fitting
from rmqctl.store.salvage.report import LostAndFound, SalvageReport
from rmqctl.store.survey.refused import unreadable_number
from rmqctl.store.write.prepare import copy_of
from rmqctl.store.write.writer import StoreWriter

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
    ) -> None:
        self._store = store
        self._keeps = offsets == "keep"
        self._sources = sources
        self._rows = rows
        self._report = report
        self._levels = store.files.config.delay_levels_to_write()
        self._queue_file_units = queue_file_units
        self._filler = _FILLER_FREE + _FILLER_PER_MESSAGE * report.found
        self._next: dict[tuple[str, int], int] = {}
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
            if self._keeps and not self._fits(slots):
                self._late.append((found.source, found.position, found.message.physical_offset))
                self._note(found, "renumbered", "its queue offset is taken, or too far from the others")
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
            return list(queue_slots(message, self._levels))
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
    if listed and not all(is_safe_topic(name) for name in listed.split(MULTI_DISPATCH_SEPARATOR)):
        return "topic", "a further queue of it cannot be a directory name"
    why = unreadable_number(message)
    return ("unreadable", f"a broker ends its log at such a message: {why}") if why else None
