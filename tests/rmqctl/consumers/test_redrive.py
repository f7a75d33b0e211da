"""`rmqctl dlq redrive`: what its group gets, what is chosen, what is noticed, and the lines for a producer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store import MessageStore
from tests import processes
from tests.goldens import GoldenStore, tree_state, truth
from tests.opened import reader, store_path
from tests.rmqctl.damaging import damage_body
from tests.rmqctl.looking import run

GROUP = "g-retry"
DLQ, RETRY = f"%DLQ%{GROUP}", f"%RETRY%{GROUP}"
MARK = "RMQCTL_REDRIVEN"


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    return golden_store("broker-real")


def _dead() -> list[dict[str, Any]]:
    return sorted(
        (row for row in truth("broker-real").messages if row["topic"] == DLQ), key=lambda row: row["queueOffset"]
    )


def _redrive(store: Path, *arguments: object) -> list[dict[str, Any]]:
    done = run("dlq", "redrive", "-s", store, "-g", GROUP, "--json", *arguments)
    assert done.code == exit_codes.OK, done.err
    return done.objects


def test_the_group_gets_them_as_its_clients_expect_them(store: Path) -> None:
    before = next(row for row in run("groups", "-s", store, "-g", GROUP, "-t", RETRY, "--json").objects)
    rows = _redrive(store, "--yes")
    assert [row["state"] for row in rows] == ["ready"] * 33
    with MessageStore.open(store) as opened:
        for row, dead in zip(rows, _dead(), strict=True):
            message = opened.message_at(row["stored_offset"])
            first = opened.message_at(dead["phyOffset"])
            properties = message.properties()
            assert (message.topic, message.queue_id, message.body) == (RETRY, 0, first.body)
            # with all retries before it
            assert (message.reconsume_times, first.reconsume_times > 0) == (0, True)
            assert (message.born_timestamp, message.born_host) == (first.born_timestamp, first.born_host)
            assert properties.pop(MARK) == dead["msgId"]
            kept = {**dead["properties"]}
            for gone in ("DELAY", "REAL_TOPIC", "REAL_QID"):
                assert kept.pop(gone)
            assert properties == kept
            assert properties["RETRY_TOPIC"] == "Events"
        assert [finding for finding in opened.check() if finding.severity.is_alarm] == []
    after = next(row for row in run("groups", "-s", store, "-g", GROUP, "-t", RETRY, "--json").objects)
    assert (before["lag"], after["lag"]) == (0, 33)


def test_the_same_redrive_is_noticed(store: Path) -> None:
    first = _redrive(store, "--yes", "-n", 3)
    then = _redrive(store, "--yes", "-n", 3)
    assert [row["state"] for row in then] == ["redriven"] * 3 + ["ready"] * 3
    assert [row["earlier_offset"] for row in then[:3]] == [row["stored_offset"] for row in first]
    again = _redrive(store, "--dry-run", "--again")
    assert [row["state"] for row in again] == ["ready"] * 33
    # into another topic it is another redrive
    assert {row["state"] for row in _redrive(store, "--dry-run", "--into", "origin")} == {"ready"}
    for path in (store / "index").iterdir():
        path.unlink()
    unsure = run("dlq", "redrive", "-s", store, "-g", GROUP, "--dry-run", "-n", 1)
    assert "it is not known whether" in unsure.err
    assert "no index" in unsure.out


def test_into_the_topic_that_they_came_from(store: Path) -> None:
    rows = _redrive(store, "--yes", "--into", "origin", "-n", 5)
    for row, dead in zip(rows, _dead(), strict=False):
        (first,) = reader("broker-real").find(dead["properties"]["ORIGIN_MESSAGE_ID"]).messages
        assert (row["topic"], row["queue_id"]) == ("Events", first.queue_id)
        with MessageStore.open(store) as opened:
            properties = opened.message_at(row["stored_offset"]).properties()
        assert properties.pop(MARK)
        assert not properties.keys() & {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY", "REAL_TOPIC", "REAL_QID"}


def test_what_is_chosen() -> None:
    golden, dead = store_path("broker-real"), _dead()
    times = sorted(row["storeTimestamp"] for row in dead)

    def offsets(*arguments: object) -> list[int]:
        return [row["queue_offset"] for row in _redrive(golden, "--dry-run", *arguments)]

    assert offsets("--offset", 30) == [30, 31, 32]
    assert offsets("--offset", 3, "--to", 5) == [3, 4]
    assert offsets("-n", 4) == [0, 1, 2, 3]
    middle = times[len(times) // 2]
    assert offsets("-b", middle) == [row["queueOffset"] for row in dead if row["storeTimestamp"] >= middle]
    assert offsets("-e", middle) == [row["queueOffset"] for row in dead if row["storeTimestamp"] <= middle]
    properties = dead[7]["properties"]
    assert offsets("-k", properties["UNIQ_KEY"]) == offsets("-k", properties["KEYS"]) == [7]
    for arguments in (("-k", "nothing"), ("-b", "2030-01-01"), ("--offset", 33)):
        done = run("dlq", "redrive", "-s", golden, "-g", GROUP, "--dry-run", *arguments)
        assert (done.code, "no dead letter matched" in done.err) == (exit_codes.DAMAGE_OR_NOTHING, True)
    assert run("dlq", "redrive", "-s", golden, "-g", "nobody", "--dry-run").code == exit_codes.DAMAGE_OR_NOTHING


def test_a_dry_run_and_lines_change_nothing(store: Path) -> None:
    before = tree_state(store.parent)
    _redrive(store, "--dry-run")
    assert run("dlq", "redrive", "-s", store, "-g", GROUP, "-o", "-").code == exit_codes.OK
    assert tree_state(store.parent) == before
    for wrong in (("--overwrite",), ("-o", "-", "--dry-run")):
        assert run("dlq", "redrive", "-s", store, "-g", GROUP, *wrong).code == exit_codes.USAGE


@pytest.mark.thorough
def test_lines_are_what_append_reads(store: Path, golden_store: GoldenStore) -> None:
    """Appended, they are the messages that the redrive itself would have stored."""
    lines = store.parent / "again.jsonl"
    assert run("dlq", "redrive", "-s", store, "-g", GROUP, "-o", lines).code == exit_codes.OK
    refused = run("dlq", "redrive", "-s", store, "-g", GROUP, "-o", lines)
    assert refused.code == exit_codes.REFUSED
    assert len([json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]) == 33
    assert run("append", "-s", store, "--from", lines).code == exit_codes.OK
    assert {row["state"] for row in _redrive(store, "--dry-run")} == {"redriven"}
    other = golden_store("broker-real")
    _redrive(other, "--yes")
    contents = []
    for place in (store, other):
        with MessageStore.open(place) as opened:
            got = opened.get(RETRY, 0, 66, 32).messages
            contents.append(
                [
                    (one.topic, one.queue_id, one.body, one.properties(), one.flag, one.sys_flag, one.born_host)
                    for one in got
                ]
            )
    assert contents[0] == contents[1]
    assert len(contents[0]) == 32


def test_a_damaged_one_is_named_and_left_out(store: Path) -> None:
    damage_body(store, _dead()[4])
    done = run("dlq", "redrive", "-s", store, "-g", GROUP, "--dry-run", "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert [row["state"] for row in done.objects] == [*["ready"] * 4, "damaged", *["ready"] * 28]
    assert "damage:" in done.err


_HOLD = "import fcntl, sys, time; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(1, flush=True)\n"


def test_while_a_broker_runs_lines_are_named(store: Path) -> None:
    with processes.start(
        [sys.executable, "-c", _HOLD + "time.sleep(100)", store / "lock"], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        done = run("dlq", "redrive", "-s", store, "-g", GROUP, "--yes")
        holder.kill()
    assert done.code == exit_codes.IN_USE
    assert "rmqctl dlq redrive -g g-retry -o - | rmqctl produce --from -" in done.err
