"""`rmqctl diff`, in this process; that Spark comes to the same is tested in tests/pipeline/."""

from __future__ import annotations

import csv
import io
import os
import shutil
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from tests.goldens import GoldenStore, broker_conf, truth
from tests.opened import store_path
from tests.pipeline.patching import patch_field
from tests.rmqctl.looking import Done, run
from tests.store.write.writing import files_below

MESSAGES = truth("clean").messages


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})


def diff(a: Path, b: Path, *arguments: object) -> Done:
    return run("diff", a, b, *arguments)


def test_the_same(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    before = files_below(root)
    done = diff(store_path("clean"), root)
    assert (done.code, done.err) == (exit_codes.OK, "")
    assert done.out.startswith(f"the stores hold the same: {len(MESSAGES)} messages\n")
    assert "differences" not in done.out
    assert files_below(root) == before


def test_a_changed_message(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    patch_field(root, MESSAGES[40]["phyOffset"], "flag", 9)
    done = diff(store_path("clean"), root)
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "not the same bytes in both: 1 message\n" in done.out
    assert f"first byte that differs: physical offset {MESSAGES[40]['phyOffset'] + 19}" in done.out
    assert "fields that differ: flag" in done.out
    assert "the same again behind it: 2459 messages" in done.out
    (found,) = diff(store_path("clean"), root, "--json").objects
    assert found["agree_until"] == MESSAGES[40]["phyOffset"]
    assert found["messages"]["changed"] == 1
    assert found["differences"][0]["fields"] == ["flag"]
    (row,) = csv.DictReader(io.StringIO(diff(store_path("clean"), root, "--format", "csv").out))
    assert (row["state"], row["topic"]) == ("changed", MESSAGES[40]["topic"])


def test_damage_is_named() -> None:
    done = diff(store_path("clean"), store_path("gap"), "-n", 2)
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "b is damaged: 304 messages in a only" in done.out
    assert "b is damaged: gap at 1048576..1310720" in done.out
    assert "differences (2 of 304)" in done.out
    # damaged alike is still damaged
    assert diff(store_path("gap"), store_path("gap")).code == exit_codes.DAMAGE_OR_NOTHING


def test_a_store_whose_log_is_gone() -> None:
    done = diff(store_path("clean"), store_path("log-gone"))
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "b lacks some: 2500 messages in a only" in done.out
    assert "there is no commitlog file" in done.err


def test_stores_that_are_no_copies() -> None:
    done = diff(store_path("clean"), store_path("crash"), "-n", 1)
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "they are not copies of one log" in done.out


def test_a_log_in_several_directories_needs_its_broker_conf(golden_store: GoldenStore, tmp_path: Path) -> None:
    roots = [golden_store("multipath") for _ in "ab"]
    configs = [broker_conf("multipath", root.parent) for root in roots]
    found = diff(*roots, "--config-a", configs[0], "--config-b", configs[1], "--json").objects[0]
    assert (found["same"], found["messages"]["same"]) == (True, len(truth("multipath").messages))


def test_wrong_usage(tmp_path: Path) -> None:
    assert run("diff", store_path("clean")).code == exit_codes.USAGE
    assert diff(store_path("clean"), store_path("clean"), "-n", 0).code == exit_codes.USAGE
    # said at once: Spark is not started for it
    assert run("diff", store_path("clean"), tmp_path / "nothing").code == exit_codes.UNREADABLE


def test_the_first_line_says_that_the_configuration_differs(golden_store: GoldenStore) -> None:
    root = golden_store("broker-real")
    topics = root / "config" / "topics.json"
    topics.write_text(topics.read_text().replace('"perm":6', '"perm":4', 1))
    done = diff(store_path("broker-real"), root)
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert done.out.startswith("the stores differ in their configuration (1 topic); the same in both: ")
    assert "hold the same" not in done.out


def test_the_first_line_says_that_the_configuration_was_not_compared(golden_store: GoldenStore) -> None:
    root = golden_store("broker-real")
    shutil.rmtree(root / "config")
    first = diff(store_path("broker-real"), root).out.splitlines()[0]
    assert first.startswith("the stores hold the same messages (")
    assert first.endswith("not all of the configuration was compared")
