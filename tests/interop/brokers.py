"""A whole real broker over a store, and RocketMQ's own mqadmin and consumers against it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.interop.toolchain import Toolchain, broker, clients, run
from tests.processes import start

BROKERS = ("5.3.3", "4.9.7")
"""Versions of which there is a whole broker to be had: of 4.9.8 Maven Central has the store alone."""
CLIENTS = "5.3.3"
SECONDS = 180
_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
# nothing is cleaned, however old the store and however full the disk is
_NOTHING_GOES = {"store.fileReservedTime": "1000000", "store.diskMaxUsedSpaceRatio": "95"}


@contextlib.contextmanager
def running(version: str, store: Path, properties: Mapping[str, str]) -> Iterator[str]:
    """A broker over `store`, and the address of its name server; it is shut down in the end, as a person would."""
    tools = broker(version)
    namesrv, port = _ports()
    given = store.parent / f"{store.name}-broker.properties"
    settings = {name: value for name, value in properties.items() if name.startswith(("store.", "broker."))}
    given.write_text(
        "".join(f"{name}={value}\n" for name, value in (settings | _NOTHING_GOES).items()), encoding="ascii"
    )
    log = store.parent / f"{store.name}-broker.log"
    home = [f"-Duser.home={store.parent}", f"-Djava.io.tmpdir={store.parent}"]
    modules = [
        word
        for name in ("java.nio", "sun.nio.ch", "java.lang", "java.util")
        for word in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")
    ]
    modules += ["--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED"]  # with which 4.x unmaps files
    command = [str(tools.java), *_OPTIONS, *modules, *home, "-cp", tools.classpath, "rmqctl.broker.Broker"]
    command += [str(store), str(given), str(namesrv), str(port)]
    with (
        log.open("w") as errors,
        start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if line == "ready\n":
                break
        else:
            raise AssertionError(f"the broker did not come up: {log.read_text()[-2000:]}")
        yield f"127.0.0.1:{namesrv}"
        told, _ = process.communicate("", timeout=SECONDS)
        assert told.endswith("ended\n"), log.read_text()[-2000:]


def mqadmin(version: str, folder: Path, *lines: str) -> str:
    """What the mqadmin of that version says to some command lines: a newer one asks what an older broker does not
    know."""
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "logback_tools.xml").write_text("<configuration/>", encoding="ascii")  # without which 4.x does nothing
    return _java(broker(version), folder, "Admin", *lines)


def consumed(folder: Path, namesrv: str, topic: str, group: str, count: int) -> list[tuple[int, str]]:
    """Physical offset and SHA-256 of the body of `count` messages that a push consumer of `group` gets."""
    told = _java(clients(CLIENTS), folder, "Consume", namesrv, "push", topic, group, "*", str(count))
    rows = [line.split("\t") for line in told.splitlines() if line.startswith("message\t")]
    return [(int(row[3]), row[4]) for row in rows]


def _java(tools: Toolchain, folder: Path, main: str, *arguments: str) -> str:
    options = [*_OPTIONS, f"-Duser.home={folder}", f"-Djava.io.tmpdir={folder}", f"-Drocketmq.home.dir={folder}"]
    done = run([tools.java, *options, "-cp", tools.classpath, f"rmqctl.clients.{main}", *arguments], SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _ports() -> tuple[int, int]:
    """A free port for the name server, and one for the broker with the two others free that it takes beside it."""
    while True:
        with contextlib.ExitStack() as held:
            try:
                first, port = (_bound(held, 0) for _ in range(2))
                _bound(held, port - 2)
                _bound(held, port + 1)
            except OSError:
                continue
            return first, port


def _bound(held: contextlib.ExitStack, port: int) -> int:
    server = held.enter_context(socket.socket())
    server.bind(("127.0.0.1", port))
    number: int = server.getsockname()[1]
    return number
