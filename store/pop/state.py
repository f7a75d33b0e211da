"""What consumer groups have in flight by POP, what revive does with it, what a restart hands out again, and why."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, UsageError, counted, format_time
from rmqctl.store.answers.config_offsets import (
    UNKNOWN_GROUP,
    UNKNOWN_TOPIC,
    KnownNames,
    consumer_table,
    in_one,
    offset_key,
    offsets_of,
    table_in,
)
from rmqctl.store.files.layout import is_database
from rmqctl.store.pop.records import (
    FS,
    IN_TIMER,
    KV,
    KV_FOLDER,
    ORDER_FILE,
    ORDERED,
    POP_SEPARATORS,
    RETRY_PREFIX,
    Acknowledgement,
    HandedOut,
    OrderedPop,
    PopCheckpoint,
    PopOwner,
    RecordError,
    Totals,
    pop_retry_topics,
    revive_queues,
    revive_record,
    timer_queue,
)
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader

if TYPE_CHECKING:
    from rmqctl.store.pop.columns import PopColumns
    from rmqctl.store.pop.load import ReadsNext, RecordLook, TakeTimer


PULL_TABLE = "pullOffsetTable"

IN_FLIGHT = "in-flight"
OVERDUE = "overdue"
ACKNOWLEDGED = "acknowledged"
LOST = "lost"
_MOST_DETAILS = 4


class PopMessage(NamedTuple):
    """One message that was handed out to a group. Times in ms.

    `way`: how the broker keeps it (fs, kv, ordered). `state`: in-flight until `visible_timestamp`; overdue: that time
    has passed, and nothing was done yet; acknowledged; lost: the timer has lost the record, or a broker that starts
    passes over it as too old, so none hands the message out again. `attempt`: how often it was handed out to be
    consumed, this time included; None where the message cannot be read. `next_topic`: where revive puts a copy, None
    where it puts none. `again_at_restart`: a broker that starts hands it out again, acknowledged or not. `record`:
    where that is written.
    """

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    way: str
    state: str
    popped_timestamp: int
    visible_timestamp: int
    attempt: int | None
    next_topic: str | None
    again_at_restart: bool
    record: str
    record_physical_offset: int | None = None
    detail: str = ""


class PopGroup(NamedTuple):
    """A group in a topic that it consumes by POP: how many messages are in which state, as of PopMessage.

    `again_at_restart`: how many a broker that starts hands out again. `retry_topic`: where copies of messages go that
    were not acknowledged in time; `retries`: those in there that were not handed out yet.
    """

    group: str
    topic: str
    way: str
    in_flight: int
    overdue: int
    acknowledged: int
    lost: int
    first_visible_timestamp: int | None
    last_visible_timestamp: int | None
    again_at_restart: int
    retry_topic: str | None
    retries: int | None
    detail: str = ""


class PopOffsets:
    """Offsets of groups in consumerOffset.json: what they are committed to, and where their pops ended."""

    def __init__(self, reader: StoreReader) -> None:
        config = reader.files.layout.config
        kept = consumer_table(config, reader.files.config, reader.events._replace(note=None))
        self._committed = _by_owner(kept.table or {})
        quiet = reader.events._replace(note=None, damage=lambda error: None)
        self._pulled = _by_owner(table_in(kept.path, PULL_TABLE, quiet) or {})

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset; None where none is kept."""
        return _kept(self._committed, group, topic, queue_id)

    def pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the next offset to pop by kvStore/ or to pull, which 5.5.0 writes and does not load; None without."""
        return _kept(self._pulled, group, topic, queue_id)

    def every_pulled(self) -> dict[tuple[str, str, int], int]:
        """Return all of these by group, topic and queue."""
        return {
            (*owner, queue_id): offset for owner, queues in self._pulled.items() for queue_id, offset in queues.items()
        }


def _by_owner(table: dict[object, object]) -> dict[tuple[str, str], dict[int, int]]:
    found: dict[tuple[str, str], dict[int, int]] = {}
    for key, offsets in table.items():
        owner = offset_key(key)
        if owner is not None and not owner.is_broadcast and isinstance(offsets, dict):
            found[owner.group, owner.topic] = offsets_of(offsets)
    return found


def _kept(table: dict[tuple[str, str], dict[int, int]], group: str, topic: str, queue_id: int) -> int | None:
    offset = table.get((group, topic), {}).get(queue_id)
    return offset if offset is not None and offset >= 0 else None


class PopState:
    """All that a store keeps of POP at one moment. Reading happens when something is first asked for."""

    def __init__(
        self, reader: StoreReader, now: int, committed: ReadsNext | None = None, look: RecordLook | None = None,
        *, sees_all: bool = False, timer: TakeTimer = lambda: None,
    ) -> None:  # fmt: skip
        """`now` in ms; `committed`: offsets of groups, where they were read already; `look`, `sees_all` and `timer` as
        of `load_columns`."""
        self._reader = reader
        self._now = now
        self._given = committed
        self._look, self._sees_all, self._timer = look, sees_all, timer

    @functools.cached_property
    def columns(self) -> PopColumns:
        """All records of messages that were handed out, as far as they are not settled."""
        from rmqctl.store.pop.load import load_columns

        return load_columns(
            self._reader, self._committed, self._look, sees_all=self._sees_all, now=self._now, timer=self._timer
        )

    @functools.cached_property
    def ordered(self) -> dict[tuple[str, str, int], OrderedPop]:
        """The last ordered pop by group, topic and queue."""
        from rmqctl.store.pop.load import load_ordered

        return load_ordered(self._reader)

    @functools.cached_property
    def _offsets(self) -> PopOffsets:
        return PopOffsets(self._reader)

    @functools.cached_property
    def _names(self) -> KnownNames:
        return KnownNames.of(self._reader.files)

    @property
    def _hands_out(self) -> bool:
        """Whether a broker that starts serves pops: a slave does while it acts as master, and never else."""
        config = self._reader.files.config
        return not config.is_slave or config.enable_slave_acting_master

    def _committed(self, group: str, topic: str, queue_id: int) -> int | None:
        return (self._given or self._offsets.committed)(group, topic, queue_id)

    @functools.cached_property
    def totals(self) -> dict[PopOwner, Totals]:
        return self.columns.totals(self._now)

    # ---- groups

    def groups(self) -> Iterator[PopGroup]:
        """Yield each group and topic that it consumes by POP, by name."""
        rows: dict[tuple[str, str, str], _Sum] = {}
        repeated = self.columns.count_from([self._begins_at(owner) for owner in self.columns.owners])
        for owner, again in zip(self.columns.owners, repeated, strict=True):
            row = rows.setdefault((owner.group, owner.topic, owner.way), _Sum())
            row.add(self.totals[owner], again if owner.way == FS and self._hands_out else 0)
        for (group, topic, queue_id), pop in self.ordered.items():
            row = rows.setdefault((group, topic, ORDERED), _Sum())
            row.add(_ordered_totals(pop, self._now), 0)
            row.details += filter(None, [_lock_of(queue_id, pop, self._now)])
        for group, topic, again in self._last_pops():
            row = rows.setdefault((group, topic, KV), _Sum())
            row.again += again
            row.repeats += 1
            row.details = [f"a restart hands out the last pop of {counted(row.repeats, 'queue')} again"]
        for (group, topic, way), row in sorted(rows.items()):
            if any(row.totals[:4]) or row.again:  # not of acknowledgements alone
                yield self._group(group, topic, way, row)

    def _group(self, group: str, topic: str, way: str, row: _Sum) -> PopGroup:
        retry = None if way == ORDERED else self.retry_topic(group, topic)
        waiting = None if retry is None or retry == topic else self._unread(group, retry)
        absent = self._why_absent(group, topic)
        if absent is not None and row.totals.in_flight + row.totals.overdue:
            row.details.insert(0, f"{absent}: revive drops what is not acknowledged")
        detail = in_one(*row.details[:_MOST_DETAILS], _more(len(row.details) - _MOST_DETAILS))
        return PopGroup(group, topic, way, *row.totals, row.again, retry, waiting, detail)

    def _unread(self, group: str, topic: str) -> int | None:
        """Return how many messages of a topic were not handed out to a group; None without queues."""
        try:
            queues = self._reader.files.queues.of_topics(topic.__eq__)
        except CorruptError:
            return None
        unread = 0
        for queue in queues:
            begin = queue.min_offset(self._reader.files.log.min_offset)
            unread += max(0, queue.max_offset - max(begin, self._next_to_pop(group, topic, queue.queue_id) or 0))
        return unread if queues else None

    def _next_to_pop(self, group: str, topic: str, queue_id: int) -> int | None:
        pulled = self._offsets.pulled(group, topic, queue_id)
        return self._committed(group, topic, queue_id) if pulled is None else pulled

    def _begins_at(self, owner: PopOwner) -> int:
        """Return from which offset on a broker that starts hands out the messages of a queue."""
        return self._committed(owner.group, owner.topic, owner.queue_id) or 0

    @functools.cached_property
    def _pop_ends(self) -> dict[tuple[str, str, int], int]:
        """Where the last pop by kvStore/ of each queue ended: after the last entry that is left, or where 5.5.0 says
        every 5 seconds."""
        ends = {
            (owner.group, owner.topic, owner.queue_id): end
            for owner, end in zip(self.columns.owners, self.columns.ends(), strict=True)
            if owner.way == KV
        }
        popping = {group for group, _, _ in ends}
        for place, offset in self._offsets.every_pulled().items():
            if self._may_be_pop(place, popping):
                ends[place] = max(offset, ends.get(place, 0))
        return ends

    def _may_be_pop(self, place: tuple[str, str, int], popping: set[str]) -> bool:
        """Return whether a pull offset may be the end of a pop by kvStore/: 5.5.0 keeps one for each ordinary pull too.

        Such a pop commits an offset (PopConsumerService#handleGetMessageResult), and only consumers that pull ask for
        %RETRY%GROUP.
        """
        group = place[0]
        if not is_database(self._reader.files.root / KV_FOLDER) or self._offsets.committed(*place) is None:
            return False
        pulls = self._offsets.pulled(group, f"{RETRY_PREFIX}{group}", 0) is not None
        return group in popping or not pulls

    def _last_pops(self) -> Iterator[tuple[str, str, int]]:
        """Yield for each queue the group, topic and number of messages that a restart hands out again by kvStore/."""
        for (group, topic, queue_id), end in sorted(self._pop_ends.items()) if self._hands_out else ():
            again = end - (self._committed(group, topic, queue_id) or 0)
            if again > 0:
                yield group, topic, again

    def handed_out(self, group: str, topic: str, queue_id: int) -> tuple[int, str] | None:
        """Return how many messages of a queue a group has in flight or overdue, and how that is kept; None without
        records. Not those of ordered pops, which are not past the offset of the group."""
        found = self._by_queue.get((group, topic, queue_id), [])
        return (sum(one.in_flight + one.overdue for _, one in found), found[0][0].way) if found else None

    @functools.cached_property
    def _by_queue(self) -> dict[tuple[str, str, int], list[tuple[PopOwner, Totals]]]:
        found: dict[tuple[str, str, int], list[tuple[PopOwner, Totals]]] = {}
        if not self._may_have_records():
            return found
        for owner, totals in self.totals.items():
            found.setdefault((owner.group, owner.topic, owner.queue_id), []).append((owner, totals))
        return found

    def _may_have_records(self) -> bool:
        """Return whether a revive topic, what waits for one, or kvStore/ may be there: most stores need no arrays."""
        files = self._reader.files
        timer = timer_queue(files)
        has_timer = timer is not None and timer.max_offset > 0
        return has_timer or bool(revive_queues(files)) or is_database(files.root / KV_FOLDER)

    # ---- messages

    def messages(self, is_wanted: Callable[[str, str], bool] = lambda group, topic: True) -> Iterator[PopMessage]:
        """Yield the messages that were handed out to groups in topics that are wanted, by group, topic and queue."""
        for one in self.columns.messages(lambda owner: is_wanted(owner.group, owner.topic)):
            yield self._message(one)
        for (group, topic, queue_id), pop in sorted(self.ordered.items()):
            if is_wanted(group, topic):
                for at in range(len(pop.offsets)):
                    yield self._of_ordered(group, topic, queue_id, pop, at)

    def of_message(self, group: str, topic: str, queue_id: int, queue_offset: int) -> list[PopMessage]:
        """Return each time that a message was handed out to a group, the earliest first, as far as it is not settled.

        Not those of ordered pops.
        """
        found = [self._message(one) for one in self.columns.of_message(group, topic, queue_id, queue_offset)]
        return sorted(found, key=lambda one: one.popped_timestamp)

    def of_ordered(self, group: str, topic: str, queue_id: int, queue_offset: int) -> PopMessage | None:
        """Return a message of the queue's last ordered pop; None for any other."""
        pop = self.ordered.get((group, topic, queue_id))
        if pop is None or queue_offset not in pop.offsets:
            return None
        return self._of_ordered(group, topic, queue_id, pop, pop.offsets.index(queue_offset))

    def is_of_last_pop(self, group: str, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a restart hands a message out again with the last pop by kvStore/."""
        begin = self._committed(group, topic, queue_id) or 0
        return self._hands_out and begin <= queue_offset < self._pop_ends.get((group, topic, queue_id), 0)

    def _message(self, one: HandedOut) -> PopMessage:
        owner = one.owner
        place = (owner.topic, owner.queue_id, one.queue_offset)
        state = _state(one.deadline, self._now, is_acked=one.is_acked, is_lost=one.is_lost)
        absent, why_gone, attempt = self._why_absent(owner.group, owner.topic), *self._attempt(*place)
        if owner.way == KV:
            is_again = self.is_of_last_pop(owner.group, *place)
        else:
            is_again = self._hands_out and one.queue_offset >= self._begins_at(owner)
        details = [why_gone]
        if state == LOST:
            details.append("no broker that starts now delivers its record from the timer")
        if is_again and owner.way == FS:
            details.append(
                f"the committed offset {self._begins_at(owner)} is not past it: a restart hands it out again"
            )
        next_topic = None
        if state in (IN_FLIGHT, OVERDUE):
            next_topic = None if absent or why_gone else self.retry_topic(owner.group, owner.topic)
            details.append(None if absent is None else f"{absent}: revive drops it")
        record, physical = _record_of(one), one.physical_offset
        return PopMessage(
            owner.group, *place, owner.way, state, one.popped_at, one.deadline, attempt, next_topic, is_again, record,
            physical if physical >= 0 else None, in_one(*details),
        )  # fmt: skip

    def _of_ordered(self, group: str, topic: str, queue_id: int, pop: OrderedPop, at: int) -> PopMessage:
        state = _state(pop.until[at], self._now, is_acked=pop.is_acked(at), is_lost=False)
        detail = None
        if state == IN_FLIGHT:
            detail = "the queue is locked for the group until then"
        elif state == OVERDUE:
            detail = "the next pop of the queue hands it out again"
        elif pop.offsets[at] >= pop.next_offset:
            detail = f"acknowledged, and handed out again with {pop.next_offset}"
        return PopMessage(
            group, topic, queue_id, pop.offsets[at], ORDERED, state, pop.popped_at, pop.until[at],
            pop.consumed[at] + 1, None, False, ORDER_FILE, None, detail or "",
        )  # fmt: skip

    def _attempt(self, topic: str, queue_id: int, queue_offset: int) -> tuple[str | None, int | None]:
        """Return why a message that was handed out is gone, None where it is there, and which attempt this is."""
        queue = self._queue(topic, queue_id)
        if queue is None:
            return "the queue has no files", None
        if queue_offset >= queue.max_offset:
            return f"the queue ends at {queue.max_offset}", None
        if queue_offset < self._first_of(topic, queue_id):
            return "the message has expired", None
        if not topic.startswith(RETRY_PREFIX):
            return None, 1
        try:
            unit = queue.unit(queue_offset)
            if unit is None:
                return "the message is in no file of the queue", None
            return None, self._reader.view_without_ext(queue).message_of(unit).reconsume_times + 1
        except NotFoundError:
            return "the message has expired", None
        except CorruptError as error:
            self._reader.events.damaged(error)
            return None, None

    @functools.cache  # noqa: B019 - lives as long as the answer
    def _queue(self, topic: str, queue_id: int) -> AnyConsumeQueue | None:
        try:
            return self._reader.files.queues.find(topic, queue_id)
        except (CorruptError, UsageError):
            return None

    @functools.cache  # noqa: B019 - as above
    def _first_of(self, topic: str, queue_id: int) -> int:
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.min_offset(self._reader.files.log.min_offset)

    # ---- revive

    @functools.cached_property
    def _has_second_version(self) -> bool:
        """Whether the broker has made a retry topic of the second version: no other name of a topic has a plus."""
        first = POP_SEPARATORS[0]
        return any(topic.startswith(RETRY_PREFIX) and first in topic for topic in self._names.topics or {})

    @functools.cache  # noqa: B019 - as above
    def retry_topic(self, group: str, topic: str) -> str:
        """Return where revive puts messages of a topic that the group did not acknowledge in time."""
        if topic.startswith(RETRY_PREFIX):
            return topic
        second, first = pop_retry_topics(group, topic)
        is_second = self._reader.files.config.enable_retry_topic_v2
        if is_second is None:
            is_second = self._queue(second, 0) is not None or self._has_second_version
        return second if is_second else first

    @functools.cache  # noqa: B019 - as above
    def _why_absent(self, group: str, topic: str) -> str | None:
        if self._reader.files.config.is_slave:  # topics and groups come from its master, later than messages
            return None
        if self._names.lacks_group(group):
            return UNKNOWN_GROUP
        return UNKNOWN_TOPIC if self._names.lacks_topic(topic) else None


class _Sum:
    """A row of groups under way."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.again = self.repeats = 0
        self.details: list[str] = []

    def add(self, one: Totals, again: int) -> None:
        counts = [mine + theirs for mine, theirs in zip(self.totals[:4], one[:4], strict=True)]
        first = min((end for end in (self.totals.first_visible, one.first_visible) if end is not None), default=None)
        last = max((end for end in (self.totals.last_visible, one.last_visible) if end is not None), default=None)
        in_flight, overdue, acknowledged, lost = counts
        self.totals = Totals(in_flight, overdue, acknowledged, lost, first, last)
        self.again += again


def _state(until: int, now: int, *, is_acked: bool, is_lost: bool) -> str:
    if is_acked:
        return ACKNOWLEDGED
    if is_lost:
        return LOST
    return IN_FLIGHT if until > now else OVERDUE


def _ordered_totals(pop: OrderedPop, now: int) -> Totals:
    states = [_state(until, now, is_acked=pop.is_acked(at), is_lost=False) for at, until in enumerate(pop.until)]
    ends = [until for until, state in zip(pop.until, states, strict=True) if state != ACKNOWLEDGED]
    counts = (states.count(IN_FLIGHT), states.count(OVERDUE), states.count(ACKNOWLEDGED), 0)
    return Totals(*counts, min(ends, default=None), max(ends, default=None))


def _lock_of(queue_id: int, pop: OrderedPop, now: int) -> str | None:
    """Return until when an ordered pop keeps its queue from the group (OrderInfo#needBlock)."""
    locks = [until for at, until in enumerate(pop.until) if not pop.is_acked(at) and until > now]
    if not locks:
        return None
    attempt = "" if pop.attempt_id is None else f", but for attempt {pop.attempt_id}"
    return f"queue {queue_id} is locked until {format_time(max(locks))}{attempt}"


def _more(count: int) -> str | None:
    return f"and {count} more" if count > 0 else None


def _record_of(one: HandedOut) -> str:
    owner = one.owner
    if owner.way == KV:
        return KV_FOLDER
    if one.place == IN_TIMER:
        return f"{TIMER_TOPIC} 0 {one.record_offset}"
    return f"{owner.revive_topic} {owner.revive_queue} {one.place}"


# Why POP handed a message out again: settled records of the revive topic, as far as they have not expired.

FIRST_POP_TIME = "1ST_POP_TIME"
"""Property of a copy that revive made: when the message was first handed out (ms)."""
# revive looks at a checkpoint for the last time some seconds after its deadline, and at most one round later
_SLACK_MS = 30_000
_MOST_RECORDS = 200_000


class Handed(NamedTuple):
    """A message and the group that it was handed out to."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int


def why_again(reader: StoreReader, handed: Handed, since: int, until: int, waiting: Sequence[int] = ()) -> str:
    """Return why revive made a copy of a message at `until`, by the records that were delivered since `since` (ms).

    `waiting`: when the message was handed out by records that are not settled.
    """
    checkpoints: list[PopCheckpoint] = []
    acks: list[Acknowledgement] = []
    for record in _records(reader, since, until):
        if (record.group, record.topic, record.queue_id) != handed[:3]:
            continue
        if isinstance(record, Acknowledgement):
            if handed.queue_offset in record.offsets:
                acks.append(record)
        elif handed.queue_offset - record.start in record.distances:
            checkpoints.append(record)
    due = [one for one in checkpoints if one.deadline <= until]
    if not due:
        return "it was not acknowledged in time (its checkpoint is not left)"
    last = max(due, key=lambda one: one.popped_at)
    key = (last.start, last.popped_at)
    over = format_time(last.deadline)
    if any((ack.start, ack.popped_at) == key for ack in acks):
        return f"its invisible time was over at {over}, and its acknowledgement came too late"
    before = (*waiting, *(one.popped_at for one in checkpoints), *(ack.popped_at for ack in acks))
    if len(last.distances) == 1 and min(before) < last.popped_at:
        changed = format_time(last.popped_at)
        return f"a client changed its invisible time at {changed} to end at {over}, and did not acknowledge it by then"
    return (
        f"its invisible time was over at {over} without an acknowledgement (handed out {format_time(last.popped_at)})"
    )


def _records(reader: StoreReader, since: int, until: int) -> Iterator[PopCheckpoint | Acknowledgement]:
    """Yield the records that the revive topic got meanwhile; not those that are damaged."""
    for queue in revive_queues(reader.files):
        yield from _of_queue(reader, queue, since, until)


def _of_queue(
    reader: StoreReader, queue: AnyConsumeQueue, since: int, until: int
) -> Iterator[PopCheckpoint | Acknowledgement]:
    try:
        begin = reader.offset_at(queue.topic, queue.queue_id, since)
    except RmqctlError:
        begin = queue.min_offset(reader.files.log.min_offset)
    view = reader.view_without_ext(queue)
    for unit in queue.units(begin, min(queue.max_offset, begin + _MOST_RECORDS)):
        try:
            message = view.message_of(unit)
            if message.store_timestamp > until + _SLACK_MS:
                return
            record = revive_record(message.properties().get(names.TAGS), message.plain_body())
        except (CorruptError, NotFoundError, RecordError):
            continue
        if record is not None:
            yield record
