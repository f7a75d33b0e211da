"""The commands of the cookbook's incidents are run as they stand there, one after the other, each on a golden store."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl import exit_codes
from tests.goldens import GoldenStore
from tests.network.serving import serving
from tests.processes import ROOT
from tests.rmqctl.looking import Done, run

_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


class Incident(NamedTuple):
    """A recipe: the golden that it happened to, its verbs in order, so that none is passed over unseen, and what its
    placeholders stand for. STORE is the golden; NAMESRV that of a broker over it, which `rmqctl serve` is."""

    golden: str
    verbs: list[str]
    places: Mapping[str, str] = {}


_GROUP = {"GROUP": "g-retry", "TOPIC": "Events", "QUEUE": "2"}
INCIDENTS = {
    "Replay since nine o'clock": Incident(
        "broker-real", ["query", "groups", "offsets", "offsets", "groups", "undo"], _GROUP
    ),
    "The DLQ is full": Incident("broker-real", ["dlq", "dlq", "dlq", "groups", "dlq", "produce"], _GROUP),
    "The disk is full": Incident("clean", ["clean", "clean", "clean", "check"]),
}


def commands_of(heading: str) -> list[list[str]]:
    """The command lines of a recipe, word by word, without what is said beside them."""
    text = (ROOT / "docs/cookbook.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in _BLOCK.findall(recipe) for line in block.splitlines() if line.strip()]
    return [shlex.split(line, comments=True) for line in lines]


def _run(words: list[str], store: Path, places: Mapping[str, str]) -> Done:
    given = [{**places, "STORE": str(store)}.get(word, word) for word in words]
    if "NAMESRV" not in given:
        return run(*given)
    with serving(store, "--writable") as served:
        done = run(*(served.namesrv if word == "NAMESRV" else word for word in given))
        assert served.end() == 0
    return done


@pytest.mark.parametrize("heading", INCIDENTS)
def test_every_command_of_an_incident(
    heading: str, golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = INCIDENTS[heading]
    store = golden_store(incident.golden)
    monkeypatch.chdir(tmp_path)
    commands = commands_of(heading)
    assert [words[1] for words in commands] == incident.verbs
    for program, *words in commands:
        assert program == "rmqctl"
        done = _run(words, store, incident.places)
        assert done.code == exit_codes.OK, (words, done.err)
        assert done.out or done.err, words


@pytest.mark.thorough
def test_a_recipe_does_what_it_says(golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the recipe for the DLQ every dead letter waits for the group, and each once."""
    store = golden_store("broker-real")
    monkeypatch.chdir(tmp_path)
    for _, *words in commands_of("The DLQ is full"):
        assert _run(words, store, _GROUP).code == exit_codes.OK
    (row,) = run("groups", "-s", store, "-g", "g-retry", "-t", "%RETRY%g-retry", "--json").objects
    assert row["lag"] == 33
    left = run("dlq", "redrive", "-s", store, "-g", "g-retry", "--dry-run", "--json")
    assert {one["state"] for one in left.objects} == {"redriven"}
