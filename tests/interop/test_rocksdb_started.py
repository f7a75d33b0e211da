"""Starts of a real 5.5.0 with queues in RocksDB and after a switch to JSON files, held against what is said before."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.config_files import read_config
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.queue_table import rocksdb_folder
from rmqctl.store.queues.rocksdb_queues import RocksdbQueues
from tests import goldens
from tests.interop.brokers import real_broker, rmqctl
from tests.network.callers import with_header
from tests.store.rocksdb.stores import lines, unpacked

pytestmark = pytest.mark.interop

SETTINGS = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "fileReservedTime": "100000",
    "timerWheelEnable": "false",
}


_BOTH = SETTINGS | {"rocksdbCQDoubleWriteEnable": "true", "combineCQUseRocksdbForLmq": "true"}


def _predicted(store: Path, folder: Path, settings: dict[str, str]) -> dict[str, Any]:
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    [said] = rmqctl("predict", "-s", str(store), "-c", str(conf), "--broker", "5.5.0", code=None)
    return dict(said)


def _ranges(folder: Path) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Beginning, end and units of each queue in a RocksDB."""
    queues = RocksdbQueues(folder, None)
    found = {}
    for end in queues.ends():
        queue = queues.queue(end)
        units = sum(one.size > 0 for one in queue.units(0))
        found[end.topic, end.queue_id] = queue.first_slot, end.end, units
    return found


@pytest.mark.parametrize(("most", "has_crashed"), [(1, False), (4, False), (4, True), (100, True)])
def test_a_start_with_empty_queues_in_rocksdb(most: int, has_crashed: bool, tmp_path: Path) -> None:
    """commitLogRecoverMaxNum decides how much of the log gets into them."""
    store = goldens.golden("v55-clean", tmp_path)
    shutil.rmtree(store / "consumequeue")
    if has_crashed:
        (store / "abort").write_text("1")
    settings = SETTINGS | {"storeType": "defaultRocksDB", "commitLogRecoverMaxNum": str(most)}
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    [said] = rmqctl("predict", "-s", str(store), "-c", str(conf), "--broker", "5.5.0", code=None)
    with real_broker("5.5.0", tmp_path / "broker", store, settings, shut_down=True):
        pass
    expected = {
        (one["topic"], one["queue_id"]): (one["min_after"], one["max_after"], one["units_added"])
        for one in said["queues_changed"]
    }
    assert said["loads"]
    assert _ranges(store / "consumequeue") == expected
    assert bool(said["messages_unqueued"] > 1) is (most < 9)


_TABLES = {
    "topics.json": (RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable"),
    "subscriptionGroup.json": (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable"),
    "consumerOffset.json": (RequestCode.GET_ALL_CONSUMER_OFFSET, "offsetTable"),
}


@pytest.mark.parametrize("name", ["config-rocksdb", "config-rocksdb-single", "config-rocksdb-v2"])
def test_a_broker_goes_on_with_the_json_files(name: str, tmp_path: Path) -> None:
    """As docs/cookbook.md has it: everything to files, and the databases moved away."""
    store, made, away = unpacked(name, tmp_path), tmp_path / "json", tmp_path / "away"
    away.mkdir()
    rmqctl("export", "-s", str(store), "--what", "config", str(made))
    if (store / "consumequeue" / "CURRENT").exists():
        rmqctl("rebuild", "-s", str(store), "--queues", "files", "--queue-file-size", "2000", "-y")
        databases = [path for path in (store / "consumequeue").iterdir() if path.is_file()]
        for path in databases:
            path.rename(away / path.name)
    for folder in ("topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb"):
        if (store / "config" / folder).exists():
            (store / "config" / folder).rename(away / folder)
    for path in made.iterdir():
        shutil.copy(path, store / "config" / path.name)
    answered: dict[str, Any] = {}
    with real_broker("5.5.0", tmp_path / "broker", store, SETTINGS, shut_down=True) as running:
        client = Client(running.namesrv)
        for file, (code, table) in _TABLES.items():
            answer = client.ask(running.broker, *with_header(code, {}))
            answered[file] = parse_config_json(answer.body.decode())[table]
        client.close()
    [loaded] = lines(name, "config")
    known = {"topics.json": loaded["topics"], "subscriptionGroup.json": loaded["groups"]}
    for file, tables in known.items():
        name_of_table = _TABLES[file][1]
        before = tables.get(name_of_table, tables)
        exported = read_config(made / file)[name_of_table]
        assert {key: answered[file][key] for key in exported} == {key: before[key] for key in exported}, file
    offsets = loaded["offsets"].get("offsetTable", loaded["offsets"])
    there = {key: {str(queue): at for queue, at in row.items()} for key, row in answered["consumerOffset.json"].items()}
    assert {key: there.get(key) for key in offsets} == offsets


@pytest.mark.parametrize("preferred", ["default", "defaultRocksDB"])
@pytest.mark.parametrize("most", [1, 10])
def test_a_rocksdb_beside_files_begins_where_it_is_predicted(most: int, preferred: str, tmp_path: Path) -> None:
    """What the RocksDB lacks is not read where it is preferred, after recovery of the newest file or of all."""
    store = goldens.golden("v55-clean", tmp_path)
    settings = _BOTH | {"combineCQPreferCQType": preferred, "commitLogRecoverMaxNum": str(most)}
    said = _predicted(store, tmp_path, settings)
    assert said["loads"]
    with MessageStore.open(store) as opened:
        known = [(one.topic, one.queue_id, one.min_offset(0), one.max_offset) for one in opened.reader.queues()]
    with real_broker("5.5.0", tmp_path / "broker", store, settings, shut_down=True):
        pass
    queues = RocksdbQueues(rocksdb_folder(StoreConfig().layout(store)), None)
    lacking = begun = 0
    for topic, queue_id, first, end in known:
        if end and not topic.startswith("%LMQ%"):
            begin = max(queues.begun_at(topic, queue_id), queues.first_slot(topic, queue_id) or 0)
            lacking += begin - first
            begun += begin == end
    assert lacking
    assert said["messages_stuck"] == (lacking if preferred == "defaultRocksDB" else 0)
    of_queues = [text for text in said["warnings"] if "of the RocksDB begin" in text]
    assert bool(of_queues) is (preferred == "default" and begun > 0)
    assert all(text.startswith(f"{begun} queue") for text in of_queues)


@pytest.mark.parametrize(
    "more", [{"combineAssignOffsetCQType": "defaultRocksDB"}, {"combineCQLoadingCQTypes": "default"}]
)
def test_settings_of_both_kinds_that_do_not_go_together(more: dict[str, str], tmp_path: Path) -> None:
    store = goldens.golden("v55-clean", tmp_path)
    said = _predicted(store, tmp_path, _BOTH | more)
    assert not said["loads"]
    with (
        pytest.raises(AssertionError, match=said["error"]),
        real_broker("5.5.0", tmp_path / "broker", store, _BOTH | more),
    ):
        pass


@pytest.mark.parametrize("light", [False, True])
def test_both_kinds_of_queues(light: bool, tmp_path: Path) -> None:
    """A broker that has both does not come up without light queues in the RocksDB."""
    store = goldens.golden("v55-clean", tmp_path)
    settings = SETTINGS | {"rocksdbCQDoubleWriteEnable": "true", "combineCQUseRocksdbForLmq": str(light).lower()}
    assert _predicted(store, tmp_path, settings)["loads"] is light
    if light:
        with real_broker("5.5.0", tmp_path / "broker", store, settings):
            pass
    else:
        with (
            pytest.raises(AssertionError, match="does not initialize"),
            real_broker("5.5.0", tmp_path / "broker", store, settings),
        ):
            pass
