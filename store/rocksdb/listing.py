"""The entries of one file of a RocksDB, in the order of the file: tables, write-ahead logs, CURRENT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError, RmqctlError, UnreadableError
from rmqctl.store.files.layout import CURRENT, MESSAGE_STORAGE
from rmqctl.store.files.reading import Descriptors, read_small_file
from rmqctl.store.rocksdb.database import batch_entries
from rmqctl.store.rocksdb.manifest import manifest_edits, read_manifest
from rmqctl.store.rocksdb.message_storage import row_fields
from rmqctl.store.rocksdb.records import MalformedError, RecordReader
from rmqctl.store.rocksdb.table import DELETION, PUT, RANGE_DELETION, SINGLE_DELETION, KeyEntry, SortedTable

_KINDS = {PUT: "put", DELETION: "delete", SINGLE_DELETION: "single delete", RANGE_DELETION: "delete range"}


class ListedEntry(NamedTuple):
    """One entry. `offset` and `size`: of the block or record of the file that holds it, in bytes; `fields` by name, of
    `rocksdbstore/` those of the row as well.

    `damage`: why the block or record cannot be read.
    """

    offset: int
    size: int
    fields: dict[str, int | str | bytes]
    damage: str | None = None


def is_listed(path: Path) -> bool:
    """Return whether the entries of such a file can be listed: not those of OPTIONS, IDENTITY, LOCK and LOG."""
    return path.suffix in (".sst", ".log") or path.name == CURRENT or path.name.startswith("MANIFEST-")


def listed_file(path: Path, size: int, descriptors: Descriptors) -> Iterator[ListedEntry]:
    """Yield the entries of a file. Damage is an entry of its own. UnreadableError."""
    if path.suffix == ".sst":
        yield from _of_table(SortedTable(path, size, descriptors))
    elif path.name == CURRENT:
        yield ListedEntry(0, size, {"manifest": read_small_file(path, 256).decode("utf-8", "replace").strip()})
    else:
        yield from _of_records(path, descriptors)


def _of_table(table: SortedTable) -> Iterator[ListedEntry]:
    try:
        for _, handle in table.blocks:
            damage: list[RmqctlError] = []
            for entry in table.entries_of(handle, damage.append):
                yield _listed(table.path, handle.offset, handle.size, entry, table.family)
            for error in damage:
                yield ListedEntry(handle.offset, handle.size, {}, str(error.args[0]))
        for entry in table.range_deletions():
            yield _listed(table.path, 0, 0, entry, table.family)
    except CorruptError as error:
        yield ListedEntry(error.physical_offset or 0, 0, {}, error.message)


def _listed(path: Path, offset: int, size: int, entry: KeyEntry, family: str, number: int = -1) -> ListedEntry:
    kind = _KINDS.get(entry.kind, str(entry.kind))
    fields: dict[str, int | str | bytes] = {"key": entry.key, "sequence": entry.sequence, "kind": kind}
    if number >= 0:
        fields["family"] = number
    if entry.kind == RANGE_DELETION:
        fields["end"] = entry.value
    elif entry.kind == PUT:
        fields["value"] = entry.value
        if path.parent.name == MESSAGE_STORAGE:
            fields |= {f"row.{name}": value for name, value in row_fields(family, entry.key, entry.value).items()}
    return ListedEntry(offset, size, fields)


def _families_of(folder: Path) -> dict[int, str]:
    """Return the names of the column families by their ids, which logs know alone; none where nothing says."""
    try:
        return {number: family.name for number, family in read_manifest(folder).families.items()}
    except (CorruptError, UnreadableError):
        return {}


def _of_records(path: Path, descriptors: Descriptors) -> Iterator[ListedEntry]:
    families = _families_of(path.parent)
    is_manifest = path.suffix != ".log"
    reader = RecordReader(path, int(path.stem) if not is_manifest and path.stem.isdecimal() else 0, descriptors)
    for record in reader:
        try:
            if is_manifest:
                yield ListedEntry(record.position, len(record.data), dict(manifest_edits(record.data)))
                continue
            for family, entry in batch_entries(record.data):
                yield _listed(path, record.position, len(record.data), entry, families.get(family, ""), family)
        except MalformedError as error:
            yield ListedEntry(record.position, len(record.data), {}, f"record is malformed: {error}")
    if reader.end.is_damage:
        yield ListedEntry(reader.end.position, 0, {}, reader.end.problem)
