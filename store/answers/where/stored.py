"""Where a message lies: its frame in the log, its slot in the queue, its entries in the index, and when it goes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, UnreadableError, UnsupportedError
from rmqctl.formats.message import StoredMessage, unread_body
from rmqctl.formats.sys_flag import has_queue_slot
from rmqctl.formats.wording import counted, format_time, lasting
from rmqctl.store.answers.where.steps import Stage, Step, step_at
from rmqctl.store.commitlog.one_message import message_if_any
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.store.queues.dispatch import QueueSlot, highest_plausible, index_keys, queue_slots
from rmqctl.store.queues.earlier_life import beginning, superseding
from rmqctl.store.read.key_query import entries_of
from rmqctl.store.read.reader import StoreReader

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
EXPIRED = "expired"
_HOUR_MS = 3_600_000
_DAY = timedelta(days=1)


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
    try:
        queue = reader.files.queues.find(message.topic, message.queue_id)
    except UnsupportedError as error:
        yield step_at(Stage.QUEUE, UNKNOWN, str(error), message)
        return
    is_batch = queue is not None and not isinstance(queue, ConsumeQueue)
    for slot in queue_slots(message, reader.files.config.delay_levels(), is_batch):
        yield _slot_step(reader, message, slot)


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
        return step._replace(state=MISSING, detail=f"{name} is missing: the queue has no files; no consumer gets it")
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
        return step._replace(state=MISSING, detail=f"{name} is not there: {ends}; no consumer gets it")
    unit = queue.unit(number)
    if unit is None or not unit.is_written:
        return step._replace(state=MISSING, detail=f"{name} is empty or in no file; no consumer gets it")
    if unit.physical_offset != message.physical_offset:
        at = f"{name} leads to physical offset {unit.physical_offset}, not to it"
        return step._replace(state=WRONG, detail=f"{at}; no consumer gets it")
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
    removed = _next_hour(max(due, now), config.delete_when)
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


def _next_hour(moment: int, delete_when: str) -> int:
    """The first moment, ms, from `moment` on that lies in an hour of deleteWhen, by this machine's time of day."""
    hours = sorted({int(part) for part in delete_when.split(";") if part.strip().isdigit() and int(part) < 24})
    start = datetime.fromtimestamp(moment / 1000).astimezone()
    if not hours or start.hour in hours:
        return moment
    day = start.replace(minute=0, second=0, microsecond=0)
    candidates = (day.replace(hour=hour) + days for days in (timedelta(0), _DAY) for hour in hours)
    return min(round(one.timestamp() * 1000) for one in candidates if one > start)
