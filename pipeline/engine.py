"""Engines: the same idempotent task over many items, in processes of this machine or on Spark's executors."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import pickle
import re
import selectors
import struct
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar

from rmqctl.formats.errors import EngineError, RmqctlError, UnreadableError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.lock import own_workers
from rmqctl.store.files.outputs import remove_for_good
from rmqctl.store.files.remote_file_system import storage_options, use_storage_options

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

# Processes of this machine that carry out tasks: started as plain Pythons, ended with whoever started them.
#
# Not the pool of the standard library: its workers take Ctrl-C for themselves, start by importing the caller's main
# module, and live on when the caller is killed.
#
# Workers are kept from one job to the next: to start one and to load its kernels takes half a second of a processor,
# as much as 300 MB of log take.

_LENGTH = struct.Struct("<Q")
# what an order to a worker begins with
_TASK, _ITEM = b"T", b"I"
# a worker collects garbage as rarely as its parent process
_START = (
    "import gc, sys, pickle; sys.path[:] = {path!r}; gc.set_threshold(*{threshold}); "
    "from rmqctl.pipeline.engine import work; work()"
)


class _Worker:
    """One process. `number` is the item that it works on."""

    def __init__(self) -> None:
        program = _START.format(path=sys.path, threshold=gc.get_threshold())
        # a process group of its own: Ctrl-C at the terminal is for the caller, who then ends the workers
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
        self.number = -1
        own_workers.add(self.process.pid)
        self.stdout = _stream(self.process.stdout)
        self._stdin = _stream(self.process.stdin)

    def take_on(self, task: bytes) -> None:
        """From now on items are for this task, pickled."""
        _send(self._stdin, _TASK + task)

    def give(self, number: int, item: Any) -> None:
        """Let it do the task for an item."""
        self.number = number
        _send(self._stdin, _ITEM + pickle.dumps(item))

    def answer(self) -> Any:
        """Wait for the result, and return it. The error of the task is raised."""
        data = _receive(self.stdout)
        if data is None:
            code = self.process.wait()
            raise UnreadableError(
                f"a worker process ended unexpectedly ({'signal' if code < 0 else 'exit code'} {abs(code)})",
                hint="it may have run out of memory: try again with fewer processes",
            )
        went_well, found = pickle.loads(data)
        if not went_well:
            raise found
        return found

    def end(self) -> None:
        """End it, in the middle of its work if need be."""
        self.process.kill()
        self._stdin.close()
        self.stdout.close()
        self.process.wait()
        own_workers.discard(self.process.pid)


class Workers:
    """Processes that wait for work; `end` them."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []

    def __len__(self) -> int:
        return len(self._idle)

    def end(self) -> None:
        """End those that wait."""
        while self._idle:
            self._idle.pop().end()

    def run(
        self, task: Callable[[Any], Any], items: Sequence[Any], processes: int, on_done: Callable[[int], None] | None
    ) -> list[Any]:
        """Run `task` for each item, in the order of the items, by at most `count` processes, and no more than there are
        items; missing ones are started. The first error ends all of them. See Engine.run."""
        packed = pickle.dumps(task)
        taken: list[_Worker] = []
        try:
            for _ in range(min(processes, len(items))):
                # one that is at work is not among the idle: an error ends those of its own job only
                taken.append(self._idle.pop() if self._idle else _Worker())
                taken[-1].take_on(packed)
            results = _by_workers(taken, items, on_done)
        except BaseException:
            for worker in taken:
                worker.end()
            raise
        self._idle += taken
        return results


@contextlib.contextmanager
def beside(task: Callable[[Any], Any], item: Any) -> Iterator[Callable[[], Any]]:
    """Run `task` of `item` in a process of its own while the block runs; gives what waits for the result, and raises
    the error of the task. The process ends with the block."""
    worker = _Worker()
    try:
        worker.take_on(pickle.dumps(task))
        worker.give(0, item)
        yield worker.answer
    finally:
        worker.end()


def _by_workers(workers: Sequence[_Worker], items: Sequence[Any], on_done: Callable[[int], None] | None) -> list[Any]:
    waiting = deque(enumerate(items))
    results: list[Any] = [None] * len(items)
    missing = len(items)
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.stdout, selectors.EVENT_READ, worker)
            worker.give(*waiting.popleft())
        while missing:
            for key, _ in selector.select():
                worker = key.data
                results[worker.number] = worker.answer()
                missing -= 1
                if on_done is not None:
                    on_done(1)
                if waiting:
                    worker.give(*waiting.popleft())
                else:
                    selector.unregister(worker.stdout)
    return results


def work() -> None:
    """The life of a worker: orders from stdin, answers to stdout, until its caller is gone, however it went."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints must not get between the answers
    own_workers.add(os.getppid())
    orders = sys.stdin.buffer
    todo: deque[bytes] = deque()
    there = threading.Semaphore(0)

    def listen() -> None:
        # not the working thread: it must end in the middle of its work when the caller is gone
        while (data := _receive(orders)) is not None:
            todo.append(data)
            there.release()
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    task = b""
    while True:
        there.acquire()
        order = todo.popleft()
        if order.startswith(_TASK):
            task = order[len(_TASK) :]
        else:
            _send(answers, _answer(task, order[len(_ITEM) :]))


@functools.lru_cache(1)
def _task(packed: bytes) -> Callable[[Any], Any]:
    """The task, made once for all of its items."""
    task: Callable[[Any], Any] = pickle.loads(packed)
    return task


def _answer(task: bytes, item: bytes) -> bytes:
    try:
        return pickle.dumps((True, _task(task)(pickle.loads(item))))
    except RmqctlError as error:
        return pickle.dumps((False, error))
    except Exception as error:  # noqa: BLE001 - a bug is told where the command's other bugs are
        error.add_note("in a worker process")
        try:
            return pickle.dumps((False, error))
        except Exception:  # noqa: BLE001 - an error that cannot travel: its text can
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def _send(stream: IO[bytes], data: bytes) -> None:
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes | None:
    """The next piece; None when the other end is gone."""
    head = _exactly(stream, _LENGTH.size)
    return None if head is None else _exactly(stream, _LENGTH.unpack(head)[0])


def _exactly(stream: IO[bytes], length: int) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        piece = stream.read(length - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _stream(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


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
        self, name: str, task: Callable[[Item], Result], items: Sequence[Item], on_done: OnDone | None = None
    ) -> list[Result]:
        """`task` of each item; the results in the order of the items.

        A task is a function of a module, or a functools.partial of one, and idempotent: it may run twice, also at the
        same time, and one of its results counts. `on_done` gets how many items more are done; `name` is for people. An
        error of the family that a task raises arrives here as it was; no other result does then. After Ctrl-C the tasks
        are stopped.
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
        self, name: str, task: Callable[[Item], Result], items: Sequence[Item], on_done: OnDone | None = None
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
        """Return whether that many items are left to processes."""
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
        self, name: str, task: Callable[[Item], Result], items: Sequence[Item], on_done: OnDone | None = None
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
        from rmqctl.pipeline.spark_engine import run_job
        from rmqctl.store.files.background import uninterrupted

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
        f"Spark failed: {found[1] if found else text[:300]}",
        hint="look at the executors' logs; no partial output is left: run the command again after fixing the cause",
    )


# Folders for what a job has not finished: workers put their attempts there, the driver takes what counts.
#
# A worker that was given up may write a moment longer. It never makes a folder's parents, so once the folder is gone
# nothing of it can come back.


def attempt(folder: Path, name: str) -> Path:
    """A path below `folder` that no other attempt at the same work has, on this machine or another."""
    return folder / f"{name}.{uuid.uuid4().hex}"


@contextlib.contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Create `folder` again, for this block only."""
    remove_for_good(folder)
    io.make_directories(folder)
    try:
        yield folder
    finally:
        remove_for_good(folder)


# Python's collector of circular garbage, kept out of work that makes many objects which live, and no circles.
#
# Each collection looks through all that was made before: of a check of 10,000 queues by tasks that was a quarter of
# the processor time.


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """No collections meanwhile, in any thread, afterwards as before. What is in no circle goes at once, as ever."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # whoever came while it was off leaves it off: the one who switched it off brings it back
        if was_enabled:
            gc.enable()
