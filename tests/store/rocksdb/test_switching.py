"""Switching between queues in files and in RocksDB: which of both count, and queue files beside a RocksDB."""

from __future__ import annotations

import shutil
from pathlib import Path

from rmqctl.store.message_store import MessageStore
from rmqctl.store.read.query import lookup
from tests.goldens import tree_state
from tests.rmqctl.looking import run
from tests.store.rocksdb.stores import queues, unpacked

ONLY = "rocksdb-55-only"
SIZE = ("--queue-file-size", "2000")


def test_queue_files_beside_a_rocksdb(tmp_path: Path) -> None:
    store = unpacked(ONLY, tmp_path)
    before = tree_state(store)
    planned = run("rebuild", "-s", store, "--queues", "files", *SIZE, "--dry-run", "--json").objects[0]
    assert (planned["units"], tree_state(store) == before) == (400, True)
    done = run("rebuild", "-s", store, "--queues", "files", *SIZE, "-y")
    assert done.code == 0, done.err
    expected = {key: row["max"] for key, row in queues(ONLY).items() if row["units"]}
    with MessageStore.open(store) as opened:
        found = {(queue.topic, queue.queue_id): queue for queue in opened.reader.queues()}
        assert {key: queue.max_offset for key, queue in found.items()} == expected
        assert {queue.kind for queue in found.values()} == {"SimpleCQ"}
        # units of both kinds are compared, and nothing of the RocksDB is taken for a stray file
        assert [finding.code for finding in opened.check()] == ["RMQ-STATE-003"]
    assert run("undo", "-s", store, "-y").code == 0
    assert tree_state(store) == before
    refused = run("rebuild", "-s", store, "-y")
    assert refused.code == 5
    assert "rebuild --queues files" in refused.err


def test_those_count_that_have_more_of_the_log(tmp_path: Path) -> None:
    store = unpacked(ONLY, tmp_path)
    assert run("rebuild", "-s", store, "--queues", "files", *SIZE, "-y").code == 0
    # a broker was switched to RocksDB, and left the files of before as they were
    with MessageStore.open(store) as opened:
        topic = lookup(opened.reader.files, max(row["lastOffset"] for row in queues(ONLY).values())).topic
    shutil.rmtree(store / "consumequeue" / topic)
    with MessageStore.open(store) as opened:
        assert {queue.kind for queue in opened.reader.queues()} == {"RocksDBCQ"}
    # a broker was switched to files, and the RocksDB is older
    shutil.rmtree(store / "consumequeue")
    (unpacked("rocksdb-55-crash", tmp_path) / "consumequeue_rocksdb").rename(store / "consumequeue")
    assert run("rebuild", "-s", store, "--queues", "files", *SIZE, "-y").code == 0
    with MessageStore.open(store) as opened:
        assert {queue.kind for queue in opened.reader.queues()} == {"SimpleCQ"}
        assert opened.info()["consumequeue"]["units"] == 400
