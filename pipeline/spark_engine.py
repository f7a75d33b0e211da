"""Runs Spark jobs in a thread of their own, so that progress can be shown and Ctrl-C answered.

The thread that waits does not talk to the JVM meanwhile: Ctrl-C in the middle of a call would leave an answer behind
that the next call of the same thread takes for its own. Calls that it has to make are `uninterrupted`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rmqctl.formats.errors import EngineError, RmqctlError, UsageError
from rmqctl.store.files.background import uninterrupted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OnDone = Callable[[int], None]
_Result = TypeVar("_Result")

# seconds: how long is waited at a time, how often the job is looked at, and how long a cancelled one may take to end
_PATIENCE, _LOOKED_EVERY, _FAREWELL = 0.1, 0.2, 10.0
_GONE = "Spark has ended in the middle of the job"
_GONE_HINT = "its driver may have run out of memory: give it more with --conf spark.driver.memory=4g"


def run_job(
    session: SparkSession,
    name: str,
    work: Callable[[], _Result],
    on_done: _OnDone | None = None,
    look: Callable[[], None] | None = None,
) -> _Result:
    """`work` with all the Spark jobs that it starts; what it raises is raised here. `name` is for people.

    `on_done` gets how many more tasks have ended well. `look` is called from time to time, in another thread; what it
    raises is raised here, too. Then, and after Ctrl-C, the jobs are cancelled. EngineError if Spark is gone.
    """
    try:
        return _run(session.sparkContext, name, work, on_done, look)
    except Exception as error:
        if (isinstance(error, RmqctlError) and not isinstance(error, EngineError)) or not _is_gone(session):
            raise
        raise EngineError(_GONE, hint=_GONE_HINT) from error


def _is_gone(session: SparkSession) -> bool:
    """Whether the JVM of the session has ended. What it was asked may have failed a moment before."""
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
    if process is None:
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE)
    return process.returncode is not None


def _run(
    context: Any, name: str, work: Callable[[], _Result], on_done: _OnDone | None, look: Callable[[], None] | None
) -> _Result:
    group = f"rmqctl-{uuid.uuid4()}"
    thread = _Thread(work)
    watch = _Watch(look)
    told = 0
    try:
        with uninterrupted():
            thread.start(context, group, name)
            if on_done is not None or look is not None:
                watch.start(context, group)
        while not thread.ended.wait(_PATIENCE):
            if watch.error is not None:
                raise watch.error
            if not thread.is_alive():
                break
            done = watch.done
            if on_done is not None and done > told:
                on_done(done - told)
                told = done
    except BaseException:
        with uninterrupted():
            _cancel(context, group)
        thread.ended.wait(_FAREWELL)
        raise
    finally:
        watch.end()
    return thread.result()


def _cancel(context: Any, group: str) -> None:
    """End the jobs of a group, those too that its thread is just about to start."""
    # a JVM that is gone has no jobs any more
    with unanswered():
        context._jsc.sc().cancelJobGroupAndFutureJobs(group)


def unanswered() -> contextlib.AbstractContextManager[None]:
    """Passes over the errors of a JVM that does not answer any more, or of a context that has let go of it."""
    from py4j.protocol import Py4JError

    return contextlib.suppress(Py4JError, OSError, AttributeError)


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
    """Counts tasks, and calls `look`, in a thread of its own."""

    def __init__(self, look: Callable[[], None] | None) -> None:
        self._look = look
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.done = 0
        self.error: BaseException | None = None

    def start(self, context: Any, group: str) -> None:
        from pyspark import InheritableThread

        def run() -> None:
            while not self._ended.wait(_LOOKED_EVERY):
                # a JVM that is gone answers nothing; the thread that works will say so
                with unanswered():
                    self.done = max(self.done, completed_tasks(context, group))
                try:
                    if self._look is not None:
                        self._look()
                except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
                    self.error = error
                    return

        thread = InheritableThread(target=run, daemon=True)
        thread.start()
        self._thread = thread

    def end(self) -> None:
        """Stop all calls of `look`; none is running when this returns, because the caller may stop the session next."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_FAREWELL)


class _Thread(Generic[_Result]):
    """The thread, and what came of it. `ended`: it works no longer, or not yet."""

    def __init__(self, work: Callable[[], _Result]) -> None:
        self._work = work
        self._results: list[_Result] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self.ended = threading.Event()
        self.ended.set()

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

        # both ask the JVM, which may be gone
        thread = InheritableThread(target=run, daemon=True)
        self.ended.clear()
        try:
            thread.start()
        except BaseException:
            self.ended.set()
            raise
        self._thread = thread

    def is_alive(self) -> bool:
        """Whether it can still end: it dies where it cannot even tell the JVM that it is there."""
        return self._thread is not None and self._thread.is_alive()

    def result(self) -> _Result:
        if self._error is not None:
            raise self._error
        if not self._results:
            raise EngineError(_GONE, hint=_GONE_HINT)
        return self._results[0]


# What a Spark session knows of servers (Hadoop's settings) in the words of fsspec.

_PREFIXES = ("fs.s3a.", "dfs.namenode.http-address")
_SPARK = "spark.hadoop."
_S3 = {"fs.s3a.access.key": "key", "fs.s3a.secret.key": "secret", "fs.s3a.session.token": "token"}
_SECURE = "fs.s3a.connection.ssl.enabled"
_ANONYMOUS = "AnonymousAWSCredentialsProvider"


def storage_options(settings: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """fsspec's options by scheme (`s3`, `webhdfs`), of settings of Hadoop; {} where they say nothing of servers.

    Roles of a machine, profiles and what else a chain of providers finds need no setting: botocore looks there, too.
    """
    s3: dict[str, Any] = {name: settings[key] for key, name in _S3.items() if settings.get(key)}
    if settings.get("fs.s3a.endpoint"):
        endpoint = settings["fs.s3a.endpoint"]
        scheme = "http" if settings.get(_SECURE, "true").lower() == "false" else "https"
        s3["endpoint_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if settings.get("fs.s3a.endpoint.region"):
        s3["client_kwargs"] = {"region_name": settings["fs.s3a.endpoint.region"]}
    if settings.get("fs.s3a.path.style.access", "").lower() == "true":
        s3["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    if _ANONYMOUS in settings.get("fs.s3a.aws.credentials.provider", ""):
        s3["anon"] = True
    found = {"s3": s3} if s3 else {}
    port = settings.get("dfs.namenode.http-address", "").rpartition(":")[2]
    if port.isdigit() and port != "0":
        found["webhdfs"] = {"port": int(port)}
    return found


def conf_storage_options(conf: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The same of settings of Spark, of which Hadoop's begin with spark.hadoop."""
    return storage_options({name.removeprefix(_SPARK): text for name, text in conf.items() if name.startswith(_SPARK)})


def session_storage_options(session: SparkSession) -> dict[str, dict[str, Any]]:
    """The same of a session, its core-site.xml included."""
    context: Any = session.sparkContext
    found = {}
    iterator = context._jsc.hadoopConfiguration().iterator()
    while iterator.hasNext():
        entry = iterator.next()
        name = str(entry.getKey())
        if name.startswith(_PREFIXES):
            found[name] = str(entry.getValue())
    return storage_options(found)


def session_options(session: SparkSession) -> str:
    """The same as the data source's option `storage_options`."""
    return json.dumps(session_storage_options(session))


def parse_storage_options(text: str) -> dict[str, dict[str, Any]]:
    """The same of JSON: {"s3": {"endpoint_url": …}}. UsageError for an invalid one."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise UsageError(
            "storage_options are no JSON object of objects", hint='as {"s3": {"endpoint_url": "http://…"}}'
        )
    return found
