"""The commands of the cookbook's incidents are run as they stand there, one after the other, each on a golden store."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store.answers.steps import Verdict
from tests.goldens import GoldenStore
from tests.network.serving import serving
from tests.opened import store_path
from tests.processes import ROOT
from tests.rmqctl.looking import Done, run
from tests.store.rocksdb.stores import unpacked

_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


class Incident(NamedTuple):
    """A recipe: the golden that it happened to, its verbs in order, so that none is passed over unseen, and what its
    placeholders stand for. STORE is the golden; NAMESRV that of a broker over it, which `rmqctl serve` is. The first
    `finding` commands find damage, and say so by their exit code."""

    golden: str
    verbs: list[str]
    places: Mapping[str, str] = {}
    finding: int = 0


_GROUP = {"GROUP": "g-retry", "TOPIC": "Events", "QUEUE": "2"}
# the store is older by now
_MESSAGE = {
    **_GROUP, "2h ago": "2026-11-20", "OFFSET": "23", "KEY": "evt-2", "what you remember": ".",
    "TAG": "Tag0", "total=[0-9]+": "event [0-9]+", "2026-11-20 09:00": "2026-11-20", "2026-11-20 10:00": "2026-11-23",
}  # fmt: skip
INCIDENTS = {
    "The broker does not start": Incident(
        "short-last", ["doctor", "check", "ls", "recover", "recover", "doctor"], finding=2
    ),
    "A message did not arrive": Incident("broker-real", [*["where"] * 3, "cat", "cat", "query", "recover"], _MESSAGE),
    "A client is refused": Incident("clean", ["acl", "acl", "check"], {"TOPIC": "Orders", "IP": "10.0.0.7"}),
    "A group is behind, or got nothing": Incident(
        "broker-real", [*["groups"] * 3, "where", "dlq", "delays", "halves"], _MESSAGE
    ),
    "Replay since nine o'clock": Incident(
        "broker-real", ["query", "groups", "offsets", "offsets", "groups", "undo"], _GROUP
    ),
    "The DLQ is full": Incident("broker-real", ["dlq", "dlq", "dlq", "groups", "dlq", "produce"], _GROUP),
    "The disk is full": Incident("clean", ["clean", "clean", "clean", "check", "du", "du"]),
}


def _recipe(heading: str) -> str:
    text = (ROOT / "docs/cookbook.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    return str(found)


def commands_of(heading: str) -> list[list[str]]:
    """The command lines of a recipe, word by word, without what is said beside them."""
    lines = [line for block in _BLOCK.findall(_recipe(heading)) for line in block.splitlines() if line.strip()]
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
    if "acl" in incident.verbs:
        for name in ("users", "acls"):
            shutil.copytree(unpacked("v55-auth", tmp_path / name) / "config" / name, store / "config" / name)
    monkeypatch.chdir(tmp_path)
    commands = commands_of(heading)
    assert [words[1] for words in commands] == incident.verbs
    for number, (program, *words) in enumerate(commands):
        assert program == "rmqctl"
        done = _run(words, store, incident.places)
        expected = exit_codes.DAMAGE_OR_NOTHING if number < incident.finding else exit_codes.OK
        if words[0] != "delays":  # by the day of the test: no broker delivers what was due a week ago
            assert done.code == expected, (words, done.err)
        assert done.out or done.err, words


def test_the_broker_starts_after_it(golden_store: GoldenStore) -> None:
    """What a table of the recipe says, too: a stray file, and damage with good messages behind it."""
    store = golden_store("stray-file")
    assert run("predict", "-s", store).code == exit_codes.DAMAGE_OR_NOTHING
    assert run("recover", "-s", store).code == exit_codes.REFUSED
    assert run("repair", "-s", store, "--only", "RMQ-FILE-001").code == exit_codes.OK
    (said,) = run("predict", "-s", store, "--json").objects
    assert (said["loads"], said["messages_lost"]) == (True, 0)


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


def test_every_state_of_where_is_explained() -> None:
    recipe = _recipe("A message did not arrive")
    told = set(re.findall(r"`([a-z-]+)`", "\n".join(re.findall(r"^\| (.*?) \|", recipe, re.MULTILINE))))
    # said in the text of another one, or what an operator has no question about
    aside = {Verdict.FILTERED, Verdict.STORED, Verdict.CANCELLED}
    assert told == {str(state) for state in Verdict if state not in aside}


def test_a_command_within_a_table_is_tried_too() -> None:
    done = run("where", "-s", store_path("broker-real"), "evt-2", "-g", "g-events", "--tag", "TagA || TagB", "--json")
    assert [row["state"] for row in done.objects] == ["filtered"]
