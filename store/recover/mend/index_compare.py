"""Whether the index files hold exactly the keys that the log implies: entry by entry as the log is read, and where the
order differs (RocketMQ repeats entries after a crash) as sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.layouts import INDEX_ENTRY
from rmqctl.store.columns.batch import Flags, Int32s, Int64s
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import IndexFile, files_needed
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.index.tag_entries import newest_has_tag_entry
from rmqctl.store.recover.mend.gone import IsGone, gone_mask
from rmqctl.store.survey.index_entries import ENTRY, index_kernels, time_differences
from rmqctl.store.survey.log_runs import Run

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
    link = index_kernels().link
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
        link(hashes, slots, table, number, previous)
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
