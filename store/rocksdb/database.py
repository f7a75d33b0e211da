"""A RocksDB as it is on disk: the newest value of each key, from its tables and write-ahead logs."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from rmqctl.formats.errors import CorruptError, RemovedError, UnreadableError
from rmqctl.formats.layouts import ROCKSDB_BATCH
from rmqctl.store.files.reading import Descriptors, read_small_file
from rmqctl.store.options import Events
from rmqctl.store.rocksdb.coding import MalformedError, prefixed, varint
from rmqctl.store.rocksdb.manifest import ColumnFamily, Manifest, TableFile, read_manifest
from rmqctl.store.rocksdb.records import RecordReader
from rmqctl.store.rocksdb.table import (
    DELETION,
    PUT,
    RANGE_DELETION,
    SINGLE_DELETION,
    KeyEntry,
    Report,
    SortedTable,
)

LARGEST_LOG = 4 << 30
"""Bytes of a write-ahead log that are read at most."""
# kinds in a log, with the same kinds of entries for a family other than the default one
_IN_FAMILY = {4: DELETION, 5: PUT, 8: SINGLE_DELETION, 14: RANGE_DELETION}
_IN_DEFAULT = (PUT, DELETION, SINGLE_DELETION, RANGE_DELETION)
_LOG_DATA = 3
_NOOPS = (9, 10, 11, 12, 13)
"""Marks of two-phase commits and no-ops; RocketMQ writes none but the no-op."""


class Database:
    """The column families of one database. Nothing in the folder is opened for writing.

    `manifest`: what it names. A running broker may replace tables meanwhile: UnreadableError asks to run again.
    """

    def __init__(self, folder: Path, descriptors: Descriptors | None = None) -> None:
        self.folder = folder
        self.manifest: Manifest = read_manifest(folder)
        self._descriptors = descriptors or Descriptors()
        self._families = self.manifest.by_name()
        self._logged: dict[int, list[KeyEntry]] | None = None
        self._log_damage: list[CorruptError] = []
        self._tables: dict[int, SortedTable] = {}
        self._deletions: dict[int, _Deletions] = {}

    @property
    def families(self) -> list[str]:
        """Names of the column families."""
        return sorted(self._families)

    def get(self, family: str, key: bytes, on_damage: Report = Events().damaged) -> bytes | None:
        """Return the value of `key`; None without an entry. Raises as `scan`."""
        for _, value in self.scan(family, on_damage, key, key + b"\0"):
            return value
        return None

    def scan(
        self, family: str, on_damage: Report = Events().damaged, begin: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys in [begin, end) with their values, in the order of their bytes; nothing for a family that is not
        there. Damage of a block, a table or a log is reported, and what it holds is left out.

        Raises: CorruptError where nothing takes the report; UnreadableError.
        """
        found = self._families.get(family)
        if found is None:
            return
        number, described = found
        logged = self._of_log(number, on_damage)
        deletions = self._range_deletions(number, described, logged, on_damage)
        sources: list[Iterable[KeyEntry]] = [_within(logged, begin, end)]
        for table in described.tables.values():
            if table.largest >= begin and (end is None or table.smallest < end):
                sources.append(self._entries(self._table(described, table.number), begin, end, on_damage))
        last: bytes | None = None
        for entry in heapq.merge(*sources, key=lambda entry: (entry.key, -entry.sequence)):
            if entry.key == last:
                continue
            last = entry.key
            if entry.kind == PUT and not deletions.hide(entry):
                yield entry.key, entry.value

    def _entries(self, table: SortedTable, begin: bytes, end: bytes | None, on_damage: Report) -> Iterator[KeyEntry]:
        try:
            yield from table.entries(begin, end, on_damage)
        except RemovedError as error:
            self._gone(error, on_damage)
        except CorruptError as error:
            on_damage(error)

    def _range_deletions(
        self, number: int, family: ColumnFamily, logged: list[KeyEntry], on_damage: Report
    ) -> _Deletions:
        """Return the deleted ranges of a family; read once, unless damage is to be reported again."""
        if number in self._deletions:
            return self._deletions[number]
        damage: list[CorruptError] = []
        found = [entry for entry in logged if entry.kind == RANGE_DELETION]
        for table in family.tables:
            try:
                found += self._table(family, table).range_deletions()
            except RemovedError as error:
                self._gone(error, damage.append)
            except CorruptError as error:
                damage.append(error)
        for one in damage:
            on_damage(one)
        deletions = _Deletions(found)
        if not damage:
            self._deletions[number] = deletions
        return deletions

    @cached_property
    def damage(self) -> tuple[CorruptError, ...]:
        """All damage of tables and logs, each place once. Reads the whole database. UnreadableError."""
        found: dict[str, CorruptError] = {}
        for family in self.families:
            for _ in self.scan(family, lambda error: found.update({str(error): error})):
                pass
        return tuple(found.values())

    def _gone(self, error: RemovedError, on_damage: Report) -> None:
        """Report a table that is missing; raise UnreadableError where a broker has replaced it meanwhile."""
        if read_manifest(self.folder) != self.manifest:
            raise UnreadableError(
                "a broker is writing this database and removed a table that was being read",
                file=error.file,
                hint="run the command again",
            ) from error
        on_damage(CorruptError("the manifest names this table, and it is missing", file=error.file))

    def _table(self, family: ColumnFamily, number: int) -> SortedTable:
        if number not in self._tables:
            file = family.tables[number]
            self._tables[number] = SortedTable(self.folder / file.name, file.size, self._descriptors)
        return self._tables[number]

    def tables(self) -> list[TableFile]:
        """Return the tables of all families, by number."""
        found = [table for family in self.manifest.families.values() for table in family.tables.values()]
        return sorted(found, key=lambda table: table.number)

    def unused_files(self) -> list[Path]:
        """Return tables that the manifest does not name, and logs of which no family needs anything."""
        named = {table.name for table in self.tables()} | {path.name for path in self.logs()}
        found = []
        for path in sorted(self.folder.iterdir()):
            if path.suffix in (".sst", ".log") and path.stem.isdigit() and path.name not in named:
                found.append(path)
        return found

    def logs(self) -> list[Path]:
        """Return the write-ahead logs that hold entries which no table has, oldest first. UnreadableError."""
        try:
            paths = sorted(path for path in self.folder.iterdir() if path.suffix == ".log" and path.stem.isdigit())
        except OSError as error:
            raise UnreadableError(f"cannot be listed: {error.strerror}", file=self.folder) from error
        first = min((family.log_number for family in self.manifest.families.values()), default=0)
        first = max(first, self.manifest.min_log_number)
        return sorted((path for path in paths if int(path.stem) >= first), key=lambda path: int(path.stem))

    def _of_log(self, family: int, on_damage: Report) -> list[KeyEntry]:
        """Return the entries of a family in the logs, by key and newest first."""
        if self._logged is None:
            logged: dict[int, list[KeyEntry]] = {number: [] for number in self.manifest.families}
            for path in self.logs():
                self._replay(path, logged)
            for entries in logged.values():
                entries.sort(key=lambda entry: (entry.key, -entry.sequence))
            self._logged = logged
        for error in self._log_damage:
            on_damage(error)
        return self._logged[family]

    def _replay(self, path: Path, logged: dict[int, list[KeyEntry]]) -> None:
        number = int(path.stem)
        try:
            data = read_small_file(path, LARGEST_LOG)
        except FileNotFoundError:
            return
        wanted = {id_ for id_, family in self.manifest.families.items() if number >= family.log_number}
        reader = RecordReader(data, number)
        for record in reader:
            try:
                for family, entry in batch_entries(record.data):
                    if family in wanted:
                        logged[family].append(entry)
            except MalformedError as error:
                self._log_damage.append(
                    CorruptError(f"batch is malformed: {error}", file=path, physical_offset=record.position)
                )
        # the torn end of a killed writer is no damage: RocksDB starts without a word
        if reader.end.is_damage:
            self._log_damage.append(CorruptError(reader.end.problem, file=path, physical_offset=reader.end.position))


def batch_entries(data: bytes) -> Iterator[tuple[int, KeyEntry]]:
    """Yield the entries of a batch in a write-ahead log, with the ids of their families. Raises: MalformedError."""
    if len(data) < ROCKSDB_BATCH.struct.size:
        raise MalformedError("a batch is shorter than its head")
    sequence, _ = ROCKSDB_BATCH.struct.unpack_from(data, 0)
    position = ROCKSDB_BATCH.struct.size
    while position < len(data):
        kind, family = data[position], 0
        position += 1
        if kind in _NOOPS:
            continue
        if kind == _LOG_DATA:
            _, position = prefixed(data, position)
            continue
        if kind in _IN_FAMILY:
            family, position = varint(data, position)
            kind = _IN_FAMILY[kind]
        elif kind not in _IN_DEFAULT:
            raise MalformedError(f"entries of kind {kind} are not known")
        key, position = prefixed(data, position)
        value = b""
        if kind in (PUT, RANGE_DELETION):
            value, position = prefixed(data, position)
        yield family, KeyEntry(key, sequence, kind, value)
        sequence += 1


def _within(entries: list[KeyEntry], begin: bytes, end: bytes | None) -> list[KeyEntry]:
    low = bisect_left(entries, begin, key=lambda entry: entry.key)
    high = len(entries) if end is None else bisect_left(entries, end, key=lambda entry: entry.key)
    return [entry for entry in entries[low:high] if entry.kind != RANGE_DELETION]


class _Deletions:
    """Deleted ranges of keys: for each key the newest sequence number of one that covers it."""

    def __init__(self, deletions: list[KeyEntry]) -> None:
        self._bounds = sorted({bound for entry in deletions for bound in (entry.key, entry.value)})
        self._newest: list[int] = []
        by_begin = sorted(deletions, key=lambda entry: entry.key)
        active: list[tuple[int, bytes]] = []
        following = 0
        for bound, _ in pairwise(self._bounds):
            while following < len(by_begin) and by_begin[following].key <= bound:
                heapq.heappush(active, (-by_begin[following].sequence, by_begin[following].value))
                following += 1
            while active and active[0][1] <= bound:
                heapq.heappop(active)
            self._newest.append(-active[0][0] if active else -1)

    def hide(self, entry: KeyEntry) -> bool:
        """Return whether a range that was deleted after the entry was written covers its key."""
        at = bisect_right(self._bounds, entry.key) - 1
        return 0 <= at < len(self._newest) and self._newest[at] > entry.sequence
