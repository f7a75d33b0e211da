"""Work on Spark that somebody waits for: in a thread of its own, so that progress can be told and Ctrl-C answered.

The thread that waits does not talk to the JVM meanwhile: Spark's own answer to Ctrl-C does, on the same connection, and
in the middle of another call both would read the wrong answers.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Result = TypeVar("_Result")
OnDone = Callable[[int], None]

# seconds: how long is waited at a time, how often the job is looked at, and how long a cancelled one may take to end
_PATIENCE, _LOOKED_EVERY, _FAREWELL = 0.1, 0.2, 10.0


def run_job(
    session: SparkSession,
    name: str,
    work: Callable[[], _Result],
    on_done: OnDone | None = None,
    look: Callable[[], None] | None = None,
) -> _Result:
    """`work` with all the Spark jobs that it starts; what it raises is raised here. `name` is for people.

    `on_done` is told how many more tasks have ended well. `look` is called from time to time, in another thread; what
    it raises is raised here, too. Then, and after Ctrl-C, the jobs are cancelled.
    """
    context: Any = session.sparkContext
    group = f"rmqctl-{uuid.uuid4()}"
    thread = _Thread(work)
    watch = _Watch(look)
    told = 0
    try:
        with _uninterrupted():
            thread.start(context, group, name)
            if on_done is not None or look is not None:
                watch.start(context, group, thread.ended)
        while not thread.ended.wait(_PATIENCE):
            if watch.error is not None:
                raise watch.error
            done = watch.done
            if on_done is not None and done > told:
                on_done(done - told)
                told = done
    except BaseException:
        with _uninterrupted():
            context.cancelJobGroup(group)
        thread.ended.wait(_FAREWELL)
        raise
    return thread.result()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until this is done: starting a thread copies the properties of this one, which asks the JVM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


def completed_tasks(context: Any, group: str) -> int:
    """Tasks of a job group that have ended well."""
    tracker = context.statusTracker()
    done = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            stage_info = tracker.getStageInfo(stage)
            done += stage_info.numCompletedTasks if stage_info is not None else 0
    return done


class _Watch:
    """Counts tasks, and looks whatever else there is to look at, in a thread of its own."""

    def __init__(self, look: Callable[[], None] | None) -> None:
        self._look = look
        self.done = 0
        self.error: BaseException | None = None

    def start(self, context: Any, group: str, ended: threading.Event) -> None:
        from pyspark import InheritableThread

        def run() -> None:
            while not ended.wait(_LOOKED_EVERY):
                self.done = max(self.done, completed_tasks(context, group))
                try:
                    if self._look is not None:
                        self._look()
                except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
                    self.error = error
                    return

        InheritableThread(target=run, daemon=True).start()


class _Thread(Generic[_Result]):
    """The thread, and what came of it."""

    def __init__(self, work: Callable[[], _Result]) -> None:
        self._work = work
        self._results: list[_Result] = []
        self._error: BaseException | None = None
        self.ended = threading.Event()

    def start(self, context: Any, group: str, name: str) -> None:
        from pyspark import InheritableThread

        def run() -> None:
            try:
                context.setJobGroup(group, name, interruptOnCancel=True)
                self._results.append(self._work())
            except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
                self._error = error
            finally:
                self.ended.set()

        InheritableThread(target=run, daemon=True).start()

    def result(self) -> _Result:
        if self._error is not None:
            raise self._error
        return self._results[0]
