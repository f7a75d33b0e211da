"""Storing messages with asynchronous flush: one put at a time, and in bulk with queues and index included."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from bench import child, rocketmq
from bench.measure import Measurement, in_turns, rates
from bench.stores import BODIES
from rmqctl.store.compiled import PLAIN

_ONE_BY_ONE = 200_000
_MANY = 500_000
_COLUMNS = 1_000_000
_ROCKETMQ_ONE_BY_ONE = 400_000
_ROCKETMQ_MANY = 1_000_000
_BATCH = 100
_LEAST = 10_000


def one_at_a_time(folder: Path, scale: float, with_rocketmq: bool) -> Iterator[Measurement]:
    """Messages/s of put() in one thread while another dispatches, against putMessage; and of its plain form alone."""
    for kind, body in BODIES.items():

        def ours(body: int = body, **environment: str) -> float:
            outcome = child.run("put", _empty(folder), _scaled(_ONE_BY_ONE, scale), body, **environment)
            return outcome.messages / outcome.seconds

        def plain(body: int = body) -> float:
            return ours(body, **{PLAIN: "1"})

        def theirs(body: int = body) -> float:
            with rocketmq.running() as jvm:
                answer = jvm.put(_empty(folder), _scaled(_ROCKETMQ_ONE_BY_ONE, scale), body)
            return answer.messages / answer.seconds

        for name, work, at_least, aim in (("put", ours, 1, 2), ("put-plain", plain, 0.2, None)):
            pair = in_turns(work, theirs if with_rocketmq else None)
            yield rates(f"{name}-{kind}", pair, "messages/s", "putMessage, 1 thread", at_least, aim)
    _empty(folder)


def in_bulk(folder: Path, scale: float, with_rocketmq: bool) -> Iterator[Measurement]:
    """Messages/s until queues and index are complete: put_many and put_columns against putMessages of 100."""
    for kind, body in BODIES.items():

        def ours(body: int = body) -> float:
            outcome = child.run("put_many", _empty(folder), _scaled(_MANY, scale), body)
            return outcome.messages / outcome.drained

        def theirs(body: int = body) -> float:
            with rocketmq.running() as jvm:
                answer = jvm.put_batches(_empty(folder), _scaled(_ROCKETMQ_MANY, scale), body, _BATCH)
            return answer.messages / answer.drained

        def columns(body: int = body) -> float:
            outcome = child.run("put_columns", _empty(folder), _scaled(_COLUMNS, scale), body)
            return outcome.messages / outcome.drained

        for name, work in (("bulk", ours), ("columns", columns)):
            pair = in_turns(work, theirs if with_rocketmq else None)
            yield rates(f"append-{name}-{kind}", pair, "messages/s", f"putMessages of {_BATCH}, dispatched", 2, 5)
    _empty(folder)


def _scaled(count: int, scale: float) -> int:
    return max(_LEAST, int(count * scale) // _BATCH * _BATCH)


def _empty(folder: Path) -> Path:
    store = folder / "append"
    shutil.rmtree(store, ignore_errors=True)
    shutil.rmtree(store.with_name(store.name + ".rmqctl"), ignore_errors=True)
    store.mkdir()
    return store
