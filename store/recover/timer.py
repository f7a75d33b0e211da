"""Rebuild wheel, timer log and checkpoint from the messages of the timer's queue: `rmqctl rebuild --timer`.

A message waits unless a later frame in its topic has its key and time (delivered), a later message of the timer has
them and was rolled (stored once more), or a recall names them. What the files of the timer say does not count.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import java_hash
from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.layout import is_database
from rmqctl.store.journal.change import changing
from rmqctl.store.options import ChangeOptions, Events
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.filter import Criteria, TopicFilter, is_pattern
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Selection
from rmqctl.store.recover.timer_files import WAITING, NewTimer, WaitingRows, last_unit, plan_timer
from rmqctl.store.rocksdb.database import Database
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.recovered import due_time
from rmqctl.store.timer.wheel import (
    PRECISION_MS,
    TimerCheckpoint,
    known_log_file_size,
    log_file_size,
    read_timer_checkpoint,
)

_CHUNK = 65_536
_MESSAGE, _ROLLED, _COPY = 0, 1, 2


class TimerTopic(NamedTuple):
    """What the timer holds for one topic. `due_already`: those of `waiting` whose time has passed."""

    topic: str
    waiting: int = 0
    due_already: int = 0
    delivered: int = 0
    recalled: int = 0
    first_due_timestamp: int | None = None


@dataclass(slots=True)
class TimerReport:
    """What a rebuild of the timer found and made. `messages` of the timer's queue: those that wait, were delivered,
    recalled or rolled (stored once more), the `recalls` themselves, and `unreadable` ones.

    `uncertain`: waiting messages that are due already, whose delivered copy damage later in the log may hide: a broker
    may deliver them twice. `is_size_assumed`: neither configuration nor files say how large the files of the timer log
    are, and a broker starts only with those that have its mappedFileSizeTimerLog. `journal` is the folder with the old
    files, `operations` the plan.
    """

    messages: int = 0
    waiting: int = 0
    due_already: int = 0
    delivered: int = 0
    recalled: int = 0
    rolled: int = 0
    recalls: int = 0
    unreadable: int = 0
    uncertain: int = 0
    log_file_size: int = 0
    is_size_assumed: bool = False
    journal: str | None = None
    dry_run: bool = False
    topics: list[dict[str, Any]] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)


class _Timed:
    """The messages of the timer's queue, in columns: a million of them take 60 MB."""

    def __init__(self) -> None:
        self.places, self.outs, self.identities = array("q"), array("q"), array("q")
        self.keys, self.old_keys = array("q"), array("q")
        self.sizes, self.topics, self.kinds = array("i"), array("i"), array("b")
        self.copy_places, self.copy_identities = array("q"), array("q")
        self.recalls: set[int] = set()
        self.numbers: dict[str, int] = {}

    def take(self, message: StoredMessage) -> bool:
        """Take a message; False for a recall. CorruptError for one without a time or a topic."""
        properties = message.properties()
        out, topic = due_time(properties.get(names.TIMER_OUT_MS, "")), properties.get(names.REAL_TOPIC)
        if out is None or topic is None:
            raise CorruptError(
                f"the message at {message.physical_offset} of {TIMER_TOPIC} names no time or no topic",
                physical_offset=message.physical_offset,
            )
        recalled = properties.get(names.TIMER_DELETE_UNIQUE_KEY)
        if recalled is not None:
            self.recalls.add(hash((recalled, out)))
            return False
        key = properties.get(names.UNIQUE_KEY, "")
        self.places.append(message.physical_offset)
        self.sizes.append(message.total_size)
        self.outs.append(out)
        self.topics.append(self.numbers.setdefault(topic, len(self.numbers)))
        self.identities.append(_identity(message, topic, key, out))
        self.kinds.append(_ROLLED if names.TIMER_ROLL_TIMES in properties else _MESSAGE)
        self.keys.append(hash((key, out)))
        # RocketMQ 5.3.3
        self.old_keys.append(hash((f"{topic}+{key}", out)))
        return True

    def take_copy(self, message: StoredMessage) -> None:
        """Take a message of a topic that messages wait for, if the timer delivered it."""
        properties = message.properties()
        out = due_time(properties.get(names.TIMER_OUT_MS, ""))
        if out is not None:
            key = properties.get(names.UNIQUE_KEY, "")
            self.copy_places.append(message.physical_offset)
            self.copy_identities.append(_identity(message, message.topic, key, out))

    def outcomes(self) -> tuple[Bools, Bools, Bools]:
        """Return which messages were delivered, which rolled, which recalled; of each at most one."""
        count = len(self.places)
        places = np.concatenate([np.frombuffer(self.places, np.int64), np.frombuffer(self.copy_places, np.int64)])
        identities = np.concatenate(
            [np.frombuffer(self.identities, np.int64), np.frombuffer(self.copy_identities, np.int64)]
        )
        kinds = np.full(len(places), _COPY, np.int8)
        kinds[:count] = np.frombuffer(self.kinds, np.int8)
        order = np.lexsort((places, identities))
        delivered, rolled = np.zeros(count, bool), np.zeros(count, bool)
        before: int | None = None
        waiting: list[int] = []
        for begin in range(0, len(order), _CHUNK):
            numbers = order[begin : begin + _CHUNK]
            rows = zip(numbers.tolist(), identities[numbers].tolist(), kinds[numbers].tolist(), strict=True)
            for number, identity, kind in rows:
                if identity != before:
                    before, waiting = identity, []
                if kind != _MESSAGE and waiting:
                    (delivered if kind == _COPY else rolled)[waiting.pop(0)] = True
                if kind != _COPY:
                    waiting.append(number)
        recalls = np.fromiter(self.recalls, np.int64, len(self.recalls))
        keys = np.frombuffer(self.keys, np.int64), np.frombuffer(self.old_keys, np.int64)
        recalled = np.isin(keys[0], recalls) | np.isin(keys[1], recalls)
        return delivered, rolled, recalled & ~delivered & ~rolled


Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]


def _identity(message: StoredMessage, topic: str, key: str, out: int) -> int:
    """Return what a message and its delivered copy have in common, as a number."""
    if key:
        return hash((topic, key, out))
    return hash((topic, message.born_timestamp, message.body_crc, out))


def rebuild_timer(files: StoreFiles, change: ChangeOptions, *, now: int) -> TimerReport:
    """Rebuild the timer of the store opened as `files`, which is stale afterwards: open it again.

    `now` (ms): the time from which on a broker delivers; what is due before is delivered at its start.
    NotFoundError without messages in the timer's queue, StoreInUseError; RefusedError for a queue whose end is damaged,
    and where RocksDB holds what waits.
    """

    def ends(head: dict[str, Any]) -> bool:
        return head.get("verb") == "rebuild" and head.get("arguments") == change.command_line

    with changing(files, "rebuild", change, ends) as planned:
        store = planned.files
        queue = store.queues.find(TIMER_TOPIC, 0)
        if queue is None or queue.max_offset <= queue.min_offset(store.log.min_offset):
            raise NotFoundError(
                f"the queue of {TIMER_TOPIC} has no messages", hint=f"`rmqctl rebuild --queues -t {TIMER_TOPIC}`"
            )
        _refuse_rocksdb(store.layout.root / "rocksdbstore")
        last = last_unit(queue)
        report = TimerReport(dry_run=planned.is_dry)
        waiting = _read(store, queue, now, report, change.events)
        read_time = now - now % PRECISION_MS
        report.log_file_size = log_file_size(store.layout, store.config)
        report.is_size_assumed = known_log_file_size(store.layout, store.config) is None
        new = NewTimer(waiting, last, read_time, report.log_file_size)
        checkpoint = _known(store)._replace(
            last_read_time_ms=read_time,
            last_timer_queue_offset=queue.max_offset,
            master_timer_queue_offset=queue.max_offset,
        )
        counts = {row["topic"]: row["waiting"] for row in report.topics if row["waiting"]}
        plan_timer(store.layout, planned.plan, planned.staging, new, checkpoint, counts)
        report.operations = planned.rows()
    report.journal = planned.kept_in
    return report


def _refuse_rocksdb(folder: Path) -> None:
    """Raise RefusedError where the timer of 5.5.0 keeps what waits in RocksDB (timerRocksDBEnable): it delivers these,
    and would deliver what is on a wheel as well. CorruptError where that cannot be read."""
    if not is_database(folder):
        return
    # keys of messages begin with the time when they are due, those of checkpoints with a letter
    if next(Database(folder).scan("timer", begin=b"\0", end=b"\1"), None) is not None:
        raise RefusedError(
            "timed messages wait in this RocksDB: with a wheel a broker delivers them twice",
            file=folder,
            hint="a broker with timerRocksDBEnable=true delivers them; without it, move this directory away first",
        )


def _known(files: StoreFiles) -> TimerCheckpoint:
    """Return the checkpoint that is there, for its version; an empty one where it is damaged."""
    try:
        return read_timer_checkpoint(files.layout.config, empty_as_missing=True)
    except CorruptError:
        return TimerCheckpoint()


def _read(files: StoreFiles, queue: AnyConsumeQueue, now: int, report: TimerReport, events: Events) -> WaitingRows:
    """Return what waits, in the order of the queue, and count everything in `report`."""
    timed = _Timed()
    reader = StoreReader(files, Events(damage=lambda error: None))
    view = reader.view_without_ext(queue)
    for unit in queue.units(queue.min_offset(files.log.min_offset), queue.max_offset):
        report.messages += 1
        try:
            report.recalls += not timed.take(view.message_of(unit))
        except (CorruptError, NotFoundError):
            report.unreadable += 1
    last_damage = -1

    def note(error: CorruptError) -> None:
        nonlocal last_damage
        place = files.log.max_offset if error.physical_offset is None else error.physical_offset
        last_damage = max(last_damage, place)

    # a damaged topic may look like a pattern
    topics = TopicFilter(() if any(map(is_pattern, timed.numbers)) else sorted(timed.numbers))
    chosen = Selection(Criteria(topics), begin=min(timed.places, default=files.log.max_offset))
    for message in reader.telling(Events(events.progress, note)).messages(chosen):
        if message.topic in timed.numbers:
            timed.take_copy(message)
    delivered, rolled, recalled = timed.outcomes()
    waits = ~(delivered | rolled | recalled)
    outs, places = np.frombuffer(timed.outs, np.int64), np.frombuffer(timed.places, np.int64)
    is_due = waits & (outs < now)
    report.waiting, report.due_already = int(waits.sum()), int(is_due.sum())
    report.delivered, report.rolled, report.recalled = int(delivered.sum()), int(rolled.sum()), int(recalled.sum())
    report.uncertain = int(np.count_nonzero(is_due & (places < last_damage)))
    numbers = np.frombuffer(timed.topics, np.int32)
    counts = [Counter(numbers[chosen].tolist()) for chosen in (waits, is_due, delivered, recalled)]
    hashes = np.zeros(len(timed.numbers), np.int32)
    for topic, number in sorted(timed.numbers.items()):
        hashes[number] = java_hash(topic)
        mine = outs[waits & (numbers == number)]
        waiting, due, copied, taken_back = (count[number] for count in counts)
        first = int(mine.min()) if len(mine) else None
        report.topics.append(TimerTopic(topic, waiting, due, copied, taken_back, first)._asdict())
    rows = np.zeros(report.waiting, WAITING)
    rows["out"], rows["physical_offset"] = outs[waits], places[waits]
    rows["size"] = np.frombuffer(timed.sizes, np.int32)[waits]
    rows["topic_hash"] = hashes[numbers[waits]]
    return rows
