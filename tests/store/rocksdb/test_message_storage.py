"""`rocksdbstore/` of real brokers: index, timer and transactions as RocksDB reads them and as Java's queries answer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store.message_store import MessageStore
from rmqctl.store.read import reader
from rmqctl.store.rocksdb.message_storage import MessageStorage
from tests.goldens import tree_state
from tests.rmqctl.looking import run
from tests.store.rocksdb.stores import INDEXED, lines, rows, unpacked

STORE = "rocksdb-store55"


def test_rows_of_index_timer_and_transactions(tmp_path: Path) -> None:
    expected = rows(STORE)
    index, timer, trans = (expected["rocksdbstore", family] for family in ("default", "timer", "trans"))
    storage = MessageStorage(unpacked(STORE, tmp_path) / "rocksdbstore")
    made = {}
    for one in storage.index_rows():
        middle = f"{one.key}@" if one.kind != "U" else ""
        text = f"@{one.topic}@{one.kind}@{middle}{one.unique_key}@".encode()
        key = one.hour.to_bytes(8, "big") + text + one.physical_offset.to_bytes(8, "big")
        made[key] = one.store_timestamp.to_bytes(8, "big")
    assert made == {key: value for key, value in index.items() if key[0] == 0}
    assert storage.indexed_to() == int.from_bytes(index[b"lastOffsetPy"], "big")
    timers = {
        one.out.to_bytes(8, "big") + one.unique_key.encode(): one.size.to_bytes(4, "big")
        + one.physical_offset.to_bytes(8, "big")
        for one in storage.timers()
    }
    assert timers == {key: value for key, value in timer.items() if key[0] == 0}
    assert storage.scanned_to() == int.from_bytes(timer[b"sys_topic_scan_offset_checkpoint"], "big")
    assert storage.delivered_to() == int.from_bytes(timer[b"timeline_checkpoint"], "big")
    open_ones = {
        one.physical_offset.to_bytes(8, "big") + f"@{one.topic}@{one.unique_key}".encode(): one.checks.to_bytes(
            4, "big"
        )
        + one.size.to_bytes(4, "big")
        for one in storage.transactions()
    }
    assert open_ones == {key: value for key, value in trans.items() if key[0] == 0}


def test_queries_find_what_the_broker_finds(tmp_path: Path) -> None:
    store = unpacked(INDEXED, tmp_path)
    before = tree_state(store)
    with MessageStore.open(store) as opened:
        reader = opened.reader
        for asked in lines(INDEXED, "query"):
            if asked["begin"] == 0 and asked["end"] > 1 << 60:
                found = reader.indexed(asked["topic"], asked["key"], limit=asked["max"])
                assert not found.damaged
                places = [one.physical_offset for one in found.messages]
                # the broker looks at the unique key only where no message has the key, and compares no key
                assert set(asked["phyOffsets"]) == set(places), asked
    assert tree_state(store) == before


def test_messages_without_a_unique_key_are_found_by_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = unpacked(INDEXED, tmp_path)
    asked = run("query", "-s", store, "-t", "OrderTopic", "-k", "hot", "--json")
    assert {one["unique_key"] is None for one in asked.objects} == {False, True}
    monkeypatch.setattr(reader, "UNASKED_BYTES", 1000)  # a log too large to search unasked
    asked = run("query", "-s", store, "-t", "OrderTopic", "-k", "hot", "--json")
    assert {one["unique_key"] is None for one in asked.objects} == {False}
    assert "no unique key" in asked.err
    key = asked.objects[0]["unique_key"]
    alone = run("query", "-s", store, "-i", key, "--json")
    assert (alone.code, [one["unique_key"] for one in alone.objects]) == (0, [key])
    assert "201705" in run("where", "-s", store, "hot").out


def test_open_transactions_are_those_of_the_broker(tmp_path: Path) -> None:
    store = unpacked(STORE, tmp_path)
    unknown = [line["keys"] for line in lines(STORE, "did") if line["what"] == "tx" and line["state"] == "UNKNOW"]
    found = run("halves", "-s", store, "--json").objects
    assert [(one["state"], one["checks"], one["target_topic"]) for one in found] == [("pending", 4, "Pay")] * 4
    assert all(f"asked {one['checks']} times" in run("where", "-s", store, one["unique_key"]).out for one in found)
    places = [one["physical_offset"] for one in found]
    keys = [run("query", "-s", store, "-o", place, "--json").objects[0]["keys"] for place in places]
    assert [key for [key] in keys] == unknown
    ended = next(line for line in lines(STORE, "did") if line.get("state") == "ROLLBACK_MESSAGE")
    assert "it was rolled back" in run("where", "-s", store, ended["keys"]).out
    # a broker that was killed before the first flush: the next start takes all in again
    shutil.rmtree(store / "rocksdbstore")
    again = run("halves", "-s", store, "--json").objects
    assert [one["physical_offset"] for one in again] == places


def test_the_timer_waits_for_what_is_not_delivered(tmp_path: Path) -> None:
    store = unpacked(STORE, tmp_path)
    timer = rows(STORE)["rocksdbstore", "timer"]
    delivered = int.from_bytes(timer[b"timeline_checkpoint"], "big")
    waiting = sorted(int.from_bytes(key[:8], "big") for key in timer if key[0] == 0)
    waiting = [out for out in waiting if out >= delivered]
    found = run("delays", "-s", store, "--due", "--json").objects
    assert [one["due_timestamp"] for one in found] == waiting
    conf = tmp_path / "broker.conf"
    conf.write_text("timerRocksDBEnable=false\n")
    without = run("delays", "-s", store, "-c", conf, "--due", "--json").objects
    assert len(without) == len([key for key in timer if key[0] == 0])
    refused = run("rebuild", "--timer", "-s", store, "-y")
    assert refused.code == 5, refused.err
    assert "delivers them twice" in refused.err
    assert "it waits in rocksdbstore/" in run("where", "-s", store, found[0]["unique_key"]).out


@pytest.mark.parametrize(
    ("name", "other", "codes"),
    [(INDEXED, STORE, {"RMQ-RDB-006", "RMQ-RDB-007", "RMQ-RDB-008"}), (STORE, INDEXED, {"RMQ-RDB-006"})],
)
def test_a_database_of_another_store(name: str, other: str, codes: set[str], tmp_path: Path) -> None:
    store = unpacked(name, tmp_path)
    shutil.rmtree(store / "rocksdbstore")
    (unpacked(other, tmp_path) / "rocksdbstore").rename(store / "rocksdbstore")
    with MessageStore.open(store) as opened:
        found = {finding.code for finding in opened.check()}
    assert {code for code in found if code.startswith("RMQ-RDB")} == codes


def test_damage_is_no_absence(tmp_path: Path) -> None:
    store = unpacked(INDEXED, tmp_path)
    for table in (store / "rocksdbstore").glob("*.sst"):
        data = bytearray(table.read_bytes())
        data[100] ^= 1
        table.write_bytes(data)
    with MessageStore.open(store) as opened:
        found = opened.reader.query("OrderTopic", "hot")
        assert found.damaged
        assert "RMQ-RDB-001" in {finding.code for finding in opened.check()}
    assert run("query", "-s", store, "-t", "OrderTopic", "-k", "hot").code != 0
    (store / "rocksdbstore" / "CURRENT").write_text("nonsense")
    asked = run("query", "-s", store, "-t", "OrderTopic", "-k", "hot")
    assert asked.code not in (0, 70)
    assert "manifest" in asked.err
    assert run("query", "-s", store, "-t", "OrderTopic", "-k", "hot", "--scan").code != 70
    with MessageStore.open(store) as opened, pytest.raises(CorruptError):
        opened.reader.query("OrderTopic", "hot")
