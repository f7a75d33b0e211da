"""Pulls of the assigned queues, one at a time for each, held back while too much waits (DefaultMQPushConsumerImpl)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from rmqctl.formats.errors import RemoteError, RmqctlError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.client import BrokerError, texts
from rmqctl.network.clients.frames_of import messages_of
from rmqctl.network.clients.push.member import PushMember
from rmqctl.network.clients.push.process_queue import ProcessQueue
from rmqctl.network.clients.push.tasks import Tasks
from rmqctl.network.clients.routes import PullNodes
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import MessageQueue
from rmqctl.store.read.message_filter import TagFilter

# PullSysFlag: commit the offset of the request, wait for messages, the subscription is in the request
_COMMIT, _SUSPEND, _SUBSCRIPTION = 1, 2, 4
_SUSPEND_MS = 15_000
# a broker that looks at its pulls every 5 s answers up to 20 s later
_LOST_SECONDS = 45.0
_SWEEP_SECONDS = 1.0
_FLOW_CONTROL_SECONDS = 0.05
_BROKER_FLOW_CONTROL_SECONDS = 0.02
_PAUSED_SECONDS = 1.0
_FLOW_CONTROL_CODE = 215


class ConsumeService(Protocol):
    """Consumes what is pulled."""

    def submit(self, messages: Sequence[StoredMessage], held: ProcessQueue, queue: MessageQueue, starts: bool) -> None:
        """Consume messages that were added to `held`; `starts`: no consumer in order runs there."""


@dataclass(eq=False)
class QueuePulls:
    """Pulls of one queue. `not_before`: store time (ms) before which messages are left out until one is as young.
    `slave`: address of the slave that is pulled from, None for a master. `problem`: why the last pull failed, since
    `failing_since`."""

    queue: MessageQueue
    held: ProcessQueue
    next_offset: int
    not_before: int | None
    was_locked: bool = False
    answer: Future[RemotingCommand] | None = None
    slave: str | None = None
    problem: RmqctlError | None = None
    failing_since: float = 0.0


class Pulls:
    """Pulls of one member, in the thread of `tasks`. `on_moved` takes a queue whose offset is outside of its range,
    with the offset to go on from."""

    def __init__(
        self,
        member: PushMember,
        service: ConsumeService,
        tasks: Tasks,
        on_moved: Callable[[MessageQueue, ProcessQueue, int], None],
    ) -> None:
        self._member = member
        self._service = service
        self._tasks = tasks
        self._on_moved = on_moved
        self._filters = {topic: TagFilter(tags) for topic, tags in member.subscriptions.items()}
        self._pulls: dict[MessageQueue, QueuePulls] = {}
        self._nodes = PullNodes()
        self.is_paused = False
        self.held_back = 0
        """Times that a pull was put off because too many messages, bytes or offsets waited."""

    def start(self) -> None:
        """Look for pulls that are never answered from now on."""
        self._tasks.every(_SWEEP_SECONDS, self._sweep)

    def add(self, queue: MessageQueue, held: ProcessQueue, begin: int, not_before: int | None) -> None:
        """Pull a queue from an offset on, after a moment in which its last owner commits."""
        pulls = QueuePulls(queue, held, begin, not_before)
        self._pulls[queue] = pulls
        self._tasks.later(self._member.settings.first_pull_seconds, lambda: self._pull(pulls))

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that was dropped."""
        self._pulls.pop(queue, None)

    def is_consumed(self, queue: MessageQueue, end: int) -> bool:
        """Return whether all messages of an assigned queue before `end` are consumed; True where it is not assigned."""
        pulls = self._pulls.get(queue)
        if pulls is None or pulls.held.is_dropped:
            return True
        # in this order: what is pulled is held before the next offset is set
        if pulls.next_offset < end:
            return False
        low = pulls.held.low
        return low is None or low >= end

    def failing(self) -> list[QueuePulls]:
        """Return the queues whose last pull failed."""
        return [pulls for pulls in list(self._pulls.values()) if pulls.problem is not None]

    # ---- one pull

    def _pull(self, pulls: QueuePulls) -> None:
        if pulls.held.is_dropped:
            return
        pulls.held.pulled_at = time.monotonic()
        try:
            pause = self._pause(pulls)
            if pause is not None:
                self._tasks.later(pause, lambda: self._pull(pulls))
                return
            found = self._nodes.find(pulls.queue, self._member.client.route(pulls.queue.topic))
            # an unknown broker is an error here
            address, is_slave = found or (self._member.address(pulls.queue), False)
            pulls.slave = address if is_slave else None
            answer = self._member.client.connection(address).submit(self._request(pulls))
        except RmqctlError as error:
            self._failed(pulls, error)
            return
        pulls.answer = answer
        answer.add_done_callback(lambda done: self._tasks.soon(lambda: self._answered(pulls, address, done)))

    def _pause(self, pulls: QueuePulls) -> float | None:
        """Return how long a pull has to wait; None if it may start now. RemoteError where the offset is not known."""
        member, held = self._member, pulls.held
        if self.is_paused:
            return _PAUSED_SECONDS
        count, size = member.settings.queue_limits(len(member.queues))
        is_wide = not member.is_orderly and held.span > member.settings.concurrent_max_span
        if held.count > count or held.mebibytes > size or is_wide:
            self.held_back += 1
            return _FLOW_CONTROL_SECONDS
        if member.is_locking:
            if not held.is_locked:
                return member.settings.error_seconds
            if not pulls.was_locked:
                # the last owner may have committed after the queue was assigned
                pulls.next_offset, pulls.not_before = member.start_of(pulls.queue)
                pulls.was_locked = True
        return None

    def _request(self, pulls: QueuePulls) -> RemotingCommand:
        member, queue = self._member, pulls.queue
        offset = 0 if member.is_broadcast or not member.commits else (member.offsets.in_memory(queue) or 0)
        fields = {
            "consumerGroup": member.group, "topic": queue.topic, "queueId": queue.queue_id,
            "queueOffset": pulls.next_offset, "maxMsgNums": member.settings.pull_batch_size,
            "sysFlag": _SUSPEND | _SUBSCRIPTION | (_COMMIT if offset > 0 and pulls.slave is None else 0),
            "commitOffset": offset,
            "subVersion": 0, "suspendTimeoutMillis": _SUSPEND_MS, "expressionType": "TAG",
            "subscription": member.subscriptions[queue.topic], "bname": queue.broker_name,
        }  # fmt: skip
        return RemotingCommand(RequestCode.PULL_MESSAGE, texts(fields))

    def _answered(self, pulls: QueuePulls, address: str, done: Future[RemotingCommand]) -> None:
        if pulls.answer is not done:
            return
        pulls.answer = None
        if pulls.held.is_dropped:
            return
        try:
            self._take(pulls, address, done.result())
        except RmqctlError as error:
            self._failed(pulls, error)

    def _take(self, pulls: QueuePulls, address: str, answer: RemotingCommand) -> None:
        code = answer.code
        if code not in _ANSWERS:
            raise BrokerError.of(address, answer)
        self._nodes.suggested(pulls.queue, answer)
        messages = self._wanted(pulls, messages_of(answer.body)) if code == ResponseCode.SUCCESS else []
        next_offset = int(answer.fields["nextBeginOffset"])
        pulls.problem = None
        if code == ResponseCode.PULL_OFFSET_MOVED:
            self._on_moved(pulls.queue, pulls.held, next_offset)
            return
        if messages:
            took = time.monotonic() - pulls.held.pulled_at
            self._member.figures.pulled(pulls.queue.topic, len(messages), took)
            starts = pulls.held.put(messages)
            pulls.next_offset = next_offset
            self._service.submit(messages, pulls.held, pulls.queue, starts)
        else:
            pulls.next_offset = next_offset
            if not pulls.held.count:
                # what was left out counts as consumed
                self._member.offsets.update(pulls.queue, next_offset, increase_only=True)
        pause = self._member.settings.pull_interval if messages else 0.0
        self._tasks.later(pause, lambda: self._pull(pulls))

    def _wanted(self, pulls: QueuePulls, found: list[StoredMessage]) -> list[StoredMessage]:
        """Return the messages that are subscribed: brokers compare hashes of tags only."""
        if pulls.not_before is not None:
            first = next((n for n, one in enumerate(found) if one.store_timestamp >= pulls.not_before), len(found))
            pulls.not_before = pulls.not_before if first == len(found) else None
            found = found[first:]
        tags = self._filters[pulls.queue.topic]
        return [one for one in found if tags.is_all or tags.matches(one.properties().get("TAGS"))]

    def _failed(self, pulls: QueuePulls, error: RmqctlError) -> None:
        if pulls.slave is not None:
            self._nodes.failed(pulls.queue, pulls.slave)
            if self._nodes.find(pulls.queue, self._member.client.known_route(pulls.queue.topic)) != (pulls.slave, True):
                # the master has the messages, too
                pulls.slave = None
                self._tasks.soon(lambda: self._pull(pulls))
                return
        now = time.monotonic()
        if pulls.problem is None:
            pulls.failing_since = now
        if pulls.problem is None or pulls.problem.message != error.message:
            self._member.warn(f"{pulls.queue.topic} queue {pulls.queue.queue_id} cannot be pulled: {error.message}")
        pulls.problem = error
        is_busy = isinstance(error, BrokerError) and error.answer_code == _FLOW_CONTROL_CODE
        pause = _BROKER_FLOW_CONTROL_SECONDS if is_busy else self._member.settings.error_seconds
        self._tasks.later(pause, lambda: self._pull(pulls))

    def _sweep(self) -> None:
        """Start pulls that are not answered in time once more."""
        now = time.monotonic()
        for pulls in list(self._pulls.values()):
            if pulls.answer is not None and now - pulls.held.pulled_at > _LOST_SECONDS:
                pulls.answer = None
                self._failed(pulls, RemoteError(f"a pull is not answered within {_LOST_SECONDS:g} s"))


_ANSWERS = (
    int(ResponseCode.SUCCESS),
    int(ResponseCode.PULL_NOT_FOUND),
    int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    int(ResponseCode.PULL_OFFSET_MOVED),
)
