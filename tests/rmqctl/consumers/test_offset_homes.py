"""Offsets that a broker keeps elsewhere than in consumerOffset.json: in a RocksDB, in the file of light queues."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import format_config_json, parse_config_json
from rmqctl.formats.errors import UnsupportedError
from rmqctl.network.broker.tables import ConsumerOffsets
from rmqctl.output import outcome as exit_codes
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run
from tests.store.rocksdb.stores import unpacked

OF = ("-g", "g-orders", "-t", "Orders")
LIGHT = "%LMQ%client-7"


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    return golden_store("broker-real")


def _table(path: Path) -> dict[Any, Any]:
    found = parse_config_json(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def _light(store: Path, *, alone: bool) -> Path:
    """Give the store the file of a broker with enableLmq; `alone`: without the usual one."""
    usual, lmq = store / "config/consumerOffset.json", store / "config/lmqConsumerOffset.json"
    content = _table(usual) | {"lmqOffsetTable": {f"%LMQ%dev0@{LIGHT}": 5}}
    lmq.write_text(format_config_json(content), encoding="utf-8")
    if alone:
        usual.unlink()
        usual.with_name("consumerOffset.json.bak").unlink()
    return lmq


def _database(store: Path, folder: str) -> Path:
    """Make a folder that is a RocksDB whose manifest is lost: nothing of it can be read."""
    made = store / "config" / folder
    made.mkdir()
    (made / "CURRENT").write_text("MANIFEST-000005\n")
    return made


_OF_LOST = ["RMQ-CFG-008", "RMQ-RDB-001"]
"""What `check` finds of each; of that of 5.1, which is not read, only the second and a notice."""


def test_a_group_that_is_not_there_is_no_missing_file(store: Path, tmp_path: Path) -> None:
    """The offsets are known: in the file of light queues, or in a RocksDB."""
    _light(store, alone=True)
    for path in (store, unpacked("config-rocksdb", tmp_path)):
        done = run("groups", "-s", path, "-g", "no-such-group")
        assert done.code == exit_codes.DAMAGE_OR_NOTHING
        assert "no consumer group matched" in done.err


def test_the_file_of_light_queues_is_read_where_it_is_the_only_one(store: Path) -> None:
    _light(store, alone=True)
    done = run("groups", "-s", store, "-g", "g-orders", "--json")
    assert done.code == exit_codes.OK
    assert [(row["offset"], row["lag"]) for row in done.objects] == [(15, 0)] * 4
    assert "lmqConsumerOffset.json" in done.err
    (light,) = run("groups", "-s", store, "-g", LIGHT, "--json").objects
    assert (light["topic"], light["queue_id"], light["offset"]) == ("%LMQ%dev0", 0, 5)
    shown = run("offsets", "show", "-s", store, "-g", LIGHT, "--json").objects
    assert [row["offset"] for row in shown] == [5]
    assert "has read past it" in run("where", "-s", store, "order-1").out
    found = {row["code"] for row in run("check", "-s", store, "--json").objects if "code" in row}
    assert {"RMQ-CFG-041", "RMQ-OFF-005"} <= found


def test_changes_go_to_the_file_of_light_queues(store: Path) -> None:
    lmq = _light(store, alone=True)
    before = tree_state(store)
    assert run("offsets", "set", "-s", store, *OF, "-q", 1, "--offset", 3, "-y").code == exit_codes.OK
    of_light = ("-g", LIGHT, "-t", "%LMQ%dev0", "-q", 0)
    done = run("offsets", "set", "-s", store, *of_light, "--offset", 9, "--anywhere", "-y")
    assert done.code == exit_codes.OK, done.err
    after = _table(lmq)
    assert after["offsetTable"]["Orders@g-orders"][1] == 3
    assert after["lmqOffsetTable"] == {f"%LMQ%dev0@{LIGHT}": 9}
    assert not any(LIGHT in key for key in after["offsetTable"])
    assert not (store / "config/consumerOffset.json").exists()
    assert run("undo", "-s", store, "-y").code == exit_codes.OK
    assert run("undo", "-s", store, "-y").code == exit_codes.OK
    assert tree_state(store) == before


@pytest.mark.parametrize(("lmq_is_newer", "offset"), [(True, 7), (False, 15)])
def test_of_both_files_the_newer_one_counts_and_that_is_said(store: Path, lmq_is_newer: bool, offset: int) -> None:
    lmq = _light(store, alone=False)
    content = _table(lmq)
    content["offsetTable"]["Orders@g-orders"] = dict.fromkeys(range(4), 7)
    lmq.write_text(format_config_json(content), encoding="utf-8")
    usual = store / "config/consumerOffset.json"
    at = usual.stat().st_mtime + (60 if lmq_is_newer else -60)
    os.utime(lmq, (at, at))
    done = run("groups", "-s", store, "-g", "g-orders", "--json")
    assert {row["offset"] for row in done.objects} == {offset}
    assert "there are consumerOffset.json and lmqConsumerOffset.json" in done.err
    conf = store.parent / "broker.conf"
    conf.write_text("enableLmq=true\n")
    done = run("groups", "-s", store, "-c", conf, "-g", "g-orders", "--json")
    assert {row["offset"] for row in done.objects} == {7}


@pytest.mark.parametrize("folder", ["consumerOffsets", "metadata", "rdb", "rocksdb"])
def test_offsets_in_a_rocksdb_are_not_judged_by_the_old_file(store: Path, folder: str) -> None:
    _database(store, folder)
    done = run("groups", "-s", store, "-g", "g-orders", "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert [(row["state"], row["offset"], row["lag"]) for row in done.objects] == [("unknown", None, None)]
    assert f"config/{folder}" in done.err
    assert "which is not read yet" in done.err if folder == "rocksdb" else "which is not there" in done.err
    for verb in (("offsets", "show"), ("offsets", "lint"), ("where", "order-1"), ("halves",)):
        done = run(*verb, "-s", store)
        assert done.code == exit_codes.DAMAGE_OR_NOTHING, verb
        assert "RocksDB" in done.err + done.out, verb
    found = {row["code"] for row in run("check", "-s", store, "--all", "--json").objects if "code" in row}
    assert found == ({"RMQ-CFG-040", "RMQ-RDB-001"} if folder == "rocksdb" else {*_OF_LOST, "RMQ-CFG-040"})


@pytest.mark.parametrize(
    "verb",
    [
        ("set", *OF, "-q", "0", "--offset", "1", "-y"),
        ("reset", *OF, "--to", "earliest", "-y"),
        ("reset", *OF, "--to", "earliest", "--dry-run"),
        ("copy", "-g", "g-orders", "--to", "other", "--new-group", "-y"),
    ],
    ids=lambda verb: verb[0],
)
def test_changes_of_offsets_in_a_rocksdb_are_refused(store: Path, verb: tuple[str, ...]) -> None:
    _database(store, "consumerOffsets")
    before = tree_state(store)
    done = run("offsets", *verb, "-s", store)
    assert done.code == exit_codes.REFUSED
    assert "RocksDB" in done.err
    assert "change it by mqadmin while the broker runs" in done.err
    assert tree_state(store) == before


def test_topics_and_groups_in_a_rocksdb_are_not_called_missing(store: Path) -> None:
    """What the old files lack may be in the database: neither is a topic unknown, nor a group."""
    _database(store, "rdb")
    for name in ("topics.json", "subscriptionGroup.json"):
        path = store / "config" / name
        path.write_text("{}")
        path.with_name(name + ".bak").write_text("{}")
    found = {row["code"] for row in run("check", "-s", store, "--all", "--json").objects if "code" in row}
    assert found == {*_OF_LOST, "RMQ-CFG-040"}
    done = run("append", "-s", store, "-t", "Orders", "-q", 0, "--body", "x")
    assert "topics.json has no topic" not in done.err


def test_a_broker_of_ours_goes_on_with_the_file_of_light_queues(store: Path) -> None:
    content = _table(_light(store, alone=True))
    with StoreFiles(store) as files:
        offsets = ConsumerOffsets(files, lambda _: None, is_written=True)
        assert offsets.FILE == "lmqConsumerOffset.json"
        assert offsets.find(LIGHT, "%LMQ%dev0", 0) == 5
        written = offsets.content(0, lambda *_: 1000)
    assert written["offsetTable"] == content["offsetTable"]
    assert written["lmqOffsetTable"] == content["lmqOffsetTable"]


def test_a_broker_of_ours_does_not_write_beside_a_rocksdb(store: Path) -> None:
    _database(store, "consumerOffsets")
    told: list[str] = []
    with StoreFiles(store) as files:
        with pytest.raises(UnsupportedError, match="RocksDB"):
            ConsumerOffsets(files, told.append, is_written=True)
        assert ConsumerOffsets(files, told.append).find("g-orders", "Orders", 0) is None
    assert "no offset of a consumer group is known" in told[0]
