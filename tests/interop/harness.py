"""Opens and writes stores with the real RocketMQ: one JVM for any number of stores of one version.

    view = open_store("5.3.3", store, goldens.properties("clean"), queries=[("TopicTest", "hot")])
    assert view.complaints() == []

A start of the JVM and a store's shutdown take seconds, mostly spent sleeping: open many stores with `open_many`.

Equal bytes do not mean that nothing was lost: a log cut inside a file and units dropped from a queue's end stay in the
files. Hold `max_offset` and `messages` against what should be there, too.

Two things are not as in a broker, so that a whole store stays as it is, however old it is and however full the disk:
nothing is cleaned by age or disk ratio, and 4.9.8, whose store contains the delivery of delayed messages, does not
deliver (`harness.deliverDelayed=true` lets it; it then also writes config/delayOffset.json at shutdown).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.interop import views
from tests.interop.toolchain import SOURCES, HarnessError, Toolchain, Unavailable, run, toolchain
from tests.interop.views import BrokerView, StoreState, Written
from tests.processes import SHORT_LIVED_JVM

__all__ = [
    "KINDS",
    "VERSIONS",
    "BrokerView",
    "HarnessError",
    "Job",
    "Written",
    "available",
    "open_many",
    "open_store",
    "write_many",
    "write_store",
]

VERSIONS = ("5.5.0", "5.3.3", "4.9.8")
"""The RocketMQ versions that every test of stores holds against, the newest first."""

NEWEST = "5.5.0"
"""The version of `test_of_5_5.py`."""

KINDS = ("plain", "delay", "transaction", "compressed", "ipv6", "batch")
"""What write_store can write."""

LIGHT = "light"
"""One more, for stores with light queues: every other message lists its light queue twice."""

START_SECONDS = 60
STORE_SECONDS = 60
OPENED = ("java.nio", "sun.nio.ch", "java.lang", "java.util")
SMALL_JVM = ("-Xmx512m", *SHORT_LIVED_JVM)
"""Options of a JVM that starts soon and takes little."""
MAIN = "rmqctl.interop.Main"
"""The driver's class."""
PREFIXES = ("store.", "broker.", "topic.", "harness.")
IGNORED_PREFIX = "load."
ROCKSDB = ("store.storeType", "defaultRocksDB")


@dataclass(frozen=True)
class Job:
    """A store to open, its configuration (`store.*`, `broker.*`, `topic.*` as in golden .props) and keys to look up.

    Before anything is read, open_many lets the real store write `messages` of each of `kinds`. With `halts` it is not
    shut down: it dies with the JVM, when the other jobs are done.
    """

    store: Path
    properties: Mapping[str, str]
    queries: Sequence[tuple[str, str]] = field(default=())
    kinds: Sequence[str] = ()
    messages: int = 20
    halts: bool = False


def available(*versions: str) -> str | None:
    """Why these versions (default: all) cannot be run here, for pytest.skip; None if they can.

    Fetches and compiles at the first call. In CI (environment CI=true) a fetch that fails although there is Maven
    raises HarnessError instead.
    """
    try:
        for version in versions or VERSIONS:
            toolchain(version)
    except Unavailable as reason:
        return str(reason)
    return None


def open_store(
    version: str, store: Path, properties: Mapping[str, str], queries: Sequence[tuple[str, str]] = ()
) -> BrokerView:
    """Load, start, drain, read and shut down one store, which is changed by it as by a broker."""
    return open_many(version, [Job(store, properties, queries)])[0]


def open_many(version: str, jobs: Iterable[Job], *, threads: int = 6) -> list[BrokerView]:
    """Open several stores in one JVM, `threads` at a time; the views come in the order of the jobs.

    What goes wrong inside RocketMQ is in the view; HarnessError if the JVM dies or does not end in time.
    """
    todo = list(jobs)
    with tempfile.TemporaryDirectory(prefix="rmqctl-interop-") as folder:
        scratch = Path(folder)
        arguments: list[str | Path] = ["open", str(max(1, min(threads, len(todo))))]
        for number, job in enumerate(todo):
            settings = dict(job.properties)
            for index, (topic, key) in enumerate(job.queries):
                settings |= {f"query.{index}.topic": topic, f"query.{index}.key": key}
            settings |= _writing(job.kinds, job.messages, job.halts)
            properties = write_properties(scratch / f"{number}.properties", settings)
            arguments += [job.store.resolve(), properties, scratch / f"{number}.jsonl"]
        before = [StoreState.of(job.store) for job in todo]
        log = _drive(toolchain(version), scratch, arguments, START_SECONDS + STORE_SECONDS * len(todo))
        return [
            views.broker_view(_rows(scratch / f"{number}.jsonl"), before[number], StoreState.of(job.store), log)
            for number, job in enumerate(todo)
        ]


def write_store(
    version: str,
    store: Path,
    properties: Mapping[str, str],
    *,
    kinds: Sequence[str] = ("plain",),
    messages: int = 20,
    halt: bool = False,
) -> list[Written]:
    """Let the real store write `messages` of each of `kinds` into `store`, new or existing.

    With `halt` the JVM dies once queues and index are complete in memory: no last flush, `abort` stays.
    """
    return _write(version, [Job(store, properties, (), kinds, messages, halt)], 1)[0]


def write_many(version: str, jobs: Iterable[Job], *, messages: int = 20, threads: int = 6) -> list[list[Written]]:
    """Let the real store write `messages` plain ones into each of several stores, in one JVM, `threads` at a time; what
    was written comes in the order of the jobs. HarnessError if it does not start with one of them."""
    return _write(version, [replace(job, kinds=("plain",), messages=messages) for job in jobs], threads)


def _writing(kinds: Sequence[str], messages: int, halts: bool) -> dict[str, str]:
    """What tells the driver to write; ValueError for kinds that it does not know."""
    unknown = set(kinds) - {*KINDS, LIGHT}
    if unknown:
        raise ValueError(f"not among {KINDS}: {unknown}")
    wanted = {"write.kinds": ",".join(kinds), "write.messages": str(messages)} if kinds else {}
    return wanted | ({"write.end": "halt"} if halts else {})


def _write(version: str, todo: list[Job], threads: int) -> list[list[Written]]:
    with tempfile.TemporaryDirectory(prefix="rmqctl-interop-") as folder:
        scratch = Path(folder)
        arguments: list[str | Path] = ["write", str(max(1, min(threads, len(todo))))]
        for number, job in enumerate(todo):
            job.store.mkdir(parents=True, exist_ok=True)
            wanted = _writing(job.kinds, job.messages, job.halts)
            file = write_properties(scratch / f"{number}.properties", {**job.properties, **wanted})
            arguments += [job.store.resolve(), file, scratch / f"{number}.jsonl"]
        log = _drive(toolchain(version), scratch, arguments, START_SECONDS + STORE_SECONDS * len(todo))
        found = [_rows(scratch / f"{number}.jsonl") for number in range(len(todo))]
    for job, (summary, *_) in zip(todo, found, strict=True):
        if not summary["drained"]:
            raise HarnessError(f"queues and index of {job.store} did not catch up: {log}")
    return [[views.written(row) for row in rows] for _, *rows in found]


def _drive(tools: Toolchain, scratch: Path, arguments: Sequence[str | Path], seconds: float) -> str:
    """Run the driver, return what it logged; RocketMQ's own stray files go to `scratch`."""
    done = run([*java_command(tools, scratch), MAIN, *arguments], seconds)
    if done.returncode != 0:
        raise HarnessError(f"RocketMQ {tools.version} ended with status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def java_command(tools: Toolchain, scratch: Path, jvm: Sequence[str] = SMALL_JVM) -> list[str | Path]:
    """What programs of ours are started with, that stand in RocketMQ's own server or store; their class and arguments
    follow. `jvm`: its options."""
    logging = SOURCES / "logback.xml"
    options = [
        *jvm,
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
        "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
        f"-Drmq.logback.configurationFile={logging}",
        f"-Dlogback.configurationFile={logging}",
        f"-Duser.home={scratch}",
        f"-Djava.io.tmpdir={scratch}",
    ]
    return [tools.java, *options, "-cp", tools.classpath]


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    """A properties file as Java reads it through a UTF-8 reader. `load.*` of the goldens is nothing for us."""
    internal = ("query.", "write.")
    lines = []
    for key, value in settings.items():
        if key.startswith(IGNORED_PREFIX):
            continue
        if (key, value) == ROCKSDB:
            raise ValueError("queues kept in RocksDB are not opened by this harness")
        if not key.startswith((*PREFIXES, *internal)):
            raise ValueError(f"{key}: a setting must begin with one of {PREFIXES}")
        lines.append(f"{_escape(key)}={_escape(value)}\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _escape(text: str) -> str:
    plain = "-._/@"
    return "".join(c if c.isascii() and (c.isalnum() or c in plain) else _unicode_escape(c) for c in text)


def _unicode_escape(character: str) -> str:
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[i : i + 2]):04x}" for i in range(0, len(units), 2))


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        raise HarnessError(f"the driver ended well but left no {path.name}")
    with path.open(encoding="ascii") as file:
        return [json.loads(line) for line in file]
