"""Topics, groups and offsets that a broker keeps in RocksDB: as the running broker had them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError, UnsupportedError
from rmqctl.store.config.config_database import GROUPS, OFFSETS, TOPICS, database_of
from rmqctl.store.config.config_files import load_config, write_config
from rmqctl.store.message_store import MessageStore
from tests.goldens import tree_state
from tests.rmqctl.looking import run
from tests.store.rocksdb.stores import CONFIGURED, tables, unpacked

_FIELDS = {
    TOPICS: ("topics", "topicConfigTable"),
    GROUPS: ("groups", "subscriptionGroupTable"),
    OFFSETS: ("offsets", "offsetTable"),
}


def _loaded(config: Path, name: str) -> dict[Any, Any]:
    loaded = load_config(config / name)
    assert loaded is not None
    assert loaded.source == database_of(config, name)
    table = loaded.content[_FIELDS[name][1]]
    assert isinstance(table, dict)
    return table


@pytest.mark.parametrize("name", CONFIGURED)
def test_tables_are_those_of_the_broker(name: str, tmp_path: Path) -> None:
    store = unpacked(name, tmp_path)
    before = tree_state(store)
    answered = tables(name)
    for file, (asked, field) in _FIELDS.items():
        expected = answered[asked].get(field, answered[asked])
        found = json.loads(json.dumps(_loaded(store / "config", file)))
        # a broker makes its own topics and groups at each start, and v2 keeps none of them; nor is the timer's kept
        missing = {key for key in expected if key not in found}
        assert missing <= {key for key in expected if not key.startswith(("Topic-", "group-"))}
        if file == OFFSETS and name.endswith("crash"):
            continue  # what came since the last save, 5 s ago, is lost
        assert found == {key: value for key, value in expected.items() if key in found}
        assert file != OFFSETS or not missing
    assert tree_state(store) == before


def _json_beside(store: Path, counter: int, offset: int) -> None:
    content = {"dataVersion": {"counter": counter}, "offsetTable": {"Topic-5@group-0": {"0": offset}}}
    (store / "config" / OFFSETS).write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["config-rocksdb", "config-rocksdb-single", "config-rocksdb-v2"])
def test_a_file_counts_only_where_its_version_is_newer(name: str, tmp_path: Path) -> None:
    """RocksDBConsumerOffsetManager#merge; v2 imports no file."""
    store = unpacked(name, tmp_path)
    _json_beside(store, 0, 3)
    assert _loaded(store / "config", OFFSETS)["Topic-5@group-0"] == {0: 4, 1: 13, 2: 4}
    _json_beside(store, 1 << 40, 3)
    loaded = load_config(store / "config" / OFFSETS)
    assert loaded is not None
    is_imported = not name.endswith("v2")
    assert loaded.content["offsetTable"]["Topic-5@group-0"] == ({0: 3} if is_imported else {0: 4, 1: 13, 2: 4})
    topics = {"dataVersion": {"counter": 1 << 40}, "topicConfigTable": {"New": {"topicName": "New"}}}
    (store / "config" / TOPICS).write_text(json.dumps(topics))
    assert ("New" in _loaded(store / "config", TOPICS)) == is_imported
    assert "Topic-5" in _loaded(store / "config", TOPICS)


@pytest.mark.parametrize("name", ["config-rocksdb", "config-rocksdb-v2"])
def test_verbs_answer_from_the_database_and_changes_are_refused(name: str, tmp_path: Path) -> None:
    store = unpacked(name, tmp_path)
    # what a broker imported long ago
    _json_beside(store, 0, 3)
    before = tree_state(store)
    rows = run("groups", "-s", store, "-g", "group-0", "-t", "Topic-5", "--json").objects
    assert {row["queue_id"]: row["offset"] for row in rows} == {0: 4, 1: 13, 2: 4}
    shown = run("offsets", "show", "-s", store, "-g", "group-0", "-t", "Topic-5", "--json")
    assert {row["queue_id"]: row["offset"] for row in shown.objects} == {0: 4, 1: 13, 2: 4}
    assert "offsets are those of" in shown.err
    linted = run("offsets", "lint", "-s", store, "--json").objects
    assert ("notice", "in-rocksdb") in {(row["weight"], row["problem"]) for row in linted}
    codes = {row["code"] for row in run("check", "-s", store, "--all", "--json").objects if "code" in row}
    assert "RMQ-CFG-040" in codes
    assert not codes & {"RMQ-CFG-001", "RMQ-CFG-002", "RMQ-CFG-008", "RMQ-RDB-001"}
    for verb in (
        ("offsets", "set", "-g", "group-0", "-t", "Topic-5", "-q", "0", "--offset", "1"),
        ("topics", "create", "-t", "New"),
        ("groups", "delete", "-g", "group-0"),
    ):
        done = run(*verb, "-s", store, "-y")
        assert done.code == 5, verb
        assert "RocksDB" in done.err
    assert tree_state(store) == before
    with pytest.raises(UnsupportedError, match="keeps its consumer offsets in this RocksDB"):
        write_config(store / "config" / OFFSETS, {})


def test_a_damaged_database_is_an_error_everywhere(tmp_path: Path) -> None:
    store = unpacked("config-rocksdb", tmp_path)
    folder = store / "config/consumerOffsets"
    (table,) = folder.glob("*.sst")
    whole = bytearray(table.read_bytes())
    whole[30] ^= 1
    table.write_bytes(whole)
    with pytest.raises(CorruptError, match="checksum of the block is wrong"):
        load_config(store / "config" / OFFSETS)
    with MessageStore.open(store) as opened:
        found = {finding.code: finding for finding in opened.check()}
    assert {"RMQ-CFG-008", "RMQ-RDB-001"} <= found.keys()
    assert found["RMQ-RDB-001"].file == table
    assert found["RMQ-RDB-001"].physical_offset == 0
    # nothing else holds these offsets
    assert found["RMQ-RDB-001"].data_lost is None
    done = run("groups", "-s", store, "-g", "group-0")
    assert done.code == 1
    assert "checksum of the block is wrong" in done.err
    assert run("where", "-s", store, "Topic-5", "0", "3").code in (1, 7)
