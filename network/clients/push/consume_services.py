"""Concurrent consumption: several batches at a time, failed messages sent back (ConsumeMessageConcurrentlyService)."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

from rmqctl.formats import properties as names
from rmqctl.formats.errors import RemoteError, RmqctlError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.channel import Dial
from rmqctl.network.clients.hooks import ConsumeReturn
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.producing.settings import ProducerSettings
from rmqctl.network.clients.push.member import SUCCESSES, PushMember
from rmqctl.network.clients.push.process_queue import MOST_EXPIRED, CallbackThreads, ProcessQueue, Tasks
from rmqctl.network.clients.push.settings import (
    ConcurrentListener,
    ConsumeContext,
    ConsumeStatus,
    OrderlyContext,
    OrderlyListener,
    OrderlyStatus,
)
from rmqctl.network.remoting.codec import (
    MessageQueue,
    RequestCode,
    bean,
    fastjson,
    integer_of,
    objects,
    parse_body,
    text_of,
)
from rmqctl.network.remoting.headers import SendMsgBack, request
from rmqctl.network.topic_config import MAX_RECONSUME_TIMES, RECONSUME_TIME, retry_topic
from rmqctl.store.answers.dead_letters import ORIGIN_ID, ORIGIN_TOPIC

# Failed messages on their way to the group's retry topic, or to its dead letters.

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
        header = SendMsgBack(
            offset=message.physical_offset, group=member.group, delay_level=level,
            origin_msg_id=given.get(names.UNIQUE_KEY, message.message_id), origin_topic=message.topic,
            broker_name=queue.broker_name,
            max_reconsume_times=member.settings.max_retries(is_orderly=member.is_orderly),
        )  # fmt: skip
        try:
            address = member.client.address_of(queue)
            member.client.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, seconds=_SECONDS)
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
                member = self._member
                instance = member.client.client_id.split("@")[1]
                settings = ProducerSettings(
                    instance_name=instance, unit_name=member.unit_name, unit_mode=member.unit_mode
                )
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


_EXPIRED_LEVEL = 3


class _Batch(NamedTuple):
    messages: Sequence[StoredMessage]
    held: ProcessQueue
    queue: MessageQueue


_Context = TypeVar("_Context", ConsumeContext, OrderlyContext)
_Status = TypeVar("_Status", ConsumeStatus, OrderlyStatus)


def _verdict(
    member: PushMember,
    listener: Callable[[Sequence[StoredMessage], _Context], _Status | None],
    taken: Sequence[StoredMessage],
    context: _Context,
    otherwise: _Status,
    outcome: str,
) -> _Status:
    """Have the callback consume messages. Return its verdict: `otherwise`, whose `outcome` a warning says, where it
    fails or has none."""
    messages = [member.presented(one) for one in taken]
    hooks = member.begin_hooks(messages, context.queue)
    status, failure = None, ConsumeReturn.RETURNNULL
    began = time.monotonic()
    try:
        status = listener(messages, context)
    except Exception as error:  # noqa: BLE001 - every failure of a callback is a retry
        failure = ConsumeReturn.EXCEPTION
        member.warn(f"{outcome}: {type(error).__name__}: {error}")
    is_verdict = isinstance(status, type(otherwise))
    said = status if isinstance(status, type(otherwise)) else otherwise
    seconds = time.monotonic() - began
    member.end_hooks(hooks, said, seconds, None if is_verdict else failure)
    good = len(messages) if said.name in SUCCESSES else 0
    member.figures.consumed(context.queue.topic, good, len(messages) - good, seconds)
    return said


class ConcurrentService:
    """Hands batches to the callback and carries out its verdicts."""

    def __init__(
        self,
        member: PushMember,
        listener: ConcurrentListener,
        workers: CallbackThreads,
        send_back: SendBack,
        tasks: Tasks,
    ) -> None:
        self._member = member
        self._listener = listener
        self._workers = workers
        self._send_back = send_back
        self._tasks = tasks

    def consume_directly(self, message: StoredMessage, queue: MessageQueue) -> tuple[ConsumeStatus | None, bool]:
        """Have the callback consume a message that does not count. Return its verdict."""
        return self._listener([message], ConsumeContext(queue)), True

    def start(self) -> None:
        """Send expired messages back from now on."""
        self._tasks.every(self._member.settings.consume_timeout, self.clean)

    def submit(self, messages: Sequence[StoredMessage], held: ProcessQueue, queue: MessageQueue, starts: bool) -> None:
        """Consume pulled messages in batches."""
        size = self._member.settings.batch_size
        for first in range(0, len(messages), size):
            self._submit(_Batch(messages[first : first + size], held, queue))

    def _submit(self, batch: _Batch) -> None:
        self._workers.submit(lambda: self._consume(batch))

    def _consume(self, batch: _Batch) -> None:
        if batch.held.is_dropped:
            return
        allowed = self._workers.reserve(len(batch.messages))
        if not allowed:
            return
        batch = batch._replace(messages=batch.messages[:allowed])
        try:
            context = ConsumeContext(batch.queue)
            batch.held.begin(batch.messages, time.monotonic())
            outcome = f"{_named(batch.messages[0])} is consumed again later"
            later = ConsumeStatus.RECONSUME_LATER
            status = _verdict(self._member, self._listener, batch.messages, context, later, outcome)
            if not batch.held.is_dropped:
                self._finish(batch, status, context)
        finally:
            self._workers.ended(allowed, allowed)

    def _finish(self, batch: _Batch, status: ConsumeStatus, context: ConsumeContext) -> None:
        done = 0
        if status is ConsumeStatus.CONSUME_SUCCESS:
            done = len(batch.messages) if context.acknowledged is None else max(0, context.acknowledged)
        failed = batch.messages[done:]
        kept: list[StoredMessage] = []
        if self._member.is_broadcast:
            for message in failed:
                self._member.warn(f"{_named(message)} is dropped: a broadcast has no retries")
        else:
            kept = [one for one in failed if batch.held.holds(one) and not self._sent_back(one, batch.queue, context)]
        if kept:
            self._again(_Batch([one._replace(reconsume_times=one.reconsume_times + 1) for one in kept], *batch[1:]))
        offsets = {one.queue_offset for one in kept}
        offset = batch.held.remove([one for one in batch.messages if one.queue_offset not in offsets])
        self._member.commit(batch.queue, batch.held, offset)

    def _sent_back(self, message: StoredMessage, queue: MessageQueue, context: ConsumeContext) -> bool:
        return self._send_back.send(self._member.original(message), queue, context.delay_level)

    def _again(self, batch: _Batch) -> None:
        """Consume messages once more here, since no broker took them back."""
        for message in batch.messages:
            batch.held.replace(message)
        self._tasks.later(
            self._member.settings.retry_seconds, lambda: self.submit(batch.messages, batch.held, batch.queue, True)
        )

    def clean(self) -> None:
        """Send the first messages of each queue back whose callback has run for too long (cleanExpiredMsg)."""
        seconds = self._member.settings.consume_timeout
        for queue, held in list(self._member.queues.items()):
            for _ in range(MOST_EXPIRED):
                message = held.expired(time.monotonic(), seconds)
                if message is None:
                    break
                if self._member.is_broadcast:
                    self._member.warn(
                        f"{queue.topic} queue {queue.queue_id}: a callback has run for over {seconds:g} s"
                    )
                    break
                if not self._send_back.send(self._member.original(message), queue, _EXPIRED_LEVEL):
                    break
                self._member.commit(queue, held, held.remove_expired(message))


# Locks of queues at their brokers: one member of a group at a time consumes a queue in order.

RELOCK_SECONDS = 20.0
"""Time after which all locks are renewed: brokers keep them for 60 s."""
_QUEUE_LOCKS_SECONDS = 1.0


class HeldLocks:
    """Locks of one member (LOCK_BATCH_MQ, UNLOCK_BATCH_MQ)."""

    def __init__(self, member: PushMember) -> None:
        self._member = member

    def lock(self, queue: MessageQueue) -> bool:
        """Lock a queue, or renew its lock. Return False where another member has it. RemoteError."""
        try:
            locked = self._ask(self._member.client.address_of(queue), [queue])
        except RemoteError as error:
            raise RemoteError(f"{queue.topic} queue {queue.queue_id} cannot be locked: {error.message}") from error
        self._note([queue], locked)
        return queue in locked

    def renew(self) -> None:
        """Renew the locks of all queues; what another member has by now is not consumed any more."""
        by_address: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue, held in list(self._member.queues.items()):
            if not held.is_dropped:
                try:
                    by_address[self._member.client.address_of(queue)].append(queue)
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
                connection = self._member.client.connection(self._member.client.address_of(queue))
                connection.oneway(request(RequestCode.UNLOCK_BATCH_MQ, body=self._body([queue])))
            except RemoteError as error:
                self._member.warn(f"{queue.topic} queue {queue.queue_id} cannot be unlocked: {error.message}")

    def _note(self, asked: Collection[MessageQueue], locked: Collection[MessageQueue]) -> None:
        for queue in asked:
            held = self._member.queues.get(queue)
            if held is not None:
                held.is_locked = queue in locked
                held.locked_at = time.monotonic() if held.is_locked else held.locked_at

    def _ask(self, address: str, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        answer = self._member.client.ask(
            address, RequestCode.LOCK_BATCH_MQ, body=self._body(queues), seconds=_QUEUE_LOCKS_SECONDS
        )
        beans = objects(parse_body(answer.body).get("lockOKMQSet"))
        return {
            MessageQueue(text_of(one, "brokerName"), integer_of(one, "queueId", -1), text_of(one, "topic"))
            for one in beans
        }

    def _body(self, queues: Collection[MessageQueue]) -> bytes:
        member = self._member
        return fastjson(bean(clientId=member.client.client_id, consumerGroup=member.group, mqSet=sorted(queues)))


# Consumption in order: one callback at a time for each queue, under a lock (ConsumeMessageOrderlyService).

_FIRST_RELOCK_SECONDS = 1.0
# MAX_TIME_CONSUME_CONTINUOUSLY: another queue gets the thread then
_LONGEST_RUN_SECONDS = 60.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 30.0
_LOCK_SOON, _LOCK_LATER = 0.01, 0.1
_NOT_LOCKED_SECONDS = 3.0


class OrderlyService:
    """Hands the messages of each queue to the callback in order, and carries out its verdicts."""

    def __init__(
        self, member: PushMember, listener: OrderlyListener, workers: CallbackThreads, send_back: SendBack, tasks: Tasks
    ) -> None:
        self._member = member
        self._listener = listener
        self._workers = workers
        self._send_back = send_back
        self._tasks = tasks
        self.locks = HeldLocks(member)
        self._guard = threading.Lock()
        # a queue that is assigned once more has messages of a new kind, and may have a callback of the old one
        self._one_at_a_time: dict[MessageQueue, threading.Lock] = defaultdict(threading.Lock)

    def consume_directly(self, message: StoredMessage, queue: MessageQueue) -> tuple[OrderlyStatus | None, bool]:
        """Have the callback consume a message that does not count. Return its verdict, and whether it commits."""
        context = OrderlyContext(queue)
        return self._listener([message], context), context.auto_commit

    def start(self) -> None:
        """Renew the locks from now on."""
        if self._member.is_locking:
            self._tasks.every(RELOCK_SECONDS, self.locks.renew, first=_FIRST_RELOCK_SECONDS)

    def submit(self, messages: Sequence[StoredMessage], held: ProcessQueue, queue: MessageQueue, starts: bool) -> None:
        """Consume a queue that got messages, unless that is going on."""
        if starts:
            self._workers.submit(lambda: self._run(held, queue))

    def _later(self, seconds: float, held: ProcessQueue, queue: MessageQueue) -> None:
        pause = min(max(seconds, _SHORTEST_PAUSE), _LONGEST_PAUSE)
        self._tasks.later(pause, lambda: self.submit((), held, queue, True))

    def _lock_first(self, seconds: float, held: ProcessQueue, queue: MessageQueue) -> None:
        def lock() -> None:
            try:
                is_locked = self.locks.lock(queue)
            except RemoteError as error:
                self._member.warn(error.message)
                is_locked = False
            self._later(_LOCK_SOON if is_locked else _NOT_LOCKED_SECONDS, held, queue)

        self._tasks.later(seconds, lock)

    def _may_consume(self, held: ProcessQueue) -> bool:
        return not self._member.is_locking or held.has_valid_lock(time.monotonic())

    def _run(self, held: ProcessQueue, queue: MessageQueue) -> None:
        with self._guard:
            one_at_a_time = self._one_at_a_time[queue]
        with one_at_a_time:
            until = time.monotonic() + _LONGEST_RUN_SECONDS
            pause = _LOCK_LATER
            while not held.is_dropped and not self._workers.is_closed:
                if not self._may_consume(held):
                    self._lock_first(pause, held, queue)
                    return
                pause = _LOCK_SOON
                if time.monotonic() > until:
                    self._later(0, held, queue)
                    return
                if not self._consume_some(held, queue):
                    return

    def _consume_some(self, held: ProcessQueue, queue: MessageQueue) -> bool:
        """Consume the next batch. Return whether to go on with the one after it."""
        size = self._member.settings.batch_size
        reserved = self._workers.reserve(size)
        if not reserved:
            # another queue has the last ones of the limit, and may not use them
            self._later(_LOCK_LATER, held, queue)
            return False
        messages: list[StoredMessage] = []
        try:
            with held.consuming:
                if held.is_dropped:
                    return False
                messages = held.take(reserved)
                if not messages:
                    return False
                context = OrderlyContext(queue)
                stays = OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                first = messages[0]
                outcome = f"{first.topic} queue {first.queue_id} stays at offset {first.queue_offset}"
                status = _verdict(self._member, self._listener, messages, context, stays, outcome)
            return self._finish(messages, status, context, held)
        finally:
            self._workers.ended(reserved, len(messages))

    def _finish(
        self, messages: list[StoredMessage], status: OrderlyStatus, context: OrderlyContext, held: ProcessQueue
    ) -> bool:
        given = context.suspend_seconds
        pause = self._member.settings.suspend_seconds if given is None else given
        if status is OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
            again = self._tried_again(messages)
            if again is not None:
                held.put_back(again)
                self._later(pause, held, context.queue)
                return False
            if not context.auto_commit:
                return True
        elif not context.auto_commit:
            if status is OrderlyStatus.ROLLBACK:
                held.put_back()
                self._later(pause, held, context.queue)
                return False
            if status is OrderlyStatus.SUCCESS:
                return True
        self._member.commit(context.queue, held, held.commit())
        return True

    def _tried_again(self, messages: list[StoredMessage]) -> list[StoredMessage] | None:
        """Return failed messages with one attempt more, None where each has had its last one and is a dead letter."""
        most = self._member.settings.max_retries(is_orderly=True)
        suspends = False
        again: list[StoredMessage] = []
        for message in messages:
            is_over = message.reconsume_times >= most and self._send_back.send_as_message(
                self._member.original(message)
            )
            suspends = suspends or not is_over
            again.append(message if is_over else message._replace(reconsume_times=message.reconsume_times + 1))
        return again if suspends else None
