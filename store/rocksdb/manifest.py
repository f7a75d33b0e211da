"""The manifest of a RocksDB: its column families, and the tables and logs that hold them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.store.files.layout import CURRENT
from rmqctl.store.files.reading import read_small_file
from rmqctl.store.rocksdb.records import DAMAGE_HINT, MalformedError, RecordReader, prefixed, varint

_MANIFEST_NAME = re.compile(rb"MANIFEST-([0-9]{1,20})\n?")

# tags of a VersionEdit (version_edit.h)
_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT_CURSOR, _DELETED_FILE = 1, 2, 3, 4, 5, 6
_PREVIOUS_LOG, _MIN_LOG_NUMBER, _NEW_FILE, _NEW_FILE_4 = 9, 10, 7, 103
_FAMILY, _FAMILY_ADDED, _FAMILY_DROPPED, _MAX_FAMILY = 200, 201, 202, 203
_ATOMIC_GROUP = 300
_IGNORED_BY_OLD_READERS = 1 << 13
"""Fields with this bit are strings, which a reader that does not know them skips."""
_END_OF_FILE_FIELDS = 1
_MOST_TABLES = 1 << 16
_TOO_MANY_TABLES = f"more than {_MOST_TABLES} tables"
_MOST_FAMILIES = 256
"""A database of RocketMQ has some thousand tables, and seven families at most."""
_BYTEWISE = b"leveldb.BytewiseComparator"


class TableFile(NamedTuple):
    """A table that a family has. `smallest` and `largest` are user keys, of its first and last entry."""

    number: int
    level: int
    size: int
    smallest: bytes
    largest: bytes

    @property
    def name(self) -> str:
        """The file's name in the folder."""
        return f"{self.number:06d}.sst"


@dataclass(slots=True)
class ColumnFamily:
    """A column family: its tables by number, and the first log whose entries are not in them."""

    name: str
    log_number: int = 0
    tables: dict[int, TableFile] = field(default_factory=dict)


@dataclass(slots=True)
class Manifest:
    """What the manifest says. `families` by their ids; `is_begun`: it has an edit; `problem`: why its end was not read,
    "" for a whole one."""

    path: Path
    families: dict[int, ColumnFamily] = field(default_factory=lambda: {0: ColumnFamily("default")})
    min_log_number: int = 0
    last_sequence: int = 0
    is_begun: bool = False
    problem: str = ""

    def by_name(self) -> dict[str, tuple[int, ColumnFamily]]:
        """Return ids and families by name."""
        return {family.name: (number, family) for number, family in self.families.items()}


def read_manifest(folder: Path) -> Manifest:
    """Return what the manifest that CURRENT names says.

    Raises: CorruptError where it cannot be known which tables are the database's. UnreadableError.
    """
    name = _manifest_name(folder)
    path = folder / name
    manifest = Manifest(path)
    reader = RecordReader(path, 0)
    try:
        for record in reader:
            try:
                _apply(manifest, record.data)
                manifest.is_begun = True
            except MalformedError as error:
                raise CorruptError(
                    f"edit of the manifest is malformed: {error}",
                    file=path,
                    physical_offset=record.position,
                    hint=DAMAGE_HINT,
                ) from error
    except FileNotFoundError:
        raise CorruptError(
            f"names {name}, which is not there: this RocksDB cannot be read", file=folder / CURRENT, hint=DAMAGE_HINT
        ) from None
    if not manifest.is_begun:
        raise CorruptError("the manifest holds no edit", file=path, physical_offset=0, hint=DAMAGE_HINT)
    if reader.end.problem:
        # what an interrupted write leaves: the database is as it was before it. RocksDB refuses anything else.
        if reader.end.is_damage:
            raise CorruptError(reader.end.problem, file=path, physical_offset=reader.end.position, hint=DAMAGE_HINT)
        manifest.problem = f"{reader.end.problem} (byte {reader.end.position})"
    return manifest


def _manifest_name(folder: Path) -> str:
    path = folder / CURRENT
    try:
        match = _MANIFEST_NAME.fullmatch(read_small_file(path, 256))
    except FileNotFoundError:
        raise CorruptError(f"no {CURRENT}: the folder is not a RocksDB", file=folder) from None
    if match is None:
        raise CorruptError("does not name a manifest: this RocksDB cannot be read", file=path, hint=DAMAGE_HINT)
    return f"MANIFEST-{match[1].decode('ascii')}"


class _Edit(NamedTuple):
    """The parts of one edit; `family` holds for all of them, at any place of the edit."""

    family: int
    added: str | None
    is_dropped: bool
    log_number: int | None
    deleted: list[tuple[int, int]]
    new: list[TableFile]


def _apply(manifest: Manifest, data: bytes) -> None:
    edit = _parsed(manifest, data)
    if edit.added is not None:
        manifest.families[edit.family] = ColumnFamily(edit.added)
        if len(manifest.families) > _MOST_FAMILIES:
            raise MalformedError(f"more than {_MOST_FAMILIES} column families")
    if edit.is_dropped:
        manifest.families.pop(edit.family, None)
        return
    family = manifest.families.get(edit.family)
    if family is None:
        if edit.new or edit.deleted:
            raise MalformedError(f"column family {edit.family} is not there")
        return
    if edit.log_number is not None:
        family.log_number = edit.log_number
    for _, number in edit.deleted:
        family.tables.pop(number, None)
    for table in edit.new:
        family.tables[table.number] = table
    if sum(len(one.tables) for one in manifest.families.values()) > _MOST_TABLES:
        raise MalformedError(_TOO_MANY_TABLES)


def manifest_edits(data: bytes) -> Iterator[tuple[str, int | str | bytes]]:
    """Yield what an edit of a manifest says, by name. Raises: MalformedError."""
    numbers = Manifest(Path())
    edit = _parsed(numbers, data)
    yield "family", edit.family
    if edit.added is not None:
        yield "added", edit.added
    if edit.is_dropped:
        yield "dropped", 1
    if edit.log_number is not None:
        yield "log_number", edit.log_number
    if numbers.min_log_number:
        yield "min_log_number", numbers.min_log_number
    if numbers.last_sequence:
        yield "last_sequence", numbers.last_sequence
    if edit.deleted:
        yield "deleted", ", ".join(f"{number:06d}.sst" for _, number in edit.deleted)
    if edit.new:
        yield "new", ", ".join(f"{table.name} (level {table.level}, {table.size} bytes)" for table in edit.new)


def _parsed(manifest: Manifest, data: bytes) -> _Edit:
    family, added, is_dropped, log_number = 0, None, False, None
    deleted, new = list[tuple[int, int]](), list[TableFile]()
    position = 0
    while position < len(data):
        tag, position = varint(data, position)
        if tag == _FAMILY:
            family, position = varint(data, position)
        elif tag == _FAMILY_ADDED:
            name, position = prefixed(data, position)
            added = name.decode("utf-8", "replace")
        elif tag == _FAMILY_DROPPED:
            is_dropped = True
        elif tag == _LOG_NUMBER:
            log_number, position = varint(data, position)
        elif tag == _MIN_LOG_NUMBER:
            number, position = varint(data, position)
            manifest.min_log_number = max(manifest.min_log_number, number)
        elif tag == _LAST_SEQUENCE:
            manifest.last_sequence, position = varint(data, position)
        elif tag == _DELETED_FILE:
            level, position = varint(data, position)
            number, position = varint(data, position)
            deleted.append((level, number))
        elif tag == _NEW_FILE_4:
            table, position = _new_file(data, position)
            new.append(table)
            if len(new) > _MOST_TABLES:
                raise MalformedError(_TOO_MANY_TABLES)
        elif tag in _SKIPPED:
            position = _SKIPPED[tag](data, position)
        elif tag & _IGNORED_BY_OLD_READERS:
            _, position = prefixed(data, position)
        else:
            raise MalformedError(f"field {tag} is unknown")
        if tag == _COMPARATOR and _BYTEWISE not in data[:position]:
            raise MalformedError("its keys are not in the order of their bytes")
    return _Edit(family, added, is_dropped, log_number, deleted, new)


def _skip_number(data: bytes, position: int) -> int:
    return varint(data, position)[1]


def _skip_string(data: bytes, position: int) -> int:
    return prefixed(data, position)[1]


def _skip_cursor(data: bytes, position: int) -> int:
    return prefixed(data, varint(data, position)[1])[1]


_SKIPPED: dict[int, Callable[[bytes, int], int]] = {
    _COMPARATOR: _skip_string,
    _NEXT_FILE: _skip_number,
    _PREVIOUS_LOG: _skip_number,
    _MAX_FAMILY: _skip_number,
    _ATOMIC_GROUP: _skip_number,
    _COMPACT_CURSOR: _skip_cursor,
}


def _new_file(data: bytes, position: int) -> tuple[TableFile, int]:
    level, position = varint(data, position)
    number, position = varint(data, position)
    size, position = varint(data, position)
    smallest, position = prefixed(data, position)
    largest, position = prefixed(data, position)
    for _ in range(2):  # smallest and largest sequence number
        _, position = varint(data, position)
    while True:
        tag, position = varint(data, position)
        if tag == _END_OF_FILE_FIELDS:
            return TableFile(number, level, size, smallest[:-8], largest[:-8]), position
        _, position = prefixed(data, position)
