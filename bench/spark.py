"""The pipeline on Spark, local[2]: what a session and a job cost, and jobs against the same work without Spark."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.measure import Measurement, in_turns, processor_seconds, say, times
from bench.stores import GIGABYTE, BenchStore, put_store, write_store
from rmqctl.pipeline.engine import Engine, LocalEngine, SparkEngine
from rmqctl.pipeline.jobs.check import check_with
from rmqctl.pipeline.jobs.export import export_with
from rmqctl.pipeline.jobs.rebuild import rebuild_with
from rmqctl.pipeline.jobs.stats import StatsRequest, stats
from rmqctl.pipeline.spark.session import spark_session
from rmqctl.pipeline.splits import Split, open_split, plan_splits, split_columns
from rmqctl.store.check.check import check
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.export.export import Target, export_batches
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.native.tables import Columns
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.scan.scan import Scan
from rmqctl.store.scan.schema import column_names
from rmqctl.store.store_files import StoreFiles

_MASTER = "local[2]"
_PROCESSES = 2
_SIZE = 2.1
_JOBS = 7
_STARTS = 3
_SMALL_FILE, _SMALL_FILES = 256 << 10, 400_000
_MANY, _MANY_TOPICS = 1_000_000, 10_000
_SLOWEST_START, _SLOWEST_JOB = 7.0, 1.0


def all_of_it(folder: Path, scale: float) -> Iterator[Measurement]:
    """Start, fixed cost of a job, check, export and rebuild, on a store of small messages of 2.1 GB times `scale`."""
    store = write_store(folder, "small", int(_SIZE * GIGABYTE * scale), "spark")
    say(f"store {store.name}: {store.messages} messages, {store.bytes} bytes")
    yield _start()
    with spark_session(_MASTER) as session:
        spark, local = SparkEngine(session), LocalEngine(_PROCESSES)
        _check(spark, store)  # workers start
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
        yield _small_files(spark, folder, scale)
        yield _many_topics(spark, folder, scale)


def _small_files(spark: Engine, folder: Path, scale: float) -> Measurement:
    """Check of files of 256 KiB, 2,000 of them times `scale`, of 400 queues."""
    config = StoreConfig(mapped_file_size_commit_log=_SMALL_FILE)
    store = put_store(folder, "small-files", int(_SMALL_FILES * scale), 50, 1024, config)
    say(f"store {store.name}: {store.messages} messages, {store.bytes} bytes in {len(store.files)} files")

    def by_tasks(files: StoreFiles) -> object:
        return list(check_with(spark, files))

    pair = in_turns(_cost(store, by_tasks), _cost(store, lambda files: list(check(files))))
    shutil.rmtree(store.path)
    return times("spark-check-small-files", pair, "processor time; one process", 1 / 1.3, None)


def _many_topics(spark: Engine, folder: Path, scale: float) -> Measurement:
    """What statistics of a million messages in 10,000 topics, times `scale`, cost beside a check."""
    store = put_store(folder, "many-topics", int(_MANY * scale), max(1, int(_MANY_TOPICS * scale)), 200)

    def counted(files: StoreFiles) -> object:
        return stats(spark, files, StatsRequest())

    pair = in_turns(_cost(store, counted), _cost(store, lambda files: list(check_with(spark, files))))
    shutil.rmtree(store.path)
    return times("spark-stats-many-topics", pair, "processor time; check by tasks", 0.5, None)


def _cost(store: BenchStore, work: Callable[[StoreFiles], object]) -> Callable[[], float]:
    """Processor seconds, JVM and Python workers included, of an engine that is warm."""

    def cost() -> float:
        begin = processor_seconds()
        with StoreFiles(store.path) as files:
            work(files)
        return processor_seconds() - begin

    return cost


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
        report = export_with(engine, files, Target(target, "parquet"))
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
