"""Concurrent consumption: several batches at a time, failed messages sent back (ConsumeMessageConcurrentlyService)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.consume_hooks import ConsumeReturn
from rmqctl.network.clients.push.listeners import ConcurrentListener, ConsumeContext, ConsumeStatus
from rmqctl.network.clients.push.member import SUCCESSES, PushMember
from rmqctl.network.clients.push.process_queue import MOST_EXPIRED, ProcessQueue
from rmqctl.network.clients.push.send_back import SendBack
from rmqctl.network.clients.push.tasks import Tasks
from rmqctl.network.clients.push.workers import CallbackThreads
from rmqctl.network.remoting.fastjson import MessageQueue

_EXPIRED_LEVEL = 3


class _Batch(NamedTuple):
    messages: Sequence[StoredMessage]
    held: ProcessQueue
    queue: MessageQueue


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
            status = self._verdict(batch, context)
            if not batch.held.is_dropped:
                self._finish(batch, status, context)
        finally:
            self._workers.ended(allowed, allowed)

    def _verdict(self, batch: _Batch, context: ConsumeContext) -> ConsumeStatus | None:
        batch.held.begin(batch.messages, time.monotonic())
        messages = [self._member.presented(one) for one in batch.messages]
        hooks = self._member.begin_hooks(messages, batch.queue)
        status, failure = None, ConsumeReturn.RETURNNULL
        began = time.monotonic()
        try:
            status = self._listener(messages, context)
        except Exception as error:  # noqa: BLE001 - every failure of a callback is a retry
            failure = ConsumeReturn.EXCEPTION
            first = batch.messages[0]
            self._member.warn(
                f"{first.topic} queue {first.queue_id} offset {first.queue_offset} is consumed again later: "
                f"{type(error).__name__}: {error}"
            )
        is_verdict = isinstance(status, ConsumeStatus)
        said = status if isinstance(status, ConsumeStatus) else ConsumeStatus.RECONSUME_LATER
        seconds = time.monotonic() - began
        self._member.end_hooks(hooks, said, seconds, None if is_verdict else failure)
        good = len(messages) if said.name in SUCCESSES else 0
        self._member.figures.consumed(batch.queue.topic, good, len(messages) - good, seconds)
        return status

    def _finish(self, batch: _Batch, status: ConsumeStatus | None, context: ConsumeContext) -> None:
        done = 0
        if status is ConsumeStatus.CONSUME_SUCCESS:
            done = len(batch.messages) if context.acknowledged is None else max(0, context.acknowledged)
        failed = batch.messages[done:]
        kept: list[StoredMessage] = []
        if self._member.is_broadcast:
            for message in failed:
                self._member.warn(
                    f"{message.topic} queue {message.queue_id} offset {message.queue_offset} is dropped: "
                    "a broadcast has no retries"
                )
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
