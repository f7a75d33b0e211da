"""`rmqctl stats`, in this process; that Spark comes to the same is tested in tests/pipeline/."""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.main import main
from rmqctl.output import outcome as exit_codes
from tests.goldens import GoldenStore, truth
from tests.opened import store_path
from tests.rmqctl.looking import Done, run
from tests.store.write.writing import files_below


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})


def stats(*arguments: object, name: str = "clean") -> Done:
    return run("stats", "-s", store_path(name), *arguments)


def test_groups_as_lines() -> None:
    done = stats("--by", "topic", "--json")
    assert done.code == exit_codes.OK
    known = Counter(row["topic"] for row in truth("clean").messages)
    assert {row["topic"]: row["messages"] for row in done.objects} == known
    first = done.objects[0]
    assert list(first)[:3] == ["topic", "messages", "bytes"]
    assert sum(bar["messages"] for bar in first["delays"]) == first["messages"]
    assert [row["bytes"] for row in stats("--by", "topic", "-n", 2, "--json").objects] == [
        row["bytes"] for row in done.objects[:2]
    ]


def test_the_whole_picture_as_one_object() -> None:
    (found,) = stats("--json").objects
    summary = truth("clean").summary
    assert found["messages"] == summary["messages"]
    assert found["duplicates"] == {"messages": 0, "keys": 0, "stored_again_by_design": 0, "first": []}
    assert found["queue_offsets"]["missing"] == found["queue_offsets"]["repeated"] == 0
    assert found["clock"]["jumps"] == found["damage"]["spans"] == 0
    assert {row["topic"] for row in found["topics"]} == {row["topic"] for row in truth("clean").messages}
    assert stats("--json", "--no-duplicates").objects[0]["duplicates"] is None


def test_for_people() -> None:
    done = stats()
    assert done.code == exit_codes.OK
    for part in ("born to stored, ms", "size in bytes", "####", "OrderTopic", "queue offsets"):
        assert part in done.out
    table = stats("--by", "host,day").out.splitlines()
    assert table[0].split()[:3] == ["producer", "host", "day"]
    rows = list(csv.DictReader(io.StringIO(stats("--by", "queue", "--format", "csv").out)))
    assert len(rows) == sum(1 for row in truth("clean").queues if row["max"])
    assert rows[0]["missing_offsets"] == "0"
    assert "topic" in stats("--format", "csv").out.splitlines()[0]


def test_damage_is_said_and_is_exit_code_1() -> None:
    done = stats("--by", "topic", "--json", name="gap")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "not counted: 1 damaged span" in done.err
    assert sum(row["messages"] for row in done.objects) == 2196


def test_nothing_matched() -> None:
    done = stats("-t", "OrderTopik")
    assert (done.code, done.out) == (exit_codes.DAMAGE_OR_NOTHING, "")
    assert "no message matched" in done.err
    assert stats("-b", "1", "-e", "2").code == exit_codes.DAMAGE_OR_NOTHING
    assert stats(name="log-gone").code == exit_codes.DAMAGE_IN_THE_WAY


@pytest.mark.parametrize(
    "arguments", [["--by", "size"], ["--by", ","], ["-n", "3"], ["--conf", "x"], ["-b", "2", "-e", "1"]]
)
def test_wrong_usage(arguments: list[str]) -> None:
    assert stats(*arguments).code == exit_codes.USAGE


def test_it_is_no_store(tmp_path: Path) -> None:
    assert run("stats", "-s", tmp_path / "nothing").code == exit_codes.UNREADABLE


def test_hostile_names_do_not_reach_the_terminal(golden_store: GoldenStore) -> None:
    from tests.pipeline.patching import patch_text

    root = golden_store("clean")
    row = next(row for row in truth("clean").messages if row["topic"] == "topic-with-dash" and row["tags"] == "TagC")
    patch_text(root, row["phyOffset"], "TagC", "\x1b[2J")
    patch_text(root, row["phyOffset"], "topic-with-dash", "topic\x1b[31m-dash")
    for arguments in ([], ["--by", "topic,tag"], ["--by", "topic,tag", "--json"], ["--format", "csv"]):
        done = run("stats", "-s", root, *arguments)
        assert done.code == exit_codes.OK
        assert "\x1b" not in done.out
        assert "\\x1b[31m" in done.out or "\\u001b[31m" in done.out


def test_looking_changes_nothing(golden_store: GoldenStore) -> None:
    root = golden_store("crash")
    before = files_below(root)
    assert run("stats", "-s", root, "--by", "tag").code == exit_codes.OK
    assert files_below(root) == before


def test_help_names_every_dimension(capsys: pytest.CaptureFixture[str]) -> None:
    from rmqctl.pipeline.jobs.stats_sql import DIMENSIONS

    assert main(["stats", "--help"]) == 0
    assert ", ".join(DIMENSIONS) in " ".join(capsys.readouterr().out.split())


def test_json_is_the_same_every_time() -> None:
    made = {stats("--by", "queue,tag,host,hour", "--json").out for _ in range(2)}
    assert len(made) == 1
    json.loads(made.pop().splitlines()[0])
