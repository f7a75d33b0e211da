"""Queues that RocketMQ 5.5 keeps in a RocksDB of its own folder: named, and none of them called missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnsupportedError
from rmqctl.store.message_store import MessageStore
from tests.goldens import GoldenStore, tree_state


def _with_rocksdb(store: Path) -> Path:
    (store / "consumequeue_rocksdb").mkdir()
    # its manifest is lost, so nothing of it can be read
    (store / "consumequeue_rocksdb" / "CURRENT").write_bytes(b"MANIFEST-000005\n")
    return store


def _codes(store: Path) -> set[str]:
    with MessageStore.open(store) as opened:
        return {finding.code for finding in opened.check() if finding.code != "RMQ-LOG-017"}


def test_both_kinds_are_named(golden_store: GoldenStore) -> None:
    store = _with_rocksdb(golden_store("clean"))
    assert _codes(store) == {"RMQ-STATE-003", "RMQ-RDB-001"}
    with MessageStore.open(store) as opened:
        assert opened.info()["consumequeue"]["kind"] == "files"


def test_queues_in_rocksdb_alone_are_not_called_missing(golden_store: GoldenStore) -> None:
    store = _with_rocksdb(golden_store("clean"))
    shutil.rmtree(store / "consumequeue")
    assert _codes(store) == {"RMQ-STATE-003", "RMQ-RDB-001"}
    with MessageStore.open(store) as opened:
        assert opened.info()["consumequeue"]["kind"] == "rocksdb"
        with pytest.raises(UnsupportedError, match="kept in a RocksDB, which is never written here") as error:
            opened.recover()
    assert error.value.file == str(store / "consumequeue_rocksdb")


def test_queues_of_light_messages_may_be_in_rocksdb_alone(golden_store: GoldenStore) -> None:
    store = golden_store("lmq")
    for folder in (store / "consumequeue").glob("%LMQ%*"):
        shutil.rmtree(folder)
    assert "RMQ-CQ-001" in _codes(store)
    _with_rocksdb(store)
    assert _codes(store) == {"RMQ-STATE-003", "RMQ-RDB-001"}
    before = tree_state(store)
    with MessageStore.open(store) as opened:
        opened.recover()
    assert tree_state(store) == before
