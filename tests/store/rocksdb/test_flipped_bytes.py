"""Bytes of every kind of a RocksDB's files changed one at a time: what is read is right, or damage is reported."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store.rocksdb.database import Database
from tests.features import feature_store
from tests.store.rocksdb.stores import unpacked

Rows = dict[str, list[tuple[bytes, bytes]]]


def _read(folder: Path) -> tuple[Rows | None, list[CorruptError]]:
    """Return all rows by family, None where the database cannot be read, and the damage."""
    damage: list[CorruptError] = []
    try:
        database = Database(folder)
        rows = {family: list(database.scan(family, damage.append)) for family in database.families}
        return rows, damage + list(database.damage)
    except CorruptError as error:
        return None, [*damage, error]


@pytest.mark.parametrize(
    ("name", "folder", "pattern", "count"),
    [
        ("rocksdb-55-only", "consumequeue", "*.sst", 300),
        ("rocksdb-store55", "rocksdbstore", "*.sst", 300),
        ("rocksdb-store55", "rocksdbstore", "MANIFEST-*", 300),
        ("config-rocksdb-crash", "config/topics", "*.log", 600),
        ("config-rocksdb-v2", "config/rdb", "*.sst", 300),
        ("pop-kv-crash", "kvStore", "*.log", 600),
        ("pop-kv", "kvStore", "CURRENT", 20),
        ("pop-kv", "kvStore", "OPTIONS-*", 20),
    ],
)
def test_an_answer_is_right_or_damage_is_reported(
    name: str, folder: str, pattern: str, count: int, tmp_path: Path
) -> None:
    store = feature_store(name, tmp_path) if name.startswith("pop") else unpacked(name, tmp_path)
    path = max((store / folder).glob(pattern), key=lambda one: one.stat().st_size)
    data, draw = path.read_bytes(), random.Random(3)
    right, none = _read(store / folder)
    assert right is not None
    assert any(right.values())
    assert none == []
    reported = 0
    # the first bytes are heads, whose lengths say where the next ones are
    places = [*range(min(16, len(data))), *(draw.randrange(len(data)) for _ in range(count))]
    for at in places:
        changed = bytes((data[at] ^ (1 << draw.randrange(8)),))
        path.write_bytes(data[:at] + changed + data[at + 1 :])
        found, damage = _read(store / folder)
        assert damage or found == right, (at, changed)
        reported += bool(damage)
    assert reported or pattern.startswith("OPTIONS")
    path.write_bytes(data)
    assert _read(store / folder) == (right, [])
