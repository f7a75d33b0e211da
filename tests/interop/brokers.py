"""Runs the real name server and broker as a process of its own, and our and RocketMQ's clients against it."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqctl.network.broker.tables import DEFAULT_TOPIC
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RequestCode
from tests.interop.harness import SMALL_JVM, java_command
from tests.interop.toolchain import BROKERS, SOURCES, Toolchain, Unavailable, clients, proxy, run, servers
from tests.network.callers import with_header
from tests.processes import LIMIT, SHORT_LIVED_JVM, start
from tests.rmqctl.looking import run as run_here

SECONDS = 240
# what a test's store needs, and not a gigabyte of it
SMALL = {
    "mappedFileSizeCommitLog": "4194304",
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "flushDiskType": "ASYNC_FLUSH",
    "autoCreateTopicEnable": "true",
    "transactionCheckInterval": "1500",
    "transactionTimeOut": "1000",
}


@dataclass
class RealBroker:
    """A running name server and broker of RocketMQ, what they log, and where its proxy listens if it has one."""

    namesrv: str
    broker: str
    process: subprocess.Popen[str]
    log: Path
    grpc: str = ""


@contextlib.contextmanager
def real_broker(
    version: str,
    folder: Path,
    store: Path,
    settings: Mapping[str, str],
    *,
    shut_down: bool = False,
    seconds: float = LIMIT,
) -> Iterator[RealBroker]:
    """Name server and broker of `version` over `store`, at free ports; killed in the end or after `seconds`, unless
    they are to be `shut_down`, which takes seconds. `settings`: a broker.conf.

    Skips where they cannot be run.
    """
    tools = skipping(servers, version)
    with running_broker(tools, folder, store, {**SMALL, **settings}, shut_down=shut_down, seconds=seconds) as running:
        yield running


@contextlib.contextmanager
def real_proxy(folder: Path, store: Path, settings: Mapping[str, str]) -> Iterator[RealBroker]:
    """The newest broker with its proxy in one process; `proxy.NAME` are settings of the proxy. Skips where it cannot be
    run."""
    tools = skipping(proxy, BROKERS[0])
    with running_broker(tools, folder, store, {**SMALL, **settings}, main="Proxy") as running:
        yield running


@contextlib.contextmanager
def running_broker(
    tools: Toolchain,
    folder: Path,
    store: Path,
    settings: Mapping[str, str],
    *,
    jvm: Sequence[str] = SMALL_JVM,
    shut_down: bool = False,
    seconds: float = LIMIT,
    main: str = "Serve",
) -> Iterator[RealBroker]:
    """The same with all of the settings given, and options of the JVM; killed after `seconds`."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [*serve_command(tools, folder, store, settings, jvm)]
    command[command.index("rmqctl.servers.Serve")] = f"rmqctl.servers.{main}"
    log = folder / "real.log"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with log.open("w") as errors, start(command, seconds=seconds, stderr=errors, **pipes) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            while line and not line.startswith("127.0.0.1:"):
                line = process.stdout.readline()
            assert line, log.read_text()
            namesrv, broker, *grpc = line.split()
            _wait_for_routes(namesrv, log)
            yield RealBroker(namesrv, broker, process, log, *grpc)
            if shut_down:
                process.communicate("stop\n", timeout=SECONDS)
                assert process.returncode == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.kill()


def serve_command(
    tools: Toolchain, folder: Path, store: Path, settings: Mapping[str, str], jvm: Sequence[str] = SMALL_JVM
) -> list[str | Path]:
    """What starts a broker of RocketMQ over `store` (servers/Serve.java), which keeps in `folder` what is not the
    store's; `settings`: its broker.conf."""
    conf = folder / "real.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="ascii")
    main: list[str | Path] = ["rmqctl.servers.Serve", folder / "home", store, conf]
    return [*java_command(tools, folder, jvm=jvm), *main]


def _wait_for_routes(namesrv: str, log: Path) -> None:
    """A broker registers its topics a little later than it starts; this one it has always."""
    client = Client(namesrv)
    end = time.monotonic() + SECONDS
    while client.route(DEFAULT_TOPIC, anew=True) is None:
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)


def create_topic(namesrv: str, broker: str, topic: str, queues: int = 4) -> None:
    """Have a topic at the broker, and wait until clients find it."""
    client = Client(namesrv)
    fields: dict[str, Any] = {"topic": topic, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
    fields |= {"topicFilterType": "SINGLE_TAG", "defaultTopic": DEFAULT_TOPIC, "topicSysFlag": 0, "order": False}
    client.ask(broker, *with_header(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
    end = time.monotonic() + SECONDS
    while client.route(topic, anew=True) is None:
        assert time.monotonic() < end
        time.sleep(0.2)
    client.close()


def skipping(tools: Any, version: str) -> Toolchain:
    """Return what `tools` has for a version; skip the test where the machine lacks something."""
    try:
        found = tools(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert isinstance(found, Toolchain)
    return found


def java(version: str, folder: Path, main: str, *arguments: str, **properties: str) -> list[str]:
    """The lines that a class of tests/interop/java/clients printed; for the version of a broker that has no clients
    here, those of its own line. `properties`: system properties, `_` for a dot."""
    tools = skipping(clients, "4.9.8" if version == "4.9.7" else version)
    return _lines(tools, folder, main, *arguments, **properties)


def _lines(tools: Toolchain, folder: Path, main: str, *arguments: str, **properties: str) -> list[str]:
    options = [*SHORT_LIVED_JVM, f"-Duser.home={folder}", f"-Djava.io.tmpdir={folder}"]
    options += [f"-D{name.replace('_', '.')}={value}" for name, value in properties.items()]
    done = run([tools.java, *options, "-cp", tools.classpath, f"rmqctl.clients.{main}", *arguments], SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def mqadmin(version: str, folder: Path, namesrv: str, *commands: str) -> list[list[str]]:
    """What mqadmin of a broker's version printed of each command, without empty lines."""
    lines = [f"{command} -n {namesrv}" for command in commands]
    told: list[list[str]] = []
    # 4.x does nothing without it
    logging = folder / "conf" / "logback_tools.xml"
    logging.parent.mkdir(exist_ok=True)
    shutil.copyfile(SOURCES / "logback.xml", logging)
    for text in _lines(skipping(servers, version), folder, "Admin", *lines, rocketmq_home_dir=str(folder)):
        if text.startswith("== "):
            told.append([])
        # logback may tell of itself on standard output
        elif told and text.strip() and " |-" not in text:
            told[-1].append(text)
    assert len(told) == len(commands)
    return told


def rmqctl(*arguments: str, given: str | None = None, code: int | None = 0) -> list[Any]:
    """The JSON lines that a command of ours printed, run in this process with `given` on standard input; it has to end
    with `code`, if not None."""
    with pytest.MonkeyPatch.context() as patch:
        if given is not None:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        done = run_here(*arguments, "--json")
    assert code in (None, done.code), done.out + done.err
    return done.objects
