"""The harness itself, held against what the goldens' makers saw: only then can its word on our stores count."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest

from tests import goldens
from tests.goldens import GoldenStore
from tests.interop import harness
from tests.interop.harness import VERSIONS, BrokerView, Job

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

OWN_VERSION = {"clean": "5.3.3", "v4-clean": "4.9.8"}
NO_BODY = hashlib.sha256(b"").hexdigest()
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
SMALL_FILES = {
    "store.mappedFileSizeCommitLog": "65536",
    "store.mappedFileSizeConsumeQueue": "2000",
    "store.maxHashSlotNum": "500",
    "store.maxIndexNum": "2000",
    "store.enableCompaction": "false",
}


@pytest.mark.parametrize("name", OWN_VERSION)
def test_a_clean_golden_is_seen_as_its_truth_says(name: str, golden_store: GoldenStore) -> None:
    truth = goldens.truth(name)
    asked = [(row["topic"], row["key"]) for row in truth.queries if row["max"] == 64][:5]
    view = harness.open_store(OWN_VERSION[name], golden_store(name), goldens.properties(name), asked)
    _assert_whole(view, name)
    unlimited = {(row["topic"], row["key"]) for row in truth.queries}
    assert {(query.topic, query.key) for query in view.queries} <= unlimited
    assert any(query.physical_offsets for query in view.queries)
    keys = {row["phyOffset"]: row["properties"].get("KEYS", "").split(" ") for row in truth.messages}
    for query in view.queries:
        assert all(query.key in keys[offset] for offset in query.physical_offsets), query


@pytest.mark.parametrize("version", VERSIONS)
def test_either_version_opens_both_clean_goldens_and_changes_bookkeeping_only(
    version: str, golden_store: GoldenStore
) -> None:
    jobs = [Job(golden_store(name), goldens.properties(name)) for name in OWN_VERSION]
    for name, view in zip(OWN_VERSION, harness.open_many(version, jobs), strict=True):
        _assert_whole(view, name)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_the_real_one_wrote_reads_back_whole(version: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    written = harness.write_store(version, store, SMALL_FILES, kinds=harness.KINDS, messages=20)
    view = harness.open_store(version, store, SMALL_FILES, [("InteropPlain", "hot"), ("InteropPlain", "键")])
    assert view.complaints() == []
    seen = view.by_physical_offset()
    # old-style prepared and rolled back transaction messages are in the commitlog but in no queue
    without_queue = [row for row in written if row.topic == "InteropOldTransaction" and row.physical_offset not in seen]
    assert len(without_queue) == 3
    assert len(view.messages) == sum(row.messages for row in written) - len(without_queue)
    for row in written:
        if row.body_sha256 is not None and row not in without_queue:
            assert (row.size, row.body_sha256) == (
                seen[row.physical_offset].size,
                seen[row.physical_offset].body_sha256,
            )
    hot, key = (query.physical_offsets for query in view.queries)
    assert sorted(hot) == sorted(key) == [row.physical_offset for i, row in enumerate(written[:20]) if i % 4 > 1]
    hosts = {message.born_host for message in view.messages if message.topic == "InteropIpv6"}
    assert "[2001:db8::1]:5000" in hosts


@pytest.mark.parametrize("version", VERSIONS)
def test_a_halted_store_looks_crashed_and_is_recovered(version: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    written = harness.write_store(version, store, SMALL_FILES, messages=30, halt=True)
    view = harness.open_store(version, store, SMALL_FILES)
    assert (view.abort_before, view.abort_after) == (True, False)
    assert [message.physical_offset for message in sorted(view.messages, key=lambda m: m.physical_offset)] == [
        row.physical_offset for row in written
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_that_does_not_load_is_told_with_the_reason(version: str, golden_store: GoldenStore) -> None:
    view = harness.open_store(version, golden_store("short-middle"), goldens.properties("short-middle"))
    assert view.load_ok is False
    assert view.messages == []
    assert "length not matched message store config value" in view.log
    assert view.unexpected_changes == []


def test_a_follower_beyond_the_end_is_not_taken_for_caught_up(golden_store: GoldenStore) -> None:
    """4.9.8 believes the size in a queue's filler units (0, 2147483647, 0) and from then on dispatches nothing."""
    store = golden_store("clean")
    queue = store / "consumequeue" / "OnlyFiller" / "0" / f"{0:020d}"
    queue.parent.mkdir(parents=True)
    queue.write_bytes(struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 100)
    view = harness.open_store("4.9.8", store, goldens.properties("clean"))
    assert view.load_ok
    assert not view.drained
    assert view.abort_after
    assert ("OnlyFiller", 0, 0, "MESSAGE_WAS_REMOVING", 100) in view.anomalies
    assert len(view.complaints()) == 3


def test_an_unknown_setting_is_refused(golden_store: GoldenStore) -> None:
    with pytest.raises(ValueError, match="mappedFileSizeCommitLog"):
        harness.open_store("5.3.3", golden_store("clean"), {"mappedFileSizeCommitLog": "1024"})


def test_queues_in_rocksdb_are_refused(golden_store: GoldenStore) -> None:
    with pytest.raises(ValueError, match="RocksDB"):
        harness.open_store("5.3.3", golden_store("rocksdb"), goldens.properties("rocksdb"))


def _assert_whole(view: BrokerView, name: str) -> None:
    """The view shows the golden's truth: messages, bodies, queues, ends; nothing was changed but bookkeeping."""
    truth = goldens.truth(name)
    assert view.complaints() == []
    assert (view.min_offset, view.max_offset) == (truth.summary["minPhy"], truth.summary["maxPhy"])
    seen = view.by_physical_offset()
    assert len(view.messages) == len(truth.messages) == truth.summary["messages"]
    for row in truth.messages:
        message = seen[row["phyOffset"]]
        assert (message.topic, message.queue_id, message.queue_offset, message.asked_offset) == (
            row["topic"],
            row["queueId"],
            row["queueOffset"],
            row["queueOffset"],
        )
        assert message.body_sha256 == (row["bodySha256"] or NO_BODY)
        assert message.properties == row["properties"]
        assert (message.keys, message.tags) == (row["keys"], row["tags"])
        assert (message.store_timestamp, message.born_timestamp) == (row["storeTimestamp"], row["bornTimestamp"])
        assert f"/{message.born_host}" == row["bornHost"]
    units = {(queue.topic, queue.queue_id): queue for queue in view.queues}
    for row in truth.queues:
        if row["topic"] == SCHEDULE_TOPIC and not row["units"]:
            continue  # 4.x makes itself an empty queue for each delay level, in memory only
        queue = units[row["topic"], row["queueId"]]
        assert (queue.min_offset, queue.max_offset) == (row["min"], row["max"])
        digest = hashlib.sha256("".join(f"{','.join(map(str, unit))}\n" for unit in queue.units).encode())
        assert digest.hexdigest() == row["unitsSha256"]
