"""SQL in this process: short questions from exec to answer, and a count over a large log against a warm Spark."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from bench.measure import Measurement, in_turns, say, times
from bench.stores import GIGABYTE, BenchStore, write_store
from rmqctl.pipeline.embedded.embedded_sql import EmbeddedSql, embedded_sql
from rmqctl.pipeline.spark.session import spark_session
from rmqctl.pipeline.sql.sql import StoreSql

_SMALL, _LARGE = 0.002, 2.0
_ROUNDS = 20
_SLOWEST = 1.0
_MASTER = "local[2]"
_COUNTS = "select topic, count(*) n from messages group by topic order by n desc"
_ALL = "select * from messages order by size desc, physical_offset limit 100"


def questions(folder: Path, scale: float) -> Iterator[Measurement]:
    """Seconds; of commands the best of many, where a busy machine is not what is measured."""
    small = write_store(folder, "small", int(_SMALL * GIGABYTE), "sql-small")
    for name, statement in (("count-by-topic", _COUNTS), ("all-columns", _ALL)):
        taken = [_command(small, statement) for _ in range(_ROUNDS)]
        best, cpu = (min(one[side] for one in taken) for side in (0, 1))
        yield Measurement(f"sql-{name}-2mb", best, cpu, None, "s", _ROUNDS, "processor time; stay under", _SLOWEST)
    shutil.rmtree(small.path)
    store = write_store(folder, "small", int(_LARGE * GIGABYTE * scale), "sql-large")
    say(f"store {store.name}: {store.messages} messages, {store.bytes} bytes")
    with spark_session(_MASTER) as session, embedded_sql(str(store.path)) as here:
        spark = StoreSql(session, str(store.path))
        _asked(spark, store)  # workers start, kernels are loaded
        pair = in_turns(lambda: _asked(here, store), lambda: _asked(spark, store), 5)
        yield times("sql-count-by-topic", pair, f"the same on Spark, warm, {_MASTER}", 1.0, None)
        pair = in_turns(lambda: _command(store, _COUNTS)[0], lambda: _asked(spark, store), 5)
        yield times("sql-count-by-topic-from-exec", pair, f"the same on Spark, warm, {_MASTER}", 1.0, None)
    shutil.rmtree(store.path)


def _command(store: BenchStore, statement: str) -> tuple[float, float]:
    """Seconds from exec to exit, and of the processor."""
    program = Path(sys.executable).with_name("rmqctl")
    start = [str(program)] if program.exists() else [sys.executable, "-m", "rmqctl"]
    command = [*start, "sql", "-s", str(store.path), "--json", statement]
    silence = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    begin = time.perf_counter()
    process = os.posix_spawn(command[0], command, os.environ, file_actions=silence)
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - begin
    if status:
        raise RuntimeError(f"{' '.join(command)} failed")
    return seconds, usage.ru_utime + usage.ru_stime


def _asked(views: StoreSql | EmbeddedSql, store: BenchStore) -> float:
    begin = time.perf_counter()
    table: pa.Table = views.answer(_COUNTS)
    seconds = time.perf_counter() - begin
    if sum(table.column("n").to_pylist()) != store.messages:
        raise RuntimeError(f"found {table.to_pylist()} of {store.messages} messages")
    return seconds
