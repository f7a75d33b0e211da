"""A message whose time has come: put into its topic, or told why that cannot be yet."""

from __future__ import annotations

from collections.abc import Mapping

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, UsageError, WriteFailedError
from rmqctl.formats.hashing import whole_number
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.broker.writable_broker import WritableBroker


def delivered(stored: StoredMessage, properties: Mapping[str, str], *, as_stored: bool) -> Message:
    """The message as it goes to the topic and queue that its properties name (ScheduleMessageService#messageTimeUp,
    TimerMessageStore#convertMessage). They stay with it, which keeps it from being delayed again. `as_stored`: the
    bytes of its properties stay as they are. CorruptError for a message that names no place."""
    topic, queue_id = properties.get(names.REAL_TOPIC), whole_number(properties.get(names.REAL_QUEUE_ID, ""))
    if topic is None or queue_id is None:
        raise CorruptError(f"the message at {stored.physical_offset} does not say where it is to be delivered")
    return Message(
        topic,
        stored.body,
        queue_id,
        stored.flag,
        properties,
        stored.property_bytes if as_stored else None,
        sys_flag=stored.sys_flag,
        born_timestamp=stored.born_timestamp,
        born_host=stored.born_host,
        store_host=stored.store_host,
        reconsume_times=stored.reconsume_times,
    )


def is_put(broker: WritableBroker, message: Message) -> bool:
    """Put a message; False, and the reason told once a topic, where it has to wait on."""
    try:
        result = broker.put([message]).results[0]
    except (UsageError, WriteFailedError) as error:
        broker.tell_once((message.topic, -1), f"a delayed message for {message.topic} waits on: {error}")
        return False
    if result.status.is_stored:
        broker.see_to_topic(message)
        return True
    text = f"a delayed message for {message.topic} waits on: {result.status}: {result.detail}"
    broker.tell_once((message.topic, -1), text)
    return False
