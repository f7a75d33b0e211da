"""Evidence of a message's place: its frame in the log, its slot in the queue, its index entries, and its expiry."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rmqctl.formats import properties as names
from rmqctl.formats.errors import (
    CorruptError,
    UnreadableError,
    UnsupportedError,
    UsageError,
    counted,
    format_time,
    lasting,
)
from rmqctl.formats.message import StoredMessage, unread_body
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.answers.config_offsets import KnownNames
from rmqctl.store.answers.steps import Stage, Step, step_at
from rmqctl.store.answers.undispatched import remade_by
from rmqctl.store.config.config import next_hour
from rmqctl.store.files.layout import is_database, is_safe_topic
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.log.walk import message_if_any
from rmqctl.store.pop import state as pop
from rmqctl.store.pop.load import ReadsNext
from rmqctl.store.pop.records import KV_FOLDER, RETRY_PREFIX, pop_retry_topics
from rmqctl.store.pop.state import FIRST_POP_TIME, Handed, PopMessage, why_again
from rmqctl.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.store.queues.dispatch import FurtherSlots, QueueSlot, highest_plausible, index_keys, queue_slots
from rmqctl.store.queues.queue_table import beginning, superseding
from rmqctl.store.read.query import entries_of
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.timer.recovered import due_time

GOOD = "good"
THERE = "there"
MISSING = "missing"
WRONG = "wrong"
IMPOSSIBLE = "impossible"
SUPERSEDED = "superseded"
NONE = "none"
DAMAGED = "damaged"
UNKNOWN = "unknown"
KEPT = "kept"
DUE = "due"
LAST = "last-file"
_HOUR_MS = 3_600_000


def stored_step(reader: StoreReader, message: StoredMessage) -> Step:
    """That the frame is good, which it is if it could be read (law 3), and what covers it."""
    checks = "size, place and body CRC hold"
    if names.CRC32 in message.properties():
        checks = "size, place, body CRC and frame CRC hold"
    file = reader.files.log.find(message.physical_offset)
    where = "" if file is None else f" in {_within(file.path, reader.files.root)}"
    size = counted(message.total_size, "byte")
    state, broken = GOOD, unread_body(message)
    if broken is not None:
        state, checks = DAMAGED, f"{checks}, but {broken}"
    stored = format_time(message.store_timestamp)
    detail = f"{size} at physical offset {message.physical_offset}{where}, stored {stored}; {checks}"
    return step_at(Stage.STORED, state, detail, message)


def _within(path: Path, root: Path) -> Path:
    return path.relative_to(root) if path.is_relative_to(root) else path


# ---- the queue


def queue_steps(reader: StoreReader, message: StoredMessage) -> Iterator[Step]:
    """Of every slot that the message implies whether it leads to it."""
    if not has_queue_slot(message.sys_flag):
        detail = "a prepared or rolled back message takes no slot: no consumer sees it"
        yield step_at(Stage.QUEUE, NONE, detail, message)
        return
    if not is_safe_topic(message.topic):
        detail = "its topic cannot be the name of a directory: it has no queue, and no consumer gets it"
        yield step_at(Stage.QUEUE, MISSING, detail, message)
        return
    if message.queue_id < 0:
        detail = f"its queue id {message.queue_id} cannot be right, and no checksum covers it: no consumer gets it"
        yield step_at(Stage.QUEUE, IMPOSSIBLE, detail, message)
        return
    try:
        queue = reader.files.queues.find(message.topic, message.queue_id)
    except CorruptError as error:
        yield step_at(Stage.QUEUE, UNKNOWN, str(error), message)
        return
    is_batch = queue is not None and not isinstance(queue, ConsumeQueue)
    further = FurtherSlots(reader.files.queues.find)
    for slot in queue_slots(message, reader.files.config.delay_levels(), is_batch):
        yield _slot_step(reader, message, further.placed(slot))


_UNTIL = "no consumer gets it before `rmqctl recover` writes the slot"


def _slot_step(reader: StoreReader, message: StoredMessage, slot: QueueSlot) -> Step:
    queue = reader.files.queues.find(slot.topic, slot.queue_id)
    number = slot.unit.queue_offset
    name = f"slot {number} of {slot.topic} queue {slot.queue_id}"
    step = step_at(Stage.QUEUE, THERE, f"{name} leads to it", message)
    step = step._replace(topic=slot.topic, queue_id=slot.queue_id, queue_offset=number, timestamp=None)
    per_file = reader.files.queues.consumequeue_file_size() // UNIT_SIZE
    if not slot.is_batch and not 0 <= number <= highest_plausible(message.physical_offset, per_file):
        what = f"its queue offset {number} cannot be right, and no checksum covers it"
        where = f"{slot.topic} queue {slot.queue_id} has no slot for it"
        return step._replace(state=IMPOSSIBLE, detail=f"{what}: {where}; no consumer gets it")
    if queue is None:
        names = KnownNames.of(reader.files)
        if names.earlier_life()(slot.topic, message.physical_offset):
            state, is_missing, then = MISSING, "is missing", "no consumer gets it"
            if names.is_removed(slot.topic):
                why = "topics.json does not name the topic, which has no queue"
            elif names.may_be_lost(slot.topic):
                why = "the queue has no files: lost, or the topic was created again after the message"
                then = remade_by(reader.files, slot.topic)
            else:
                state, is_missing, why = SUPERSEDED, "is not there", "the topic was deleted after the message"
            return step._replace(state=state, detail=f"{name} {is_missing}: {why}; {then}")
        return step._replace(state=MISSING, detail=f"{name} is missing: the queue has no files; {_UNTIL}")
    read = partial(message_if_any, reader.files.log)
    later = superseding(queue, number, message.physical_offset, read)
    if later is not None:
        first = beginning(queue, read)
        is_deleted = first is not None and first.physical_offset > message.physical_offset
        why = "the topic was deleted and created again" if is_deleted else "its queue offset was given twice"
        if number >= queue.max_offset and not is_deleted:
            why = f"its queue offset {number} is beyond the end of the queue, {queue.max_offset}"
        now = f"{slot.topic} queue {slot.queue_id} has a later message, at physical offset {later}, instead"
        return step._replace(state=SUPERSEDED, detail=f"{why}: {now}; no consumer gets it")
    if number >= queue.max_offset:
        ends = f"the queue ends at {queue.max_offset}"
        return step._replace(state=MISSING, detail=f"{name} is not there: {ends}; {_UNTIL}")
    unit = queue.unit(number)
    if unit is None or not unit.is_written:
        return step._replace(state=MISSING, detail=f"{name} is empty or in no file; {_UNTIL}")
    if unit.physical_offset != message.physical_offset:
        at = f"{name} leads to physical offset {unit.physical_offset}, not to it"
        return step._replace(state=WRONG, detail=f"{at}; {_UNTIL}")
    return step


# ---- the index


def index_step(reader: StoreReader, message: StoredMessage) -> Step:
    """Whether key queries find it (IndexService#buildIndex)."""
    keys = index_keys(message)
    step = step_at(Stage.INDEX, THERE, "", message)._replace(timestamp=None)
    if not keys:
        return step._replace(state=NONE, detail="it has no key and no unique key, so no entry; only offsets find it")
    try:
        index = reader.files.index
    except UnreadableError as error:
        return step._replace(state=UNKNOWN, detail=f"the index cannot be read: {error}")
    if reader.files.has_keys_in_rocksdb_alone:
        return _rocksdb_step(reader, message, step)
    if not index.files and not index.problems:
        return step._replace(state=MISSING, detail="the store has no index: no key query finds it")
    damaged: list[CorruptError] = []
    lost = [
        key
        for key in keys
        if all(one.physical_offset != message.physical_offset for one in entries_of(index, message.topic, key, damaged))
    ]
    listed = ", ".join(repr(key) for key in lost)
    broken = [path for path, _ in index.problems if path.name.isdigit()]
    if lost and (damaged or broken):
        why = damaged[0] if damaged else f"{broken[0]} cannot be used"
        return step._replace(state=DAMAGED, detail=f"whether it is found by {listed} is not known: {why}")
    if lost:
        return step._replace(state=MISSING, detail=f"no entry leads to it by {listed}: key queries do not find it so")
    return step._replace(detail=f"entries lead to it by {', '.join(repr(key) for key in keys)}")


def _rocksdb_step(reader: StoreReader, message: StoredMessage, step: Step) -> Step:
    key = message.properties().get(names.UNIQUE_KEY)
    if not key:
        return step._replace(state=NONE, detail="it has no unique key, and the RocksDB index takes no message without")
    try:
        storage = reader.files.message_storage
        place = message.physical_offset, message.store_timestamp
        if storage is not None and storage.has(message.topic, key, *place):
            return step._replace(detail=f"entries of {storage.folder.name}/ lead to it")
    except CorruptError as error:
        return step._replace(state=DAMAGED, detail=f"whether it is found by its keys is not known: {error}")
    return step._replace(state=MISSING, detail="no entry of the RocksDB index leads to it: key queries do not find it")


# ---- the end


def expiry_step(reader: StoreReader, message: StoredMessage, now: int) -> Step:
    """When a broker removes the file that the message is in, by this configuration (DefaultMessageStore
    CleanCommitLogService): by age, oldest first, in the hour of deleteWhen; a full disk may make it sooner."""
    config = reader.files.config
    step = step_at(Stage.EXPIRY, UNKNOWN, "", message)._replace(timestamp=None)
    log = reader.files.log
    file = log.find(message.physical_offset)
    if file is None:
        return step._replace(detail="its file is gone by now")
    rule = f"fileReservedTime {config.file_reserved_time} h, deleteWhen {config.delete_when}"
    last = log.last_with_data()
    if last is not None and file.start_offset >= last.start_offset:
        return step._replace(state=LAST, detail=f"it is in the last file, which is never removed ({rule})")
    try:
        due = _due(log.files, file, config.file_reserved_time * _HOUR_MS)
    except OSError as error:
        return step._replace(detail=f"the age of its file cannot be read: {error}")
    try:
        removed = next_hour(max(due, now), config.delete_when)
    except UsageError as error:
        return step._replace(detail=error.message)
    if removed is None:
        return step._replace(detail=f"it goes only when the disk is full: deleteWhen names no hour ({rule})")
    if due <= now:
        is_time = removed == now
        going = "as soon as a broker runs" if is_time else f"when a broker runs at {format_time(removed)}"
        detail = f"it is due since {format_time(due)}, and goes {going} ({rule})"
        return step._replace(state=DUE, timestamp=due if is_time else removed, detail=detail)
    step = step._replace(timestamp=removed)
    detail = f"its file is kept for {lasting(due - now)} more, and goes at {format_time(removed)} at the earliest"
    return step._replace(state=KEPT, detail=f"{detail} ({rule}), or sooner if the disk is full")


def _due(files: list[MappedFile], file: MappedFile, reserved: int) -> int:
    """When the file and all before it are old enough, in ms (MappedFileQueue#deleteExpiredFileByTime)."""
    before = [one for one in files if one.start_offset <= file.start_offset]
    return max(os.stat(one.path).st_mtime_ns // 1_000_000 for one in before) + reserved


# Whether a group takes its messages by POP, and what the store says of one that was handed out to it. The offset of
# such a group is what was handed out, not what it is done with.

ACKNOWLEDGED = pop.ACKNOWLEDGED
POPPED = "popped"
IN_FLIGHT = pop.IN_FLIGHT
UNACKNOWLEDGED = "unacknowledged"
LOST = pop.LOST


class Popping:
    """All that the store says of POP, read when it is first asked for."""

    def __init__(
        self, reader: StoreReader, modes: Mapping[Any, Any], groups: set[str], reads_next: ReadsNext, now: int
    ) -> None:
        """`modes`: of messageRequestMode.json; `groups`: known by name; `now` in ms."""
        self._reader = reader
        self._modes = modes
        self._groups = groups
        self._state = pop.PopState(reader, now, reads_next)

    def evidence(self, group: str, topic: str) -> str | None:
        """What in the store shows that the group takes the topic by POP; None where nothing does."""
        by_group = self._modes.get(topic)
        mode = by_group.get(group) if isinstance(by_group, Mapping) else None
        if isinstance(mode, Mapping):  # the broker was told so (setConsumeMode)
            return "messageRequestMode.json says so" if mode.get("mode") == "POP" else None
        if topic.startswith(pop_retry_topics(group)):
            return "only POP has a retry topic for each topic"
        for retries in pop_retry_topics(group, topic):
            with contextlib.suppress(UsageError, UnsupportedError):
                # a group may bear that name
                is_group = retries.removeprefix(RETRY_PREFIX) in self._groups
                if not is_group and self._reader.files.queues.find(retries, 0) is not None:
                    return f"it has the retry topic {retries}"
        return "records of POP name it" if self._state.columns.is_any(group, topic) else None

    def said(self, group: str, topic: str, queue_id: int, queue_offset: int) -> tuple[str, str]:
        """Whether the group has acknowledged what was handed out to it, POPPED where that is not known, and why.

        An acknowledgement is of one handing out: who asks for more time acknowledges it, and is handed the message out
        again (ChangeInvisibleTimeProcessor).
        """
        every = self._state.of_message(group, topic, queue_id, queue_offset)
        still = [one for one in every if one.state != ACKNOWLEDGED]
        if still:
            return _said_of(max(still, key=lambda one: one.visible_timestamp))
        if every:
            return ACKNOWLEDGED, "and an acknowledgement of it is stored"
        if is_database(self._reader.files.root / KV_FOLDER):
            left = f"{KV_FOLDER}/ has no entry of it: acknowledged, or to come again as a retry"
            if self._state.is_of_last_pop(group, topic, queue_id, queue_offset):
                left += "; a restart hands it out again with the last pop of the queue"
            return POPPED, f"and {left}"
        return POPPED, "and no checkpoint that is left names it: acknowledged, or to come again as a retry"

    def said_in_order(self, group: str, topic: str, queue_id: int, queue_offset: int) -> tuple[str, str] | None:
        """Return what consumerOrderInfo.json says of a message of the queue's last ordered pop, as `said` does; None
        for any other message. Such a pop has no checkpoint, and the group's offset moves with the acknowledgements
        (ConsumerOrderInfoManager)."""
        one = self._state.of_ordered(group, topic, queue_id, queue_offset)
        if one is None:
            return None
        if one.state == ACKNOWLEDGED:
            return ACKNOWLEDGED, f"and {one.record} says that it is acknowledged"
        until = f"in flight until {format_time(one.visible_timestamp)}, attempt {one.attempt}"
        if one.state == IN_FLIGHT:
            return IN_FLIGHT, f"{one.record} says that it is {until}"
        return UNACKNOWLEDGED, f"{one.record} says that it was {until}, not acknowledged"

    def why_again(self, group: str, before: StoredMessage | None, copy: StoredMessage) -> str | None:
        """Return why POP handed a message out again as `copy`, which was `before` then; None for what is not of POP."""
        since = due_time(copy.properties().get(FIRST_POP_TIME, ""))
        if since is None:
            return None
        if before is None:
            return f"it was not acknowledged in time, first handed out at {format_time(since)}"
        place = Handed(group, before.topic, before.queue_id, before.queue_offset)
        waiting = [one.popped_timestamp for one in self._state.of_message(*place)]
        return why_again(self._reader, place, since, copy.store_timestamp, waiting)


def _said_of(one: PopMessage) -> tuple[str, str]:
    """What is said of a message that was handed out and not acknowledged."""
    attempt = "" if one.attempt is None else f", attempt {one.attempt}"
    until = f"{format_time(one.visible_timestamp)}{attempt}"
    if one.state == LOST:
        return LOST, f"{one.record} said that it is in flight until {until}, and {one.detail}: it never comes again"
    if one.state == IN_FLIGHT:
        said = f"{one.record} says that it is in flight until {until}, and no acknowledgement is stored"
    else:
        what = (
            "the broker drops it" if one.next_topic is None else f"the broker makes a retry of it in {one.next_topic}"
        )
        said = f"{one.record} says until {until}, no acknowledgement is stored, and {what}"
    return IN_FLIGHT if one.state == IN_FLIGHT else UNACKNOWLEDGED, "; ".join(filter(None, (said, one.detail)))
