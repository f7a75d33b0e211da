"""SQL in this process: short questions from exec to answer, a count over a large log against a warm Spark, and
questions to a store, on Spark and in one process, beside Spark on Parquet files."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench.measure import Measurement, in_turns, processor_seconds, say, times
from bench.stores import GIGABYTE, BenchStore, put_store, unique_key, write_store
from rmqctl.pipeline.engine import LocalEngine
from rmqctl.pipeline.jobs.export import export_with
from rmqctl.pipeline.spark.session import spark_session
from rmqctl.pipeline.sql.duckdb import EmbeddedSql, embedded_sql
from rmqctl.pipeline.sql.spark import StoreSql
from rmqctl.store.export.export import Target
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL, _LARGE = 0.002, 2.0
_ROUNDS = 20
_SLOWEST = 1.0
_MASTER = "local[2]"
_MESSAGES, _TOPICS, _BODY = 800_000, 100, 1024
_TURNS = 3
_AGAINST = f"processor time; Spark on Parquet of the same, warm, {_MASTER}"
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
        _asked(spark, store)  # workers start
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


def beside_parquet(folder: Path, scale: float) -> Iterator[Measurement]:
    """What it takes to count by topic, to find a key, and to read all bodies, beside Spark on Parquet files of the same
    messages: processor seconds of all that takes part, so that a busy machine counts less."""
    store = put_store(folder, "parquet", int(_MESSAGES * scale), _TOPICS, _BODY)
    files = folder / "parquet-files"
    yield _written(store.path, files)
    size = sum(path.stat().st_size for path in files.glob("*.parquet"))
    say(f"store {store.name}: {store.messages} messages, {store.bytes} bytes; Parquet: {size} bytes")
    asked = {
        "count-by-topic": "select topic, count(*) n from messages group by topic order by topic",
        "find-key": f"select topic, queue_offset from messages where unique_key = '{unique_key(store.messages // 3)}'",
        "all-bodies": "select sum(octet_length(body)) n from messages",
    }
    with spark_session(_MASTER) as session, embedded_sql(str(store.path)) as here:
        spark = StoreSql(session, str(store.path))
        plain = _PlainFiles(session, files)
        for name, statement in asked.items():
            # workers start, and all three have to agree
            answers = [engine.answer(statement).to_pylist() for engine in (spark, here, plain)]
            if not answers[0] or any(answer != answers[0] for answer in answers):
                raise RuntimeError(f"{statement}: {answers}")
            for what, engine in (("on-spark", spark), ("one-process", here)):
                pair = in_turns(_processor_cost(engine, statement), _processor_cost(plain, statement), _TURNS)
                yield times(f"parquet-{name}-{what}", pair, _AGAINST, None, None)
    shutil.rmtree(store.path)
    shutil.rmtree(files)


class _PlainFiles:
    """Spark's own reading of Parquet."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._session = session
        self._folder = folder

    def answer(self, statement: str) -> Any:
        """As that of StoreSql."""
        frame = self._session.read.parquet(str(self._folder))
        return self._session.sql(statement.replace(" messages", " {messages}"), messages=frame).toArrow()


def _processor_cost(engine: Any, statement: str) -> Callable[[], float]:
    def cost() -> float:
        begin = processor_seconds()
        engine.answer(statement)
        # what the JVM compiles and collects behind it belongs to it
        time.sleep(0.2)
        return processor_seconds() - begin

    return cost


def _written(store: Path, target: Path) -> Measurement:
    """What it takes to have the Parquet files in the first place."""
    begin = processor_seconds()
    with StoreFiles(store) as files:
        export_with(LocalEngine(1), files, Target(target, "parquet"))
    taken = processor_seconds() - begin
    return Measurement("parquet-export", taken, None, None, "s", 1, "processor time to write these files, one process")
