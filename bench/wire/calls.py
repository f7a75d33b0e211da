"""RocketMQ's Java client of gRPC at our service and at the real proxy, both with their broker in one process.

Sends, receives and acknowledgements a second with one client and with eight, and the processor time of the serving
process for each. Both serve all the while; the client asks one and then the other.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import rocketmq
from bench.measure import Measurement, Pair, rates, say, times
from bench.rocketmq import RocketMQ
from tests.interop.brokers import running_broker
from tests.interop.toolchain import proxy
from tests.network.grpc.requests import create, create_group
from tests.network.serving import serving
from tests.processes import processor_seconds

_AT_LEAST = {1: 0.8, 8: 0.6}
_MESSAGES, _FEWEST = 6000, 600
_WARM_UP = 2
_ROUNDS = 5
_BODY = 1024
_RECEIVED = 0.8
_QUEUES = 8
_LIMIT = 3600.0
_JVM = ("-Xmx2g",)
_SETTINGS = {
    "flushDiskType": "ASYNC_FLUSH",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(256 << 20),
    "autoCreateTopicEnable": "true",
}


class _Proxy(NamedTuple):
    namesrv: str
    broker: str
    grpc: str
    process_id: int


class _Spent(NamedTuple):
    """Messages a second, and seconds of the server's processor a message."""

    rate: float
    processor: float


def all_of_it(folder: Path, scale: float, with_rocketmq: bool) -> Iterator[Measurement]:
    """A line for each call and number of clients, by the clock and by the processor."""
    reason = rocketmq.missing_calls()
    if reason is not None:
        say(f"skipped, the calls of gRPC: {reason}")
        return
    count = max(_FEWEST, int(_MESSAGES * scale))
    with rocketmq.running_calls() as client, _proxies(folder, with_rocketmq) as proxies:
        for clients in (1, 8):
            found: list[dict[str, list[_Spent]]] = [{} for _ in proxies]
            for turn in range(_WARM_UP + _ROUNDS):
                for one, own in zip(proxies, found, strict=True):
                    for call, spent in _figures(client, one, clients, count):
                        if turn >= _WARM_UP:
                            own.setdefault(call, []).append(spent)
            for call in found[0]:
                ours, *theirs = (_median(own[call]) for own in found)
                other = theirs[0] if theirs else None
                name, against = f"grpc-{call}-{clients}", f"the real proxy {rocketmq.VERSION}; {clients} clients"
                pair = Pair(ours.rate, None if other is None else other.rate, _ROUNDS)
                yield rates(name, pair, "messages/s", against, _AT_LEAST[clients], 1)
                pair = Pair(ours.processor, None if other is None else other.processor, _ROUNDS)
                yield times(f"{name}-processor", pair, f"{against}; of the serving process", None, None)


def _median(spent: list[_Spent]) -> _Spent:
    return _Spent(*map(statistics.median, zip(*spent, strict=True)))


def _figures(client: RocketMQ, at: _Proxy, clients: int, count: int) -> Iterator[tuple[str, _Spent]]:
    topic, group = f"Calls-{clients}", f"calls-{clients}"
    for call, words in (
        ("send", (at.grpc, topic, clients, count, _BODY)),
        # some are left: no consumer waits in vain for the last ones
        ("receive", (at.grpc, group, topic, clients, int(count * _RECEIVED))),
        ("ack", ()),
    ):
        began = processor_seconds(at.process_id)
        told = client.figures(call, *words)
        spent = processor_seconds(at.process_id) - began
        yield call, _Spent(told["messages"] / told["seconds"], spent / told["messages"])


@contextlib.contextmanager
def _proxies(folder: Path, with_rocketmq: bool) -> Iterator[list[_Proxy]]:
    """Ours and, where it is wanted, the real one, each over a new store, with the topics and groups that are used."""
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in _SETTINGS.items()), encoding="ascii")
    options = ("--writable", "--create", "-c", str(conf), "--grpc", "127.0.0.1:0")
    with contextlib.ExitStack() as running:
        served = running.enter_context(serving(folder / "calls-ours", *options, seconds=_LIMIT))
        # it tells of every second on stderr, and must not wait until that is read
        threading.Thread(target=lambda: list(served.process.stderr or ()), daemon=True).start()
        found = [_Proxy(served.namesrv, served.broker, str(served.grpc), served.process.pid)]
        if with_rocketmq:
            tools = proxy(rocketmq.VERSION)
            beside = running_broker(
                tools, folder / "real", folder / "calls-theirs", _SETTINGS, jvm=_JVM, seconds=_LIMIT, main="Proxy"
            )
            real = running.enter_context(beside)
            found.append(_Proxy(real.namesrv, real.broker, real.grpc, real.process.pid))
        for one in found:
            for clients in (1, 8):
                create(one.namesrv, one.broker, f"Calls-{clients}", readQueueNums=_QUEUES, writeQueueNums=_QUEUES)
                create_group(one.namesrv, one.broker, f"calls-{clients}")
        yield found
