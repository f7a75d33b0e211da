"""One member of a group: what it subscribes, the queues assigned to it and its offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from rmqctl.formats.errors import RemoteError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.allocate import Allocate
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.consume_hooks import ConsumeHook, ConsumeHookContext, ConsumeReturn, run_after, run_before
from rmqctl.network.clients.consumer import Where
from rmqctl.network.clients.membership import BROADCASTING, CLUSTERING, consumer_heartbeat
from rmqctl.network.clients.namespaces import without_namespace
from rmqctl.network.clients.push.figures import ConsumeFigures
from rmqctl.network.clients.push.offset_stores import ProgressStore
from rmqctl.network.clients.push.process_queue import ProcessQueue
from rmqctl.network.clients.push.settings import PushSettings
from rmqctl.network.clients.push.tasks import Warn
from rmqctl.network.remoting.codes import RequestCode
from rmqctl.network.remoting.fastjson import MessageQueue
from rmqctl.network.topic_config import retry_topic
from rmqctl.store.answers.dead_letters import ORIGIN_TOPIC

_FROM = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}

SUCCESSES = ("CONSUME_SUCCESS", "SUCCESS", "COMMIT")
# ConsumeMessageOrderlyService counts a ROLLBACK as no failure
_FAILURES = ("RECONSUME_LATER", "SUSPEND_CURRENT_QUEUE_A_MOMENT")


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
    hooks: list[ConsumeHook] = field(default_factory=list)
    namespace: str = ""
    announced: list[Any] = field(default_factory=list)
    figures: ConsumeFigures = field(default_factory=ConsumeFigures)

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
        content = consumer_heartbeat(self.group, self.subscriptions, begin, model)
        self.announced = content["consumerDataSet"][0]["subscriptionDataSet"]
        self.client.start_heartbeats(content)

    def commit(self, queue: MessageQueue, held: ProcessQueue, offset: int) -> None:
        """Note in memory that a queue is consumed up to `offset`; -1 is nothing."""
        if offset >= 0 and not held.is_dropped:
            self.offsets.update(queue, offset, increase_only=not self.is_orderly)

    def original(self, message: StoredMessage) -> StoredMessage:
        """Return a message with the topic that it was sent to, as brokers know it."""
        origin = message.properties().get(ORIGIN_TOPIC[0]) if self.is_retry(message.topic) else None
        return message._replace(topic=origin) if origin else message

    def presented(self, message: StoredMessage) -> StoredMessage:
        """Return a message as the callback sees it: a retried one has its original topic, and none its namespace."""
        message = self.original(message)
        return message._replace(topic=without_namespace(self.namespace, message.topic))

    def begin_hooks(self, messages: Sequence[StoredMessage], queue: MessageQueue) -> ConsumeHookContext | None:
        """Call the hooks before a consumption. Return its context, None without hooks."""
        if not self.hooks:
            return None
        queue = queue._replace(topic=without_namespace(self.namespace, queue.topic))
        context = ConsumeHookContext(self.group, self.namespace, queue, messages)
        run_before(self.hooks, context, self.warn)
        return context

    def end_hooks(
        self, context: ConsumeHookContext | None, status: Enum, seconds: float, failure: ConsumeReturn | None
    ) -> None:
        """Call the hooks after a callback that took `seconds`; `failure`: how it failed to give a verdict."""
        if context is None:
            return
        context.status = status.name
        context.is_success = status.name in SUCCESSES
        if failure is not None:
            context.returned = failure
        elif seconds >= self.settings.consume_timeout:
            context.returned = ConsumeReturn.TIME_OUT
        elif status.name in _FAILURES:
            context.returned = ConsumeReturn.FAILED
        run_after(self.hooks, context, self.warn)

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
