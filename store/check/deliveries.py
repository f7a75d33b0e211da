"""Messages that a broker is to deliver later or again: the timer's files and the records of POP against the log."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.checksums import parse_long
from rmqctl.formats.errors import CorruptError, UnreadableError, counted
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.config import QueueDoubts
from rmqctl.store.check.cross import Level, LogSeen
from rmqctl.store.files.reading import exists, is_file
from rmqctl.store.log.columns import distinct
from rmqctl.store.options import UNHEARD, Events
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
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.pending import PendingTimer, TimedRows, pending_messages
from rmqctl.store.timer.recovered import RecoveredTimer, recover_timer
from rmqctl.store.timer.wheel import CHECKPOINT_FILE, LOG_FOLDER, METRICS_FILE, UNIT_SIZE, WHEEL_FILE, timer_counts


def timer_findings(files: StoreFiles, seen: LogSeen, doubts: QueueDoubts) -> Iterator[Finding]:
    """Yield what is wrong with the timer. Nothing of queues in a RocksDB, nor of a store that is written to: wheel and
    checkpoint are up to a second old there. Where the end of the timer's queue is in doubt, only damage of files."""
    try:
        listed = files.queues.of_topics(TIMER_TOPIC.__eq__)
    except CorruptError:
        return
    queue = next((one for one in listed if one.queue_id == 0), None)
    reader = StoreReader(files, UNHEARD)
    path = files.layout.config / CHECKPOINT_FILE
    try:
        timer = recover_timer(reader, queue)
    except CorruptError as error:
        # what was delivered is not known: that is for a person
        yield Finding("RMQ-TMR-004", error.message, path, data_lost=None, fix="")
        return
    except UnreadableError as error:
        file = Path(str(error.file))
        if file.parent == files.layout.root / LOG_FOLDER:  # of others it is a finding of the files
            yield Finding("RMQ-FILE-006" if is_file(file) else "RMQ-FILE-007", error.message, file, data_lost=None)
        return
    if seen.is_live or not timer.has_run or (not timer.has_files and timer.queue_end <= timer.queue_begin):
        return
    is_doubtful = doubts.has(TIMER_TOPIC, 0, queue)
    fix = None if timer.has_checkpoint and not is_doubtful else ""
    for damage in timer.damage:
        place = None if damage.file is None else files.path_of(str(damage.file))
        if place is not None and not is_file(place) and place.name == WHEEL_FILE:
            continue  # a finding of the files
        yield Finding("RMQ-TMR-004", damage.message, place, topic=TIMER_TOPIC, fix=fix)
    if not timer.has_checkpoint and (len(timer.known) or not timer.has_files):
        count = timer.queue_end - timer.queue_begin
        state = "empty" if exists(path) else "missing"
        text = f"{state}: a broker puts all {counted(count, 'message')} of the timer's queue on the wheel again"
        yield Finding("RMQ-TMR-004", text, path, topic=TIMER_TOPIC, messages=count, data_lost=True, fix="")
    yield from _wheel(files, timer)
    if timer.has_checkpoint:
        yield from _read_ahead(files, path, timer)
    if fix is None:
        yield from _positions(files, seen, timer)
        if seen.level is not Level.QUICK:
            # damaged messages are findings of the log
            pending = pending_messages(reader, queue, timer)
            if not pending.damaged:
                seen.timer = pending
            places = timer.units["physical_offset"]
            foreign = pending.foreign - len(distinct(places[places >= seen.log_end]))
            yield from _messages(files, pending, foreign)
            # after a cut log counts are of the messages that are gone: what is said of them says it
            if foreign <= 0 and not len(timer.known[timer.known >= seen.log_end]):
                yield from _counts(files, timer, pending)


def _wheel(files: StoreFiles, timer: RecoveredTimer) -> Iterator[Finding]:
    """Yield an empty wheel beside units of the timer log. Without a wheel `repair` leaves the timer, as a broker makes
    it of the log."""
    path = files.layout.root / WHEEL_FILE
    is_empty = timer.wheel is not None and timer.wheel.path == path and is_file(path) and not path.stat().st_size
    if len(timer.known) and is_empty:
        units = counted(len(timer.known), "unit")
        text = f"empty: a broker makes it again from the last two files of the timer log, which has {units}"
        yield Finding("RMQ-TMR-050", text, path, topic=TIMER_TOPIC)


def _read_ahead(files: StoreFiles, path: Path, timer: RecoveredTimer) -> Iterator[Finding]:
    """Yield a checkpoint that says to have delivered what is not due yet."""
    now = timer.latest_ms
    read_time = timer.checkpoint.last_read_time_ms
    if timer.is_read_ahead and now is not None:
        text = (
            f"it says that messages due before {read_time} ms are delivered, which is later than now ({now} ms): no "
            "broker delivers those due in between"
        )
        yield Finding("RMQ-TMR-051", text, path, topic=TIMER_TOPIC, expected=now, found=read_time, fix="")


def _positions(files: StoreFiles, seen: LogSeen, timer: RecoveredTimer) -> Iterator[Finding]:
    # the master's offset may be past the end on a slave, and a broker takes the smaller one
    taken = timer.checkpoint.last_timer_queue_offset
    if taken > timer.queue_end:
        yield Finding(
            "RMQ-TMR-001",
            f"the timer is at {taken}, its queue ends at {timer.queue_end}",
            files.layout.config / CHECKPOINT_FILE,
            topic=TIMER_TOPIC,
            queue_id=0,
            expected=timer.queue_end,
            found=taken,
            messages=taken - timer.queue_end,
        )
    past = timer.known[timer.known >= seen.log_end]
    folder = files.layout.root / LOG_FOLDER
    if len(past):
        text = f"{counted(len(past), 'unit')} of the timer log {_lead(len(past))} past the end {seen.log_end}"
        yield Finding("RMQ-TMR-002", text, folder, int(past.min()), TIMER_TOPIC, messages=len(past))
    # a broker that puts messages on the wheel writes the units there that a torn log has lost
    filled = timer.log_end + (timer.queue_end - timer.queue_offset) * UNIT_SIZE
    broken = [position for position in timer.broken if not timer.log_end <= position < filled]
    if broken:
        text = f"{counted(len(broken), 'slot')} of the wheel {_lead(len(broken))} to no unit of the timer log"
        yield Finding("RMQ-TMR-002", text, folder, topic=TIMER_TOPIC, data_lost=None)


def _messages(files: StoreFiles, pending: PendingTimer, foreign: int) -> Iterator[Finding]:
    path = files.layout.root / LOG_FOLDER
    if foreign > 0:
        text = f"{counted(foreign, 'unit')} of the timer log {_lead(foreign)} to no message of the timer"
        yield Finding("RMQ-TMR-002", text, path, topic=TIMER_TOPIC, messages=foreign)
    lost, twice = pending.lost, pending.twice
    if len(lost):
        text = f"no broker delivers {counted(len(lost), 'message')} for {_topics(pending, lost)}"
        yield _of_messages("RMQ-TMR-003", text, files, lost)
    if len(twice):
        text = f"a broker delivers {counted(len(twice), 'message')} for {_topics(pending, twice)} twice"
        yield _of_messages("RMQ-TMR-005", text, files, twice)
    if pending.old_recalls:
        text = f"{counted(pending.old_recalls, 'waiting message')} taken back by a recall in the form of 5.3.3"
        yield Finding("RMQ-TMR-006", text, path, topic=TIMER_TOPIC, messages=pending.old_recalls)


def _counts(files: StoreFiles, timer: RecoveredTimer, pending: PendingTimer) -> Iterator[Finding]:
    """Yield counts of timermetrics that fit no moment of this timer: of what is on the wheel, to what waits at all."""
    counts = timer_counts(files.layout.config)
    if counts is None or timer.storage is not None:  # 5.5.0 takes nothing off for what it delivers from a RocksDB
        return
    waiting, on_wheel = pending.by_topic(), pending.by_topic(pending.rows["topic"][pending.rows["on_wheel"]])
    wrong = [
        f"{topic} {counts.get(topic, 0)} instead of {waiting.get(topic, 0)}"
        for topic in sorted({*counts, *waiting})
        if not on_wheel.get(topic, 0) <= counts.get(topic, 0) <= waiting.get(topic, 0)
    ]
    if wrong:
        more = f" and {counted(len(wrong) - 1, 'other topic')}" if len(wrong) > 1 else ""
        yield Finding("RMQ-TMR-052", f"waiting by it: {wrong[0]}{more}", files.layout.config / METRICS_FILE)


def _of_messages(code: str, text: str, files: StoreFiles, messages: TimedRows) -> Finding:
    return Finding(code, text, files.layout.root / LOG_FOLDER, topic=TIMER_TOPIC, queue_id=0, messages=len(messages))


def _lead(count: int) -> str:
    return "leads" if count == 1 else "lead"


def _topics(pending: PendingTimer, messages: TimedRows) -> str:
    topics = sorted(pending.by_topic(messages["topic"]))
    more = f" and {counted(len(topics) - 1, 'other topic')}" if len(topics) > 1 else ""
    return topics[0] + more


# Records of POP: those that brokers cannot use, and what becomes of the messages that were handed out.


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
    state = PopState(reader, 0, look=found.look, timer=seen.take_timer)
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
