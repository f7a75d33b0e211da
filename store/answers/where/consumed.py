"""What consumer groups have made of a message: read it, passed it over, tried it again, given it up, not got to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmqctl.formats import properties as names
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.wording import counted, format_time
from rmqctl.store.answers.config_offsets import (
    Say,
    consumer_table,
    offset_key,
    offsets_of,
    table_in,
)
from rmqctl.store.answers.dead_letters import POP_SEPARATORS, RETRY_PREFIX, pop_retry_topics
from rmqctl.store.answers.filters import FILTER_FILE, FILTER_TABLE, KnownFilters
from rmqctl.store.answers.groups import GROUP_FILE, GROUP_TABLE
from rmqctl.store.answers.where.family import Family, Role, named_in_hop, role_of
from rmqctl.store.answers.where.held_back import OVERDUE, WAITING, HeldBack
from rmqctl.store.answers.where.popped import ACKNOWLEDGED, IN_FLIGHT, POPPED, UNACKNOWLEDGED, Popping
from rmqctl.store.answers.where.steps import GroupVerdict, Stage, Step, Verdict, place_of, step_at
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage

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

    def __init__(self, reader: StoreReader, now: int, tell: Say, on_damage: OnDamage, tags: str | None = None) -> None:
        """`now` in ms; `tags`: what whoever asks says the groups take."""
        self._reader = reader
        config = reader.files.layout.config
        self._offsets: dict[str, dict[str, dict[int, int]]] = {}
        self.missing = ""
        kept = consumer_table(config, reader.files.config, tell, on_damage)
        self.missing = kept.missing
        for stale in kept.stale:
            self._offsets.setdefault(stale.topic, {})[stale.group + (BROADCAST if stale.is_broadcast else "")] = {}
        for key, queues in (kept.table or {}).items():
            owner = offset_key(key)
            if owner is not None and isinstance(queues, Mapping):
                group = owner.group + (BROADCAST if owner.is_broadcast else "")
                self._offsets.setdefault(owner.topic, {})[group] = offsets_of(queues)
        groups = table_in(config / GROUP_FILE, GROUP_TABLE, tell, on_damage) or {}
        self.configured = {str(group) for group in groups}
        modes = table_in(config / _MODE_FILE, _MODE_TABLE, tell, on_damage) or {}
        self._popping = Popping(reader, modes, self.configured, self.offset, now, on_damage)
        self._filters = KnownFilters(groups, table_in(config / FILTER_FILE, FILTER_TABLE, tell, on_damage) or {}, tags)

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
        """How a group's offset lies to a place of a queue."""
        step = Step(Stage.GROUP, UNKNOWN, "", topic, queue_id, queue_offset, group=group)
        offset = self.offset(group, topic, queue_id)
        if offset is None:
            why = self.missing or "no offset of this queue is kept: it has not consumed, or keeps its offsets itself"
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
            detail = f"{group}: retry {number} is {place_of(hop)}; {reached.detail.removeprefix(f'{group}: ')}"
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
    if reached.state in (POPPED, IN_FLIGHT):
        known = "its acknowledgement is not known" if reached.state == POPPED else "it is in flight"
        return Verdict.UNKNOWN, f"was given it by POP, and {known}"
    if reached.state == BLOCKED:
        return Verdict.BLOCKED, f"stands before a damaged message, {counted(reached.distance or 0, 'slot')} before it"
    if reached.state == NOT_REACHED:
        ahead = counted(reached.distance or 0, "message")
        return Verdict.UNREAD, f"has not read it yet ({ahead} before it)"
    return Verdict.UNKNOWN, "has no offset there that is kept"


def place_of_step(step: Step) -> str:
    """`topic queue offset` of what a step is about."""
    return f"{step.topic} {step.queue_id} {step.queue_offset}"
