"""Commands that print JSON, by the name of the schema of what they print."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqctl.store.config.epoch_file import EPOCH_FILE, Epoch, epoch_bytes
from tests.features import feature_store
from tests.goldens import GOLDENS, broker_conf, golden, log_golden, properties, truth
from tests.network.serving import serving
from tests.rmqctl.looking import run
from tests.store.rocksdb.stores import unpacked

WITHOUT = {
    "dump": "the fields of each file's layout: docs/formats.md",
    "sql": "the columns that a statement asks for",
    "report": "a page; the numbers in it are those of other verbs",
    "serve": "what it listens at, once",
    "groups pop-release": "as `offsets set`",
    "groups pop-finish": "as `offsets set`",
    "help": "prints texts",
    "browse": "a screen",
    "mcp": "a protocol; the schemas are those of its tools' verbs",
    "completion": "prints a script",
    "config": "rows of verb, option, value and source; with `keys` of key, default, releases and effect",
    "mirror": "one summary, when its master is gone",
    "consume": "messages, with `retries` and the queue's broker beside them",
}
"""Verbs that print JSON without a schema of their own -> why."""


def looks(store: Path, name: str) -> Iterator[tuple[str, list[object]]]:
    """Name of the schema, and the command, of every look at the copy `store` of the golden `name`."""
    where: list[object] = ["-s", store]
    if name in GOLDENS and "store.storePathCommitLog" in properties(name):
        where += ["-c", broker_conf(name, store.parent)]
    rows = truth(name).messages or truth("clean").messages
    row = rows[len(rows) // 2]
    topic, queue = row["topic"], row["queueId"]
    key = row.get("properties", {}).get("UNIQ_KEY", "none")
    asked: list[tuple[str, list[object]]] = [
        ("doctor", []), ("info", []), ("info", ["--quick"]), ("watch", []),
        ("ls", []), ("ls-queues", ["--queues"]), ("ls-files", ["--files"]),
        ("du", []), ("du", ["--quick"]), ("du-history", ["--history"]),
        ("message", ["cat"]), ("message", ["cat", "--order", "queue", "--as-recovered"]),
        ("message", ["query", "-t", topic, "-q", queue, "-o", row["queueOffset"]]),
        ("message", ["query", "-i", key]), ("message", ["query", "-k", key, "-t", topic]),
        ("where", ["where", key]), ("where", ["where", row["phyOffset"]]),
        ("where", ["where", topic, queue, row["queueOffset"], "-g", "any"]),
        ("groups", []), ("groups-queues", ["groups", "--queues"]),
        ("delays", []), ("delays-due", ["delays", "--due"]), ("halves", []), ("dlq-list", ["dlq", "list"]),
        ("offsets-show", ["offsets", "show"]), ("offsets-lint", ["offsets", "lint"]),
        ("clean-forecast", ["clean", "--forecast"]), ("check", []), ("check", ["--quick"]), ("log", []),
        ("stats", []), ("stats-by", ["stats", "--by", "topic"]), ("predict", ["predict", "--broker", "4.9.8"]),
        ("predict", ["predict", "--broker", "5.5.0"]),
        ("predict-all", ["predict", "--broker", "all"]), ("predict-epochs", ["predict", "--epochs", store]),
    ]  # fmt: skip
    for schema, words in asked:
        given = words if words and not str(words[0]).startswith("-") else [schema.split("-")[0], *words]
        verb = 2 if given[:1] in (["dlq"], ["offsets"]) else 1
        yield schema, [*given[:verb], *where, *given[verb:], "--json"]


def changes(store: Path) -> Iterator[tuple[str, list[object]]]:
    """The same of changes, in the order in which they follow each other; the store is one that a broker left."""
    where, beside = ["-s", store], store.parent
    offset = ["-g", "G", "-t", "TopicTest", "--new-group", "--anywhere", "--yes"]
    yield "change-plan", ["recover", *where, "--dry-run"]
    yield "recover", ["recover", *where, "--yes"]
    yield "log", ["undo", *where, "--yes"]
    yield "recover", ["recover", *where, "--yes"]
    yield "append", ["append", *where, "-t", "T", "--body", "x"]
    yield "rebuild", ["rebuild", *where, "--yes"]
    yield "repair", ["repair", *where, "--yes"]
    yield "snapshot", ["snapshot", beside / "snapshot", *where]
    yield "diff", ["diff", store, beside / "snapshot"]
    yield "salvage", ["salvage", store, "--to", beside / "salvaged"]
    yield "twin", ["twin", store, beside / "twin", "--anonymise"]
    yield "export", ["export", *where, beside / "all.jsonl"]
    yield "truncate", ["truncate", *where, "--at", "0", "--dry-run"]
    yield "purge", ["purge", *where, "-t", "TopicTest", "--dry-run"]
    yield "clean", ["clean", *where, "--older-than", "1d", "--yes"]
    yield "offsets-change", ["offsets", "set", *where, *offset, "-q", "0", "-o", "1"]
    yield "offsets-change", ["offsets", "reset", *where, *offset[:5], "--yes", "--to", "latest"]
    yield "offsets-change", ["offsets", "copy", *where, "-g", "G", "--to", "H", "--new-group", "--yes"]
    yield "offsets-change", ["offsets", "merge", *where, store / "config/consumerOffset.json", "--yes"]
    yield "offsets-change", ["offsets", "delete", *where, "-g", "H", "--yes"]
    yield "offsets-change", ["offsets", "set-delay", *where, "--level", "1", "-o", "0", "--anywhere", "--yes"]
    yield (
        "offsets-salvage-client",
        ["offsets", "salvage-client", beside / "offsets.json", "--to", beside / "sound"],
    )
    for verb, kind, name in (("topics", "-t", "Orders"), ("groups", "-g", "billing")):
        for action in ("create", "change", "delete"):
            more = {"topics": ["--perm", "R"], "groups": ["--no-consume"]}[verb] if action == "change" else []
            yield "config-change", [verb, action, *where, kind, name, *more, "--yes"]
    yield "redrive", ["dlq", "redrive", *where, "-g", "GroupA", "--dry-run"]
    yield "log", ["log", *where]
    yield "log", ["resume", *where]
    yield "log", ["log", "--no-such-option"]


def asked_of_servers(address: str) -> Iterator[tuple[str, list[object]]]:
    """The same of what asks a name server at `address`."""
    yield "append", ["produce", "-n", address, "-t", "TopicTest", "--body", "x"]
    yield "topics", ["topics", "-n", address]
    yield "topics", ["topics", "-n", address, "-t", "TopicTest"]
    yield "cluster", ["cluster", "-n", address]
    yield "groups-of-servers", ["groups", "-n", address]


def printed(name: str, folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """Name of the schema and the values that each command printed: looks at the golden `name`, and errors on stderr."""
    store = golden(name, folder)
    try:
        for schema, command in looks(store, name):
            yield from _values(schema, command)
    finally:
        shutil.rmtree(store)


def printed_by_changes(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """The same of changes, of one golden."""
    client = '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}:3}}'
    (folder / "offsets.json").write_text(client, encoding="ascii")
    for schema, command in changes(golden("crash", folder)):
        yield from _values(schema, [*command, "--json"])


def printed_by_servers(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """The same of what asks brokers, of one that is ours."""
    store = golden("clean", folder)
    with serving(store, "--writable") as served:
        for schema, command in asked_of_servers(served.namesrv):
            yield from _values(schema, [*command, "--json"])


def printed_by_features(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """The same of users, pops, timers and other logs, of goldens that have some."""
    for name in ("pop-fs-crash", "pop-kv", "timer-crash"):
        where = ["-s", feature_store(name, folder / name), "--json"]
        yield from _values("groups-pop", ["groups", "--pop", *where])
        yield from _values("delays-due", ["delays", "--due", *where])
    yield from _values("acl", ["acl", "-s", unpacked("v55-auth", folder / "users"), "--json"])
    dledger = log_golden("v55-dledger", folder / "logs").store
    yield from _values("info", ["info", "-s", dledger, "--json"])
    tiered = log_golden("v55-tiered", folder / "tiered").store
    yield from _values("info", ["info", "-s", log_golden("v55-tiered-crash", folder / "tiered").store, "--json"])
    yield from _values("ls-tiered", ["ls", "--tiered", "-s", tiered, "--json"])
    shutil.rmtree(tiered / "consumequeue" / "a")
    for path in tiered.glob("tiered/*/golden/a/0/COMMIT_LOG/*"):
        path.write_bytes(bytes(path.stat().st_size))
    yield from _values("ls-tiered", ["ls", "--tiered", "-s", tiered, "--json"])


def printed_by_replicas(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """The same of replicas under a controller and of members of a DLedger group, whole and broken."""
    master = golden("v55-controller", folder / "replica-a")
    slave = Path(shutil.copytree(master, folder / "replica-b"))
    (slave / "brokerIdentity").write_text("cluster#broker-a#2")
    (slave / "checkpoint").unlink()
    for path in slave.glob(f"{EPOCH_FILE}*"):
        path.write_bytes(epoch_bytes([Epoch(3, 0), Epoch(7, 231829)]))
    member = log_golden("v55-dledger", folder / "members").store
    broken = Path(shutil.copytree(member, folder / "broken"))
    for path in broken.glob("dledger-*/**/*"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    for store in (slave, member, broken):
        yield from _values("doctor", ["doctor", "-s", store, "--json"])
        yield from _values("info", ["info", "-s", store, "--json"])
    for other in (master, member):
        yield from _values("predict-epochs", ["predict", "-s", slave, "--epochs", other, "--json"])
    other = Path(shutil.copytree(master, folder / "replica-c"))
    (other / EPOCH_FILE).write_bytes(epoch_bytes([Epoch(4, 0)]))
    for one, beside in ((slave, master), (slave, other), (member, broken)):
        yield from _values("diff", ["diff", one, beside, "--json"])


def printed_by_copies(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """The same of messages that only a copy has, and of an index of copies that is damaged."""
    tiered = log_golden("v55-tiered", folder / "copies").store
    where = ["-s", tiered, "--json"]
    for path in sorted(tiered.glob("commitlog/*"))[:1]:
        path.unlink()
    yield from _values("message", ["cat", "--tiered", "-t", "TopicTest", *where])
    crashed = log_golden("v55-tiered-crash", folder / "copies").store
    for path in crashed.glob("tiered_index_file/*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:7])
    for verb in ("info", "doctor"):
        yield from _values(verb, [verb, "-s", crashed, "--json"])


def _values(schema: str, command: list[object]) -> Iterator[tuple[str, list[Any]]]:
    done = run(*command)
    yield schema, [json.loads(line) for line in done.out.splitlines()]
    yield "error", [one for one in map(_object, done.err.splitlines()) if one is not None]


def _object(line: str) -> Any:
    try:
        return json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None


MAKERS = (printed_by_changes, printed_by_servers, printed_by_features, printed_by_replicas, printed_by_copies)
"""What prints beside the looks at all goldens."""
