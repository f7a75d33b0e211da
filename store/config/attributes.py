"""Attributes of topics and groups, and how a request changes them (TopicAttributes, SubscriptionGroupAttributes,
AttributeParser, AttributeUtil)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqctl.formats.errors import RefusedError
from rmqctl.store.config.versions import Release

BATCH_QUEUES = "BatchCQ"
QUEUE_TYPE = "queue.type"
MESSAGE_TYPE = "message.type"
_LONGEST = (1 << 63) - 1
_BOOLEANS = ("false", "true")
_LITE_MINUTES = 30 * 24 * 60
# Long.parseLong
_LONG = re.compile(r"[+-]?[0-9]{1,19}")


class Attribute(NamedTuple):
    """`values`: the words that are allowed, or the smallest and the largest number; empty for any text."""

    values: tuple[str, ...] | tuple[int, int]
    is_changeable: bool = True

    def problem(self, value: str) -> str | None:
        """Return what RocketMQ says against a value; None for a good one."""
        if not self.values:
            return None
        if self.values == _BOOLEANS:
            return None if value.lower() in _BOOLEANS else "boolean attribute format is wrong."
        smallest = self.values[0]
        if isinstance(smallest, str):
            return None if value in self.values else f"value is not in set: [{', '.join(map(str, self.values))}]"
        largest = int(self.values[1])
        if _LONG.fullmatch(value) is None or not -_LONGEST - 1 <= int(value) <= _LONGEST:
            return f'For input string: "{value}"'
        if not smallest <= int(value) <= largest:
            return f"value is not in range({smallest}, {largest})"
        return None


def topic_attributes(release: Release) -> dict[str, Attribute]:
    """Return the attributes that a topic may have (TopicAttributes)."""
    if not release.message_types:
        return {}
    found = {
        QUEUE_TYPE: Attribute(("SimpleCQ", "BatchCQ"), is_changeable=False),
        "cleanup.policy": Attribute(("DELETE", "COMPACTION"), is_changeable=False),
        MESSAGE_TYPE: Attribute(release.message_types),
        "reserve.time": Attribute((-1, _LONGEST)),
    }
    if release.has_lite_topics:
        found["lite.topic.expiration"] = Attribute((-1, _LITE_MINUTES))
    return found


def group_attributes(release: Release) -> dict[str, Attribute]:
    """Return the attributes that a consumer group may have (SubscriptionGroupAttributes); none before 5.4."""
    if not release.has_lite_topics:
        return {}
    return {
        "priority.factor": Attribute((0, 100)),
        "lite.bind.topic": Attribute(()),
        "lite.sub.client.max.event.cnt": Attribute((10, _LONGEST)),
        "lite.sub.client.quota": Attribute((-1, _LONGEST)),
        "lite.sub.model": Attribute(("Shared", "Exclusive")),
        "lite.sub.reset.offset.exclusive": Attribute(_BOOLEANS),
        "lite.sub.reset.offset.unsubscribe": Attribute(_BOOLEANS),
        "lite.sub.wildcard": Attribute(()),
    }


def changed_attributes(
    known: Mapping[str, Any] | None, change: Mapping[str, str], table: Mapping[str, Attribute]
) -> dict[str, Any]:
    """Return attributes after a change, keys of which begin with `+` or `-`. `known` is None for a new topic or group,
    `table` has what it may have.

    RefusedError with RocketMQ's own words for what it refuses (AttributeUtil#alterCurrentAttributes).
    """
    seen: set[str] = set()
    new = dict(known or {})
    for key in change:
        sign, name = key[:1], key[1:]
        if not name or "+" in name or "-" in name:
            raise _refused("kv string format wrong.")
        if name in seen:
            raise _refused(f"alter duplication key. key: {name}")
        seen.add(name)
        if known is None and sign != "+":
            raise _refused(f"only add attribute is supported while creating topic. key: {name}")
        if sign == "-" and name not in (known or {}):
            raise _refused(f"attempt to delete a nonexistent key: {name}")
        if sign not in ("+", "-"):
            raise _refused(f"wrong format key: {name}")
    for key, value in change.items():
        sign, name = key[:1], key[1:]
        attribute = table.get(name)
        if attribute is None:
            raise _refused(f"unsupported key: {name}")
        if known is not None and not attribute.is_changeable:
            raise _refused(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            new.pop(name, None)
            continue
        problem = attribute.problem(value)
        if problem is not None:
            raise _refused(problem)
        new[name] = value
    return new


def parsed_change(text: str) -> dict[str, str]:
    """Return the changes of `+name=value,-name` by signed name (AttributeParser#parseToMap). RefusedError."""
    parts = text.split(",") if text else []
    while parts and not parts[-1]:
        parts.pop()  # as Java's split does
    found: dict[str, str] = {}
    for part in parts:
        key, has_value, rest = part.partition("=")
        value = rest.split("=")[0]
        if has_value and not value:
            raise _refused(f"attribute {part} has no value")
        if has_value and "+" not in key:
            raise _refused(f"add/alter attribute format is wrong: {key}")
        if not has_value and "-" not in key:
            raise _refused(f"delete attribute format is wrong: {key}")
        if key in found:
            raise _refused(f"key duplication: {key}")
        found[key] = value
    return found


def _refused(remark: str) -> RefusedError:
    return RefusedError(remark, hint="`mqadmin updateTopic -a` and `updateSubGroup` take the same words")
