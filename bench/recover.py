"""Recovering the whole log after a crash without a checkpoint, against RocketMQ's load() of the same store."""

from __future__ import annotations

from collections.abc import Iterator

from bench import child, rocketmq
from bench.measure import Measurement, in_turns, times
from bench.stores import BenchStore


def after_a_crash(store: BenchStore, with_rocketmq: bool) -> Iterator[Measurement]:
    """Seconds. Neither side has queues, an index or a checkpoint to start from, and both have made them in the end."""

    def ours() -> float:
        store.reset(crashed=True)
        outcome = child.run("recover", store.path)
        if outcome.messages != store.messages:
            raise RuntimeError(f"recover found {outcome.messages} of {store.messages} messages")
        return outcome.seconds

    def theirs() -> float:
        store.reset(crashed=True)
        with rocketmq.running() as jvm:
            answer = jvm.load(store.path)
        if answer.messages != store.messages:
            raise RuntimeError(f"RocketMQ recovered {answer.messages} of {store.messages} messages")
        return answer.seconds

    pair = in_turns(ours, theirs if with_rocketmq else None)
    store.reset()
    yield times(f"recover-{store.name}", pair, "load() after a crash", 5, 10)
