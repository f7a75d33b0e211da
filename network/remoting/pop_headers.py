"""Headers of the requests of POP, beside those of `headers`."""

from __future__ import annotations

from rmqctl.network.remoting.codec import RequestCode as Code
from rmqctl.network.remoting.headers import Header, Long


class PopQueue(Header, codes=(Code.POLLING_INFO,)):
    """A group and a queue; `queue_id` below 0: all of the topic's."""

    consumer_group: str
    topic: str
    queue_id: int


class PeekMessage(PopQueue, codes=(Code.PEEK_MESSAGE,)):
    """Messages that stay where they are."""

    max_msg_nums: int


class Notification(PopQueue, codes=(Code.NOTIFICATION,)):
    """Whether a pop would find messages. Times in ms; `born_time` by the client's clock."""

    poll_time: Long
    born_time: Long = 0
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class PopRequest(Notification, codes=(Code.POP_MESSAGE,)):
    """A pop. `init_mode`: where a group without an offset begins, 0 the first message, 1 the last."""

    max_msg_nums: int
    invisible_time: Long
    init_mode: int


class AckMessage(PopQueue, codes=(Code.ACK_MESSAGE,)):
    """A message that a client is done with; `extra_info`: its handle."""

    extra_info: str
    offset: Long
    lite_topic: str | None = None


class ChangeInvisibleTime(AckMessage, codes=(Code.CHANGE_MESSAGE_INVISIBLETIME,)):
    """How long a message stays invisible from now on (ms). `suspend`: its retry counts no attempt."""

    invisible_time: Long
    suspend: bool = False
