"""What one client asks, answered: at once, beside the others, when there is news, or when something else is done.

It knows a loop but no socket, so that clients in the same process are served by it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.hand_over import HandOver
from rmqctl.network.remoting.services import Caller, Processor, Promised, Suspended, answered
from rmqctl.network.remoting.waiting import HeldReply, Waiting


class Shared:
    """What all clients of a server share. `slow`: slow requests that wait or run, of which there may be `most_slow`."""

    def __init__(self, processor: Processor[Any], executor: Executor, most_slow: int, most_suspended: int) -> None:
        self.processor = processor
        self.executor = executor
        self.most_slow = most_slow
        self.slow = 0
        self.waiting = Waiting(most_suspended)
        # of what comes at once, such as all messages that one flush has brought to disk
        self.hand_over = HandOver()


class Session:
    """One client's requests. `write` takes what it is answered; nothing is written any more after `close`."""

    def __init__(
        self, shared: Shared, loop: asyncio.AbstractEventLoop, caller: Caller, write: Callable[[RemotingCommand], None]
    ) -> None:
        self._shared = shared
        self._loop = loop
        self._caller = caller
        self._write = write
        self._held: dict[HeldReply, None] = {}
        self._is_closed = False

    def serve(self, request: RemotingCommand) -> None:
        """Answer a request, now or later. In the thread of the loop."""
        shared = self._shared
        if not shared.processor.is_slow(request):
            self._deliver(request, shared.processor.reply(request, self._caller))
        elif shared.slow >= shared.most_slow:
            self._give(answered(request, _busy("too many requests of this kind are waiting")))
        else:
            shared.slow += 1
            future = self._loop.run_in_executor(shared.executor, shared.processor.reply, request, self._caller)
            future.add_done_callback(lambda done: self._deliver_slow(request, done))

    def close(self) -> None:
        """Forget whatever waits."""
        self._is_closed = True
        for held in list(self._held):
            self._shared.waiting.forget(held)
        self._held.clear()

    def _deliver_slow(self, request: RemotingCommand, done: asyncio.Future[Any]) -> None:
        self._shared.slow -= 1
        if not done.cancelled():
            self._deliver(request, done.result())

    def _deliver(self, request: RemotingCommand, reply: RemotingCommand | Suspended | Promised | None) -> None:
        if reply is None or isinstance(reply, RemotingCommand):
            self._give(reply)
        elif isinstance(reply, Promised):
            self._promise(reply)
        elif self._shared.waiting.is_full:
            self._give(answered(request, _busy("too many pulls are waiting for messages")))
        elif not self._is_closed:
            self._suspend(reply)

    def _suspend(self, reply: Suspended) -> None:
        def deliver(answer: RemotingCommand) -> None:
            self._held.pop(held, None)
            self._give(answer)

        held = self._shared.waiting.hold(self._loop, reply, deliver)
        self._held[held] = None

    def _promise(self, reply: Promised) -> None:
        def tell(_: Future[Any]) -> None:
            self._shared.hand_over.call(self._loop, lambda: self._give(reply.answer()))

        if reply.done.done():
            self._give(reply.answer())
        else:
            reply.done.add_done_callback(tell)

    def _give(self, answer: RemotingCommand | None) -> None:
        if answer is not None and not self._is_closed:
            self._write(answer)


def _busy(remark: str) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SYSTEM_BUSY, remark=remark)
