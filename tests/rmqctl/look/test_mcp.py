"""`rmqctl mcp`: what its tools answer is what the verbs print, of allowed stores only."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqctl.commands.look import mcp
from rmqctl.formats.errors import RefusedError
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run

pytest.importorskip("mcp")

# a new option of a verb is offered only after it is written here
OFFERED = set(
    """a action all at b begin behind boundary broker by compacted content due end explain fail-fast files filter from
    full
    group history id ids key limit map max-duration no-duplicates no-orphans no-system-topics offset order pop queue
    queues quick severity store subset tag to topic topics tz undelivered verb words scan summary
    tiered""".split()
)
CHANGING = {"append", "recover", "rebuild", "clean", "repair", "purge", "truncate", "undo", "resume", "salvage", "twin"}


async def _asked(options: list[object], calls: list[tuple[str, dict[str, Any]]]) -> tuple[list[Any], list[Any]]:
    from mcp import StdioServerParameters
    from mcp.client import Client

    # all of it: the clock may be another one
    words, environment = ["-m", "rmqctl", "mcp", *map(str, options)], dict(os.environ)
    server = StdioServerParameters(command=sys.executable, args=words, env=environment)
    async with Client(server) as client:
        listed = await client.list_tools()
        return listed.tools, [await client.call_tool(name, arguments) for name, arguments in calls]


def _rows(answer: Any) -> list[Any]:
    return [json.loads(line) for line in answer.content[0].text.splitlines()]


def _without(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in mcp.BODIES}


def test_tools_answer_as_the_verbs_and_read_allowed_stores_only(golden_store: GoldenStore, tmp_path: Path) -> None:
    store, other = golden_store("clean"), golden_store("crash")
    link = tmp_path / "link"
    link.symlink_to(other)
    before = tree_state(store), tree_state(other)
    refused: list[tuple[str, dict[str, Any]]] = [
        ("info", {"store": "/etc"}),
        ("info", {"store": str(link)}),
        ("info", {"store": "-s=/etc"}),
        ("info", {"store": f"{store}/../../.."}),
        ("info", {"store": "nul\0"}),
        ("diff", {"a": str(store), "b": str(other)}),
        ("cat", {"config": "/etc/passwd"}),
        ("cat", {"limit": "--store=/etc"}),
        ("cat", {"grep": "a"}),
        ("predict", {"broker": f"--store={other}"}),
        ("predict", {"epochs": [str(other)]}),
        ("check", {"state": "/tmp/state"}),
        ("acl", {"secrets": True}),
        ("log", {"prune": True}),
        ("groups", {"namesrv": "127.0.0.1:9876"}),
        ("help", {"man": "/tmp"}),
        ("recover", {}),
    ]
    answered: list[tuple[str, dict[str, Any]]] = [
        ("check", {"quick": True}),
        ("cat", {"topic": ["TopicTest"], "limit": -3}),
        ("query", {"topic": ["TopicTest"], "queue": 0, "offset": 0}),
        ("where", {"words": ["TopicTest", "0", "0"]}),
        ("cat", {}),
        ("where", {"words": [f"--store={other}"]}),
        ("cat", {"topic": [f"--store={other}"]}),
        ("help", {"verb": "du"}),
        ("query", {"id": "x"}),
    ]
    listed, answers = asyncio.run(_asked(["-s", store], answered + refused))
    names = {tool.name for tool in listed}
    assert names == {verb.replace(" ", "_") for verb in mcp.VERBS}
    assert not names & CHANGING
    assert all(tool.annotations.read_only_hint for tool in listed)
    assert {name for tool in listed for name in tool.input_schema["properties"]} == OFFERED
    check, cat, query, where, everything, key, topic, help_text, wrong = answers[: len(answered)]
    at = ["-s", store, "--json"]
    assert _rows(check) == run("check", *at, "--quick").objects
    assert _rows(cat) == list(map(_without, run("cat", *at, "-t", "TopicTest", "-n", "-3").objects))
    assert _rows(query) == list(map(_without, run("query", *at, "-t", "TopicTest", "-q", "0", "-o", "0").objects))
    assert _rows(where) == run("where", *at, "TopicTest", "0", "0").objects
    assert len(everything.content[0].text.encode()) <= mcp.MOST_BYTES
    assert 50 < len(_rows(everything)) < 2500
    assert "cut after" in everything.content[-1].text
    assert str(other) not in key.content[0].text.replace(f"--store={other}", "")
    assert topic.content[0].text == "" or topic.is_error
    assert help_text.content[0].text == run("help", "du").out
    assert wrong.is_error
    assert json.loads(wrong.content[-1].text) == json.loads(run("query", *at, "-i", "x").err)
    for (name, arguments), answer in zip(refused, answers[len(answered) :], strict=True):
        assert answer.is_error, (name, arguments, answer)
        assert json.loads(answer.content[0].text)["exit_code"] in (2, 5), (name, arguments)
    assert (tree_state(store), tree_state(other)) == before


def test_roots_and_bodies_are_named_on_the_command_line(golden_store: GoldenStore) -> None:
    store, damaged = golden_store("clean"), golden_store("crc-flip-old")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("cat", {"store": str(store), "limit": 2}),
        ("cat", {"limit": 2}),
        ("cat", {"store": "/etc"}),
        ("check", {"store": str(damaged)}),
    ]
    options = ["--root", store.parent, "--root", damaged.parent, "--bodies"]
    _, (whole, without, outside, check) = asyncio.run(_asked(options, calls))
    found = run("check", "-s", damaged, "--json")
    assert (check.content[0].text, check.is_error, found.code) == (found.out, False, 1)
    assert whole.content[0].text == run("cat", "-s", store, "--json", "-n", "2").out
    assert (without.is_error, outside.is_error) == (True, True)


def test_a_slow_verb_is_ended(golden_store: GoldenStore) -> None:
    with pytest.raises(RefusedError, match="took more than"):
        mcp._answer(["check", f"--store={golden_store('clean')}", "--json"], False, 0.01)


def test_it_needs_a_store() -> None:
    assert run("mcp").code == 2


def test_a_long_object_is_cut_in_its_lists() -> None:
    """An assistant that asks for the topics of a large store is given an object that parses."""
    topics = [{"topic": f"topic-{number}"} for number in range(10_000)]
    row: dict[str, Any] = {"messages": 5, "topics": topics, "sizes": [1, 2]}
    more = {**row, "inner": {"files": ["x" * 100] * 5_000}, "text": "ü" * 1_000}
    text, cut = mcp._bounded([(json.dumps(more) + "\n").encode()], bytes)
    found = json.loads(text)
    assert len(text.encode()) <= mcp.MOST_BYTES
    assert (found["messages"], found["sizes"], found["text"]) == (5, [1, 2], more["text"])
    assert found["topics"] == row["topics"][: len(found["topics"])]
    assert f"{len(found['topics'])} of 10000 topics" in str(cut)
    assert f"{len(found['inner']['files'])} of 5000 inner.files" in str(cut)


def test_a_long_line_without_lists_is_cut() -> None:
    for line in (json.dumps({"body": "x" * 100_000}), "x" * 100_000, json.dumps({"one": ["x" * 100_000]})):
        text, cut = mcp._bounded([line.encode()], bytes)
        assert (len(text), str(cut).startswith("ask for less")) == (mcp.MOST_BYTES, True)


def test_a_wrong_question_is_an_error_with_or_without_json() -> None:
    for words in (["help", "--", "-x"], ["info", "--json", "--", "x"]):
        assert mcp._answer(words, bodies=False, seconds=60)[1]
