"""Batches: what may be in one, how it is encoded, and where a long list is split (MessageBatch, ListSplitter)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from rmqctl.formats import properties as names
from rmqctl.formats.errors import UsageError
from rmqctl.formats.hashing import java_int
from rmqctl.formats.java_map import BUILT, in_java_order
from rmqctl.formats.message import Message
from rmqctl.formats.properties import encode_properties
from rmqctl.store.answers.dead_letters import RETRY_PREFIX

_HEAD = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")
SIZE_LIMIT = 1000 * 1000
"""Bytes of a batch, as RocketMQ's ListSplitter counts them."""
_OVERHEAD = 20


def check_batch(messages: Sequence[Message]) -> None:
    """Raises: UsageError where the messages cannot be one batch (MessageBatch#generateFromList of 5.5.0).

    Clients before 5.5 put messages with a delivery time into batches, and brokers deliver those at once.
    """
    if not messages:
        raise UsageError("the messages of a batch must have one topic, and there must be some")
    for message in messages:
        if _delay_level(message) > 0:
            raise UsageError("TimeDelayLevel is not supported for batching")
        if _is_timed(message):
            raise UsageError("Delayed messages are not supported for batching")
        if message.topic.startswith(RETRY_PREFIX):
            raise UsageError("Retry Group is not supported for batching")
        if message.topic != messages[0].topic:
            raise UsageError("The topic of the messages in one batch should be the same")
        if waits(message) != waits(messages[0]):
            raise UsageError("The waitStoreMsgOK of the messages in one batch should the same")


def waits(message: Message) -> bool:
    """Return whether the sender waits until the message is stored safely (isWaitStoreMsgOK)."""
    return message.properties.get(names.WAIT, "true").lower() == "true"


def _delay_level(message: Message) -> int:
    text = message.properties.get(names.DELAY, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def _is_timed(message: Message) -> bool:
    return any(name in message.properties for name in names.TIMER_PROPERTIES)


def _is_alone(message: Message) -> bool:
    return _delay_level(message) > 0 or _is_timed(message) or message.topic.startswith(RETRY_PREFIX)


def size_in_batch(message: Message) -> int:
    """Return the size that RocketMQ's ListSplitter counts: characters of texts, bytes of the body, 20 for the rest."""
    properties = sum(len(name) + len(value) for name, value in message.properties.items())
    return len(message.topic) + len(message.body) + properties + _OVERHEAD


def split(messages: Iterable[Message], most: int, limit: int = SIZE_LIMIT) -> Iterator[list[Message]]:
    """Yield lists of at most `most` messages and `limit` bytes, in order; each can be one batch.

    A message above the limit is alone, as is one that no batch may have: delayed and timed ones, and those of retry
    topics.
    """
    taken: list[Message] = []
    size = 0
    for message in messages:
        more = size_in_batch(message)
        if taken and (len(taken) >= most or size + more > limit or not _go_together(taken[0], message)):
            yield taken
            taken, size = [], 0
        taken.append(message)
        size += more
    if taken:
        yield taken


def _go_together(one: Message, other: Message) -> bool:
    try:
        check_batch([one, other])
    except UsageError:
        return False
    return True


def is_single(messages: Sequence[Message]) -> bool:
    """Return whether a list of `split` is one message that no batch may have."""
    return len(messages) == 1 and _is_alone(messages[0])


def encode_item(message: Message) -> bytes:
    """Return one message of a batch (MessageDecoder#encodeMessage).

    Raises: UsageError for properties or a flag that their fields cannot hold. RocketMQ cuts them, and the broker then
    reads the rest of the batch from a wrong place.
    """
    properties = encode_properties(in_java_order(message.properties, BUILT))
    if len(properties) > names.MAXIMUM_PROPERTIES_SIZE:
        raise UsageError(
            f"the properties of a message have {len(properties)} bytes: "
            f"a message of a batch may have {names.MAXIMUM_PROPERTIES_SIZE}"
        )
    if java_int(message.flag) != message.flag:
        raise UsageError(f"the flag of a message is {message.flag}: it must be a 32-bit integer")
    size = _HEAD.size + len(message.body) + _LENGTH.size + len(properties)
    head = _HEAD.pack(size, 0, 0, message.flag, len(message.body))
    return head + message.body + _LENGTH.pack(len(properties)) + properties
