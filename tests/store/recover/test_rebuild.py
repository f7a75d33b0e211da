"""Rebuilding queues and index: the queues come out byte for byte as the real broker wrote them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import NotFoundError, RefusedError, UnsupportedError, UsageError
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.rebuild import RebuildReport, rebuild, report_row
from rmqctl.store.store_files import StoreFiles
from tests import goldens
from tests.goldens import GoldenStore, broker_conf, tree_state
from tests.quick import goldens_of
from tests.store.recover.test_recover import assert_complete, implied_index

WHOLE = tuple(
    name
    for name in goldens.GOLDENS
    if not goldens.is_broken(name) and not goldens.is_crashed(name) and name != "rocksdb"
)


def run(store: Path, **options: Any) -> RebuildReport:
    with StoreFiles(store, read_broker_conf(broker_conf(store.name, store.parent))) as files:
        return rebuild(files, **options)


def contents(store: Path, part: str) -> dict[str, str]:
    return {path: state[2] for path, state in tree_state(store).items() if path.startswith(part)}


@pytest.mark.parametrize("name", goldens_of(WHOLE))
def test_queues_equal_the_brokers(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    # ext units, too
    before = {**contents(store, "consumequeue"), **contents(store, "batchconsumequeue")}
    run(store, index=False)
    assert {**contents(store, "consumequeue"), **contents(store, "batchconsumequeue")} == before


@pytest.mark.parametrize("name", goldens_of(WHOLE))
def test_index_holds_every_key_once(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    report = run(store, queues=False)
    with StoreFiles(store, read_broker_conf(broker_conf(name, store.parent))) as files:
        entries = [(entry.key_hash, entry.physical_offset) for file in files.index.files for entry in file.entries()]
        assert len(files.index.files) == report.index_files_rebuilt
    assert len(entries) == len(set(entries))
    assert set(entries) == implied_index(name, 1 << 62)


@pytest.mark.parametrize("name", ["cqext", "v4-cqext"])
def test_without_the_setting_queues_get_plain_tag_codes(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    config = read_broker_conf(broker_conf(name, store.parent))._replace(enable_consume_queue_ext=False)
    with StoreFiles(store, config) as files:
        rebuild(files)
    assert_complete(store, name, 1 << 62)


def test_lost_ext_units_come_back(golden_store: GoldenStore) -> None:
    store = golden_store("cqext")
    whole = contents(store, "consumequeue")
    folder = store / "consumequeue_ext"
    for path in folder.glob("*/*/*"):
        path.write_bytes(b"")
    shown = run(store, index=False, change=ChangeOptions(dry_run=True))
    done = run(store, index=False)
    assert contents(store, "consumequeue") == whole
    places = [[operation["path"] for operation in report.operations] for report in (shown, done)]
    assert places[0] == places[1]
    shutil.rmtree(folder)
    run(store, index=False, topics=["OrderTopic"])
    assert {path.name for path in folder.iterdir()} == {"OrderTopic"}


def test_lost_queues_come_back(golden_store: GoldenStore) -> None:
    whole = contents(golden_store("clean"), "consumequeue")
    store = golden_store("cq-lost")
    assert contents(store, "consumequeue") == {}
    run(store, index=False)
    assert contents(store, "consumequeue") == whole


def test_one_topic_only(golden_store: GoldenStore) -> None:
    store = golden_store("cq-lost")
    report = run(store, index=False, topics=["OrderTopic"])
    assert report.topics == ["OrderTopic"]
    assert {path.name for path in (store / "consumequeue").iterdir()} == {"OrderTopic"}
    assert report.queues_rebuilt == 8


def test_old_files_are_kept(golden_store: GoldenStore) -> None:
    store = golden_store("index-garbage")
    before = contents(store, "index/")
    report = run(store, queues=False)
    assert report.journal is not None
    kept = contents(next((Path(report.journal) / "moved").iterdir()), "index/")
    assert kept == before


def test_expired_queues_keep_their_next_offset(golden_store: GoldenStore) -> None:
    store = golden_store("first-gone")
    report = run(store, index=False)
    assert report.kept_queues == 2
    with StoreFiles(store) as files:
        queue = files.queues.find("BigQueues", 7)
        assert queue is not None
        assert queue.max_offset == queue.min_offset(files.log.min_offset) == 2
        later = files.queues.find("%DLQ%GroupA", 0)
        assert later is not None
        # the first surviving message, not slot 0: its place is kept by placeholders
        assert later.min_offset(files.log.min_offset) > 0
        first = later.unit(0)
        assert first is None or first.is_placeholder


def test_damage_is_passed_over_and_counted(golden_store: GoldenStore) -> None:
    store = golden_store("crc-flip-old")
    report = run(store)
    assert (report.damaged_spans, report.messages) == (1, 2499)
    with StoreFiles(store) as files:
        queue = files.queues.find("TopicTest", 0)
        assert queue is not None
        hole, after = queue.unit(16), queue.unit(17)
        assert hole is not None
        assert hole.is_placeholder
        assert after is not None
        assert after.is_written


def test_dry_run_changes_nothing(golden_store: GoldenStore) -> None:
    store = golden_store("cq-lost")
    before = tree_state(store)
    report = run(store, change=ChangeOptions(dry_run=True))
    assert (report.queues_rebuilt, report.units, report.index_files_rebuilt) == (41, 2500, 3)
    assert tree_state(store) == before
    assert not store.with_name("cq-lost.rmqctl").exists()


@pytest.mark.parametrize(
    "name", ["crash", "cq-lost", "gap", "innerbatch", "lmq", "cq-truncated", "log-with-a-wrong-slot"]
)
def test_a_dry_run_tells_what_is_then_done(name: str, golden_store: GoldenStore) -> None:
    store = golden_store("clean" if name == "log-with-a-wrong-slot" else name)
    if name == "log-with-a-wrong-slot":  # queueOffset has no checksum: a message that can have no place
        with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(20)
            file.write((1 << 40).to_bytes(8, "big"))
    planned, done = (report_row(run(store, change=ChangeOptions(dry_run=dry_run))) for dry_run in (True, False))
    assert planned["slot_conflicts"] == (name == "log-with-a-wrong-slot")
    assert planned | {"dry_run": False, "journal": done["journal"]} == done
    installed = {row["path"]: row["bytes"] for row in planned["operations"] if row["operation"] == "install"}
    for path, size in installed.items():
        assert size == sum(below.stat().st_size for below in (store / path).rglob("*") if below.is_file())
    assert "index" in installed
    assert len(installed) > 2


def test_what_cannot_be_done_is_said(golden_store: GoldenStore) -> None:
    with pytest.raises(UsageError, match="all topics"):
        run(golden_store("clean"), topics=["TopicTest"])
    with pytest.raises(NotFoundError, match="no message of topic"):
        run(golden_store("clean"), index=False, topics=["NoSuchTopic"])
    with pytest.raises(RefusedError, match="no commitlog"):
        run(golden_store("log-gone"))
    with pytest.raises(UnsupportedError, match="RocksDB"):
        run(golden_store("rocksdb"))
