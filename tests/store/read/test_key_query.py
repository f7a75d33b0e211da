"""Queries by key against what the messages of each golden themselves say, as RocketMQ decoded them."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from rmqctl.formats.layouts import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from rmqctl.store.files.layout import file_name
from rmqctl.store.queues.dispatch import index_keys
from rmqctl.store.read.query import END_OF_TIME, NotIndexedError
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, Row, base_of, truth
from tests.opened import known_messages, reader
from tests.quick import goldens_of

ROLLED_BACK = 0xC
Keys = dict[tuple[str, str], list[Row]]


def keys_of(rows: list[Row]) -> Keys:
    """Rows by (topic, key), newest first: unique keys and KEYS of every message that is not rolled back."""
    found: Keys = defaultdict(list)
    for row in sorted(rows, key=lambda one: -one["phyOffset"]):
        if row["sysFlag"] & 0xC == ROLLED_BACK:
            continue
        properties = row["properties"]
        words = [properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")]
        for key in {word for word in words if word}:
            found[(row["topic"], key)].append(row)
    return found


def _is_indexed(name: str) -> bool:
    return bool(reader(name).files.index.files)


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_every_key_finds_the_messages_that_have_it(name: str) -> None:
    look = reader(name)
    keys = keys_of(list(known_messages(name).values()))
    assert keys
    if not _is_indexed(name):
        with pytest.raises(NotIndexedError):
            look.indexed(*next(iter(keys)))
        return
    # of stores made from others every seventh key will do: their index is the same but for what was broken
    chosen = list(keys)[:: 1 if base_of(name) is None else 7]
    readable = {row["phyOffset"] for row in known_messages(name).values()} - _unreadable(look, name)
    missed = 0
    for topic, key in chosen:
        result = look.indexed(topic, key, limit=10_000)
        assert result.indexed is not None
        begin, end = result.indexed
        expected = [row["phyOffset"] for row in keys[(topic, key)] if begin <= row["phyOffset"] <= end]
        found = [message.physical_offset for message in result.messages]
        assert found == [offset for offset in expected if offset in found], (topic, key)
        missing = set(expected) - set(found)
        missed += len(missing)
        told = {error.physical_offset for error in result.damaged}
        for offset in missing:
            if offset in readable:
                # only where the index itself is damaged, and then it is said
                assert result.damaged, (topic, key, offset)
            else:
                assert offset in told or result.removed, (topic, key, offset)
    if base_of(name) is None:
        assert missed == 0


def _unreadable(look: StoreReader, name: str) -> set[int]:
    return {offset for offset in known_messages(name) if not _can_be_read(look, offset)}


def _can_be_read(look: StoreReader, offset: int) -> bool:
    from rmqctl.formats.errors import CorruptError, NotFoundError
    from rmqctl.store.read.frames import message_at

    try:
        message_at(look.files.log, offset)
    except (CorruptError, NotFoundError):
        return False
    return True


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_rocketmq_s_own_queries(name: str) -> None:
    """Its answers may hold doubles and messages that only share the hash.

    Its entries' times are cut to seconds, so that a window's begin makes it miss messages; ours does not.
    """
    if not _is_indexed(name) or base_of(name) is not None or truth(name).summary["abortBefore"]:
        return
    look = reader(name)
    for row in truth(name).queries:
        if row["max"] > 64 or "error" in row:
            continue
        result = look.query(row["topic"], row["key"], row["begin"], row["end"], limit=10_000)
        found = {message.physical_offset for message in result.messages}
        theirs = set(row["phyOffsets"])
        if len(row["phyOffsets"]) < row["max"] and row["begin"] == 0:
            assert found <= theirs, row
        for offset in theirs - found:
            message = look.lookup(offset)
            other_key = row["key"] not in [message.properties().get("UNIQ_KEY"), *_words(message.properties())]
            outside = not row["begin"] <= message.store_timestamp <= row["end"]
            assert other_key or outside or message.topic != row["topic"], row


def _words(properties: dict[str, str]) -> list[str]:
    return properties.get("KEYS", "").split(" ")


@pytest.mark.parametrize("name", ["noindex", "index-lost", "index-lost-abort", "index-garbage", "crash", "clean"])
def test_a_scan_finds_all_whatever_the_index_lacks(name: str) -> None:
    keys = keys_of(list(known_messages(name).values()))
    for topic, key in [("OrderTopic", "hot"), *list(keys)[::500]]:
        result = reader(name).query(topic, key, scan=True)
        assert [message.physical_offset for message in result.messages] == [
            row["phyOffset"] for row in keys[(topic, key)]
        ][:32]


def test_a_scan_goes_past_damage_and_tells_it(golden_store: GoldenStore) -> None:
    hot = [row["phyOffset"] for row in keys_of(list(known_messages("crc-flip-third").values()))[("OrderTopic", "hot")]]
    store = golden_store("crc-flip-third")
    shutil.rmtree(store / "index")
    with StoreFiles(store) as files:
        result = StoreReader(files).query("OrderTopic", "hot", limit=1000, scan=True)
    assert [message.physical_offset for message in result.messages] == [one for one in hot if one != 1695806]
    assert [error.physical_offset for error in result.damaged] == [1695806]


def test_the_limit_keeps_the_newest() -> None:
    keys = keys_of(truth("clean").messages)
    hot = keys[("OrderTopic", "hot")]
    assert len(hot) > 32
    assert len(reader("clean").query("OrderTopic", "hot").messages) == 32
    found = reader("clean").query("OrderTopic", "hot", limit=5)
    assert [message.physical_offset for message in found.messages] == [row["phyOffset"] for row in hot[:5]]


def test_the_window_is_exact_to_the_millisecond() -> None:
    hot = keys_of(truth("clean").messages)[("OrderTopic", "hot")]
    first = hot[-3]["storeTimestamp"]
    last = hot[4]["storeTimestamp"]
    for begin, end in ((first, last), (first + 1, last - 1), (first, first), (0, first - 1)):
        expected = [row["phyOffset"] for row in hot if begin <= row["storeTimestamp"] <= end]
        found = reader("clean").query("OrderTopic", "hot", begin, end, limit=1000)
        assert [message.physical_offset for message in found.messages] == expected


def test_an_unknown_key_is_not_damage() -> None:
    result = reader("clean").query("OrderTopic", "no such key")
    assert (result.messages, result.damaged) == ([], [])


def test_removed_messages_are_counted_and_no_damage() -> None:
    old = next(row for row in truth("clean").messages if row["phyOffset"] == 0)
    result = reader("first-gone").query(old["topic"], old["properties"]["UNIQ_KEY"])
    assert (result.messages, result.damaged, result.removed) == ([], [], 1)


def test_a_message_in_a_gap_is_damage_not_absence() -> None:
    lost = next(row for row in truth("clean").messages if row["phyOffset"] >= 1048576)
    result = reader("gap").query(lost["topic"], lost["properties"]["UNIQ_KEY"])
    assert result.messages == []
    assert [error.physical_offset for error in result.damaged] == [lost["phyOffset"]]
    assert "missing" in str(result.damaged[0])


def test_a_message_in_a_first_file_of_no_bytes_is_damage_and_not_removed(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    emptied = store / "commitlog" / file_name(0)
    emptied.write_bytes(b"")
    old = next(row for row in truth("clean").messages if row["phyOffset"] == 0)
    with StoreFiles(store) as files:
        result = StoreReader(files).query(old["topic"], old["properties"]["UNIQ_KEY"])
    assert (result.messages, result.removed) == ([], 0)
    assert [str(error) for error in result.damaged if "the commitlog file there has no bytes" in str(error)]


def test_an_entry_that_points_at_another_message_is_damage(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    row = next(one for one in truth("clean").messages[100:] if "UNIQ_KEY" in one["properties"])
    key = row["properties"]["UNIQ_KEY"]
    _point_entry_elsewhere(store, row["topic"], key, truth("clean").messages[11]["phyOffset"])
    with StoreFiles(store) as files:
        result = StoreReader(files).query(row["topic"], key)
        assert result.messages == []
        assert "no such key" in str(result.damaged[0])


def _point_entry_elsewhere(store: Path, topic: str, key: str, physical_offset: int) -> None:
    from rmqctl.formats.checksums import key_hash

    path = min((store / "index").iterdir())
    with path.open("r+b") as file:
        file.seek(40 + 4 * (key_hash(topic, key) % 500))
        number = int.from_bytes(file.read(4), "big")
        while True:
            place = 40 + 4 * 500 + 20 * number
            file.seek(place)
            entry = file.read(20)
            if int.from_bytes(entry[:4], "big") == key_hash(topic, key):
                break
            number = int.from_bytes(entry[16:20], "big")
        file.seek(place + 4)
        file.write(physical_offset.to_bytes(8, "big"))


def test_a_cycle_in_a_chain_ends_and_is_told(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    for path in sorted((store / "index").iterdir()):
        data = bytearray(path.read_bytes())
        for number in range(1, 2000):
            place = 40 + 4 * 500 + 20 * number + 16
            data[place : place + 4] = (number + 1).to_bytes(4, "big")
        path.write_bytes(bytes(data))
    with StoreFiles(store) as files:
        row = truth("clean").messages[0]
        result = StoreReader(files).query(row["topic"], row["properties"]["UNIQ_KEY"])
        assert any("chain" in str(error) for error in result.damaged)


def test_end_of_time_is_java_s() -> None:
    assert END_OF_TIME == 9223372036854775807


def _broken_index(store: Path, number: int, field: str, value: bytes) -> Path:
    """Overwrite a field of an entry in the only index file, or of its header for number -1."""
    (path,) = (store / "index").iterdir()
    layout = INDEX_HEADER if number < 0 else INDEX_ENTRY
    place = 0 if number < 0 else INDEX_HEADER.size + 500 * INDEX_SLOT.size + number * INDEX_ENTRY.size
    with path.open("r+b") as file:
        file.seek(place + layout.offset(field))
        file.write(value)
    return path


def test_an_entry_in_a_chain_of_other_hashes_is_told(golden_store: GoldenStore) -> None:
    """Its hash is damaged: who asks for its key must not be told that there is no such message."""
    store = golden_store("features")
    row = next(row for row in truth("features").messages if row["phyOffset"] == 0)
    _broken_index(store, 1, "key_hash", b"\x00\x00\x00\x07")
    with StoreFiles(store) as files:
        result = StoreReader(files).query(row["topic"], row["properties"]["UNIQ_KEY"])
    assert not result.messages
    assert ["chain that its hash does not belong to" in error.message for error in result.damaged] == [True]


def test_the_entry_that_the_header_does_not_count_yet_is_found(golden_store: GoldenStore) -> None:
    """A writer sets the slot before the header; between them the whole chain was not there."""
    store = golden_store("features")
    look = reader("features")
    (file,) = look.files.index.files
    last = file.entry(file.header.index_count - 1)
    _broken_index(store, -1, "index_count", INDEX_SLOT.struct.pack(last.number))
    wanted = look.lookup(last.physical_offset)
    with StoreFiles(store) as files:
        for key in index_keys(wanted):
            found = StoreReader(files).query(wanted.topic, key)
            assert wanted in found.messages, key
