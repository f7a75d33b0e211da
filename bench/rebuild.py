"""Making queues and index anew from a sound log, against RocketMQ's load(), start() and dispatch of the same."""

from __future__ import annotations

from collections.abc import Iterator

from bench import child, rocketmq
from bench.measure import Measurement, in_turns, times
from bench.stores import BenchStore


def from_nothing(store: BenchStore, with_rocketmq: bool) -> Iterator[Measurement]:
    """Seconds until queues and index hold every message."""

    def ours() -> float:
        store.reset()
        outcome = child.run("rebuild", store.path)
        if outcome.messages != store.messages:
            raise RuntimeError(f"rebuild found {outcome.messages} of {store.messages} messages")
        return outcome.seconds

    def theirs() -> float:
        store.reset()
        with rocketmq.running() as jvm:
            answer = jvm.rebuild(store.path)
        if answer.messages != store.messages:
            raise RuntimeError(f"RocketMQ dispatched {answer.messages} of {store.messages} messages")
        return answer.seconds

    pair = in_turns(ours, theirs if with_rocketmq else None)
    store.reset()
    yield times(f"rebuild-{store.name}", pair, "load(), start() and dispatch", 5, 10)
