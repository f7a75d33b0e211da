"""Answers that wait: until there is news for them, or until they may wait no longer (PullRequestHoldService)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable

from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import Suspended

WaitKey = tuple[str, int]
Deliver = Callable[[RemotingCommand], None]


# answers whose time ends within one of these go together: a timer of the loop's for each would cost as much as the
# rest of a pull that finds nothing, and no client counts on less (the real broker looks every five seconds)
_TICK_SECONDS = 0.1


class HeldReply:
    """One answer that waits, where it goes, and the tick at which it may wait no longer."""

    __slots__ = ("deliver", "reply", "tick")

    def __init__(self, reply: Suspended, deliver: Deliver, tick: int) -> None:
        self.reply = reply
        self.deliver = deliver
        self.tick = tick


class Waiting:
    """All answers that wait, by what they wait for. For the thread of the loop alone."""

    def __init__(self, most: int) -> None:
        """`most`: how many may wait at once."""
        self._most = most
        self._held: dict[WaitKey, dict[HeldReply, None]] = {}
        self._ending: dict[int, dict[HeldReply, None]] = {}
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether no more can wait."""
        return self.count >= self._most

    def hold(self, loop: asyncio.AbstractEventLoop, reply: Suspended, deliver: Deliver) -> HeldReply:
        """Let an answer wait; it is delivered in the end, unless it is forgotten before. It is always the same loop."""
        tick = math.ceil((loop.time() + reply.seconds) / _TICK_SECONDS)
        held = HeldReply(reply, deliver, tick)
        ending = self._ending.get(tick)
        if ending is None:
            ending = self._ending[tick] = {}
            loop.call_at(tick * _TICK_SECONDS, self._end, loop, tick)
        ending[held] = None
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
        # its tick comes, whether anything ends there or not
        self._ending[held.tick].pop(held, None)

    def _end(self, loop: asyncio.AbstractEventLoop, tick: int) -> None:
        ending = self._ending[tick]
        try:
            while ending:
                self._give(next(iter(ending)))
        finally:
            # whatever went wrong with one, the others end
            if ending:
                loop.call_soon(self._end, loop, tick)
            else:
                del self._ending[tick]

    def _give(self, held: HeldReply) -> None:
        self.forget(held)
        held.deliver(held.reply.answer())
