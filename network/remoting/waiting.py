"""Answers that wait: until there is news for them, or until they may wait no longer (PullRequestHoldService)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import Suspended

WaitKey = tuple[str, int]
Deliver = Callable[[RemotingCommand], None]


class HeldReply:
    """One answer that waits, and where it goes."""

    def __init__(self, reply: Suspended, deliver: Deliver) -> None:
        self.reply = reply
        self.deliver = deliver
        self.timer: asyncio.TimerHandle | None = None


class Waiting:
    """All answers that wait, by what they wait for. For the thread of the loop alone."""

    def __init__(self, most: int) -> None:
        """`most`: how many may wait at once."""
        self._most = most
        self._held: dict[WaitKey, dict[HeldReply, None]] = {}
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether no more can wait."""
        return self.count >= self._most

    def hold(self, loop: asyncio.AbstractEventLoop, reply: Suspended, deliver: Deliver) -> HeldReply:
        """Let an answer wait; it is delivered in the end, unless it is forgotten before."""
        held = HeldReply(reply, deliver)
        held.timer = loop.call_later(reply.seconds, self._give, held)
        self._held.setdefault(reply.key, {})[held] = None
        self.count += 1
        return held

    def wake(self, keys: Iterable[WaitKey]) -> None:
        """There is something new for whatever waits for one of `keys`."""
        for key in keys:
            for held in list(self._held.get(key, ())):
                if held.reply.is_news():
                    self._give(held)

    def forget(self, held: HeldReply) -> None:
        """Nobody wants the answer any more; nothing happens if it was delivered."""
        those = self._held.get(held.reply.key, {})
        if held not in those:
            return
        del those[held]
        if not those:
            del self._held[held.reply.key]
        self.count -= 1
        if held.timer is not None:
            held.timer.cancel()

    def _give(self, held: HeldReply) -> None:
        self.forget(held)
        held.deliver(held.reply.answer())
