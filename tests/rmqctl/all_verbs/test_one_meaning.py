"""What a flag is called means one thing: --json, --format, --dry-run and --yes, held against every verb there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rmqctl.flags import options
from rmqctl.main import VERBS, actions_of, cli
from rmqctl.output import outcome as exit_codes
from rmqctl.output.output import FORMATS
from tests.goldens import GoldenStore, tree_state, truth
from tests.opened import store_path
from tests.quick import every
from tests.rmqctl.looking import run

WITHOUT_FORMAT = {
    "browse": "shows a screen",
    "mcp": "speaks a protocol",
    "serve": "prints one line; with --json what it says goes on as JSON",
    "mirror": "prints one summary, when it ends",
    "watch": "prints Prometheus' text format; with --json a line for each sample",
    "help": "prints texts",
    "completion": "prints a script",
}
INTO_FILES = {"export": {"parquet", "arrow", "csv", "json", "jsonl"}, "sql": {*FORMATS, "parquet", "arrow"}}
"""What these write into a file is in --format; the name of the file says it else."""
CHANGING = {
    "dlq redrive",
    "offsets set",
    "offsets reset",
    "offsets copy",
    "offsets merge",
    "offsets delete",
    "offsets set-delay",
    "groups pop-release",
    "groups pop-finish",
    *(f"{verb} {action}" for verb in ("topics", "groups") for action in ("create", "change", "delete")),
}
"""Actions that change a store, of verbs that are not in the group of changes."""
WITHOUT_DRY_RUN = {
    "append": "adds, and refuses what cannot be stored before the first byte",
    "salvage": "makes a store that must not be there",
    "twin": "makes a store that must not be there",
}


def commands() -> Iterator[tuple[str, click.Command]]:
    for name in VERBS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for action in actions_of(command):
            yield name if action is command else f"{name} {action.name}", action


def option(command: click.Command, name: str) -> click.Option | None:
    found = [one for one in command.params if isinstance(one, click.Option) and name in one.opts]
    assert len(found) <= 1
    return found[0] if found else None


def shared(flag: options.Flag, name: str) -> click.Option:
    @click.command()
    @flag
    def alone() -> None:
        """Nothing."""

    found = option(alone, name)
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_format(name: str, command: click.Command) -> None:
    found = option(command, "--format")
    if name in WITHOUT_FORMAT:
        assert found is None
        return
    assert found is not None
    assert isinstance(found.type, click.Choice)
    assert set(found.type.choices) == INTO_FILES.get(name, set(FORMATS))
    assert option(command, "--json") is not None
    if name not in INTO_FILES:
        assert found.default == "table"
        assert option(command, "--bytes") is not None


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_dry_run(name: str, command: click.Command) -> None:
    found = option(command, "--dry-run")
    is_change = name in CHANGING or VERBS[name.partition(" ")[0]].group == "change"
    if not is_change or name in WITHOUT_DRY_RUN:
        assert found is None
        return
    assert found is not None
    wanted = shared(options.dry_run_option, "--dry-run")
    assert (found.opts, found.help, found.is_flag) == (wanted.opts, wanted.help, True)


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_yes(name: str, command: click.Command) -> None:
    found = option(command, "--yes")
    if found is not None:
        wanted = shared(options.yes_option, "--yes")
        assert (found.opts, found.help, found.is_flag) == (wanted.opts, wanted.help, True)


_ROW = truth("clean").messages[5]
LOOKS = [
    ["info"],
    ["ls"],
    ["ls", "--queues"],
    ["du"],
    ["cat", "-n", "3"],
    ["cat", "-n", "-3", "--columns", "topic,body"],
    ["query", "-o", str(_ROW["phyOffset"])],
    ["query", "-t", _ROW["topic"], "--at", str(_ROW["storeTimestamp"])],
    ["predict"],
    ["check"],
    ["log"],
]


@pytest.mark.parametrize("look", every(4, LOOKS), ids=" ".join)
def test_json_is_short_for_format_json(look: list[str]) -> None:
    verb, *rest = look
    short, long = (run(verb, "-s", store_path("clean"), *rest, *how) for how in (["--json"], ["--format", "json"]))
    assert (short.code, short.out) == (long.code, long.out)
    contradicting = run(verb, "-s", store_path("clean"), *rest, "--json", "--format", "csv")
    assert (contradicting.code, contradicting.out) == (exit_codes.USAGE, "")


def test_json_lines_into_a_file_are_those_of_cat(tmp_path: Path) -> None:
    for name in ("json", "jsonl"):
        assert run("export", "-s", store_path("clean"), tmp_path / name, "--format", name).code == exit_codes.OK
    assert (tmp_path / "json").read_bytes() == (tmp_path / "jsonl").read_bytes()


CHANGES = [
    ["recover"],
    ["recover", "--full", "--cut"],
    ["rebuild"],
    ["clean", "--crashed"],
    ["repair"],
    ["truncate", "--at", "601709"],
    ["log", "--prune"],
]


def test_a_dry_run_changes_nothing_and_asks_nothing(golden_store: GoldenStore) -> None:
    """Nor does it need --yes where nobody can be asked; and with --yes it is a dry run all the same."""
    store = golden_store("crash")
    before = tree_state(store.parent)
    # offsets need groups (test_look_changes_nothing), and purge a store that was closed (test_purge)
    assert {one[0] for one in CHANGES} | {"undo", "resume", "purge", "snapshot"} | CHANGING == {
        name for name, command in commands() if option(command, "--dry-run") is not None
    }
    for change in CHANGES:
        for more in ([], ["--yes"]):
            done = run(change[0], "-s", store, *change[1:], "--dry-run", *more)
            assert done.code in (exit_codes.OK, exit_codes.DAMAGE_OR_NOTHING), (change, done.err)
            assert "--yes" not in done.err
        assert tree_state(store.parent) == before, change


def test_log_says_what_pruning_would_free(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    assert run("recover", "-s", store).code == exit_codes.OK
    (would,) = run("log", "-s", store, "--prune", "--dry-run", "--json").objects
    (did,) = run("log", "-s", store, "--prune", "--yes", "--json").objects
    assert would == did | {"dry_run": True}
    assert did["bytes_freed"] > 0
    assert run("log", "-s", store, "--dry-run").code == exit_codes.USAGE
