"""The newest message of each key of a compacted topic is the one that RocketMQ's log has last, wherever it is read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.ipc
import pyarrow.parquet
import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store.read.compacted import COMPACTION, LOGS, POSITIONS, QUEUES
from tests.goldens import LogGolden, log_golden, tree_state
from tests.rmqctl.looking import run

_TOPIC = "CompactTopic"
_POSITIONS = {0: 260, 1: 259}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> LogGolden:
    return log_golden("v55-compacted", tmp_path_factory.mktemp("compacted"))


@pytest.fixture
def store(golden: LogGolden, tmp_path: Path) -> Path:
    return golden.copied_to(tmp_path / "store")


def expected(golden: LogGolden) -> dict[tuple[int, int], dict[str, Any]]:
    """What the log says: the last message of each key, without deleted keys that a compaction has removed."""
    newest: dict[tuple[int, str], dict[str, Any]] = {}
    for row in golden.rows("msg"):
        if row["topic"] == _TOPIC and row["properties"].get("KEYS"):
            newest[row["queueId"], row["properties"]["KEYS"]] = row
    return {
        (row["queueId"], row["queueOffset"]): row
        for row in newest.values()
        if row["bodyLength"] or row["queueOffset"] > _POSITIONS[row["queueId"]]
    }


def _printed(store: Path, *options: object) -> dict[tuple[int, int], dict[str, Any]]:
    done = run("cat", "-s", store, "-t", _TOPIC, "--compacted", "--json", *options)
    return {(row["queue_id"], row["queue_offset"]): row for row in done.objects}


def test_the_newest_of_each_key_is_the_one_of_the_log(golden: LogGolden) -> None:
    before = tree_state(golden.store)
    printed, wanted = _printed(golden.store), expected(golden)
    assert list(printed) == sorted(wanted)
    assert {place: row["msg_id"] for place, row in printed.items()} == {
        place: row["msgId"] for place, row in wanted.items()
    }
    assert tree_state(golden.store) == before


def test_what_the_commitlog_has_no_more_comes_from_the_copy(store: Path) -> None:
    whole = _printed(store)
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").mkdir()
    alone = _printed(store)
    assert {place: row["unique_key"] for place, row in alone.items()} == {
        place: row["unique_key"] for place, row in whole.items()
    }
    assert {row["physical_offset"] for row in alone.values()} == {-1}


def test_options_choose_among_the_newest(store: Path) -> None:
    whole = list(_printed(store))
    of_queue = [place for place in whole if place[0] == 1]
    assert list(_printed(store, "-q", 1)) == of_queue
    assert list(_printed(store, "-q", 1, "-n", 3)) == of_queue[:3]
    assert list(_printed(store, "-q", 1, "-n", -3)) == of_queue[-3:]
    assert len(_printed(store, "-k", "once1")) == 1
    done = run("cat", "-s", store, "-t", _TOPIC, "--compacted", "--format-string", "%q-%o ")
    assert done.out == "".join(f"{queue}-{offset} " for queue, offset in whole)


def test_a_damaged_copy_is_reported_and_the_commitlog_has_the_message(store: Path) -> None:
    whole = _printed(store)
    path = store / COMPACTION / LOGS / _TOPIC / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[95] ^= 0xFF
    path.write_bytes(data)
    done = run("cat", "-s", store, "-t", _TOPIC, "--compacted", "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "message 0 of CompactTopic, queue 0" in done.err
    assert "the commitlog has it" in done.err
    assert _printed(store).keys() == whole.keys()


def test_a_difference_that_no_crc_covers_is_found(store: Path) -> None:
    path = store / COMPACTION / LOGS / _TOPIC / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[16] ^= 1  # the flag
    path.write_bytes(data)
    found = [row for row in run("check", "-s", store, "--json").objects if row.get("code") == "RMQ-CMP-002"]
    assert ["differs from the same message of the commitlog" in row["message"] for row in found] == [True]


def test_a_topic_without_copies_and_impossible_options(store: Path) -> None:
    for name in (POSITIONS, f"{POSITIONS}.bak"):
        (store / COMPACTION / name).write_text("{")
    done = run("cat", "-s", store, "-t", _TOPIC, "--compacted", "-n", 1)
    assert (done.code, POSITIONS in done.err) == (exit_codes.DAMAGE_OR_NOTHING, True)
    assert run("cat", "-s", store, "-t", "TopicTest", "--compacted").code == exit_codes.DAMAGE_OR_NOTHING
    for options in (["--compacted"], ["-t", _TOPIC, "--compacted", "-f"], ["-t", _TOPIC, "--compacted", "-o", 1]):
        assert run("cat", "-s", store, *options).code == exit_codes.USAGE


def test_a_lost_copy_is_no_absence(store: Path) -> None:
    entry = {"topicName": _TOPIC, "attributes": {"cleanup.policy": "COMPACTION"}}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {_TOPIC: entry}}))
    for kind in (LOGS, QUEUES):
        shutil.rmtree(store / COMPACTION / kind / _TOPIC / "1")
    done = run("cat", "-s", store, "-t", _TOPIC, "--compacted", "--json")
    assert done.code != exit_codes.OK
    assert "queue 1 lacks 262 messages" in done.err
    shutil.rmtree(store / COMPACTION)
    done = run("cat", "-s", store, "-t", _TOPIC, "--compacted")
    assert done.code == exit_codes.DAMAGE_IN_THE_WAY
    assert f"rmqctl rebuild --compacted -t {_TOPIC}" in done.err


@pytest.mark.parametrize("is_expired", [False, True])
def test_a_table_has_what_the_lines_have(store: Path, tmp_path: Path, is_expired: bool) -> None:
    """Also of messages that only the copy has, whose physical offset is -1."""
    if is_expired:
        min((store / "commitlog").iterdir()).unlink()
    options = ("-s", store, "-t", _TOPIC, "--compacted")
    codes = {run("export", tmp_path / f"a.{kind}", *options).code for kind in ("jsonl", "parquet", "arrow")}
    assert codes == {exit_codes.OK}
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines()]
    rows = pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert pyarrow.ipc.open_file(tmp_path / "a.arrow").read_all().num_rows == len(rows) == len(lines)
    assert any(row["physical_offset"] == -1 for row in rows) == is_expired
    names = ("msg_id", "unique_key", "topic", "queue_id", "queue_offset", "physical_offset", "size", "tags", "keys")
    assert [[row[name] for name in names] for row in rows] == [[line[name] for name in names] for line in lines]
    assert [row["body"].decode() for row in rows] == [line["body"] for line in lines]
    parted = run("export", tmp_path / "lake", *options, "--partition", "--columns", "keys,body", "--json").objects[0]
    assert (parted["messages"], parted["partitions"]) == (len(rows), 1)


def test_it_is_exported_as_it_is_printed(store: Path, tmp_path: Path) -> None:
    printed = run("cat", "-s", store, "-t", _TOPIC, "--compacted", "--json").objects
    (done,) = run("export", tmp_path / "a.jsonl", "-s", store, "-t", _TOPIC, "--compacted", "--json").objects
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines()]
    assert (done["messages"], done["damaged_spans"]) == (len(printed), 0)
    names = ("queue_id", "queue_offset", "physical_offset", "keys", "store_timestamp")
    assert [[row[name] for name in names] for row in rows] == [[row[name] for name in names] for row in printed]
    assert run("export", tmp_path / "b.csv", "-s", store, "-t", _TOPIC, "-q", 1, "--compacted").code == exit_codes.OK
    assert (tmp_path / "b.csv").read_text("utf-8").count("\n") == 1 + sum(row["queue_id"] == 1 for row in rows)
    empty = run("export", tmp_path / "c.jsonl", "-s", store, "-t", _TOPIC, "-k", "no such", "--compacted")
    assert (empty.code, (tmp_path / "c.jsonl").exists()) == (exit_codes.DAMAGE_OR_NOTHING, False)
    for name, options in (("d.parquet", []), ("d.csv", ["-t", _TOPIC, "-o", "1"])):
        refused = run("export", tmp_path / name, "-s", store, "--compacted", *options)
        assert refused.code == exit_codes.USAGE
