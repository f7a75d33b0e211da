"""The pipeline on Spark, local[2]: what a session and a job cost, and jobs against the same work without Spark."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.measure import Measurement, in_turns, say, times
from bench.stores import GIGABYTE, BenchStore, write_store
from rmqctl.pipeline.engine.engine import Engine, LocalEngine, SparkEngine
from rmqctl.pipeline.jobs.export import export_with
from rmqctl.pipeline.jobs.rebuild import rebuild_with
from rmqctl.pipeline.spark.session import spark_session
from rmqctl.pipeline.splits.splits import Split, open_split, plan_splits, split_columns
from rmqctl.store.columns.batch import Columns, MessageColumns
from rmqctl.store.export.export import Target, export_batches
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.scan.scan import Scan
from rmqctl.store.scan.schema import column_names
from rmqctl.store.store_files import StoreFiles

_MASTER = "local[2]"
_PROCESSES = 2
_SIZE = 2.1
_JOBS = 7
_STARTS = 3
_SLOWEST_START, _SLOWEST_JOB = 7.0, 1.0


def all_of_it(folder: Path, scale: float) -> Iterator[Measurement]:
    """Start, fixed cost of a job, check, export and rebuild, on a store of small messages of 2.1 GB times `scale`."""
    store = write_store(folder, "small", int(_SIZE * GIGABYTE * scale), "spark")
    say(f"store {store.name}: {store.messages} messages, {store.bytes} bytes")
    yield _start()
    with spark_session(_MASTER) as session:
        spark, local = SparkEngine(session), LocalEngine(_PROCESSES)
        _check(spark, store)  # workers start, kernels are loaded
        costs = [_seconds(lambda: spark.run("nothing", abs, range(_PROCESSES))) for _ in range(_JOBS)]
        yield Measurement(
            "spark-job-fixed", statistics.median(costs), None, None, "s", _JOBS, f"warm, {_MASTER}", _SLOWEST_JOB
        )
        pair = in_turns(lambda: _check(spark, store), lambda: _check(local, store), 5)
        yield times("spark-check-crc", pair, "2 processes without Spark", 0.8, None)
        pair = in_turns(lambda: _export_with(spark, store), lambda: _export(store))
        yield times("spark-export-parquet", pair, "one process", 1.25, None)
        pair = in_turns(lambda: _rebuild_with(spark, store), lambda: _rebuild(store))
        yield times("spark-rebuild", pair, "one process", None, None)
    shutil.rmtree(store.path)


def _start() -> Measurement:
    """Seconds until a session is ready."""

    def start() -> float:
        begin = time.perf_counter()
        with spark_session(_MASTER):
            return time.perf_counter() - begin

    median = statistics.median(start() for _ in range(_STARTS))
    return Measurement("spark-session-ready", median, None, None, "s", _STARTS, _MASTER, _SLOWEST_START)


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def checked(split: Split) -> int:
    """Task: good messages of a split, every checksum checked."""
    with open_split(split) as files:
        records = split_columns(files, split, columns=Columns.NONE)
        return sum(record.rows for record in records if isinstance(record, MessageColumns))


def _check(engine: Engine, store: BenchStore) -> float:
    with StoreFiles(store.path) as files:
        splits = plan_splits(files)
        begin = time.perf_counter()
        messages = sum(engine.run("check", checked, splits))
        seconds = time.perf_counter() - begin
    _complete(messages, store)
    return seconds


def _export_with(engine: Engine, store: BenchStore) -> float:
    target = store.path.with_name("exported")
    with StoreFiles(store.path) as files:
        begin = time.perf_counter()
        report = export_with(engine, files, target)
        seconds = time.perf_counter() - begin
    _complete(report.messages, store)
    shutil.rmtree(target)
    return seconds


def _export(store: BenchStore) -> float:
    target = store.path.with_name("exported.parquet")
    with StoreFiles(store.path) as files:
        begin = time.perf_counter()
        names = column_names(None)
        scan = Scan(files.log, names)
        report = export_batches(scan.batches(), scan.schema, names, Target(target, "parquet"))
        seconds = time.perf_counter() - begin
    _complete(report.messages, store)
    target.unlink()
    return seconds


def _rebuild_with(engine: Engine, store: BenchStore) -> float:
    store.reset()
    with StoreFiles(store.path) as files:
        begin = time.perf_counter()
        report = rebuild_with(engine, files)
        seconds = time.perf_counter() - begin
    _complete(report.messages, store)
    store.reset()
    return seconds


def _rebuild(store: BenchStore) -> float:
    store.reset()
    with StoreFiles(store.path) as files:
        begin = time.perf_counter()
        report = rebuild(files)
        seconds = time.perf_counter() - begin
    _complete(report.messages, store)
    store.reset()
    return seconds


def _complete(messages: int, store: BenchStore) -> None:
    if messages != store.messages:
        raise RuntimeError(f"found {messages} of {store.messages} messages")
