"""The way out of an interrupted change, commands that work as they are printed, and asking before messages go."""

from __future__ import annotations

import json
import os
import re
import shlex
from functools import partial
from pathlib import Path

import pytest

from rmqctl.store.files import lock
from rmqctl.store.recover.recover import truncate
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, tree_state
from tests.rmqctl.change.test_undo import interrupted, same
from tests.rmqctl.looking import run
from tests.store.files.crashing import crashed


def _printed(text: str, verb: str) -> list[str]:
    """The arguments of the command of that name that a message tells to run."""
    return next(shlex.split(found)[1:] for found in re.findall("`([^`]+)`", text) if f"rmqctl {verb}" in found)


def test_the_way_out_is_named_and_works_as_printed(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    interrupted(store)
    assert run("undo", "-s", store, "--give-up", "20")[0] == 2
    os.utime(store / "lock")  # as a broker does that starts
    before = tree_state(store)
    for verb in ("undo", "resume"):
        code, out, err = run(verb, "-s", store)
        assert (code, out, "has written to the store" in err) == (5, "", True)
        code, out, err = run(verb, "-s", store, "--dry-run")
        assert (code, out) == (5, "")
    give_up = _printed(err, "undo --give-up")
    code, out, _ = run(*give_up, "--dry-run", "--json")
    assert (code, json.loads(out)["state"], tree_state(store)) == (0, "given-up", before)
    code, out, err = run(*give_up, "--json")
    assert (code, json.loads(out)["state"], tree_state(store)) == (0, "given-up", before)
    for verb_line in (
        ("append", "-s", store, "-t", "T", "--body", "x"),
        ("clean", "-s", store, "--at-once", "--yes"),
        ("undo", "-s", store),
        ("resume", "-s", store),
        give_up,
    ):
        code, out, err = run(*verb_line)
        assert (code, out, "given up" in err) == (5, "", True)
        recover = _printed(err, "recover")
    code, _, err = run("log", "-s", store, "--prune", json.loads(run("log", "-s", store, "--json")[1])["id"], "--yes")
    assert (code, "recover" in err) == (5, True)
    found = [json.loads(line) for line in run("check", "-s", store, "--json")[1].splitlines()]
    assert next(row["fix"] for row in found if row.get("code") == "RMQ-STATE-002").startswith("rmqctl recover")
    assert run(*recover)[0] == 0
    states = [json.loads(line)["state"] for line in run("log", "-s", store, "--json")[1].splitlines()]
    assert states[0] == "mended"
    assert run("append", "-s", store, "-t", "T", "--body", "x")[0] == 0
    assert run("undo", "-s", store, "--give-up")[0] == 1
    code, out, _ = run("log", "-s", store, "--prune", "--yes", "--json")
    assert (code, len(json.loads(out)["forgotten"])) == (0, len(states))


def _truncate(store: Path) -> None:
    with StoreFiles(store) as files:
        truncate(files, 601709)


def test_resume_asks_before_messages_go(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    before = tree_state(store)
    for end in ("undo", "resume"):
        assert crashed(partial(_truncate, store), 190)
        lock._held.clear()
        if end == "undo":  # it takes nothing away
            assert run("undo", "-s", store)[0] == 0
            assert same(before, tree_state(store))
    code, out, err = run("resume", "-s", store)
    assert (code, out, "this deletes 1814 messages" in err, "--yes" in err) == (5, "", True, True)
    code, out, _ = run("resume", "-s", store, "--yes", "--json")
    assert (code, json.loads(out)["state"]) == (0, "applied")
    assert run("undo", "-s", store)[0] == 0
    assert same(before, tree_state(store))


def test_undo_asks_before_messages_go(golden_store: GoldenStore) -> None:
    store = golden_store("crc-flip-third")
    before = tree_state(store)
    assert run("recover", "-s", store, "--bridge")[0] == 0
    code, out, err = run("undo", "-s", store)
    assert (code, out, "this deletes 1 message" in err) == (5, "", True)
    assert run("undo", "-s", store, "--dry-run")[0] == 0
    assert run("undo", "-s", store, "--yes")[0] == 0
    assert same(before, tree_state(store))


@pytest.mark.parametrize("verb", [("rebuild",), ("recover", "--cut", "--yes"), ("repair", "--yes")])
def test_the_way_back_works_as_printed(golden_store: GoldenStore, verb: tuple[str, ...]) -> None:
    """The commitlog stands elsewhere, in two folders; the journal remembers where."""
    store = golden_store("multipath")
    conf = broker_conf("multipath", store.parent)
    index = next((store / "index").iterdir())
    index.write_bytes(index.read_bytes()[:-1000] + bytes(1000))
    before = tree_state(store)
    code, _, err = run(verb[0], "-s", store, "-c", conf, *verb[1:])
    assert code in (0, 1)
    assert not same(before, tree_state(store))
    assert run(*_printed(err, "undo"))[0] == 0
    assert same(before, tree_state(store))
