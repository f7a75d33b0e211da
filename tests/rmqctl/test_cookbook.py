"""The commands of the cookbook's incidents about messages and groups do what the recipes say, on a broker's store."""

from __future__ import annotations

import re
import shlex

import pytest

from rmqctl import exit_codes
from rmqctl.store.answers.where.steps import Verdict
from tests.opened import store_path
from tests.processes import ROOT
from tests.rmqctl.looking import run

_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
# the store is older by now
_PLACES = {"2h ago": "2026-11-20", "GROUP": "g-retry", "TOPIC": "Events", "QUEUE": "2", "OFFSET": "23", "KEY": "evt-2"}
_INCIDENTS = {
    "A message did not arrive": ["where"] * 4 + ["cat", "query", "recover"],
    "A group is behind, or got nothing": ["groups"] * 3 + ["where", "dlq", "delays", "halves"],
}


def _recipe(heading: str) -> str:
    text = (ROOT / "docs/cookbook.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    return str(found)


def _commands(recipe: str) -> list[str]:
    """The command lines of all of its blocks, without what is said beside them."""
    lines = [line for block in _BLOCK.findall(recipe) for line in block.splitlines() if line.strip()]
    return [line.partition("  #")[0].rstrip() for line in lines]


@pytest.mark.parametrize("heading", _INCIDENTS)
def test_every_command_of_an_incident(heading: str) -> None:
    commands = _commands(_recipe(heading))
    assert [shlex.split(command)[1] for command in commands] == _INCIDENTS[heading]
    for command in commands:
        first, *pipes = command.split(" | ") if "--tag" not in command else [command]
        program, *words = shlex.split(first)
        assert program == "rmqctl"
        done = run(*({**_PLACES, "STORE": str(store_path("broker-real"))}.get(word, word) for word in words))
        assert done.code == exit_codes.OK, (command, done.err)
        assert done.out, command
        assert all(pipe.startswith("grep ") for pipe in pipes)


def test_every_state_of_where_is_explained() -> None:
    recipe = _recipe("A message did not arrive")
    told = set(re.findall(r"`([a-z-]+)`", "\n".join(re.findall(r"^\| (.*?) \|", recipe, re.MULTILINE))))
    # said in the text of another one, or what an operator has no question about
    aside = {Verdict.FILTERED, Verdict.STORED, Verdict.CANCELLED}
    assert told == {str(state) for state in Verdict if state not in aside}


def test_a_command_within_a_table_is_tried_too() -> None:
    done = run("where", "-s", store_path("broker-real"), "evt-2", "-g", "g-events", "--tag", "TagA || TagB", "--json")
    assert [row["state"] for row in done.objects] == ["filtered"]
