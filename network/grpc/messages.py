"""Messages of gRPC as those of the store, and back (SendMessageActivity, GrpcConverter)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import java_hash, parse_int, parse_long
from rmqctl.formats.errors import CorruptError, UnsupportedError
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.formats.message import StoredMessage
from rmqctl.network.broker.transactions import TRANSACTION
from rmqctl.network.grpc.protocol import Code, DigestType, Encoding, MessageTypeV2, v2
from rmqctl.network.grpc.service import StatusError
from rmqctl.network.topic_config import RECONSUME_TIME, TopicConfig
from rmqctl.store.answers.undispatched import IMMUNITY, PRODUCER_GROUP
from rmqctl.store.config.config_tables import MESSAGE_TYPE
from rmqctl.store.pop.state import FIRST_POP_TIME

DELIVER_AT = names.TIMER_PROPERTIES[2]
_GROUP, _PRIORITY, _TRACE = "__SHARDINGKEY", "_SYS_MSG_PRIORITY_", "TRACE_CONTEXT"
_BORN_HOST, _BORN_TIMESTAMP = "__BORNHOST", "BORN_TIMESTAMP"
_DLQ_TOPIC, _DLQ_MESSAGE = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
# what users may not set and do not see (MessageConst#STRING_HASH_SET)
_SYSTEM = frozenset(
    (
        names.KEYS, names.TAGS, names.WAIT, names.DELAY, names.REAL_TOPIC, names.REAL_QUEUE_ID, names.UNIQUE_KEY,
        names.CRC32, names.INNER_MULTI_DISPATCH, names.INNER_MULTI_QUEUE_OFFSET, names.INNER_NUM, names.INNER_BASE,
        names.TIMER_OUT_MS, names.TIMER_DELETE_UNIQUE_KEY, names.TIMER_ROLL_TIMES, *names.TIMER_PROPERTIES,
        TRANSACTION, PRODUCER_GROUP, IMMUNITY, RECONSUME_TIME, FIRST_POP_TIME, _PRIORITY, _TRACE, _BORN_HOST,
        _BORN_TIMESTAMP, _DLQ_TOPIC, _DLQ_MESSAGE,
        *"TRACE_ON MSG_REGION CLUSTER RETRY_TOPIC MIN_OFFSET MAX_OFFSET BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG "
        "CORRECTION_FLAG MQ2_FLAG MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET ORIGIN_GROUP "
        "TRAN_PREPARED_QUEUE_OFFSET DUP_INFO EXTEND_UNIQ_INFO INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL "
        "ARRIVE_TIME PUSH_REPLY_TIME MSG_TYPE TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS".split(),
    )
)  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MOST_PROPERTIES, _MOST_PROPERTY_BYTES = 128, 16 * 1024
_LONGEST_MESSAGE_GROUP = 63
_LONGEST_DELAY_MS = 86_400_000
_LONGEST_RECOVERY_SECONDS = 3600
_GZIP = b"\x1f\x8b"


# What is sent.


def _require_plain(text: str, code: Code, what: str) -> None:
    """Raise StatusError for a text of blanks alone, or with control characters."""
    if text and not text.strip():
        raise StatusError(code, f"{what} cannot be the char sequence of whitespace")
    if _CONTROL.search(text):
        raise StatusError(code, f"{what} cannot contain control character")


def _user_properties(message: Any) -> dict[str, str]:
    found = dict(message.user_properties)
    if len(found) > _MOST_PROPERTIES:
        raise StatusError(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"too many user properties, max is {_MOST_PROPERTIES}")
    for name, value in found.items():
        if name in _SYSTEM:
            raise StatusError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        if _CONTROL.search(name) or _CONTROL.search(value):
            raise StatusError(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "the key and the value of property cannot contain control character"
            )
    return found


def properties_of(message: Any, now: int, remote: str, biggest_body: int) -> dict[str, str]:
    """Return the properties of a message that is sent, in RocketMQ's order of checks and with its codes.

    `now`: ms. `remote`: the sender's address. Raises: StatusError.
    """
    system = message.system_properties
    if not message.body:
        raise StatusError(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(message.body) > biggest_body:
        raise StatusError(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {biggest_body}")
    found = _user_properties(message)
    if "|" in system.tag:
        raise StatusError(Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    _require_plain(system.tag, Code.ILLEGAL_MESSAGE_TAG, "tag")
    for key in system.keys:
        _require_plain(key, Code.ILLEGAL_MESSAGE_KEY, "key")
    texts = [*found, *found.values(), system.tag, *system.keys]
    if sum(len(text.encode("utf-8")) for text in texts) > _MOST_PROPERTY_BYTES:
        raise StatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the total size of user property is too large, max is {_MOST_PROPERTY_BYTES}",
        )
    if not system.message_id.strip() or _CONTROL.search(system.message_id):
        raise StatusError(Code.ILLEGAL_MESSAGE_ID, "message id cannot be blank")
    kind = system.message_type
    named = {
        names.TAGS: system.tag,
        names.KEYS: " ".join(system.keys),
        names.UNIQUE_KEY: system.message_id,
        TRANSACTION: "true" if kind == MessageTypeV2.TRANSACTION else "",
        IMMUNITY: _recovery_seconds(system),
        DELIVER_AT: _deliver_at(system, now),
        _PRIORITY: str(system.priority) if system.HasField("priority") else "",
        RECONSUME_TIME: str(system.delivery_attempt),
        PRODUCER_GROUP: message.topic.name,
        _GROUP: _message_group(system),
        _TRACE: _CONTROL.sub("", system.trace_context),
        _BORN_HOST: _CONTROL.sub("", system.born_host) or remote,
        _BORN_TIMESTAMP: str(milliseconds(system.born_timestamp)) if system.HasField("born_timestamp") else str(now),
    }
    return found | {name: value for name, value in named.items() if value}


def milliseconds(time: Any) -> int:
    """Return a Timestamp or Duration in ms."""
    return int(time.seconds * 1000 + time.nanos // 1_000_000)


def _recovery_seconds(system: Any) -> str:
    if system.message_type != MessageTypeV2.TRANSACTION or not system.HasField(
        "orphaned_transaction_recovery_duration"
    ):
        return ""
    seconds = system.orphaned_transaction_recovery_duration.seconds
    if seconds > _LONGEST_RECOVERY_SECONDS:
        raise StatusError(
            Code.BAD_REQUEST, f"the max transaction recovery second of message is too large, max is "
            f"{_LONGEST_RECOVERY_SECONDS}",
        )  # fmt: skip
    return str(max(0, seconds))


def _deliver_at(system: Any, now: int) -> str:
    if not system.HasField("delivery_timestamp"):
        return ""
    due = milliseconds(system.delivery_timestamp)
    if due - now > _LONGEST_DELAY_MS:
        raise StatusError(
            Code.ILLEGAL_DELIVERY_TIME, f"the max delay time of message is too large, max is {_LONGEST_DELAY_MS}"
        )
    return str(max(0, due))


def _message_group(system: Any) -> str:
    group = str(system.message_group)
    if len(group.encode("utf-8")) > _LONGEST_MESSAGE_GROUP:
        raise StatusError(Code.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {_LONGEST_MESSAGE_GROUP + 1}")
    _require_plain(group, Code.ILLEGAL_MESSAGE_GROUP, "message group")
    return group


# Types of messages.


def type_of_topic(topic: TopicConfig) -> str:
    """Return which messages a topic takes (TopicAttributes#TOPIC_MESSAGE_TYPE_ATTRIBUTE)."""
    return str(topic.attributes.get(MESSAGE_TYPE, "NORMAL"))


def accepted_types(topic: TopicConfig) -> list[MessageTypeV2]:
    """Return the types that a route names for a topic."""
    kind = type_of_topic(topic)
    if kind == "MIXED":
        return [MessageTypeV2.NORMAL, MessageTypeV2.FIFO, MessageTypeV2.DELAY, MessageTypeV2.TRANSACTION]
    return [MessageTypeV2.__members__.get(kind, MessageTypeV2.MESSAGE_TYPE_UNSPECIFIED)]


def require_type(expected: str, actual: str) -> None:
    """Raise StatusError for a message of another type than its topic takes (DefaultTopicMessageTypeValidator)."""
    if expected not in (actual, "MIXED") or actual == "UNSPECIFIED":
        raise StatusError(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}",
        )


def type_of_message(properties: dict[str, str]) -> MessageTypeV2:
    """Return the type that properties make a message (TopicMessageType#parseFromMessageProperty)."""
    if properties.get(TRANSACTION, "").lower() == "true":
        return MessageTypeV2.TRANSACTION
    if names.DELAY in properties or any(name in properties for name in names.TIMER_PROPERTIES):
        return MessageTypeV2.DELAY
    if _GROUP in properties:
        return MessageTypeV2.FIFO
    return MessageTypeV2.PRIORITY if _PRIORITY in properties else MessageTypeV2.NORMAL


def queue_of_group(group: str, queues: int) -> int:
    """Return the queue that messages of a group go to (Guava's Hashing#consistentHash over its hash code)."""
    state, candidate = java_hash(group), 0
    while True:
        state = (2862933555777941757 * state + 1) & 0xFFFFFFFFFFFFFFFF
        following = int((candidate + 1) / (((state >> 33) + 1) / 0x80000000))
        if following >= queues:
            return candidate
        candidate = following


# What is handed out.


def set_milliseconds(time: Any, value: int) -> None:
    """Set a Timestamp."""
    time.seconds, time.nanos = value // 1000, value % 1000 * 1_000_000


def message_of(stored: StoredMessage, properties: dict[str, str], topic: str, handle: str | None = None) -> Any:
    """Return a stored message as clients get it, of this topic. `handle`: by which it is acknowledged.

    A body that only clients of remoting unpack, or that is of zlib and not of gzip, is unpacked here.
    """
    body, encoding = stored.body, Encoding.IDENTITY
    if stored.sys_flag & SYS_FLAG_COMPRESSED:
        try:
            body = body if body.startswith(_GZIP) else stored.plain_body()
            encoding = Encoding.GZIP if body is stored.body else Encoding.IDENTITY
        except (CorruptError, UnsupportedError):
            encoding = Encoding.GZIP
    message = v2.Message(
        topic=v2.Resource(name=topic),
        user_properties={name: value for name, value in properties.items() if name not in _SYSTEM},
        body=body,
    )
    system = message.system_properties
    if names.TAGS in properties:
        system.tag = properties[names.TAGS]
    system.keys.extend(names.split_keys(properties.get(names.KEYS)))
    system.message_id = properties.get(names.UNIQUE_KEY) or stored.message_id
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = encoding
    system.message_type = type_of_message(properties)
    set_milliseconds(system.born_timestamp, stored.born_timestamp)
    system.born_host = properties.get(_BORN_HOST) or str(stored.born_host).rpartition(":")[0]
    set_milliseconds(system.store_timestamp, stored.store_timestamp)
    system.store_host = str(stored.store_host)
    due = parse_long(properties.get(DELIVER_AT, ""))
    if due is not None:
        set_milliseconds(system.delivery_timestamp, due)
    if handle is not None:
        system.receipt_handle = handle
    system.queue_id, system.queue_offset = stored.queue_id, stored.queue_offset
    system.delivery_attempt = stored.reconsume_times + 1
    if _GROUP in properties:
        system.message_group = properties[_GROUP]
    if _TRACE in properties:
        system.trace_context = properties[_TRACE]
    priority = parse_int(properties.get(_PRIORITY, ""))
    if priority is not None:
        system.priority = priority
    if _DLQ_TOPIC in properties and _DLQ_MESSAGE in properties:
        system.dead_letter_queue.topic = properties[_DLQ_TOPIC]
        system.dead_letter_queue.message_id = properties[_DLQ_MESSAGE]
    return message


def one_topic(messages: Sequence[Any]) -> str:
    """Return the name of the topic that messages are for. Raises: StatusError for none, or several."""
    if not messages:
        raise StatusError(Code.MESSAGE_CORRUPTED, "no message to send")
    topics = {message.topic.name for message in messages}
    if len(topics) > 1:
        raise StatusError(Code.MESSAGE_CORRUPTED, "different message's topic")
    return str(messages[0].topic.name)
