"""Law 1: no read command changes a byte, a size, a time or a name of a store. And none ends with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from tests.goldens import GOLDENS, GoldenStore, broker_conf, properties, tree_state, truth
from tests.quick import sample
from tests.rmqctl.looking import Done, run

CALM = (exit_codes.OK, exit_codes.DAMAGE_OR_NOTHING, exit_codes.REFUSED)
WITHOUT_A_LOG = ("log-gone", "log-gone-abort", "v4-log-gone")
"""Stores where a lookup of a message ends with DAMAGE_IN_THE_WAY."""


_WAITING: list[list[object]] = [[verb, *how] for verb in ("groups", "delays") for how in ([], ["--json"], ["--plot"])]


def commands(store: Path, name: str) -> list[list[object]]:
    """Every look verb in most of its ways, on what this golden holds or should hold."""
    where: list[object] = ["-s", store]
    if "store.storePathCommitLog" in properties(name):
        where += ["-c", broker_conf(name, store.parent)]
    rows = truth(name).messages or truth("clean").messages
    row = rows[len(rows) // 2]
    topic, queue = row["topic"], row["queueId"]
    key = row["properties"].get("UNIQ_KEY", "none")
    wanted: list[list[object]] = [
        ["doctor"],
        ["watch"],
        ["report", "-o", "/dev/null"],
        ["info"],
        ["info", "--quick", "--json"],
        ["ls"],
        ["ls", "--queues", "--json"],
        ["ls", "--files"],
        ["du"],
        ["du", "--quick", "--json"],
        ["du", "--map"],
        ["du", "--history"],
        ["cat", "-n", -5],
        # a log that is gone would be waited for
        *([["cat", "-n", 1, "--follow"]] if any(store.glob("commitlog/0*")) else []),
        ["cat", "--json"],
        ["cat", "-n", 5],
        ["cat", "--order", "queue", "--format", "csv"],
        ["predict"],
        ["predict", "--broker", "4.9.8", "--json"],
        ["where", key],
        ["where", row["phyOffset"], "--json"],
        ["where", topic, queue, row["queueOffset"], "-g", "any"],
        *_WAITING,
        ["delays", "--undelivered"],
        ["delays", "--due"],
        ["halves"],
        ["halves", "--json"],
        ["acl"],
        ["dlq list"],
        ["dlq list", "--json"],
        ["dlq redrive", "-g", "g-retry", "--dry-run"],
        ["dlq redrive", "-g", "GroupA", "-o", "-"],
        ["offsets show"],
        ["offsets show", "--json"],
        ["offsets lint"],
        ["offsets lint", "--json"],
        ["offsets set-delay", "--level", 1, "-o", 0, "--dry-run", "--anywhere"],
        ["offsets reset", "-g", "g-retry", "-t", topic, "--to", "latest", "--dry-run"],
        ["clean", "--forecast"],
        ["clean", "--forecast", "--json"],
        [
            "sql",
            "select topic, count(*), t.log_messages from messages join topics t using (topic) group by 1, 3 order by 1",
        ],
        ["query", "-o", row["phyOffset"]],
        ["query", "-o", row["phyOffset"] + 1, "--json"],
        ["query", "-i", row["msgId"], "--json"],
        ["query", "-i", key],
        ["query", "-i", key, "--scan"],
        ["query", "-k", key, "-t", topic],
        ["query", "-k", "hot", "--scan", "--json"],
        ["query", "-t", topic, "-q", queue, "-o", row["queueOffset"]],
        ["query", "-t", topic, "--at", row["storeTimestamp"]],
    ]
    looks = [[*str(one[0]).split(), *where, *one[1:]] for one in wanted]
    return looks + [["dump", path, *more] for path in _files_to_dump(store) for more in ([], ["--hex", "-n", 40])]


def _files_to_dump(store: Path) -> list[Path]:
    """One file of each directory, the last one."""
    folders = [store, *(path for path in sorted(store.rglob("*")) if path.is_dir())]
    files = [[path for path in sorted(folder.iterdir()) if path.is_file()] for folder in folders]
    return [each[-1] for each in files if each][::4] + [path for path in (store / "checkpoint",) if path.exists()]


@pytest.mark.parametrize("name", sample(GOLDENS, ["v4-clean", "features", "crash", "gap"]))
def test_looking_changes_nothing(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    before = tree_state(store)
    outside = sorted(store.parent.iterdir())
    for command in commands(store, name):
        done = run(*command)
        may_be_hidden = name in WITHOUT_A_LOG or command[0] in ("cat", "query", "ls", "dlq", "groups")
        is_hidden = may_be_hidden and done.code == exit_codes.DAMAGE_IN_THE_WAY
        assert is_hidden or done.code in CALM, (command, done)
        _check_talk(done, command)
    assert tree_state(store) == before
    assert [path for path in sorted(store.parent.iterdir()) if path.suffix != ".conf"] == outside


def _check_talk(done: Done, command: list[object]) -> None:
    assert "Traceback" not in done.err, command
    assert done.out or done.err or command[0] in ("dump", "sql"), command
    if done.code != exit_codes.OK:
        assert done.err or command[0] in ("dump", "info", "where"), command
    assert all(line.isprintable() for line in done.out.splitlines()), command
