"""Queues and index made anew from the whole log, of a sound store and after a crash, against RocketMQ doing so."""

from __future__ import annotations

from collections.abc import Iterator

from bench import child, rocketmq
from bench.measure import Measurement, in_turns, times
from bench.stores import BenchStore


def rebuilt(store: BenchStore, with_rocketmq: bool) -> Iterator[Measurement]:
    """Seconds until queues and index hold every message; RocketMQ's load(), start() and dispatch."""
    yield _timed(store, "rebuild", "load(), start() and dispatch", with_rocketmq)


def recovered(store: BenchStore, with_rocketmq: bool) -> Iterator[Measurement]:
    """Seconds after a crash. Neither side has queues, an index or a checkpoint to start from, and both have made them
    in the end; RocketMQ in its load()."""
    yield _timed(store, "recover", "load() after a crash", with_rocketmq)


def _timed(store: BenchStore, verb: str, theirs_is: str, with_rocketmq: bool) -> Measurement:
    crashed = verb == "recover"

    def ours() -> float:
        store.reset(crashed=crashed)
        outcome = child.run(verb, store.path)
        if outcome.messages != store.messages:
            raise RuntimeError(f"{verb} found {outcome.messages} of {store.messages} messages")
        return outcome.seconds

    def theirs() -> float:
        store.reset(crashed=crashed)
        with rocketmq.running() as jvm:
            answer = jvm.load(store.path) if crashed else jvm.rebuild(store.path)
        if answer.messages != store.messages:
            raise RuntimeError(f"RocketMQ found {answer.messages} of {store.messages} messages ({theirs_is})")
        return answer.seconds

    pair = in_turns(ours, theirs if with_rocketmq else None)
    store.reset()
    return times(f"{verb}-{store.name}", pair, theirs_is, 5, 10)
