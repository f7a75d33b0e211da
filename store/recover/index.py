"""The key index of a store being recovered: is it whole, and if not, new files beside the store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.layouts import INDEX_HEADER
from rmqctl.store.compare.index import NEVER, EntryReader, IndexComparison, survey_index
from rmqctl.store.files import io
from rmqctl.store.files.io import EarlyFlush
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import Geometry, files_needed
from rmqctl.store.index.index_service import IndexService, index_file_name_after, newest_has_tag_entry
from rmqctl.store.log.columns import Int32s, Int64s
from rmqctl.store.log.implied import Run, packed_entries
from rmqctl.store.native.units import link_entries
from rmqctl.store.recover.queues import IsGone, gone_mask

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


class TagRule(NamedTuple):
    """Says of entries of tags whether new files get them, and from which message on (physical offset) none may lack.

    Messages before may be without: a store that a newer broker took over is sound. Where the newest entries of the
    index have tags, its last message and all after it need theirs: dispatch broke off there.
    """

    are_written: bool
    required_from: int = NEVER


def tag_rule(service: IndexService, log: MappedFileQueue, are_written: bool) -> TagRule:
    """Return the rule for an index as it is."""
    used = [file.header.end_physical_offset for file in service.files if file.header.index_count > 1]
    if not used:
        return TagRule(are_written, 0 if are_written else NEVER)
    return TagRule(are_written, max(used) if newest_has_tag_entry(service, log) else NEVER)


OnRun = Callable[[Run], None]


class IndexRecovery:
    """Learns the keys of the log run by run.

    If the index is missing or damaged by itself, new files are written at once. Else it is compared, and only if it is
    not as it should be the log is read a second time. `directory` is where new files go, None to write none. Runs come
    with the keys of tags, for which `tags` is the rule.
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
        self._is_gone = is_gone
        self._directory = directory if is_wanted else None
        self._is_wanted = is_wanted
        self._tags = tags
        self._comparison: IndexComparison | None = None
        if is_wanted:
            with contextlib.suppress(UnreadableError):  # what cannot be read is made anew
                self._comparison = _compared(service, descriptors, tags)
        self._is_same = self._comparison is not None
        self._is_written = self._directory is None or self._comparison is None or not service.files
        self._builder = IndexBuilder(service.geometry, self._directory if self._is_written else None)
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
        if self._comparison is not None and self._is_same:
            try:
                self._comparison.take(run)
                self._is_same = self._comparison.tally.is_same
            except UnreadableError:
                self._is_same = False
        self._builder.add(*run.keys(with_tags=self._tags.are_written))

    def finish(self, read_again: Callable[[OnRun], None]) -> bool:
        """Whether the index is whole; if not, `staged` has new files. `read_again` gives the runs once more."""
        self.staged = self._builder.finish()
        if not self._is_wanted or self._holds_no_more():
            return True
        if not self._is_written:
            self._builder = IndexBuilder(self.geometry, self._directory)
            read_again(lambda run: self._builder.add(*run.keys(with_tags=self._tags.are_written)))
            self.staged = self._builder.finish()
        return False

    def _holds_no_more(self) -> bool:
        """Whether the files hold the keys of the log, and besides only entries of messages that are gone."""
        if self._comparison is None or not self._is_same:
            return False
        try:
            return all(gone_mask(self._is_gone, offsets).all() for offsets in self._comparison.elsewhere())
        except UnreadableError:
            return False

    def discard(self) -> None:
        """Give up what was written while runs were added."""
        for path in self._builder.finish():
            io.remove(path)

    def close(self) -> None:
        """Give up what is not complete."""
        self._builder.close()


def _compared(service: IndexService, descriptors: Descriptors, tags: TagRule) -> IndexComparison | None:
    """Return the comparison with the existing files; None if they are wrong independent of the log."""
    if service.problems:
        return None
    used = ((file.geometry, max(0, file.header.index_count - 1)) for file in service.files)
    if files_needed(used) is not None:
        return None
    survey = survey_index(service, descriptors)
    if survey.strangers or not all(file.is_sound for file in survey.files):
        return None
    return IndexComparison(survey, EntryReader(survey, descriptors), None, tags.required_from)
