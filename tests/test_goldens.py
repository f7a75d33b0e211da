"""The goldens that tests stand on are what RocketMQ was given: every file as listed in the truth, deltas included."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.golden import delta
from tests.goldens import (
    GOLDENS,
    GoldenStore,
    admin,
    base_of,
    broker_conf,
    golden,
    is_broken,
    is_crashed,
    properties,
    tree_state,
    truth,
)
from tests.quick import goldens_of


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_store_is_what_rocketmq_was_given(name: str, golden_store: GoldenStore) -> None:
    state = tree_state(golden_store(name))
    found = {path: (size, digest) for path, (size, _, digest) in state.items() if digest != "directory"}
    listed = {row["path"]: (row["size"], row["sha256"]) for row in truth(name).summary["filesBefore"]}
    assert found == listed


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_truth_is_complete(name: str) -> None:
    view = truth(name)
    offsets = [row["phyOffset"] for row in view.messages]
    assert offsets == sorted(set(offsets))
    assert len(offsets) == view.summary.get("messages", 0)
    assert len(view.queues) == view.summary.get("queues", 0)
    for row in view.messages:
        assert {"topic", "queueId", "queueOffset", "storeSize", "bodySha256", "properties", "cq"} <= row.keys()


def test_all_goldens_are_here() -> None:
    broken = [name for name in GOLDENS if is_broken(name)]
    assert (len(GOLDENS), len(broken)) == (59, 37)
    assert {base_of(name) for name in broken} == {"clean", "crash", "v4-clean", "v4-crash"}
    assert is_crashed("crash")
    assert not is_crashed("clean")
    assert not is_broken("crash")
    assert is_broken("gap")


def test_messages_taken_from_the_base_know_whether_a_unit_points_at_them() -> None:
    base, derived = truth("clean"), truth("cq-truncated")
    assert len(derived.messages) == len(base.messages)
    assert all(row["cq"] for row in base.messages)
    without = [row for row in derived.messages if row["cq"] is None]
    assert 0 < len(without) < len(derived.messages)


def test_a_copy_is_private(golden_store: GoldenStore) -> None:
    first = golden_store("crc-flip-last")
    before = tree_state(first)
    for file in (first / "commitlog").iterdir():
        file.write_bytes(b"changed")
    assert tree_state(first) != before
    assert tree_state(golden_store("crc-flip-last")) == before


def test_tree_state_sees_bytes_sizes_mtimes_and_names(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    checkpoint = store / "checkpoint"
    before = tree_state(store)
    assert tree_state(store) == before
    stamp = checkpoint.stat().st_mtime_ns
    checkpoint.write_bytes(b"x" + checkpoint.read_bytes()[1:])
    os.utime(checkpoint, ns=(stamp, stamp))
    after = tree_state(store)
    assert [path for path in before if after[path] != before[path]] == ["checkpoint"]
    (store / "commitlog" / "new").mkdir()
    assert tree_state(store).keys() - after.keys() == {"commitlog/new"}
    assert tree_state(store)["commitlog"] != after["commitlog"]
    os.utime(store / "index", ns=(0, 0))
    assert tree_state(store)["index"] == (0, 0, "directory")


def test_holes_stay_holes(golden_store: GoldenStore) -> None:
    wheel = (golden_store("broker-real") / "timerwheel").stat()
    assert wheel.st_size > 30_000_000
    assert wheel.st_blocks * 512 < 1_000_000


def test_broker_conf_names_the_copy(tmp_path: Path) -> None:
    store = golden("multipath", tmp_path)
    lines = broker_conf("multipath", tmp_path).read_text(encoding="utf-8").splitlines()
    assert lines[0] == f"storePathRootDir={store}"
    assert f"storePathCommitLog={store}/cl-a,{store}/cl-b" in lines
    assert "mappedFileSizeCommitLog=262144" in lines
    assert not any(line.startswith(("load.", "store.")) for line in lines)


def test_properties_of_a_derived_store_are_its_base_s() -> None:
    assert properties("torn-zero") == properties("crash")
    assert properties("innerbatch")["topic.InnerBatchTopic"] == "2;queue.type=BatchCQ"


def test_admin_answers_of_the_broker() -> None:
    assert admin("broker-real")


def test_delta_round_trip(tmp_path: Path) -> None:
    base, store = tmp_path / "base", tmp_path / "store"
    for root in (base, store):
        (root / "kept").mkdir(parents=True)
        (root / "kept" / "same").write_bytes(b"same")
        (root / "kept" / "changed").write_bytes(bytes(1000))
    (base / "gone" / "deep").mkdir(parents=True)
    (base / "gone" / "deep" / "file").write_bytes(b"1")
    (base / "kept" / "removed").write_bytes(b"2")
    (store / "kept" / "changed").write_bytes(b"a" + bytes(500) + b"bc" + bytes(997))
    (store / "new" / "empty").mkdir(parents=True)
    (store / "new" / "file").write_bytes(bytes(10))
    made = delta.difference("base", base, store)
    assert made.removed_directories == ["gone"]
    assert made.removed == ["kept/removed"]
    assert made.files["kept/changed"] == delta.FileChange(1500, [(0, "61"), (501, "6263")])
    delta.apply(delta.Delta.from_json(made.to_json()), base)
    assert tree_state(base) == tree_state(store)
