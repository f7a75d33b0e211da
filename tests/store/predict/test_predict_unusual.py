"""Predictions where more than the log's end is damaged: frames that only a broker takes, wrong numbers, odd files."""

from __future__ import annotations

import json
import os
import shutil
import stat
import struct
from pathlib import Path

import pytest

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, SYS_FLAG_INNER_BATCH
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.releases import RELEASES
from rmqctl.store.files.lock import StoreLock
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.options import Events
from rmqctl.store.predict import Prediction, predict
from rmqctl.store.predict.broker_log import judge
from rmqctl.store.predict.broker_queues import SimulatedQueue
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, truth
from tests.store.light_queues import CONFIG, runs_ahead
from tests.store.logs import BODY_AT, frame

BATCHES = "InnerBatchTopic"


def predicted(store: Path, broker: str = "5.3.3", config: StoreConfig | None = None, **options: object) -> Prediction:
    with StoreFiles(store, config) as files:
        return predict(files, broker, **options)  # type: ignore[arg-type]


def read_whole(store: Path) -> None:
    """The broker was killed, and no checkpoint says how far the log is good."""
    (store / "abort").write_text("1")
    (store / "checkpoint").unlink()


def replace(store: Path, old: bytes, new: bytes) -> int:
    """Puts `new` in the place of the first `old` in the log's first file; returns the place."""
    path = store / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    at = data.index(old)
    path.write_bytes(data[:at] + new + data[at + len(old) :])
    return at


# ---- frames

SCHEDULED = frame(0, topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "x"})
BATCH = {"INNER_NUM": "40000", "INNER_BASE": "0"}
TOPIC_AT = BODY_AT + 4
GOOD = frame(0, topic="T", properties={"KEYS": "k"})


@pytest.mark.parametrize(
    ("data", "left", "why"),
    [
        (GOOD, 4, "the file is over, and no blank frame leads to the next one"),
        (GOOD, len(GOOD) - 1, f"size {len(GOOD)} is more than the {len(GOOD) - 1} bytes that are left"),
        (b"\0\0\0\x20" + GOOD[4:], 34, "size 32 cannot be read"),
        (GOOD[: BODY_AT - 4] + struct.pack(">i", 9999) + GOOD[BODY_AT:], None, "body length 9999 does not fit"),
        (b"\x40\0\0\0" + GOOD[4:], 1 << 31, f"size {1 << 30} cannot be read"),
        (GOOD[:BODY_AT] + b"BODY" + GOOD[TOPIC_AT:], None, "CRC check failed"),
        (GOOD[:TOPIC_AT] + b"\x7f" + GOOD[TOPIC_AT + 1 :], None, "topic length 127 does not fit"),
        (GOOD[: TOPIC_AT + 2] + b"\x7f\xff" + GOOD[TOPIC_AT + 4 :], None, "length 32767 of the properties does not"),
        (GOOD[: TOPIC_AT + 2] + b"\0\1" + GOOD[TOPIC_AT + 4 :], None, "found a half message"),
        (SCHEDULED, None, "delay level 'x' is not a number"),
        (
            frame(0, properties=BATCH, sys_flag=SYS_FLAG_INNER_BATCH),
            None,
            "inner batch of '40000' at '0' is not a number",
        ),
        (GOOD, None, ""),
    ],
)
def test_why_a_broker_ends_its_log_at_a_frame(data: bytes, left: int | None, why: str) -> None:
    def read(position: int, length: int) -> bytes:
        return data[position : position + length]

    verdict = judge(read, 0, len(data) if left is None else left, RELEASES["5.3.3"], check_crc=True)
    assert verdict.why.startswith(why)
    assert (verdict.message is None) == bool(verdict.why)
    if verdict.message is not None:
        assert (verdict.size, verdict.message.topic, verdict.message.body) == (len(GOOD), "T", b"body")


def test_a_broker_that_checks_no_crc_serves_the_damaged_body(golden_store: GoldenStore) -> None:
    """checkCRCOnRecover=false: nothing is lost, and the message comes into its queue as all others do."""
    store = golden_store("crc-flip-last-abort")
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").mkdir()
    read_whole(store)
    sizes = StoreConfig(mapped_file_size_consume_queue=2000)
    checks, trusts = (predicted(store, "5.3.3", sizes._replace(check_crc_on_recover=how)) for how in (True, False))
    assert (checks.end_offset, checks.messages_lost, checks.end_reason) == (2106230, 25, "CRC check failed")
    assert (trusts.end_offset, trusts.messages_lost) == (2135612, 0)
    units = {(row["topic"], row["queueId"]): row["max"] for row in truth("crash").queues if row["max"]}
    assert {(row["topic"], row["queue_id"]): row["max_after"] for row in trusts.queues_changed} == units
    assert (trusts.messages_unqueued, len(trusts.warnings)) == (0, 1)
    assert "does not notice 1 damaged place of the log, at offset 2106230" in trusts.warnings[0]


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("innerbatch", b"INNER_NUM\x015", b"INNER_NUM\x01x", "inner batch of 'x' at '4' is not a number"),
        ("features", b"DELAY\x013", b"DELAY\x01x", "delay level 'x' is not a number"),
        ("features", b"DELAY\x013", b"DELAY\x01 ", "delay level ' ' is not a number"),
    ],
)
def test_a_number_that_the_broker_cannot_read_ends_its_log(
    golden_store: GoldenStore, name: str, old: bytes, new: bytes, reason: str
) -> None:
    """The message is good by every checksum; all behind it goes."""
    store = golden_store(name)
    read_whole(store)
    at = replace(store, old, new)
    found = predicted(store)
    assert found.end_reason == reason
    rows = truth(name).messages
    [broken] = [row for row in rows if row["phyOffset"] <= at < row["phyOffset"] + row["storeSize"]]
    assert found.end_offset == broken["phyOffset"]
    assert found.messages_lost == sum(row["phyOffset"] >= broken["phyOffset"] for row in rows)


# ---- queues


def test_batch_queues_are_made_anew_after_a_crash(golden_store: GoldenStore) -> None:
    store = golden_store("innerbatch")
    read_whole(store)
    for path in (store / "batchconsumequeue" / BATCHES).rglob("0*"):
        if path.is_file():
            path.unlink()
    config = StoreConfig(mapper_file_size_batch_consume_queue=460)
    found = predicted(store, config=config, batch_topics=[BATCHES])
    ends = {row["queueId"]: row["max"] for row in truth("innerbatch").queues if row["topic"] == BATCHES}
    rows = {row["queue_id"]: row for row in found.queues_changed if row["topic"] == BATCHES}
    assert {queue_id: row["max_after"] for queue_id, row in rows.items()} == ends
    assert sum(row["units_added"] for row in rows.values()) == 30
    assert found.messages_unqueued == 0


def test_lost_queues_of_a_clean_stop_stay_lost(golden_store: GoldenStore) -> None:
    """The broker dispatches nothing that lies before the end of its queues."""
    store = golden_store("lmq")
    before = predicted(store).messages_unqueued
    gone = next(path for path in sorted((store / "consumequeue").iterdir()) if path.name.startswith("%LMQ%"))
    units = sum(row["max"] for row in truth("lmq").queues if row["topic"] == gone.name)
    shutil.rmtree(gone)
    assert units > 0
    assert predicted(store).messages_unqueued == before + units


def test_light_queues_get_units_only_where_the_broker_dispatches_to_them(golden_store: GoldenStore) -> None:
    """enableLmq alone reads light queues; their units come with enableMultiDispatch."""
    store = golden_store("lmq")
    for path in (store / "consumequeue").iterdir():
        if path.name.startswith("%LMQ%"):
            shutil.rmtree(path)
    (store / "abort").touch()
    both = predicted(store, config=StoreConfig(enable_lmq=True, enable_multi_dispatch=True))
    alone = predicted(store, config=StoreConfig(enable_lmq=True))
    assert {row["topic"] for row in both.queues_changed if row["topic"].startswith("%LMQ%")}
    assert not {row["topic"] for row in alone.queues_changed if row["topic"].startswith("%LMQ%")}
    assert alone.messages_unqueued > both.messages_unqueued


@pytest.mark.parametrize("broker", RELEASES)
def test_light_queues_whose_offsets_run_ahead_come_out_as_they_were(broker: str, tmp_path: Path) -> None:
    queue = runs_ahead(tmp_path / "store")
    (tmp_path / "store" / "abort").touch()
    queue.unlink()
    (changed,) = predicted(tmp_path / "store", broker, CONFIG).queues_changed
    assert (changed["max_after"], changed["units_added"], changed["units_misplaced"]) == (5, 5, 0)


def test_a_unit_of_a_wrong_size_makes_the_older_broker_skip_messages(golden_store: GoldenStore) -> None:
    """It dispatches from where its queues say that the log is; nothing is there yet."""
    store = golden_store("v4-clean")
    path = max((store / "consumequeue" / "OrderTopic" / "0").iterdir())
    with path.open("r+b") as file:
        file.seek(8)
        file.write(struct.pack(">i", 1 << 30))
        file.seek(28)
        file.write(bytes(12))
    found = predicted(store, "4.9.8")
    assert [text for text in found.warnings if "the queues say that the log reaches" in text]
    assert not [text for text in predicted(golden_store("v4-clean"), "4.9.8").warnings if "the queues say" in text]


def test_what_stands_behind_a_hole_of_a_queue_file_is_not_read(tmp_path: Path) -> None:
    """A file of six megabytes is mostly a hole; a broker ends its queue at the first unit that is none."""
    path = tmp_path / f"{0:020d}"
    units = b"".join(CONSUMEQUEUE_UNIT.struct.pack(100 * number, 100, 0) for number in range(50))
    with path.open("wb") as file:
        file.write(units)
        file.seek(5_000_000)
        file.write(units)
        file.truncate(6_000_000)
    descriptors = Descriptors()
    queue = SimulatedQueue("T", 0, tmp_path, 6_000_000, descriptors, files=[(0, path)])
    queue.recover()
    assert (queue.end, queue.max_physical) == (50, 5000)
    assert len(queue.units_of(0)) < 5_000_000 // 20
    descriptors.close()


@pytest.mark.parametrize(
    ("configured", "is_right"),
    [('{"topicConfigTable": []}', True), ("{", True), ('{"topicConfigTable": {}}', False)],
)
def test_a_queue_of_another_type_than_its_topic_stops_the_start(
    golden_store: GoldenStore, configured: str, is_right: bool
) -> None:
    """As far as the topics are known: else the queues on disk are believed. (ConsumeQueueStore#queueTypeShouldBe)"""
    store = golden_store("innerbatch")
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(configured)
    found = predicted(store)
    assert found.loads == is_right
    wrong = f"The queue type of topic: {BATCHES} should be BatchCQ, but is SimpleCQ"
    assert found.error == (None if is_right else f"load exception: java.lang.RuntimeException: {wrong}")
    assert predicted(store, "4.9.8").loads


def test_a_topic_that_should_have_batches(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "config").mkdir(exist_ok=True)
    table = {"OrderTopic": {"topicName": "OrderTopic", "attributes": {"queue.type": "BatchCQ"}}}
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    assert "topic: OrderTopic should be SimpleCQ, but is BatchCQ" in str(predicted(store).error)


# ---- files


def test_a_link_that_leads_nowhere_in_the_commitlog(golden_store: GoldenStore) -> None:
    """Java says that it has no bytes: 5.x deletes such a last file, 4.x has one of a wrong length."""
    store = golden_store("clean")
    link = f"commitlog/{9 * 262144:020d}"
    (store / link).symlink_to(store / "gone")
    newer, older = predicted(store), predicted(store, "4.9.8")
    assert (newer.loads, newer.files_deleted) == (True, [link])
    assert (older.loads, str(older.error).split("\t")[1][:20]) == (False, "0 length not matched")


def test_a_folder_in_the_place_of_the_checkpoint(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "checkpoint").unlink()
    (store / "checkpoint").mkdir()
    assert str(predicted(store).error).endswith("checkpoint (Is a directory)")


INVALID = "java.io.IOException: Invalid argument"
DIRECTORY, ADDRESS = (
    f"java.io.FileNotFoundException: STORE/{{}} ({why})" for why in ("Is a directory", "No such device or address")
)
WAITS = "none is logged: the broker waits without end for a process that writes into the fifo STORE/abort"


@pytest.mark.parametrize("broker", ["4.9.8", "5.3.3"])
@pytest.mark.parametrize(
    ("name", "kind", "error"),
    [
        ("lock", "directory", DIRECTORY.format("lock")),
        ("lock", "fifo", INVALID),
        ("lock", "socket", ADDRESS.format("lock")),
        ("checkpoint", "directory", f"load exception: {DIRECTORY.format('checkpoint')}"),
        ("checkpoint", "fifo", f"load exception: {INVALID}"),
        ("checkpoint", "socket", f"load exception: {ADDRESS.format('checkpoint')}"),
        ("abort", "directory", DIRECTORY.format("abort")),
        ("abort", "fifo", WAITS),
        ("abort", "socket", ADDRESS.format("abort")),
    ],
)
def test_what_is_no_file_in_the_place_of_a_small_file(
    golden_store: GoldenStore, broker: str, name: str, kind: str, error: str
) -> None:
    """As the jars' calls answer: RandomAccessFile, FileChannel#map and #force, FileInputStream. 4.9.8 only asks whether
    its abort file exists."""
    store = golden_store("clean")
    (store / name).unlink(missing_ok=True)
    if kind == "directory":
        (store / name).mkdir()
    else:
        os.mknod(store / name, (stat.S_IFIFO if kind == "fifo" else stat.S_IFSOCK) | 0o600)
    found = predicted(store, broker)
    expected = None if (broker, name) == ("4.9.8", "abort") else error.replace("STORE", str(store))
    assert (found.error, found.loads) == (expected, expected is None)
    assert found.was_clean == (name != "abort")


def test_odd_files_of_the_index(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    names = sorted(path.name for path in (store / "index").iterdir())
    (store / "index" / "notes.txt").write_text("x")
    assert predicted(store).warnings == []
    with (store / "index" / names[0]).open("ab") as file:
        file.write(bytes(20))
    assert predicted(store).warnings == [
        f"index/{names[0]} has not the configured length: it is extended, its keys are not found any more"
    ]
    folder = store / "index" / "20260101000000000"
    folder.mkdir()
    newer, older = predicted(store), predicted(store, "4.9.8")
    assert newer.error == f"load file {folder} error: java.io.FileNotFoundException: {folder} (Is a directory)"
    assert older.loads


def test_a_store_that_is_open_elsewhere_is_not_opened_again(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    lock = StoreLock(store / "lock")
    found = predicted(store)
    lock.release()
    assert (found.loads, found.error) == (False, "Lock failed,MQ already started")
    assert found.warnings[-1] == f"process {os.getpid()} holds the lock; a broker takes it last, after all of the above"
    assert predicted(store).loads


def test_files_that_a_cleaner_takes_away_meanwhile(golden_store: GoldenStore) -> None:
    """The store is looked at anew: what is told is true of what is left."""
    store = golden_store("crash")
    read_whole(store)

    def cleaner(passed: int) -> None:
        left = sorted((store / "commitlog").iterdir())
        if len(left) > 2:
            left[0].unlink()

    found = predicted(store, "5.3.3", events=Events(progress=cleaner))
    assert len(list((store / "commitlog").iterdir())) == 2
    assert (found.loads, found.end_offset) == (True, 2135612)
