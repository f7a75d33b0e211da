"""A RocksDB as it is on disk: the newest value of each key, from its tables and write-ahead logs."""

from __future__ import annotations

import heapq
import struct
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, chain, groupby, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import CorruptError, RemovedError, UnreadableError
from rmqctl.formats.layouts import ROCKSDB_BATCH
from rmqctl.store.files.io import TemporaryFile
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.native.units import LARGEST_KEYS, entries_of_batch
from rmqctl.store.options import Events
from rmqctl.store.rocksdb.manifest import ColumnFamily, Manifest, TableFile, read_manifest
from rmqctl.store.rocksdb.records import MalformedError, RecordReader, prefixed, varint
from rmqctl.store.rocksdb.table import DELETION, PUT, RANGE_DELETION, SINGLE_DELETION, KeyEntry, Report, SortedTable

# Entries of write-ahead logs in the order of their keys: in memory up to a limit, beyond it in a temporary file
LARGEST_IN_MEMORY = 32 << 20
"""Bytes of entries that are held in memory; more are sorted and written out."""
_MOST_DELETIONS = 1 << 16
# what Python needs for an entry besides key and value
_OBJECTS = 300

Logged = tuple[int, bytes, int, int, bytes]
"""An entry of a log, which sorts by what comes first: family, key, sequence number below 0, kind, value."""


class LoggedEntries:
    """Takes entries in any order, then gives those of a family by key, the newest first. `deletions`: the ranges that
    were deleted, by family, which are no entries of a key."""

    def __init__(self) -> None:
        self.deletions: dict[int, list[KeyEntry]] = {}
        self._counts: Counter[int] = Counter()
        self._held: list[Logged] = []
        self._size = 0
        self._is_sorted = True
        self._runs: list[_Run] = []
        self._file: TemporaryFile | None = None

    def take(self, entries: list[Logged]) -> None:
        """Take entries, which are one batch or some. Raises: WriteFailedError."""
        self._counts.update(map(_family, entries))
        self._held += entries
        self._is_sorted = False
        self._size += sum(len(one[1]) + len(one[4]) for one in entries) + _OBJECTS * len(entries)
        if self._size > LARGEST_IN_MEMORY:
            if self._file is None:
                self._file = TemporaryFile()
            self._runs.append(_Run(self._file, self._sorted()))
            self._held, self._size = [], 0

    def delete(self, family: int, entry: KeyEntry) -> None:
        """Take a deleted range. Raises: CorruptError for more of them than any database has."""
        self._counts[family] += 1
        deletions = self.deletions.setdefault(family, [])
        if len(deletions) >= _MOST_DELETIONS:
            raise CorruptError(f"more than {_MOST_DELETIONS} ranges of keys are deleted")
        deletions.append(entry)

    def count(self, family: int) -> int:
        """Return how many entries of a family were taken, deletions included."""
        return self._counts[family]

    def within(self, family: int, begin: bytes, end: bytes | None) -> list[Iterator[list[KeyEntry]]]:
        """Return streams of the entries of a family with keys in [begin, end), `end` None: to the last; all versions of
        a key, some entries at a time."""
        held: list[Any] = self._sorted()
        first = bisect_left(held, (family, begin))
        last = bisect_left(held, (family + 1,) if end is None else (family, end))
        parts = (held[at : min(last, at + _LOGGED_AT_ONCE)] for at in range(first, last, _LOGGED_AT_ONCE))
        found: list[Iterator[list[KeyEntry]]] = [
            ([KeyEntry(key, -below, kind, value) for _, key, below, kind, value in part] for part in parts)
        ]
        return found + [run.entries(family, begin, end) for run in self._runs]

    def has_within(self, family: int, begin: bytes, end: bytes | None) -> bool:
        """Return whether there is such an entry."""
        return any(any(stream) for stream in self.within(family, begin, end))

    def _sorted(self) -> list[Logged]:
        if not self._is_sorted:
            self._held.sort()
            self._is_sorted = True
        return self._held


class _Run:
    """Sorted entries in a part of the file, of each key the newest: in blocks of one family, each with a mark."""

    def __init__(self, file: TemporaryFile, entries: list[Logged]) -> None:
        self._file = file
        self._marks: list[tuple[int, bytes]] = []
        self._places: list[int] = []
        for family, of_family in groupby(entries, _family):
            newest = (next(of_key) for _, of_key in groupby(of_family, _logged_key))
            while block := list(islice(newest, _LOGGED_AT_ONCE)):
                _, keys, below, kinds, values = zip(*block, strict=True)
                self._marks.append((family, keys[0]))
                self._places.append(file.size)
                numbers = (*map(len, keys), *map(len, values), *map(abs, below), *kinds)
                file.append(b"".join((_COUNT.pack(len(keys)), _head(len(keys)).pack(*numbers), *keys, *values)))
        self._places.append(file.size)

    def entries(self, family: int, begin: bytes, end: bytes | None) -> Iterator[list[KeyEntry]]:
        """Yield the entries of this family with keys in [begin, end), a block at a time."""
        for number in range(max(bisect_right(self._marks, (family, begin)) - 1, 0), len(self._marks)):
            of, first = self._marks[number]
            if of > family or (of == family and end is not None and first >= end):
                return
            if of < family:
                continue
            block = self._block(self._places[number], self._places[number + 1])
            low = bisect_left(block, begin, key=_key)
            high = len(block) if end is None else bisect_left(block, end, key=_key)
            if low < high:
                yield block[low:high]

    def _block(self, position: int, end: int) -> list[KeyEntry]:
        data = self._file.read(position, end - position)
        (count,) = _COUNT.unpack_from(data)
        head = _head(count)
        numbers = head.unpack_from(data, _COUNT.size)
        places = list(accumulate(numbers[: 2 * count], initial=_COUNT.size + head.size))
        texts = [data[at:after] for at, after in pairwise(places)]
        sequences, kinds = numbers[2 * count : 3 * count], numbers[3 * count :]
        return list(map(KeyEntry, texts[:count], sequences, kinds, texts[count:]))


_COUNT = struct.Struct("<I")


def _head(count: int) -> struct.Struct:
    """Sizes of keys and values, sequence numbers and kinds."""
    return struct.Struct(f"<{2 * count}I{count}Q{count}B")


# kinds in a log, with the same kinds of entries for a family other than the default one
_IN_FAMILY = {4: DELETION, 5: PUT, 8: SINGLE_DELETION, 14: RANGE_DELETION}
_IN_DEFAULT = (PUT, DELETION, SINGLE_DELETION, RANGE_DELETION)
_LOG_DATA = 3
_MOST_DAMAGE = 1000
_MOST_MERGED = 32
_LOGGED_AT_ONCE = 256
_key, _sequence = itemgetter(0), itemgetter(1)
_family, _logged_key = itemgetter(0), itemgetter(1)
_TAKEN_AT_ONCE = 4096
_LARGEST_SEQUENCE = (1 << 56) - 1
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
        self._logged: LoggedEntries | None = None
        self._log_damage: list[CorruptError] = []
        self._tables: dict[int, SortedTable] = {}
        self._deletions: dict[int, tuple[_Deletions, list[CorruptError]]] = {}

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
        logged = self._of_logs(on_damage)
        deletions = self._range_deletions(number, described, on_damage)
        within = [
            one for one in described.tables.values() if one.largest >= begin and (end is None or one.smallest < end)
        ]
        within.sort(key=lambda table: table.smallest)
        tables = [self._entries(self._table(described, one.number), begin, end, on_damage) for one in within]
        is_apart = all(left.largest < right.smallest for left, right in pairwise(within))
        if is_apart and not logged.has_within(number, begin, end):
            parts: Iterator[list[KeyEntry]] = chain.from_iterable(tables)
        else:
            parts = _merged([*logged.within(number, begin, end), *tables])
        last: bytes | None = None
        for part in parts:
            for entry in part:
                key, _, kind, value = entry
                if key == last:
                    continue
                last = key
                if kind == PUT and not (deletions.any and deletions.hide(entry)):
                    yield key, value

    def blocks(self, family: str, begin: bytes, end: bytes) -> Iterator[tuple[bytes, int]] | None:
        """Return the plain data blocks that have all that is written of keys in [begin, end), with where their entries
        end; None where that is in a log, or in a range that was deleted. Raises: CorruptError, UnreadableError."""
        number, described = self._families[family]
        logged = self._of_logs(Events().damaged)
        deletions = self._range_deletions(number, described, Events().damaged)
        if logged.has_within(number, begin, end) or deletions.may_hide(begin, end):
            return None
        tables = (one for one in described.tables.values() if one.largest >= begin and one.smallest < end)
        return chain.from_iterable(self._blocks(described, one.number, begin, end) for one in tables)

    def _blocks(self, family: ColumnFamily, table: int, begin: bytes, end: bytes) -> Iterator[tuple[bytes, int]]:
        try:
            yield from self._table(family, table).blocks_within(begin, end)
        except RemovedError as error:
            self._gone(error, Events().damaged)

    def entry_count(self, family: str, on_damage: Report = Events().damaged) -> int:
        """Return how many entries tables and logs have for a family, stale ones included; each key has one at least."""
        found = self._families.get(family)
        if found is None:
            return 0
        number, described = found
        count = self._of_logs(on_damage).count(number)
        for table in described.tables:
            try:
                count += self._table(described, table).entry_count
            except RemovedError as error:
                self._gone(error, on_damage)
            except CorruptError as error:
                on_damage(error)
        return count

    def _entries(
        self, table: SortedTable, begin: bytes, end: bytes | None, on_damage: Report
    ) -> Iterator[list[KeyEntry]]:
        try:
            yield from table.entries(begin, end, on_damage)
        except RemovedError as error:
            self._gone(error, on_damage)
        except CorruptError as error:
            on_damage(error)

    def _range_deletions(self, number: int, family: ColumnFamily, on_damage: Report) -> _Deletions:
        """Return the deleted ranges of a family, read once; their damage is reported each time."""
        if number not in self._deletions:
            self._deletions[number] = self._read_deletions(number, family)
        deletions, damage = self._deletions[number]
        for one in damage:
            on_damage(one)
        return deletions

    def _read_deletions(self, number: int, family: ColumnFamily) -> tuple[_Deletions, list[CorruptError]]:
        damage: list[CorruptError] = []
        found = list(self._of_logs(lambda error: None).deletions.get(number, ()))
        for table in family.tables:
            try:
                found += self._table(family, table).range_deletions()
                if len(found) > _MOST_DELETIONS or sum(len(one.key) + len(one.value) for one in found) > LARGEST_KEYS:
                    found = []
                    raise CorruptError(f"more than {_MOST_DELETIONS} ranges of keys are deleted", file=self.folder)
            except RemovedError as error:
                self._gone(error, damage.append)
            except CorruptError as error:
                damage.append(error)
        return _Deletions(found), damage

    @cached_property
    def damage(self) -> tuple[CorruptError, ...]:
        """All damage of tables and logs, each place once. Reads the whole database. UnreadableError."""
        found: dict[str, CorruptError] = {}

        def report(error: CorruptError) -> None:
            found[str(error)] = error

        for number, described in self._families.values():
            self._of_logs(report)
            self._range_deletions(number, described, report)
            for table in described.tables:
                try:
                    self._table(described, table).check(report)
                except RemovedError as error:
                    self._gone(error, report)
                except CorruptError as error:
                    report(error)
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
            if path.suffix in (".sst", ".log") and path.stem.isdecimal() and path.name not in named:
                found.append(path)
        return found

    def logs(self) -> list[Path]:
        """Return the write-ahead logs that hold entries which no table has, oldest first. UnreadableError."""
        try:
            paths = sorted(path for path in self.folder.iterdir() if path.suffix == ".log" and path.stem.isdecimal())
        except OSError as error:
            raise UnreadableError(f"cannot be listed: {error.strerror}", file=self.folder) from error
        first = min((family.log_number for family in self.manifest.families.values()), default=0)
        first = max(first, self.manifest.min_log_number)
        return sorted((path for path in paths if int(path.stem) >= first), key=lambda path: int(path.stem))

    def _of_logs(self, on_damage: Report) -> LoggedEntries:
        """Return the entries of the logs; their damage is reported each time. UnreadableError, WriteFailedError."""
        if self._logged is None:
            logged = LoggedEntries()
            for path in self.logs():
                self._replay(path, logged)
            self._logged = logged
        for error in self._log_damage:
            on_damage(error)
        return self._logged

    def _replay(self, path: Path, logged: LoggedEntries) -> None:
        number = int(path.stem)
        wanted = {id_ for id_, family in self.manifest.families.items() if number >= family.log_number}
        reader = RecordReader(path, number, self._descriptors)
        held: list[Logged] = []
        try:
            for record in reader:
                try:
                    entries = entries_of_batch(record.data)
                    if entries is None:
                        entries = _with_deletions(batch_entries(record.data), wanted, logged)
                    held += entries
                except (MalformedError, CorruptError) as error:
                    if len(self._log_damage) < _MOST_DAMAGE:
                        said = f"batch is malformed: {error.args[0]}"
                        self._log_damage.append(CorruptError(said, file=path, physical_offset=record.position))
                if len(held) >= _TAKEN_AT_ONCE:
                    logged.take([one for one in held if one[0] in wanted])
                    held = []
        except FileNotFoundError:
            return
        finally:
            logged.take([one for one in held if one[0] in wanted])
        # the torn end of a killed writer is no damage: RocksDB starts without a word
        if reader.end.is_damage:
            self._log_damage.append(CorruptError(reader.end.problem, file=path, physical_offset=reader.end.position))


def batch_entries(data: bytes) -> Iterator[tuple[int, KeyEntry]]:
    """Yield the entries of a batch in a write-ahead log, with the ids of their families. Raises: MalformedError."""
    if len(data) < ROCKSDB_BATCH.struct.size:
        raise MalformedError("a batch is shorter than its head")
    sequence, _ = ROCKSDB_BATCH.struct.unpack_from(data, 0)
    if sequence > _LARGEST_SEQUENCE:
        raise MalformedError("a sequence number is too large")
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


def _with_deletions(entries: Iterator[tuple[int, KeyEntry]], wanted: set[int], logged: LoggedEntries) -> list[Logged]:
    """Return the entries of a batch, without ranges that were deleted, which `logged` takes."""
    found: list[Logged] = []
    for family, entry in entries:
        if entry.kind != RANGE_DELETION:
            found.append((family, entry.key, -entry.sequence, entry.kind, entry.value))
        elif family in wanted:
            logged.delete(family, entry)
    return found


def _parts(entries: Iterator[KeyEntry]) -> Iterator[list[KeyEntry]]:
    while part := list(islice(entries, _LOGGED_AT_ONCE)):
        yield part


def _newest_first_by_key(entry: KeyEntry) -> tuple[bytes, int]:
    return entry.key, -entry.sequence


def _merged(streams: list[Iterator[list[KeyEntry]]]) -> Iterator[list[KeyEntry]]:
    """Yield the entries of all streams by key, the newest first for each; parts of some length."""
    if len(streams) > _MOST_MERGED:
        yield from _parts(heapq.merge(*map(chain.from_iterable, streams), key=_newest_first_by_key))
        return
    held = [next(stream, []) for stream in streams]
    while any(held):
        bound = min(part[-1].key for part in held if part)
        taken: list[KeyEntry] = []
        ended = []
        for number, part in enumerate(held):
            if part and part[-1].key == bound:
                taken += part
                ended.append(number)
            elif part and part[0].key <= bound:
                at = bisect_right(part, bound, key=_key)
                taken += part[:at]
                held[number] = part[at:]
        # twice, in C: what is equal keeps its order
        taken.sort(key=_sequence, reverse=True)
        taken.sort(key=_key)
        yield taken
        # as they would be read one by one
        for number in sorted(ended, key=lambda number: -held[number][-1].sequence):
            held[number] = next(streams[number], [])


class _Deletions:
    """Deleted ranges of keys: for each key the newest sequence number of one that covers it."""

    def __init__(self, deletions: list[KeyEntry]) -> None:
        self.any = bool(deletions)
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

    def may_hide(self, begin: bytes, end: bytes) -> bool:
        """Return whether keys in [begin, end) may be in one."""
        return self.any and self._bounds[0] < end and begin < self._bounds[-1]

    def hide(self, entry: KeyEntry) -> bool:
        """Return whether a range that was deleted after the entry was written covers its key."""
        at = bisect_right(self._bounds, entry.key) - 1
        return 0 <= at < len(self._newest) and self._newest[at] > entry.sequence
