"""Consume queues in a RocksDB: as the broker sees them, for every verb that reads queues."""

from __future__ import annotations

import hashlib
import shutil
import struct
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.network.remoting.headers import QueueHeader
from rmqctl.store.log.walk import walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.consumequeue import offset_by_time
from rmqctl.store.queues.rocksdb_queues import RocksdbQueues
from rmqctl.store.recover.view import looks_unrecovered, recovered_view
from rmqctl.store.store_files import StoreFiles
from tests.goldens import tree_state
from tests.hostile.making import database
from tests.network.serving import serving
from tests.rmqctl.looking import run
from tests.store.rocksdb.stores import queues, rows, unpacked

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


def test_light_queues_that_are_in_rocksdb_alone_are_read(tmp_path: Path) -> None:
    """combineCQUseRocksdbForLmq: no file is made for them."""
    store = unpacked(BOTH, tmp_path)
    before = tree_state(store)
    units = {
        key: value
        for key, value in rows(BOTH)["consumequeue_rocksdb", "default"].items()
        if key[5:].startswith(b"%LMQ%")
    }
    listed = run("ls", "-s", store, "--json", "--queues").objects
    light = {row["topic"]: row["max_offset"] for row in listed if row["topic"].startswith("%LMQ%")}
    assert sum(light.values()) == len(units) > 100
    for topic, count in light.items():
        done = run("cat", "-s", store, "-t", topic, "--order", "queue", "--json")
        places = [row["physical_offset"] for row in done.objects]
        prefix = len(topic).to_bytes(4, "big") + b"\1" + topic.encode() + b"\1"
        wanted = [value for key, value in sorted(units.items()) if key.startswith(prefix)]
        assert places == [int.from_bytes(value[:8], "big") for value in wanted], done.err
        assert len(places) == count
    asked = run("query", "-s", store, "-t", "%LMQ%all", "-q", "0", "-o", "7", "--json")
    assert asked.code == 0, asked.err
    assert tree_state(store) == before


def test_light_queues_in_rocksdb_are_checked(tmp_path: Path) -> None:
    store = unpacked(BOTH, tmp_path)
    there = rows(BOTH)
    units, ends = (list(there["consumequeue_rocksdb", family].items()) for family in ("default", "offset"))
    (at,) = [number for number, (key, _) in enumerate(units) if key[5:].startswith(b"%LMQ%all") and key[-1] == 9]
    units[at] = units[at][0], units[at - 1][1]
    shutil.rmtree(store / "consumequeue_rocksdb")
    database(
        store / "consumequeue_rocksdb",
        (b"default", b"offset"),
        [(number, key, value) for number, one in enumerate((units, ends)) for key, value in one],
    )
    with MessageStore.open(store) as opened:
        found = [one for one in opened.check() if one.severity.is_alarm]
    assert {(one.code, one.topic, one.file) for one in found} == {
        ("RMQ-RDB-002", "%LMQ%all", store / "consumequeue_rocksdb")
    }
    (store / "consumequeue_rocksdb" / "CURRENT").write_bytes(b"x")
    done = run("ls", "-s", store, "--queues")
    assert (done.code, "does not name a manifest" in done.err) == (1, True)
    assert any(row["topic"] == "OrderTopic" for row in run("ls", "-s", store, "--queues", "--json").objects)
    assert run("cat", "-s", store, "-t", "%LMQ%all", "--order", "queue").code == 7


def _flip_a_unit_and_find_it(store: Path) -> None:
    path = min((store / "consumequeue/TopicTest/0").iterdir())
    data = bytearray(path.read_bytes())
    data[45] ^= 1
    path.write_bytes(data)
    with MessageStore.open(store) as opened:
        (finding,) = [one for one in opened.check() if one.code == "RMQ-RDB-004"]
    assert (finding.topic, finding.queue_id, finding.found) == ("TopicTest", 0, 2)


def test_kinds_that_differ_are_reported(tmp_path: Path) -> None:
    store = unpacked(BOTH, tmp_path)
    _flip_a_unit_and_find_it(store)


def _as_of(store: Path, offset: int, begun: tuple[bytes, int]) -> None:
    """Leave in the database what a killed broker had flushed at an offset of the log. The queue `begun` has no unit in
    it: a start began it again where the queue in files ended (RocksDBConsumeQueue#initializeWithOffset)."""
    there = rows(BOTH)
    begun_key = len(begun[0]).to_bytes(4, "big") + b"\1" + begun[0] + b"\1"
    begun_unit = begun_key + begun[1].to_bytes(4, "big") + b"\1"
    units = {
        key: value
        for key, value in there["consumequeue_rocksdb", "default"].items()
        if int.from_bytes(value[:8], "big") < offset and not key.startswith(begun_unit)
    }
    counts = Counter(key[:-8] for key in units)
    ends = {b"\0\0\0\x10\1CHECKPOINT_TOPIC\1max\1\0\0\0\0": offset.to_bytes(8, "big")}
    for key, value in there["consumequeue_rocksdb", "offset"].items():
        count = counts[key[:-8] + key[-4:] + b"\1"] if b"\1max\1" in key else 0
        if count:
            last = units[key[:-8] + key[-4:] + b"\1" + (count - 1).to_bytes(8, "big")]
            ends[key] = last[:8] + (count - 1).to_bytes(8, "big")
        elif key == begun_key + b"max\1" + begun[1].to_bytes(4, "big"):
            end = int.from_bytes(value[8:16], "big") + 1
            ends[key] = bytes(8) + value[8:16]
            ends[key.replace(b"max", b"min")] = bytes(8) + end.to_bytes(8, "big")
    shutil.rmtree(store / "consumequeue_rocksdb")
    database(
        store / "consumequeue_rocksdb",
        (b"default", b"offset"),
        [(number, *entry) for number, one in enumerate((units, ends)) for entry in sorted(one.items())],
    )


def test_a_killed_broker_of_both_kinds_dispatches_to_rocksdb_again(tmp_path: Path) -> None:
    """As 5.5.0 and 5.3.3 do: the kinds do not differ where RocksDB is only behind, or began later."""
    store = unpacked(BOTH, tmp_path)
    _as_of(store, 465601, (b"OrderTopic", 7))
    with MessageStore.open(store) as opened:
        found = {one.code: one for one in opened.check() if one.code.startswith("RMQ-RDB-")}
    assert "RMQ-RDB-004" not in found
    assert (found["RMQ-RDB-003"].found, found["RMQ-RDB-003"].severity.is_alarm) == (465601, False)
    # the next start dispatches nothing of what is before the checkpoint
    _flip_a_unit_and_find_it(store)


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


@pytest.mark.parametrize("options", [(), ("-c", "{}/broker.conf")], ids=["without-settings", "with-settings"])
def test_queues_that_lag_are_served_as_recovered(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "broker.conf").write_text("storeType=defaultRocksDB\n", encoding="ascii")
    store = unpacked(ONLY, tmp_path)
    with StoreFiles(store) as files:
        assert not looks_unrecovered(files)
        last = [one for one in walk(files.log) if isinstance(one, StoredMessage)][-1]
    end, file = last.physical_offset + last.total_size, max((store / "commitlog").iterdir())
    with file.open("r+b") as log:
        log.seek(last.physical_offset - int(file.name))
        frame = log.read(last.total_size)
        # the next message of its queue, which no queue knows
        log.write(frame[:20] + struct.pack(">qq", last.queue_offset + 1, end) + frame[36:])
    before = tree_state(store)
    with MessageStore.open(store) as opened:
        stored = [one.physical_offset for one in opened.messages(order="queue")]
    with serving(store, *(option.format(tmp_path) for option in options)) as served:
        client = Client(served.namesrv)
        queue = QueueHeader(topic=last.topic, queue_id=last.queue_id)
        answer = client.ask(served.broker, RequestCode.GET_MAX_OFFSET, queue)
        client.close()
        assert served.end() == 0
    assert answer.fields["offset"] == str(last.queue_offset + 2)
    assert "shown as recovered, in a temporary folder: " in served.errors
    shown = run("cat", "-s", store, "--order", "queue", "--as-recovered", "--json")
    assert [row["physical_offset"] for row in shown.objects if row["physical_offset"] != end] == stored
    assert len(shown.objects) == len(stored) + 1
    assert tree_state(store) == before


@pytest.mark.parametrize("name", ["config-rocksdb", "config-rocksdb-533", "config-rocksdb-single", ONLY])
def test_the_store_as_recovered_has_what_its_database_has(tmp_path: Path, name: str) -> None:
    """Deleted topics stay deleted."""
    store = unpacked(name, tmp_path)
    before = tree_state(store)
    with StoreFiles(store) as files, recovered_view(files) as view, MessageStore.open(view.root) as shown:
        assert not looks_unrecovered(files)
        found = [(one.topic, one.queue_id, one.queue_offset) for one in shown.messages(order="queue")]
        with MessageStore.open(store) as opened:
            assert found == [(one.topic, one.queue_id, one.queue_offset) for one in opened.messages(order="queue")]
    assert len(found) == sum(row["max"] - row["min"] for row in queues(name).values())
    assert tree_state(store) == before


def test_what_a_killed_broker_left_is_shown_as_its_next_start_has_it(tmp_path: Path) -> None:
    store = unpacked("config-rocksdb-crash", tmp_path)
    with StoreFiles(store) as files, recovered_view(files) as view, MessageStore.open(view.root) as shown:
        assert looks_unrecovered(files)
        ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in shown.reader.queues()}
    assert ends == {key: row["max"] for key, row in queues("config-rocksdb-crash").items() if row["max"]}


def test_queue_files_of_a_deleted_topic_stay_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no queue file changes, the view may not reach the store's own through a link."""
    store = unpacked(ONLY, tmp_path)
    assert run("rebuild", "-s", store, "--queues", "files", "--queue-file-size", "2000", "-y").code == 0
    (store / "consumequeue_rocksdb").mkdir()
    for path in [path for path in (store / "consumequeue").iterdir() if path.is_file()]:
        path.rename(store / "consumequeue_rocksdb" / path.name)
    before = tree_state(store)
    monkeypatch.setattr("rmqctl.store.queues.queue_table._is_ahead_of_files", lambda *_: True)
    ends = RocksdbQueues.ends
    deleted = "0123456789"
    monkeypatch.setattr(RocksdbQueues, "ends", lambda self: [end for end in ends(self) if end.topic != deleted])
    with StoreFiles(store) as files, recovered_view(files) as view:
        shown = {path.name for path in (view.root / "consumequeue").iterdir()}
    assert "%DLQ%GroupA" in shown
    assert deleted not in shown
    assert tree_state(store) == before
