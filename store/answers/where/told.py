"""One message's whereabouts, put together: the evidence from all who know of it, and the verdict."""

from __future__ import annotations

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError, UnsupportedError
from rmqctl.formats.hosts import is_message_id, parse_offset_message_id
from rmqctl.formats.message import StoredMessage, unread_body
from rmqctl.formats.sys_flag import has_queue_slot
from rmqctl.formats.wording import counted, format_time
from rmqctl.store.answers.known_names import topic_entries, why_hidden
from rmqctl.store.answers.where.consumed import (
    BLOCKED,
    NOT_REACHED,
    PASSED,
    Consumers,
    group_verdict,
    hop_steps,
)
from rmqctl.store.answers.where.family import Family
from rmqctl.store.answers.where.held_back import HeldBack
from rmqctl.store.answers.where.places import Named, Place
from rmqctl.store.answers.where.popped import IN_FLIGHT, POPPED, UNACKNOWLEDGED
from rmqctl.store.answers.where.steps import GroupVerdict, Stage, Step, Verdict, Whereabouts, place_of, step_at
from rmqctl.store.answers.where.stored import (
    IMPOSSIBLE,
    MISSING,
    SUPERSEDED,
    WRONG,
    expiry_step,
    index_step,
    queue_steps,
    stored_step,
)
from rmqctl.store.commitlog.overflow import overflowed_at
from rmqctl.store.read.frames import MessageRemovedError, store_time_at
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage

_NAMED_GROUPS = 4
_TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_ORDER = list(Verdict)
_HELD = (
    *(Verdict.ROLLED_BACK, Verdict.GAVE_UP, Verdict.PENDING, Verdict.CANCELLED),
    *(Verdict.WAITING, Verdict.OVERDUE, Verdict.NOT_DELIVERED),
)


class Teller:
    """Tells the whereabouts of messages of one store."""

    def __init__(
        self, reader: StoreReader, consumers: Consumers, held: HeldBack, now: int, on_damage: OnDamage
    ) -> None:
        self._reader = reader
        self._consumers = consumers
        self._held = held
        self._now = now
        self._on_damage = on_damage

    # ---- a message that is there

    def family(self, asked: str, found_by: str, family: Family, groups: tuple[str, ...]) -> Whereabouts:
        """All about a message and its copies; of `groups`, or of all that are known where none is named."""
        held = [self._held.delay(one, family.sent) for one in family.delayed] + self._held.halves(family)
        lies = self._lies(family)
        own = [step for step in lies if step.stage is Stage.QUEUE and step.topic == family.shown.topic]
        slotless = next((step.detail for step in own if step.state in (IMPOSSIBLE, SUPERSEDED)), "")
        about = {group: self._group_steps(family, group, slotless) for group in self._groups(family, groups)}
        verdicts = tuple(group_verdict(group, steps) for group, steps in about.items())
        steps = [*lies, *held, *(step for one in about.values() for step in one)]
        steps.append(expiry_step(self._reader, family.shown, self._now))
        state, sentence = _verdict(family, lies, held, verdicts, self._consumers.missing)
        shown = family.shown
        broken = unread_body(shown)
        if broken is not None:
            self._on_damage(CorruptError(broken, physical_offset=shown.physical_offset))
            sentence += "; its body does not unpack, although its CRC holds: Java clients cannot read it"
        hidden = why_hidden(topic_entries(self._reader.files.layout).get(shown.topic), shown.queue_id)
        if hidden is not None and has_queue_slot(shown.sys_flag):
            sentence += f"; {hidden}"
        properties = shown.properties()
        return Whereabouts(
            asked, found_by, state, f"{sentence}.", shown.topic, shown.queue_id, shown.queue_offset,
            shown.physical_offset, shown.message_id, properties.get(names.UNIQUE_KEY), properties.get(names.KEYS),
            properties.get(names.TAGS), shown.store_timestamp, verdicts, tuple(steps),
        )  # fmt: skip

    def _lies(self, family: Family) -> list[Step]:
        shown = family.shown
        steps: list[Step] = []
        if shown in family.hops:
            steps.append(self._origin(family))
        steps += [stored_step(self._reader, shown), *queue_steps(self._reader, shown)]
        steps.append(index_step(self._reader, shown))
        for other in family.sent[1:]:
            detail = f"delivered more than once: also {place_of(other)} at physical offset {other.physical_offset}"
            steps.append(step_at(Stage.STORED, "again", detail, other))
        if family.again:
            others = counted(len(family.again), "other message has", "other messages have")
            detail = f"{others} the same unique key, such as {place_of(family.again[0])}: sent again, or of one batch"
            steps.append(step_at(Stage.STORED, "again", detail, family.again[0]))
        return steps

    def _origin(self, family: Family) -> Step:
        """What is known of the message that retries and dead letters were, where it is none of those found."""
        origin = family.origin_id
        if origin is None or not is_message_id(origin):
            return Step(Stage.STORED, "unknown", "the message that it was first is not named by its id")
        offset = parse_offset_message_id(origin)[1]
        step = Step(Stage.STORED, "unknown", "", physical_offset=offset)
        begin = self._reader.files.log.min_offset
        if 0 <= offset < begin:
            detail = f"the message that it was first lay at physical offset {offset}; the log begins at {begin} now"
            return step._replace(state="expired", detail=f"{detail}: expired")
        return step._replace(
            detail=f"the message that it was first has the id {origin}, which leads to no such message"
        )

    # ---- its groups

    def _groups(self, family: Family, wanted: tuple[str, ...]) -> list[str]:
        if wanted:
            return list(dict.fromkeys(wanted))
        found = {self._consumers.group_of(family, hop) for hop in family.hops}
        if family.sent:
            found.update(self._consumers.groups_of(family.shown.topic))
        return sorted(found)

    def _group_steps(self, family: Family, group: str, slotless: str) -> list[Step]:
        """`slotless`: why the message has no place in its queue that a group could reach."""
        steps: list[Step] = []
        if family.sent and slotless:
            detail = f"{group}: its offset says nothing of a message without a slot"
            steps.append(step_at(Stage.GROUP, "unknown", detail, family.shown)._replace(group=group, timestamp=None))
        elif family.sent:
            sent = family.shown
            steps.append(self._reached(group, Place(sent.topic, sent.queue_id, sent.queue_offset)))
            filtered = self._consumers.filtered(group, sent)
            if filtered is not None:
                steps.append(filtered)
        else:
            why = "the message it was is not left" if family.hops else "it is not in its topic yet"
            steps.append(Step(Stage.GROUP, "unknown", f"{group}: {why}", family.topic, group=group))
        return [*steps, *hop_steps(family, group, self._consumers, self._held)]

    def _reached(self, group: str, place: Place) -> Step:
        """The step of a group; a damaged message at which it stops before it gets there is told."""
        step = self._consumers.reached(group, *place)
        if step.state != NOT_REACHED or not step.distance or step.group_offset is None:
            return step
        try:
            queue = self._reader.files.queues.find(place.topic, place.queue_id)
            unit = None if queue is None else queue.unit(step.group_offset)
            if queue is not None and unit is not None:
                self._reader.view_without_ext(queue).message_of(unit)
        except CorruptError as error:
            self._on_damage(error)
            return step._replace(state=BLOCKED, detail=f"{step.detail}; it stops at that offset: {error.message}")
        except (NotFoundError, UnsupportedError):
            pass
        return step

    # ---- a place without a message

    def unread(self, asked: str, named: Named, groups: tuple[str, ...]) -> Whereabouts:
        """All about what was named and cannot be read: expired, damaged, or not there."""
        error = named.error
        whole = None
        if isinstance(error, CorruptError) and named.physical_offset is not None:
            whole = overflowed_at(self._reader.files.log, named.physical_offset)
        state = Verdict.DAMAGED if isinstance(error, CorruptError) else Verdict.ABSENT
        log = self._reader.files.log
        if state is Verdict.ABSENT and _is_expired(named, log.min_offset):
            state = Verdict.EXPIRED
        if isinstance(error, CorruptError):
            self._on_damage(error)
        said = "" if error is None else error.message
        if whole is not None:
            message, said = whole
            named.place = Place(message.topic, message.queue_id, message.queue_offset)
        if state is Verdict.EXPIRED:
            said += self._since(log.min_offset)
        step = Step(Stage.STORED, str(state), said, physical_offset=named.physical_offset)
        steps, place = [step], named.place
        verdicts: tuple[GroupVerdict, ...] = ()
        if place is not None:
            steps = [step._replace(topic=place.topic, queue_id=place.queue_id, queue_offset=place.queue_offset)]
        if place is not None and state is not Verdict.ABSENT:
            names_of = list(groups) or self._consumers.groups_of(place.topic)
            reached = [self._reached(group, place) for group in names_of]
            steps += reached
            verdicts = tuple(_of_lost(group, one, state) for group, one in zip(names_of, reached, strict=True))
        what = "No message can be read there" if state is Verdict.DAMAGED else "There is no message"
        if state is Verdict.EXPIRED:
            what = "The message has expired"
        if whole is not None:
            what, said = "It is stored whole, but no consumer can get it", f"{said}; {_shows(named.physical_offset)}"
        sentence = _joined(f"{what}: {said}", verdicts)
        answer = Whereabouts(asked, named.how, state, f"{sentence}.", groups=verdicts, evidence=tuple(steps))
        answer = answer._replace(physical_offset=named.physical_offset)
        answer = answer if place is None else answer._replace(**place._asdict())
        return answer if whole is None else _named_as(answer, whole[0])

    def _since(self, min_offset: int) -> str:
        """When the oldest message was stored that is left: what is gone was stored before."""
        time = store_time_at(self._reader.files.log, min_offset)
        return "" if time is None else f"; what is left was stored at {format_time(time)} and later"


def _shows(physical_offset: int | None) -> str:
    return f"`rmqctl query -o {physical_offset}` shows it, `rmqctl salvage` stores it in a new store"


def _named_as(answer: Whereabouts, message: StoredMessage) -> Whereabouts:
    """Return the answer with what names a message."""
    properties = message.properties()
    return answer._replace(
        msg_id=message.message_id,
        unique_key=properties.get(names.UNIQUE_KEY),
        keys=properties.get(names.KEYS),
        tags=properties.get(names.TAGS),
        store_timestamp=message.store_timestamp,
    )


def _is_expired(named: Named, min_offset: int) -> bool:
    if named.place is not None:
        return isinstance(named.error, MessageRemovedError)
    return named.physical_offset is not None and named.physical_offset < min_offset


def _of_lost(group: str, step: Step, state: Verdict) -> GroupVerdict:
    """What a group has made of a message that is not there any more, or damaged."""
    if step.state in (POPPED, IN_FLIGHT, UNACKNOWLEDGED):
        return GroupVerdict(group, Verdict.UNKNOWN, "was given it by POP")
    if step.state == PASSED:
        return GroupVerdict(group, Verdict.READ, "had read past it")
    if step.state not in (NOT_REACHED, BLOCKED):
        return GroupVerdict(group, Verdict.UNKNOWN, "has no offset there that is kept")
    if state is Verdict.EXPIRED:
        return GroupVerdict(group, Verdict.EXPIRED, "had not read it")
    if step.state == BLOCKED or step.distance == 0:
        return GroupVerdict(group, Verdict.BLOCKED, "stands before it" if step.distance == 0 else "stops before it")
    return GroupVerdict(group, Verdict.UNREAD, "has not read it")


def _verdict(
    family: Family, lies: list[Step], held: list[Step], verdicts: tuple[GroupVerdict, ...], missing: str
) -> tuple[Verdict, str]:
    """`missing`: why offsets of groups are not known, where they are not."""
    shown = family.shown
    if not family.sent and shown in family.hops:
        state = min((one.state for one in verdicts), key=_ORDER.index, default=Verdict.UNKNOWN)
        what = f"The message of {family.topic} itself is not left, {place_of(shown)} is a copy of it"
        return state, _joined(what, verdicts)
    if not family.sent:
        target = family.topic or "a topic that it does not name"
        # a rollback counts, even if the broker does not know of it and asks for a later copy
        last = next((step for step in held if step.state == Verdict.ROLLED_BACK), held[-1])
        known = last.state in {str(one) for one in _HELD}
        sentence = f"It is not in {target}: {last.detail}"
        if last is not held[-1]:
            sentence += "; a later copy is open all the same, and the broker asks for it"
        return Verdict(last.state) if known else Verdict.UNKNOWN, sentence
    slots = [step for step in lies if step.stage is Stage.QUEUE and step.physical_offset == shown.physical_offset]
    lost = [step for step in slots if step.state in (MISSING, WRONG, IMPOSSIBLE, SUPERSEDED)]
    if lost:
        first = min(lost, key=lambda step: step.topic != shown.topic)
        who = "no consumer" if first.topic == shown.topic else f"no consumer of {first.topic}"
        return Verdict.NO_SLOT, f"It is stored, but {who} can get it: {first.detail}"
    unknown = [step for step in slots if step.state not in ("there", "none")]
    what = f"{place_of(shown)} is stored and in its queue"
    if unknown or not slots:
        what = f"{place_of(shown)} is stored; whether it is in its queue is not known"
    if slots and slots[0].state == "none":
        what = f"{place_of(shown)} is stored, and takes no slot of a queue"
    if not verdicts:
        why = f": {missing}" if missing else ""
        return Verdict.STORED, f"{what}; no group is known to consume {shown.topic}{why}"
    return min((one.state for one in verdicts), key=_ORDER.index), _joined(what, verdicts)


def _joined(what: str, verdicts: tuple[GroupVerdict, ...]) -> str:
    if len(verdicts) <= _NAMED_GROUPS:
        return "; ".join([what, *(f"{one.group} {one.detail}" for one in verdicts)])
    counts = {state: sum(one.state is state for one in verdicts) for state in Verdict}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"{what}; of {len(verdicts)} groups {told}"


def plain_members(messages: list[StoredMessage]) -> list[StoredMessage]:
    """Without the message traces, which have the keys of what they tell of among theirs."""
    return [message for message in messages if message.topic != _TRACE_TOPIC]
