"""What the index says of keys, where it ends, and each way in which an index file can be wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.checksums import key_hash
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.layouts import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from rmqctl.store.index.index_file import IndexFile
from rmqctl.store.message_store import MessageStore
from rmqctl.store.read.query import (
    KeyQuery,
    NotIndexedError,
    QueryResult,
    chain_entries,
    entries_of,
    indexed_range,
    query_index,
    unindexed_spans,
)
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from tests.store.write.writing import message, small

REBUILD = "`rmqctl rebuild --index` rebuilds it from the commitlog; --scan searches without it"
# an index file of four entries (the first is never used)
CONFIG = small(max_hash_slot_num=5, max_index_num=4, mapped_file_size_commit_log=8192)
SLOTS = 5


def _filled(root: Path, keys: list[str]) -> list[int]:
    """A store of messages with these keys, one each; their physical offsets."""
    times = itertools.count(1_700_000_000_000, 1000)
    with MessageStore.open(root, "rw", CONFIG, create=True, clock=lambda: next(times)) as store:
        return [store.put(message(9, properties={"KEYS": key} if key else {})).physical_offset or 0 for key in keys]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s"


def _opened(root: Path) -> StoreFiles:
    return StoreFiles(root, CONFIG)


def _index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def _write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def _slot_at(key: str) -> int:
    return INDEX_HEADER.size + INDEX_SLOT.size * (key_hash("TopicA", key) % SLOTS)


def _entry_at(number: int, field: str) -> int:
    return INDEX_HEADER.size + INDEX_SLOT.size * SLOTS + INDEX_ENTRY.size * number + INDEX_ENTRY.offset(field)


def _asked(root: Path, key: str, limit: int = 32) -> QueryResult:
    with _opened(root) as files:
        return _of(files, key, limit)


def _of(files: StoreFiles, key: str, limit: int = 32) -> QueryResult:
    return query_index(files.index, files.log, KeyQuery("TopicA", key, limit=limit))


def _with_entries(root: Path, *changes: tuple[int, int, str, int]) -> Iterator[StoreFiles]:
    """Opened, and then with fields of entries changed: (file, entry, field, value). Opened anew the file would be
    taken for none."""
    with _opened(root) as files:
        assert files.index.files
        for number, entry, field, value in changes:
            size = 8 if field == "physical_offset" else 4
            _write(files.index.files[number].path, _entry_at(entry, field), value.to_bytes(size, "big", signed=True))
        yield files


def _offsets(result: QueryResult) -> list[int]:
    return [one.physical_offset for one in result.messages]


def test_every_file_is_asked_and_the_newest_first(store: Path) -> None:
    places = _filled(store, ["k", "other", "k", "k", "k", "x", "k"])
    assert len(_index_files(store)) == 3
    of_k = [places[number] for number in (6, 4, 3, 2, 0)]
    assert _offsets(_asked(store, "k")) == of_k
    for limit in range(1, 7):
        assert _offsets(_asked(store, "k", limit=limit)) == of_k[:limit]
    with _opened(store) as files:
        damaged: list[CorruptError] = []
        found = [entry.physical_offset for entry in entries_of(files.index, "TopicA", "k", damaged)]
        assert (found, damaged) == (of_k, [])
        assert list(entries_of(files.index, "TopicB", "k", damaged)) == []
        assert indexed_range(files.index) == (places[0], places[6])
        assert unindexed_spans(files.log, files.index) == [
            (places[2], places[3]), (places[5], places[6]), (places[6], files.log.max_offset)
        ]  # fmt: skip
    result = _asked(store, "k")
    assert (result.damaged, result.removed, result.is_whole) == ([], 0, False)


def test_a_message_that_is_indexed_twice_is_given_once(store: Path) -> None:
    """RocketMQ indexes a repeated key again; a file may begin with what the one before it has as well."""
    places = _filled(store, ["k", "k", "k", "k"])
    for files in _with_entries(store, (0, 3, "physical_offset", places[1]), (1, 1, "physical_offset", places[1])):
        result = _of(files, "k")
        assert (_offsets(result), result.damaged) == ([places[1], places[0]], [])


def test_a_message_stored_at_the_first_moment_there_is_is_found(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", CONFIG, create=True, clock=lambda: 0) as store:
        store.put(message(9, properties={"KEYS": "k"}))
    assert _offsets(_asked(tmp_path / "s", "k")) == [0]


def test_an_index_of_one_entry_and_one_of_none(store: Path) -> None:
    places = _filled(store, ["", "k", ""])
    [path] = _index_files(store)
    with _opened(store) as files:
        end = files.log.max_offset
        assert indexed_range(files.index) == (places[1], places[1])
        assert unindexed_spans(files.log, files.index) == [(0, places[1]), (places[1], end)]
    # a file that was made and not yet written to
    path.write_bytes(bytes(path.stat().st_size))
    with _opened(store) as files:
        assert len(files.index.files) == 1
        assert indexed_range(files.index) is None
        assert unindexed_spans(files.log, files.index) == [(0, end)]
        result = query_index(files.index, files.log, KeyQuery("TopicA", "k"))
        assert (result.indexed, result.messages, result.damaged) == (None, [], [])


def test_spans_that_no_index_file_covers_where_the_first_ones_are_removed(store: Path) -> None:
    places = _filled(store, [f"k{number}" for number in range(200)])
    first, *_ = sorted((store / "commitlog").iterdir())
    first.unlink()
    begin = 8192
    with _opened(store) as files:
        later = [place for place in places if place >= begin]
        assert unindexed_spans(files.log, files.index)[0][0] >= begin
        covered = [
            place
            for place in later
            if not any(one <= place < end for one, end in unindexed_spans(files.log, files.index))
        ]
        # each file's last message is looked at once more
        assert len(covered) >= len(later) // 3
        result = query_index(files.index, files.log, KeyQuery("TopicA", "k0"))
        assert (result.messages, result.damaged, result.removed) == ([], [], 1)
        # the first message of what is left is no removed one
        assert later[0] == begin
        number = places.index(begin)
        assert _offsets(query_index(files.index, files.log, KeyQuery("TopicA", f"k{number}"))) == [begin]


def test_without_an_index_nothing_is_known_and_a_broken_one_is_damage(store: Path) -> None:
    _filled(store, ["k"])
    [path] = _index_files(store)
    path.write_bytes(path.read_bytes()[:17])
    (store / "index/notes.txt").write_text("mine")
    result = _asked(store, "k")
    [error] = result.damaged
    assert error.message.startswith("this index file cannot be used: ")
    assert (error.file, error.hint) == (str(path), REBUILD)
    assert (result.messages, result.indexed) == ([], None)
    path.unlink()
    (store / "index/notes.txt").unlink()
    with pytest.raises(NotIndexedError, match="the store has no index") as caught:
        _asked(store, "k")
    assert caught.value.file == str(store / "index")
    assert caught.value.hint == "--scan searches the whole commitlog; `rmqctl rebuild --index` makes an index"


@pytest.mark.parametrize("slot", [-1, 3, 1 << 30])
def test_a_slot_that_holds_no_entry_s_number_is_told(store: Path, slot: int) -> None:
    _filled(store, ["k"])
    [path] = _index_files(store)
    _write(path, _slot_at("k"), slot.to_bytes(4, "big", signed=True))
    result = _asked(store, "k")
    [error] = result.damaged
    number = key_hash("TopicA", "k") % SLOTS
    assert error.message == f"hash slot {number} holds {slot}, which is no entry's number"
    assert (error.file, error.hint, result.messages) == (str(path), REBUILD, [])


@pytest.mark.parametrize("slot", [0, 2])
def test_a_slot_may_be_empty_or_hold_the_entry_that_is_not_counted_yet(store: Path, slot: int) -> None:
    _filled(store, ["k"])
    [path] = _index_files(store)
    _write(path, _slot_at("k"), slot.to_bytes(4, "big"))
    _write(path, _entry_at(2, "key_hash"), key_hash("TopicA", "k").to_bytes(4, "big"))
    result = _asked(store, "k")
    assert (_offsets(result), result.damaged) == ([0] if slot else [], [])


def test_an_entry_that_leads_to_no_message_is_told_with_its_place(store: Path) -> None:
    places = _filled(store, ["k", "k"])
    [path] = _index_files(store)
    for place, said in ((places[1] + 1, "no good message starts here"), (1 << 40, "past the commitlog"),
                        (-1, "physical offsets begin at 0")):  # fmt: skip
        [result] = [_of(files, "k") for files in _with_entries(store, (0, 2, "physical_offset", place))]
        _write(path, _entry_at(2, "physical_offset"), places[1].to_bytes(8, "big"))
        [error] = result.damaged
        assert error.message.startswith("index entry 2 leads to no message: ")
        assert said in error.message
        assert (error.file, error.physical_offset) == (str(path), place)
        assert error.hint == (REBUILD if place != places[1] + 1 else error.hint)
        assert error.hint is not None
        assert ("rmqctl dump" in error.hint) == (place == places[1] + 1)
        assert (_offsets(result), result.removed) == ([places[0]], 0)


def test_an_entry_of_another_message_is_told_and_one_of_the_same_hash_is_not(store: Path) -> None:
    # in Java both have the same hash, as have the keys made of them
    assert key_hash("TopicA", "Aa") == key_hash("TopicA", "BB")
    places = _filled(store, ["Aa", "BB", "x"])
    [path] = _index_files(store)
    result = _asked(store, "BB")
    assert (_offsets(result), result.damaged) == ([places[1]], [])
    _write(path, _entry_at(2, "physical_offset"), places[2].to_bytes(8, "big"))
    result = _asked(store, "Aa")
    [error] = result.damaged
    assert error.message == "index entry 2 points at a message that has no such key"
    assert (error.file, error.physical_offset, error.hint) == (str(path), places[2], REBUILD)
    assert _offsets(result) == [places[0]]


def test_a_chain_of_other_hashes_is_told_and_gone_along(store: Path) -> None:
    places = _filled(store, ["k", "k"])
    [path] = _index_files(store)
    wrong = (key_hash("TopicA", "k") + 1) % (1 << 31)
    _write(path, _entry_at(2, "key_hash"), wrong.to_bytes(4, "big"))
    result = _asked(store, "k")
    [error] = result.damaged
    assert error.message == "index entry 2 is in a chain that its hash does not belong to"
    assert (error.file, error.hint, _offsets(result)) == (str(path), REBUILD, [places[0]])
    # another key of the same slot is no damage
    _write(path, _entry_at(2, "key_hash"), (key_hash("TopicA", "k") + SLOTS).to_bytes(4, "big"))
    assert (_offsets(_asked(store, "k")), _asked(store, "k").damaged) == ([places[0]], [])


def test_a_chain_that_leads_nowhere_is_told_with_what_was_found_before(store: Path) -> None:
    places = _filled(store, ["k", "k"])
    [path] = _index_files(store)
    [result] = [_of(files, "k") for files in _with_entries(store, (0, 2, "previous_entry", 2))]
    [error] = result.damaged
    assert error.file == str(path)
    assert error.message == "chain of index entry 2 leads on to 2"
    assert _offsets(result) == [places[1]]


def test_what_is_removed_meanwhile_is_no_damage(store: Path) -> None:
    places = _filled(store, ["k"] * 100)
    with _opened(store) as files:
        assert files.log.min_offset == 0
        query = KeyQuery("TopicA", "k", limit=1000)
        index, *others = files.index.files
        assert len(others) > 5
        files.log.files[0].path.unlink()
        # its entries are there, and its messages are not any more
        files.index.files = [index]
        result = query_index(files.index, files.log, query)
        assert (result.messages, result.damaged, result.removed) == ([], [], 3)
        index.close()
        index.path.unlink()
        damaged: list[CorruptError] = []
        assert (list(chain_entries(index, key_hash("TopicA", "k"), damaged)), damaged) == ([], [])
    assert len(places) == 100


@pytest.fixture
def found_by_nobody(store: Path) -> Iterator[StoreReader]:
    """Two topics, an index with a broken slot for the key that both have, and a file that is none."""
    times = itertools.count(1_700_000_000_000, 1000)
    with MessageStore.open(store, "rw", CONFIG, create=True, clock=lambda: next(times)) as opened:
        for topic in ("TopicA", "TopicB"):
            opened.put(message(9, topic=topic, properties={"UNIQ_KEY": "7F" * 16}))
    (store / "index/20200101000000000").write_bytes(b"no index")
    with _opened(store) as files:
        yield StoreReader(files)


def test_damage_of_the_index_is_told_once_for_all_topics(found_by_nobody: StoreReader) -> None:
    result = found_by_nobody.find("7F" * 16)
    assert ([one.topic for one in result.messages], result.topics) == (["TopicB", "TopicA"], 2)
    assert [error.message.partition(":")[0] for error in result.damaged] == ["this index file cannot be used"]
    assert not result.is_whole
    result = found_by_nobody.find("7F" * 16, "TopicA")
    assert ([one.topic for one in result.messages], result.topics) == (["TopicA"], 1)
    result = found_by_nobody.find("7F" * 16, "TopicC", scan=True)
    assert (result.messages, result.topics, result.is_whole) == ([], 1, True)
    with pytest.raises(NotFoundError):
        found_by_nobody.lookup(1)
    assert isinstance(found_by_nobody.files.index.files[-1], IndexFile)
