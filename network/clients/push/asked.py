"""Requests that brokers send to a push consumer: state, offsets, one message, a reset (ClientRemotingProcessor)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Any

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.frames_of import messages_of
from rmqctl.network.clients.membership import not_a_member, offsets_to_set, running_info_answer, status_answer
from rmqctl.network.clients.push.member import PushMember
from rmqctl.network.clients.push.process_queue import ProcessQueue
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import MessageQueue, bean, fastjson

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


class AskedMember:
    """Answers of one member. Requests are carried out in threads of their own: a connection waits for none of them.

    `consume` calls the callback with one message; `reset` begins a held queue elsewhere.
    """

    def __init__(
        self,
        member: PushMember,
        consume: Callable[[StoredMessage, MessageQueue], tuple[Enum | None, bool]],
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
        """Consume the message in the body whatever the offsets are, and return the verdict (309)."""
        missing = self._missing(command)
        if missing is not None:
            return missing
        (message,) = messages_of(command.body)
        message = self._member.presented(message)
        queue = MessageQueue(command.fields.get("brokerName", ""), message.queue_id, message.topic)
        began = time.monotonic()
        remark = None
        commits = True
        try:
            status, commits = self._consume(message, queue)
            result = "CR_RETURN_NULL" if not isinstance(status, Enum) else _RESULTS[status.name]
        except Exception as error:  # noqa: BLE001 - the operator is to see it
            result, remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
        spent = int((time.monotonic() - began) * 1000)
        body = bean(
            autoCommit=commits, consumeResult=result, order=self._member.is_orderly, remark=remark, spentTimeMills=spent
        )
        return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(body))
