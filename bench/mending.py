"""Queues and index made anew from the whole log, of a sound store and after a crash, against RocketMQ doing so, and
whether the cost grows linearly with the log: seconds a GB over logs of 0.5, 1 and 2 GB."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from bench import child, rocketmq
from bench.measure import Measurement, in_turns, times
from bench.stores import GIGABYTE, BenchStore, write_store


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


_SIZES = (0.5, 1.0, 2.0)
_WORKS = ("check", "recover", "rebuild")


def over_sizes(folder: Path, scale: float) -> Iterator[Measurement]:
    """Seconds; `other` are the seconds that each GB more than in the next smaller log takes, so that the start of the
    work drops out. `ratio` compares them with those of the step before: 1 is linear, less is worse than linear."""
    before: dict[str, tuple[float, float, float | None]] = {}
    for size in _SIZES:
        store = write_store(folder, "small", int(size * GIGABYTE * scale), f"growth-{size:g}")
        gigabytes = store.bytes / GIGABYTE
        for work in _WORKS:

            def seconds(work: str = work, store: BenchStore = store) -> float:
                store.reset(crashed=work == "recover")
                return child.run(work, store.path).seconds

            taken = in_turns(seconds, None)
            last_seconds, last_gigabytes, last_step = before.get(work, (0.0, 0.0, None))
            step = (taken.ours - last_seconds) / (gigabytes - last_gigabytes)
            # the first step holds the start of the work as well: nothing to compare with
            before[work] = (taken.ours, gigabytes, step if work in before else None)
            ratio = last_step / step if last_step is not None and step > 0 else None
            yield Measurement(
                f"growth-{work}-{gigabytes:.2f}-GB", taken.ours, step, ratio, "s", taken.n, "s a GB more; 1 is linear"
            )
        store.reset()
        shutil.rmtree(store.path)
