"""What consumer groups have made of a message: read it, passed it over, tried it again, given it up, not got to it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import parse_long, whole_number
from rmqctl.formats.errors import CorruptError, NotFoundError, counted, format_time, lasting
from rmqctl.formats.message import StoredMessage
from rmqctl.store.answers.config_offsets import (
    DELAY_FILE,
    GROUP_TABLE,
    OFFSET_TABLE,
    UNKNOWN_GROUP,
    consumer_table,
    offset_key,
    offsets_of,
    table_in,
)
from rmqctl.store.answers.delays import unknown_level
from rmqctl.store.answers.evidence import ACKNOWLEDGED, IN_FLIGHT, LOST, POPPED, UNACKNOWLEDGED, Popping
from rmqctl.store.answers.groups import FILTER_FILE, FILTER_TABLE, GROUP_FILE, PAST_END, KnownFilters
from rmqctl.store.answers.steps import (
    Family,
    GroupVerdict,
    Role,
    Stage,
    Step,
    Verdict,
    named_in_hop,
    place_of,
    role_of,
    step_at,
)
from rmqctl.store.answers.transactions import why_given_up
from rmqctl.store.answers.undispatched import (
    CHECK_TIMES,
    OP_TOPIC,
    PRODUCER_GROUP,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    ended_offsets,
    undispatched,
)
from rmqctl.store.config.config_files import why_unknown
from rmqctl.store.options import Events
from rmqctl.store.pop.records import POP_SEPARATORS, RETRY_PREFIX, pop_retry_topics
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.read.filter import TopicFilter
from rmqctl.store.read.get import QueueView
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.timer.recovered import RecoveredTimer, due_time, recover_timer

# What holds a message back from its topic: a delay level, a delivery time of its own, or a transaction.

DELIVERED = "delivered"
WAITING = "waiting"
OVERDUE = "overdue"
CANCELLED = "cancelled"
COMMITTED = "committed"
ROLLED_BACK = "rolled-back"
SUPERSEDED = "superseded"
GAVE_UP = "gave-up"
PENDING = "pending"

NOT_DELIVERED = "not-delivered"


class HeldBack:
    """Explain single messages as `delays` and `halves` explain all."""

    def __init__(self, reader: StoreReader, now: int) -> None:
        self._reader = reader
        self._now = now
        self._delay_offsets: dict[int, int] | None = None
        self._is_delay_read = False
        self._timer: RecoveredTimer | None = None
        self._is_timer_read = False

    # ---- delays

    def delay(self, message: StoredMessage, delivered: list[StoredMessage]) -> Step:
        """Of a message in the schedule or timer topic whether it was delivered: `delivered` are those that it may have
        become. Of a level also delayOffset.json knows (ScheduleMessageService), of the timer only the topic does."""
        later = [one for one in delivered if one.physical_offset > message.physical_offset]
        target = message.properties().get(names.REAL_TOPIC, "a topic that it does not name")
        due = self._due(message)
        what = f"level {message.queue_id + 1}" if message.topic == SCHEDULE_TOPIC else "the timer"
        when = "at a time that is not known" if due is None else f"at {format_time(due)}"
        if later:
            after = "" if due is None else f", {_late(later[0].store_timestamp - due)}"
            detail = f"{what} delivered it to {target} at {format_time(later[0].store_timestamp)}{after}"
            return step_at(Stage.DELAY, DELIVERED, detail, message)._replace(timestamp=later[0].store_timestamp)
        step = step_at(Stage.DELAY, WAITING, "", message)._replace(timestamp=due)
        if message.topic == TIMER_TOPIC:
            return self._timed(message, step, target, when)
        offset = self._delay_offset(message.queue_id + 1)
        if offset is None:
            why = why_unknown(self._reader.files.layout.config / DELAY_FILE)
            detail = f"{what} was to deliver it to {target} {when}; no delivered copy is there, and {why}"
            return step._replace(state=UNKNOWN, detail=detail)
        if offset > message.queue_offset:
            detail = f"{what} has passed it ({DELAY_FILE}: {offset}), but no delivered copy is in {target}"
            return self._passed(step, detail)
        ahead = counted(message.queue_offset - offset, "message")
        detail = f"it waits in delay {what} for {target}, due {when}, behind {ahead}"
        levels = len(self._reader.files.config.delay_levels())
        if message.queue_id >= levels:
            return step._replace(state=NOT_DELIVERED, detail=f"{detail}: {unknown_level(levels)}")
        return self._still(step, detail)

    def _still(self, step: Step, detail: str) -> Step:
        if step.timestamp is None or step.timestamp > self._now:
            return step._replace(detail=detail)
        late = lasting(self._now - step.timestamp)
        return step._replace(state=OVERDUE, detail=f"{detail}: overdue by {late}, no broker has delivered it")

    def _due(self, message: StoredMessage) -> int | None:
        properties = message.properties()
        if message.topic == TIMER_TOPIC:
            return due_time(properties.get(names.TIMER_OUT_MS, ""))
        with suppress(CorruptError):  # queues in a damaged RocksDB
            queue = self._reader.files.queues.find(SCHEDULE_TOPIC, message.queue_id)
            unit = None if queue is None else queue.unit(message.queue_offset)
            if unit is not None and unit.is_written and unit.physical_offset == message.physical_offset:
                return unit.tags_code  # what a broker goes by
        levels = self._reader.files.config.delay_levels()
        # a level that the table lacks counts as one second (CommitLog#checkMessageAndReturnSize)
        return message.store_timestamp + (levels[message.queue_id] if message.queue_id < len(levels) else 1000)

    def _delay_offset(self, level: int) -> int | None:
        if not self._is_delay_read:
            self._is_delay_read = True
            path = self._reader.files.layout.config / DELAY_FILE
            table = table_in(path, OFFSET_TABLE, self._reader.events)
            self._delay_offsets = None if table is None else offsets_of(table)
        return None if self._delay_offsets is None else self._delay_offsets.get(level, 0)

    def _timed(self, message: StoredMessage, step: Step, target: str, when: str) -> Step:
        later = self._later_of(message)
        if later is not None and names.TIMER_ROLL_TIMES in later.properties():
            detail = f"it was due after the end of the wheel, and was stored again as message {later.physical_offset}"
            return step._replace(state=SUPERSEDED, detail=detail)
        if later is not None:
            detail = f"it was cancelled by message {later.physical_offset} before the timer delivered it to {target}"
            return step._replace(state=CANCELLED, detail=detail)
        timer = self._recovered_timer()
        out = step.timestamp
        if timer is None or out is None or message.physical_offset in timer.linked["physical_offset"]:
            return self._still(step, f"it waits in the timer for {target}, due {when}")
        if timer.storage is not None and out >= timer.delivered_ms:
            key = message.properties().get(names.UNIQUE_KEY, "")
            rows = timer.storage.timers(out, self._reader.events.damaged)
            if any(one.unique_key == key for one in itertools.takewhile(lambda one: one.out == out, rows)):
                return self._still(step, f"it waits in rocksdbstore/ for {target}, due {when}")
        if message.queue_offset >= timer.queue_offset:
            detail = f"it waits for the timer, which puts it on its wheel for {target} when a broker starts, due {when}"
            return self._still(step, detail)
        if out < max(timer.checkpoint.last_read_time_ms, timer.delivered_ms):
            detail = f"the timer has passed its time ({when}), but no delivered copy is in {target}"
            return self._passed(step, detail)
        detail = f"the timer has passed it and has it on no slot of its wheel, due {when} for {target}"
        return step._replace(state=NOT_DELIVERED, detail=f"{detail}: no broker delivers it; `rmqctl repair` helps")

    def _passed(self, step: Step, detail: str) -> Step:
        """Return the step of a message that was to be delivered before now and has no copy in its topic."""
        if self._reader.files.config.escapes:
            return step._replace(state=UNKNOWN, detail=f"{detail}: another broker may have it (enableRemoteEscape)")
        return step._replace(state=UNKNOWN, detail=f"{detail}: expired, lost or discarded")

    def _recovered_timer(self) -> RecoveredTimer | None:
        """Return the timer as a broker recovers it; None where its checkpoint is damaged."""
        if not self._is_timer_read:
            self._is_timer_read = True
            try:
                self._timer = recover_timer(self._reader, self._reader.files.queues.find(TIMER_TOPIC, 0))
            except CorruptError as error:
                self._reader.events.damaged(error)
        return self._timer

    def _later_of(self, message: StoredMessage) -> StoredMessage | None:
        """Return a later message of the timer's topic that takes `message` back, or that it was stored again as when
        the wheel was too small for it (TimerMessageStore#doEnqueue, #doPut)."""
        properties = message.properties()
        key, topic = properties.get(names.UNIQUE_KEY), properties.get(names.REAL_TOPIC)
        view = self._view(TIMER_TOPIC, 0)
        if key is None or view is None:
            return None
        for one in _messages(view, message.queue_offset + 1, self._reader.events):
            other = one.properties()
            # the key alone since 5.5.0, before that behind the topic and a +
            if other.get(names.TIMER_DELETE_UNIQUE_KEY) in (key, f"{topic}+{key}"):
                return one
            if other.get(names.UNIQUE_KEY) == key and names.TIMER_ROLL_TIMES in other:
                return one
        return None

    # ---- transactions

    def halves(self, family: Family) -> list[Step]:
        """Of each copy of a half message how it ended (TransactionalMessageServiceImpl#check)."""
        steps: list[Step] = []
        committed = {one.prepared_transaction_offset: one for one in family.sent}
        last = family.halves[-1] if family.halves else None
        folded: list[StoredMessage] = []
        for half in family.halves:
            if half.physical_offset in committed:
                detail = f"committed: it is in {family.topic} as {committed[half.physical_offset].queue_offset}"
                steps.append(step_at(Stage.HALF, COMMITTED, detail, half))
            elif ended := self._is_ended(half):
                steps.append(step_at(Stage.HALF, *self._ended(family, half), half))
            elif half is not last:
                folded.append(half)
            else:
                steps.append(self._open(family, half, ended))
        if folded:
            what = counted(len(folded), "earlier copy", "earlier copies")
            detail = f"{what} of the half message: the broker makes one each time that it asks the producers"
            steps.append(step_at(Stage.HALF, SUPERSEDED, detail, folded[-1]))
        if not family.halves and family.given_up:
            detail = "the broker gave it up, and the half message itself is not left"
            steps.append(step_at(Stage.HALF, GAVE_UP, detail, family.given_up[-1]))
        return sorted(steps, key=lambda step: step.physical_offset or 0)

    def _ended(self, family: Family, half: StoredMessage) -> tuple[str, str]:
        by = f"a mark in {ROCKSDB_OP_TOPIC if half.topic == ROCKSDB_HALF_TOPIC else OP_TOPIC} ends it"
        if family.sent:
            return COMMITTED, f"{by}: the commit of another copy of it is in {family.topic}"
        if self._reader.files.log.min_offset > 0:
            return UNKNOWN, f"{by}, and no committed message is left: rolled back, or committed and expired"
        return ROLLED_BACK, f"{by}, and no message was committed: it was rolled back"

    def _open(self, family: Family, half: StoredMessage, ended: bool | None) -> Step:
        properties = half.properties()
        checks = whole_number(properties.get(CHECK_TIMES, "0"))
        asked = "the producers were not asked yet"
        if checks:
            asked = f"producers of {properties.get(PRODUCER_GROUP)} were asked {counted(checks, 'time')}"
        if half.topic == ROCKSDB_HALF_TOPIC and ended is False:
            checks, is_dropped = self._in_rocksdb(half)
            if is_dropped:
                return step_at(
                    Stage.HALF, GAVE_UP, "the broker asked too often, and dropped it from rocksdbstore/", half
                )
            if checks:
                asked = f"producers of {properties.get(PRODUCER_GROUP)} were asked {counted(checks, 'time')}"
        if family.given_up:
            detail = f"the broker stopped asking ({family.given_up[-1].topic}): {asked}, and no producer answered"
            return step_at(Stage.HALF, GAVE_UP, detail, half)
        if ended is None:
            return step_at(Stage.HALF, UNKNOWN, f"marks that may end it cannot be read; {asked}", half)
        if family.sent:
            detail = f"this copy is open although the message was committed: the broker asks again; {asked}"
            return step_at(Stage.HALF, PENDING, detail, half)
        since = self._now - half.born_timestamp
        why = why_given_up(since, checks, self._reader.files.config)
        if half.topic != ROCKSDB_HALF_TOPIC and why is not None:
            asked = f"{asked}; {why}: the next check of a broker gives it up"
        return step_at(Stage.HALF, PENDING, f"neither committed nor rolled back for {lasting(since)}: {asked}", half)

    def _is_ended(self, half: StoredMessage) -> bool | None:
        """Whether a mark behind the half message names it; None where marks cannot be read."""
        in_rocksdb = half.topic == ROCKSDB_HALF_TOPIC
        try:
            view = self._view(ROCKSDB_OP_TOPIC if in_rocksdb else OP_TOPIC, half.queue_id)
        except CorruptError:
            return None
        if view is None:
            return False
        damaged: list[CorruptError] = []
        for mark in _messages(view, view.queue.min_offset(half.physical_offset), Events(damage=damaged.append)):
            if in_rocksdb and parse_long(mark.properties().get(names.TRANS_OFFSET, "")) == half.physical_offset:
                return True
            if not in_rocksdb and half.queue_offset in ended_offsets(mark.body):
                return True
        for error in damaged:
            self._reader.events.damaged(error)
        return None if damaged else False

    def _in_rocksdb(self, half: StoredMessage) -> tuple[int | None, bool]:
        """How often the producers of an open half message were asked, and whether the broker dropped it."""
        try:
            storage = self._reader.files.message_storage
            checks = None if storage is None else storage.checks_of(half.physical_offset)
            reached = None if storage is None else storage.transactions_to()
        except CorruptError as error:
            self._reader.events.damaged(error)
            return None, False
        return checks, checks is None and reached is not None and reached >= half.physical_offset

    def _view(self, topic: str, queue_id: int) -> QueueView | None:
        queue = self._reader.files.queues.find(topic, queue_id)
        return None if queue is None else self._reader.view_without_ext(queue)


def _late(milliseconds: int) -> str:
    return "on time" if milliseconds < 1000 else f"{lasting(milliseconds)} late"


def _messages(view: QueueView, begin: int, events: Events) -> Iterator[StoredMessage]:
    for unit in view.queue.units(max(begin, view.queue.min_offset(view.log.min_offset)), view.queue.max_offset):
        try:
            yield view.message_of(unit)
        except NotFoundError:  # removed by a cleaner while we looked
            continue
        except CorruptError as error:
            events.damaged(error)


_MODE_FILE = "messageRequestMode.json"
_MODE_TABLE = "messageRequestModeMap"

PASSED = "passed"
NOT_REACHED = "not-reached"
BLOCKED = "blocked"
BROADCAST = " (broadcasting)"
TAKEN = "taken"
PASSED_OVER = "passed-over"
READ = "read"
UNREAD = "unread"
GIVEN_UP = "given-up"
UNKNOWN = "unknown"


class Consumers:
    """Offsets and filters of all groups, read once."""

    def __init__(self, reader: StoreReader, now: int, tags: str | None = None) -> None:
        """`now` in ms; `tags`: the tag expression that the caller gives for the groups."""
        self._reader = reader
        config = reader.files.layout.config
        self._offsets: dict[str, dict[str, dict[int, int]]] = {}
        # messages after the ends of queues, by topic
        self._behind: dict[str, Counter[tuple[str, int]]] = {}
        self.missing = ""
        kept = consumer_table(config, reader.files.config, reader.events)
        self.missing = kept.missing
        for stale in kept.stale:
            self._offsets.setdefault(stale.topic, {})[stale.group + (BROADCAST if stale.is_broadcast else "")] = {}
        for key, queues in (kept.table or {}).items():
            owner = offset_key(key)
            if owner is not None and isinstance(queues, Mapping):
                group = owner.group + (BROADCAST if owner.is_broadcast else "")
                self._offsets.setdefault(owner.topic, {})[group] = offsets_of(queues)
        groups = table_in(config / GROUP_FILE, GROUP_TABLE, reader.events) or {}
        self.configured = {str(group) for group in groups}
        modes = table_in(config / _MODE_FILE, _MODE_TABLE, reader.events) or {}
        self._popping = Popping(reader, modes, self.configured, self.offset, now)
        self._filters = KnownFilters(groups, table_in(config / FILTER_FILE, FILTER_TABLE, reader.events) or {}, tags)

    def groups_of(self, topic: str) -> list[str]:
        """Groups with an offset in some queue of the topic, in order."""
        return sorted(self._offsets.get(topic, {}))

    def group_of(self, family: Family, hop: StoredMessage) -> str:
        """The group that a retry or a dead letter of the family is of. What a broker makes of a message that was not
        acknowledged says neither the group nor the topic (PopReviveService#reviveRetry), as other retries do."""
        named = named_in_hop(hop)
        owners = self.groups_of(hop.topic)
        if named in self.configured or named in owners:
            return named
        origins = (hop.properties().get("RETRY_TOPIC"), family.topic)
        for ending in (separator + origin for origin in origins if origin for separator in POP_SEPARATORS):
            if named.endswith(ending):
                return named.removesuffix(ending)
        for group in owners:
            if f"{RETRY_PREFIX}{named}".startswith(pop_retry_topics(group)):
                return group
        return named

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """What the group reads next there; None where that is not kept."""
        offset = self._offsets.get(topic, {}).get(group, {}).get(queue_id)
        return offset if offset is not None and offset >= 0 else None

    def reached(self, group: str, topic: str, queue_id: int, queue_offset: int) -> Step:
        """Position of a group's offset relative to a place of a queue."""
        step = Step(Stage.GROUP, UNKNOWN, "", topic, queue_id, queue_offset, group=group)
        offset = self.offset(group, topic, queue_id)
        if offset is None:
            why = self.missing or "no offset of this queue is kept: it has not consumed, or keeps its offsets itself"
            if not self.missing and self.configured and group.removesuffix(BROADCAST) not in self.configured:
                why = f"no offset of this queue is kept, and {UNKNOWN_GROUP}"
            return step._replace(detail=f"{group}: {why}")
        step = step._replace(group_offset=offset, distance=queue_offset - offset)
        if (in_order := self._popping.said_in_order(group, topic, queue_id, queue_offset)) is not None:
            state, why = in_order
            detail = (
                f"{group}: its offset is {offset}, and the group consumes by POP in order: it was handed out, {why}"
            )
            return step._replace(state=PASSED if state == ACKNOWLEDGED else state, detail=detail)
        if offset > queue_offset:
            by = counted(offset - queue_offset, "message")
            detail = f"{group}: its offset {offset} is past it, by {by}"
            if (end := self._end_before(topic, queue_id, queue_offset, offset)) is not None:
                why = "it says nothing of a queue that was cut, or whose topic was created again"
                return step._replace(
                    state=PAST_END, detail=f"{group}: its offset {offset} is past the end {end}: {why}"
                )
            shown = self._popping.evidence(group, topic)
            if shown is None:
                return step._replace(state=PASSED, detail=detail)
            state, why = self._popping.said(group, topic, queue_id, queue_offset)
            detail += f"; but the group consumes by POP ({shown}): it was handed out, {why}"
            return step._replace(state=PASSED if state == ACKNOWLEDGED else state, detail=detail)
        ahead = f"{counted(queue_offset - offset, 'message')} come first" if queue_offset > offset else "it is the next"
        if queue_offset - offset == 1:
            ahead = "1 message comes first"
        return step._replace(state=NOT_REACHED, detail=f"{group}: its offset {offset} is not past it, {ahead}")

    def _end_before(self, topic: str, queue_id: int, queue_offset: int, offset: int) -> int | None:
        """Return the end of a queue that has the slot, if a group's offset is past all that its log holds."""
        queue = self._reader.files.queues.find(topic, queue_id)
        if queue is None or not queue_offset < queue.max_offset < offset:
            return None
        if topic not in self._behind:
            self._behind[topic] = undispatched(self._reader.files, Events(), TopicFilter([topic])).slots
        end = queue.max_offset + self._behind[topic][topic, queue_id]
        return end if offset > end else None

    def why_again(self, family: Family, group: str, hop: StoredMessage) -> str | None:
        """Return why POP handed the message out to the group again as `hop`; None where it was not POP."""
        earlier = [
            one
            for one in (*family.sent, *family.hops)
            if one.reconsume_times == hop.reconsume_times - 1
            and one.physical_offset < hop.physical_offset
            and (one in family.sent or self.group_of(family, one) == group)
        ]
        return self._popping.why_again(group, earlier[-1] if earlier else None, hop)

    def filtered(self, group: str, message: StoredMessage) -> Step | None:
        """Whether the group's filter takes the message; None where no filter is known."""
        known = self._filters.of(group.removesuffix(BROADCAST), message.topic)
        if known is None:
            return None
        step = step_at(Stage.FILTER, UNKNOWN, "", message)._replace(group=group)
        said = f"{group}: its filter {known.expression!r} ({known.source})"
        if known.tags is None:
            return step._replace(detail=f"{said} is no list of tags, and is not judged here")
        tag = message.properties().get(names.TAGS)
        what = "a message without a tag" if tag is None else f"tag {tag!r}"
        if known.tags.matches(tag):
            return step._replace(state=TAKEN, detail=f"{said} takes {what}")
        return step._replace(state=PASSED_OVER, detail=f"{said} passes over {what}")


def hop_steps(family: Family, group: str, consumers: Consumers, held: HeldBack) -> Iterator[Step]:
    """Each time that the group was given the message again, and where it was given up."""
    hops = [hop for hop in family.hops if consumers.group_of(family, hop) == group]
    for hop in hops:
        number = hop.reconsume_times
        if role_of(hop) is Role.DEAD:
            when = format_time(hop.store_timestamp)
            detail = f"{group}: given up after {counted(number, 'attempt')}, at {when}: {place_of(hop)}"
            yield step_at(Stage.DEAD, GIVEN_UP, detail, hop)._replace(group=group)
        elif role_of(hop) is Role.RETRY:
            reached = consumers.reached(group, hop.topic, hop.queue_id, hop.queue_offset)
            state = {PASSED: READ, NOT_REACHED: UNREAD, UNACKNOWLEDGED: UNREAD}.get(reached.state, UNKNOWN)
            why = consumers.why_again(family, group, hop)
            again = "" if why is None else f", came again because {why}"
            detail = f"{group}: retry {number} is {place_of(hop)}{again}; {reached.detail.removeprefix(f'{group}: ')}"
            step = step_at(Stage.RETRY, state, detail, hop)
            yield step._replace(group=group, group_offset=reached.group_offset, distance=reached.distance)
        else:
            given = [one for one in hops if role_of(one) is Role.RETRY and one.reconsume_times == number]
            step = held.delay(hop, given)
            if step.state in (WAITING, OVERDUE, UNKNOWN):
                yield step._replace(stage=Stage.RETRY, group=group, detail=f"{group}: retry {number}: {step.detail}")


def group_verdict(group: str, steps: list[Step]) -> GroupVerdict:
    """What the steps about one group come to."""
    state, detail = _judged(steps)
    return GroupVerdict(group, state, detail)


def _judged(steps: list[Step]) -> tuple[Verdict, str]:
    by_stage: dict[Stage, list[Step]] = {}
    for step in steps:
        by_stage.setdefault(step.stage, []).append(step)
    if dead := by_stage.get(Stage.DEAD):
        return Verdict.DEAD, f"gave it up ({place_of_step(dead[-1])})"
    if tries := by_stage.get(Stage.RETRY):
        last = tries[-1]
        if last.state in (WAITING, OVERDUE):
            return Verdict.RETRYING, f"is to try it again at {format_time(last.timestamp or 0)}"
        if last.state == UNREAD:
            return Verdict.RETRYING, f"has its retry before it ({place_of_step(last)})"
        if last.state == READ:
            return Verdict.READ, f"has read its last retry ({place_of_step(last)})"
        return Verdict.UNKNOWN, f"may have read its last retry ({place_of_step(last)})"
    over = [step for step in by_stage.get(Stage.FILTER, ()) if step.state == PASSED_OVER]
    (reached,) = by_stage[Stage.GROUP]
    if over:
        passes = "passes over it" if reached.state != PASSED else "has passed over it"
        return Verdict.FILTERED, f"{passes} by its filter"
    if reached.state == PASSED:
        return Verdict.READ, "has read past it"
    if reached.state == UNACKNOWLEDGED:
        return Verdict.RETRYING, "was given it by POP, has not acknowledged it in time, and gets it again"
    if reached.state in (POPPED, IN_FLIGHT, LOST):
        known = "its acknowledgement is not known" if reached.state == POPPED else "it is in flight"
        known = "the timer has lost its checkpoint: no broker hands it out again" if reached.state == LOST else known
        return Verdict.UNKNOWN, f"was given it by POP, and {known}"
    if reached.state == PAST_END:
        return Verdict.UNKNOWN, f"has an offset past the end of the queue ({reached.group_offset})"
    if reached.state == BLOCKED:
        return Verdict.BLOCKED, f"is stuck at a damaged message, {counted(reached.distance or 0, 'slot')} before it"
    if reached.state == NOT_REACHED:
        ahead = counted(reached.distance or 0, "message")
        return Verdict.UNREAD, f"has not read it yet ({ahead} before it)"
    return Verdict.UNKNOWN, "has no offset there that is kept"


def place_of_step(step: Step) -> str:
    """`topic queue offset` of what a step is about."""
    return f"{step.topic} {step.queue_id} {step.queue_offset}"
