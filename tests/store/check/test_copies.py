"""Copies of compacted topics: sound ones are called sound, and a lost copy is told apart from a lost message."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.layouts import BATCH_CONSUMEQUEUE_UNIT
from rmqctl.store.check.check import check
from rmqctl.store.check.tiered import copied_bytes
from rmqctl.store.config.config_files import read_config
from rmqctl.store.log.survey import written_bytes
from rmqctl.store.options import Events
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, log_golden
from tests.rmqctl.looking import run

_UNIT = BATCH_CONSUMEQUEUE_UNIT.size


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    return golden_store("compaction")


def _found(store: Path, *more: object) -> dict[str, dict[str, Any]]:
    rows = run("check", "-s", store, *more, "--json").objects
    return {row["code"]: row for row in rows if "-CMP-" in row.get("code", "")}


def _file(store: Path, kind: str) -> Path:
    return store / "compaction" / kind / "CompactTopic" / "0" / f"{0:020d}"


def _put(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_what_rocketmq_left_is_sound(store: Path) -> None:
    assert _found(store) == {}


@pytest.mark.parametrize(
    ("kind", "at", "data"),
    [
        ("compactionLog", 89, b"\xff\xff"),
        ("compactionLog", 20, b"\x7f"),
        ("compactionLog", 28, b"\x7f"),
        ("compactionCq", 0, b"\x7f" + b"\xff" * 6 + b"\xf0"),
        ("compactionCq", 11, b"\x01"),
        ("compactionCq", 5 * _UNIT + 30, b"\x7f"),
    ],
)
def test_a_flipped_byte_is_found_and_the_message_is_in_the_commitlog(
    store: Path, kind: str, at: int, data: bytes
) -> None:
    _put(_file(store, kind), at, data)
    row = _found(store)["RMQ-CMP-002"]
    assert (row["severity"], row["topic"], row["queue_id"]) == ("error", "CompactTopic", 0)
    # a unit whose own queue offset is wrong names a message that never was
    assert row["data_lost"] is (kind == "compactionCq" and at > _UNIT)


def test_without_the_commitlog_the_message_is_lost(store: Path) -> None:
    _put(_file(store, "compactionLog"), 89, b"\xff\xff")
    place = 20 * BATCH_CONSUMEQUEUE_UNIT.unpack_from(_file(store, "compactionCq").read_bytes(), 0)[4]
    files = sorted((store / "consumequeue" / "CompactTopic" / "0").iterdir())
    file = next(file for file in reversed(files) if int(file.name) <= place)
    _put(file, place - int(file.name), bytes(20))
    assert _found(store)["RMQ-CMP-002"]["data_lost"] is True


def test_files_that_do_not_fit_and_leftovers_are_named(store: Path) -> None:
    path = _file(store, "compactionLog")
    path.with_name(f"{path.name}.delete").write_bytes(b"")
    assert "cut off" in _found(store)["RMQ-CMP-001"]["message"]
    _file(store, "compactionCq").unlink()
    assert "RMQ-CMP-001" in _found(store)


def test_messages_that_the_copy_lacks_are_counted(store: Path) -> None:
    path = max(_file(store, "compactionCq").parent.iterdir())
    units = path.read_bytes()
    written = next(n for n in range(len(units) // _UNIT) if not int.from_bytes(units[n * _UNIT + 8 :][:4], "big"))
    _put(path, (written - 4) * _UNIT, bytes(4 * _UNIT))
    (store / "compaction" / "position-checkpoint").unlink(missing_ok=True)
    assert _found(store)["RMQ-CMP-003"]["messages"] == 4


def test_a_queue_that_has_no_copy_is_named(store: Path) -> None:
    for kind in ("compactionLog", "compactionCq"):
        shutil.rmtree(store / "compaction" / kind)
    entry = {"topicName": "CompactTopic", "attributes": {"cleanup.policy": "COMPACTION"}}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"CompactTopic": entry}}))
    assert _found(store)["RMQ-CMP-003"]["messages"] > 4
    config = store.parent / "broker.conf"
    config.write_text("enableCompaction=false\n")
    assert _found(store, "-c", config) == {}
    (store / "config" / "topics.json").write_text("{", encoding="ascii")
    assert "RMQ-CMP-003" not in _found(store)


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    return log_golden("v55-tiered", tmp_path).store


def _segment(store: Path, topic: str, kind: str, base: int = 0) -> Path:
    (path,) = store.glob(f"tiered/*/golden/{topic}/0/{kind}/*{base:020d}")
    return path


def _tiered(store: Path) -> dict[str, dict[str, Any]]:
    return {row["code"]: row for row in run("check", "-s", store, "--json").objects if "-TIER-" in row.get("code", "")}


def test_what_rocketmq_copied_is_sound(tiered: Path) -> None:
    assert _tiered(tiered) == {}


def test_a_damaged_copy_is_told_from_a_lost_message(tiered: Path) -> None:
    _put(_segment(tiered, "%DLQ%GroupA", "COMMIT_LOG"), 90, b"\xff")
    row = _tiered(tiered)["RMQ-TIER-002"]
    assert (row["topic"], row["queue_id"], row["data_lost"]) == ("%DLQ%GroupA", 0, False)
    (tiered / "commitlog" / f"{0:020d}").write_bytes(bytes(1 << 18))
    assert _tiered(tiered)["RMQ-TIER-002"]["data_lost"] is True


@pytest.mark.parametrize("base", [0, 65335])
def test_a_segment_that_is_gone(tiered: Path, base: int) -> None:
    _segment(tiered, "%DLQ%GroupA", "COMMIT_LOG", base).unlink()
    found = _tiered(tiered)
    assert ("is not there" in found["RMQ-TIER-001"]["message"], found["RMQ-TIER-002"]["data_lost"]) == (True, False)


def test_a_whole_folder_that_is_gone(tiered: Path, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(f"tieredStoreFilePath={tmp_path}/unmounted\n")
    rows = run("check", "-s", tiered, "-c", config, "--json").objects
    assert [row["file"] for row in rows if row.get("code") == "RMQ-TIER-001"] == [f"{tmp_path}/unmounted"]


def test_a_message_that_is_another_one(tiered: Path) -> None:
    """The flag of a message is under no checksum."""
    _put(_segment(tiered, "a", "COMMIT_LOG"), 16, b"\x55\x55")
    assert set(_tiered(tiered)) == {"RMQ-TIER-003"}


def test_bytes_that_no_one_reads(tiered: Path) -> None:
    log = _segment(tiered, "a", "COMMIT_LOG")
    log.with_name(f"{'0' * 8}{1 << 20:020d}").write_bytes(b"x")
    with _segment(tiered, "topic-with-dash", "COMMIT_LOG").open("ab") as file:
        file.write(bytes(10))
    rows = [row for row in run("check", "-s", tiered, "--json").objects if row.get("code") == "RMQ-TIER-004"]
    assert {row["topic"]: row["severity"] for row in rows} == {"a": "notice", "topic-with-dash": "notice"}


def test_a_hole_between_copy_and_store(tiered: Path) -> None:
    lines = [json.dumps({"topic": "a", "body": "x" * 3000 + str(n)}) for n in range(150)]
    (tiered.parent / "more").write_text("\n".join(lines))
    assert run("append", "-s", tiered, "--from", tiered.parent / "more").code == 0
    (tiered / "commitlog" / f"{0:020d}").unlink()
    row = _tiered(tiered)["RMQ-TIER-005"]
    assert (row["severity"], row["topic"], row["queue_id"]) == ("warning", "a", 0)
    assert row["messages"] == run("ls", "-s", tiered, "--tiered", "-t", "a", "--json").objects[0]["in_neither"] > 0


def test_a_table_that_is_gone(tiered: Path) -> None:
    for name in ("tieredStoreMetadata.json", "tieredStoreMetadata.json.bak"):
        (tiered / "config" / name).unlink()
    assert set(_tiered(tiered)) == {"RMQ-TIER-006"}
    (tiered / "config" / "tieredStoreMetadata.json").write_text("{{", encoding="ascii")
    assert set(_tiered(tiered)) == {"RMQ-TIER-006"}


def _change_table(store: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change tables of the metadata, whose integer keys have no quotes."""
    path = store / "config" / "tieredStoreMetadata.json"
    content = read_config(path)
    assert isinstance(content, dict)
    change(content)
    for one in (path, path.with_name(f"{path.name}.bak")):
        one.write_text(format_config_json(content))


def _offsets(low: int, high: int) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["queueMetadataTable"]["a"][0].update(minOffset=low, maxOffset=high)


@pytest.mark.parametrize("offsets", [(-1, -1), (0, 0), (0, 19), (0, 7)])
def test_offsets_that_a_broker_may_have_saved(tiered: Path, offsets: tuple[int, int]) -> None:
    """Up to 5.2 at each shutdown, and never since: they may be older than the copy, which only grows."""
    _change_table(tiered, _offsets(*offsets))
    assert _tiered(tiered) == {}


@pytest.mark.parametrize("offsets", [(0, 20), (3, 19), (20, 21), (5, 2), (-2, 3), (-1 << 63, (1 << 63) - 1)])
def test_offsets_of_the_table_that_cannot_be(tiered: Path, offsets: tuple[int, int]) -> None:
    _change_table(tiered, _offsets(*offsets))
    row = _tiered(tiered)["RMQ-TIER-008"]
    assert (row["severity"], row["topic"], row["queue_id"], row["found"]) == ("warning", "a", 0, offsets[1])
    assert f"queue offsets {offsets[0]} to {offsets[1]}" in row["message"]


@pytest.mark.parametrize("table", ["queueMetadataTable", "topicMetadataTable"])
def test_a_queue_that_the_table_does_not_name(tiered: Path, table: str) -> None:
    _change_table(tiered, lambda content: content[table].pop("a"))
    row = _tiered(tiered)["RMQ-TIER-008"]
    assert (row["topic"], row["queue_id"], "not the queue" in row["message"]) == ("a", 0, True)


def test_a_copy_that_is_longer_than_the_queue(tiered: Path) -> None:
    """A broker copies nothing of such a queue (MessageStoreDispatcherImpl#doScheduleDispatch)."""
    offset = run("query", "-s", tiered, "-t", "TopicTest", "-q", "0", "-o", "4", "--json").objects[0]["physical_offset"]
    assert run("truncate", "-s", tiered, "--at", offset, "--yes").code == 0
    rows = [row for row in run("check", "-s", tiered, "--json").objects if row.get("code") == "RMQ-TIER-009"]
    (row,) = (row for row in rows if (row["topic"], row["queue_id"]) == ("TopicTest", 0))
    assert (row["severity"], row["expected"], row["found"]) == ("warning", 4, 7)
    (tiered / "abort").touch()
    assert "RMQ-TIER-009" not in _tiered(tiered)


def test_segments_that_expired_are_not_missing(tiered: Path) -> None:
    """Segments of the log expire before those of the units that lead into them."""
    _segment(tiered, "%DLQ%GroupA", "COMMIT_LOG", 0).unlink()
    _change_table(tiered, lambda content: content["commitLogFileSegmentTable"]["golden/%DLQ%GroupA/0"].pop(0))
    assert _tiered(tiered) == {}
    (row,) = run("ls", "-s", tiered, "--tiered", "-t", "%DLQ%GroupA", "--json").objects
    assert (row["tiered_min_offset"], row["tiered_max_offset"]) == (20, 21)
    assert row["first_store_timestamp"] is not None
    saved = {"minOffset": 20, "maxOffset": 21}
    _change_table(tiered, lambda content: content["queueMetadataTable"]["%DLQ%GroupA"][0].update(saved))
    assert _tiered(tiered) == {}
    done = run("cat", "-s", tiered, "-t", "%DLQ%GroupA", "--tiered", "--json")
    assert (done.code, len(done.objects)) == (0, 21)


@pytest.mark.parametrize("name", ["v55-tiered", "v55-compacted"])
def test_messages_of_copies_are_progress(tmp_path: Path, name: str) -> None:
    passed: list[int] = []
    with StoreFiles(log_golden(name, tmp_path).store) as files:
        run_of_check = check(files, events=Events(progress=passed.append))
        assert [finding for finding in run_of_check if finding.severity.is_alarm] == []
        assert sum(passed) == written_bytes(files.log) + copied_bytes(files)
