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

from pipeline.java import find_java, java_home_for_spark

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_PATIENCE = 90.0


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
        self._processes: list[subprocess.Popen[bytes]] = []
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
        log = self._launch("master", "org.apache.spark.deploy.master.Master", "--webui-port", "0")
        wait_for(lambda: "Starting Spark master at spark://" in log.read_text())
        found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
        assert found is not None
        self.url = found[1]
        for number in range(self._count):
            self._launch(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker", "--webui-port", "0", "--cores", "1",
                "--memory", "1g", "--work-dir", str(self._folder / f"work-{number}"), self.url,
            )  # fmt: skip
        wait_for(lambda: log.read_text().count("Registering worker") >= self._count)

    def _launch(self, name: str, main: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home_for_spark(find_java(), self._folder)),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    [_SPARK_CLASS, main, "--host", "127.0.0.1", "--port", "0", *arguments],
                    env=environment,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )
        return log

    def has_executor(self, number: int) -> bool:
        """Whether a worker has started an executor."""
        return any((self._folder / f"work-{number}").glob("app-*/*/stderr"))

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a worker and its executor, as when the machine goes off."""
        process = self._processes[1 + number]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill_all()

    def _kill_all(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
