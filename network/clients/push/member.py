"""One member of a group: what it subscribes, the queues assigned to it and its offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.channel import messages_of
from rmqctl.network.clients.client import Client, Warn, Where, without_namespace
from rmqctl.network.clients.hooks import ConsumeHook, ConsumeHookContext, ConsumeReturn, begin_consumption, run_after
from rmqctl.network.clients.membership import (
    BROADCASTING,
    CLUSTERING,
    Allocate,
    check_filters,
    consumer_heartbeat,
    not_a_member,
    offsets_to_set,
    running_info_answer,
    status_answer,
)
from rmqctl.network.clients.push.offset_stores import ProgressStore
from rmqctl.network.clients.push.process_queue import ProcessQueue
from rmqctl.network.clients.push.settings import ConsumeFigures, PushSettings
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, RequestCode, ResponseCode, bean, fastjson
from rmqctl.network.topic_config import retry_topic
from rmqctl.store.answers.dead_letters import ORIGIN_TOPIC

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
    unit_name: str = ""
    unit_mode: bool = False
    client_rebalance: bool = True
    joins: bool = True
    announced: list[Any] = field(default_factory=list)
    figures: ConsumeFigures = field(default_factory=ConsumeFigures)

    @property
    def is_locking(self) -> bool:
        """Return whether queues are locked at their brokers: in order, within a group."""
        return self.is_orderly and not self.is_broadcast

    def is_retry(self, topic: str) -> bool:
        """Return whether a topic is the group's retry topic."""
        return topic == retry_topic(self.group)

    def announce(self, address: str | None = None) -> None:
        """Send a heartbeat with the subscriptions to every broker, now and every 30 s; an onlooker sends none.
        BrokerError where the broker at `address` does not accept them."""
        if not self.joins:
            return
        model = BROADCASTING if self.is_broadcast else CLUSTERING
        content = consumer_heartbeat(self.group, self.subscriptions, self.begin, model, unit_mode=self.unit_mode)
        self.announced = content["consumerDataSet"][0]["subscriptionDataSet"]
        if address is not None:
            check_filters(self.client, address, self.group, self.announced)
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
        return begin_consumption(self.hooks, self.group, self.namespace, queue, messages, self.warn)

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
        begin = "first" if self.is_retry(queue.topic) else self.begin
        return self.client.first_offset(queue, begin), begin if isinstance(begin, int) else None

    def end_of(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that a queue will get."""
        return self.client.bound_of(queue, RequestCode.GET_MAX_OFFSET)


# Requests that brokers send to a push consumer: state, offsets, one message, a reset (ClientRemotingProcessor).

# a callback may take long, and states are asked for meanwhile
_THREADS = 2
# CMResult by the name of a verdict
_RESULTS = {
    "CONSUME_SUCCESS": "CR_SUCCESS",
    "RECONSUME_LATER": "CR_LATER",
    "SUCCESS": "CR_SUCCESS",
    "SUSPEND_CURRENT_QUEUE_A_MOMENT": "CR_LATER",
    "COMMIT": "CR_COMMIT",
    "ROLLBACK": "CR_ROLLBACK",
}


Directly = Callable[[StoredMessage, MessageQueue], tuple[Enum | None, bool]]
"""Calls a callback with one message, and returns its verdict and whether it commits."""


class AskedMember:
    """Answers of one member. Requests are carried out in threads of their own: a connection waits for none of them.

    `consume` is None without a callback, as of RocketMQ's lite pull consumers; `reset` begins a held queue elsewhere.
    """

    def __init__(
        self,
        member: PushMember,
        consume: Directly | None,
        reset: Callable[[MessageQueue, ProcessQueue, int], None],
    ) -> None:
        self._member = member
        self._consume = consume
        self._reset = reset
        self._started = time.time_ns() // 1_000_000
        self._threads = ThreadPoolExecutor(_THREADS, f"asked-{member.group}")

    def answer(self, command: RemotingCommand) -> Future[RemotingCommand] | None:
        """Return the future of the answer; None for a request that is not answered here."""
        services: dict[int, Callable[[RemotingCommand], RemotingCommand]] = {
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._offsets,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._directly,
        }
        service = services.get(command.code)
        return None if service is None else self._threads.submit(self._served, service, command)

    def _served(
        self, service: Callable[[RemotingCommand], RemotingCommand], command: RemotingCommand
    ) -> RemotingCommand:
        try:
            return service(command)
        except (RmqctlError, ValueError) as error:
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=getattr(error, "message", str(error)))

    def close(self) -> None:
        """Answer nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ---- offsets

    def _reset_offsets(self, command: RemotingCommand) -> RemotingCommand:
        """Begin queues of a topic at the offsets in the body: what is held of them is dropped (220)."""
        for queue, offset in offsets_to_set(command, self._member.group).items():
            held = self._member.queues.get(queue)
            if held is not None:
                self._reset(queue, held, offset)
        return RemotingCommand(ResponseCode.SUCCESS)

    def _offsets(self, command: RemotingCommand) -> RemotingCommand:
        """Return how far the member is in a topic (221)."""
        offsets = {queue: self._member.offsets.in_memory(queue) for queue in list(self._member.queues)}
        known = {queue: offset for queue, offset in offsets.items() if offset is not None}
        return status_answer(command, self._member.group, known)

    # ---- state

    def _missing(self, command: RemotingCommand) -> RemotingCommand | None:
        is_own = command.fields.get("consumerGroup") == self._member.group
        return None if is_own else not_a_member(command, self._member.group)

    def _running_info(self, command: RemotingCommand) -> RemotingCommand:
        """Return settings, subscriptions, queues and figures (307)."""
        missing = self._missing(command)
        if missing is not None:
            return missing
        member = self._member
        queues = {queue: self._queue_info(queue, held) for queue, held in list(member.queues.items())}
        statuses = {topic: member.figures.status(topic) for topic in sorted(member.subscriptions)}
        return running_info_answer(command, member.client, self._properties(), queues, statuses, member.announced)

    def _properties(self) -> dict[str, str]:
        member, settings = self._member, self._member.settings
        return {
            "PROP_CONSUMEORDERLY": str(member.is_orderly).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started),
            "PROP_THREADPOOL_CORE_SIZE": str(settings.threads),
            "consumeConcurrentlyMaxSpan": str(settings.concurrent_max_span),
            "consumeMessageBatchMaxSize": str(settings.batch_size),
            "consumeThreadMax": str(settings.threads),
            "consumerGroup": member.group,
            "maxReconsumeTimes": str(settings.max_reconsume_times),
            "messageModel": "BROADCASTING" if member.is_broadcast else "CLUSTERING",
            "namespace": member.namespace,
            "pullBatchSize": str(settings.pull_batch_size),
            "pullThresholdForQueue": str(settings.pull_threshold_for_queue),
            "pullThresholdSizeForQueue": str(settings.pull_threshold_size_for_queue),
        }

    def _queue_info(self, queue: MessageQueue, held: ProcessQueue) -> dict[str, Any]:
        offset = self._member.offsets.in_memory(queue)
        info = held.info() | {"locked": held.is_locked and self._member.is_locking}
        return bean(commitOffset=-1 if offset is None else offset, tryUnlockTimes=0, **info)

    # ---- one message

    def _directly(self, command: RemotingCommand) -> RemotingCommand:
        """Consume the message in the body independent of offsets, and return the verdict (309)."""
        consume, missing = self._consume, self._missing(command)
        if consume is None or missing is not None:
            return missing or not_a_member(command, self._member.group)
        (message,) = messages_of(command.body)
        message = self._member.presented(message)
        queue = MessageQueue(command.fields.get("brokerName", ""), message.queue_id, message.topic)
        began = time.monotonic()
        remark = None
        commits = True
        try:
            status, commits = consume(message, queue)
            result = "CR_RETURN_NULL" if not isinstance(status, Enum) else _RESULTS[status.name]
        except Exception as error:  # noqa: BLE001 - the operator is to see it
            result, remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
        spent = int((time.monotonic() - began) * 1000)
        body = bean(
            autoCommit=commits, consumeResult=result, order=self._member.is_orderly, remark=remark, spentTimeMills=spent
        )
        return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(body))
