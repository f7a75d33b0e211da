"""Consume queues in a RocksDB: as the broker sees them, for every verb that reads queues."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.offset_by_time import offset_by_time
from rmqctl.store.queues.rocksdb_queues import RocksdbQueues
from tests.goldens import tree_state
from tests.rmqctl.looking import run
from tests.store.rocksdb.stores import queues, unpacked

ONLY = "rocksdb-55-only"
BOTH = "rocksdb-55"


def test_units_are_those_of_the_broker(tmp_path: Path) -> None:
    expected = queues(ONLY)
    with MessageStore.open(unpacked(ONLY, tmp_path)) as store:
        found = {(queue.topic, queue.queue_id): queue for queue in store.reader.queues()}
        assert found.keys() == {key for key, row in expected.items() if row["units"]}
        for key, queue in found.items():
            row = expected[key]
            assert (queue.kind, queue.max_offset) == (row["cqType"], row["max"])
            assert queue.min_offset(store.reader.files.log.min_offset) == row["min"]
            units = list(queue.units(0))
            lines = (f"{one.queue_offset},{one.physical_offset},{one.size},{one.tags_code}\n" for one in units)
            assert hashlib.sha256("".join(lines).encode()).hexdigest() == row["unitsSha256"]
            for asked in row["offsetByTime"]:
                assert (
                    offset_by_time(queue, asked["ts"], "lower", row["min"], store.reader.unit_store_time)
                    == asked["lower"]
                ), (key, asked)


def test_all_readers_read_them_and_change_nothing(tmp_path: Path) -> None:
    store = unpacked(ONLY, tmp_path)
    before = tree_state(store)
    assert run("check", "-s", store).code == 0
    rows = run("ls", "-s", store, "--json", "--queues").objects
    assert {(row["topic"], row["queue_id"]): row["max_offset"] for row in rows} == {
        key: row["max"] for key, row in queues(ONLY).items() if row["units"]
    }
    by_queue = run("cat", "-s", store, "-t", "OrderTopic", "--order", "queue", "--json").objects
    by_log = run("cat", "-s", store, "-t", "OrderTopic", "--json").objects
    assert len(by_queue) == len(by_log) == 70
    assert {row["physical_offset"] for row in by_queue} == {row["physical_offset"] for row in by_log}
    first = by_queue[0]
    where = run("where", "-s", store, "OrderTopic", first["queue_id"], first["queue_offset"], "--json")
    assert where.code == 0
    assert str(first["physical_offset"]) in where.out
    counted = run("sql", "-s", store, "select kind, count(*) as n from consumequeue group by 1", "--json").objects
    assert counted == [{"kind": "RocksDBCQ", "n": 400}]
    assert tree_state(store) == before


@pytest.mark.parametrize("verb", [("recover",), ("rebuild",), ("append", "-t", "T", "--body", "x")])
def test_verbs_that_would_write_queues_refuse(verb: tuple[str, ...], tmp_path: Path) -> None:
    store = unpacked(ONLY, tmp_path)
    before = tree_state(store)
    done = run(*verb, "-s", store, *(() if verb[0] == "append" else ("-y",)))
    assert done.code == 5
    assert "RocksDB, which is never written here" in done.err
    assert tree_state(store) == before


def test_light_queues_and_ordinary_ones_of_both_kinds_agree(tmp_path: Path) -> None:
    store = unpacked(BOTH, tmp_path)
    with MessageStore.open(store) as opened:
        codes = [finding.code for finding in opened.check()]
        assert codes == ["RMQ-STATE-003"]
        database = RocksdbQueues(store / "consumequeue_rocksdb", None)
        for end in database.ends():
            queue = opened.reader.files.queues.find(end.topic, end.queue_id)
            assert end.topic.startswith("%LMQ%") == (queue is None)
            if queue is not None:
                assert [*queue.units(0)] == [*database.queue(end).units(0)]


def test_kinds_that_differ_are_reported(tmp_path: Path) -> None:
    store = unpacked(BOTH, tmp_path)
    path = min((store / "consumequeue/TopicTest/0").iterdir())
    data = bytearray(path.read_bytes())
    data[45] ^= 1
    path.write_bytes(data)
    with MessageStore.open(store) as opened:
        (finding,) = [one for one in opened.check() if one.code == "RMQ-RDB-004"]
    assert (finding.topic, finding.queue_id, finding.found) == ("TopicTest", 0, 2)


def test_what_a_killed_broker_left_is_dispatched_by_its_next_start(tmp_path: Path) -> None:
    store = unpacked("config-rocksdb-crash", tmp_path)
    with MessageStore.open(store) as opened:
        found = {finding.code: finding for finding in opened.check()}
    assert not any(finding.severity.is_alarm for finding in found.values())
    assert found["RMQ-RDB-005"].found == 1
    assert found["RMQ-RDB-003"].found == 0
    assert found["RMQ-RDB-003"].bytes == 14430


def test_a_unit_that_leads_elsewhere_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    """A database of another store, whose commitlog is a different one."""
    store, other = unpacked(ONLY, tmp_path), unpacked("config-rocksdb-533", tmp_path)
    shutil.rmtree(store / "consumequeue")
    shutil.copytree(other / "consumequeue", store / "consumequeue")
    done = run("check", "-s", store, "--json")
    wrong = [row for row in done.objects if row.get("code") == "RMQ-RDB-002"]
    assert done.code == 1
    assert wrong
    assert all(row["fix"] is None for row in wrong)
    assert "move the directory away" in run("check", "-s", store, "--explain", "RMQ-RDB-002").out


def test_damage_of_the_database_is_damage_for_readers(tmp_path: Path) -> None:
    store = unpacked(ONLY, tmp_path)
    tables = sorted((store / "consumequeue").glob("*.sst"), key=lambda path: -path.stat().st_size)
    data = bytearray(tables[0].read_bytes())
    data[100] ^= 1
    tables[0].write_bytes(data)
    with MessageStore.open(store) as opened, pytest.raises(CorruptError, match="checksum of the block is wrong"):
        opened.reader.queues()
    with MessageStore.open(store) as opened:
        found = {finding.code: finding for finding in opened.check()}
    # a broker makes queues again from the log
    assert found["RMQ-RDB-001"].data_lost is False
    for what in ("--topics", "--queues"):
        listed = run("ls", "-s", store, what)
        assert listed.code in (1, 7)
        assert "checksum" in listed.err
    done = run("cat", "-s", store, "-t", "OrderTopic", "--order", "queue")
    assert done.code in (1, 7)
    assert "checksum" in done.err
