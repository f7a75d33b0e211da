"""The commands of the cookbook's recipe for groups that are behind do what the recipe says, on a broker's store."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from rmqctl import exit_codes
from tests.opened import store_path
from tests.processes import ROOT
from tests.rmqctl.looking import run

_HEADING = "## A group is behind, or got nothing"


def _commands(document: Path) -> list[list[str]]:
    _, _, recipe = document.read_text(encoding="utf-8").partition(_HEADING)
    block = re.search(r"```sh\n(.*?)```", recipe, re.DOTALL)
    assert block is not None
    return [shlex.split(line, comments=True) for line in block[1].splitlines()]


def test_a_group_is_behind() -> None:
    places = {"STORE": str(store_path("broker-real")), "GROUP": "g-retry", "TOPIC": "Events"}
    commands = _commands(ROOT / "docs/cookbook.md")
    assert [words[1] for words in commands] == ["groups", "groups", "dlq", "delays", "halves"]
    for program, *words in commands:
        assert program == "rmqctl"
        done = run(*(places.get(word, word) for word in words))
        assert done.code == exit_codes.OK, words
        assert done.out, words
