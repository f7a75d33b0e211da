"""Run every verb once, in this process and over stores of its own: by the clock and in the zone that it has.

Run it as a program, by tests/anyday/__main__.py. It prints a line for each command that did not end as it should.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmqctl.main import VERBS
from rmqctl.store.files.background import sleep
from tests.goldens import golden
from tests.network.serving import serving
from tests.processes import end_all
from tests.rmqctl.looking import Done, run

_CONFIG = "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=20000\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"
_UNTRIED = {
    "help": "prints texts",
    "browse": "needs a terminal",
    "mcp": "runs other verbs",
    "completion": "prints a script",
    "config": "prints what config.toml says",
    "sql": "tested with DuckDB, which has no clock of ours",
    "mirror": "needs a second broker",
}
"""Verbs that are not run -> why."""


class Walk:
    """Runs commands and keeps what went wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.wrong: list[str] = []
        self.seen: set[str] = set()
        (folder / "broker.conf").write_text(_CONFIG)

    def run(self, *arguments: object, code: int | tuple[int, ...] = 0) -> Done:
        """Run a command, which has to end with `code`."""
        self.seen.add(str(arguments[0]))
        done = run(*arguments)
        expected = code if isinstance(code, tuple) else (code,)
        if done.code not in expected:
            shown = " ".join(map(str, arguments))
            self.wrong.append(f"rmqctl {shown}: exit code {done.code}, not {code}: {done.err.strip()[-300:]}")
        return done

    def expect(self, what: str, is_so: bool) -> None:
        """Note that something is not as it should be."""
        if not is_so:
            self.wrong.append(what)

    def objects(self, done: Done) -> list[dict[str, Any]]:
        """Return the JSON that a command printed; [] of one that failed."""
        return done.objects if done.out.startswith(("{", "[")) else []


def write(walk: Walk) -> None:
    """Make a store, and find what was stored."""
    store, s = walk.store, ("-s", walk.store)
    begin = time.time()
    walk.run("append", *s, "-c", walk.folder / "broker.conf", "--create", "-t", "T", "-k", "key-1", "--body", "first")
    lines = [
        {"topic": "T", "queue_id": number % 3, "tags": "a", "keys": [f"key-{number}"], "body": f"body {number}"}
        for number in range(2, 40)
    ]
    lines += [{"topic": "Late", "body": "late", "properties": {"DELAY": "1"}}]
    lines += [{"topic": "Timed", "body": "timed", "properties": {"TIMER_DELAY_SEC": "1"}}]
    (walk.folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    walk.run("append", *s, "--from", walk.folder / "lines.jsonl")
    found = walk.objects(walk.run("cat", *s, "-t", "T", "--json"))
    walk.expect(f"cat finds {len(found)} messages of 39", len(found) == 39)
    for message in found:
        stored = message["store_timestamp"] / 1000
        walk.expect(f"store time {stored}", begin - 1 <= stored <= time.time() + 1)
    find(walk, found)
    walk.run("info", *s)
    walk.run("doctor", *s)
    walk.run("watch", *s)
    walk.run("report", *s, "-o", walk.folder / "report.html", "--overwrite", "--yes")
    walk.run("ls", *s, "--queues")
    walk.run("du", *s)
    walk.run("dump", store / "commitlog" / f"{0:020d}", "--limit", 3)
    walk.run("check", *s)
    for version in ("4.9.8", "5.3.3"):
        walk.run("predict", *s, "--broker", version)


def find(walk: Walk, messages: list[dict[str, Any]]) -> None:
    """Find messages by all that names them."""
    s = ("-s", walk.store)
    first, last = messages[0], messages[-1]
    for message in (first, last):
        if message.get("unique_key"):
            walk.run("where", *s, message["unique_key"])
        walk.run("where", *s, message["msg_id"])
    walk.run("where", *s, "key-1", "-t", "T")
    by_key = walk.objects(walk.run("query", *s, "-t", "T", "-k", "key-20", "--json"))
    walk.expect("query -k key-20 finds another message", [one["keys"] for one in by_key] == [["key-20"]])
    walk.run("query", *s, "-t", "T", "-k", "key-20", "-b", "1h ago")
    walk.run("query", *s, "-t", "T", "-q", 0, "--at", "1h ago")
    walk.run("cat", *s, "-b", "today 0:00", "-e", "now", "--tz", "local", code=(0, 1))
    walk.run("cat", *s, "-b", "yesterday", "--tz", "local", "-n", 1)


def consumers(walk: Walk) -> None:
    """Ask about consumers, and set their offsets."""
    s = ("-s", walk.store)
    group = ("-g", "G", "-t", "T", "--new-group", "--yes")
    walk.run("offsets", "reset", *s, *group, "--to", "latest")
    walk.run("offsets", "show", *s)
    walk.run("offsets", "lint", *s)
    walk.run("groups", *s)
    walk.run("delays", *s)
    walk.run("halves", *s, code=(0, 1))
    walk.run("acl", *s, code=1)
    walk.run("dlq", "list", *s, code=(0, 1))
    walk.run("stats", *s)
    walk.run("stats", *s, "--by", "hour", "--plot")
    walk.run("export", *s, walk.folder / "all.jsonl")
    walk.run("export", *s, walk.folder / "all.parquet")


def change(walk: Walk) -> None:
    """Change a store, and take it back."""
    s = ("-s", walk.store)
    walk.run("rebuild", *s)
    walk.run("undo", *s, "--yes")
    walk.run("resume", *s, code=1)
    walk.run("repair", *s, code=(0, 1))
    walk.run("clean", *s, "--forecast")
    walk.run("clean", *s, "--older-than", "1d", "--yes")
    walk.run("snapshot", walk.folder / "snapshot", *s)
    walk.run("diff", walk.store, walk.folder / "snapshot")
    walk.run("twin", walk.store, walk.folder / "twin", "--anonymise")
    middle = walk.objects(walk.run("cat", *s, "-n", 20, "--json"))[-1]["physical_offset"]
    walk.run("truncate", *s, "--at", middle, "--yes")
    walk.run("undo", *s, "--yes")
    walk.run("purge", *s, "-t", "T", "--dry-run")
    walk.run("log", *s)
    walk.run("log", *s, "--prune", "--older-than", "1d", "--yes")


def mend(walk: Walk) -> None:
    """Recover a store that a broker left, redrive its dead letters, and extract its messages."""
    crashed = golden("crash", walk.folder / "crash")
    walk.run("recover", "-s", crashed, "--yes")
    walk.run("check", "-s", crashed, code=(0, 1))
    walk.run("undo", "-s", crashed, "--yes")
    walk.run("salvage", crashed, "--to", walk.folder / "salvaged")
    features = golden("features", walk.folder / "features")
    walk.run("dlq", "redrive", "-s", features, "-g", "GroupA", "--yes", code=(0, 1))


def wire(walk: Walk) -> None:
    """Serve the store, send and take messages."""
    body = "on the wire"
    with serving(walk.store, "--writable") as served:
        walk.seen.add("serve")
        n = ("-n", served.namesrv)
        for _ in range(3):
            walk.run("produce", *n, "-t", "Wire", "-k", "wire", "--body", body)
            time.sleep(1)
        walk.run("produce", *n, "-t", "Wire", "--delay", "1", "--body", body)
        walk.run("produce", *n, "-t", "Wire", "--deliver-after", "1s", "--body", body)
        deadline = time.monotonic() + 60
        taken: list[dict[str, Any]] = []
        while len(taken) < 5 and time.monotonic() < deadline:
            taken += walk.objects(walk.run("consume", *n, "-t", "Wire", "-g", "G", "--json", code=(0, 1)))
            time.sleep(0.2)
        walk.expect(f"consume took {len(taken)} messages of 5", [one["body"] for one in taken] == [body] * 5)
        walk.run("topics", *n)
        walk.run("cluster", *n)
        code = served.end()
        walk.expect(f"serve ended with exit code {code}: {served.errors}", code == 0)
    for message in taken[:3]:
        walk.run("where", "-s", walk.store, message["unique_key"], "-t", "Wire")
    walk.run("check", "-s", walk.store)


def main() -> int:
    """Run everything; 1 if anything was wrong."""
    # Python's own fails under libfaketime
    time.sleep = sleep  # type: ignore[assignment]
    with tempfile.TemporaryDirectory(prefix="rmqctl-any-day-") as folder:
        walk = Walk(Path(folder))
        steps: list[Callable[[Walk], None]] = [write, consumers, wire, change, mend]
        for step in steps:
            try:
                step(walk)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - reported, and the next step is tried
                walk.wrong.append(f"{step.__name__}: {type(error).__name__}: {error}")
        end_all()
        missing = VERBS.keys() - walk.seen - _UNTRIED.keys()
        walk.expect(f"never run: {sorted(missing)}", not missing)
    for line in walk.wrong:
        print(line)
    return 1 if walk.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
