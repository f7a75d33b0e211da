"""What a broker says when it registers: its topics, as JSON or compressed (RegisterBrokerBody)."""

from __future__ import annotations

import struct
import zlib

from rmqctl.formats.checksums import body_crc
from rmqctl.formats.errors import CorruptError
from rmqctl.network.remoting.fastjson import parse_body
from rmqctl.network.topic_config import TopicConfig, topic_from_bean

_INT32 = struct.Struct(">i")
_LARGEST_BODY = 64 * 1024 * 1024
_MOST_TOPICS = 100_000


def registered_topics(body: bytes, *, is_compressed: bool, crc: int) -> dict[str, TopicConfig]:
    """The topics in a registration's body. CorruptError for a body that is damaged, or larger than any broker's.

    `crc`: CRC32 of the body, 0 if the broker gave none.
    """
    if crc and body and body_crc(body) != crc & 0x7FFFFFFF:
        raise CorruptError("the registration's body does not match its CRC32")
    if not body:
        return {}
    return _from_compressed(_inflated(body)) if is_compressed else _from_json(body)


def _from_json(body: bytes) -> dict[str, TopicConfig]:
    wrapper = parse_body(body).get("topicConfigSerializeWrapper")
    table = wrapper.get("topicConfigTable") if isinstance(wrapper, dict) else None
    if not isinstance(table, dict):
        return {}
    return {
        name: topic_from_bean(name, one)
        for name, one in table.items()
        if isinstance(name, str) and isinstance(one, dict)
    }


def _inflated(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, _LARGEST_BODY)
    except zlib.error as error:
        raise CorruptError(f"the registration does not decompress: {error}") from error
    if not inflater.eof:
        raise CorruptError("the registration's body is cut short, or larger than any broker's")
    return plain


def _from_compressed(plain: bytes) -> dict[str, TopicConfig]:
    """int32 length and data version; int32 count and, for each topic, int32 length and its settings as text."""
    length, position = _length(plain, 0)
    position += length
    if len(plain) - position < _INT32.size:
        raise CorruptError("the registration ends before its topics")
    (count,) = _INT32.unpack_from(plain, position)
    position += _INT32.size
    if not 0 <= count <= _MOST_TOPICS:
        raise CorruptError(f"a registration of {count} topics is larger than any broker's")
    topics: dict[str, TopicConfig] = {}
    for _ in range(count):
        length, position = _length(plain, position)
        topic = _topic(plain[position : position + length])
        topics[topic.name] = topic
        position += length
    return topics


def _length(plain: bytes, position: int) -> tuple[int, int]:
    """A length that is held against what is left, and where what it counts begins."""
    if len(plain) - position < _INT32.size:
        raise CorruptError("the registration is cut short")
    (length,) = _INT32.unpack_from(plain, position)
    if not 0 <= length <= len(plain) - position - _INT32.size:
        raise CorruptError(f"{length} bytes do not fit into what is left of the registration")
    return length, position + _INT32.size


def _topic(text: bytes) -> TopicConfig:
    """`name read-queues write-queues perm filter-type [attributes]` (TopicConfig#encode)."""
    try:
        name, readable, writable, perm, filter_type, *_ = text.decode("utf-8").split(" ")
        return TopicConfig(name, int(readable), int(writable), int(perm), filter_type)
    except ValueError as error:
        raise CorruptError(f"a topic of the registration does not parse: {text[:80]!r}") from error
