"""The configuration in RocksDB as JSON files: the tables that a broker loads from them are those of its RocksDB."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.store.config.config_files import read_config
from tests.goldens import tree_state
from tests.rmqctl.looking import run
from tests.store.rocksdb.stores import CONFIGURED, lines, unpacked

_FILES = {
    "topics.json": ("topics", "topicConfigTable"),
    "subscriptionGroup.json": ("groups", "subscriptionGroupTable"),
    "consumerOffset.json": ("offsets", "offsetTable"),
}


def _read(folder: Path) -> dict[str, Any]:
    return {path.name: read_config(path) for path in folder.iterdir()}


@pytest.mark.parametrize("name", CONFIGURED)
def test_the_tables_are_those_that_a_broker_loads(name: str, tmp_path: Path) -> None:
    store = unpacked(name, tmp_path)
    before = tree_state(store)
    done = run("export", "-s", store, "--what", "config", tmp_path / "json", "--json")
    assert done.code == 0, done.err
    assert tree_state(store) == before
    [loaded] = lines(name, "config")
    made = _read(tmp_path / "json")
    assert made.keys() == _FILES.keys()
    for file, (kind, table) in _FILES.items():
        there = loaded[kind][table] if table in loaded[kind] else loaded[kind]
        if file == "consumerOffset.json":
            made[file][table] = {
                key: {str(queue): at for queue, at in row.items()} for key, row in made[file][table].items()
            }
        assert made[file][table] == {key: row for key, row in there.items() if key in made[file][table]}, file
        # what the broker has besides it makes at every start
        assert not any(key.startswith(("Topic-", "group-")) for key in there.keys() - made[file][table]), file
    # beside the log they are what a broker with JSON files reads: nothing of the answers changes
    rows = run("groups", "-s", store, "--json").objects
    for folder in ("topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb"):
        shutil.rmtree(store / "config" / folder, ignore_errors=True)
    for path in (tmp_path / "json").iterdir():
        shutil.copy(path, store / "config" / path.name)
    assert run("groups", "-s", store, "--json").objects == rows


def test_what_is_refused(tmp_path: Path) -> None:
    store = unpacked(CONFIGURED[0], tmp_path)
    assert run("export", "-s", store, "--what", "config", store / "config" / "json").code == 5
    assert run("export", "-s", store, "--what", "config", tmp_path / "json", "--columns", "topic").code == 2
    (store / "config" / "topics" / "CURRENT").write_text("x")
    assert run("export", "-s", store, "--what", "config", tmp_path / "json").code == 7
    assert not (tmp_path / "json").exists()
