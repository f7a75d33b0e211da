"""Clients of RocketMQ, unmodified, at the real proxy or broker and at ours: what ours is held against."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.anyday.at_a_date import shifted_by
from tests.interop.brokers import SMALL, real_broker, real_proxy, skipping
from tests.interop.toolchain import BROKERS, SOURCES, HarnessError, cache_folder, clients_with
from tests.interop.toolchain import run as run_process
from tests.network.grpc.requests import ANSWERS, SETTINGS, Raw, answers, create, create_group, create_typed, written
from tests.network.grpc.script import run
from tests.network.serving import serving
from tests.processes import SHORT_LIVED_JVM

pytestmark = pytest.mark.interop

CLIENTS = Path(__file__).with_name("grpc_clients")
REMOTING = Path(__file__).with_name("remoting_clients")
SECONDS = 240
NODE_CLIENT = "rocketmq-client-nodejs@1.0.8"
CPP_CLIENT = "rocketmq==0.4.4"
TOPICS = {
    "plain": "NORMAL",
    "seen": "NORMAL",
    "fifo": "FIFO",
    "delay": "DELAY",
    "tx": "TRANSACTION",
    "pushed": "NORMAL",
}
TOPICS |= {"pushed": "NORMAL", "pushed-fifo": "FIFO", "large": "NORMAL"}
GROUPS = ("all", "tags", "sql", "invisible", "delay", "tx", "large", "fifo", "push", "push-fifo")


def test_the_real_proxy_answers_as_recorded(tmp_path: Path) -> None:
    """RMQCTL_RECORD=1 records them."""
    with real_proxy(tmp_path, tmp_path / "store", SETTINGS) as real:
        create_typed(real.namesrv, real.broker)
        raw = Raw(real.grpc)
        try:
            found = run(raw)
        finally:
            raw.close()
    if os.environ.get("RMQCTL_RECORD"):
        ANSWERS.write_text(written(found), encoding="ascii")
    assert dict(found) == answers()


def _python(folder: Path) -> list[str | Path]:
    pytest.importorskip("rocketmq")
    return [sys.executable, CLIENTS / "client.py"]


def _java(folder: Path) -> list[str | Path]:
    tools = skipping(lambda version: clients_with(version, "classes-grpc", SOURCES / "grpc"), "grpc")
    options = [*SHORT_LIVED_JVM, f"-Duser.home={folder}", "-cp", tools.classpath]
    return [tools.java, *options, "rmqctl.clients.Grpc"]


def _node(folder: Path) -> list[str | Path]:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("no npm or no node on PATH")
    modules = cache_folder() / "node"
    if not (modules / "node_modules" / "rocketmq-client-nodejs").exists():
        modules.mkdir(parents=True, exist_ok=True)
        done = run_process([npm, "install", "--ignore-scripts", "--prefix", modules, NODE_CLIENT], SECONDS)
        if done.returncode:
            pytest.skip(f"npm cannot fetch {NODE_CLIENT}: {done.stderr[-200:]}")
    return ["env", f"NODE_PATH={modules / 'node_modules'}", node, CLIENTS / "client.js"]


def _go(folder: Path) -> list[str | Path]:
    go = shutil.which("go")
    if go is None:
        pytest.skip("no go on PATH")
    sources = [REMOTING / "go.mod", REMOTING / "client.go"]
    digest = hashlib.sha256(b"".join(one.read_bytes() for one in sources)).hexdigest()[:16]
    made = cache_folder() / f"go-client-{digest}"
    if not (made / "client").exists():
        made.mkdir(parents=True, exist_ok=True)
        for one in sources:
            shutil.copy(one, made)
        # of the registry of modules what the client needs; their checksums are asked there, too
        built = run_process(["env", f"--chdir={made}", go, "build", "-mod=mod", "-o", "client", "."], SECONDS)
        if built.returncode:
            pytest.skip(f"go cannot build the client: {built.stderr[-200:]}")
    return [made / "client"]


def _cpp(folder: Path) -> list[str | Path]:
    # not beside the client of gRPC, which has the same name
    made = cache_folder() / "cpp-client"
    if not made.exists():
        fetch: list[str | Path] = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", made]
        done = run_process([*fetch, CPP_CLIENT], SECONDS)
        if done.returncode:
            pytest.skip(f"pip cannot fetch {CPP_CLIENT}: {done.stderr[-200:]}")
    return ["env", f"PYTHONPATH={made}", sys.executable, REMOTING / "client.py"]


_WITH_A_CLOCK_OF_THEIR_OWN = {
    "go": "asks the kernel for the time itself, and shares no set clock with a broker",
    "cpp": "waits until dates by a clock that is not set, and no longer than until now",
}

PROGRAMS = {"python": _python, "java": _java, "node": _node, "go": _go, "cpp": _cpp}
SETS = {"grpc": ("python", "java", "node"), "go": ("go",), "cpp": ("cpp",)}
"""Clients that run at once; those of gRPC at a proxy, the others at a broker."""


@contextmanager
def _servers(kind: str, folder: Path, of: str) -> Iterator[tuple[str, str, str]]:
    """The addresses of name server, broker, and what a set of clients is given: the real ones, or ours."""
    is_grpc = of == "grpc"
    if kind == "real":
        real_one = real_proxy if is_grpc else partial(real_broker, BROKERS[0])
        with real_one(folder, folder / "store", SETTINGS) as real:
            yield real.namesrv, real.broker, real.grpc or real.namesrv
        return
    conf = folder / "broker.conf"
    settings = {**SMALL, **SETTINGS, "brokerName": "broker-a"}
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with serving(folder / "store", "--writable", "--create", "-c", str(conf), "--grpc", "127.0.0.1:0") as ours:
        assert ours.grpc is not None
        yield ours.namesrv, ours.broker, ours.grpc if is_grpc else ours.namesrv
        assert ours.end() == 0
        assert "failed" not in ours.errors


@pytest.mark.parametrize("kind", ["ours", "real"])
@pytest.mark.parametrize("of", SETS)
def test_clients_see_what_is_recorded(of: str, kind: str, tmp_path: Path) -> None:
    """Clients at once, each with topics of its own. RMQCTL_RECORD=1 records what they see at the real one."""
    if of in _WITH_A_CLOCK_OF_THEIR_OWN and shifted_by():
        pytest.skip(f"{of}: {_WITH_A_CLOCK_OF_THEIR_OWN[of]}")
    try:
        _require_recorded(of, kind, tmp_path / "first")
    except (AssertionError, HarnessError):
        # on a busy machine the real proxy asks about a transaction late, or leaves a call without an answer
        if kind == "ours" or os.environ.get("RMQCTL_RECORD"):
            raise
        _require_recorded(of, kind, tmp_path / "again")


def _require_recorded(of: str, kind: str, folder: Path) -> None:
    folder.mkdir()
    commands = {name: PROGRAMS[name](folder) for name in SETS[of]}
    with _servers(kind, folder, of) as (namesrv, broker, proxy):
        for name in commands:
            for topic, takes in TOPICS.items():
                create(namesrv, broker, f"{name}-{topic}", attributes=f"+message.type={takes}")
            for group in GROUPS:
                retries = {"retryMaxTimes": 2} if group.startswith("push") else {}
                is_ordered = group.endswith("fifo")
                create_group(namesrv, broker, f"{name}-g-{group}", consumeMessageOrderly=is_ordered, **retries)

        def seen(name: str) -> list[str]:
            home = {**os.environ, "HOME": str(folder)}
            done = run_process([*commands[name], proxy, f"{name}-"], SECONDS, home)
            assert done.returncode == 0, done.stdout + done.stderr
            return [line.replace(f"{name}-", "") for line in done.stdout.splitlines() if line[:1] in ("[", "=")]

        with ThreadPoolExecutor(len(commands)) as pool:
            found = dict(zip(commands, pool.map(seen, commands), strict=True))
    for name, lines in found.items():
        record = (CLIENTS if of == "grpc" else REMOTING) / f"{name}.txt"
        if kind == "real" and os.environ.get("RMQCTL_RECORD"):
            record.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        assert lines == record.read_text(encoding="utf-8").splitlines(), name
