"""`rmqctl watch`: its numbers are those of the other verbs, in a form that Prometheus reads."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.commands.look.watch import METRICS
from rmqctl.output import outcome as exit_codes
from rmqctl.store import Message, MessageStore
from tests.goldens import GoldenStore, tree_state
from tests.opened import store_path
from tests.rmqctl.looking import Done, run

parser = pytest.importorskip("prometheus_client.parser")
MONITORING = Path(__file__).parents[3] / "docs/monitoring"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def _watched(store: Path, folder: Path, *flags: str) -> tuple[Done, Samples]:
    """Run it; what Prometheus' own parser reads in its file, without the label of the store."""
    file = folder / "store.prom"
    done = run("watch", "-s", store, "-o", file, *flags)
    found: Samples = {}
    for family in parser.text_string_to_metric_families(file.read_text(encoding="utf-8")):
        assert family.type == "gauge"
        assert family.documentation == METRICS[family.name].about
        for sample in family.samples:
            assert sample.labels["store"] == str(store)
            labels = frozenset((name, text) for name, text in sample.labels.items() if name != "store")
            assert {name for name, _ in labels} == set(METRICS[sample.name].labels)
            found[sample.name, labels] = sample.value
    return done, found


def _of(found: Samples, name: str, **labels: str) -> float:
    return found[f"rmqctl_{name}", frozenset(labels.items())]


def test_its_numbers_are_those_of_the_other_verbs(tmp_path: Path) -> None:
    store = store_path("broker-real")
    before = tree_state(store)
    done, found = _watched(store, tmp_path, "--full")
    assert (done.code, done.err) == (exit_codes.OK, "")
    assert tree_state(store) == before
    [row] = run("info", "-s", store, "--json").objects
    assert _of(found, "commitlog_files") == row["commitlog"]["files"]
    assert _of(found, "commitlog_end_offset_bytes") == row["commitlog"]["max_offset"]
    assert _of(found, "last_message_timestamp_seconds") * 1000 == row["commitlog"]["last_store_timestamp"]
    for topic in run("ls", "-s", store, "--json").objects:
        assert _of(found, "topic_messages", topic=topic["topic"]) == topic["messages"]
        assert _of(found, "topic_bytes", topic=topic["topic"]) == topic["bytes"]
    lags: dict[tuple[str, str], int] = {}
    for queue in run("groups", "-s", store, "--json").objects:
        if queue["topic"] is None:  # a group without offsets
            continue
        if queue["lag"] is not None:
            lags[queue["group"], queue["topic"]] = lags.get((queue["group"], queue["topic"]), 0) + queue["lag"]
    assert lags
    told = {labels: value for (name, labels), value in found.items() if name == "rmqctl_group_lag_messages"}
    assert told == {frozenset({("group", group), ("topic", topic)}): lag for (group, topic), lag in lags.items()}


def test_a_lag_that_is_not_known_is_not_0(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Number 39 of the troubles: what is not known is left out, and says so by a number of its own."""
    store = golden_store("broker-real")
    path = store / "config/consumerOffset.json"
    path.write_text('{"offsetTable":{"Nope@g-orders":{0:4},"Pay@g-pay":{0:1,1:2}}}', encoding="utf-8")
    _, found = _watched(store, tmp_path)
    lags = {labels for name, labels in found if name == "rmqctl_group_lag_messages"}
    assert lags == {frozenset({("group", "g-pay"), ("topic", "Pay")})}
    assert _of(found, "group_lag_messages", group="g-pay", topic="Pay") == 1
    assert _of(found, "group_unknown_queues", group="g-pay", topic="Pay") == 2
    assert _of(found, "group_unknown_queues", group="g-orders", topic="Nope") == 1


def test_damage_and_a_crash_are_numbers(tmp_path: Path) -> None:
    _, found = _watched(store_path("crc-flip-last"), tmp_path, "--full")
    assert _of(found, "findings", code="RMQ-LOG-005", severity="error") == 1
    _, found = _watched(store_path("crash"), tmp_path)
    assert _of(found, "store_clean") == 0
    assert _of(found, "store_part_damages", part="groups") > 0


def test_queues_that_lost_files_are_a_number(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("broker-real")
    assert _of(_watched(store, tmp_path)[1], "incomplete_queues") == 0
    shutil.rmtree(store / "consumequeue/Events/2")
    shutil.rmtree(store / "consumequeue/%DLQ%g-retry")
    _, found = _watched(store, tmp_path)
    assert _of(found, "incomplete_queues") == _of(found, "findings", code="RMQ-CQ-001", severity="error") == 2
    assert _of(found, "store_part_damages", part="topics") == 1


def test_a_store_that_is_open_is_well(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", "rw", create=True) as store:
        store.put(Message("Topic", b"x"))
        store.flush()
        _, found = _watched(tmp_path / "store", tmp_path)
    assert (_of(found, "store_open"), _of(found, "store_clean")) == (1, 1)
    assert _of(found, "topic_messages", topic="Topic") == 1


def test_what_is_not_there_is_a_number_and_an_exit_code(tmp_path: Path) -> None:
    done, found = _watched(tmp_path / "nothing", tmp_path)
    assert done.code == exit_codes.UNREADABLE
    assert found == {("rmqctl_store_readable", frozenset()): 0}


def test_a_file_inside_the_store_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", "rw", create=True):
        pass
    before = tree_state(tmp_path / "store")
    done = run("watch", "-s", tmp_path / "store", "-o", tmp_path / "store" / "commitlog" / "store.prom")
    assert done.code == exit_codes.REFUSED
    assert tree_state(tmp_path / "store") == before


def test_json_says_the_same(tmp_path: Path) -> None:
    store, file = store_path("clean"), tmp_path / "store.jsonl"
    assert run("watch", "-s", store, "-o", file, "--json").code == exit_codes.OK
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    _, found = _watched(store, tmp_path)
    keys = {(row["name"], frozenset(item for item in row["labels"].items() if item[0] != "store")) for row in rows}
    assert keys == set(found)


def _names(text: str) -> set[str]:
    return set(re.findall(r"rmqctl_[a-z_]+", text))


def test_the_dashboard_and_the_alerts_go_by_what_is_written() -> None:
    board = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    shown = {target["expr"] for panel in board["panels"] for target in panel["targets"]}
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    rules: dict[str, Any] = importlib.import_module("yaml").safe_load((MONITORING / "alerts.yml").read_text("utf-8"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    for alert in alerts:
        assert {"alert", "expr", "labels", "annotations"} <= alert.keys()
        assert alert["annotations"]["action"]
    used = set().union(*map(_names, [*shown, *(alert["expr"] for alert in alerts)]))
    assert used <= set(METRICS)
    assert {"rmqctl_store_readable", "rmqctl_findings", "rmqctl_group_lag_messages", "rmqctl_incomplete_queues"} <= used
