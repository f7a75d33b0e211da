"""What the cross check of the queues found, as findings: one for each queue and kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path

from rmqctl.formats.errors import counted
from rmqctl.formats.message import Reason
from rmqctl.store.answers.config_offsets import KnownNames
from rmqctl.store.answers.undispatched import lost_queues
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.cross import WHOLE, Level, LogSeen, TalliedRun
from rmqctl.store.check.queue_look import QueueLook, UnitLook, UnitVerdict, live_tally
from rmqctl.store.check.rocksdb import in_rocksdb, light_queues
from rmqctl.store.clean.plan import Because, judge_queue
from rmqctl.store.compare.lives import Stretch, Stretches
from rmqctl.store.compare.queues import QueuesComparison, QueuesTally, QueueTally, SlotState, cut_off
from rmqctl.store.log.columns import Int64s
from rmqctl.store.log.implied import Run, read_units
from rmqctl.store.log.walk import message_if_any
from rmqctl.store.queues.consumequeue import UNIT_SIZE, BatchConsumeQueue, ConsumeQueue, QueueKey, QueueUnit
from rmqctl.store.queues.dispatch import queue_slots
from rmqctl.store.queues.queue_table import AnyConsumeQueue, has_units, is_in_rocksdb_alone, rocksdb_folder
from rmqctl.store.queues.rocksdb_queues import RocksdbQueues
from rmqctl.store.store_files import StoreFiles

_IMPLAUSIBLE = "RMQ-CQ-018"
# code, and what is said of one and of several
_STATES: dict[SlotState, tuple[str, str, str]] = {
    SlotState.PLACEHOLDER: (
        "RMQ-CQ-013",
        "message of the log has a filler unit in its slot",
        "messages of the log have a filler unit in their slots",
    ),
    SlotState.SIZE: (
        "RMQ-CQ-010",
        "unit gives its message another size than the log",
        "units give their messages another size than the log",
    ),
    SlotState.TAGS: (
        "RMQ-CQ-011",
        "unit holds another tags code than its message implies",
        "units hold another tags code than their messages imply",
    ),
    SlotState.EXT: (
        "RMQ-CQ-021",
        "unit leads to an ext unit that cannot be read",
        "units lead to an ext unit that cannot be read",
    ),
    SlotState.FIELDS: (
        "RMQ-CQ-024",
        "batch unit gives another store time or number of messages",
        "batch units give another store time or number of messages",
    ),
    SlotState.IMPLAUSIBLE: (
        _IMPLAUSIBLE,
        "message of the log has a queue offset that cannot be right",
        "messages of the log have a queue offset that cannot be right",
    ),
}
_MISSING = "message of the log has no unit in its slot", "messages of the log have no unit in their slots"
_OTHER_TABLE = (
    "delayed message is due as another table of delay levels says",
    "delayed messages are due as another table of delay levels says",
)
_OTHER_TIME = (
    "delayed message has a delivery time that its level does not imply",
    "delayed messages have a delivery time that their level does not imply",
)
_VERDICTS: dict[UnitVerdict, tuple[str, bool | None]] = {
    UnitVerdict.HOLE: ("RMQ-CQ-014", None),
    UnitVerdict.GARBAGE: ("RMQ-CQ-015", False),
    UnitVerdict.ORDER: ("RMQ-CQ-016", False),
    UnitVerdict.STALE: ("RMQ-CQ-016", False),
    UnitVerdict.PAST: ("RMQ-CQ-008", None),
    UnitVerdict.DAMAGED: ("RMQ-CQ-009", True),
    UnitVerdict.NO_MESSAGE: ("RMQ-CQ-007", False),
    UnitVerdict.NOT_QUEUED: ("RMQ-CQ-006", False),
    UnitVerdict.OTHER_QUEUE: ("RMQ-CQ-006", False),
    UnitVerdict.OTHER_SLOT: ("RMQ-CQ-005", False),
    UnitVerdict.TAKEN: ("RMQ-CQ-017", False),
    UnitVerdict.DELETED: ("RMQ-CQ-031", False),
}
# slots of delayed messages that are compared to find out whether another table of levels was in use
_COMPARED_DELAYS = 64
# topics that a finding about several names
_NAMED_TOPICS = 3


def gone(files: StoreFiles, tally: QueuesTally) -> Finding:
    """No queue holds any unit although the log implies some."""
    messages = sum(queue.of(SlotState.IMPLIED).units for queue in tally.queues.values())
    return Finding(
        "RMQ-CQ-004",
        f"no consume queue holds a unit, but the commitlog has {counted(messages, 'message')} for "
        f"{counted(len(tally.queues), 'queue')}",
        file=files.layout.consumequeue,
        expected=messages,
        found=0,
        bytes=messages * UNIT_SIZE,
        messages=messages,
    )


def behind(files: StoreFiles, missing: list[tuple[QueueKey, Stretch]], seen: LogSeen) -> Finding:
    """The last messages of the log are in no queue yet."""
    (topic, queue_id), first = min(missing, key=lambda item: item[1].first_offset)
    messages = sum(stretch.units for _, stretch in missing)
    queues = len({key for key, _ in missing})
    begin = first.first_offset
    file = files.log.find(begin)
    return Finding(
        "RMQ-CQ-003" if seen.is_live else "RMQ-CQ-002",
        f"{_last(messages, queues)}, {seen.log_end - begin} bytes of the log: dispatch stopped at physical offset "
        f"{begin}",
        file=file.path if file is not None else None,
        physical_offset=begin,
        topic=topic,
        queue_id=queue_id,
        expected=seen.log_end,
        found=begin,
        bytes=seen.log_end - begin,
        messages=messages,
    )


def _last(messages: int, queues: int) -> str:
    if messages == 1:
        return "the last message is not in its queue"
    return f"the last {messages} messages are not in their {'queue' if queues == 1 else f'{queues} queues'}"


def deleted_topics(files: StoreFiles, found: list[tuple[QueueKey, Stretches]]) -> Finding:
    """The log still holds messages of topics that were deleted and created again: all of them as one."""
    messages = sum(stretches.units for _, stretches in found)
    topics = list(dict.fromkeys(topic for (topic, _), _ in found))
    begin = min(stretch.first_offset for _, stretches in found for stretch in stretches)
    end = max(stretch.last_offset for _, stretches in found for stretch in stretches)
    named = ", ".join(topics[:_NAMED_TOPICS])
    if len(topics) > _NAMED_TOPICS:
        named += f" and {len(topics) - _NAMED_TOPICS} more topics"
    were = "was" if len(topics) == 1 else "were"
    (topic, queue_id), _ = found[0]
    file = files.log.find(begin)
    return Finding(
        "RMQ-CQ-030",
        f"{counted(messages, 'message', 'messages')} from before {named} {were} deleted and created again: physical "
        f"offsets {begin} to {end}",
        file=file.path if file is not None else None,
        physical_offset=begin,
        topic=topic,
        queue_id=queue_id,
        found=len(found),
        bytes=sum(stretches.bytes for _, stretches in found),
        messages=messages,
    )


def removed_topics(files: StoreFiles, tally: QueuesTally, removed: frozenset[QueueKey]) -> Iterator[Finding]:
    """Return a finding for each removed topic that the log still holds messages of."""
    for topic, several in _implied_by_topic(tally, removed):
        messages = sum(stretches.units for stretches in several)
        begin = min((stretch.first_offset for stretches in several for stretch in stretches), default=None)
        text = f"the log still holds {counted(messages, 'message')} of {topic}, which has no queue and no configuration"
        file = None if begin is None else files.log.find(begin)
        path, size = None if file is None else file.path, sum(stretches.bytes for stretches in several)
        yield Finding("RMQ-CFG-043", text, path, begin, topic, bytes=size, messages=messages)


def earlier_messages(files: StoreFiles, tally: QueuesTally, earlier: frozenset[QueueKey]) -> Iterator[Finding]:
    """Return a finding for each configured topic whose messages may be from before it was created again."""
    for topic, several in _implied_by_topic(tally, earlier):
        messages = sum(stretches.units for stretches in several)
        begin = min(stretch.first_offset for stretches in several for stretch in stretches)
        found = _earlier(files, topic, len(several), begin, counted(messages, "message"))
        yield replace(found, bytes=sum(stretches.bytes for stretches in several), messages=messages)


def _implied_by_topic(tally: QueuesTally, keys: frozenset[QueueKey]) -> Iterable[tuple[str, list[Stretches]]]:
    """Return by topic what the log implies for each of these queues."""
    by_topic: dict[str, list[Stretches]] = {}
    for key in sorted(keys):
        by_topic.setdefault(key[0], []).append(tally.queues[key].of(SlotState.IMPLIED))
    return by_topic.items()


def _earlier(files: StoreFiles, topic: str, queues: int, begin: int, messages: str = "messages") -> Finding:
    """Return the finding of a topic with messages in queues without files, the first at physical offset `begin`."""
    text = f"{messages} of {topic} in {counted(queues, 'queue')} without files are older than the last change of"
    file = files.log.find(begin)
    path = None if file is None else file.path
    return Finding("RMQ-CQ-032", f"{text} topics.json", path, begin, topic, found=queues)


def slot_findings(
    files: StoreFiles, key: QueueKey, queue: AnyConsumeQueue | None, tally: QueueTally, missing: Int64s
) -> Iterator[Finding]:
    """Messages whose slots do not hold their units; `missing`: those whose slots are empty for no good reason, as
    `Stretches.table`."""
    if len(missing):
        units = int(missing[:, 4].sum())
        yield _state_finding(files, key, queue, "RMQ-CQ-001", counted(units, *_MISSING), missing)
    for state, (code, *said) in _STATES.items():
        stretches = tally.of(state)
        if len(stretches):
            yield _state_finding(files, key, queue, code, counted(stretches.units, *said), stretches.table())
    delayed = tally.of(SlotState.DELIVERY)
    if len(delayed):
        if _is_other_table(files, key, queue, delayed):
            code, phrases = "RMQ-CQ-012", _OTHER_TABLE
        else:
            code, phrases = "RMQ-CQ-011", _OTHER_TIME
        yield _state_finding(files, key, queue, code, counted(delayed.units, *phrases), delayed.table())
    matched = tally.of(SlotState.MATCHED).table()
    backward = matched[1:][matched[1:, 0] < matched[:-1, 1]]
    if len(backward):
        text = f"in {counted(len(backward), 'place')} a later message of the log is in an earlier slot"
        yield _state_finding(files, key, queue, "RMQ-CQ-016", text, backward)


def _state_finding(
    files: StoreFiles, key: QueueKey, queue: AnyConsumeQueue | None, code: str, text: str, stretches: Int64s
) -> Finding:
    first = Stretch(*stretches[0].tolist())
    expected, found = _both(files, key, queue, first)
    low, high = int(stretches[:, 0].min()), int(stretches[:, 1].max()) - 1
    if code == _IMPLAUSIBLE:  # the numbers are cut off where they would overflow
        ends = (stretches[stretches[:, 0].argmin()], stretches[stretches[:, 1].argmax()])
        offsets = [_queue_offset(files, key, queue, Stretch(*row.tolist())) for row in ends]
        low, high = min(offsets), max(offsets)
    slots = f"slot {low}" if low == high else f"slots {low} to {high}"
    return Finding(
        code,
        f"{text}: {slots}, first message at physical offset {first.first_offset}",
        file=_file_of(files, key, queue, first.slot_begin),
        physical_offset=first.first_offset,
        topic=key[0],
        queue_id=key[1],
        expected=expected,
        found=found,
        bytes=int(stretches[:, 5].sum()),
        messages=int(stretches[:, 4].sum()),
    )


def _both(files: StoreFiles, key: QueueKey, queue: AnyConsumeQueue | None, stretch: Stretch) -> tuple[str | None, str]:
    """Return the unit that the first message implies, and the stored one."""
    message = message_if_any(files.log, stretch.first_offset)
    implied: str | None = None
    if message is not None:
        is_batch = isinstance(queue, BatchConsumeQueue)
        for slot in queue_slots(message, files.config.delay_levels(), is_batch):
            if (slot.topic, slot.queue_id) == key and cut_off(slot.unit.queue_offset) == stretch.slot_begin:
                implied = _told(slot.unit)
    return implied, _standing(queue, stretch.slot_begin)


def _queue_offset(files: StoreFiles, key: QueueKey, queue: AnyConsumeQueue | None, stretch: Stretch) -> int:
    """Return the queue offset that the damaged message of a stretch has."""
    message = message_if_any(files.log, stretch.first_offset)
    for slot in () if message is None else queue_slots(message, (), isinstance(queue, BatchConsumeQueue)):
        if (slot.topic, slot.queue_id) == key and cut_off(slot.unit.queue_offset) == stretch.slot_begin:
            return slot.unit.queue_offset
    return stretch.slot_begin


def _standing(queue: AnyConsumeQueue | None, slot: int) -> str:
    unit: QueueUnit | None = None
    if isinstance(queue, ConsumeQueue):
        unit = QueueUnit(slot, *read_units(queue, slot, 1)[0].item()) if 0 <= slot < queue.max_offset else None
    elif queue is not None:
        unit = queue.unit(slot)
    return "nothing" if unit is None else _told(unit)


def _told(unit: QueueUnit) -> str:
    if unit.is_placeholder:
        return "filler"
    if not (unit.physical_offset or unit.size or unit.tags_code):
        return "zeros"
    return f"offset {unit.physical_offset} size {unit.size} code {unit.tags_code}"


def _file_of(files: StoreFiles, key: QueueKey, queue: AnyConsumeQueue | None, slot: int) -> Path | None:
    if isinstance(queue, ConsumeQueue):
        file = queue.files.find(slot * UNIT_SIZE)
        return file.path if file is not None else queue.directory
    return queue.directory if queue is not None else files.queues.absent(*key).directory


def _is_other_table(files: StoreFiles, key: QueueKey, queue: AnyConsumeQueue | None, delayed: Stretches) -> bool:
    """Whether all delivery times are off by the same whole seconds: another messageDelayLevel was in use."""
    if not isinstance(queue, ConsumeQueue):
        return False
    differences: set[int] = set()
    for _, stretch in zip(range(_COMPARED_DELAYS), delayed, strict=False):
        for slot, offset in ((stretch.slot_begin, stretch.first_offset), (stretch.slot_end - 1, stretch.last_offset)):
            message = message_if_any(files.log, offset)
            if message is None:
                return False
            code = int(read_units(queue, slot, 1)[0]["tags_code"])
            differences.add(code - message.store_timestamp)
    return len(differences) == 1 and min(differences) > 0 and min(differences) % 1000 == 0


def _fix_of_unit(verdict: UnitVerdict, unit: QueueUnit, seen: LogSeen, *, is_whole: bool) -> str | None:
    """Return the fix where it is another than that of the catalogue."""
    if is_whole and any(span.reason is Reason.OVERFLOW for span in seen.damaged):
        return "rmqctl salvage"
    # a torn tail is cut, and the units go with it
    return "rmqctl recover" if verdict is UnitVerdict.DAMAGED and unit.physical_offset >= seen.log_end else None


def look_findings(files: StoreFiles, queue: AnyConsumeQueue, look: QueueLook, seen: LogSeen) -> Iterator[Finding]:
    """Units that no message of the log accounts for."""
    for verdict, suspicion in look.suspicions.items():
        code, is_lost = _VERDICTS[verdict]
        # only brokers cannot read them
        # a quick look has walked no damage: what it knows of are missing files
        is_whole = verdict is UnitVerdict.DAMAGED and bool(seen.damaged)
        is_whole = is_whole and all(span.reason in WHOLE for span in seen.damaged)
        unit, found = suspicion.first
        if verdict is UnitVerdict.TAKEN:
            text = counted(suspicion.units, "message has", "messages have")
            text += " a queue offset that another message of the queue has"
        elif verdict is UnitVerdict.HOLE:
            text = counted(suspicion.units, "slot inside the queue holds", "slots inside the queue hold")
            text += f" zeros and {'belongs' if suspicion.units == 1 else 'belong'} to no message"
        else:
            text = f"{counted(suspicion.units, 'unit points', 'units point')} at {verdict.value}"
        yield Finding(
            code,
            f"{text}, first slot {unit.queue_offset}",
            file=_file_of(files, (queue.topic, queue.queue_id), queue, unit.queue_offset),
            physical_offset=unit.physical_offset if unit.physical_offset > 0 or unit.size > 0 else None,
            topic=queue.topic,
            queue_id=queue.queue_id,
            expected=f"below {seen.log_end}" if verdict is UnitVerdict.PAST else f"slot {unit.queue_offset}",
            found=found if found is not None else _standing(queue, unit.queue_offset),
            bytes=suspicion.bytes,
            messages=suspicion.units,
            data_lost=is_lost and not is_whole,
            fix=_fix_of_unit(verdict, unit, seen, is_whole=is_whole),
        )
    if look.unread:
        yield Finding(
            "RMQ-CQ-005",
            f"{counted(look.unread, 'more unit points', 'more units point')} at messages that were not read: "
            "too many are wrong",
            file=queue.directory,
            topic=queue.topic,
            queue_id=queue.queue_id,
            messages=look.unread,
        )


def end_findings(queue: AnyConsumeQueue) -> Iterator[Finding]:
    """Yield findings for queues that end without a unit: with a file of zeros, or a filler."""
    if not isinstance(queue, ConsumeQueue) or not queue.files.files:
        return
    last = queue.files.files[-1]
    unit = queue.unit(queue.max_offset - 1)
    if queue.max_offset * UNIT_SIZE <= last.start_offset:
        yield Finding(
            "RMQ-CQ-019",
            "the last file of the queue holds nothing but zeros",
            file=last.path,
            topic=queue.topic,
            queue_id=queue.queue_id,
            bytes=last.size,
            messages=0,
        )
    elif unit is not None and unit.is_placeholder:
        yield Finding(
            "RMQ-CQ-022",
            f"the last unit of the queue, in slot {unit.queue_offset}, is a filler",
            file=last.path,
            topic=queue.topic,
            queue_id=queue.queue_id,
            found="filler",
        )


def expired_files(files: StoreFiles, seen: LogSeen) -> Iterator[Finding]:
    """Queue files that could have been deleted with the commitlog files that they point into."""
    if seen.log_begin <= 0:
        return
    found = [
        (queue, decision)
        for queue in files.queues.all()
        for decision in judge_queue(queue, seen.log_begin)
        if decision.because is Because.STALE
    ]
    if found:
        queue, decision = found[0]
        yield Finding(
            "RMQ-CQ-020",
            f"{counted(len(found), 'queue file holds', 'queue files hold')} units of expired messages only, "
            f"before physical offset {seen.log_begin}",
            file=decision.path,
            topic=queue.topic,
            queue_id=queue.queue_id,
            found=len(found),
            bytes=sum(one.size for _, one in found),
        )


# Consume queues against the commitlog, both ways: the check that one walk over the log feeds.


class QueueCheck:
    """`add` the runs of the log in its order, those that tasks have compared already too, then `finish` once.

    Memory: some 50 bytes for every stretch of slots that is not as the one before it; one stretch for a sound queue.
    """

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._comparison = QueuesComparison(files)

    @property
    def tally(self) -> QueuesTally:
        """What was found so far; can be pickled."""
        return self._comparison.tally

    def add(self, run: Run) -> None:
        """The log holds these messages."""
        if not isinstance(run, TalliedRun):
            self._comparison.take(run)
        elif run.queues_error is not None:
            raise run.queues_error
        else:
            self._comparison.tally.merge(run.queues_tally)

    def compare(self) -> None:
        """Compare what waits until now."""
        self._comparison.compare()

    def finish(self, seen: LogSeen) -> Iterator[Finding]:
        """What differs, queue by queue. At the quick level the last unit of each queue is looked at, and no more."""
        database = self._files.queues.database()
        found = self._found(seen)
        yield from found if database is None else in_rocksdb(database, found, seen)

    def _found(self, seen: LogSeen) -> Iterator[Finding]:
        if seen.level is Level.QUICK:
            yield from _ends(self._files, seen)
            return
        if not seen.is_live:
            yield from self._finish(self._files, seen)
            return
        # What waits is compared before the queues are looked at anew: what was found by then came before that, and so
        # did all that the log has before it.
        self.compare()
        # files that came since this check began count too
        with StoreFiles(self._files.root, self._files.config) as now:
            yield from self._finish(now, seen)

    def _finish(self, files: StoreFiles, seen: LogSeen) -> Iterator[Finding]:
        queues: dict[QueueKey, AnyConsumeQueue] = {(queue.topic, queue.queue_id): queue for queue in files.queues.all()}
        removed, earlier = _keys_without_queues(files, queues, self.tally)
        yield from removed_topics(files, self.tally, removed)
        yield from earlier_messages(files, self.tally, earlier)
        removed |= earlier
        implied = self.tally.queues.keys() - removed
        if implied and not any(has_units(queue) for queue in queues.values()) and not seen.is_live:
            yield gone(files, self.tally)
            return
        reached = self._dispatched(queues, seen)
        undispatched: list[tuple[QueueKey, Stretch]] = []
        deleted: list[tuple[QueueKey, Stretches]] = []
        light = light_queues(files)
        look = UnitLook(files, seen)

        def of_queue(key: QueueKey, queue: AnyConsumeQueue | None) -> Iterator[Finding]:
            tally = self.tally.queues.get(key) or QueueTally(isinstance(queue, BatchConsumeQueue))
            live = live_tally(files.log, queue, tally, is_whole=seen.is_whole)
            tally = live.tally
            if len(live.deleted):
                deleted.append((key, live.deleted))
            missing = tally.of(SlotState.MISSING)
            if seen.is_live:
                missing = _all_still_missing(queue, missing)
            table = missing.table()
            # in a store in use a stretch may have come in part, so only its last message tells
            is_late = table[:, 3 if seen.is_live else 2] > reached
            if key not in light:
                undispatched.extend((key, Stretch(*row)) for row in table[is_late].tolist())
            yield from slot_findings(files, key, queue, tally, table[~is_late])
            if queue is None:
                return
            yield from look_findings(files, queue, look.look(queue, live), seen)
            if not seen.is_live:
                yield from end_findings(queue)

        for key in sorted({*queues, *self.tally.queues}):
            queue = queues.get(key)
            # those of light messages that are in a RocksDB alone follow
            if key not in removed and not (queue is None and is_in_rocksdb_alone(files.layout, key[0])):
                yield from of_queue(key, queue)
        if light and not seen.is_live:
            database = RocksdbQueues(rocksdb_folder(files.layout), None)
            found = chain.from_iterable(of_queue(key, queue) for key, queue in sorted(light.items()))
            yield from in_rocksdb(database, found, seen)
        if deleted:
            seen.begun_again.update(key for key, _ in deleted)
            yield deleted_topics(files, deleted)
        if undispatched:
            yield behind(files, undispatched, seen)
        if seen.is_whole and not seen.is_live:
            yield from expired_files(files, seen)

    def _dispatched(self, queues: dict[QueueKey, AnyConsumeQueue], seen: LogSeen) -> int:
        """Physical offset of the last message that reached its queue; all messages before it should have."""
        if seen.is_whole:
            return self.tally.last_matched()
        last = [queue.unit(queue.max_offset - 1) for queue in queues.values() if has_units(queue)]
        known = [unit.physical_offset for unit in last if unit is not None and unit.is_written]
        return max((offset for offset in known if offset < seen.log_end), default=-1)


def _keys_without_queues(
    files: StoreFiles, queues: dict[QueueKey, AnyConsumeQueue], tally: QueuesTally
) -> tuple[frozenset[QueueKey], frozenset[QueueKey]]:
    """Return the queues that only the log knows and that need no files: those of removed topics, and those whose
    messages may be from before their topic was created again."""
    absent = {key: tally.queues[key].of(SlotState.IMPLIED) for key in tally.queues if key not in queues}
    if not absent:
        return frozenset(), frozenset()
    names = KnownNames.of(files)
    is_earlier = names.earlier_life({key: life for key, one in absent.items() if (life := one.last_life) is not None})
    topics = {topic for topic in {topic for topic, _ in absent} if names.is_removed(topic)}
    removed: set[QueueKey] = set()
    earlier: set[QueueKey] = set()
    for key, implied in absent.items():
        last = implied.last
        if is_earlier(key[0], last.last_offset) if last is not None else key[0] in topics:
            (removed if key[0] in topics else earlier).add(key)
    return frozenset(removed), frozenset(earlier)


def _ends(files: StoreFiles, seen: LogSeen) -> Iterator[Finding]:
    """What the last unit of each queue points at, and queues that lack files."""
    look, queues = UnitLook(files, seen), files.queues.all()
    yield from () if seen.is_live else _lost(files, any(map(has_units, queues)))
    for queue in queues:
        yield from look_findings(files, queue, look.look_at_end(queue), seen)
        yield from () if seen.is_live else end_findings(queue)


def _lost(files: StoreFiles, has_others: bool) -> Iterator[Finding]:
    """Queues without the files for messages in a sample of the log."""
    lost, unsure = lost_queues(files)
    if lost and not has_others:
        text = f"no consume queue holds a unit, but the log has messages for {counted(len(lost), 'queue')} or more"
        yield Finding("RMQ-CQ-004", text, file=files.layout.consumequeue, found=0)
    for topic, queue_id, place in lost if has_others else ():
        text = f"the queue's files lack messages that the log holds, such as the one at physical offset {place}"
        queue = files.queues.find(topic, queue_id)
        yield Finding("RMQ-CQ-001", text, _file_of(files, (topic, queue_id), queue, -1), place, topic, queue_id)
    for topic, group in groupby(unsure, lambda one: one.topic):
        places = [one.physical_offset for one in group]
        yield _earlier(files, topic, len(places), min(places))


def _all_still_missing(queue: AnyConsumeQueue | None, stretches: Stretches) -> Stretches:
    left = Stretches()
    for stretch in stretches:
        if (missing := _still_missing(queue, stretch)) is not None:
            left.add(missing)
    return left


def _still_missing(queue: AnyConsumeQueue | None, stretch: Stretch) -> Stretch | None:
    """What of a stretch that was missing is missing now: a store in use dispatches while it is looked at."""
    if queue is None or queue.max_offset <= stretch.slot_begin:
        return stretch
    come = min(queue.max_offset, stretch.slot_end)
    first, last = queue.unit(stretch.slot_begin), queue.unit(come - 1)
    if first is None or last is None or first.physical_offset != stretch.first_offset or not last.is_written:
        return stretch
    if come == stretch.slot_end:
        return None
    left = stretch.slot_end - come
    size = stretch.bytes * left // (stretch.slot_end - stretch.slot_begin)
    return stretch._replace(slot_begin=come, first_offset=last.end, units=left, bytes=size)
