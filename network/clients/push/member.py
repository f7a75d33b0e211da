"""One member of a group: what it subscribes, the queues assigned to it and its offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqctl.formats.errors import RemoteError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.allocate import Allocate
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.consumer import Where
from rmqctl.network.clients.membership import BROADCASTING, CLUSTERING, consumer_heartbeat
from rmqctl.network.clients.push.offset_stores import ProgressStore
from rmqctl.network.clients.push.process_queue import ProcessQueue
from rmqctl.network.clients.push.settings import PushSettings
from rmqctl.network.clients.push.tasks import Warn
from rmqctl.network.remoting.codes import RequestCode
from rmqctl.network.remoting.fastjson import MessageQueue
from rmqctl.network.topic_config import retry_topic
from rmqctl.store.answers.dead_letters import ORIGIN_TOPIC

_FROM = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}


@dataclass
class PushMember:
    """A member that pulls. `subscriptions`: tag expressions by topic; `queues`: what is assigned, changed by the
    thread that rebalances only."""

    client: Client
    group: str
    subscriptions: Mapping[str, str]
    settings: PushSettings
    warn: Warn
    begin: Where
    allocate: Allocate
    is_orderly: bool
    is_broadcast: bool
    offsets: ProgressStore
    commits: bool = True
    queues: dict[MessageQueue, ProcessQueue] = field(default_factory=dict)

    @property
    def is_locking(self) -> bool:
        """Return whether queues are locked at their brokers: in order, within a group."""
        return self.is_orderly and not self.is_broadcast

    def is_retry(self, topic: str) -> bool:
        """Return whether a topic is the group's retry topic."""
        return topic == retry_topic(self.group)

    def address(self, queue: MessageQueue) -> str:
        """Return the address of the broker of a queue. RemoteError where no name server knows it."""
        return broker_address(self.client, queue)

    def announce(self) -> None:
        """Send a heartbeat with the subscriptions to every broker, now and every 30 s."""
        model = BROADCASTING if self.is_broadcast else CLUSTERING
        begin = _FROM.get(str(self.begin), "CONSUME_FROM_TIMESTAMP")
        self.client.start_heartbeats(consumer_heartbeat(self.group, self.subscriptions, begin, model))

    def commit(self, queue: MessageQueue, held: ProcessQueue, offset: int) -> None:
        """Note in memory that a queue is consumed up to `offset`; -1 is nothing."""
        if offset >= 0 and not held.is_dropped:
            self.offsets.update(queue, offset, increase_only=not self.is_orderly)

    def presented(self, message: StoredMessage) -> StoredMessage:
        """Return a message as the callback sees it: a retried one has its original topic."""
        if not self.is_retry(message.topic):
            return message
        origin = message.properties().get(ORIGIN_TOPIC[0])
        return message._replace(topic=origin) if origin else message

    def start_of(self, queue: MessageQueue) -> tuple[int, int | None]:
        """Return the offset at which to begin in a queue, and the store time (ms) before which messages are left out.

        That is the offset that is kept, else what `begin` says (RebalancePushImpl#computePullFromWhereWithException).
        A retry topic begins at its first message: none that is to come again is left out.
        """
        stored = self.offsets.stored(queue)
        if stored is not None:
            return stored, None
        if self.begin == "first" or self.is_retry(queue.topic):
            return self._bound(queue, RequestCode.GET_MIN_OFFSET), None
        if self.begin == "last":
            return self._bound(queue, RequestCode.GET_MAX_OFFSET), None
        # brokers of 4.x return the nearest message: never one after the first of that time if asked for 1 ms earlier
        return self._bound(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, max(0, self.begin - 1)), self.begin

    def end_of(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that a queue will get."""
        return self._bound(queue, RequestCode.GET_MAX_OFFSET)

    def _bound(self, queue: MessageQueue, code: RequestCode, timestamp: int | None = None) -> int:
        fields = {"topic": queue.topic, "queueId": queue.queue_id, "timestamp": timestamp}
        return int(self.client.ask(self.address(queue), code, fields).fields["offset"])


def broker_address(client: Client, queue: MessageQueue) -> str:
    """Return the address of the broker of a queue. RemoteError where no name server knows it."""
    route = client.route(queue.topic)
    if route is None or queue.broker_name not in route.addresses:
        raise RemoteError(f"no name server knows broker {queue.broker_name!r} of topic {queue.topic!r}")
    return route.addresses[queue.broker_name]
