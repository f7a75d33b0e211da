"""Where a message lies: its frame in the log, its slot in the queue, its entries in the index, and when it goes."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import parse_long
from rmqctl.formats.errors import (
    CorruptError,
    NotFoundError,
    RmqctlError,
    UnreadableError,
    UnsupportedError,
    UsageError,
    counted,
    format_time,
    lasting,
)
from rmqctl.formats.message import StoredMessage, unread_body
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.answers.config_offsets import KnownNames, table_in
from rmqctl.store.answers.dead_letters import RETRY_PREFIX, pop_retry_topics
from rmqctl.store.answers.delays import waiting_for
from rmqctl.store.answers.steps import Stage, Step, step_at
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.reading import exists
from rmqctl.store.log.walk import message_if_any
from rmqctl.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.store.queues.dispatch import QueueSlot, highest_plausible, index_keys, queue_slots
from rmqctl.store.queues.queue_table import beginning, superseding
from rmqctl.store.read.query import entries_of
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
    except CorruptError as error:
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
        names = KnownNames.of(reader.files)
        if not names.is_removed(slot.topic) and names.earlier_life()(slot.topic, message.physical_offset):
            why = "the topic was created after it, or changed since, and the queue has no files"
            return step._replace(state=SUPERSEDED, detail=f"{name} is not there: {why}; no consumer gets it")
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


# Whether a group takes its messages by POP, and what the store says of one that was handed out to it.
#
# The offset of such a group is what was handed out, not what it is done with. A broker settles most of that in its
# memory; what it writes down are checkpoints (what was handed out) and acknowledgements, in rmq_sys_REVIVE_LOG_*, to
# which the checkpoints come by way of the timer (PopBufferMergeService, PopReviveService). Those behind the offset of
# the revive group are not settled: it is the last record that is, where those of other groups are the next to read.

REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
_ORDER_FILE = "consumerOrderInfo.json"
_KV_FOLDER = "kvStore"
_CHECKPOINT, _ACK, _BATCH_ACK = "ck", "ack", "bAck"

# the number of messages in a PopCheckPoint is a byte of Java's
_MOST_AT_ONCE = 127
# names that fields had before they were shortened (AckMsg, BatchAckMsg, PopCheckPoint); Java reads both
_LONG_NAMES = {
    "aol": "ackOffsetList",
    "ao": "ackOffset",
    "so": "startOffset",
    "c": "consumerGroup",
    "t": "topic",
    "q": "queueId",
    "pt": "popTime",
    "it": "invisibleTime",
    "bm": "bitMap",
    "n": "num",
    "d": "queueOffsetDiff",
}
_REQUIRED = object()

ACKNOWLEDGED = "acknowledged"
POPPED = "popped"
IN_FLIGHT = "in-flight"
UNACKNOWLEDGED = "unacknowledged"

ReadsNext = Callable[[str, str, int], int | None]
"""What a group (first) reads next in a topic's queue; None where that is not kept."""


class _Popped(NamedTuple):
    """What was handed out at once (PopCheckPoint): queue offsets of a topic's queue, from when until when (ms), and
    where that is written."""

    group: str
    topic: str
    queue_id: int
    offsets: frozenset[int]
    popped_at: int
    visible_again: int
    place: str

    def hands_out(self, group: str, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether that message is among them."""
        return (self.group, self.topic, self.queue_id) == (group, topic, queue_id) and queue_offset in self.offsets


class Popping:
    """All that the store says of POP, read when it is first asked for."""

    def __init__(
        self, reader: StoreReader, modes: Mapping[Any, Any], groups: set[str], reads_next: ReadsNext, now: int
    ) -> None:
        """`modes`: of messageRequestMode.json; `groups`: known by name; `now` in ms."""
        self._reader = reader
        self._modes = modes
        self._groups = groups
        self._reads_next = reads_next
        self._now = now
        self._ordered: Mapping[Any, Any] | None = None
        self._popped: list[_Popped] | None = None
        # by group, topic, queue id and queue offset: when what is acknowledged was handed out
        self._acknowledged: dict[tuple[str, str, int, int], set[int]] = {}

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
        for popped in self._all():
            if (popped.group, popped.topic) == (group, topic):
                return f"{popped.place} is a checkpoint of it"
        return None

    def said(self, group: str, topic: str, queue_id: int, queue_offset: int) -> tuple[str, str]:
        """Whether the group has acknowledged what was handed out to it, POPPED where that is not known, and why.

        An acknowledgement is of one handing out: who asks for more time acknowledges it, and is handed the message out
        anew (ChangeInvisibleTimeProcessor).
        """
        place = (group, topic, queue_id, queue_offset)
        every = [one for one in self._all() if one.hands_out(*place)]
        acknowledged = self._acknowledged.get(place, set())
        still = [one for one in every if one.popped_at not in acknowledged]
        if still:
            last = max(still, key=lambda one: one.visible_again)
            until = format_time(last.visible_again)
            if last.visible_again > self._now:
                said = f"{last.place} says that it is in flight until {until}, and no acknowledgement is stored"
                return IN_FLIGHT, said
            said = f"{last.place} says until {until}, no acknowledgement is stored, and the broker makes a retry of it"
            return UNACKNOWLEDGED, said
        if acknowledged:
            return ACKNOWLEDGED, "and an acknowledgement of it is stored"
        if exists(self._reader.files.root / _KV_FOLDER):
            return POPPED, f"and {_KV_FOLDER}/, a RocksDB that is not read, may keep whether it is acknowledged"
        return POPPED, "and no checkpoint that is left names it: acknowledged, or to come again as a retry"

    def said_in_order(self, group: str, topic: str, queue_id: int, queue_offset: int) -> tuple[str, str] | None:
        """Return what consumerOrderInfo.json says of a message of the queue's last ordered pop, as `said` does; None
        for any other message. Such a pop has no checkpoint, and the group's offset moves with the acknowledgements
        (ConsumerOrderInfoManager)."""
        if self._ordered is None:
            self._ordered = self._order_info()
        by_queue = self._ordered.get(f"{topic}@{group}")
        last = by_queue.get(queue_id) if isinstance(by_queue, Mapping) else None
        if last is None:
            return None
        try:
            first, *distances = (_long(number) for number in last["o"])
            number = [first, *(first + distance for distance in distances)].index(queue_offset)
            until = _long((last.get("ot") or {}).get(queue_offset, _long(last["popTime"]) + _long(last["i"])))
            acknowledged = _long(last.get("cm") or 0) >> number & 1
        except (ValueError, TypeError, KeyError, AttributeError):  # another message, or nothing of a broker's
            return None
        if acknowledged:
            return ACKNOWLEDGED, f"and {_ORDER_FILE} says that it is acknowledged"
        if until > self._now:
            return IN_FLIGHT, f"{_ORDER_FILE} says that it is in flight until {format_time(until)}"
        return UNACKNOWLEDGED, f"{_ORDER_FILE} says that it was in flight until {format_time(until)}, not acknowledged"

    def _order_info(self) -> Mapping[Any, Any]:
        path = self._reader.files.layout.config / _ORDER_FILE
        return table_in(path, "table", self._reader.events._replace(note=None)) or {}

    def _all(self) -> list[_Popped]:
        if self._popped is None:
            self._popped = []
            for message in self._unsettled():
                try:
                    self._take(message)
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError, RmqctlError):
                    where = f"{message.topic} {message.queue_id} {message.queue_offset}"
                    said = f"{where} is no checkpoint and no acknowledgement of POP"
                    self._reader.events.damaged(CorruptError(said, physical_offset=message.physical_offset))
        return self._popped

    def _unsettled(self) -> Iterator[StoredMessage]:
        try:
            queues = self._reader.files.queues.of_topics(lambda topic: topic.startswith(REVIVE_PREFIX))
        except CorruptError:  # of a RocksDB
            return
        if not queues:
            return
        for queue in queues:
            begin = queue.min_offset(self._reader.files.log.min_offset)
            settled = self._reads_next(REVIVE_GROUP, queue.topic, queue.queue_id)
            reached = 0 if settled is None else settled + 1
            view = self._reader.view_without_ext(queue)
            for unit in queue.units(max(begin, reached), queue.max_offset):
                try:
                    yield view.message_of(unit)
                except NotFoundError:  # removed by a cleaner while we looked
                    continue
                except CorruptError as error:
                    self._reader.events.damaged(error)
        yield from waiting_for(self._reader, lambda topic: topic.startswith(REVIVE_PREFIX))

    def _take(self, message: StoredMessage) -> None:
        kind = message.properties().get(names.TAGS)
        if kind not in (_CHECKPOINT, _ACK, _BATCH_ACK):
            return
        body = json.loads(message.plain_body())
        group, topic, queue_id = str(_field(body, "c")), str(_field(body, "t")), int(_field(body, "q"))
        popped_at = int(_field(body, "pt"))
        if kind != _CHECKPOINT:
            for offset in _field(body, "aol") if kind == _BATCH_ACK else [_field(body, "ao")]:
                place = (group, topic, queue_id, int(offset))
                self._acknowledged.setdefault(place, set()).add(popped_at)
            return
        start, count, settled = int(_field(body, "so")), int(_field(body, "n")), int(_field(body, "bm", 0))
        if not 0 <= count <= _MOST_AT_ONCE:
            raise ValueError(count)
        steps = _field(body, "d", None) or range(count)
        assert self._popped is not None
        written = f"{message.topic} {message.queue_id} {message.queue_offset}"
        visible_again = popped_at + int(_field(body, "it"))
        handed = [start + int(step) for step in steps]
        for number, offset in enumerate(handed):
            if settled >> number & 1:  # acknowledged in memory before the checkpoint was stored
                self._acknowledged.setdefault((group, topic, queue_id, offset), set()).add(popped_at)
        self._popped.append(_Popped(group, topic, queue_id, frozenset(handed), popped_at, visible_again, written))


def _field(body: Mapping[str, Any], name: str, missing: Any = _REQUIRED) -> Any:
    """Return the field `name` of a record of POP, which may have its old long name. KeyError where it is required."""
    value = body.get(name, body.get(_LONG_NAMES[name], missing))
    if value is _REQUIRED:
        raise KeyError(name)
    return value


def _long(value: Any) -> int:
    """Return a number in a file of fastjson's, which takes it in quotes as well. ValueError for anything else."""
    number = parse_long(value.replace(",", "")) if isinstance(value, str) else int(value)
    if number is None:
        raise ValueError(f"{value!r} is no long")
    return number
