"""Which messages are meant: tag expressions and the criteria of `cat` and of a scan."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import translate
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import java_hash
from rmqctl.formats.errors import CorruptError, UnreadableError, UnsupportedError, UsageError
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.formats.message import StoredMessage, is_possible_time
from rmqctl.formats.properties import parse_properties, split_keys
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from rmqctl.store.log.columns import Flags, MessageColumns
    from rmqctl.store.read.sql92 import SqlFilter

# Regular expressions over messages, and the literal text that a match must contain.

_SHORTEST_LITERAL = 3
"""Bytes of a literal that is worth a search of its own: a shorter one is found in nearly every message."""
# compiled where they are needed, here and elsewhere: a lookup needs none
_TOKEN = r"(?s)\\.|\{\d*,?\d*\}|\[\^?\]?(?:\\.|[^\]\\])*\]|."
"""An escape, a counted quantifier, a class, or one character."""
_SPECIAL = ".^$+*?()[]{}|"
_NUMERIC_ESCAPE = r"\\[xuUN0-9]"
_SPLIT = "[=\x01\x02]"


class Grep:
    """A regular expression (Python's) that is searched for in bodies and properties.

    `literals`: UTF-8 texts of which every message that matches contains at least one as stored, unless its body is
    compressed; () where the expression guarantees none.
    `unsearched`: why bodies of messages that do not match could not be unpacked, by physical offset.
    """

    def __init__(self, expression: str) -> None:
        """Raises: UsageError for an invalid regular expression."""
        self.expression = expression
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                self._pattern = re.compile(expression)
        except (re.error, RecursionError, OverflowError) as error:
            raise UsageError(
                f"{expression!r} is not a regular expression: {error}",
                hint="for a text as it is put \\ before . * + ? ( [",
            ) from error
        self.literals = required_literals(expression)
        self.unsearched: dict[int, str] = {}

    def matches(self, message: StoredMessage) -> bool:
        """Return whether it is found in the body, unpacked, or in a property, which is searched as `NAME=VALUE`.

        Bytes that are not UTF-8 stand for themselves. A body that cannot be unpacked is searched as it is stored.
        """
        search = self._pattern.search
        if any(search(f"{name}={value}") is not None for name, value in message.properties().items()):
            return True
        try:
            body, why = message.plain_body(), ""
        except (CorruptError, UnsupportedError) as error:
            body, why = message.body, error.message
        is_found = search(body.decode("utf-8", "surrogateescape")) is not None
        if why and body and not is_found:
            self.unsearched[message.physical_offset] = why
        return is_found

    def unsearched_errors(self) -> Iterator[CorruptError]:
        """Yield once what to report of bodies that may hold a match, because they could not be unpacked."""
        found, self.unsearched = self.unsearched, {}
        for offset, why in sorted(found.items()):
            yield CorruptError(f"the body was not searched, because it does not unpack: {why}", physical_offset=offset)


def required_literals(expression: str) -> tuple[bytes, ...]:
    """Return literals in UTF-8, of which each match of `expression` contains at least one; () if none are certain.

    Only literals at the top level count: groups, classes, escapes and optional parts interrupt a literal. An expression
    with flags or numeric escapes guarantees none. A property is stored without the `=` that a match sees, so a literal
    never spans one.
    """
    if "(?" in expression or re.search(_NUMERIC_ESCAPE, expression):
        return ()
    found: list[bytes] = []
    for runs in _alternatives(expression):
        pieces = (piece.encode("utf-8", "surrogateescape") for run in runs for piece in re.split(_SPLIT, run))
        longest = max(pieces, key=len, default=b"")
        if len(longest) < _SHORTEST_LITERAL:
            return ()
        found.append(longest)
    return tuple(dict.fromkeys(found))


def _alternatives(expression: str) -> list[list[str]]:
    """Return for each part between `|` at the top level its runs of characters that stand for themselves."""
    alternatives = [[""]]
    depth = 0
    for token in re.findall(_TOKEN, expression):
        runs = alternatives[-1]
        if token in ("(", ")"):
            depth += 1 if token == "(" else -1
            runs.append("")
        elif depth:
            continue
        elif token == "|":
            alternatives.append([""])
        elif token in ("*", "?") or (token[0] == "{" and len(token) > 1):
            runs[-1] = runs[-1][:-1]
            runs.append("")
        elif _stands_for_itself(token):
            runs[-1] += token[-1]
        else:
            runs.append("")
    return alternatives


def _stands_for_itself(token: str) -> bool:
    if len(token) == 1:
        return token not in _SPECIAL
    return token[0] == "\\" and not token[1].isalnum()


def rows_with(batch: MessageColumns, literals: tuple[bytes, ...]) -> Flags:
    """Return for each row whether its body or properties as stored contain one of `literals`, or its body is
    compressed. The batch needs HEAD and BYTES."""
    import numpy as np

    found: Flags = (batch.sys_flag & SYS_FLAG_COMPRESSED) != 0
    if not batch.rows or batch.window is None:
        return found
    # bodies precede properties in a frame, and frames ascend
    begins, ends = batch.body_position, batch.property_position + batch.property_length
    first = int(begins[0])
    data = batch.window[first : int(ends[-1])].tobytes()
    begins, ends = begins - first, ends - first
    for literal in literals:
        place = data.find(literal)
        while place >= 0:
            row = int(np.searchsorted(begins, place, "right")) - 1
            if place + len(literal) <= ends[row]:
                found[row] = True
                place = int(ends[row])
            else:  # in the head of the next frame
                place += 1
            place = data.find(literal, place)
    return found


# Which topics are meant: by name, by pattern, and without those that a broker has for itself.

# none of them may stand in a topic (TopicValidator#validateTopic), so whoever writes one means a pattern
_OF_PATTERNS = "*?["


def is_pattern(name: str) -> bool:
    """Whether `name` is a pattern: `*`, `?` and `[a-z]` as a shell has them."""
    return any(character in name for character in _OF_PATTERNS)


class TopicFilter:
    """Topics by name or pattern. No name at all means every topic, without the system's unless `system_topics`."""

    def __init__(self, names: Iterable[str] = (), *, system_topics: bool = True) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.system_topics = system_topics
        self._exact = frozenset(name for name in self.names if not is_pattern(name))
        patterns = [translate(name) for name in self.names if is_pattern(name)]
        self._pattern = re.compile("|".join(patterns)) if patterns else None
        self._known: dict[str, bool] = {}

    @classmethod
    def of_one(cls, topic: str) -> TopicFilter:
        """Select that topic alone, with any characters: a damaged store may contain any name."""
        made = cls()
        made.names, made._exact = (topic,), frozenset((topic,))
        return made

    @property
    def is_all(self) -> bool:
        """Return whether every topic matches."""
        return not self.names and self.system_topics

    @property
    def only(self) -> str | None:
        """The one topic that matches; None if several may match."""
        return self.names[0] if len(self.names) == 1 and self._exact else None

    def matches(self, topic: str) -> bool:
        """Return whether `topic` matches. A system topic that is named without a pattern always matches."""
        found = self._known.get(topic)
        if found is None:
            # asked for every message, of few topics
            found = self._known[topic] = self._matches(topic)
        return found

    def _matches(self, topic: str) -> bool:
        if topic in self._exact:
            return True
        if not self.system_topics:
            from rmqctl.store.config.config_files import is_brokers_own

            if is_brokers_own(topic):
                return False
        return not self.names or (self._pattern is not None and self._pattern.fullmatch(topic) is not None)

    def unmet(self, topics: Iterable[str]) -> list[str]:
        """The names and patterns of this filter that none of `topics` meets."""
        given = list(topics)
        return [
            name
            for name in self.names
            if not any(map(TopicFilter([name], system_topics=self.system_topics).matches, given))
        ]


SUBSCRIBE_ALL = "*"
_SEPARATOR = "||"
_TAGS_FIELD = names.TAGS.encode() + names.NAME_SEPARATOR
_INT_MASK = 0xFFFFFFFF
_INT_SIGN = 0x80000000


class TagFilter:
    """A subscription such as `TagA || TagB` (FilterAPI#buildSubscriptionData). No text and `*` mean every message."""

    def __init__(self, expression: str | None) -> None:
        """UsageError for an expression that names no tag at all."""
        text = (expression or "").strip()
        self.tags: frozenset[str] = frozenset()
        if text and text != SUBSCRIBE_ALL:
            self.tags = frozenset(part.strip() for part in text.split(_SEPARATOR) if part.strip())
            if not self.tags:
                raise UsageError(f"tag expression {expression!r} names no tag", hint="write it as 'TagA || TagB'")
        self._codes = frozenset(java_hash(tag) for tag in self.tags)

    @property
    def is_all(self) -> bool:
        """Whether every message passes."""
        return not self.tags

    def may_match(self, tags_code: int | None) -> bool:
        """First look, by the hash in the queue's unit; None is a code that could not be resolved and passes.

        (DefaultMessageFilter#isMatchedByConsumeQueue, which compares the low 32 bits)
        """
        if self.is_all or tags_code is None:
            return True
        code = ((tags_code & _INT_MASK) ^ _INT_SIGN) - _INT_SIGN
        return code in self._codes

    def matches(self, tags: str | None) -> bool:
        """Second look, by the tag itself, as the client does: a message without a tag passes only if all do."""
        return self.is_all or tags in self.tags

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """The same by the properties of a message."""
        return self.matches(properties.get(names.TAGS))

    def matches_stored(self, properties: bytes) -> bool:
        """The same by the properties of a message as they are stored; UnicodeDecodeError where they are no UTF-8."""
        if self.is_all:
            return True
        if properties.count(_TAGS_FIELD) != 1:
            return self.matches_properties(parse_properties(properties))
        segments = names.PROPERTY_SEPARATOR + properties + names.PROPERTY_SEPARATOR
        at = segments.find(names.PROPERTY_SEPARATOR + _TAGS_FIELD)
        if at < 0:  # the end of another name, or within a value
            return False
        begin = at + 1 + len(_TAGS_FIELD)
        return segments[begin : segments.index(names.PROPERTY_SEPARATOR, begin)].decode() in self.tags


class MessageFilter(Protocol):
    """What a consumer wants of a queue: TagFilter and SqlFilter."""

    @property
    def is_all(self) -> bool:
        """Whether every message passes."""

    def may_match(self, tags_code: int | None) -> bool:
        """Return whether a message may pass, by the hash in its unit; None is a code that could not be resolved."""

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message with these properties passes."""

    def matches_stored(self, properties: bytes) -> bool:
        """The same for properties as stored. Raises: UnicodeDecodeError where they are not UTF-8."""


TAG, SQL92 = "TAG", "SQL92"
"""Kinds of expressions (ExpressionType)."""


class BySql(str):
    """A subscription by an SQL92 expression (MessageSelector#bySql); any other text is one of tags."""

    __slots__ = ()


def expression_type(subscription: str) -> str:
    """Return the kind of a subscription."""
    return SQL92 if isinstance(subscription, BySql) else TAG


def client_filter(subscription: str) -> TagFilter:
    """Return what a client applies to messages that a broker gave it: brokers compare hashes of tags only, and judge
    SQL92 expressions (PullAPIWrapper#processPullResult). UsageError for an invalid subscription."""
    if isinstance(subscription, BySql):
        sql_filter(subscription)
        return TagFilter(SUBSCRIBE_ALL)
    return TagFilter(subscription)


def sql_filter(expression: str) -> SqlFilter:
    """Return an SQL92 filter. Raises: UsageError for an invalid one."""
    from rmqctl.store.read.sql92 import SqlFilter

    return SqlFilter(expression)


def message_keys(properties: dict[str, str]) -> list[str]:
    """Keys a message can be asked for by: its unique key and its KEYS."""
    unique = properties.get(names.UNIQUE_KEY)
    return ([unique] if unique is not None else []) + split_keys(properties.get(names.KEYS))


class Criteria:
    """What a message must be like; None leaves it open. Times in ms, both ends included.

    `topic` is a name, or a TopicFilter for several and for patterns; `tags` an expression as of TagFilter. `grep`: a
    regular expression that is found in the body or in a property. `sql`: an SQL92 filter that the properties pass.
    """

    def __init__(
        self,
        topic: str | TopicFilter | None = None,
        queue_id: int | None = None,
        tags: str | None = None,
        key: str | None = None,
        begin_time: int | None = None,
        end_time: int | None = None,
        *,
        grep: str | None = None,
        sql: str | None = None,
    ) -> None:
        """Raises: UsageError for an invalid regular expression or filter."""
        if isinstance(topic, str):
            topic = TopicFilter.of_one(topic)
        self.topic_filter = topic or TopicFilter()
        self.queue_id = queue_id
        self.tags = tags
        self.key = key
        self.begin_time = begin_time
        self.end_time = end_time
        self.grep = None if grep is None else Grep(grep)
        self.sql = None if sql is None else sql_filter(sql)
        self.undated: dict[int, int] = {}
        """Store times below 0, by physical offset, of messages that only the times leave out."""

    @property
    def topic(self) -> str | None:
        """The one topic that matches; None if several may match."""
        return self.topic_filter.only

    @property
    def matches_all(self) -> bool:
        """Return whether every message matches."""
        chosen = (self.queue_id, self.key, self.begin_time, self.end_time, self.grep, self.sql)
        return all(one is None for one in chosen) and self.topic_filter.is_all and self.tag_filter.is_all

    @property
    def needs_content(self) -> bool:
        """Whether properties or bodies have to be looked into."""
        return self.grep is not None or self.needs_properties

    @property
    def needs_properties(self) -> bool:
        """Whether properties have to be looked into."""
        return self.key is not None or self.sql is not None or not self.tag_filter.is_all

    @cached_property
    def tag_filter(self) -> TagFilter:
        """The tag expression, parsed."""
        return TagFilter(self.tags)

    def matches(self, message: StoredMessage) -> bool:
        """Return whether `message` matches."""
        if not self.topic_filter.matches(message.topic):
            return False
        if self.queue_id is not None and message.queue_id != self.queue_id:
            return False
        return self.matches_content(message)

    def matches_content(self, message: StoredMessage) -> bool:
        """The same without topic and queue: a multi-dispatch message is also in other queues than its own."""
        if self.is_outside(message.store_timestamp):
            if not is_possible_time(message.store_timestamp) and self._matches_text(message):
                self.undated[message.physical_offset] = message.store_timestamp
            return False
        return self._matches_text(message)

    def is_outside(self, store_timestamp: int) -> bool:
        """Whether a message of this store time is left out."""
        is_before = self.begin_time is not None and store_timestamp < self.begin_time
        return is_before or (self.end_time is not None and store_timestamp > self.end_time)

    def unsure_errors(self) -> Iterator[CorruptError]:
        """Yield once what to report of messages that may be meant: bodies that could not be searched, and store times
        that no broker writes, as after a flipped bit."""
        if self.grep is not None:
            yield from self.grep.unsearched_errors()
        undated, self.undated = self.undated, {}
        for offset, time in sorted(undated.items()):
            yield CorruptError(
                f"the store time {time} is impossible: whether the message is between the given times is unknown",
                physical_offset=offset,
            )

    def _matches_text(self, message: StoredMessage) -> bool:
        if not self.needs_content:
            return True
        if not self.matches_properties(message.properties()):
            return False
        return self.grep is None or self.grep.matches(message)

    def matches_properties(self, properties: dict[str, str]) -> bool:
        """Whether key and tag are those of such properties, and the SQL92 filter is true of them."""
        if self.key is not None and self.key not in message_keys(properties):
            return False
        if self.sql is not None and not self.sql.matches_properties(properties):
            return False
        return self.tag_filter.matches_properties(properties)

    def described(self) -> dict[str, object]:
        """What is asked for, by name, without what is left open."""
        chosen = {
            "topic": self.topic,
            "topics": None if self.topic is not None else list(self.topic_filter.names) or None,
            "system_topics": None if self.topic_filter.system_topics else False,
            "queue_id": self.queue_id,
            "tags": self.tags,
            "key": self.key,
            "begin_time": self.begin_time,
            "end_time": self.end_time,
            "grep": None if self.grep is None else self.grep.expression,
            "filter": None if self.sql is None else self.sql.expression,
        }
        return {name: value for name, value in chosen.items() if value is not None}


def newest_first(messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    """Messages by descending physical offset."""
    return sorted(messages, key=lambda message: message.physical_offset, reverse=True)


# Names of the topics a store knows: those with queues and those its broker has configured.


def configured_topics(config: Path) -> list[str]:
    """Topics of `config`/topics.json or its backup, sorted; none where both are missing or damaged."""
    from rmqctl.store.config.config_files import read_config

    try:
        content = read_config(config / "topics.json")
    except (CorruptError, UnreadableError):
        return []
    table = content.get("topicConfigTable") if isinstance(content, dict) else None
    return sorted(name for name in table if isinstance(name, str)) if isinstance(table, dict) else []


def known_topics(files: StoreFiles) -> list[str]:
    """Topics with a queue and topics that are configured.

    UnsupportedError where the queues are in a RocksDB and no configuration names a topic either.
    """
    topics = set(configured_topics(files.layout.config))
    try:
        topics.update(files.queues.topics())
    except CorruptError:
        if not topics:
            raise
    return sorted(topics)


def unmet_names(files: StoreFiles, topics: TopicFilter) -> list[str]:
    """The names and patterns that no known topic goes by; none where nothing says which topics there are."""
    if not topics.names:
        return []
    try:
        known = known_topics(files)
    except CorruptError:
        return []
    # a log whose queues and configuration are lost may have any
    return topics.unmet(known) if known or not files.log.files else []
