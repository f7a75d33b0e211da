"""`dump` of the files of a RocksDB: every entry that RocksDB reads is in one of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqctl.store.dump.dump_file import dump_file
from rmqctl.store.dump.items import DumpItem
from rmqctl.store.dump.recognise import FileKind
from tests.rmqctl.looking import run
from tests.store.rocksdb.stores import rows, unpacked


def _items(path: Path) -> list[DumpItem]:
    kind, items = dump_file(path)
    assert kind is FileKind.ROCKSDB
    return list(items)


@pytest.mark.parametrize("name", ["config-rocksdb-crash", "config-rocksdb-single", "rocksdb-55-only"])
def test_every_entry_is_in_a_file(name: str, tmp_path: Path) -> None:
    store = unpacked(name, tmp_path)
    for folder in {folder for folder, _ in rows(name)}:
        found = set()
        for path in (*(store / folder).glob("*.sst"), *(store / folder).glob("*.log")):
            for item in _items(path):
                assert item.damage is None
                values = {one.name: one.value for one in item.fields}
                if values["kind"] == "put":
                    found.add((values["key"], values["value"]))
        for (of, _), expected in rows(name).items():
            if of == folder:
                assert {(key.hex(), value.hex()) for key, value in expected.items()} <= found


def test_damage_is_an_item_of_its_own(tmp_path: Path) -> None:
    folder = unpacked("config-rocksdb", tmp_path) / "config/topics"
    table = min(folder.glob("*.sst"))
    whole = table.read_bytes()
    for place, words in ((20, "checksum of the block is wrong"), (len(whole) - 1, "magic number")):
        table.write_bytes(whole[:place] + bytes((whole[place] ^ 1,)) + whole[place + 1 :])
        (damaged,) = [item for item in _items(table) if item.damage is not None]
        assert words in str(damaged.damage)


def test_manifest_and_texts(tmp_path: Path) -> None:
    folder = unpacked("config-rocksdb", tmp_path) / "config/topics"
    (current,) = _items(folder / "CURRENT")
    (manifest,) = folder.glob("MANIFEST-*")
    assert [(one.name, one.value) for one in current.fields] == [("manifest", manifest.name)]
    edits = [{one.name: one.value for one in item.fields} for item in _items(manifest)]
    assert [edit["added"] for edit in edits if "added" in edit] == ["kvDataVersion"]
    new = ", ".join(edit["new"] for edit in edits if "new" in edit)
    assert all(path.name in new for path in folder.glob("*.sst"))
    (identity,) = _items(folder / "IDENTITY")
    assert identity.kind == "text"


def test_rows_of_rocksdbstore_by_name(tmp_path: Path) -> None:
    """Index, timer and transactions: `dump` says what an entry is, and `sql` has the index."""
    name = "rocksdb-store55"
    store, there = unpacked(name, tmp_path), rows(name)
    found: dict[str, set[tuple[str, int]]] = {"index": set(), "timer": set(), "trans": set()}
    for path in (*(store / "rocksdbstore").glob("*.sst"), *(store / "rocksdbstore").glob("*.log")):
        for item in _items(path):
            values = {one.name: one.value for one in item.fields}
            kind = "index" if "row.hour" in values else "timer" if "row.out" in values else "trans"
            if "row.physical_offset" in values:
                found[kind].add((values["key"], values["row.physical_offset"]))
    for kind, family in (("index", "default"), ("timer", "timer"), ("trans", "trans")):
        expected = {key.hex() for key in there["rocksdbstore", family] if not key[:1].isalpha()}
        assert {key for key, _ in found[kind]} >= expected, kind
    counted = run("sql", "-s", store, "select kind, count(*) as n from index_entries group by 1", "--json").objects
    expected_kinds = Counter(
        key[8:].split(b"@")[2].decode() for key in there["rocksdbstore", "default"] if not key[:1].isalpha()
    )
    assert {row["kind"]: row["n"] for row in counted if row["kind"] is not None} == expected_kinds
