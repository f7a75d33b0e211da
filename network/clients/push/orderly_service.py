"""Consumption in order: one callback at a time for each queue, under a lock (ConsumeMessageOrderlyService)."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Sequence

from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.consume_hooks import ConsumeReturn
from rmqctl.network.clients.push.listeners import OrderlyContext, OrderlyListener, OrderlyStatus
from rmqctl.network.clients.push.member import SUCCESSES, PushMember
from rmqctl.network.clients.push.process_queue import ProcessQueue
from rmqctl.network.clients.push.queue_locks import RELOCK_SECONDS, HeldLocks
from rmqctl.network.clients.push.send_back import SendBack
from rmqctl.network.clients.push.tasks import Tasks
from rmqctl.network.clients.push.workers import CallbackThreads
from rmqctl.network.remoting.fastjson import MessageQueue

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
            self._later(_LOCK_SOON if self.locks.lock(queue) else _NOT_LOCKED_SECONDS, held, queue)

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
                status = self._verdict(messages, context)
            return self._finish(messages, status, context, held)
        finally:
            self._workers.ended(reserved, len(messages))

    def _verdict(self, taken: Sequence[StoredMessage], context: OrderlyContext) -> OrderlyStatus:
        messages = [self._member.presented(one) for one in taken]
        hooks = self._member.begin_hooks(messages, context.queue)
        status, failure = None, ConsumeReturn.RETURNNULL
        began = time.monotonic()
        try:
            status = self._listener(messages, context)
        except Exception as error:  # noqa: BLE001 - every failure of a callback is a retry
            failure = ConsumeReturn.EXCEPTION
            first = taken[0]
            self._member.warn(
                f"{first.topic} queue {first.queue_id} stays at offset {first.queue_offset}: "
                f"{type(error).__name__}: {error}"
            )
        is_verdict = isinstance(status, OrderlyStatus)
        said = status if isinstance(status, OrderlyStatus) else OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        seconds = time.monotonic() - began
        self._member.end_hooks(hooks, said, seconds, None if is_verdict else failure)
        good = len(messages) if said.name in SUCCESSES else 0
        self._member.figures.consumed(context.queue.topic, good, len(messages) - good, seconds)
        return said

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
