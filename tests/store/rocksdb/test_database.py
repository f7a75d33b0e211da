"""Databases of real brokers: every row that RocksDB reads, and nothing else; damage is reported, never absence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, RmqctlError, UnreadableError
from rmqctl.store.rocksdb.database import Database
from tests.goldens import tree_state
from tests.store.rocksdb.stores import NAMES, Rows, rows, unpacked


def _read(store: Path, report: Callable[[RmqctlError], None]) -> Rows:
    found: Rows = {}
    for current in sorted(store.rglob("CURRENT")):
        database = Database(current.parent)
        for family in database.families:
            values = dict(database.scan(family, report))
            if values:
                found[current.parent.relative_to(store).as_posix(), family] = values
    return found


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_those_of_rocksdb(name: str, tmp_path: Path) -> None:
    store = unpacked(name, tmp_path)
    before = tree_state(store)
    damage: list[RmqctlError] = []
    assert _read(store, damage.append) == rows(name)
    assert damage == []
    assert tree_state(store) == before


def test_a_key_and_a_range_of_keys(tmp_path: Path) -> None:
    database = Database(unpacked("config-rocksdb", tmp_path) / "config/topics")
    expected = rows("config-rocksdb")["config/topics", "default"]
    damage: list[RmqctlError] = []
    for key, value in expected.items():
        assert database.get("default", key, damage.append) == value
        assert database.get("default", key + b"x", damage.append) is None
    keys = sorted(expected)
    for begin, end in ((keys[3], keys[9]), (b"", keys[2]), (keys[-2], None), (keys[4], keys[4])):
        found = [key for key, _ in database.scan("default", damage.append, begin, end)]
        assert found == [key for key in keys if begin <= key and (end is None or key < end)]
    assert list(database.scan("no such family", damage.append)) == []
    assert damage == []


def _places(path: Path) -> Iterator[int]:
    """Yield positions all over a file, every one near its ends."""
    size = path.stat().st_size
    yield from range(min(size, 40))
    yield from range(40, max(40, size - 60), 37)
    yield from range(max(40, size - 60), size)


@pytest.mark.parametrize("name", ["config-rocksdb", "config-rocksdb-crash", "config-rocksdb-v2"])
def test_a_changed_byte_is_reported_or_changes_no_row(name: str, tmp_path: Path) -> None:
    store = unpacked(name, tmp_path)
    expected = rows(name)
    silent = tried = 0
    folder = store / ("config/rdb" if name.endswith("v2") else "config/topics")
    here = {key: values for key, values in expected.items() if (store / key[0]) == folder}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(("OPTIONS", "IDENTITY", "LOCK")):
            continue
        whole = path.read_bytes()
        for place in _places(path):
            path.write_bytes(whole[:place] + bytes((whole[place] ^ 0x55,)) + whole[place + 1 :])
            damage: list[RmqctlError] = []
            try:
                database = Database(folder)
                found = {
                    (key[0], family): values
                    for key in [next(iter(here))]
                    for family in database.families
                    if (values := dict(database.scan(family, damage.append)))
                }
            except RmqctlError as error:
                damage.append(error)
                continue
            finally:
                path.write_bytes(whole)
                tried += 1
            if not damage and found != here:
                # the last record of a log, torn by a kill, is dropped by RocksDB without a word, too
                assert path.suffix == ".log" or path.name.startswith("MANIFEST"), (path.name, place)
                silent += 1
    assert tried > 300
    # a log that ends earlier is what a killed broker leaves: the bytes of its last record cannot be told from that
    assert silent < tried // 50, silent


@pytest.mark.parametrize("name", ["config-rocksdb", "rocksdb-55-only"])
def test_a_table_that_is_missing_or_short_is_damage(name: str, tmp_path: Path) -> None:
    store = unpacked(name, tmp_path)
    folder = store / ("config/topics" if name == "config-rocksdb" else "consumequeue")
    table = min(folder.glob("*.sst"))
    whole = table.read_bytes()
    for size in (None, 0, 30, len(whole) // 2, len(whole) - 1):
        if size is None:
            table.unlink()
        else:
            table.write_bytes(whole[:size])
        damage: list[RmqctlError] = []
        for family in (database := Database(folder)).families:
            list(database.scan(family, damage.append))
        assert damage, size
        assert all(isinstance(error, CorruptError) for error in damage), size
        assert {error.file for error in damage} == {str(table)}


def test_a_broker_that_replaces_a_table_is_no_damage(tmp_path: Path) -> None:
    folder = unpacked("config-rocksdb", tmp_path) / "config/topics"
    database = Database(folder)
    table = folder / database.tables()[0].name
    table.unlink()
    # the broker has written a new manifest meanwhile
    other = unpacked("config-rocksdb-533", tmp_path / "other") / "config/topics"
    for path in other.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    if table.exists():
        table.unlink()
    with pytest.raises(UnreadableError, match="a broker is writing this database"):
        list(database.scan("default", lambda error: None))


def test_what_is_no_database_is_damage(tmp_path: Path) -> None:
    folder = unpacked("config-rocksdb", tmp_path) / "config/topics"
    (manifest,) = folder.glob("MANIFEST-*")
    whole = manifest.read_bytes()
    for data in (b"", whole[:3], bytes(len(whole)), whole[:200] + bytes(50) + whole[250:]):
        manifest.write_bytes(data)
        with pytest.raises(CorruptError):
            Database(folder)
    manifest.unlink()
    with pytest.raises(CorruptError, match="which is not there"):
        Database(folder)
    for text in (b"", b"MANIFEST-\n", b"../../etc/passwd\n", b"MANIFEST-000005/../x\n", b"\xff" * 300):
        (folder / "CURRENT").write_bytes(text)
        with pytest.raises(CorruptError, match="does not name a manifest"):
            Database(folder)
