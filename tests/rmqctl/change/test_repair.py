"""`rmqctl repair`, `rmqctl truncate` and `rmqctl recover --bridge`: what they print and what they end with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.features import feature_store
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run


def record(text: str) -> dict[str, Any]:
    [line] = text.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_bridge(golden_store: GoldenStore) -> None:
    store = golden_store("crc-flip-third")
    code, _, err = run("recover", "-s", store)
    assert (code, "--bridge" in err) == (5, True)
    assert run("recover", "-s", store, "--bridge", "--cut")[0] == 2
    before = tree_state(store)
    code, out, err = run("recover", "-s", store, "--bridge", "--dry-run")
    assert (code, "would be replaced by filler messages" in out) == (0, True)
    assert "1695806" in out
    assert {path for path in before if before[path] != tree_state(store)[path]} <= {".", "lock"}
    code, out, _ = run("recover", "-s", store, "--bridge", "--json")
    answer = record(out)
    assert (code, answer["messages"], answer["messages_cut"]) == (0, 2499, 0)
    [span] = answer["bridged"]
    assert (span["physical_offset"], span["end_offset"], span["reason"], span["fillers"]) == (
        1695806,
        1714647,
        "body_crc",
        1,
    )
    code, out, _ = run("query", "-s", store, "-o", "1695806", "--json")
    assert record(out)["properties"] == {"RMQCTL_DAMAGED": "body_crc"}
    assert run("check", "-s", store)[0] == 0


def test_truncate(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    assert run("truncate", "-s", store)[0] == 2
    code, out, err = run("truncate", "-s", store, "--at", "600000")
    assert (code, out) == (5, "")
    assert "`--at 582959`" in err
    code, out, err = run("truncate", "-s", store, "--at", "601709", "--dry-run")
    assert (code, "messages cut          1814" in out, "It would change" in out) == (0, True, True)
    before = tree_state(store)
    code, out, err = run("truncate", "-s", store, "--at", "601709", "--json")
    assert (code, out) == (5, "")
    assert "this deletes 1814 messages" in err
    assert "--yes" in err
    assert {**tree_state(store), ".": 0, "lock": 0} == {**before, ".": 0, "lock": 0}
    code, out, err = run("truncate", "-s", store, "--at", "601709", "--yes", "--json")
    assert (code, record(out)["messages"], record(out)["messages_cut"]) == (0, 686, 1814)
    assert run("check", "-s", store)[0] == 0
    assert run("undo", "-s", store)[0] == 0
    code, _, err = run("truncate", "-s", store, "--at", "601709", "--no-journal")
    assert (code, "--yes" in err) == (5, True)


def test_repair(golden_store: GoldenStore) -> None:
    store = golden_store("stray-file")
    before = tree_state(store)
    code, out, err = run("repair", "-s", store, "--dry-run")
    assert code == 0
    assert "RMQ-FILE-001" in out
    assert "commitlog/notes.txt" in out
    assert "would be fixed" in out
    assert tree_state(store) == before
    code, out, _ = run("repair", "-s", store, "--json")
    answer = record(out)
    assert (code, answer["mended"], answer["left"]) == (0, {"RMQ-FILE-001": 1}, [])
    assert not (store / "commitlog" / "notes.txt").exists()
    code, _, err = run("repair", "-s", store)
    assert (code, "there is nothing to fix" in err) == (0, True)
    assert run("undo", "-s", store)[0] == 0
    assert (store / "commitlog" / "notes.txt").exists()


def test_what_is_left_ends_with_one(golden_store: GoldenStore) -> None:
    code, out, _ = run("repair", "-s", golden_store("log-gone"))
    assert code == 1
    assert "RMQ-FILE-010" in out
    assert "need a decision" in out


def test_codes(golden_store: GoldenStore) -> None:
    store = golden_store("crc-flip-old")
    code, _, err = run("repair", "-s", store, "--only", "RMQ-NO-001")
    assert (code, "RMQ-NO-001" in err) == (2, True)
    code, out, _ = run("repair", "-s", store, "--only", "RMQ-FILE-001", "--json")
    assert (code, record(out)["mended"], record(out)["operations"]) == (1, {}, [])
    code, out, _ = run("repair", "-s", store, "--only", "RMQ-LOG-005", "--json")
    assert record(out)["mended"] == {"RMQ-LOG-005": 1}
    assert len(record(out)["bridged"]) == 1


def test_places_that_are_no_store(tmp_path: Path) -> None:
    for verb in (("repair",), ("truncate", "--at", "0"), ("recover", "--bridge")):
        code, _, err = run(verb[0], "-s", tmp_path / "missing", *verb[1:])
        assert (code, str(tmp_path / "missing") in err) == (3, True)
    assert list(tmp_path.iterdir()) == []


def test_a_plan_says_what_a_broker_does_without_the_file(tmp_path: Path) -> None:
    """Real brokers read their whole timer queue again without timercheck (`predict` counts the messages)."""
    store = feature_store("timer-clean-533", tmp_path)
    timercheck = store / "config" / "timercheck"
    timercheck.unlink()
    timercheck.mkdir()
    planned = run("repair", "-s", store, "--only", "RMQ-FILE-007", "--dry-run")
    assert "those that wait are delivered twice" in planned.err
    done = run("repair", "-s", store, "--only", "RMQ-FILE-007", "--json")
    (note,) = done.objects[0]["notes"]
    assert f"note: {note}" in planned.err
    queue = run("ls", "--queues", "-s", store, "-t", "rmq_sys_wheel_timer", "--json").objects[0]
    assert f"{queue['messages']} messages" in note
    start = run("predict", "-s", store, "--json").objects[0]
    assert start["timer_reset"]
    assert start["messages_repeated"] > 0


def test_a_plan_says_that_a_table_is_empty_then(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    config = store / "config"
    for name in ("topics.json", "consumerOffset.json"):
        (config / name).unlink()
        (config / name).mkdir()
    (config / "topics.json.bak").unlink()
    done = run("repair", "-s", store, "--only", "RMQ-FILE-007", "--dry-run", "--json")
    assert sorted(done.objects[0]["notes"]) == [
        "a broker takes config/consumerOffset.json.bak instead of config/consumerOffset.json",
        "config/topics.json has no good backup: a broker starts with an empty table in its place",
    ]
