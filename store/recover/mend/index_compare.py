"""Whether the index files hold exactly the keys that the log implies: entry by entry as the log is read, and where the
order differs (RocketMQ repeats entries after a crash) as sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.layouts import INDEX_ENTRY
from rmqctl.store.columns.batch import Flags, Int32s, Int64s
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import IndexFile
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.recover.mend.gone import IsGone, gone_mask
from rmqctl.store.survey.index_entries import ENTRY, kernels, time_differences

_WINDOW = 1 << 18
_SLOT_WINDOW = 1 << 18


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


_NONE = EntryColumns(np.empty(0, np.int32), *(np.empty(0, np.int64) for _ in range(3)))


def entries_of(service: IndexService, descriptors: Descriptors) -> Iterator[EntryColumns]:
    """All entries of all files in windows; IndexUnsound if there is anything wrong with slots and chains."""
    for file in service.files:
        try:
            yield from _entries_of_file(file, descriptors, file is service.files[0])
        except UnreadableError as error:  # what cannot be read is made anew
            raise IndexUnsound(error.message) from error


def _entries_of_file(file: IndexFile, descriptors: Descriptors, is_oldest: bool) -> Iterator[EntryColumns]:
    slots = file.geometry.slots
    link = kernels().link
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

    `is_broken`: something is wrong for certain. `is_same`: so far the files held these keys in this order with the
    times of their messages, and besides only entries of messages that are gone.
    """

    def __init__(self, service: IndexService, descriptors: Descriptors, is_gone: IsGone) -> None:
        self.is_broken = bool(service.problems)
        self.is_same = not self.is_broken
        self._is_gone = is_gone
        self._windows = entries_of(service, descriptors)
        self._window = _NONE

    def add(self, hashes: Int32s, offsets: Int64s, timestamps: Int64s, end: int) -> None:
        """The keys of the messages up to physical offset `end`; `timestamps`: their store times, in ms."""
        if not self.is_same:
            return
        try:
            found = self._up_to(end)
        except IndexUnsound:
            self.is_broken, self.is_same = True, False
            return
        self.is_same = np.array_equal(found.offsets, offsets) and np.array_equal(found.hashes, hashes)
        if self.is_same and not _has_times(found, timestamps):
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
        self.add(_NONE.hashes, _NONE.offsets, _NONE.offsets, 1 << 62)
        if self.is_same and len(self._window.offsets):
            self.is_same = False


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
        self._offsets, self._codes = _distinct(entries.hashes, entries.offsets)
        self._messages = self._keys = 0
        self.is_same = True

    def add(self, hashes: Int32s, offsets: Int64s, timestamps: Int64s) -> None:
        """The keys of the next messages, with their store times in ms; all keys of a message at once."""
        if not self.is_same or not len(offsets):
            return
        messages, codes = _distinct(hashes, offsets)
        there = self._offsets[self._messages : self._messages + len(messages)]
        keys = self._codes[self._keys : self._keys + len(codes)]
        self.is_same = np.array_equal(there, messages) and np.array_equal(keys, codes + (self._messages << 32))
        self.is_same = self.is_same and self._has_times(messages, timestamps[np.searchsorted(offsets, messages)])
        self._messages += len(messages)
        self._keys += len(codes)

    def _has_times(self, messages: Int64s, timestamps: Int64s) -> bool:
        """Whether all entries of these messages, which have some, have their times."""
        sorted_offsets = self._entries.offsets
        begin = int(np.searchsorted(sorted_offsets, messages[0]))
        end = int(np.searchsorted(sorted_offsets, messages[-1], side="right"))
        entries = self._entries.those(slice(begin, end))
        return _has_times(entries, timestamps[np.searchsorted(messages, entries.offsets)])

    def finish(self) -> None:
        """There are no more keys."""
        self.is_same = self.is_same and self._keys == len(self._codes)


def _distinct(hashes: Int32s, offsets: Int64s) -> tuple[Int64s, Int64s]:
    """The offsets, each once, ascending; and the pairs, each once, in order: the place of the offset in the upper, the
    hash in the lower half."""
    if len(offsets) and not (offsets[1:] >= offsets[:-1]).all():
        order = np.argsort(offsets, kind="stable")
        hashes, offsets = hashes[order], offsets[order]
    is_first = np.ones(len(offsets), np.bool_)
    is_first[1:] = offsets[1:] != offsets[:-1]
    codes = np.cumsum(is_first) - 1
    codes <<= 32
    codes |= hashes.view(np.uint32)
    codes.sort()
    is_new = np.ones(len(codes), np.bool_)
    is_new[1:] = codes[1:] != codes[:-1]
    return offsets[is_first], codes[is_new]
