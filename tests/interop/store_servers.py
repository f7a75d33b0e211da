"""Real servers of stores, one that speaks as S3 does and HDFS, and a cluster for Spark: YARN."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.harness import SMALL_JVM
from tests.interop.toolchain import Toolchain, Unavailable, store_server
from tests.processes import start

IDENTITY, CREDENTIAL, BUCKET = "an-identity", "a-credential", "bucket"
_SECONDS = 240
# what Hadoop's own scripts say to newer Javas
_HADOOP_JVM = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """S3Proxy over a folder, with one bucket; its endpoint. Skips where it cannot be run."""
    tools = _tools("s3")
    (folder / "data" / BUCKET).mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    settings = {
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.endpoint": endpoint,
        "s3proxy.identity": IDENTITY,
        "s3proxy.credential": CREDENTIAL,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.identity": "x",
        "jclouds.credential": "x",
        "jclouds.filesystem.basedir": str(folder / "data"),
    }
    conf = folder / "s3proxy.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="ascii")
    command = [tools.java, *SMALL_JVM, "-cp", tools.classpath, "org.gaul.s3proxy.Main", "--properties", conf]
    with _running(command, folder / "s3.log", stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + _SECONDS
        host, port = endpoint.removeprefix("http://").split(":")
        while True:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                break
            assert process.poll() is None, (folder / "s3.log").read_text()
            assert time.monotonic() < end, (folder / "s3.log").read_text()
            time.sleep(0.1)
        yield endpoint


@contextlib.contextmanager
def hdfs(folder: Path, *copied: tuple[Path, str]) -> Iterator[tuple[int, int, Toolchain]]:
    """A name node and a data node that hold copies of folders: the port of WebHDFS, that of Hadoop's own protocol, and
    what runs them. Skips where they cannot be run."""
    tools = _tools("hdfs")
    # Hadoop looks for its web pages on the class path, and does not start without
    for name in ("hdfs", "datanode"):
        (folder / "web" / "webapps" / name).mkdir(parents=True)
    pairs = [str(text) for pair in copied for text in pair]
    classpath = f"{folder / 'web'}:{tools.classpath}"
    command = [tools.java, *SMALL_JVM, *_HADOOP_JVM, "-cp", classpath, "Hdfs", folder / "hdfs", *pairs]
    with _running(command, folder / "hdfs.log", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        while line and not line.startswith("PORTS "):
            line = process.stdout.readline()
        assert line, (folder / "hdfs.log").read_text()
        web, own = map(int, line.split()[1:])
        yield web, own, tools


@contextlib.contextmanager
def yarn(folder: Path, java_home: Path) -> Iterator[Path]:
    """A resource manager and a node manager of YARN, whose containers run `java_home`: a folder with what clients ask
    for. Skips where they cannot be run."""
    tools = _tools("yarn")
    command = ["env", f"JAVA_HOME={java_home}", tools.java, *SMALL_JVM, *_HADOOP_JVM, "-cp", tools.classpath]
    command += ["Yarn", folder / "yarn"]
    (folder / "yarn").mkdir(parents=True)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with _running(command, folder / "yarn.log", seconds=2 * _SECONDS, **pipes) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        while line and line != "READY\n":
            line = process.stdout.readline()
        assert line, (folder / "yarn.log").read_text()
        yield folder / "yarn"


@contextlib.contextmanager
def _running(command: list[Any], log: Path, seconds: float = _SECONDS, **pipes: Any) -> Iterator[subprocess.Popen[Any]]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as errors, start(command, seconds=seconds, stderr=errors, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def _tools(kind: str) -> Toolchain:
    try:
        return store_server(kind)
    except Unavailable as reason:
        pytest.skip(str(reason))
