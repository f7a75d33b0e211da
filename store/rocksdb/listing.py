"""The entries of one file of a RocksDB, in the order of the file: tables, write-ahead logs, CURRENT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError, RmqctlError
from rmqctl.store.files.layout import CURRENT
from rmqctl.store.files.reading import Descriptors, read_small_file
from rmqctl.store.rocksdb.coding import MalformedError
from rmqctl.store.rocksdb.database import LARGEST_LOG, batch_entries
from rmqctl.store.rocksdb.manifest import manifest_edits
from rmqctl.store.rocksdb.records import RecordReader
from rmqctl.store.rocksdb.table import DELETION, PUT, RANGE_DELETION, SINGLE_DELETION, SortedTable

_KINDS = {PUT: "put", DELETION: "delete", SINGLE_DELETION: "single delete", RANGE_DELETION: "delete range"}


class ListedEntry(NamedTuple):
    """One entry. `offset` and `size`: of the block or record of the file that holds it, in bytes; `fields` by name.

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
        yield from _of_records(path)


def _of_table(table: SortedTable) -> Iterator[ListedEntry]:
    try:
        for _, handle in table.blocks:
            damage: list[RmqctlError] = []
            for entry in table.entries_of(handle, damage.append):
                yield _listed(handle.offset, handle.size, entry.key, entry.sequence, entry.kind, entry.value)
            for error in damage:
                yield ListedEntry(handle.offset, handle.size, {}, str(error.args[0]))
        for entry in table.range_deletions():
            yield _listed(0, 0, entry.key, entry.sequence, entry.kind, entry.value)
    except CorruptError as error:
        yield ListedEntry(error.physical_offset or 0, 0, {}, error.message)


def _listed(
    offset: int, size: int, key: bytes, sequence: int, kind: int, value: bytes, family: int = -1
) -> ListedEntry:
    fields: dict[str, int | str | bytes] = {"key": key, "sequence": sequence, "kind": _KINDS.get(kind, str(kind))}
    if family >= 0:
        fields["family"] = family
    if kind == RANGE_DELETION:
        fields["end"] = value
    elif kind == PUT:
        fields["value"] = value
    return ListedEntry(offset, size, fields)


def _of_records(path: Path) -> Iterator[ListedEntry]:
    data = read_small_file(path, LARGEST_LOG)
    is_manifest = path.suffix != ".log"
    reader = RecordReader(data, 0 if is_manifest else int(path.stem) if path.stem.isdigit() else 0)
    for record in reader:
        try:
            if is_manifest:
                yield ListedEntry(record.position, len(record.data), dict(manifest_edits(record.data)))
                continue
            for family, entry in batch_entries(record.data):
                fields = (entry.key, entry.sequence, entry.kind, entry.value, family)
                yield _listed(record.position, len(record.data), *fields)
        except MalformedError as error:
            yield ListedEntry(record.position, len(record.data), {}, f"record is malformed: {error}")
    if reader.end.is_damage:
        yield ListedEntry(reader.end.position, 0, {}, reader.end.problem)
