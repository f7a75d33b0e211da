"""The question itself: what a key, an id, an offset or a place in a queue means, and all about what it means."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError, UnsupportedError, UsageError, counted, format_time
from rmqctl.formats.message import StoredMessage, is_message_id, parse_offset_message_id, unread_body
from rmqctl.formats.properties import REAL_TOPIC, has_queue_slot
from rmqctl.store.answers.config_offsets import topic_entries, why_hidden
from rmqctl.store.answers.consumed import BLOCKED, NOT_REACHED, PASSED, Consumers, HeldBack, group_verdict, hop_steps
from rmqctl.store.answers.dead_letters import DLQ_PREFIX
from rmqctl.store.answers.evidence import (
    IMPOSSIBLE,
    IN_FLIGHT,
    MISSING,
    POPPED,
    SUPERSEDED,
    UNACKNOWLEDGED,
    WRONG,
    expiry_step,
    index_step,
    queue_steps,
    stored_step,
)
from rmqctl.store.answers.groups import PAST_END
from rmqctl.store.answers.steps import (
    BY_KEY,
    BY_PLACE,
    BY_UNIQUE_KEY,
    Family,
    GroupVerdict,
    Named,
    Place,
    Stage,
    Step,
    Verdict,
    Whereabouts,
    at_place,
    by_offset,
    copies_with,
    families,
    place_in,
    place_of,
    search_key,
    step_at,
)
from rmqctl.store.answers.undispatched import GIVEN_UP_TOPIC, HALF_TOPIC, undispatched
from rmqctl.store.answers.unread import MessageCopy, copied_messages, unread_messages, unread_queues
from rmqctl.store.log.walk import overflowed_at
from rmqctl.store.options import Events
from rmqctl.store.pop.records import RETRY_PREFIX
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.read.frames import MessageRemovedError, store_time_at
from rmqctl.store.read.query import QueryResult, lookup
from rmqctl.store.read.reader import StoreReader

# One message's whereabouts, put together: the evidence from all who know of it, and the verdict.

_NAMED_GROUPS = 4
_TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_ORDER = list(Verdict)
_HELD = (
    *(Verdict.ROLLED_BACK, Verdict.GAVE_UP, Verdict.PENDING, Verdict.CANCELLED),
    *(Verdict.WAITING, Verdict.OVERDUE, Verdict.NOT_DELIVERED),
)


class Teller:
    """Tells the whereabouts of messages of one store."""

    def __init__(self, reader: StoreReader, consumers: Consumers, held: HeldBack, now: int) -> None:
        self._reader = reader
        self._consumers = consumers
        self._held = held
        self._now = now

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
            self._reader.events.damaged(CorruptError(broken, physical_offset=shown.physical_offset))
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
        """Return what is known of the original of retries and dead letters, if it is not among those found."""
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
        """Return the step of a group; a damaged message that blocks the group is reported."""
        step = self._consumers.reached(group, *place)
        if step.state != NOT_REACHED or not step.distance or step.group_offset is None:
            return step
        try:
            queue = self._reader.files.queues.find(place.topic, place.queue_id)
            unit = None if queue is None else queue.unit(step.group_offset)
            if queue is not None and unit is not None:
                self._reader.view_without_ext(queue).message_of(unit)
        except CorruptError as error:
            self._reader.events.damaged(error)
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
            self._reader.events.damaged(error)
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
            what, said = "It is stored intact, but no consumer can get it", f"{said}; {_shows(named.physical_offset)}"
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
    if step.state == PAST_END:
        return GroupVerdict(group, Verdict.UNKNOWN, "has an offset past the end of the queue")
    if step.state not in (NOT_REACHED, BLOCKED):
        return GroupVerdict(group, Verdict.UNKNOWN, "has no offset there that is kept")
    if state is Verdict.EXPIRED:
        return GroupVerdict(group, Verdict.EXPIRED, "had not read it")
    if step.state == BLOCKED or step.distance == 0:
        return GroupVerdict(group, Verdict.BLOCKED, "is stuck at it" if step.distance == 0 else "is stuck before it")
    return GroupVerdict(group, Verdict.UNREAD, "has not read it")


def _verdict(
    family: Family, lies: list[Step], held: list[Step], verdicts: tuple[GroupVerdict, ...], missing: str
) -> tuple[Verdict, str]:
    """`missing`: why offsets of groups are not known, where they are not."""
    shown = family.shown
    if not family.sent and shown in family.hops:
        state = min((one.state for one in verdicts), key=_ORDER.index, default=Verdict.UNKNOWN)
        sent = "message" if family.topic is None else f"message of {family.topic}"
        what = f"The {sent} itself is not left, {place_of(shown)} is a copy of it"
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
    """Leave out message traces, which have the keys of their messages among their own."""
    return [message for message in messages if message.topic != _TRACE_TOPIC]


NameKind = Literal["key", "offset"]
DEFAULT_LIMIT = 10


class WhereQuestion(NamedTuple):
    """`words`: a key, an id or an offset, or topic, queue id and queue offset. `topic`: only messages that were sent to
    it. `groups`: only these, all known ones if empty. `tags`: what these groups take, where the operator knows it.
    `kind`: take a single word for this and nothing else. `now` in ms."""

    words: Sequence[str]
    now: int
    topic: str | None = None
    groups: tuple[str, ...] = ()
    tags: str | None = None
    kind: NameKind | None = None
    limit: int = DEFAULT_LIMIT


def where(reader: StoreReader, question: WhereQuestion) -> Iterator[Whereabouts]:
    """Yield the whereabouts of each matching message, the latest first, or one with what is known without a match.

    A single word is tried as physical offset or offset id first, then as a key. UsageError for words that can be
    neither, NotFoundError for a missing queue, UnsupportedError for one in a RocksDB, UnreadableError.
    """
    return _Search(reader, question).results()


class _Search:
    def __init__(self, reader: StoreReader, question: WhereQuestion) -> None:
        self._reader = reader
        self._question = question
        self._asked = " ".join(question.words)
        self._lags: list[CorruptError] = []
        undispatched(reader.files, Events(damage=self._lags.append))
        consumers = Consumers(reader, question.now, question.tags)
        held = HeldBack(reader, question.now)
        self._also = {SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, GIVEN_UP_TOPIC} | {
            prefix + group for group in consumers.configured for prefix in (RETRY_PREFIX, DLQ_PREFIX)
        }
        self._teller = Teller(reader, consumers, held, question.now)

    def results(self) -> Iterator[Whereabouts]:
        words = list(self._question.words)
        if len(words) not in (1, 3):
            raise UsageError(
                f"{counted(len(words), 'word')} name no message",
                hint="write one KEY, ID or OFFSET, or TOPIC QUEUE OFFSET as in `rmqctl where Orders 3 1000`",
            )
        named: Named | None = None
        if len(words) == 3:
            place = place_in(words)
            lost = self._reader.files.lost_log()
            unread = [
                one for one in unread_queues(self._reader.files, place.topic) if one.copy.queue_id == place.queue_id
            ]
            try:
                named = at_place(self._reader, place)
            except NotFoundError as error:
                if not unread:
                    raise lost or error from None
                named = Named(BY_PLACE, place=place)
            if lost is not None:
                self._reader.events.damaged(lost)
            if named.message is None and any(one.holds(place.queue_offset) for one in unread):
                yield from self._in_unread_log(place.topic, place)
                return
        elif self._question.kind != "key":
            named = by_offset(self._reader, words[0])
            if named is None and self._question.kind == "offset":
                raise UsageError(f"{words[0]!r} is neither a physical offset nor an offset id of this store")
            if named is None and words[0].isascii() and words[0].isdigit():
                self._reader.events.noted(f"{words[0]} is larger than any physical offset: it is looked for as a key")
        if named is not None and named.message is not None:
            yield from self._of_message(named.how, named.message)
            return
        is_final = len(words) == 3 or self._question.kind == "offset"
        copies = QueryResult() if is_final else self._copies(words[0], set())
        if copies.messages:
            yield from self._of_key(words[0], copies)
        elif named is not None and not isinstance(named.error, CorruptError) and self._is_unread():
            yield from self._in_unread_log(None)
        elif named is not None:
            if named.error is not None and named.error.hint is not None:
                self._reader.events.noted(named.error.hint)
            yield self._teller.unread(self._asked, named, self._question.groups)
        else:
            yield from self._nothing(copies)

    def _copies(self, key: str, also: set[str]) -> QueryResult:
        topics = self._also | also | ({self._question.topic} if self._question.topic else set())
        return copies_with(self._reader, key, topics)

    def _of_message(self, how: str, message: StoredMessage) -> Iterator[Whereabouts]:
        """The family of a message that was found by its place."""
        properties = message.properties()
        also = {message.topic, *(properties[name] for name in (REAL_TOPIC, "RETRY_TOPIC") if name in properties)}
        key = search_key(message)
        found = self._copies(key, also) if key is not None else QueryResult()
        if key is None:
            self._reader.events.noted("the message has no key: copies of it, such as retries, cannot be found")
        for error in found.damaged:
            self._reader.events.damaged(error)
        messages = {one.physical_offset: one for one in (*plain_members(found.messages), message)}
        for family in families(messages.values()):
            if family.has(message.physical_offset):
                # of a message that was committed again the one that is asked for is spoken of
                family.sent.sort(key=lambda one: one.physical_offset != message.physical_offset)
                yield self._told(how, family)

    def _of_key(self, key: str, copies: QueryResult) -> Iterator[Whereabouts]:
        for error in copies.damaged:
            self._reader.events.damaged(error)
        every = families(plain_members(copies.messages) or copies.messages)
        topic = self._question.topic
        found = [one for one in every if topic is None or topic in {one.topic, *(m.topic for m in one.members)}]
        if not found:
            others = sorted({one.topic for one in every if one.topic})
            yield self._absent(
                f"No message of {topic} has it, but {counted(len(every), 'message')} of {', '.join(others)}"
            )
            return
        for family in found[: self._question.limit]:
            yield self._told(BY_UNIQUE_KEY if family.unique_key == key else BY_KEY, family)
        if len(found) > self._question.limit:
            left = counted(len(found) - self._question.limit, "more message has", "more messages have")
            self._reader.events.noted(f"{left} the key {key!r}: -n shows more, -t those of one topic")

    def _told(self, how: str, family: Family) -> Whereabouts:
        for error in self._lags:
            self._reader.events.damaged(error)
        return self._teller.family(self._asked, how, family, self._question.groups)

    # ---- nothing was found

    def _is_unread(self) -> bool:
        """Return whether a log that is not read may hold what a key or an offset names."""
        return len(self._question.words) == 1 and bool(unread_queues(self._reader.files, self._question.topic))

    def _in_unread_log(self, topic: str | None, place: Place | None = None) -> list[Whereabouts]:
        """Say where the copy of a message is that the commitlog does not have; without one, that another log may hold
        it: it is neither expired nor absent."""
        if place is not None:
            copied = copied_messages(self._reader.files, topic, place.queue_id, queue_offset=place.queue_offset)
        else:
            copied = copied_messages(self._reader.files, topic, key=self._question.words[0])
        if copied:
            how = BY_KEY if place is None else BY_PLACE
            return [self._of_copy(how, one) for one in copied[: self._question.limit]]
        errors = [*unread_messages(self._reader.files, topic)]
        for error in errors:
            self._reader.events.damaged(error)
        said = "; ".join(error.message for error in errors)
        return [self._absent(f"It is not in the commitlog, but {said}", Verdict.UNKNOWN)]

    def _of_copy(self, how: str, copied: MessageCopy) -> Whereabouts:
        message = copied.message
        place = f"-t {shlex.quote(message.topic)} -q {message.queue_id} -o {message.queue_offset}"
        said = f"It is in {copied.where} alone: `rmqctl query {place}` prints it"
        properties = message.properties()
        return Whereabouts(
            self._asked, how, Verdict.STORED, f"{said}.", message.topic, message.queue_id, message.queue_offset,
            unique_key=properties.get(names.UNIQUE_KEY), keys=properties.get(names.KEYS),
            tags=properties.get(names.TAGS), store_timestamp=message.store_timestamp,
            evidence=(Step(Stage.STORED, str(Verdict.STORED), said, message.topic, message.queue_id),),
        )  # fmt: skip

    def _nothing(self, copies: QueryResult) -> list[Whereabouts]:
        """What is known of a key that no message has: whether one may be damaged, or have expired."""
        for error in copies.damaged:
            self._reader.events.damaged(error)
        for offset in copies.leads:
            try:
                lookup(self._reader.files, offset)
            except CorruptError as error:
                said = f"an index entry with its hash leads to physical offset {offset}, where {error.message}"
                return [self._absent(f"It cannot be read: {said}", Verdict.DAMAGED, offset)]
            except NotFoundError:
                continue
        if self._is_unread() and not copies.damaged:
            return self._in_unread_log(self._question.topic)
        if copies.removed:
            entries = counted(copies.removed, "index entry has", "index entries have")
            said = f"It has expired: {entries} its hash and lead before the log's beginning"
            return [self._absent(said, Verdict.EXPIRED)]
        if copies.damaged:
            places = counted(len(copies.damaged), "damaged place")
            return [self._absent(f"No readable message has it, and {places} may hide it", Verdict.UNKNOWN)]
        log = self._reader.files.log
        if log.min_offset > 0:
            first = self._first_time()
            since = f"the log begins at physical offset {log.min_offset}{first}"
            return [self._absent(f"No message has it; {since}, and earlier messages have expired", Verdict.UNKNOWN)]
        if log.problems:
            said = f"No message has it, but files of the log are missing or broken, such as {log.problems[0].path}"
            return [self._absent(said, Verdict.UNKNOWN)]
        searched = "the whole log was searched" if copies.is_whole else "the index covers the log from its beginning"
        return [self._absent(f"No message has it: {searched}, so it was never stored here")]

    def _first_time(self) -> str:
        time = store_time_at(self._reader.files.log, self._reader.files.log.min_offset)
        return "" if time is None else f", stored {format_time(time)}"

    def _absent(self, said: str, state: Verdict = Verdict.ABSENT, offset: int | None = None) -> Whereabouts:
        step = Step(Stage.STORED, str(state), said, physical_offset=offset)
        return Whereabouts(self._asked, None, state, f"{said}.", physical_offset=offset, evidence=(step,))
