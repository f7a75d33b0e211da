"""Messages that are found by their keys: as many as a walk finds, whatever the index holds, and little is read."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import Message
from rmqctl.formats.properties import UNIQUE_KEY
from rmqctl.pipeline import queue_pruning as named
from rmqctl.pipeline.spark.options import OFF, TRUSTED, SourceOptions, parse_options
from rmqctl.pipeline.spark.split_task import subscribed
from rmqctl.pipeline.wanted import Comparison, Wanted, wanted_by
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.opened import store_path
from tests.pipeline.source.damaged_index import damaged_anew
from tests.pipeline.source.reading import REPRESENTATIVE, BytesRead, found, options_of
from tests.quick import examples, sample

Row = tuple[int, str, list[str]]
NAMES = ("physical_offset", "unique_key", "keys")
WITH_INDEX = ("clean", "features", "crash", "v4-clean", "gap", "crc-flip-third", "torn-zero")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index and queues are asked however little that saves."""
    monkeypatch.setattr(named, "_WORTH", 1e9)


def _found(options: SourceOptions, wanted: Wanted) -> tuple[list[Row], bool]:
    """The rows that are not left out, and whether anything was read in spans."""
    rows, spanned = found(options, wanted, NAMES)
    return [(row[0], row[1], row[2]) for row in rows], any(spanned)


def _all(options: SourceOptions) -> list[Row]:
    """What an unfiltered read gives."""
    return _found(options, Wanted())[0]


def _by_unique_key(rows: list[Row], key: str) -> list[Row]:
    return [row for row in rows if row[1] == key]


def _unique_key(*keys: str) -> Wanted:
    return wanted_by([Comparison("unique_key", "in", keys)])


@pytest.mark.parametrize("name", sample(REPRESENTATIVE, ["crc-flip-third"]))
@pytest.mark.usefixtures("always")
def test_as_many_as_a_walk_finds(name: str) -> None:
    """Unique keys and KEYS, one and several, there and not, compiled and plain."""
    options = options_of(name)
    rows = _all(options)
    unique = sorted({row[1] for row in rows if row[1]})
    lists = sorted({tuple(row[2]) for row in rows if row[2]})
    rng = random.Random(name)
    is_spanned = False
    for key in [*rng.sample(unique, min(3, len(unique))), "none of these"]:
        messages, spanned = _found(options, _unique_key(key))
        assert _by_unique_key(messages, key) == _by_unique_key(rows, key)
        is_spanned = is_spanned or spanned
    several = rng.sample(unique, min(3, len(unique)))
    messages, _ = _found(options, _unique_key(*several, "none of these"))
    assert [row for row in messages if row[1] in several] == [row for row in rows if row[1] in several]
    for keys in rng.sample(lists, min(2, len(lists))):
        messages, _ = _found(options, wanted_by([Comparison("keys", "=", (list(keys),))]))
        assert [row for row in messages if tuple(row[2]) == keys] == [row for row in rows if tuple(row[2]) == keys]
    assert is_spanned or name not in WITH_INDEX


@pytest.mark.usefixtures("always")
def test_whatever_became_of_the_index(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Damage of every kind: a message whose entry is lost is found all the same."""
    store = golden_store("clean")
    options = SourceOptions(str(store))
    rows = _all(options)
    unique = [row[1] for row in rows if row[1]]
    for rng, damage in damaged_anew(store / "index", tmp_path / "whole", examples(24)):
        for key in rng.sample(unique, 3):
            messages, _ = _found(options, _unique_key(key))
            assert _by_unique_key(messages, key) == _by_unique_key(rows, key), damage


@pytest.mark.usefixtures("always")
def test_an_entry_that_asks_for_its_own_loss(golden_store: GoldenStore) -> None:
    """Each field of the very entry of a key, and its slot, turned to zero and to something else."""
    store = golden_store("clean")
    options = SourceOptions(str(store))
    rows = _all(options)
    key = rows[700][1]
    expected = _by_unique_key(rows, key)
    assert expected
    with StoreFiles(store) as files:
        file = files.index.files[0]
        entry = next(one for one in file.entries() if one.physical_offset == rows[700][0])
        at, slot, path = (
            file.geometry.entry_position(entry.number),
            file.geometry.slot_position(entry.key_hash),
            file.path,
        )
    whole = path.read_bytes()
    for begin, length in ((at, 4), (at + 4, 8), (at + 12, 4), (at + 16, 4), (at, 20), (slot, 4)):
        for turned in (bytes(length), bytes(byte ^ 1 for byte in whole[begin : begin + length])):
            path.write_bytes(whole[:begin] + turned + whole[begin + length :])
            messages, _ = _found(options, _unique_key(key))
            assert _by_unique_key(messages, key) == expected, (begin - at, turned)


def test_what_the_index_does_not_know(tmp_path: Path, always: None) -> None:
    """Messages stored while it was switched off, in the middle of a file, and of a topic that was removed since."""
    store = tmp_path / "store"
    config = StoreConfig(message_index_enable=False, max_hash_slot_num=100, max_index_num=400)
    with MessageStore.open(store, "rw", config, create=True) as opened:
        for number in range(30):
            opened.put(Message(f"T{number % 2}", b"x" * 900, properties={UNIQUE_KEY: f"id{number}"}))
    offsets = {row[1]: row[0] for row in _all(SourceOptions(str(store)))}
    with StoreFiles(store, config) as files:
        for number in [*range(10), *range(20, 30)]:
            files.index.put(f"T{number % 2}", f"id{number}", offsets[f"id{number}"], 1_700_000_000_000 + number)
        files.index.close()
    shutil.rmtree(store / "consumequeue" / "T1")
    options = SourceOptions(str(store))
    for number in (3, 4, 13, 14, 23, 24):
        messages, _ = _found(options, _unique_key(f"id{number}"))
        assert [row[1] for row in messages] == [f"id{number}"]


@pytest.mark.usefixtures("always")
def test_entries_of_messages_that_others_took_the_place_of(tmp_path: Path) -> None:
    """A log was cut back and grew again, later and with messages of the same size; the index kept what it had, and
    went on where the log was longer than before (IndexService#buildIndex)."""
    store = tmp_path / "store"
    now = [0]
    config = StoreConfig(message_index_enable=False, max_hash_slot_num=100, max_index_num=400)
    times = [1_700_000_000_000 + 1000 * number + (3_600_000 if number >= 40 else 0) for number in range(60)]
    with MessageStore.open(store, "rw", config, create=True, clock=lambda: now[0]) as opened:
        for number, now[0] in enumerate(times):
            opened.put(Message("T", b"x" * 900, properties={UNIQUE_KEY: f"id{number:02}"}))
    offsets = [row[0] for row in _all(SourceOptions(str(store)))]
    with StoreFiles(store, config) as files:
        for number, time in enumerate(times):
            is_old = 40 <= number < 50
            key = f"{'was' if is_old else 'id'}{number:02}"
            files.index.put("T", key, offsets[number], time - 3_600_000 if is_old else time)
        files.index.close()
    for number in (39, 40, 45, 49, 50):
        messages, _ = _found(SourceOptions(str(store)), _unique_key(f"id{number:02}"))
        assert [row[1] for row in messages] == [f"id{number:02}"]


@pytest.mark.parametrize("name", sample([*WITH_INDEX, "index-lost", "index-garbage", "noindex"], ["crash"]))
def test_a_trusted_index(name: str) -> None:
    """Alone it is right where it is whole; what it does not reach is read."""
    options = options_of(name, key_index=TRUSTED)
    rows = _all(options)
    rng = random.Random(name)
    unique = sorted({row[1] for row in rows if row[1]})
    for key in [*rng.sample(unique, 4), rows[-1][1] or unique[-1], "none of these"]:
        messages, _ = _found(options, _unique_key(key))
        assert _by_unique_key(messages, key) == _by_unique_key(rows, key)


def test_rows_of_the_option_are_exact() -> None:
    """Nobody else leaves out what it does not want; a condition beside it takes nothing from that."""
    rows = _all(options_of("features"))
    key = next(row[2][0] for row in rows if row[2])
    given = parse_options({"path": str(store_path("features")), "keys": f"{key} none", "keyIndex": "off"})
    assert given.key_index == OFF
    expected = [row for row in rows if key in (row[1], *row[2])]
    for options in (given, given._replace(key_index="checked")):
        assert _found(options, subscribed(options))[0] == expected
    other = next(row for row in rows if row[1] and row not in expected)
    assert _found(given, wanted_by([Comparison("unique_key", "=", (other[1],))], subscribed(given)))[0] == []


def test_texts_that_are_no_keys_narrow_nothing() -> None:
    for text in ("", "a\ufffd"):
        assert wanted_by([Comparison("unique_key", "=", (text,))]) == Wanted()
    not_lists: list[tuple[Any, ...]] = [([],), (["a"], []), ("a",), ([1],), (None,)]
    for values in not_lists:
        assert wanted_by([Comparison("keys", "in", values)]) == Wanted()


TOPICS, EACH = 100, 200


@pytest.fixture(scope="module")
def keyed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with 100 topics, a unique key a message."""
    path = tmp_path_factory.mktemp("keyed") / "store"
    config = StoreConfig(mapped_file_size_commit_log=13_150_000, max_hash_slot_num=20_000, max_index_num=80_000)
    with MessageStore.open(path, "rw", config, create=True) as store:
        for first in range(0, EACH, 50):
            results = store.put_many(
                [
                    Message(f"Topic{topic:02}", b"data" * 300, properties={UNIQUE_KEY: f"{topic}-{number}"})
                    for number in range(first, first + 50)
                    for topic in range(TOPICS)
                ]
            )
            assert all(result.status.name == "PUT_OK" for result in results)
    return path


def test_how_much_is_read(keyed_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked: units and entries, 40 bytes a message; trusted: a few blocks."""
    (*_, last), _ = _found(SourceOptions(str(keyed_store)), Wanted())
    read = BytesRead(monkeypatch)
    options = SourceOptions(str(keyed_store))
    for given, most in ((options, 0.05 * last[0]), (options._replace(key_index=TRUSTED), 100_000)):
        read.bytes = 0
        messages, spanned = _found(given, _unique_key("42-107"))
        assert [row[1] for row in messages] == ["42-107"]
        assert spanned
        assert read.bytes <= most
