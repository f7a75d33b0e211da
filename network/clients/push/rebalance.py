"""The member's share of the queues, as members come and go (RebalanceImpl, RebalancePushImpl)."""

from __future__ import annotations

import time
from collections.abc import Callable

from rmqctl.formats.errors import RmqctlError
from rmqctl.network.clients.push.member import PushMember
from rmqctl.network.clients.push.process_queue import ProcessQueue
from rmqctl.network.clients.push.pulls import Pulls
from rmqctl.network.clients.push.queue_locks import HeldLocks
from rmqctl.network.clients.routes import Route
from rmqctl.network.remoting.codes import RequestCode
from rmqctl.network.remoting.fastjson import MessageQueue, parse_body

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

    def run(self) -> float:
        """Take and give up queues, topic by topic. Return the seconds until the next time."""
        pauses = [self._member.settings.rebalance_seconds]
        problems: set[str] = set()
        for topic in self._member.subscriptions:
            try:
                pauses.append(self._run_topic(topic))
            except Exception as error:  # noqa: BLE001 - a strategy of the caller's that fails is asked again, too
                said = error.message if isinstance(error, RmqctlError) else f"{type(error).__name__}: {error}"
                problems.add(f"queues of {topic} cannot be shared out: {said}")
                pauses.append(_UNBALANCED_SECONDS)
        for line in sorted(problems - self._problems):
            self._member.warn(line)
        self._problems = problems
        return min(pauses)

    def _run_topic(self, topic: str) -> float:
        member = self._member
        route = member.client.route(topic, anew=True)
        if route is None or not route.readable:
            # a retry topic that the broker has just made is routed a little later
            return _UNBALANCED_SECONDS
        share = self._share(route)
        is_changed = self._give_up(topic, share)
        added, is_locked = self._take(share)
        if is_changed or added:
            member.announce()
        working = {queue for queue, held in member.queues.items() if queue.topic == topic and not held.is_dropped}
        if not is_locked:
            return _NOT_LOCKED_SECONDS
        return member.settings.rebalance_seconds if working == share else _UNBALANCED_SECONDS

    def _share(self, route: Route) -> set[MessageQueue]:
        """Return the queues of a topic that are for this member."""
        member = self._member
        if member.is_broadcast:
            return set(route.readable)
        fields = {"consumerGroup": member.group}
        answer = member.client.ask(next(iter(route.addresses.values())), RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        members = sorted(str(one) for one in parse_body(answer.body).get("consumerIdList", []))
        return set(member.allocate(sorted(route.readable), members, member.client.client_id))

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

    def _take(self, share: set[MessageQueue]) -> tuple[int, bool]:
        """Take queues that are new. Return how many were taken, and whether all could be locked."""
        member = self._member
        added, is_locked = 0, True
        for queue in sorted(share - member.queues.keys()):
            if self._locks is not None and not self._locks.lock(queue):
                is_locked = False
                continue
            member.offsets.forget(queue)
            held = ProcessQueue()
            held.is_locked = True
            begin, not_before = member.start_of(queue)
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
