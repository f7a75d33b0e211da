"""Queues with messages that topics.json hides from consumers: fewer readQueueNums, or no permission to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import format_config_json, parse_config_json
from tests.goldens import GoldenStore
from tests.rmqctl.looking import run


def _set(store: Path, **values: int) -> None:
    """Change the settings of the topic Orders, which has four queues."""
    path = store / "config" / "topics.json"
    content: dict[str, Any] = parse_config_json(path.read_text(encoding="utf-8"))
    content["topicConfigTable"]["Orders"] |= values
    path.write_text(format_config_json(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "hidden", "why"),
    [
        ({"readQueueNums": 2}, {2, 3}, "no consumer sees queue 3: readQueueNums is 2"),
        ({"perm": 2}, {0, 1, 2, 3}, "no consumer may read the topic: perm is 2"),
    ],
    ids=["fewer", "perm"],
)
def test_they_are_named(golden_store: GoldenStore, values: dict[str, int], hidden: set[int], why: str) -> None:
    store = golden_store("broker-real")
    assert "RMQ-CFG-042" not in run("check", "-s", store).out
    assert "no consumer" not in run("where", "-s", store, "Orders", 3, 0).out
    _set(store, **values)
    found = [row for row in run("check", "-s", store, "--json").objects if row.get("code") == "RMQ-CFG-042"]
    assert [(row["topic"], row["messages"]) for row in found] == [("Orders", 15 * len(hidden))]
    rows = run("groups", "-s", store, "-t", "Orders", "-g", "g-orders", "--json").objects
    assert {row["queue_id"] for row in rows if "no consumer" in row["detail"]} == hidden
    assert why in run("where", "-s", store, "Orders", 3, 0).out
