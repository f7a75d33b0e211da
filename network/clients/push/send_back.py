"""Failed messages on their way to the group's retry topic, or to its dead letters."""

from __future__ import annotations

import threading

from rmqctl.formats import properties as names
from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.channel import Dial
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.producing.settings import ProducerSettings
from rmqctl.network.clients.push.member import PushMember
from rmqctl.network.remoting.codes import RequestCode
from rmqctl.network.remoting.fastjson import MessageQueue
from rmqctl.network.topic_config import MAX_RECONSUME_TIMES, RECONSUME_TIME, retry_topic
from rmqctl.store.answers.dead_letters import ORIGIN_ID, ORIGIN_TOPIC

_INNER_GROUP = "CLIENT_INNER_PRODUCER"
_SECONDS = 5.0
_FIRST_RETRY_LEVEL = 3
_PREPARED = "TRAN_MSG"


class SendBack:
    """Sends failed messages of one member back. Safe for threads."""

    def __init__(self, member: PushMember, namesrv: str, dial: Dial) -> None:
        self._member = member
        self._namesrv = namesrv
        self._dial = dial
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def send(self, message: StoredMessage, queue: MessageQueue, level: int) -> bool:
        """Have the broker put a message into the retry topic (CONSUMER_SEND_MSG_BACK); where it does not, send it
        there as a message. Return False where neither works."""
        member = self._member
        given = message.properties()
        fields = {
            "offset": message.physical_offset, "group": member.group, "delayLevel": level,
            "originMsgId": given.get(names.UNIQUE_KEY, message.message_id), "originTopic": message.topic,
            "unitMode": False, "bname": queue.broker_name,
            "maxReconsumeTimes": member.settings.max_retries(is_orderly=member.is_orderly),
        }  # fmt: skip
        try:
            address = member.address(queue)
            member.client.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, fields, seconds=_SECONDS)
        except RmqctlError as error:
            member.warn(f"{_named(message)} is not taken back, and is sent to the retry topic: {error.message}")
            return self.send_as_message(message)
        return True

    def send_as_message(self, message: StoredMessage) -> bool:
        """Send a message to the retry topic. The broker makes a dead letter of one with too many retries. Return False
        where no broker takes it."""
        properties = message.properties()
        unique_key = properties.get(names.UNIQUE_KEY, message.message_id)
        properties.pop(_PREPARED, None)
        times = message.reconsume_times
        properties |= {
            ORIGIN_ID[0]: properties.get(ORIGIN_ID[0]) or unique_key,
            ORIGIN_TOPIC[0]: message.topic,
            RECONSUME_TIME: str(times + 1),
            MAX_RECONSUME_TIMES: str(self._member.settings.max_retries(is_orderly=self._member.is_orderly)),
            names.DELAY: str(_FIRST_RETRY_LEVEL + times),
        }
        try:
            body = message.plain_body()
            again = Message(retry_topic(self._member.group), body, flag=message.flag, properties=properties)
            self._made().send(again)
        except RmqctlError as error:
            self._member.warn(f"{_named(message)} cannot be sent to the retry topic: {error.message}")
            return False
        return True

    def _made(self) -> Producer:
        with self._lock:
            if self._producer is None:
                # one for each member of this process, as for each client of RocketMQ's
                instance = self._member.client.client_id.partition("@")[2]
                settings = ProducerSettings(instance_name=instance)
                self._producer = Producer(self._namesrv, _INNER_GROUP, self._dial, settings)
                self._producer.start()
            return self._producer

    def close(self) -> None:
        """End the connections made for it."""
        with self._lock:
            if self._producer is not None:
                self._producer.close()


def _named(message: StoredMessage) -> str:
    return f"{message.topic} queue {message.queue_id} offset {message.queue_offset}"
