"""Engines: the same idempotent task over many items, in processes of this machine or on Spark's executors."""

from __future__ import annotations

import os
import re
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rmqctl.formats.errors import EngineError, RmqctlError, UnreadableError, WriteFailedError
from rmqctl.pipeline.engine.local_pool import Workers
from rmqctl.store.remote.file_system import storage_options, use_storage_options

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")
OnDone = Callable[[int], None]

EXECUTOR_WAIT = "spark.rmqctl.executorWait"
"""A setting: seconds for which a cluster may leave a job without any executor."""
_EXECUTOR_WAIT = 180.0
# what Spark does with a task unless it is told otherwise
_TRIES = 4
# processes take about this long to start: what is done by then is not worth them
_ALONE_FOR = 1.0


class Engine(Protocol):
    """What runs tasks."""

    def run(
        self,
        name: str,
        task: Callable[[Item], Result],
        items: Sequence[Item],
        on_done: OnDone | None = None,
    ) -> list[Result]:
        """`task` of each item; the results in the order of the items.

        A task is a function of a module, or a functools.partial of one, and idempotent: it may run twice, also at the
        same time, and one of its results counts. `on_done` is told how many items more are done; `name` is for
        people. An error of the family that a task raises arrives here as it was; no other result does then. After
        Ctrl-C the tasks are stopped.
        """


class LocalEngine:
    """Processes of this machine; nothing but Python. Short work, and what a single process is to do, runs in this
    process; so does a single item, unless other processes have loaded what it needs and this one has not.

    The processes are kept for further jobs, and end with the engine: `close` it, or leave it to the garbage collector.
    """

    def __init__(self, processes: int | None = None, *, alone_for: float = _ALONE_FOR) -> None:
        """By default a process for each core that this one may use. They are started for what is left to do when this
        one has worked for `alone_for` seconds; for 0 it does nothing by itself, as Spark's driver does."""
        self._processes = processes or len(os.sched_getaffinity(0))
        self._alone_for = alone_for
        self._has_worked = False
        self._workers = Workers()
        self.close = weakref.finalize(self, self._workers.end)

    def run(
        self,
        name: str,
        task: Callable[[Item], Result],
        items: Sequence[Item],
        on_done: OnDone | None = None,
    ) -> list[Result]:
        """See Engine."""
        results: list[Result] = []
        for item in items:
            left = len(items) - len(results)
            if self._leaves(left):
                return results + self._workers.run(task, items[-left:], self._processes, on_done)
            began = time.monotonic()
            self._has_worked = True
            results.append(task(item))
            self._alone_for -= time.monotonic() - began
            if on_done is not None:
                on_done(1)
        return results

    def _leaves(self, left: int) -> bool:
        """Whether so many items are left to processes."""
        if self._processes == 1 or self._alone_for > 0:
            return False
        return left > 1 or len(self._workers) > 0 or not self._has_worked


class SparkEngine:
    """The executors of a Spark session, local or a cluster's; one partition an item."""

    def __init__(self, session: SparkSession | Callable[[], SparkSession]) -> None:
        """The session, or what gives it when the first job runs; it stays the caller's to stop."""
        self._session = session

    @property
    def _opened(self) -> SparkSession:
        if callable(self._session):
            self._session = self._session()
        return self._session

    def run(
        self,
        name: str,
        task: Callable[[Item], Result],
        items: Sequence[Item],
        on_done: OnDone | None = None,
    ) -> list[Result]:
        """See Engine."""
        return self.collected(name, task, items, None, on_done) if items else []

    def collected(
        self,
        name: str,
        task: Callable[[Item], Any],
        items: Sequence[Item],
        further: Callable[[RDD[Any]], RDD[Any]] | None,
        on_done: OnDone | None = None,
    ) -> list[Any]:
        """What `further` makes of the results of `task`, one partition an item; the results themselves for None."""
        from rmqctl.pipeline.engine.spark_job import run_job
        from rmqctl.store.uninterrupted import uninterrupted

        session = self._opened
        context = session.sparkContext
        with uninterrupted():
            is_cluster = not str(context.master).startswith("local")
            may_fail = int(context.getConf().get("spark.task.maxFailures") or _TRIES) > 1
            errors = context.accumulator([], _errors_parameter())
            executors = _Executors(context) if is_cluster else None
        guarded = _Guarded(task, is_cluster and may_fail, errors, storage_options())
        told = 0

        def work() -> list[Any]:
            mapped = context.parallelize(list(items), len(items)).mapPartitions(guarded)
            return list((further(mapped) if further is not None else mapped).collect())

        def tell(count: int) -> None:
            # what `further` makes of the results takes tasks of its own
            nonlocal told
            count = min(count, len(items) - told)
            told += count
            if on_done is not None:
                on_done(count)

        def look() -> None:
            if errors.value:
                raise errors.value[0]
            if executors is not None:
                executors.look()

        try:
            results = run_job(session, name, work, tell, look)
        except Exception as error:
            if errors.value:
                raise errors.value[0] from None
            sentence = _in_a_sentence(error)
            if sentence is None:
                raise
            raise sentence from error
        if errors.value:
            raise errors.value[0]
        tell(len(items))
        return results


class _Guarded:
    """The task on an executor. An error of the family goes to the driver; raised, Spark would try the task again.

    An error of a disk or a file may be that machine's alone: with `elsewhere` it is raised once, so that Spark tries
    another one.
    """

    def __init__(
        self, task: Callable[[Any], Any], elsewhere: bool, errors: Any, storage: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """`storage`: how servers with stores are reached."""
        self._task = task
        self._storage = storage
        self._elsewhere = elsewhere
        self._errors = errors

    def __call__(self, items: Any) -> Any:
        use_storage_options(self._storage)
        for item in items:
            try:
                yield self._task(item)
            except RmqctlError as error:
                if isinstance(error, UnreadableError | WriteFailedError) and self._elsewhere and _is_first_attempt():
                    raise
                self._errors.add([error])


def _is_first_attempt() -> bool:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() == 0


class _Executors:
    """Watches whether a cluster gives any executors. Without one Spark waits, and only its log would say so."""

    def __init__(self, context: SparkContext) -> None:
        self._status: Any = context._jsc.sc()
        self._patience = float(context.getConf().get(EXECUTOR_WAIT) or _EXECUTOR_WAIT)
        self._seen = self._looked = time.monotonic()

    def look(self) -> None:
        """EngineError where there has been none for too long."""
        now = time.monotonic()
        if now - self._looked < 1:
            return
        self._looked = now
        if self._status.getExecutorMemoryStatus().size() > 1:  # one of them is the driver
            self._seen = now
        elif now - self._seen > self._patience:
            raise EngineError(
                f"the cluster has given no executor for {self._patience:.0f} seconds",
                hint="see whether it has workers with free cores and memory, and ask for less: --conf "
                f"spark.executor.memory=1g --conf spark.executor.cores=1; or wait longer: --conf {EXECUTOR_WAIT}=3600",
            )


def _errors_parameter() -> Any:
    """How Spark brings together the errors of tasks."""
    from pyspark.accumulators import AccumulatorParam

    class Errors(AccumulatorParam[list[RmqctlError]]):
        def zero(self, value: list[RmqctlError]) -> list[RmqctlError]:
            return []

        def addInPlace(self, value1: list[RmqctlError], value2: list[RmqctlError]) -> list[RmqctlError]:  # noqa: N802
            return value1 + value2

    return Errors()


def _in_a_sentence(error: Exception) -> EngineError | None:
    """A failed job's error as one of the family, where it is Spark's failure and no bug of a task."""
    text = str(error)
    if "SparkException" not in text or "Traceback (most recent call last)" in text:
        return None
    found = re.search(r"SparkException: (.{1,300}?)(?:\n|$)", text)
    return EngineError(
        f"Spark gave up: {found[1] if found else text[:300]}",
        hint="look at the executors' logs; the command left nothing half done and can be run again",
    )
