"""`rmqctl delays`: what the broker had delivered and what not, offsets that lead nowhere, damage."""

from __future__ import annotations

import json
from typing import Any

from rmqctl import exit_codes
from tests.goldens import FOLDER, GoldenStore, truth
from tests.opened import store_path
from tests.rmqctl.damaging import damage_body
from tests.rmqctl.looking import run

TOPIC = "SCHEDULE_TOPIC_XXXX"


def test_as_the_broker_said() -> None:
    done = run("delays", "-s", store_path("broker-real"), "--json")
    assert done.code == exit_codes.OK
    assert "the timer wheel is not read" in done.err
    text = (FOLDER / "broker-real.admin.json").read_text(encoding="utf-8")
    said: dict[str, Any] = json.loads(text)["topicStats[min,max,lastUpdate]"][TOPIC]
    ends = {int(name.rpartition("/")[2]) + 1: values[1] for name, values in said.items() if values[1]}
    assert {row["level"]: row["max_offset"] for row in done.objects} == ends
    # level 1 was delivered in whole, of level 14 (10 minutes) the broker did not see the end
    assert [(row["level"], row["pending"], row["state"]) for row in done.objects] == [
        (1, 0, "delivered"),
        (14, 5, "waiting"),
    ]
    rows = [row for row in truth("broker-real").messages if (row["topic"], row["queueId"]) == (TOPIC, 13)]
    first = min(rows, key=lambda row: int(row["queueOffset"]))
    shown = done.objects[1]
    assert shown["first_due_timestamp"] == first["storeTimestamp"] + 600_000
    properties = first["properties"]
    assert (shown["target_topic"], shown["target_queue_id"]) == (properties["REAL_TOPIC"], int(properties["REAL_QID"]))
    assert shown["last_due_timestamp"] == max(row["storeTimestamp"] for row in rows) + 600_000


def test_without_offsets_all_is_pending_which_is_told() -> None:
    done = run("delays", "-s", store_path("features"), "--json")
    assert done.code == exit_codes.OK
    assert "a broker would deliver all" in done.err
    counts = {row["level"]: row["pending"] for row in done.objects}
    stored = [row["queueId"] + 1 for row in truth("features").messages if row["topic"] == TOPIC]
    assert counts == {level: stored.count(level) for level in set(stored)}


def test_an_offset_past_the_end(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (store / "config" / "delayOffset.json").write_text('{"offsetTable":{1:71,14:9}}', encoding="utf-8")
    (row,) = [row for row in run("delays", "-s", store, "--json").objects if row["level"] == 14]
    assert (row["state"], row["pending"]) == ("past-end", 0)
    assert "4 messages past the end" in row["detail"]


def test_a_damaged_message_is_not_called_delivered(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    rows = [row for row in truth("broker-real").messages if (row["topic"], row["queueId"]) == (TOPIC, 13)]
    damage_body(store, rows[0])
    done = run("delays", "-s", store, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    row = done.objects[1]
    assert (row["state"], row["pending"], row["target_topic"]) == ("damaged", 5, None)
    # the queue has it all the same
    assert row["first_due_timestamp"] == rows[0]["storeTimestamp"] + 600_000


def test_none() -> None:
    done = run("delays", "-s", store_path("clean"))
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "no message was ever delayed" in done.err
