"""The key index of a store being recovered: is it whole, and if not, new files beside the store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.layouts import INDEX_ENTRY, INDEX_HEADER
from rmqctl.store.files import io
from rmqctl.store.files.early_flush import EarlyFlush
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import Geometry, IndexFile, files_needed
from rmqctl.store.index.index_service import IndexService, index_file_name_after, newest_has_tag_entry
from rmqctl.store.log.columns import Flags, Int32s, Int64s
from rmqctl.store.log.implied import ENTRY, Run, packed_entries, time_differences
from rmqctl.store.native.units import link_entries
from rmqctl.store.recover.queue_units import IsGone, gone_mask

# Writes index files from keys in the order of the log, as they come: nothing is kept but the file being made.

# slots are written in pieces of this many; pieces of zeros stay holes
_SLOT_PIECE = 16 * 1024


class IndexBuilder:
    """Makes index files with the bytes that RocketMQ would put one by one; only counts without a `directory`.

    `directory` is asked for when the first file is made. Memory: 4 bytes a slot. `close` in any case.
    """

    def __init__(self, geometry: Geometry, directory: Callable[[], Path] | None) -> None:
        self.geometry = geometry
        self.names: list[str] = []
        """Of the files, in order: made, or with no `directory` only counted."""
        self.keys = 0
        self.full_file_end_timestamp = 0
        """Store time of the last entry of the last full file (checkpoint index_msg_timestamp), 0 if none is full."""
        self._directory = directory
        self._made: list[Path] = []
        self._file: _NewFile | None = None

    @property
    def file_count(self) -> int:
        """Index files that the keys so far fill."""
        return -(-self.keys // (self.geometry.entries - 1))

    def add(self, hashes: Int32s, offsets: Int64s, timestamps: Int64s) -> None:
        """Keys of messages with these physical offsets and store times (ms)."""
        per_file = self.geometry.entries - 1
        begin = 0
        while begin < len(hashes):
            used = self.keys % per_file
            end = min(len(hashes), begin + per_file - used)
            if not used:
                self._begin_file(int(timestamps[begin]))
            if self._directory is not None:
                assert self._file is not None
                self._file.put(hashes[begin:end], offsets[begin:end], timestamps[begin:end])
            self.keys += end - begin
            if self.keys % per_file == 0:
                self.full_file_end_timestamp = int(timestamps[end - 1])
                self._end_file()
            begin = end

    def _begin_file(self, moment: int) -> None:
        self.names.append(index_file_name_after(moment, self.names[-1] if self.names else ""))
        if self._directory is not None:
            self._file = _NewFile(self._directory() / self.names[-1], self.geometry)
            self._made.append(self._directory() / self.names[-1])

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.finish()
            self._file = None

    def finish(self) -> list[Path]:
        """The complete files, in order; not flushed."""
        self._end_file()
        return self._made

    def close(self) -> None:
        """Give up the file being made, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None


class _NewFile:
    """One index file. Its entries are written as they come, its slots and its header at the end."""

    def __init__(self, path: Path, geometry: Geometry) -> None:
        self._path = path
        self._geometry = geometry
        self._slots: Int32s = np.zeros(geometry.slots, np.int32)
        self._used = 0
        self._entries = 0
        self._begin = self._end = (0, 0)
        io.create_file(path, geometry.file_size)
        self._descriptor = io.open_for_writing(path)
        self._flush = EarlyFlush(self._descriptor, path)

    def put(self, hashes: Int32s, offsets: Int64s, timestamps: Int64s) -> None:
        """The next entries, which must fit."""
        number = self._entries + 1
        if number == 1:
            self._begin = int(timestamps[0]), int(offsets[0])
        self._end = int(timestamps[-1]), int(offsets[-1])
        previous: Int32s = np.empty(len(hashes), np.int32)
        self._used += link_entries(hashes, self._geometry.slots, self._slots, number, previous)
        packed = packed_entries(hashes, offsets, timestamps, self._begin[0], previous)
        self._entries += len(hashes)
        io.write_at(self._descriptor, self._path, self._geometry.entry_position(number), packed.data)
        self._flush.wrote(packed.nbytes)

    def finish(self) -> None:
        """Slots and header: the file is complete, though not all of it on disk."""
        for begin in range(0, len(self._slots), _SLOT_PIECE):
            piece = self._slots[begin : begin + _SLOT_PIECE]
            if piece.any():
                position = self._geometry.slot_position(begin)
                io.write_at(self._descriptor, self._path, position, piece.astype(">i4").tobytes())
        header = INDEX_HEADER.struct.pack(
            self._begin[0], self._end[0], self._begin[1], self._end[1], self._used, self._entries + 1
        )
        io.write_at(self._descriptor, self._path, 0, header)
        self._flush.finish()
        os.close(self._descriptor)

    def close(self) -> None:
        """Let go of the file."""
        self._flush.close()
        os.close(self._descriptor)


# Whether the index files hold exactly the keys that the log implies: entry by entry as the log is read, and where the
# order differs (RocketMQ repeats entries after a crash) as sets.

_WINDOW = 1 << 18
_SLOT_WINDOW = 1 << 18
_NEVER = 1 << 62


class IndexUnsound(Exception):  # noqa: N818 - a finding that ends a comparison, not a failure
    """Slots and chains of a file are not those that its entries imply, or it ends before its last entry."""


class EntryColumns(NamedTuple):
    """Some entries of index files, in their order. `begins`: the time their file counts from, in ms; -1 for a first
    entry, which RocketMQ counts from the end of the file before."""

    hashes: Int32s
    offsets: Int64s
    differences: Int64s
    begins: Int64s

    def those(self, chosen: slice | Flags | Int64s) -> EntryColumns:
        """Some of them."""
        hashes, offsets, differences, begins = self
        return EntryColumns(hashes[chosen], offsets[chosen], differences[chosen], begins[chosen])


class ImpliedKeys(NamedTuple):
    """Keys that the log implies, in its order, with the store times of their messages in ms.

    `may_lack`: which of them an index may be without: those of tags, as far as RocketMQ did not write them.
    """

    hashes: Int32s
    offsets: Int64s
    timestamps: Int64s
    may_lack: Flags

    def those(self, chosen: Flags) -> ImpliedKeys:
        """Return some of them."""
        hashes, offsets, timestamps, may_lack = self
        return ImpliedKeys(hashes[chosen], offsets[chosen], timestamps[chosen], may_lack[chosen])


class TagRule(NamedTuple):
    """Says of entries of tags whether new files get them, and from which message on (physical offset) none may lack.

    Messages before may be without: a store that a newer broker took over is sound. Where the newest entries of the
    index have tags, its last message and all after it need theirs: dispatch broke off there.
    """

    are_written: bool
    required_from: int = _NEVER

    def implied(self, run: Run) -> ImpliedKeys:
        """Return the keys of a run."""
        may_lack: Flags = run.key_is_tag & (run.key_offsets < self.required_from)
        return ImpliedKeys(run.key_hashes, run.key_offsets, run.key_timestamps, may_lack)


def tag_rule(service: IndexService, log: MappedFileQueue, are_written: bool) -> TagRule:
    """Return the rule for an index as it is."""
    used = [file.header.end_physical_offset for file in service.files if file.header.index_count > 1]
    if not used:
        return TagRule(are_written, 0 if are_written else _NEVER)
    return TagRule(are_written, max(used) if newest_has_tag_entry(service, log) else _NEVER)


_NONE = EntryColumns(np.empty(0, np.int32), *(np.empty(0, np.int64) for _ in range(3)))
_NO_KEYS = ImpliedKeys(_NONE.hashes, _NONE.offsets, _NONE.offsets, np.empty(0, np.bool_))


def entries_of(service: IndexService, descriptors: Descriptors) -> Iterator[EntryColumns]:
    """All entries of all files in windows; IndexUnsound if there is anything wrong with slots and chains."""
    for file in service.files:
        try:
            yield from _entries_of_file(file, descriptors, file is service.files[0])
        except UnreadableError as error:  # what cannot be read is made anew
            raise IndexUnsound(error.message) from error


def _entries_of_file(file: IndexFile, descriptors: Descriptors, is_oldest: bool) -> Iterator[EntryColumns]:
    slots = file.geometry.slots
    table: Int32s = np.zeros(slots, np.int32)
    last = file.header.index_count - 1
    for number in range(1, last + 1, _WINDOW):
        count = min(_WINDOW, last + 1 - number)
        data = file.read_entries(number, count)
        if len(data) < count * INDEX_ENTRY.size:
            raise IndexUnsound("index entries lie behind the end of the file")
        entries = np.frombuffer(data, ENTRY)
        hashes = entries["key_hash"].astype(np.int32)
        previous: Int32s = np.empty(count, np.int32)
        link_entries(hashes, slots, table, number, previous)
        if not np.array_equal(previous, entries["previous_entry"]):
            raise IndexUnsound("an entry leads on to another one than it should")
        begins = np.full(count, file.header.begin_timestamp, np.int64)
        if number == 1 and not is_oldest:
            begins[0] = -1
        offsets, differences = (entries[name].astype(np.int64) for name in ("physical_offset", "time_difference"))
        yield EntryColumns(hashes, offsets, differences, begins)
    for slot in range(0, slots, _SLOT_WINDOW):
        expected = table[slot : slot + _SLOT_WINDOW]
        data = descriptors.read(file.path, file.geometry.slot_position(slot), 4 * len(expected))
        if data != expected.astype(">i4").tobytes():
            raise IndexUnsound("a slot does not hold the newest entry")


class EntryComparison:
    """Holds the entries of index files against keys that pass by in the order of the log.

    `is_broken`: something is wrong for certain, or most of the files are not needed. `is_same`: so far the files held
    these keys in this order with the times of their messages, and besides only entries of messages that are gone.
    """

    def __init__(self, service: IndexService, descriptors: Descriptors, is_gone: IsGone) -> None:
        used = ((file.geometry, max(0, file.header.index_count - 1)) for file in service.files)
        self.is_broken = bool(service.problems) or files_needed(used) is not None
        self.is_same = not self.is_broken
        self._is_gone = is_gone
        self._windows = entries_of(service, descriptors)
        self._window = _NONE

    def add(self, keys: ImpliedKeys, end: int) -> None:
        """Compare the keys of the messages up to physical offset `end`."""
        if not self.is_same:
            return
        try:
            found = self._up_to(end)
        except IndexUnsound:
            self.is_broken, self.is_same = True, False
            return
        there = _those_there(keys, found)
        self.is_same = there is not None
        if there is not None and not _has_times(found, there.timestamps):
            self.is_broken, self.is_same = True, False

    def _up_to(self, end: int) -> EntryColumns:
        """The entries before the first one of a message at or behind `end`, without those of messages that are gone."""
        found: list[EntryColumns] = []
        window: EntryColumns | None = self._window
        while window is not None:
            beyond = window.offsets >= end
            count = int(np.argmax(beyond)) if beyond.any() else len(beyond)
            stays = ~gone_mask(self._is_gone, window.offsets[:count])
            found.append(window.those(slice(count)).those(stays))
            self._window = window.those(slice(count, None))
            if count < len(beyond):
                break
            window = next(self._windows, None)
        return EntryColumns(*map(np.concatenate, zip(*found, strict=True)))

    def finish(self) -> None:
        """There are no more keys: what is left in the files must be of messages that are gone."""
        self.add(_NO_KEYS, _NEVER)
        if self.is_same and len(self._window.offsets):
            self.is_same = False


def _those_there(keys: ImpliedKeys, found: EntryColumns) -> ImpliedKeys | None:
    """Return the keys that `found` has, if it has them in their order and all that it may not lack; else None."""
    for there in (keys, keys.those(~keys.may_lack)):
        if np.array_equal(found.offsets, there.offsets) and np.array_equal(found.hashes, there.hashes):
            return there
    if not keys.may_lack.any() or len(found.offsets) > len(keys.offsets):
        return None
    # where one version followed another: some messages have the entries that they may lack
    base = int(keys.offsets[0])
    if len(found.offsets) and int(found.offsets.min()) < base:
        return None
    codes = _codes(keys.hashes, keys.offsets, base)
    there = keys.those(~keys.may_lack | np.isin(codes, _codes(found.hashes, found.offsets, base)))
    is_same = np.array_equal(found.offsets, there.offsets) and np.array_equal(found.hashes, there.hashes)
    return there if is_same else None


def _codes(hashes: Int32s, offsets: Int64s, base: int) -> Int64s:
    """Return pairs of offset and hash as numbers. A run is of one file, so shorter than 2 GiB from `base` on."""
    codes: Int64s = (offsets - base << 32) | hashes.astype(np.uint32).astype(np.int64)
    return codes


def _has_times(entries: EntryColumns, timestamps: Int64s) -> bool:
    """Whether the entries have the times of their messages."""
    for begin in np.unique(entries.begins).tolist():
        chosen = entries.begins == begin
        expected = time_differences(timestamps[chosen], begin)
        if begin >= 0 and not np.array_equal(expected, entries.differences[chosen]):
            return False
    return True


class IndexSet:
    """All entries of index files whose messages are not gone, each once, in the order of the log.

    Memory: some 48 bytes an entry. IndexUnsound as in `entries_of`.
    """

    def __init__(self, service: IndexService, descriptors: Descriptors, is_gone: IsGone) -> None:
        found = [_NONE]
        for window in entries_of(service, descriptors):
            found.append(window.those(~gone_mask(is_gone, window.offsets)))
        entries = EntryColumns(*map(np.concatenate, zip(*found, strict=True)))
        self._entries = entries.those(np.argsort(entries.offsets, kind="stable"))
        self._at = 0
        self.is_same = True

    def add(self, keys: ImpliedKeys) -> None:
        """Compare the keys of the next messages; all keys of a message at once."""
        if not self.is_same or not len(keys.offsets):
            return
        end = int(np.searchsorted(self._entries.offsets, keys.offsets[-1], side="right"))
        found = self._entries.those(slice(self._at, end))
        self._at = end
        self.is_same = _is_same_set(keys, found)

    def finish(self) -> None:
        """Note that there are no more keys."""
        self.is_same = self.is_same and self._at == len(self._entries.offsets)


def _is_same_set(keys: ImpliedKeys, found: EntryColumns) -> bool:
    """Return whether `found`, ascending by offset, has these keys, each at least once, no others, at their times."""
    base = int(keys.offsets[0])
    if len(found.offsets) and int(found.offsets[0]) < base:
        return False
    implied, first = np.unique(_codes(keys.hashes, keys.offsets, base), return_index=True)
    there = np.unique(_codes(found.hashes, found.offsets, base))
    lacking = ~np.isin(implied, there, assume_unique=True)
    if not np.isin(there, implied, assume_unique=True).all() or not keys.may_lack[first][lacking].all():
        return False
    return _has_times(found, keys.timestamps[np.searchsorted(keys.offsets, found.offsets)])


OnRun = Callable[[Run], None]


class IndexRecovery:
    """Learns the keys of the log run by run.

    Where there is no index, new files are written at once. Where there is one it is compared, and only if it is not
    as it should be the log is read a second time. `directory` is where new files go, None to write none. Runs come with
    the keys of tags, for which `tags` is the rule.
    """

    def __init__(
        self,
        service: IndexService,
        descriptors: Descriptors,
        is_gone: IsGone,
        directory: Callable[[], Path] | None,
        is_wanted: bool,
        tags: TagRule,
    ) -> None:
        self._service = service
        self._descriptors = descriptors
        self._is_gone = is_gone
        self._directory = directory
        self._is_wanted = is_wanted
        self._tags = tags
        self._comparison = EntryComparison(service, descriptors, is_gone)
        is_there = bool(service.files) and not service.problems
        self._builder = IndexBuilder(service.geometry, directory if is_wanted and not is_there else None)
        self.staged: list[Path] = []

    @property
    def geometry(self) -> Geometry:
        """Of the files that the keys fill."""
        return self._builder.geometry

    @property
    def names(self) -> list[str]:
        """Of the files that the keys fill, whether they are made or not."""
        return self._builder.names

    @property
    def full_file_end_timestamp(self) -> int:
        """Store time of the last entry of the last full file (checkpoint index_msg_timestamp), 0 if none is full."""
        return self._builder.full_file_end_timestamp

    def add(self, run: Run) -> None:
        """The log holds this run."""
        if self._is_wanted:
            self._comparison.add(self._tags.implied(run), run.end)
        self._builder.add(*run.keys(with_tags=self._tags.are_written))

    def finish(self, read_again: Callable[[OnRun], None]) -> bool:
        """Whether the index is whole; if not, `staged` has new files. `read_again` gives the runs once more."""
        if not self._is_wanted:
            return True
        comparison = self._comparison
        comparison.finish()
        self.staged = self._builder.finish()
        if comparison.is_same:
            return True
        if not self._service.files or self._service.problems:
            return False
        return self._look_closely(read_again)

    def _look_closely(self, read_again: Callable[[OnRun], None]) -> bool:
        """Compare as sets, and write new files on the way: most likely they are needed."""
        entries: IndexSet | None = None
        if not self._comparison.is_broken:
            with contextlib.suppress(IndexUnsound):
                entries = IndexSet(self._service, self._descriptors, self._is_gone)
        if entries is None and self._directory is None:
            return False
        builder = IndexBuilder(self._service.geometry, self._directory)

        def on_run(run: Run) -> None:
            if entries is not None:
                entries.add(self._tags.implied(run))
            builder.add(*run.keys(with_tags=self._tags.are_written))

        try:
            read_again(on_run)
            self.staged = builder.finish()
        finally:
            builder.close()
        if entries is not None:
            entries.finish()
            if entries.is_same:
                for path in self.staged:
                    io.remove(path)
                self.staged = []
                return True
        return False

    def discard(self) -> None:
        """Give up what was written while runs were added."""
        for path in self._builder.finish():
            io.remove(path)

    def close(self) -> None:
        """Give up what is not complete."""
        self._builder.close()
