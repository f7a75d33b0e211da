"""What takes something away says how much, asks on a terminal, and elsewhere needs --yes: every verb, by one table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from rmqctl.main import VERBS, actions_of, cli
from rmqctl.output import outcome
from rmqctl.output import outcome as exit_codes
from rmqctl.store.files import lock
from rmqctl.store.recover.recover import truncate
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, TreeState, tree_state
from tests.quick import sample
from tests.rmqctl.looking import run
from tests.store.files.crashing import crashed
from tests.terminal import TerminalText


class Case(NamedTuple):
    """A command line (STORE and FILE are filled in), what is said of what it takes away, and what happened before."""

    golden: str
    command: str
    said: str
    before: Callable[[Path], object] = lambda store: None
    # Spark is not started for it
    with_yes: bool = True


def _set_back(store: Path) -> None:
    done = run("offsets", "reset", "-s", store, "-g", "g-retry", "-t", "Events", "--to", "earliest")
    assert done.code == exit_codes.OK


def _truncated(store: Path) -> None:
    with StoreFiles(store) as files:
        truncate(files, 601709)


def _interrupted(store: Path) -> None:
    assert crashed(partial(_truncated, store), 190)
    lock._held.clear()  # the process is gone, and with it its lock


def _bridged(store: Path) -> None:
    assert run("recover", "-s", store, "--bridge").code == exit_codes.OK


def _written(store: Path) -> None:
    (store.parent / "o.csv").write_bytes(bytes(2048))


CASES = {
    "recover --cut": Case("crc-flip-old", "recover -s STORE --full --cut", "deletes 2024 messages"),
    "recover --no-journal": Case("crash", "recover -s STORE --no-journal", "without undo"),
    "recover --bridge": Case("crc-flip-old", "recover -s STORE --bridge --no-journal", "without undo"),
    "rebuild": Case("clean", "rebuild -s STORE --no-journal", "removes or overwrites 226.7 KiB in 56 files without"),
    "clean": Case("clean", "clean -s STORE --at-once", "removes 2449 messages in 22 files for good"),
    "repair": Case("stray-file", "repair -s STORE --no-journal", "B in 1 file without undo"),
    "truncate": Case("clean", "truncate -s STORE --at 601709", "deletes 1814 messages"),
    "truncate --no-journal": Case(
        "clean", "truncate -s STORE --at 601709 --no-journal", "deletes 1814 messages, removes or overwrites "
    ),
    "undo": Case("crc-flip-old", "undo -s STORE", "deletes 1 message", _bridged),
    "resume": Case("clean", "resume -s STORE", "deletes 1814 messages", _interrupted),
    "log": Case("clean", "log -s STORE --prune", "1814 messages among it), and with it the way back", _truncated),
    "purge": Case("broker-real", "purge -s STORE -t Events", "skips 237 messages that consumers cannot get any"),
    "offsets": Case(
        "broker-real", "offsets reset -s STORE -g g-retry -t Events --to 5", "skips 40 messages that", _set_back
    ),
    "dlq": Case("broker-real", "dlq redrive -s STORE -g g-retry", "stores 33 dead letters once more, in %RETRY%g"),
    "export": Case("clean", "export -s STORE FILE --overwrite", "o.csv (2.0 KiB)", _written),
    "report": Case("clean", "report -s STORE -o FILE --overwrite", "o.csv (2.0 KiB)", _written, False),
    "sql": Case("clean", "sql -s STORE -o FILE --overwrite 'select 1'", "o.csv (2.0 KiB)", _written, False),
}  # fmt: skip
NOTHING = {
    "doctor": "looks",
    "browse": "looks",
    "mcp": "looks",
    "watch": "looks; replaces its own file",
    "info": "looks",
    "ls": "looks",
    "du": "looks",
    "cat": "looks",
    "dump": "looks",
    "query": "looks",
    "where": "looks",
    "delays": "looks",
    "halves": "looks",
    "acl": "looks",
    "predict": "looks",
    "check": "looks",
    "append": "adds",
    "snapshot": "makes a directory that must not be there",
    "salvage": "makes a store that must not be there",
    "twin": "makes a store that must not be there",
    "stats": "looks",
    "diff": "looks",
    "serve": "looks; with --writable clients change what they may change at any broker",
    "cluster": "looks",
    "produce": "adds",
    "mirror": "makes a store, or goes on with one that has the same messages",
    "consume": "looks, and commits where it is asked to",
    "help": "prints",
    "config": "looks",
    "completion": "prints",
}
"""The verbs that ask nothing, and why."""
AT_BROKERS = {"topics", "groups"}
"""Verbs that ask before brokers delete something: tests/rmqctl/wire/test_entries.py."""


def test_every_verb_is_in_the_table() -> None:
    asking = {case.command.split()[0] for case in CASES.values()}
    assert asking | NOTHING.keys() | AT_BROKERS == VERBS.keys()
    assert not (asking | AT_BROKERS) & NOTHING.keys()
    for name in VERBS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        commands = actions_of(command)
        assert any("yes" in {one.name for one in each.params} for each in commands) == (name in asking | AT_BROKERS), (
            name
        )


def _arguments(case: Case, store: Path) -> list[str]:
    words = case.command.replace("'select 1'", "select_1").split()
    places = {"STORE": str(store), "FILE": str(store.parent / "o.csv"), "select_1": "select 1"}
    return [places.get(word, word) for word in words]


def _unchanged(before: TreeState, after: TreeState) -> bool:
    """All but the lock file, which taking the broker's lock makes."""
    differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return all(Path(path).name == "lock" or (path in after and after[path][2] == "directory") for path in differing)


@pytest.mark.parametrize(
    "name", sample(CASES, ["recover --no-journal", "clean", "truncate --no-journal", "log", "export", "sql"])
)
def test_what_is_taken_away_is_asked_for(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    store = golden_store(case.golden)
    case.before(store)
    arguments = _arguments(case, store)
    before = tree_state(store.parent)
    done = run(*arguments)
    assert (done.code, done.out) == (exit_codes.REFUSED, ""), done.err
    assert case.said in done.err
    assert "--yes" in done.err
    assert _unchanged(before, tree_state(store.parent))

    asked: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdin", TerminalText())
        patched.setattr(outcome, "_is_terminal", lambda: True)
        patched.setattr(click, "confirm", lambda question, **_: asked.append(question))
        done = run(*arguments)
    assert len(asked) == 1, done.err
    (question,) = asked
    assert question.startswith("This ")
    assert case.said in question
    assert _unchanged(before, tree_state(store.parent))
    if "--prune" not in arguments and arguments[0] not in ("export", "report", "sql"):
        assert run(*arguments, "--dry-run").code in (exit_codes.OK, exit_codes.DAMAGE_OR_NOTHING)
    if case.with_yes:
        done = run(*arguments, "--yes")
        assert done.code in (exit_codes.OK, exit_codes.DAMAGE_OR_NOTHING), done.err
        assert not _unchanged(before, tree_state(store.parent))


def test_where_nothing_goes_nothing_is_asked(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    for command in (
        ("recover", "-s", store, "--no-journal"),
        ("repair", "-s", store, "--no-journal"),
        ("export", "-s", store, store.parent / "new.csv", "--overwrite"),
        ("clean", "-s", store, "--older-than", "99999d"),
        ("log", "-s", store, "--prune"),
    ):
        assert run(*command).code == exit_codes.OK, command
    # what a journal keeps is not gone
    assert run("rebuild", "-s", store).code == exit_codes.OK
