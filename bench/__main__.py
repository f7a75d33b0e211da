"""`python -m bench`: runs the benchmarks, prints one JSON line a measurement and a table at the end."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import (
    append,
    databases,
    file_change,
    lookup,
    machine,
    memory,
    mending,
    rocketmq,
    spark,
    sql,
    text,
    walk,
)
from bench.measure import Measurement, say, table, tell
from bench.stores import BODIES, GIGABYTE, BenchStore, write_store
from bench.wire import arrivals, beginning, calls, network, pulls, served_pulls

_SIZE = 1.6
_LOOKUP_SIZE = 0.05


class Bench:
    """One run: its folder, its stores, which are written when first needed, and whether there is a RocketMQ."""

    def __init__(self, folder: Path, scale: float, with_rocketmq: bool) -> None:
        self.folder = folder
        self.scale = scale
        self.with_rocketmq = with_rocketmq
        self._stores: dict[str, BenchStore] = {}

    def stores(self) -> Iterator[BenchStore]:
        """The common stores, one of small and one of large messages."""
        for kind in BODIES:
            if kind not in self._stores:
                self._stores[kind] = write_store(self.folder, kind, int(_SIZE * GIGABYTE * self.scale))
                one = self._stores[kind]
                say(f"store {kind}: {one.messages} messages, {one.bytes} bytes, {one.bytes // one.messages} a frame")
            yield self._stores[kind]

    def walk(self) -> Iterator[Measurement]:
        """One thread against RocketMQ, both cores against the memory."""
        with rocketmq.running() if self.with_rocketmq else contextlib.nullcontext() as jvm:
            for store in self.stores():
                yield from walk.one_thread(store, jvm)
                yield from walk.both_cores(store)

    def recover(self) -> Iterator[Measurement]:
        """After a crash."""
        for store in self.stores():
            yield from mending.recovered(store, self.with_rocketmq)

    def rebuild(self) -> Iterator[Measurement]:
        """Queues and index from nothing."""
        for store in self.stores():
            yield from mending.rebuilt(store, self.with_rocketmq)

    def append(self) -> Iterator[Measurement]:
        """One at a time, and in bulk."""
        yield from append.one_at_a_time(self.folder, self.scale, self.with_rocketmq)
        yield from append.in_bulk(self.folder, self.scale, self.with_rocketmq)

    def text(self) -> Iterator[Measurement]:
        """Messages as lines of JSON."""
        yield from text.lines_of_json(self.folder, self.scale)

    def lookup(self) -> Iterator[Measurement]:
        """Short commands."""
        yield from lookup.short_commands(
            write_store(self.folder, "small", int(_LOOKUP_SIZE * GIGABYTE), "lookup"),
        )

    def memory(self) -> Iterator[Measurement]:
        """Peaks."""
        for store in self.stores():
            yield from memory.peaks(store)

    def spark(self) -> Iterator[Measurement]:
        """The pipeline on Spark."""
        yield from spark.all_of_it(self.folder, self.scale)

    def sql(self) -> Iterator[Measurement]:
        """Questions in SQL, in this process and on Spark."""
        yield from sql.questions(self.folder, self.scale)

    def parquet(self) -> Iterator[Measurement]:
        """Questions to a store beside those to Parquet files."""
        yield from sql.beside_parquet(self.folder, self.scale)

    def network(self) -> Iterator[Measurement]:
        """A broker that begins, and Java clients at both brokers."""
        yield from beginning.all_of_it(self.folder, self.scale)
        yield from network.all_of_it(self.folder, self.scale, self.with_rocketmq)

    def calls(self) -> Iterator[Measurement]:
        """RocketMQ's client of gRPC at both."""
        yield from calls.all_of_it(self.folder, self.scale, self.with_rocketmq)

    def arrivals(self) -> Iterator[Measurement]:
        """How soon a message is in its queue."""
        yield from arrivals.all_of_it(self.folder, self.scale, self.with_rocketmq)

    def pulls(self) -> Iterator[Measurement]:
        """Ways in which messages may leave."""
        yield from pulls.measured(self.folder)
        yield from served_pulls.measured(self.folder)

    def file_change(self) -> Iterator[Measurement]:
        """Files made ahead, warm, locked."""
        yield from file_change.measured(self.folder)

    def growth(self) -> Iterator[Measurement]:
        """Logs of several sizes."""
        yield from mending.over_sizes(self.folder, self.scale)

    def databases(self) -> Iterator[Measurement]:
        """Queues in a RocksDB."""
        yield from databases.beside_files(self.folder, self.scale)


THEMES: dict[str, Callable[[Bench], Iterator[Measurement]]] = {
    "lookup": Bench.lookup,
    "walk": Bench.walk,
    "recover": Bench.recover,
    "rebuild": Bench.rebuild,
    "append": Bench.append,
    "text": Bench.text,
    "memory": Bench.memory,
    "spark": Bench.spark,
    "sql": Bench.sql,
    "parquet": Bench.parquet,
    "network": Bench.network,
    "calls": Bench.calls,
    "arrivals": Bench.arrivals,
    "pulls": Bench.pulls,
    "file-change": Bench.file_change,
    "growth": Bench.growth,
    "databases": Bench.databases,
}


def main() -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the stores, 1.0 being 1.6 GB each")
    parser.add_argument("--only", action="append", choices=list(THEMES), help="only this theme; may be repeated")
    parser.add_argument("--folder", type=Path, help="where to put the stores (default: the temporary folder)")
    parser.add_argument("--no-rocketmq", action="store_true", help="measure our side alone")
    asked = parser.parse_args()
    # as an installed package is: what is started is not compiled anew each time
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # a terminated run removes its stores and ends its processes as an interrupted one does
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    for name, described in machine.described().items():
        say(f"{name}: {described}")
    reason = "not wanted" if asked.no_rocketmq else rocketmq.missing()
    if reason is not None:
        say(f"skipped, the comparisons with RocketMQ: {reason}")
    taken = []
    with tempfile.TemporaryDirectory(prefix="rmqctl-bench-", dir=asked.folder) as folder:
        bench = Bench(Path(folder), asked.scale, reason is None)
        for name in asked.only or THEMES:
            for measurement in THEMES[name](bench):
                tell(measurement)
                taken.append(measurement)
    print(f"\n{table(taken)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
