"""Pulls of the assigned queues, one at a time for each, held back while too much waits (DefaultMQPushConsumerImpl)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from rmqctl.formats.errors import RemoteError, RmqctlError, UsageError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.channel import messages_of
from rmqctl.network.clients.client import (
    PULL_LOST_SECONDS,
    BrokerError,
    PullNodes,
    Route,
    pull_answer,
    pull_request,
    young_enough,
)
from rmqctl.network.clients.membership import CLUSTERING, STRATEGY_NAMES, share_of
from rmqctl.network.clients.push.consume_services import HeldLocks
from rmqctl.network.clients.push.member import PushMember
from rmqctl.network.clients.push.process_queue import ProcessQueue, Tasks
from rmqctl.network.remoting.codec import (
    MessageQueue,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    bean,
    fastjson,
    integer_of,
    objects,
    parse_body,
    text_of,
)
from rmqctl.store.read.filter import client_filter

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


def is_busy(error: RmqctlError) -> bool:
    """Return whether a broker has too much to do for a pull."""
    return isinstance(error, BrokerError) and error.answer_code == _FLOW_CONTROL_CODE


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
        self._filters = {topic: client_filter(tags) for topic, tags in member.subscriptions.items()}
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

    def passed(self, queue: MessageQueue, held: ProcessQueue) -> int:
        """Return the offset up to which nothing waits of a queue, what was left out included; -1 where messages do."""
        pulls = self._pulls.get(queue)
        offset = -1 if pulls is None else pulls.next_offset
        # in this order: what is pulled is held before the next offset is set
        return -1 if held.count else offset

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
            address, is_slave = found or (self._member.client.address_of(pulls.queue), False)
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
        return pull_request(
            member.group, queue, pulls.next_offset, member.settings.pull_batch_size, member.subscriptions[queue.topic],
            commit=offset, at_slave=pulls.slave is not None,
        )  # fmt: skip

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
        code = pull_answer(address, answer).code
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
        if pause:
            self._tasks.later(pause, lambda: self._pull(pulls))
        else:
            self._pull(pulls)

    def _wanted(self, pulls: QueuePulls, found: list[StoredMessage]) -> list[StoredMessage]:
        """Return the messages that are subscribed: brokers compare hashes of tags only."""
        if pulls.not_before is not None:
            found = young_enough(found, pulls.not_before)
            pulls.not_before = None if found else pulls.not_before
        tags = self._filters[pulls.queue.topic]
        return found if tags.is_all else [one for one in found if tags.matches_properties(one.properties())]

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
        # of queues that fail for one reason the first is named
        if all(one.problem is None or one.problem.message != error.message for one in self._pulls.values()):
            self._member.warn(f"{pulls.queue.topic} queue {pulls.queue.queue_id} cannot be pulled: {error.message}")
        pulls.problem = error
        pause = _BROKER_FLOW_CONTROL_SECONDS if is_busy(error) else self._member.settings.error_seconds
        self._tasks.later(pause, lambda: self._pull(pulls))

    def _sweep(self) -> None:
        """Start pulls that are not answered in time once more."""
        now = time.monotonic()
        for pulls in list(self._pulls.values()):
            if pulls.answer is not None and now - pulls.held.pulled_at > PULL_LOST_SECONDS:
                pulls.answer = None
                self._failed(pulls, RemoteError(f"a pull is not answered within {PULL_LOST_SECONDS:g} s"))


# The member's share of the queues, as members come and go (RebalanceImpl, RebalancePushImpl).

_POP = "POP"
_UNBALANCED_SECONDS = 1.0
_NOT_LOCKED_SECONDS = 0.5
# a callback in order is waited for so long at a time, and in all since the lock was renewed last
_CALLBACK_SECONDS, _FORCED_UNLOCK_SECONDS = 0.5, 20.0


class Rebalance:
    """Assigns queues to one member. For one thread."""

    def __init__(self, member: PushMember, pulls: Pulls, locks: HeldLocks | None) -> None:
        """`locks`: None where queues are not locked."""
        self._member = member
        self._pulls = pulls
        self._locks = locks
        self._problems: set[str] = set()
        self._unshared: set[str] = set()
        self.incomplete_since: float | None = time.monotonic()
        """Since when topics, but retry topics, are not shared out; None where all are."""
        self.unusable: UsageError | None = None
        """Reason why the strategy never has a share for this member."""

    @property
    def problem(self) -> RemoteError:
        """Why topics are not shared out."""
        said = sorted(self._problems) or [f"queues of {one} cannot be shared out" for one in sorted(self._unshared)]
        return RemoteError("; ".join(said))

    def run(self) -> float:
        """Take and give up queues, topic by topic. Return the seconds until the next time."""
        pauses = [self._member.settings.rebalance_seconds]
        problems: set[str] = set()
        self._unshared = {topic for topic in self._member.subscriptions if not self._member.is_retry(topic)}
        for topic in self._member.subscriptions:
            try:
                pauses.append(self._run_topic(topic, problems))
            except Exception as error:  # noqa: BLE001 - a strategy of the caller's that fails is asked again, too
                said = error.message if isinstance(error, RmqctlError) else f"{type(error).__name__}: {error}"
                problems.add(f"queues of {topic} cannot be shared out: {said}")
                self.unusable = error if isinstance(error, UsageError) else None
                pauses.append(_UNBALANCED_SECONDS)
        for line in sorted(problems - self._problems):
            self._member.warn(line)
        self._problems = problems
        self.incomplete_since = (self.incomplete_since or time.monotonic()) if self._unshared else None
        return min(pauses)

    def _run_topic(self, topic: str, problems: set[str]) -> float:
        member = self._member
        route = member.client.route(topic, anew=True)
        if route is None or not route.readable:
            # a retry topic that the broker has just made is routed a little later
            return _UNBALANCED_SECONDS
        share = self._share(route) if member.client_rebalance else self._assigned(topic, route)
        if share is None:
            return _UNBALANCED_SECONDS
        is_changed = self._give_up(topic, share)
        added, is_locked = self._take(share, problems)
        if is_changed or added:
            member.announce()
        working = {queue for queue, held in member.queues.items() if queue.topic == topic and not held.is_dropped}
        if is_locked and working == share:
            self._unshared.discard(topic)
        if not is_locked:
            return _NOT_LOCKED_SECONDS
        return member.settings.rebalance_seconds if working == share else _UNBALANCED_SECONDS

    def _share(self, route: Route) -> set[MessageQueue]:
        """Return the queues of a topic that are for this member."""
        member = self._member
        if member.is_broadcast:
            return set(route.readable)
        return set(share_of(member.client, route, member.group, member.allocate))

    def _assigned(self, topic: str, route: Route) -> set[MessageQueue] | None:
        """Return the queues of a topic that a broker assigns to this member; None where it does not know."""
        member = self._member
        wanted = bean(
            clientId=member.client.client_id,
            consumerGroup=member.group,
            messageModel=CLUSTERING,
            strategyName=STRATEGY_NAMES[member.allocate],
            topic=topic,
        )
        address = random.choice(sorted(route.addresses.values()))
        answer = parse_body(member.client.ask(address, RequestCode.QUERY_ASSIGNMENT, body=fastjson(wanted)).body)
        if answer.get("messageQueueAssignments") is None:
            return None
        found: set[MessageQueue] = set()
        for one in objects(answer["messageQueueAssignments"]):
            if text_of(one, "mode") == _POP:
                raise RemoteError(f"{address} assigns queues by POP, which is not supported here")
            queue = one.get("messageQueue")
            if isinstance(queue, dict):
                name, number = text_of(queue, "brokerName"), integer_of(queue, "queueId")
                found.add(MessageQueue(name, number, text_of(queue, "topic")))
        return found

    def _give_up(self, topic: str, share: set[MessageQueue]) -> bool:
        """Give up queues that belong to others by now, or stand still. Return whether there were any."""
        is_changed = False
        now = time.monotonic()
        for queue, held in list(self._member.queues.items()):
            if queue.topic == topic and (queue not in share or held.is_dropped or held.is_pull_expired(now)):
                held.is_dropped = True
                is_changed = self.remove(queue, held) or is_changed
        return is_changed

    def remove(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """Commit and forget a dropped queue. Return False where a callback in order still has it, and its lock."""
        member = self._member
        member.offsets.persist([queue])
        if self._locks is not None:
            is_forced = time.monotonic() - held.locked_at > _FORCED_UNLOCK_SECONDS
            is_free = held.consuming.acquire(timeout=0 if is_forced else _CALLBACK_SECONDS)
            if not is_free and not is_forced:
                return False
            try:
                member.offsets.persist([queue])
                held.is_locked = False
                self._locks.unlock([queue])
            finally:
                if is_free:
                    held.consuming.release()
        member.offsets.forget(queue)
        self._pulls.remove(queue)
        member.queues.pop(queue, None)
        return True

    def _take(self, share: set[MessageQueue], problems: set[str]) -> tuple[int, bool]:
        """Take queues that are new. Return how many were taken, and whether all could be locked. Those of a broker that
        is away are left for the next time, and added to `problems`."""
        member = self._member
        added, is_locked = 0, True
        away: set[str] = set()
        for queue in sorted(share - member.queues.keys()):
            if queue.broker_name in away:
                continue
            try:
                if self._locks is not None and not self._locks.lock(queue):
                    is_locked = False
                    continue
                member.offsets.forget(queue)
                held = ProcessQueue()
                held.is_locked = True
                begin, not_before = member.start_of(queue)
            except RmqctlError as error:
                away.add(queue.broker_name)
                problems.add(f"queues of {queue.topic} cannot be shared out: {error.message}")
                continue
            member.queues[queue] = held
            self._pulls.add(queue, held, begin, not_before)
            added += 1
        return added, is_locked

    def moved(self, queue: MessageQueue, held: ProcessQueue, again: Callable[[], object]) -> None:
        """Commit the frozen offset of a dropped queue, and share out `again`."""
        member = self._member
        if member.queues.get(queue) is not held:
            return
        member.offsets.persist([queue])
        self.remove(queue, held)
        again()
