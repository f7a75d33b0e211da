"""What groups lose by a cleaning: held against every message of a broker's store, and what is not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store.clean.cleaner import Unread, clean, unread_before
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import UNHEARD, ChangeOptions, Events
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, truth
from tests.quick import sample
from tests.rmqctl.looking import run
from tests.store.clean.cleaning import IDLE, NOW, age_all
from tests.store.write.writing import SMALL, message

TOPIC = "TopicTest"
FILE = "config/consumerOffset.json"


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    store = golden_store("clean")
    (store / "config").mkdir(exist_ok=True)
    table = {f"{TOPIC}@half": {"0": 20, "1": 20, "2": 999, "3": 0}, f"{TOPIC}@some": {"0": 10**6}, "Other@x": {"0": 0}}
    (store / FILE).write_text(json.dumps({"offsetTable": table}), encoding="utf-8")
    (store / "config/delayOffset.json").write_text('{"offsetTable":{1:1}}', encoding="utf-8")
    groups: dict[str, dict[str, str]] = {"half": {}, "some": {}, "silent": {}, "CID_ONSAPI_PULL": {}}
    (store / "config/subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}))
    return store


def _expected(min_offset: int, offsets: dict[int, int]) -> dict[int, list[int]]:
    """Store times of what a group with these offsets loses, by queue."""
    found: dict[int, list[int]] = {}
    for row in truth("clean").messages:
        queue_id = row["queueId"]
        is_unread = queue_id in offsets and row["queueOffset"] >= offsets[queue_id]
        if row["topic"] == TOPIC and row["phyOffset"] < min_offset and is_unread:
            found.setdefault(queue_id, []).append(row["storeTimestamp"])
    return found


def _unread(store: Path, min_offset: int) -> tuple[dict[tuple[Any, str, str], Unread], list[str], list[object]]:
    told: list[str] = []
    damage: list[object] = []
    with StoreFiles(store) as files:
        rows = unread_before(files, min_offset, Events(damage=damage.append, note=told.append))
    return {(row.group, row.topic, row.state): row for row in rows}, told, damage


@pytest.mark.parametrize("files", sample([2, 8], [2]))
def test_every_message_that_a_group_has_not_read(store: Path, files: int) -> None:
    min_offset = files * 262_144
    rows, told, damage = _unread(store, min_offset)
    lost = _expected(min_offset, {0: 20, 1: 20, 2: 999, 3: 0})
    row = rows["half", TOPIC, "lost"]
    assert row.queues == tuple(sorted(lost))
    assert row.messages == sum(map(len, lost.values()))
    times = [time for queue in lost.values() for time in queue]
    assert (row.first_timestamp, row.last_timestamp) == (min(times), max(times))
    unknown = rows["some", TOPIC, "unknown"]
    everything = _expected(min_offset, dict.fromkeys(range(1, 4), 0))
    assert (unknown.queues, unknown.messages) == ((1, 2, 3), sum(map(len, everything.values())))
    assert ("some", TOPIC, "lost") not in rows
    assert [sentence for sentence in told if "no offset of group" in sentence] == [
        "no offset of group silent is kept: whether it loses anything is not known"
    ]
    assert damage == []
    delayed = [row for row in rows.values() if row.group is None]
    scheduled = [
        row
        for row in truth("clean").messages
        if row["topic"] == "SCHEDULE_TOPIC_XXXX"
        and row["phyOffset"] < min_offset
        and row["queueOffset"] >= (1 if row["queueId"] == 0 else 0)
    ]
    assert sum(row.messages for row in delayed) == len(scheduled)


def test_where_nothing_goes_nothing_is_lost(store: Path) -> None:
    assert _unread(store, 0) == ({}, [], [])


def test_without_offsets_nothing_is_known(store: Path) -> None:
    (store / FILE).unlink()
    rows, told, _ = _unread(store, 262_144)
    assert [row for row in rows if row[0] is not None] == []
    assert [sentence for sentence in told if "is not known" in sentence]
    (store / FILE).write_text("{", encoding="utf-8")
    _, told, damage = _unread(store, 262_144)
    assert len(damage) == 1
    assert [sentence for sentence in told if "is not known" in sentence]


def test_a_clean_says_so_before_it_asks(store: Path) -> None:
    age_all(store)
    with StoreFiles(store) as files:
        planned = clean(files, CleanOptions(), now=NOW, usage=IDLE, change=ChangeOptions(dry_run=True))
        told: list[object] = []
        rows = unread_before(files, planned.min_offset, Events(damage=told.append, note=told.append))
    lost = sum(row.messages for row in rows if row.state == "lost")
    done = run("clean", "-s", store, "--at-once")
    assert done.code == exit_codes.REFUSED
    assert "group half has not read and loses" in done.err
    assert "unknown: whether group some has read" in done.err
    assert f"for good, {lost} of them unread by some group" in done.err
    assert lost > 0
    dry = json.loads(run("clean", "-s", store, "--at-once", "--dry-run", "--json").out)
    assert sum(row["messages"] for row in dry["unread"] if row["state"] == "lost") == lost
    assert [sentence for sentence in dry["unknown"] if "group silent" in sentence]
    done = run("clean", "-s", store, "--at-once", "--yes", "--json")
    assert json.loads(done.out)["unread"] == dry["unread"]


def test_a_key_that_names_no_group_is_told_as_damage(store: Path) -> None:
    table = json.loads((store / FILE).read_text())["offsetTable"]
    (store / FILE).write_text(json.dumps({"offsetTable": {**table, "nobody": {"0": 1}}}))
    rows, _, damage = _unread(store, 2 * 262_144)
    assert ("half", TOPIC, "lost") in rows
    assert [str(one).partition(": ")[2] for one in damage] == [
        "'nobody' names no topic and group with offsets",
    ]


def test_delayed_messages_that_were_not_delivered_are_lost(tmp_path: Path) -> None:
    """Those before the offset of their level have been; of a level without an offset none."""
    root = tmp_path / "store"
    with MessageStore.open(root, "rw", SMALL, create=True) as opened:
        for number in range(60):
            waits = {"DELAY": str(number % 2 + 1), "REAL_TOPIC": "A", "REAL_QID": "0"}
            delayed = message(3000, topic="SCHEDULE_TOPIC_XXXX", queue_id=number % 2, properties=waits)
            assert opened.put(delayed).status.is_stored
    (root / "config").mkdir()
    (root / "config" / "delayOffset.json").write_text('{"offsetTable":{1:7}}')
    with StoreFiles(root, SMALL) as files:
        assert len(files.log.files) > 2
        min_offset = files.log.files[2].start_offset
        begins = [queue.min_offset(min_offset) for queue in files.queues.all()]
        rows = unread_before(files, min_offset, UNHEARD)
    [row] = rows
    assert (row.group, row.topic, row.state, row.queues) == (None, "SCHEDULE_TOPIC_XXXX", "lost", (0, 1))
    assert row.messages == sum(begins) - 7 > 0
