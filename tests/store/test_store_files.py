"""Opening a directory as a store: what is one, what is not, and that looking creates nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.formats.errors import NotAStoreError, UnreadableError, UnsupportedError
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.opening import open_store_for_writing
from tests.goldens import GOLDENS, GoldenStore, broker_conf, is_crashed, tree_state
from tests.quick import goldens_of


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_looking_at_a_golden_changes_nothing(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    config = read_broker_conf(broker_conf(name, store.parent))
    before = tree_state(store.parent)
    with StoreFiles(store, config) as files:
        assert files.has_abort() == is_crashed(name)
        assert files.lock_holder() is None
        files.checkpoint()
        _ = files.index.files
        assert (files.log.max_offset > 0) == ("log-gone" not in name)
        if not name.startswith("rocksdb"):
            assert all(queue.max_offset >= 0 for queue in files.queues.all())
    assert tree_state(store.parent) == before


def test_nothing_is_opened_before_it_is_asked_for(golden_store: GoldenStore) -> None:
    files = StoreFiles(golden_store("clean"))
    assert not {"log", "queues", "index"} & vars(files).keys()
    _ = files.log
    assert "queues" not in vars(files)
    files.close()


@pytest.mark.parametrize(
    ("what", "message", "hint"),
    [
        ("missing", "no such directory", "-s DIR"),
        ("file", "is a file", "dump"),
        ("empty", "is empty", "-s DIR"),
        ("other", "nothing of a RocketMQ store", "a store holds"),
        ("above", "nothing of a RocketMQ store", "did you mean"),
    ],
)
def test_what_is_no_store(tmp_path: Path, what: str, message: str, hint: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other" / "documents").mkdir(parents=True)
    (tmp_path / "above" / "store" / "commitlog").mkdir(parents=True)
    with pytest.raises(NotAStoreError, match=message) as error:
        StoreFiles(tmp_path / what)
    assert error.value.file == str(tmp_path / what)
    assert hint in (error.value.hint or "")


@pytest.mark.parametrize("mark", ["commitlog", "consumequeue", "batchconsumequeue", "index", "checkpoint"])
def test_any_part_makes_a_store(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).mkdir()
    StoreFiles(tmp_path).close()


def test_a_commitlog_elsewhere_makes_a_store(tmp_path: Path) -> None:
    (tmp_path / "root" / "config").mkdir(parents=True)
    (tmp_path / "log").mkdir()
    with pytest.raises(NotAStoreError):
        StoreFiles(tmp_path / "root")
    StoreFiles(tmp_path / "root", StoreConfig(store_path_commit_log=str(tmp_path / "log"))).close()


def test_a_directory_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(UnreadableError, match="Permission denied"):
        StoreFiles(tmp_path)


def test_read_only_directories_are_read_and_not_written(golden_store: GoldenStore) -> None:
    store = golden_store("multipath")
    config = read_broker_conf(broker_conf("multipath", store.parent))
    split = StoreConfig(store_path_commit_log=str(store / "cl-a"), read_only_commit_log_store_paths=str(store / "cl-b"))
    with StoreFiles(store, config) as whole, StoreFiles(store, split) as files:
        assert [file.path for file in files.log.files] == [file.path for file in whole.log.files]
        assert files.log.problems == []
    before = tree_state(store)
    with pytest.raises(UnsupportedError, match="read-only"):
        open_store_for_writing(store, split)
    assert tree_state(store) == before
