"""Which messages are meant: tag expressions and the criteria of `cat` and of a scan."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from rmqctl.formats import properties as names
from rmqctl.formats.errors import UsageError
from rmqctl.formats.hashing import java_hash
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import split_keys

SUBSCRIBE_ALL = "*"
_SEPARATOR = "||"
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


def message_keys(properties: dict[str, str]) -> list[str]:
    """Keys a message can be asked for by: its unique key and its KEYS."""
    unique = properties.get(names.UNIQUE_KEY)
    return ([unique] if unique is not None else []) + split_keys(properties.get(names.KEYS))


class Criteria:
    """What a message must be like; None leaves it open. Times in ms, both ends included.

    `tags` is an expression as of TagFilter.
    """

    def __init__(
        self,
        topic: str | None = None,
        queue_id: int | None = None,
        tags: str | None = None,
        key: str | None = None,
        begin_time: int | None = None,
        end_time: int | None = None,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.tags = tags
        self.key = key
        self.begin_time = begin_time
        self.end_time = end_time

    @property
    def matches_all(self) -> bool:
        """Whether every message is meant."""
        chosen = (self.topic, self.queue_id, self.key, self.begin_time, self.end_time)
        return all(one is None for one in chosen) and self.tag_filter.is_all

    @cached_property
    def tag_filter(self) -> TagFilter:
        """The tag expression, parsed."""
        return TagFilter(self.tags)

    def matches(self, message: StoredMessage) -> bool:
        """Whether `message` is meant."""
        if self.topic is not None and message.topic != self.topic:
            return False
        if self.queue_id is not None and message.queue_id != self.queue_id:
            return False
        return self.matches_content(message)

    def matches_content(self, message: StoredMessage) -> bool:
        """The same without topic and queue: a multi-dispatch message also stands in other queues than its own."""
        if self.begin_time is not None and message.store_timestamp < self.begin_time:
            return False
        if self.end_time is not None and message.store_timestamp > self.end_time:
            return False
        if self.key is None and self.tag_filter.is_all:
            return True
        properties = message.properties()
        if self.key is not None and self.key not in message_keys(properties):
            return False
        return self.tag_filter.matches(properties.get(names.TAGS))


def newest_first(messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    """Messages by descending physical offset."""
    return sorted(messages, key=lambda message: message.physical_offset, reverse=True)
