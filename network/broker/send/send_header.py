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
    is_short = request.code != RequestCode.SEND_MESSAGE
    names = _SHORT if is_short else {name: name for name in _SHORT}
    most = names["maxReconsumeTimes"]
    return SendHeader(
        fields.text(request, names["producerGroup"]),
        fields.text(request, names["topic"]),
        request.fields.get(names["defaultTopic"], ""),
        fields.integer(request, names["defaultTopicQueueNums"], _DEFAULT_QUEUES),
        fields.integer(request, names["queueId"]),
        fields.integer(request, names["sysFlag"], 0),
        fields.long(request, names["bornTimestamp"], 0),
        fields.integer(request, names["flag"], 0),
        request.fields.get(names["properties"], ""),
        fields.integer(request, names["reconsumeTimes"], 0),
        fields.flag(request, names["unitMode"]),
        fields.flag(request, names["batch"]) or request.code == RequestCode.SEND_BATCH_MESSAGE,
        fields.integer(request, most) if most in request.fields else None,
    )
