"""`rmqctl recover` and `rmqctl rebuild`: what they print, and what they end with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.main import main
from tests.goldens import GoldenStore, tree_state

RECOVER_FIELDS = {
    "was_clean", "start_file", "start_offset", "end_offset", "messages", "truncated_bytes", "queues_changed",
    "units_added", "units_removed", "index_files_rebuilt", "journal",
}  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def record(text: str) -> dict[str, Any]:
    [line] = text.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_recover_as_json(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store("torn-zero")
    code, out, _ = run(capsys, "recover", "-s", store, "--json")
    assert code == 0
    answer = record(out)
    assert answer.keys() >= RECOVER_FIELDS
    assert (answer["was_clean"], answer["end_offset"], answer["messages"]) == (False, 2135296, 2499)
    assert Path(answer["journal"]).parent == store.with_name(store.name + ".rmqctl")
    code, out, _ = run(capsys, "recover", "-s", store, "--json")
    assert (code, record(out)["journal"], record(out)["was_clean"]) == (0, None, True)


def test_recover_for_people(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store("crash")
    code, out, err = run(capsys, "recover", "-s", store)
    assert code == 0
    assert "units added           400" in out
    assert "is kept in" in err
    code, _, err = run(capsys, "recover", "-s", store)
    assert (code, "nothing to change" in err) == (0, True)


def test_a_dry_run_lists_the_operations(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store("tail-garbage-clean")
    before = tree_state(store.parent)
    code, out, _ = run(capsys, "recover", "-s", store, "--dry-run", "--bytes")
    assert code == 0
    assert out.splitlines()[-2].split() == ["clear", "commitlog/00000000000002097152", "38460", "777"]
    code, out, _ = run(capsys, "recover", "-s", store, "--dry-run", "--json")
    assert record(out)["operations"][0]["operation"] == "clear"
    assert tree_state(store.parent) == before


def test_damage_that_stays_ends_with_one(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store("crc-flip-old")
    code, out, err = run(capsys, "recover", "-s", store, "--json")
    assert code == 1
    [span] = record(out)["damaged"]
    assert (span["physical_offset"], span["end_offset"], span["reason"]) == (402516, 403278, "body_crc")
    code, _, err = run(capsys, "recover", "-s", store)
    assert "left as it is: body_crc damage at 402516..403278" in err


def test_a_decision_ends_with_five(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store("crc-flip-third")
    code, out, err = run(capsys, "recover", "-s", store)
    assert (code, out) == (5, "")
    assert "at offset 1695806" in err
    assert "573 good messages (418873 bytes)" in err
    assert "--cut" in err
    code, out, err = run(capsys, "recover", "-s", store, "--cut", "--json")
    assert (code, out, "this deletes 573 messages" in err) == (5, "", True)
    code, out, _ = run(capsys, "recover", "-s", store, "--cut", "--yes", "--json")
    assert (code, record(out)["end_offset"], record(out)["messages_cut"]) == (0, 1695806, 573)


@pytest.mark.parametrize("verb", ["recover", "rebuild"])
def test_places_that_are_no_store(tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("missing", "empty", "file"):
        before = tree_state(tmp_path)
        code, _, err = run(capsys, verb, "-s", tmp_path / name)
        assert code == 3
        assert str(tmp_path / name) in err
        assert tree_state(tmp_path) == before


def test_rebuild_as_json(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store("cq-lost")
    code, out, _ = run(capsys, "rebuild", "-s", store, "--queue-file-size", "2000", "--json")
    answer = record(out)
    assert (code, answer["queues_rebuilt"], answer["units"], answer["index_files_rebuilt"]) == (0, 41, 2500, 3)


def test_rebuild_of_topics(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store("cq-lost")
    code, out, _ = run(capsys, "rebuild", "-s", store, "--queue-file-size", "2000", "-t", "TBW102", "-t", "a", "--json")
    assert (code, record(out)["topics"], record(out)["index_files_rebuilt"]) == (0, ["TBW102", "a"], 0)
    assert run(capsys, "rebuild", "-s", store, "-t", "NoSuchTopic")[0] == 1
    assert run(capsys, "rebuild", "-s", store, "--index", "-t", "a")[0] == 2


def test_rebuild_over_damage_ends_with_one(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "rebuild", "-s", golden_store("crc-flip-old"), "--json")
    assert (code, record(out)["damaged_spans"]) == (1, 1)
    assert "damaged" in err


def test_queues_in_a_rocksdb_are_named(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store("rocksdb")
    for verb in ("recover", "rebuild"):
        code, _, err = run(capsys, verb, "-s", store)
        assert code == 5
        assert "RocksDB" in err
