"""Answers that wait end in time, together, and each for itself."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable
from typing import Any, cast

import pytest

from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.requests import Deliver, HeldReply, Suspended, Waiting

_TICK = 0.1
_ANSWER = RemotingCommand(0)


class _Loop:
    """A loop whose time goes as the test says."""

    def __init__(self) -> None:
        self.now = 1000.03
        self.timers: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> None:
        heapq.heappush(self.timers, (when, len(self.timers), callback, args))

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self.call_at(self.now, callback, *args)

    def go_on(self, seconds: float) -> None:
        """Let so much time go by; errors of callbacks are logged by a real loop, and no more."""
        end = self.now + seconds
        while self.timers and self.timers[0][0] <= end:
            when, _, callback, args = heapq.heappop(self.timers)
            self.now = max(self.now, when)
            with contextlib.suppress(ZeroDivisionError):
                callback(*args)
        self.now = end


def _hold(waiting: Waiting, loop: _Loop, reply: Suspended, deliver: Deliver) -> HeldReply:
    return waiting.hold(cast(asyncio.AbstractEventLoop, loop), reply, deliver)


def _suspended(seconds: float, topic: str = "T") -> Suspended:
    return Suspended(seconds, ((topic, 0),), lambda: _ANSWER)


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.1, 14.97, 15.0, 30.0])
def test_an_answer_leaves_not_before_its_time_and_no_tick_later(seconds: float) -> None:
    loop, waiting, left = _Loop(), Waiting(10), list[float]()
    began = loop.now
    _hold(waiting, loop, _suspended(seconds), lambda answer: left.append(loop.now - began))
    loop.go_on(60)
    assert len(left) == 1
    assert seconds <= left[0] + 1e-6 <= seconds + _TICK + 1e-5
    assert waiting.count == 0


def test_a_thousand_that_end_together_take_one_timer_of_the_loop() -> None:
    loop, waiting, left = _Loop(), Waiting(1000), list[RemotingCommand]()
    for number in range(1000):
        _hold(waiting, loop, _suspended(15, f"T{number}"), left.append)
    assert waiting.is_full
    assert len(loop.timers) == 1
    loop.go_on(15.1)
    assert left == [_ANSWER] * 1000
    assert (waiting.count, loop.timers) == (0, [])


def test_what_is_forgotten_or_had_news_is_not_answered_again() -> None:
    loop, waiting, left = _Loop(), Waiting(10), list[str]()
    gone = _hold(waiting, loop, _suspended(5), lambda answer: left.append("gone"))
    _hold(waiting, loop, _suspended(5, "Woken"), lambda answer: left.append("woken"))
    _hold(waiting, loop, _suspended(5), lambda answer: left.append("late"))
    waiting.forget(gone)
    waiting.wake([("Woken", 0)])
    assert left == ["woken"]
    loop.go_on(6)
    assert left == ["woken", "late"]
    assert waiting.count == 0


def test_one_that_fails_keeps_no_other_waiting() -> None:
    loop, waiting, left = _Loop(), Waiting(10), list[str]()

    def fail(answer: RemotingCommand) -> None:
        raise ZeroDivisionError

    _hold(waiting, loop, _suspended(5), lambda answer: left.append("before"))
    _hold(waiting, loop, _suspended(5), fail)
    _hold(waiting, loop, _suspended(5), lambda answer: left.append("behind"))
    loop.go_on(6)
    assert left == ["before", "behind"]
    _hold(waiting, loop, _suspended(1), lambda answer: left.append("later"))
    loop.go_on(2)
    assert left[-1] == "later"
