"""Locks of queues at their brokers: one member of a group at a time consumes a queue in order."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection

from rmqctl.formats.errors import RemoteError
from rmqctl.network.clients.push.member import PushMember
from rmqctl.network.remoting.codes import RequestCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import MessageQueue, bean, fastjson, integer_of, objects, parse_body, text_of

RELOCK_SECONDS = 20.0
"""Time after which all locks are renewed: brokers keep them for 60 s."""
_SECONDS = 1.0


class HeldLocks:
    """Locks of one member (LOCK_BATCH_MQ, UNLOCK_BATCH_MQ)."""

    def __init__(self, member: PushMember) -> None:
        self._member = member

    def lock(self, queue: MessageQueue) -> bool:
        """Lock a queue, or renew its lock. Return False where another member has it or the broker does not answer."""
        try:
            locked = self._ask(self._member.address(queue), [queue])
        except RemoteError as error:
            self._member.warn(f"{queue.topic} queue {queue.queue_id} cannot be locked: {error.message}")
            return False
        self._note([queue], locked)
        return queue in locked

    def renew(self) -> None:
        """Renew the locks of all queues; what another member has by now is not consumed any more."""
        by_address: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue, held in list(self._member.queues.items()):
            if not held.is_dropped:
                try:
                    by_address[self._member.address(queue)].append(queue)
                except RemoteError as error:
                    self._member.warn(
                        f"the lock of {queue.topic} queue {queue.queue_id} is not renewed: {error.message}"
                    )
        for address, queues in by_address.items():
            try:
                self._note(queues, self._ask(address, queues))
            except RemoteError as error:
                self._member.warn(f"{address}: locks are not renewed: {error.message}")

    def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Give up the locks of queues. Those of a broker that does not answer expire after 60 s."""
        for queue in queues:
            try:
                connection = self._member.client.connection(self._member.address(queue))
                connection.oneway(RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, {}, self._body([queue])))
            except RemoteError as error:
                self._member.warn(f"{queue.topic} queue {queue.queue_id} cannot be unlocked: {error.message}")

    def _note(self, asked: Collection[MessageQueue], locked: Collection[MessageQueue]) -> None:
        for queue in asked:
            held = self._member.queues.get(queue)
            if held is not None:
                held.is_locked = queue in locked
                held.locked_at = time.monotonic() if held.is_locked else held.locked_at

    def _ask(self, address: str, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        answer = self._member.client.ask(address, RequestCode.LOCK_BATCH_MQ, body=self._body(queues), seconds=_SECONDS)
        beans = objects(parse_body(answer.body).get("lockOKMQSet"))
        return {
            MessageQueue(text_of(one, "brokerName"), integer_of(one, "queueId", -1), text_of(one, "topic"))
            for one in beans
        }

    def _body(self, queues: Collection[MessageQueue]) -> bytes:
        member = self._member
        return fastjson(bean(clientId=member.client.client_id, consumerGroup=member.group, mqSet=sorted(queues)))
