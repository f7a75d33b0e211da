"""How soon a message is in its queue: from the producer's answer to the first answer of GET_MAX_OFFSET that has it.

Each message is sent when the one before it was seen. Without and with the transient store pool, small messages and such
as fill the pages that a commit waits for; at `serve` and, where it can be run, at the real broker.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from bench import rocketmq
from bench.measure import Measurement
from rmqctl.formats.message import Message
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.network.remoting.headers import QueueHeader
from tests.interop.brokers import RealBroker, running_broker
from tests.interop.toolchain import servers
from tests.network.serving import Served, serving

_MOST = 0.01
_MESSAGES, _LEAST = 300, 20
_LIMIT = 3600.0
_COMMON = {"flushDiskType": "ASYNC_FLUSH", "timerWheelEnable": "false", "mappedFileSizeCommitLog": str(64 << 20)}
_POOL = {**_COMMON, "transientStorePoolEnable": "true"}
_ANY_BYTE = {**_POOL, "commitCommitLogLeastPages": "0"}


class _Case(NamedTuple):
    name: str
    settings: Mapping[str, str]
    size: int


_CASES = (
    _Case("plain", _COMMON, 100),
    _Case("pool", _POOL, 100),
    _Case("pool-20-KiB", _POOL, 20 * 1024),
    _Case("pool-0-pages", _ANY_BYTE, 100),
)


def all_of_it(folder: Path, scale: float, with_rocketmq: bool) -> Iterator[Measurement]:
    """The first message, the median and the 99th percentile of each case."""
    for case in _CASES:
        # with the pool alone each one takes a fifth of a second
        count = max(_LEAST, int(_MESSAGES * scale) // (10 if case.name == "pool" else 1))
        own = folder / case.name
        own.mkdir()
        ours = _figures(_serving(own, case.settings), case.size, count)
        theirs = None
        if with_rocketmq:
            tools = servers(rocketmq.VERSION)
            real = running_broker(tools, own / "real", own / "theirs", case.settings, seconds=_LIMIT)
            theirs = _figures(real, case.size, count)
        for number, part in enumerate(("first", "p50", "p99")):
            mine, other = ours[number], None if theirs is None else theirs[number]
            ratio = None if other is None else other / mine
            name, most = f"network-arrival-{case.name}-{part}", _MOST if part == "p50" and case.name != "pool" else None
            yield Measurement(name, mine, other, ratio, "s", count, "the real broker; stay under", most)


def _serving(folder: Path, settings: Mapping[str, str]) -> contextlib.AbstractContextManager[Served]:
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="ascii")
    return serving(folder / "ours", "--writable", "--create", "-c", str(conf), seconds=_LIMIT)


def _figures(
    broker: contextlib.AbstractContextManager[Served] | contextlib.AbstractContextManager[RealBroker],
    size: int,
    count: int,
) -> tuple[float, float, float]:
    with broker as running, Producer(running.namesrv, "bench") as producer:
        client, message = Client(running.namesrv), Message("Arrivals", os.urandom(size))
        taken = [_arrival(producer, client, running.broker, message) for _ in range(count)]
        client.close()
    percentiles = statistics.quantiles(taken, n=100)
    return taken[0], percentiles[49], percentiles[98]


def _arrival(producer: Producer, client: Client, broker: str, message: Message) -> float:
    sent = producer.send(message, seconds=60)
    begin = time.perf_counter()
    queue = QueueHeader(topic=message.topic, queue_id=sent.queue.queue_id)
    while int(client.ask(broker, RequestCode.GET_MAX_OFFSET, queue).fields["offset"]) <= sent.queue_offset:
        pass
    return time.perf_counter() - begin
