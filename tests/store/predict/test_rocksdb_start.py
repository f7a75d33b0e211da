"""Starts with queues in RocksDB, and the switch to them and back, held against what 5.5.0 made of the stores."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.store.message_store import MessageStore
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run
from tests.store.rocksdb.stores import queues, unpacked

ONLY = "rocksdb-55-only"


def _conf(folder: Path, kind: str, *more: str) -> Path:
    path = folder / f"{kind}.conf"
    path.write_text("\n".join([f"storeType={kind}", *more, ""]))
    return path


def test_a_clean_start_changes_nothing(tmp_path: Path) -> None:
    store = unpacked(ONLY, tmp_path)
    before = tree_state(store)
    done = run("predict", "-s", store, "--json")
    [row] = done.objects
    assert (done.code, row["loads"], row["queues_changed"], row["messages_unqueued"]) == (0, True, [], 0)
    assert tree_state(store) == before


def test_lost_queues_are_filled_but_for_the_first_message(tmp_path: Path) -> None:
    """The golden rocksdb-55-only-cq-lost: queue ends as before, and no unit for the message at offset 0."""
    store = unpacked(ONLY, tmp_path)
    shutil.rmtree(store / "consumequeue")
    [row] = run("predict", "-s", store, "-c", _conf(tmp_path, "defaultRocksDB"), "--json").objects
    expected = {key: line["max"] for key, line in queues(ONLY).items() if line["units"]}
    assert {(one["topic"], one["queue_id"]): one["max_after"] for one in row["queues_changed"]} == expected
    assert sum(one["units_added"] for one in row["queues_changed"]) == 399
    assert (row["messages_unqueued"], row["unqueued"][0]["physical_offset"]) == (1, 0)


@pytest.mark.parametrize("most", [1, 10])
def test_a_switch_to_rocksdb_reads_the_newest_files(most: int, golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("v55-clean")
    conf = _conf(tmp_path, "defaultRocksDB", f"commitLogRecoverMaxNum={most}")
    done = run("predict", "-s", store, "-c", conf, "--broker", "5.5.0", "--json")
    [row] = done.objects
    with MessageStore.open(store) as opened:
        units = sum(queue.max_offset for queue in opened.reader.queues())
    added = sum(one["units_added"] for one in row["queues_changed"])
    assert added + row["messages_unqueued"] == units
    assert row["messages_unqueued"] == 1 if most == 10 else row["messages_unqueued"] > 1
    assert any("become stale" in text for text in row["warnings"])
    assert any("commitLogRecoverMaxNum" in text for text in row["warnings"]) is (most == 1)


def test_a_switch_back_to_files(tmp_path: Path) -> None:
    store = unpacked(ONLY, tmp_path)
    conf = _conf(tmp_path, "default", "mappedFileSizeConsumeQueue=2000")
    asked = "predict", "-s", store, "-c", conf, "--broker", "5.5.0", "--json"
    [row] = run(*asked).objects
    assert any("becomes stale" in text for text in row["warnings"])
    assert sum(one["units_added"] for one in row["queues_changed"]) + row["messages_unqueued"] == 400
    assert run("rebuild", "-s", store, "--queues", "files", "--queue-file-size", "2000", "-y").code == 0
    [row] = run(*asked).objects
    assert (row["loads"], row["queues_changed"], row["messages_unqueued"]) == (True, [], 0)


def test_light_queues_in_rocksdb_beside_files_are_not_left_out(tmp_path: Path) -> None:
    [row] = run("predict", "-s", unpacked("rocksdb-55", tmp_path), "--broker", "5.5.0", "--json").objects
    assert (row["messages_unqueued"], row["queues_changed"]) == (0, [])


def test_both_kinds_of_queues_need_light_queues_in_rocksdb(golden_store: GoldenStore, tmp_path: Path) -> None:
    """As 5.5.0 itself: "unexpected, rocksdbCQ is not ready for LMQ", and it does not initialize."""
    store = golden_store("v55-clean")
    double, light = "rocksdbCQDoubleWriteEnable=true", "combineCQUseRocksdbForLmq=true"
    for version, lines, comes_up in (
        ("5.5.0", (double,), False),
        ("5.5.0", (double, light), True),
        ("5.5.0", (light,), True),
        ("5.3.3", (double,), True),
        ("4.9.8", (double,), True),
    ):
        [row] = run(
            "predict", "-s", store, "-c", _conf(tmp_path, "default", *lines), "--broker", version, "--json"
        ).objects
        assert row["loads"] is comes_up
        assert any("combineCQUseRocksdbForLmq" in text for text in row["warnings"]) is not comes_up


def test_what_stops_a_start(tmp_path: Path) -> None:
    store = unpacked(ONLY, tmp_path)
    shutil.copytree(store / "consumequeue", store / "consumequeue_rocksdb")
    [row] = run("predict", "-s", store, "--json").objects
    assert (row["loads"], "both consumequeue/" in row["error"]) == (False, True)
    shutil.rmtree(store / "consumequeue_rocksdb")
    (store / "consumequeue" / "CURRENT").write_text("x")
    [row] = run("predict", "-s", store, "-c", _conf(tmp_path, "defaultRocksDB"), "--json").objects
    assert row["loads"] is False
    configured = unpacked("config-rocksdb", tmp_path)
    [row] = run("predict", "-s", configured, "-c", _conf(tmp_path, "default"), "--json", "--broker", "5.5.0").objects
    assert any("export --what config" in text for text in row["warnings"])


_BOTH = ("rocksdbCQDoubleWriteEnable=true", "combineCQUseRocksdbForLmq=true")


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (("combineCQLoadingCQTypes=files",), "loadingCQTypes is empty"),
        (("combineCQLoadingCQTypes=defaultRocksDB",), "chooseAssignOffsetStore fail"),
        (("combineCQLoadingCQTypes=default;", "combineCQPreferCQType=defaultRocksDB"), "choosePreferCQ fail"),
        (("combineCQLoadingCQTypes= Default ;",), "rocksdbCQ is not ready for LMQ"),
        (("combineAssignOffsetCQType=defaultRocksDB",), "maybe incorrect config"),
        (("combineAssignOffsetCQType=default", "combineCQPreferCQType=DEFAULT"), None),
    ],
)
def test_settings_of_both_kinds_that_do_not_go_together(
    more: tuple[str, ...], error: str | None, golden_store: GoldenStore, tmp_path: Path
) -> None:
    store, conf = golden_store("v55-clean"), _conf(tmp_path, "default", *_BOTH, *more)
    [row] = run("predict", "-s", store, "-c", conf, "--broker", "5.5.0", "--json").objects
    assert (row["loads"], error in (row["error"] or "") if error else row["error"] is None) == (error is None, True)
    [older] = run("predict", "-s", store, "-c", conf, "--broker", "5.3.3", "--json").objects
    assert older["loads"]


def test_the_rocksdb_beside_files_follows_them(tmp_path: Path) -> None:
    """The golden rocksdb-55: files and RocksDB agree, so either may be read."""
    store = unpacked("rocksdb-55", tmp_path)
    for preferred in ("default", "defaultRocksDB"):
        conf = _conf(tmp_path, "default", *_BOTH, f"combineCQPreferCQType={preferred}")
        [row] = run("predict", "-s", store, "-c", conf, "--broker", "5.5.0", "--json").objects
        assert (row["loads"], row["queues_changed"], row["messages_stuck"]) == (True, [], 0)
        assert not [text for text in row["warnings"] if "RocksDB" in text]
