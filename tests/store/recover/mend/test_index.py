"""Judging an index against the log, and making it anew as RocketMQ would have written it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import Geometry, IndexFile
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.log.walk import walk
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, base_of, is_crashed, tree_state
from tests.opened import reader
from tests.quick import goldens_of
from tests.store.index.test_index_file import java_keys
from tests.store.recover.mend.plain_index import IndexMend

GEOMETRY = Geometry(500, 2000)
INTACT = [name for name in GOLDENS if base_of(name) is None and not is_crashed(name) and name != "noindex"]


def _mend(files: StoreFiles) -> IndexMend:
    mend = IndexMend(files.index, files.descriptors)
    for record in walk(files.log):
        if isinstance(record, StoredMessage):
            mend.add(record)
    return mend


def _nothing_is_gone(physical_offset: int) -> bool:
    return False


@pytest.mark.parametrize("name", goldens_of(INTACT))
def test_whole_goldens_are_intact(name: str) -> None:
    files = reader(name).files
    assert _mend(files).is_intact(_nothing_is_gone)


@pytest.mark.parametrize(
    "name", ["crash", "index-lost", "index-garbage", "noindex", "crc-flip-last", "torn-zero-clean"]
)
def test_broken_goldens_are_not(name: str) -> None:
    assert not _mend(reader(name).files).is_intact(_nothing_is_gone)


def test_entries_of_messages_that_are_gone_are_no_fault() -> None:
    """RocketMQ leaves the entries of expired messages where they are."""
    files = reader("first-gone").files
    mend = _mend(files)
    assert not mend.is_intact(_nothing_is_gone)
    assert mend.is_intact(lambda offset: offset < files.log.min_offset)


def _set(path: Path, position: int, value: int) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, position, value)
    path.write_bytes(data)


FAULTS: dict[str, Callable[[Path], object]] = {
    "empty slot": lambda path: _set(path, GEOMETRY.slot_position(_used_slot(path)), 0),
    "slot that leads to an older entry": lambda path: _set(path, GEOMETRY.slot_position(_used_slot(path)), 1),
    "hash": lambda path: _set(path, GEOMETRY.entry_position(100), 1),
    "offset": lambda path: _set(path, GEOMETRY.entry_position(100) + 8, 1),
    "chain": lambda path: _set(path, GEOMETRY.entry_position(1500) + 16, 0),
    "cycle": lambda path: _set(path, GEOMETRY.entry_position(1500) + 16, 1500),
    "count": lambda path: _set(path, 36, 1000),
    "stray file": lambda path: path.with_name("notes.txt").write_text("x"),
    "file lost": lambda path: path.unlink(),
    "file cut": lambda path: path.write_bytes(path.read_bytes()[:30_000]),
}


def _used_slot(path: Path) -> int:
    file = IndexFile(path, GEOMETRY, Descriptors())
    return file.entry(1500).key_hash % 500


@pytest.mark.parametrize("what", FAULTS)
def test_every_fault_is_seen(what: str, golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    path = sorted((store / "index").iterdir())[0]
    FAULTS[what](path)
    with StoreFiles(store) as files:
        assert not _mend(files).is_intact(_nothing_is_gone)


def test_a_repeated_entry_is_no_fault_and_a_dangling_one_is(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    path = sorted((store / "index").iterdir())[-1]
    file = IndexFile(path, GEOMETRY, Descriptors())
    last = file.entry(file.header.index_count - 1)
    file.put(last.key_hash, last.physical_offset, last.timestamp)
    file.close()
    with StoreFiles(store) as files:
        assert _mend(files).is_intact(_nothing_is_gone)
    file.put(last.key_hash, last.physical_offset + 8, last.timestamp)
    file.close()
    with StoreFiles(store) as files:
        assert not _mend(files).is_intact(_nothing_is_gone)


def _staged(name: str, folder: Path) -> tuple[IndexMend, list[Path]]:
    folder.mkdir()
    mend = _mend(reader(name).files)
    return mend, mend.stage(folder, GEOMETRY)


def _before_the_first_repeat(name: str) -> int:
    """How many keys RocketMQ put before it put one twice for the same message."""
    seen: set[tuple[int, int]] = set()
    for number, (hashed, offset, _) in enumerate(java_keys(name)):
        if (hashed, offset) in seen:
            return number
        seen.add((hashed, offset))
    return len(seen)


@pytest.mark.parametrize("name", goldens_of(INTACT))
def test_staged_files_are_those_of_rocketmq(name: str, tmp_path: Path) -> None:
    """Byte for byte, names aside, but that RocketMQ has one more entry where a message repeats a key."""
    mend, staged = _staged(name, tmp_path / "staged")
    originals = reader(name).files.index.files
    assert [path.name for path in staged] == sorted({path.name for path in staged})
    same = _before_the_first_repeat(name)
    if same == len(java_keys(name)):
        assert [path.read_bytes() for path in staged] == [file.path.read_bytes() for file in originals]
    begin, end = GEOMETRY.entry_position(1), GEOMETRY.entry_position(1 + min(same, 1999))
    assert staged[0].read_bytes()[begin:end] == originals[0].path.read_bytes()[begin:end]
    service = IndexService(tmp_path / "staged", reader(name).files.config, Descriptors())
    service.load()
    entries = [(entry.key_hash, entry.physical_offset) for file in service.files for entry in file.entries()]
    assert entries == list(dict.fromkeys((hashed, offset) for hashed, offset, _ in java_keys(name)))
    assert mend.file_count(GEOMETRY) == len(staged)


def test_there_is_enough_to_compare() -> None:
    assert _before_the_first_repeat("broker-real") == len(java_keys("broker-real")) == 1474
    assert sum(map(_before_the_first_repeat, INTACT)) > 2000


def test_a_made_index_is_intact(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    for path in (store / "index").iterdir():
        path.unlink()
    with StoreFiles(store) as files:
        staged = _mend(files).stage(store / "index", GEOMETRY)
    assert len(staged) == 3
    with StoreFiles(store) as files:
        mend = _mend(files)
        assert mend.is_intact(_nothing_is_gone)
        full = files.index.files[1]
        assert full.is_full
        assert mend.full_file_end_timestamp(GEOMETRY) == full.header.end_timestamp


def test_judging_changes_nothing(golden_store: GoldenStore) -> None:
    store = golden_store("index-garbage")
    before = tree_state(store)
    with StoreFiles(store) as files:
        _mend(files).is_intact(_nothing_is_gone)
    assert tree_state(store) == before
