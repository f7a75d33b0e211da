"""Puts many index entries at once: the same files as `IndexFile.put` makes one entry after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import DiskFullError
from rmqctl.formats.layouts import INDEX_SLOT
from rmqctl.store.columns.batch import Int32s, Int64s
from rmqctl.store.files import io
from rmqctl.store.files.writable_map import WritableMap
from rmqctl.store.index.index_file import IndexFile, IndexHeader
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.survey.index_entries import index_kernels, new_words

_SLOT = np.dtype(">i4")
# the first entries for a file are put one by one: its slots are opened where there are more than a few
_FEW = 256
# the slots of a file are not reserved where that would leave less
_KEPT_FREE = 256 * 1024 * 1024


class NewEntries(NamedTuple):
    """Index entries in the order of the log: hash of the key, physical offset and store time (ms) of the message."""

    hashes: Int32s
    offsets: Int64s
    timestamps: Int64s

    def part(self, begin: int, end: int) -> NewEntries:
        """Entries [begin, end)."""
        return NewEntries(self.hashes[begin:end], self.offsets[begin:end], self.timestamps[begin:end])


class _OpenSlots:
    """The slots of one file: a copy as machine integers, and the mapped bytes that follow it."""

    def __init__(self, file: IndexFile) -> None:
        geometry = file.geometry
        begin, end = geometry.slot_position(0), geometry.slot_position(geometry.slots - 1) + INDEX_SLOT.size
        self.file = file
        found = np.frombuffer(file.read_slots(), _SLOT).astype(np.int32)
        found[(found < 0) | (found >= file.header.index_count)] = 0  # no entry's number: see IndexFile.slot
        self.newest: Int32s = found
        self._map = WritableMap(file.path, end, 0)
        try:
            self._map.reserve(end)
        except BaseException:
            self._map.close()
            raise
        self._view = self._map.view(begin, end)

    def set(self, slots: Int64s) -> None:
        """Bring these slots of the file up to date."""
        self._map.will_write(self.file.geometry.slot_position(0), len(slots) * INDEX_SLOT.size)
        bytes_of_slots = np.frombuffer(self._view, _SLOT)
        bytes_of_slots[slots] = self.newest[slots]

    def close(self) -> None:
        """Let go of the map."""
        self._view.release()
        self._map.close()


class IndexBatches:
    """Adds entries to the last file of an index and opens new ones. Used by one thread."""

    def __init__(self, service: IndexService) -> None:
        self._service = service
        self._open: _OpenSlots | None = None
        self._put_singly: tuple[IndexFile | None, int] = (None, 0)

    def put(self, entries: NewEntries) -> int:
        """Add `entries`; the store time of the last one that filled a file, 0 if none did. Not flushed, but full
        files are."""
        full_timestamp = 0
        begin = 0
        while begin < len(entries.hashes):
            file = self._service.open_file(int(entries.timestamps[begin]))
            end = min(len(entries.hashes), begin + file.geometry.entries - file.header.index_count)
            self._put(file, entries.part(begin, end))
            if file.is_full:
                self.close()
                file.close()
                full_timestamp = file.header.end_timestamp
            begin = end
        return full_timestamp

    def _put(self, file: IndexFile, entries: NewEntries) -> None:
        opened = self._opened(file, len(entries.hashes))
        if opened is None:
            for entry in zip(*(column.tolist() for column in entries), strict=True):
                file.put(*entry)
            return
        header = file.header
        is_first = header.index_count <= 1
        begin_timestamp = int(entries.timestamps[0]) if is_first else header.begin_timestamp
        link, pack = index_kernels()
        previous: Int32s = np.empty(len(entries.hashes), np.int32)
        used = link(entries.hashes, file.geometry.slots, opened.newest, header.index_count, previous)
        words = new_words(len(entries.hashes))
        pack(*entries, begin_timestamp, previous, words)
        file.put_entries(
            words.view(np.uint8).data,
            IndexHeader(
                begin_timestamp,
                int(entries.timestamps[-1]),
                int(entries.offsets[0]) if is_first else header.begin_physical_offset,
                int(entries.offsets[-1]),
                header.hash_slot_count + used,
                header.index_count + len(entries.hashes),
            ),
        )
        opened.set(entries.hashes.astype(np.int64) % file.geometry.slots)

    def _opened(self, file: IndexFile, count: int) -> _OpenSlots | None:
        """The slots of `file`; None for few entries so far, and where there is no room to reserve slots in."""
        if self._open is not None and self._open.file is file:
            return self._open
        self.close()
        before = self._put_singly[1] if self._put_singly[0] is file else 0
        self._put_singly = file, before + count
        if before + count < min(_FEW, file.geometry.slots):
            return None
        needed = file.geometry.slots * INDEX_SLOT.size
        if io.free_bytes(self._service.directory) < needed + _KEPT_FREE:
            return None
        try:
            self._open = _OpenSlots(file)
        except DiskFullError:
            return None
        return self._open

    def close(self) -> None:
        """Let go of the slots; what was put stays."""
        if self._open is not None:
            self._open.close()
            self._open = None
