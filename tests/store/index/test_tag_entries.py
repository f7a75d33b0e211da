"""Index entries of tags, which RocketMQ 5.4 and later write: found, kept, written and asked for."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.formats.checksums import key_hash, tag_key
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.pipeline.engine import LocalEngine
from rmqctl.pipeline.jobs.check import check_with
from rmqctl.pipeline.jobs.rebuild import rebuild_with
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.log.walk import walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.dispatch import index_keys
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.store.v55 import CONFIG, become_of_5_5, messages_of_5_5, store_of_5_5

Entries = set[tuple[int, int]]


def entries_of(store: Path, config: StoreConfig | None = None) -> Entries:
    """All entries of all index files: key hash and physical offset. RocketMQ writes a repeated key twice."""
    with StoreFiles(store, config) as files:
        return {(entry.key_hash, entry.physical_offset) for file in files.index.files for entry in file.entries()}


def implied(store: Path, *, with_tags: bool) -> Entries:
    """The entries that the messages of a store imply."""
    with StoreFiles(store) as files:
        messages = [one for one in walk(files.log) if isinstance(one, StoredMessage)]
        return {
            (key_hash(message.topic, key), message.physical_offset)
            for message in messages
            for key in index_keys(message, with_tags=with_tags)
        }


def codes(store: Path) -> dict[str, int]:
    """Alarms and notices of a check by code."""
    with MessageStore.open(store) as opened:
        return Counter(finding.code for finding in opened.check())


def test_rocketmq_writes_these_entries(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    assert entries_of(store) == implied(store, with_tags=True)
    tagged = sum("TAGS" in message["properties"] for message in messages_of_5_5())
    assert len(entries_of(store) - implied(store, with_tags=False)) == tagged > 100


def test_check_and_recover_find_nothing_wrong_with_them(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    assert codes(store) == {}
    before = tree_state(store)
    with MessageStore.open(store) as opened:
        assert opened.recover().index_files_rebuilt == 0
    assert tree_state(store) == before


def test_an_entry_with_another_hash_is_found(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    with StoreFiles(store) as files:
        (file,) = files.index.files
        tags = implied(store, with_tags=True) - implied(store, with_tags=False)
        number = next(one.number for one in file.entries() if (one.key_hash, one.physical_offset) in tags)
        place = file.geometry.entry_position(number)
    with file.path.open("r+b") as raw:
        raw.seek(place)
        hashed = int.from_bytes(raw.read(4), "big")
        raw.seek(place)
        # in the same slot, so that chains stay as they are
        raw.write((hashed + 500).to_bytes(4, "big"))
    assert codes(store)["RMQ-IDX-005"] == 1


@pytest.mark.parametrize("way", ["recover", "rebuild", "rebuild on tasks"])
def test_a_lost_index_is_made_with_them(tmp_path: Path, way: str) -> None:
    store = store_of_5_5(tmp_path)
    before = entries_of(store)
    shutil.rmtree(store / "index")
    with MessageStore.open(store, config=CONFIG) as opened:
        if way == "recover":
            opened.recover()
        elif way == "rebuild":
            opened.rebuild(queues=False)
        else:
            rebuild_with(LocalEngine(1), opened.files, queues=False)
    assert entries_of(store) == before
    assert codes(store) == {}


def test_check_on_tasks_agrees(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    with StoreFiles(store) as files:
        assert [finding.code for finding in check_with(LocalEngine(1), files)] == []


@pytest.mark.parametrize("messages", [3, 600])
def test_append_writes_them_where_the_store_has_them(tmp_path: Path, messages: int) -> None:
    store = store_of_5_5(tmp_path)
    made = [Message("TopicTest", b"x", properties={"KEYS": f"k{n}", "TAGS": "New"}) for n in range(messages)]
    with MessageStore.open(store, "rw", CONFIG) as opened:
        opened.put_many(made)
    assert entries_of(store) == implied(store, with_tags=True)
    assert codes(store) == {}


def test_a_store_of_an_older_version_stays_without(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    with MessageStore.open(store, "rw") as opened:
        opened.put(Message("TopicTest", b"x", properties={"KEYS": "k", "TAGS": "New"}))
    with MessageStore.open(store) as opened:
        opened.rebuild(queues=False)
    assert entries_of(store) == implied(store, with_tags=False)


def test_the_configuration_decides(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    with MessageStore.open(store, config=StoreConfig(index_tags=True)) as opened:
        opened.rebuild(queues=False)
    assert entries_of(store) == implied(store, with_tags=True)


def test_a_store_that_a_newer_broker_took_over(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    become_of_5_5(store)
    before = entries_of(store)
    with MessageStore.open(store) as opened:
        assert opened.recover().index_files_rebuilt == 0
    with MessageStore.open(store, "rw") as opened:
        placed = opened.put(Message("TopicTest", b"x", properties={"KEYS": "k", "TAGS": "New"})).physical_offset
    assert entries_of(store) == before | {(key_hash("TopicTest", key), placed) for key in ("k", tag_key("New"))}
    # older messages without their tags are no damage, and no reason to make the index anew
    assert codes(store) == {"RMQ-IDX-030": 1}
    with MessageStore.open(store) as opened:
        assert opened.recover().index_files_rebuilt == 0
        opened.rebuild(queues=False)
    assert entries_of(store) == implied(store, with_tags=True)


def test_an_older_broker_that_wrote_since_is_followed(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    older = CONFIG._replace(index_tags=False)
    with MessageStore.open(store, "rw", older) as opened:
        opened.put_many([Message("TopicTest", b"x", properties={"KEYS": f"k{n}", "TAGS": "Old"}) for n in range(5)])
    with StoreFiles(store) as files:
        assert not files.has_tag_entries
    with MessageStore.open(store) as opened:
        assert opened.recover().index_files_rebuilt == 0


def test_dispatch_that_broke_off_before_the_last_tag_is_completed(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    with MessageStore.open(store, "rw", CONFIG) as opened:
        opened.put(Message("TopicTest", b"x", properties={"KEYS": "k", "TAGS": "New"}))
    with StoreFiles(store) as files:
        (file,) = files.index.files
        last = file.entry(file.header.index_count - 1)
        assert last.key_hash == key_hash("TopicTest", tag_key("New"))
        places = file.geometry.slot_position(last.key_hash), file.geometry.entry_position(last.number)
    with file.path.open("r+b") as raw:
        raw.seek(places[0])
        raw.write(last.previous.to_bytes(4, "big"))
        raw.seek(places[1])
        raw.write(bytes(20))
        raw.seek(36)
        raw.write(last.number.to_bytes(4, "big"))
    with MessageStore.open(store) as opened:
        assert opened.recover().index_files_rebuilt == 1
    assert entries_of(store) == implied(store, with_tags=True)


def test_queries_by_tag_and_by_key_are_apart(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    with MessageStore.open(store, "rw", CONFIG) as opened:
        opened.put(Message("TopicTest", b"tag", properties={"KEYS": "k", "TAGS": "Mine"}))
        opened.put(Message("TopicTest", b"key", properties={"KEYS": "Mine"}))
        opened.put(Message("TopicTest", b"alike", properties={"KEYS": "T#Mine"}))
    with MessageStore.open(store) as opened:
        for scan in (False, True):
            by_tag = opened.query("TopicTest", "Mine", index_type="T", scan=scan)
            assert [message.body for message in by_tag.messages] == [b"tag"]
            by_key = opened.query("TopicTest", "Mine", scan=scan)
            assert [message.body for message in by_key.messages] == [b"key"]
            alike = opened.query("TopicTest", "T#Mine", scan=scan)
            assert [message.body for message in alike.messages] == [b"alike"]
            assert not [*by_tag.damaged, *by_key.damaged, *alike.damaged]


def test_every_tag_of_a_store_of_5_5_finds_its_messages(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    wanted: dict[tuple[str, str], set[int]] = {}
    for message in messages_of_5_5():
        if "TAGS" in message["properties"]:
            key = message["topic"], message["properties"]["TAGS"]
            wanted.setdefault(key, set()).add(message["phyOffset"])
    with MessageStore.open(store) as opened:
        for (topic, tags), offsets in wanted.items():
            found = opened.query(topic, tags, limit=1000, index_type="T").messages
            assert {message.physical_offset for message in found} == offsets
