"""Bodies as fastjson 1.2 writes and reads them: beans in alphabetical order, maps whose keys are numbers or objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import CorruptError

_STRING = r'"(?:[^"\\]++|\\.)*+"'
# a string is matched first, so that what stands in it is never taken for a key
_OBJECT_KEY = re.compile(
    rf'{_STRING}|(?P<before>[{{,]\s*+)(?P<key>\{{(?:[^"{{}}]++|{_STRING})*+\}})(?=\s*+:)', re.DOTALL
)


class MessageQueue(NamedTuple):
    """A queue of a topic on a broker; as a key of a map it is written as an object, which plain JSON does not know."""

    broker_name: str
    queue_id: int
    topic: str


def bean(**properties: Any) -> dict[str, Any]:
    """A Java object as fastjson writes it: properties in alphabetical order, nulls left out."""
    return {name: properties[name] for name in sorted(properties) if properties[name] is not None}


def fastjson(value: Any) -> bytes:
    """`value` as a body: no spaces, UTF-8, int keys bare and MessageQueue keys as objects."""
    return _text(value).encode("utf-8", "backslashreplace")


def parse_body(body: bytes) -> dict[str, Any]:
    """The object of a body; keys that are objects become texts of them (see `queue_of_key`). CorruptError where it is
    none, or nested absurdly."""

    def quoted(match: re.Match[str]) -> str:
        key = match.group("key")
        return match.group(0) if key is None else match.group("before") + json.dumps(key, ensure_ascii=False)

    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptError("the body is not UTF-8") from error
    try:
        content = parse_config_json(text)
    except CorruptError:
        # few bodies have such keys
        content = parse_config_json(_OBJECT_KEY.sub(quoted, text))
    if not isinstance(content, dict):
        raise CorruptError("the body is no JSON object")
    return content


def queue_of_key(key: Any) -> MessageQueue | None:
    """The queue that a key of a parsed body names; None for another key."""
    try:
        content = parse_config_json(key) if isinstance(key, str) else None
    except CorruptError:
        return None
    if not isinstance(content, dict):
        return None
    return MessageQueue(text_of(content, "brokerName"), integer_of(content, "queueId"), text_of(content, "topic"))


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list of a body; whatever else stands there is left out, as is a value that is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_of(content: Mapping[str, Any], name: str) -> str:
    """A text of a parsed body; empty where there is none."""
    value = content.get(name)
    return value if isinstance(value, str) else ""


def integer_of(content: Mapping[str, Any], name: str, default: int = 0) -> int:
    """An integer of a parsed body."""
    value = content.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _text(value: Any) -> str:
    if isinstance(value, MessageQueue):
        return _text(bean(brokerName=value.broker_name, queueId=value.queue_id, topic=value.topic))
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key(key)}:{_text(one)}" for key, one in value.items()) + "}"
    if not isinstance(value, str) and isinstance(value, Iterable):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _key(key: Any) -> str:
    if isinstance(key, MessageQueue | int):
        return _text(key)
    return json.dumps(str(key), ensure_ascii=False)
