"""Records of POP: those that brokers cannot use, and what becomes of the messages that were handed out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.checksums import parse_long
from rmqctl.formats.errors import CorruptError, counted
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.config import QueueDoubts
from rmqctl.store.check.cross import Level, LogSeen
from rmqctl.store.options import Events
from rmqctl.store.pop.load import ReviveMessage, UnusableRecordError
from rmqctl.store.pop.records import (
    DELIVER_MS,
    KV_FOLDER,
    ORDER_FILE,
    REVIVE_GROUP,
    REVIVE_PREFIX,
    Acknowledgement,
    KvEntry,
    PopCheckpoint,
    doubts,
    doubts_of_entry,
)
from rmqctl.store.pop.state import LOST, PopGroup, PopOffsets, PopState
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles


class _Place(NamedTuple):
    """The first record of a kind, and what is said of it."""

    text: str
    file: Path | None = None
    physical_offset: int | None = None


class _Seen:
    """Records that are wrong: the first of each kind, and how many there are."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self.unusable: list[_Place] = []
        self.unusable_count = 0
        self.odd: list[_Place] = []
        self.odd_count = 0

    def damaged(self, error: CorruptError) -> None:
        """Take in damage; that of frames and tables is a finding of the log or the database."""
        if not isinstance(error, UnusableRecordError):
            return
        self.unusable_count += 1
        if not self.unusable:
            file = None if error.file is None else Path(error.file)
            self.unusable.append(_Place(error.message, file, error.physical_offset))

    def look(self, where: ReviveMessage | bytes, record: PopCheckpoint | Acknowledgement | KvEntry) -> None:
        """Take in a record that a broker can use."""
        if isinstance(where, bytes):
            assert isinstance(record, KvEntry)
            text, place, offset = doubts_of_entry(where, record), self._files.root / KV_FOLDER, None
        else:
            assert not isinstance(record, KvEntry)
            deliver = parse_long(where.message.properties().get(DELIVER_MS, ""))
            text, place, offset = doubts(record, deliver), None, where.message.physical_offset
            text = None if text is None else f"{where.name}: {text}"
        if text is not None:
            self.odd_count += 1
            if not self.odd:
                self.odd.append(_Place(text, place, offset))


def pop_findings(files: StoreFiles, seen: LogSeen, queue_doubts: QueueDoubts) -> Iterator[Finding]:
    """Yield what is wrong with POP. Nothing at level quick, nor of a store that is written to: its offsets and the
    timer's files are up to 5 s old there."""
    if seen.level is Level.QUICK or seen.is_live:
        return
    found = _Seen(files)
    reader = StoreReader(files, Events(damage=found.damaged))
    state = PopState(reader, 0, look=found.look)
    groups, ordered = list(state.groups()), state.ordered
    for code, places, count in (
        ("RMQ-POP-001", found.unusable, found.unusable_count),
        ("RMQ-POP-002", found.odd, found.odd_count),
    ):
        for place in places:
            more = f", and {counted(count - 1, 'more record')}" if count > 1 else ""
            yield Finding(code, f"{place.text}{more}", place.file, place.physical_offset, messages=count)
    offsets = PopOffsets(reader)
    yield from _settled(files, offsets, queue_doubts)
    yield from _outcomes(state, groups)
    for (group, topic, queue_id), pop in sorted(ordered.items()):
        offset = offsets.committed(group, topic, queue_id)
        if offset is not None and offset > pop.next_offset:
            text = (
                f"{group} is at {offset} of {topic} queue {queue_id}, past {pop.next_offset}, which it popped in order"
            )
            path = files.layout.config / ORDER_FILE
            wrong = partial(Finding, "RMQ-POP-007", text, path, topic=topic, queue_id=queue_id)
            yield wrong(expected=pop.next_offset, found=offset)


def _settled(files: StoreFiles, offsets: PopOffsets, queue_doubts: QueueDoubts) -> Iterator[Finding]:
    """Yield offsets of the revive group that are past the last record, which is settled by them."""
    try:
        queues = files.queues.of_topics(lambda topic: topic.startswith(REVIVE_PREFIX))
    except CorruptError:
        return
    for queue in queues:
        offset = offsets.committed(REVIVE_GROUP, queue.topic, queue.queue_id)
        if offset is None or offset < queue.max_offset or queue_doubts.has(queue.topic, queue.queue_id, queue):
            continue
        text = f"revive is at {offset}, and the last record of queue {queue.queue_id} is {queue.max_offset - 1}"
        wrong = partial(Finding, "RMQ-POP-003", text, topic=queue.topic, queue_id=queue.queue_id)
        yield wrong(expected=queue.max_offset - 1, found=offset)


def _outcomes(state: PopState, groups: list[PopGroup]) -> Iterator[Finding]:
    lost = sum(one.lost for one in groups)
    if lost:
        text = f"the timer has lost the checkpoints of {counted(lost, 'message')} ({_of(groups, LOST)})"
        yield Finding("RMQ-POP-004", text, messages=lost, data_lost=False)
    dropped = state.columns.lost_acks + state.columns.early
    if dropped:
        yield Finding("RMQ-POP-005", f"{counted(dropped, 'acknowledgement')} of POP will not count", messages=dropped)
    again = [one for one in groups if one.again_at_restart]
    if again:
        count = sum(one.again_at_restart for one in again)
        first = f"{again[0].topic}@{again[0].group}"
        more = f" and {counted(len(again) - 1, 'more group')}" if len(again) > 1 else ""
        text = f"the next start hands {counted(count, 'message')} out again, to {first}{more}"
        yield Finding("RMQ-POP-006", text, messages=count)


def _of(groups: list[PopGroup], state: str) -> str:
    named = [f"{one.topic}@{one.group}" for one in groups if getattr(one, state)]
    return named[0] + (f" and {counted(len(named) - 1, 'more group')}" if len(named) > 1 else "")
