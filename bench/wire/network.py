"""RocketMQ's own clients at both brokers, ours and the real one: pulls, waiting consumers, sends, idle ones, all of it.

The clients are one JVM (bench/clients), which asks one broker and then the other; both run all the while, each over a
store of its own that began with the same bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench import child, rocketmq
from bench.measure import Measurement, Pair, in_turns, rates, say, times
from bench.rocketmq import RocketMQ
from bench.stores import GIGABYTE, QUEUES, TOPIC, write_store
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.network.remoting.headers import CreateTopic
from tests.interop.brokers import running_broker
from tests.interop.toolchain import servers
from tests.network.serving import serving
from tests.processes import processor_seconds

_PULLED = 0.4
_PULLERS = 4
_WAKES, _LEAST_WAKES = 400, 100
_SENDS, _LEAST_SENDS = 40_000, 4_000
_BODY = 300
_IDLE = 1000
_IDLE_SECONDS = 30
_LOADERS = 8
_LOAD_SECONDS = 20
_WARM_SECONDS = 4
_SLOWEST = 0.05
_MOST_PROCESSOR, _MOST_RESIDENT = 2.0, 100.0
_MIB = 1 << 20
_LIMIT = 3600.0
_JVM = ("-Xmx2g",)
_SETTINGS = {"flushDiskType": "ASYNC_FLUSH", "timerWheelEnable": "false"}
_CLEANING = {
    "mappedFileSizeCommitLog": str(16 * _MIB),
    "fileReservedTime": "0",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
}


class Side(NamedTuple):
    """A broker that runs."""

    namesrv: str
    broker: str
    process_id: int

    @property
    def processor_seconds(self) -> float:
        """What it has taken of the processor so far, user and system."""
        return processor_seconds(self.process_id)

    @property
    def resident(self) -> int:
        """Bytes of memory, mapped files included."""
        return int(Path(f"/proc/{self.process_id}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )


class Sides(NamedTuple):
    """Both brokers and the clients; `theirs` is None where ours is measured alone."""

    clients: RocketMQ
    ours: Side
    theirs: Side | None

    def in_turns(self, work: Callable[[Side], float], rounds: int = 3) -> Pair:
        """Warm both up, and measure them."""
        sides = [self.ours, *([] if self.theirs is None else [self.theirs])]
        before = [side.processor_seconds for side in sides]
        for side in sides:
            work(side)
        theirs = self.theirs
        pair = in_turns(lambda: work(self.ours), None if theirs is None else lambda: work(theirs), rounds)
        spent = [side.processor_seconds - began for side, began in zip(sides, before, strict=True)]
        say("processor time of the brokers, ours first: " + ", ".join(f"{seconds:.2f} s" for seconds in spent))
        return pair

    def load(self, side: Side, seconds: int) -> dict[str, Any]:
        """What pulls and look-ups take of the topic `Loaded` while it is written to."""
        return self.clients.figures("load", side.namesrv, "Loaded", _LOADERS, seconds)

    def make_topic(self, name: str) -> None:
        """The same topic at both."""
        for side in (self.ours, self.theirs):
            if side is not None:
                _make_topic(side, name)


def all_of_it(folder: Path, scale: float, with_rocketmq: bool) -> Iterator[Measurement]:
    """What clients see of both brokers; nothing where there are no Java clients."""
    reason = rocketmq.missing_clients()
    if reason is not None:
        say(f"skipped, the brokers: {reason}")
        return
    with rocketmq.running_clients() as clients:
        for kind in ("small", "large"):
            size = int(_PULLED * GIGABYTE * scale)
            with (
                _pulled_stores(folder, kind, size) as stores,
                _sides(clients, folder, stores, _SETTINGS, with_rocketmq) as sides,
            ):
                yield from _pulls(sides, kind)
        with _new_stores(folder) as stores, _sides(clients, folder, stores, _SETTINGS, with_rocketmq) as sides:
            yield _wakes(sides, max(_LEAST_WAKES, int(_WAKES * scale)))
            for threads in (8, 16):
                yield _sends(sides, threads, scale, "")
        flushing = {**_SETTINGS, "flushDiskType": "SYNC_FLUSH"}
        with _new_stores(folder) as stores, _sides(clients, folder, stores, flushing, with_rocketmq) as sides:
            for threads in (8, 16):
                yield _sends(sides, threads, scale, "-sync-flush")
            # a JVM takes a third of a second for its first look-up by key, whoever answers it; the brokers that are
            # asked below begin anew
            sides.make_topic("Loaded")
            sides.load(sides.ours, _WARM_SECONDS)
        cleaning = {**_SETTINGS, **_CLEANING}
        with _new_stores(folder) as stores, _sides(clients, folder, stores, cleaning, with_rocketmq) as sides:
            # meanwhile the minute goes by after which a broker begins to clean
            yield from _idle(sides)
            yield from _loaded(sides)


def _pulls(sides: Sides, kind: str) -> Iterator[Measurement]:
    spent: dict[int, list[float]] = {}

    def megabytes(side: Side) -> float:
        began = side.processor_seconds
        told = sides.clients.figures("pull", side.namesrv, TOPIC, _PULLERS)
        spent.setdefault(side.process_id, []).append(side.processor_seconds - began)
        return float(told["bytes"] / told["seconds"] / 1e6)

    against = f"the real broker; {_PULLERS} threads"
    pair = sides.in_turns(megabytes)
    yield rates(f"network-pull-{kind}", pair, "MB/s", against, 1, 2)
    # of each round but the one that warms up; what else the machine does changes it less than the rates
    mine, *other = (statistics.median(rounds[1:]) for rounds in spent.values())
    against = "the real broker's process; a round"
    yield times(f"network-pull-{kind}-processor", Pair(mine, other[0] if other else None, pair.n), against, None, None)


def _wakes(sides: Sides, count: int) -> Measurement:
    sides.make_topic("Waking")

    def seconds(side: Side) -> float:
        told = sides.clients.figures("wake", side.namesrv, "Waking", count)
        return float(told["wake_p50"])

    return times("network-wake-up", sides.in_turns(seconds), f"the real broker; median of {count}", 1 / 1.5, 1)


def _sends(sides: Sides, threads: int, scale: float, suffix: str) -> Measurement:
    sides.make_topic("Sends")
    count = max(_LEAST_SENDS, int(_SENDS * scale))

    def a_second(side: Side) -> float:
        told = sides.clients.figures("send", side.namesrv, "Sends", threads, count, _BODY)
        return float(told["messages"] / told["seconds"])

    pair = sides.in_turns(a_second)
    return rates(f"network-send-{threads}-threads{suffix}", pair, "messages/s", "the real broker", 0.8, 1.2)


def _idle(sides: Sides) -> Iterator[Measurement]:
    """What a thousand consumers cost that wait: per cent of a core, and MiB."""
    sides.make_topic("Idle")

    def waiting(side: Side) -> tuple[float, float]:
        told = sides.clients.figures("idle", side.broker, "Idle", _IDLE)
        if told["refused"]:
            raise RuntimeError(f"{told['refused']} of {_IDLE} connections were refused")
        began, at = side.processor_seconds, time.monotonic()
        time.sleep(_IDLE_SECONDS)
        share = 100 * (side.processor_seconds - began) / (time.monotonic() - at)
        resident = side.resident / _MIB
        sides.clients.figures("leave")
        return share, resident

    ours = waiting(sides.ours)
    theirs = (None, None) if sides.theirs is None else waiting(sides.theirs)
    bounds = (("processor", "% of a core", _MOST_PROCESSOR), ("resident", "MiB", _MOST_RESIDENT))
    for (name, unit, most), mine, other in zip(bounds, ours, theirs, strict=True):
        yield Measurement(
            f"network-idle-{_IDLE}-{name}", mine, other, None, unit, 1, "the real broker; stay under", most
        )


def _loaded(sides: Sides) -> Iterator[Measurement]:
    """What a lookup and a pull take while producers send as fast as they can and expired files are removed."""
    sides.make_topic("Loaded")
    ours = sides.load(sides.ours, _LOAD_SECONDS)
    theirs = None if sides.theirs is None else sides.load(sides.theirs, _LOAD_SECONDS)
    for told in filter(None, (ours, theirs)):
        say(f"under load: {json.dumps(told)}")
    for kind in ("pull", "id", "key"):
        for part in ("p50", "p99", "max"):
            name = f"{kind}_{part}"
            yield Measurement(
                f"network-loaded-{kind}-{part}", ours[name], None if theirs is None else theirs[name], None, "s",
                ours[f"{kind}_n"], f"the real broker; {_LOADERS} threads send; stay under", _SLOWEST,
            )  # fmt: skip
    sent = [None if one is None else one["sent"] / one["seconds"] for one in (ours, theirs)]
    yield rates("network-loaded-sends", Pair(sent[0] or 0.0, sent[1], 1), "messages/s", "the real broker", None, None)


# ---- brokers and their stores


@contextlib.contextmanager
def _sides(
    clients: RocketMQ, folder: Path, stores: tuple[Path, Path], settings: Mapping[str, str], with_rocketmq: bool
) -> Iterator[Sides]:
    """Both brokers over their stores."""
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="ascii")
    options = ("--writable", "--create", "-c", str(conf), *(["--clean"] if "fileReservedTime" in settings else []))
    with contextlib.ExitStack() as running:
        served = running.enter_context(serving(stores[0], *options, seconds=_LIMIT))
        # it tells of every second on stderr, and must not wait until that is read
        threading.Thread(target=lambda: list(served.process.stderr or ()), daemon=True).start()
        ours = Side(served.namesrv, served.broker, served.process.pid)
        theirs = None
        if with_rocketmq:
            tools, beside = servers(rocketmq.VERSION), folder / "real"
            real = running.enter_context(
                running_broker(tools, beside, stores[1], settings, jvm=_JVM, seconds=_LIMIT)
            )  # fmt: skip
            theirs = Side(real.namesrv, real.broker, real.process.pid)
        yield Sides(clients, ours, theirs)


@contextlib.contextmanager
def _pulled_stores(folder: Path, kind: str, size: int) -> Iterator[tuple[Path, Path]]:
    """Two whole stores of the same bytes with one topic."""
    written = [write_store(folder, kind, size, f"network-{side}") for side in ("ours", "theirs")]
    for store in written:
        child.run("rebuild", store.path)
        config = store.path / "config"
        config.mkdir(exist_ok=True)
        topic = {"topicName": TOPIC, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
        table = {"topicConfigTable": {TOPIC: {**topic, "topicFilterType": "SINGLE_TAG"}}}
        (config / "topics.json").write_text(json.dumps(table), encoding="ascii")
    try:
        yield written[0].path, written[1].path
    finally:
        _remove(store.path for store in written)


@contextlib.contextmanager
def _new_stores(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Two empty folders."""
    stores = folder / "network-ours", folder / "network-theirs"
    stores[1].mkdir()
    try:
        yield stores
    finally:
        _remove(stores)


def _remove(stores: Iterator[Path] | tuple[Path, ...]) -> None:
    for store in stores:
        shutil.rmtree(store)
        shutil.rmtree(store.with_name(store.name + ".rmqctl"), ignore_errors=True)


def _make_topic(side: Side, name: str) -> None:
    """A topic that clients find: the broker tells the name server of it when it has answered."""
    client = Client(side.namesrv)
    header = CreateTopic(
        topic=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES, default_topic="TBW102",
        topic_filter_type="SINGLE_TAG",
    )  # fmt: skip
    client.ask(side.broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    end = time.monotonic() + 60
    while client.route(name, anew=True) is None:
        if time.monotonic() > end:
            raise RuntimeError(f"{side.namesrv} does not know {name}")
        time.sleep(0.1)
    client.close()
