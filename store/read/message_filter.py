"""Which messages are meant: tag expressions and the criteria of `cat` and of a scan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, UsageError
from rmqctl.formats.hashing import java_hash
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import parse_properties, split_keys
from rmqctl.store.read.grep import Grep
from rmqctl.store.read.topic_filter import TopicFilter

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

    def matches_stored(self, properties: bytes) -> bool:
        """The same by the properties of a message as they are stored; UnicodeDecodeError where they are no UTF-8."""
        if self.is_all:
            return True
        if properties.count(_TAGS_FIELD) != 1:
            return self.matches(parse_properties(properties).get(names.TAGS))
        segments = names.PROPERTY_SEPARATOR + properties + names.PROPERTY_SEPARATOR
        at = segments.find(names.PROPERTY_SEPARATOR + _TAGS_FIELD)
        if at < 0:  # the end of another name, or within a value
            return False
        begin = at + 1 + len(_TAGS_FIELD)
        return segments[begin : segments.index(names.PROPERTY_SEPARATOR, begin)].decode() in self.tags


def message_keys(properties: dict[str, str]) -> list[str]:
    """Keys a message can be asked for by: its unique key and its KEYS."""
    unique = properties.get(names.UNIQUE_KEY)
    return ([unique] if unique is not None else []) + split_keys(properties.get(names.KEYS))


class Criteria:
    """What a message must be like; None leaves it open. Times in ms, both ends included.

    `tags` is an expression as of TagFilter. `topics`: several topics or patterns, in place of `topic`. `grep`: a
    regular expression that is found in the body or in a property.
    """

    def __init__(
        self,
        topic: str | None = None,
        queue_id: int | None = None,
        tags: str | None = None,
        key: str | None = None,
        begin_time: int | None = None,
        end_time: int | None = None,
        *,
        topics: TopicFilter | None = None,
        grep: str | None = None,
    ) -> None:
        """UsageError for both `topic` and `topics`, and for what is no regular expression."""
        if topic is not None and topics is not None:
            raise UsageError("one topic and a filter of topics contradict each other: give one of them")
        self.topic_filter = topics or (TopicFilter() if topic is None else TopicFilter.of_one(topic))
        self.queue_id = queue_id
        self.tags = tags
        self.key = key
        self.begin_time = begin_time
        self.end_time = end_time
        self.grep = None if grep is None else Grep(grep)
        self.undated: dict[int, int] = {}
        """Store times below 0, by physical offset, of messages that only the times leave out."""

    @property
    def topic(self) -> str | None:
        """The one topic that is meant; None where it may be another one, too."""
        return self.topic_filter.only

    @property
    def matches_all(self) -> bool:
        """Whether every message is meant."""
        chosen = (self.queue_id, self.key, self.begin_time, self.end_time, self.grep)
        return all(one is None for one in chosen) and self.topic_filter.is_all and self.tag_filter.is_all

    @property
    def needs_content(self) -> bool:
        """Whether properties or bodies have to be looked into."""
        return self.key is not None or self.grep is not None or not self.tag_filter.is_all

    @cached_property
    def tag_filter(self) -> TagFilter:
        """The tag expression, parsed."""
        return TagFilter(self.tags)

    def matches(self, message: StoredMessage) -> bool:
        """Whether `message` is meant."""
        if not self.topic_filter.matches(message.topic):
            return False
        if self.queue_id is not None and message.queue_id != self.queue_id:
            return False
        return self.matches_content(message)

    def matches_content(self, message: StoredMessage) -> bool:
        """The same without topic and queue: a multi-dispatch message also stands in other queues than its own."""
        if self.is_outside(message.store_timestamp):
            if message.store_timestamp < 0 and self._matches_text(message):
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
                f"the store time {time} cannot be right: whether the message lies in the times asked for is not known",
                physical_offset=offset,
            )

    def _matches_text(self, message: StoredMessage) -> bool:
        if not self.needs_content:
            return True
        if not self.matches_properties(message.properties()):
            return False
        return self.grep is None or self.grep.matches(message)

    def matches_properties(self, properties: dict[str, str]) -> bool:
        """Whether key and tag are those of such properties."""
        if self.key is not None and self.key not in message_keys(properties):
            return False
        return self.tag_filter.matches(properties.get(names.TAGS))

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
        }
        return {name: value for name, value in chosen.items() if value is not None}


def newest_first(messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    """Messages by descending physical offset."""
    return sorted(messages, key=lambda message: message.physical_offset, reverse=True)
