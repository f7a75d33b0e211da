"""Half messages: how they are kept, committed, ended and copied (TransactionalMessageBridge)."""

from __future__ import annotations

from collections.abc import Iterable

from rmqctl.formats import properties as names
from rmqctl.formats.java_map import in_java_order
from rmqctl.formats.layouts import TRANSACTION_MASK
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.formats.sys_flag import TRANSACTION_COMMIT
from rmqctl.store.answers.half_topics import CHECK_TIMES, GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC

TRANSACTION = "TRAN_MSG"
_TRANSACTION_ID = "__transactionId__"
_ENDED_TAG = "d"


def as_half(message: Message) -> Message:
    """`message` as it waits for the end of its transaction (parseHalfMessageInner), without a delay."""
    properties = {name: value for name, value in message.properties.items() if name != names.DELAY}
    properties[_TRANSACTION_ID] = properties[names.UNIQUE_KEY]
    properties[names.REAL_TOPIC] = message.topic
    properties[names.REAL_QUEUE_ID] = str(message.queue_id)
    return message._replace(
        topic=HALF_TOPIC, queue_id=0, properties=properties, sys_flag=message.sys_flag & ~TRANSACTION_MASK
    )


def committed(half: StoredMessage, topic: str, queue_id: int) -> Message:
    """The message of a half one that is committed: its properties stay as they are (endMessageTransaction)."""
    return _copy(half)._replace(
        topic=topic,
        queue_id=queue_id,
        property_bytes=half.property_bytes,
        store_host=half.store_host,
        sys_flag=half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
        prepared_transaction_offset=half.physical_offset,
    )


def ended(queue_offsets: Iterable[int]) -> Message:
    """What says in the op topic that the half messages at these queue offsets have come to their end."""
    properties = in_java_order({names.TAGS: _ENDED_TAG, names.WAIT: "true"}, 16)
    return Message(OP_TOPIC, "".join(f"{offset}," for offset in queue_offsets).encode("ascii"), properties=properties)


def asked_about(half: StoredMessage, times: int) -> Message:
    """The copy of a half message that takes its place when its producer is asked for the `times`th time
    (renewHalfMessageInner)."""
    properties = {**half.properties(), CHECK_TIMES: str(times), names.WAIT: "false"}
    return _copy(half)._replace(topic=HALF_TOPIC, queue_id=half.queue_id, properties=in_java_order(properties))


def given_up(half: StoredMessage) -> Message:
    """A half message whose producer was asked often enough (toMessageExtBrokerInner)."""
    return _copy(half)._replace(topic=GIVEN_UP_TOPIC, queue_id=0, property_bytes=half.property_bytes)


def _copy(half: StoredMessage) -> Message:
    return Message(
        half.topic,
        half.body,
        flag=half.flag,
        properties=half.properties(),
        sys_flag=half.sys_flag & ~TRANSACTION_MASK,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        reconsume_times=half.reconsume_times,
    )
