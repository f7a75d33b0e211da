"""`rmqctl groups`: the broker's own answers on its store, every state an offset can be in, and many queues."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.reports.consumers import by_topic
from rmqctl.store import Message, MessageStore, StoreConfig
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.queues.queue_table import QueueTable
from tests.goldens import FOLDER, GoldenStore, truth
from tests.opened import store_path
from tests.rmqctl.damaging import damage_body
from tests.rmqctl.looking import run

TOPIC = "Events"


def _said() -> dict[str, Any]:
    """What the broker itself said of its groups just before it stopped: by group, [broker, consumer, last time]."""
    text = (FOLDER / "broker-real.admin.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)["consumeStats[broker,consumer,lastTimestamp]"]
    return found


def _offsets(store: Path, table: dict[str, Any]) -> None:
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).write_text(json.dumps({"offsetTable": table}), encoding="utf-8")


def _rows(store: Path, *arguments: object) -> dict[tuple[str, int], dict[str, Any]]:
    done = run("groups", "-s", store, "--json", *arguments)
    return {(row["group"], row["queue_id"]): row for row in done.objects}


def test_as_the_broker_said() -> None:
    done = run("groups", "-s", store_path("broker-real"), "--json")
    assert done.code == exit_codes.OK
    found = {
        group: {f"{row['topic']}/{row['queue_id']}": row for row in done.objects if row["group"] == group}
        for group in {row["group"] for row in done.objects}
    }
    asked = {group: said for group, said in _said().items() if isinstance(said, dict)}
    assert len(asked) == 4
    for group, queues in asked.items():
        assert found[group].keys() == queues.keys()
        for queue, (end, offset, _) in queues.items():
            row = found[group][queue]
            assert (row["max_offset"], row["offset"], row["lag"]) == (end, offset, end - offset), queue
            assert row["state"] == ("behind" if end > offset else "caught-up")
    # of this one the broker could say nothing, and why is told
    (idle,) = found["g-idle"].values()
    assert (idle["state"], idle["lag"]) == ("unknown", None)
    assert "no offset of it is kept" in idle["detail"]


def test_lag_in_time_is_between_the_first_unread_message_and_the_last() -> None:
    times = {
        (row["queueId"], row["queueOffset"]): row["storeTimestamp"]
        for row in truth("broker-real").messages
        if row["topic"] == TOPIC
    }
    rows = _rows(store_path("broker-real"), "-g", "g-retry", "-t", TOPIC)
    assert len(rows) == 8
    for (_, queue_id), row in rows.items():
        assert row["first_unread_timestamp"] == times[queue_id, row["offset"]]
        assert row["lag_ms"] == times[queue_id, row["max_offset"] - 1] - times[queue_id, row["offset"]]


def test_every_state(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    _offsets(store, {f"{TOPIC}@g": {"0": 29, "1": 40, "2": 3, "99": 5}, f"{TOPIC}@g@b": {"0": 1}})
    rows = run("groups", "-s", store, "-g", "g", "--json").objects
    by_queue = {row["queue_id"]: row for row in rows if not row["is_broadcast"]}
    assert (by_queue[0]["state"], by_queue[0]["lag"], by_queue[0]["lag_ms"]) == ("caught-up", 0, 0)
    assert (by_queue[1]["state"], by_queue[1]["lag"]) == ("past-end", None)
    assert "11 messages past the end" in by_queue[1]["detail"]
    assert (by_queue[2]["state"], by_queue[2]["lag"]) == ("behind", 27)
    assert (by_queue[3]["state"], by_queue[3]["offset"], by_queue[3]["lag"]) == ("unknown", None, None)
    assert (by_queue[99]["state"], by_queue[99]["max_offset"]) == ("unknown", None)
    assert [row["offset"] for row in rows if row["is_broadcast"] and row["offset"] is not None] == [1]


def test_before_the_beginning(golden_store: GoldenStore) -> None:
    store = golden_store("first-gone")
    first = min((row for row in truth("first-gone").queues if row["min"] > 0), key=lambda row: row["topic"])
    (store / "config").mkdir(exist_ok=True)
    _offsets(store, {f"{first['topic']}@g": {str(first["queueId"]): 0}})
    row = _rows(store)["g", first["queueId"]]
    assert (row["state"], row["min_offset"]) == ("before-beginning", first["min"])
    assert row["lag"] == first["max"] - first["min"]
    assert f"{first['min']} message" in row["detail"]


def test_a_group_that_stands_before_a_damaged_message_is_told_so(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    unread = next(
        row
        for row in truth("broker-real").messages
        if (row["topic"], row["queueId"], row["queueOffset"]) == (TOPIC, 2, 25)
    )
    damage_body(store, unread)
    done = run("groups", "-s", store, "-g", "g-events", "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "damage: " in done.err
    states = {row["queue_id"]: row["state"] for row in done.objects}
    assert states == {**dict.fromkeys(range(8), "behind"), 2: "damaged"}
    assert [row["lag"] for row in done.objects if row["queue_id"] == 2] == [5]


@pytest.mark.parametrize(("text", "code"), [("{broken", exit_codes.DAMAGE_OR_NOTHING), (None, exit_codes.OK)])
def test_without_offsets_the_groups_are_unknown_and_not_caught_up(
    golden_store: GoldenStore, text: str | None, code: int
) -> None:
    store = golden_store("broker-real")
    for path in store.glob("config/consumerOffset.json*"):
        if text is None:
            path.unlink()
        else:
            path.write_text(text, encoding="utf-8")
    done = run("groups", "-s", store, "--json")
    assert done.code == code
    assert {row["state"] for row in done.objects} == {"unknown"}
    assert all("consumerOffset.json" in row["detail"] for row in done.objects)


def test_offsets_from_the_backup_are_told(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (store / "config" / "consumerOffset.json").write_text("{broken", encoding="utf-8")
    done = run("groups", "-s", store, "-g", "g-pay")
    assert done.code == exit_codes.OK
    assert "from its backup" in done.err


def test_nothing_matches() -> None:
    for arguments in (("-g", "nobody"), ("-g", "g-pay", "-t", TOPIC)):
        done = run("groups", "-s", store_path("broker-real"), *arguments)
        assert done.code == exit_codes.DAMAGE_OR_NOTHING
        assert "no consumer group matched" in done.err


@pytest.mark.parametrize("arguments", [(), ("-g", "g-pay")])
def test_without_config_nobody_knows(golden_store: GoldenStore, arguments: tuple[str, ...]) -> None:
    """Not that there is no group, and none that matches."""
    store = golden_store("broker-real")
    shutil.rmtree(store / "config")
    done = run("groups", "-s", store, *arguments)
    assert (done.code, done.out) == (exit_codes.DAMAGE_OR_NOTHING, "")
    assert "config/consumerOffset.json: is not there: the consumer groups are unknown" in done.err
    (found,) = run("where", "-s", store, "Events", "0", "3", "--json").objects
    assert found["state"] == "stored"
    assert "consumerOffset.json is not there" in found["sentence"]


def test_many_queues_cost_one_listing_and_what_is_behind_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of topics that no group consumes no queue is loaded, and nobody looks for each queue on its own."""
    store = tmp_path / "store"
    with MessageStore.open(store, "rw", StoreConfig(mapped_file_size_consume_queue=2000), create=True) as opened:
        for number in range(200):
            opened.put(Message(f"T{number % 2}", b"x", queue_id=number // 2))
    (store / "config").mkdir()
    _offsets(store, {"T0@g": {str(number): number % 2 for number in range(100)}})
    loaded: list[str] = []
    load = QueueTable._load

    def counted(table: QueueTable, topic: str, *rest: Any) -> Any:
        loaded.append(topic)
        return load(table, topic, *rest)

    reads: list[object] = []
    read = Descriptors.read

    def noted(descriptors: Descriptors, *where: Any) -> bytes:
        reads.append(where)
        return read(descriptors, *where)

    monkeypatch.setattr(QueueTable, "_load", counted)
    monkeypatch.setattr(Descriptors, "read", noted)
    rows = _rows(store)
    # of each the end and the first unit, of half of them the first unread unit and message, and the log's ends
    assert len(reads) <= 2 * 100 + 2 * 50 + 12
    assert [rows["g", number]["lag"] for number in range(100)] == [1, 0] * 50
    assert loaded == ["T0"] * 100


def test_a_table_has_one_row_for_each_group_and_topic_the_largest_lag_first() -> None:
    done = run("groups", "-s", store_path("broker-real"))
    rows = [line.split() for line in done.out.splitlines()[1:]]
    assert [row[:4] for row in rows[:2]] == [["g-retry", "Events", "8", "46"], ["g-events", "Events", "8", "39"]]
    assert sorted({row[0] for row in rows}) == ["g-events", "g-idle", "g-orders", "g-pay", "g-retry"]
    assert "groups of brokers and tools not shown: --all shows them" in done.err
    behind = run("groups", "-s", store_path("broker-real"), "--behind", "-t", "E*", "-g", "g-*")
    assert [line.split()[0] for line in behind.out.splitlines()[1:]] == ["g-retry", "g-events"]
    by_queue = run("groups", "-s", store_path("broker-real"), "--queues", "-t", "Events")
    assert len(by_queue.out.splitlines()) == 17
    none = run("groups", "-s", store_path("broker-real"), "--behind", "-t", "Orders")
    assert (none.code, "no consumer group is behind" in none.err) == (exit_codes.DAMAGE_OR_NOTHING, True)


def test_system_groups_are_shown_when_asked_for_and_a_users_group_may_look_like_one(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    _offsets(store, {f"{TOPIC}@CID_orders": {"0": 29}, f"{TOPIC}@CID_RMQ_SYS_TRANS": {"0": 1}})
    shown = {row["group"] for row in run("groups", "-s", store, "-t", TOPIC, "--json").objects}
    assert shown == {"CID_orders"}
    shown = {row["group"] for row in run("groups", "-s", store, "-t", TOPIC, "--json", "--all").objects}
    assert shown == {"CID_orders", "CID_RMQ_SYS_TRANS"}
    assert run("groups", "-s", store, "-g", "CID_RMQ_SYS_TRANS", "--json").objects


def test_several_queues_as_one_row() -> None:
    queues = [
        {"group": "g", "topic": "T", "queue_id": 0, "lag": 3, "lag_ms": 10, "state": "behind", "detail": ""},
        {"group": "g", "topic": "T", "queue_id": 1, "lag": None, "lag_ms": None, "state": "past-end", "detail": "why"},
        {"group": "g", "topic": "T", "queue_id": 2, "lag": 0, "lag_ms": 0, "state": "caught-up", "detail": ""},
        {"group": "h", "topic": "T", "queue_id": 0, "lag": 9, "lag_ms": 1, "state": "behind", "detail": ""},
    ]
    large, small = by_topic(queues)
    assert (large["group"], large["lag"], large["state"]) == ("h", 9, "behind")
    assert (small["queues"], small["lag"], small["lag_ms"], small["state"]) == (3, 3, 10, "past-end")
    assert small["detail"] == "1 of 3 queues, as queue 1: why"


def test_groups_that_the_configuration_does_not_name_are_left_out_when_asked(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    table = {f"{TOPIC}@g-events": {"0": 29}, f"{TOPIC}@g-deleted": {"0": 2}, "Misspelt@g-events": {"0": 1}}
    _offsets(store, table)

    def shown(*more: str) -> list[tuple[str, str]]:
        rows = run("groups", "-s", store, "--json", *more).objects
        return sorted({(row["group"], row["topic"]) for row in rows if row["topic"]})

    assert shown() == [("g-deleted", TOPIC), ("g-events", TOPIC), ("g-events", "Misspelt")]
    assert shown("--no-orphans") == [("g-events", TOPIC)]
    done = run("groups", "-s", store, "--no-orphans")
    assert "2 orphans not shown: `rmqctl offsets delete --orphans` removes them" in done.err
    assert run("groups", "-n", "127.0.0.1:1", "--no-orphans").code == 2
    # nothing is called an orphan where the file that names groups cannot be read
    (store / "config" / "subscriptionGroup.json").write_text("{")
    (store / "config" / "subscriptionGroup.json.bak").unlink(missing_ok=True)
    assert ("g-deleted", TOPIC) in shown("--no-orphans")
    assert "no group is known to be an orphan" in run("groups", "-s", store, "--no-orphans").err
