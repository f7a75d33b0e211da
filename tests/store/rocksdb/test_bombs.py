"""Databases made to cost memory: small files, sound by every checksum, whose blocks claim what they have not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.rocksdb.database import Database
from rmqctl.store.rocksdb.listing import listed_file
from tests.hostile.driver import peak, reset_peak
from tests.hostile.in_files import TABLES
from tests.hostile.making import database_of_tables, framed, varint

_MEMORY = 200 << 20


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_damage_and_take_bounded_memory(name: str, tmp_path: Path) -> None:
    tables = TABLES[name]()
    database_of_tables(tmp_path, tables)
    assert sum(map(len, tables)) < 24 << 20
    damage: list[CorruptError] = []
    reset_peak()
    before = peak()
    database = Database(tmp_path)
    for _ in database.scan("default", damage.append):
        pass
    assert damage
    assert database.damage
    for path in tmp_path.glob("*.sst"):
        # of those of one table there are not too many
        assert name == "deleted ranges without end" or any(
            item.damage for item in listed_file(path, path.stat().st_size, Descriptors())
        )
    assert peak() - before < _MEMORY


def test_a_manifest_names_no_more_than_there_may_be(tmp_path: Path) -> None:
    database_of_tables(tmp_path, [])
    table = b"\x67\x00" + varint(1 << 60) + b"\1" + b"\x08" + bytes(8) + b"\x08" + bytes(8) + b"\0\0\1"
    families = [b"\xc8\x01" + varint(number) + b"\xc9\x01\1f" for number in range(1, 300)]
    for edits in ([table * 70_000], families):
        (tmp_path / "MANIFEST-000001").write_bytes(framed(b"\x02\x00", *edits))
        with pytest.raises(CorruptError, match="edit of the manifest is malformed: more than"):
            Database(tmp_path)


def test_names_that_are_no_numbers_are_no_logs(tmp_path: Path) -> None:
    """Of `²` str.isdigit says that it is a digit, and int() that it is none."""
    database_of_tables(tmp_path, [])
    (tmp_path / "\u00b2.log").write_bytes(b"x")
    database = Database(tmp_path)
    assert database.logs() == []
    assert database.unused_files() == []
    assert list(database.scan("default")) == []
