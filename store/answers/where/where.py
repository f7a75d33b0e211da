"""The question itself: what a key, an id, an offset or a place in a queue means, and all about what it means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import REAL_TOPIC
from rmqctl.formats.wording import counted, format_time
from rmqctl.store.answers.config_offsets import Say
from rmqctl.store.answers.dead_letters import DLQ_PREFIX, RETRY_PREFIX
from rmqctl.store.answers.half_topics import GIVEN_UP_TOPIC, HALF_TOPIC
from rmqctl.store.answers.undispatched import undispatched
from rmqctl.store.answers.unread import unread_messages, unread_queues
from rmqctl.store.answers.where.consumed import Consumers
from rmqctl.store.answers.where.copies import Copies, copies_with
from rmqctl.store.answers.where.family import Family, families
from rmqctl.store.answers.where.held_back import HeldBack
from rmqctl.store.answers.where.places import (
    BY_KEY,
    BY_PLACE,
    BY_UNIQUE_KEY,
    Named,
    at_place,
    by_offset,
    place_in,
    search_key,
)
from rmqctl.store.answers.where.steps import Stage, Step, Verdict, Whereabouts
from rmqctl.store.answers.where.told import Teller, plain_members
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.read.lookup import lookup
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage

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


def where(
    reader: StoreReader, question: WhereQuestion, tell: Say, on_damage: OnDamage, progress: Progress | None = None
) -> Iterator[Whereabouts]:
    """The whereabouts of each message that is meant, the latest first; one that says what is known where there is none.

    A single word is tried as physical offset or offset id first, then as a key. UsageError for words that can be
    neither, NotFoundError and UnsupportedError for a queue that does not exist or lies in a RocksDB, UnreadableError.
    """
    return _Search(reader, question, tell, on_damage, progress).results()


class _Search:
    def __init__(
        self, reader: StoreReader, question: WhereQuestion, tell: Say, on_damage: OnDamage, progress: Progress | None
    ) -> None:
        self._reader = reader
        self._question = question
        self._asked = " ".join(question.words)
        self._tell = tell
        self._on_damage = on_damage
        self._progress = progress
        undispatched(reader.files, on_damage)
        consumers = Consumers(reader, question.now, tell, on_damage, question.tags)
        held = HeldBack(reader, question.now, tell, on_damage)
        self._also = {SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, GIVEN_UP_TOPIC} | {
            prefix + group for group in consumers.configured for prefix in (RETRY_PREFIX, DLQ_PREFIX)
        }
        self._teller = Teller(reader, consumers, held, question.now, on_damage)

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
            unread = [
                one for one in unread_queues(self._reader.files, place.topic) if one.copy.queue_id == place.queue_id
            ]
            try:
                named = at_place(self._reader, place, self._tell, self._progress)
            except NotFoundError:
                if not unread:
                    raise
                named = Named(BY_PLACE, place=place)
            if named.message is None and any(one.holds(place.queue_offset) for one in unread):
                yield self._in_unread_log(place.topic)
                return
        elif self._question.kind != "key":
            named = by_offset(self._reader, words[0])
            if named is None and self._question.kind == "offset":
                raise UsageError(f"{words[0]!r} is neither a physical offset nor an offset id of this store")
            if named is None and words[0].isascii() and words[0].isdigit():
                self._tell(f"{words[0]} is larger than any physical offset: it is looked for as a key")
        if named is not None and named.message is not None:
            yield from self._of_message(named.how, named.message)
            return
        is_final = len(words) == 3 or self._question.kind == "offset"
        copies = Copies() if is_final else self._copies(words[0], set())
        if copies.messages:
            yield from self._of_key(words[0], copies)
        elif named is not None and not isinstance(named.error, CorruptError) and self._is_unread():
            yield self._in_unread_log(None)
        elif named is not None:
            if named.error is not None and named.error.hint is not None:
                self._tell(named.error.hint)
            yield self._teller.unread(self._asked, named, self._question.groups)
        else:
            yield self._nothing(copies)

    def _copies(self, key: str, also: set[str]) -> Copies:
        topics = self._also | also | ({self._question.topic} if self._question.topic else set())
        return copies_with(self._reader, key, topics, self._tell, self._progress)

    def _of_message(self, how: str, message: StoredMessage) -> Iterator[Whereabouts]:
        """The family of a message that was found by its place."""
        properties = message.properties()
        also = {message.topic, *(properties[name] for name in (REAL_TOPIC, "RETRY_TOPIC") if name in properties)}
        key = search_key(message)
        found = self._copies(key, also) if key is not None else Copies()
        if key is None:
            self._tell("the message has no key: copies of it, such as retries, cannot be found")
        for error in found.damaged:
            self._on_damage(error)
        messages = {one.physical_offset: one for one in (*plain_members(found.messages), message)}
        for family in families(messages.values()):
            if family.has(message.physical_offset):
                # of a message that was committed again the one that is asked for is spoken of
                family.sent.sort(key=lambda one: one.physical_offset != message.physical_offset)
                yield self._told(how, family)

    def _of_key(self, key: str, copies: Copies) -> Iterator[Whereabouts]:
        for error in copies.damaged:
            self._on_damage(error)
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
            self._tell(f"{left} the key {key!r}: -n shows more, -t those of one topic")

    def _told(self, how: str, family: Family) -> Whereabouts:
        return self._teller.family(self._asked, how, family, self._question.groups)

    # ---- nothing was found

    def _is_unread(self) -> bool:
        """Return whether a log that is not read may hold what a key or an offset names."""
        return len(self._question.words) == 1 and bool(unread_queues(self._reader.files, self._question.topic))

    def _in_unread_log(self, topic: str | None) -> Whereabouts:
        """Say that a log which is not read may hold the message: it is neither expired nor absent."""
        errors = [*unread_messages(self._reader.files, topic)]
        for error in errors:
            self._on_damage(error)
        said = "; ".join(error.message for error in errors)
        return self._absent(f"It is not in the commitlog, but {said}", Verdict.UNKNOWN)

    def _nothing(self, copies: Copies) -> Whereabouts:
        """What is known of a key that no message has: whether one may be damaged, or have expired."""
        for error in copies.damaged:
            self._on_damage(error)
        for offset in copies.leads:
            try:
                lookup(self._reader.files, offset)
            except CorruptError as error:
                said = f"an index entry with its hash leads to physical offset {offset}, where {error.message}"
                return self._absent(f"It cannot be read: {said}", Verdict.DAMAGED, offset)
            except NotFoundError:
                continue
        if self._is_unread() and not copies.damaged:
            return self._in_unread_log(self._question.topic)
        if copies.removed:
            entries = counted(copies.removed, "index entry has", "index entries have")
            return self._absent(
                f"It has expired: {entries} its hash and lead before the log's beginning", Verdict.EXPIRED
            )
        if copies.damaged:
            places = counted(len(copies.damaged), "damaged place")
            return self._absent(f"No readable message has it, and {places} may hide it", Verdict.UNKNOWN)
        log = self._reader.files.log
        if log.min_offset > 0:
            first = self._first_time()
            since = f"the log begins at physical offset {log.min_offset}{first}"
            return self._absent(
                f"No message has it; {since}, and what has expired before is not known", Verdict.UNKNOWN
            )
        if log.problems:
            said = f"No message has it, but files of the log are missing or broken, such as {log.problems[0].path}"
            return self._absent(said, Verdict.UNKNOWN)
        searched = "the whole log was searched" if copies.is_walked else "the index covers the log from its beginning"
        return self._absent(f"No message has it: {searched}, and it never got here")

    def _first_time(self) -> str:
        from rmqctl.store.read.frames import store_time_at

        time = store_time_at(self._reader.files.log, self._reader.files.log.min_offset)
        return "" if time is None else f", stored {format_time(time)}"

    def _absent(self, said: str, state: Verdict = Verdict.ABSENT, offset: int | None = None) -> Whereabouts:
        step = Step(Stage.STORED, str(state), said, physical_offset=offset)
        return Whereabouts(self._asked, None, state, f"{said}.", physical_offset=offset, evidence=(step,))
