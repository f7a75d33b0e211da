"""The header of a message that is sent, in its long and its short form (SendMessageRequestHeader, ...HeaderV2)."""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode
from rmqctl.network.remoting.command import RemotingCommand

_DEFAULT_QUEUES = 4
# where the short form has its fields, by their names in the long one
_SHORT = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "queueId": "e",
    "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i", "reconsumeTimes": "j", "unitMode": "k",
    "maxReconsumeTimes": "l", "batch": "m",
}  # fmt: skip
_LONG = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
_SHORT_NAMES = tuple(_SHORT.values())
_LONG_NAMES = tuple(_SHORT)


class SendHeader(NamedTuple):
    """What a producer says of its message. `properties`: in stored form; `max_reconsume_times`: None if not said."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queues: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    is_unit_mode: bool
    is_batch: bool
    max_reconsume_times: int | None


def send_header(request: RemotingCommand) -> SendHeader:
    """The header of a send request; RequestError for fields that are missing or no numbers."""
    is_short = request.code not in _LONG
    (
        group, topic, default_topic, default_queues, queue_id, sys_flag, born, flag, properties, reconsume_times, unit,
        most_reconsume_times, batch,
    ) = _SHORT_NAMES if is_short else _LONG_NAMES  # fmt: skip
    return SendHeader(
        fields.text(request, group),
        fields.text(request, topic),
        request.fields.get(default_topic, ""),
        fields.integer(request, default_queues, _DEFAULT_QUEUES),
        fields.integer(request, queue_id),
        fields.integer(request, sys_flag, 0),
        fields.long(request, born, 0),
        fields.integer(request, flag, 0),
        request.fields.get(properties, ""),
        fields.integer(request, reconsume_times, 0),
        fields.flag(request, unit),
        fields.flag(request, batch) or request.code == RequestCode.SEND_BATCH_MESSAGE,
        fields.integer(request, most_reconsume_times) if most_reconsume_times in request.fields else None,
    )
