"""A real Spark cluster on this machine, from the wheel: a master and one-core workers, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pyspark

from rmqctl.pipeline.spark.session import find_java, java_home_for_spark
from tests.processes import SHORT_LIVED_JVM

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_PATIENCE = 240.0


def wait_for(what: Callable[[], bool], seconds: float = _PATIENCE) -> None:
    """Until `what` is so; AssertionError after some time."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


class Cluster:
    """`with Cluster(folder, 2) as cluster`: started, and all workers registered; everything is killed at the end."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._count = workers
        self._started = 0
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self.url = ""

    def __enter__(self) -> Cluster:
        self._folder.mkdir()
        try:
            self._start()
        except BaseException:
            self._kill_all()
            raise
        return self

    def _start(self) -> None:
        self._master = self._launch("master", "org.apache.spark.deploy.master.Master", "--webui-port", "0")
        wait_for(lambda: "Starting Spark master at spark://" in self._log())
        found = re.search(r"Starting Spark master at (spark://\S+)", self._log())
        assert found is not None
        self.url = found[1]
        self.fill()

    def _log(self) -> str:
        return (self._folder / "master.log").read_text()

    def fill(self) -> None:
        """Start workers in the place of those that were killed."""
        while len(self._workers) < self._count:
            number = self._started
            self._started += 1
            self._workers[number] = self._launch(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker", "--webui-port", "0", "--cores", "1",
                "--memory", "1g", "--work-dir", str(self._folder / f"work-{number}"), self.url,
            )  # fmt: skip
        wait_for(lambda: self._log().count("Registering worker") >= self._started)

    def _launch(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = self._folder / f"{name}.log"
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home_for_spark(find_java(), self._folder)),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            # of executors, too: what they leave when they are killed
            "JAVA_TOOL_OPTIONS": f"{' '.join(SHORT_LIVED_JVM)} -Djava.io.tmpdir={self._folder}",
        }
        with log.open("wb") as output:
            return subprocess.Popen(
                [_SPARK_CLASS, main, "--host", "127.0.0.1", "--port", "0", *arguments],
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def has_executors(self) -> bool:
        """Whether every worker has started an executor for the application that came last."""
        latest = max((path.name for path in self._folder.glob("work-*/app-*")), default=None)
        return latest is not None and all(
            any((self._folder / f"work-{number}" / latest).glob("*/stderr")) for number in self._workers
        )

    def processes_of_executors(self) -> list[int]:
        """Executors, and the Pythons that they started."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    folder = (entry / "cwd").readlink()
                    if folder.is_relative_to(self._folder) and "/app-" in str(folder):
                        found.append(int(entry.name))
        return found

    def kill_a_worker(self) -> None:
        """SIGKILL to a worker and its executor, as when the machine goes off."""
        _kill(self._workers.pop(min(self._workers)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill_all()

    def _kill_all(self) -> None:
        for process in (*self._workers.values(), *([self._master] if self._master is not None else [])):
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
