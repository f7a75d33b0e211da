"""Writes index files from keys in the order of the log, as they come: nothing is kept but the file being made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rmqctl.formats.layouts import INDEX_HEADER
from rmqctl.store.columns.batch import Int32s, Int64s
from rmqctl.store.files import io
from rmqctl.store.files.early_flush import EarlyFlush
from rmqctl.store.index.index_file import Geometry
from rmqctl.store.index.index_service import index_file_name_after
from rmqctl.store.survey.index_entries import IndexKernels, kernels, new_words

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
        self._kernels: IndexKernels | None = None

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
            self._kernels = self._kernels or kernels()
            self._file = _NewFile(self._directory() / self.names[-1], self.geometry, self._kernels)
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

    def __init__(self, path: Path, geometry: Geometry, with_kernels: IndexKernels) -> None:
        self._path = path
        self._geometry = geometry
        self._kernels = with_kernels
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
        self._used += self._kernels.link(hashes, self._geometry.slots, self._slots, number, previous)
        words = new_words(len(hashes))
        self._kernels.pack(hashes, offsets, timestamps, self._begin[0], previous, words)
        self._entries += len(hashes)
        io.write_at(self._descriptor, self._path, self._geometry.entry_position(number), words.view(np.uint8).data)
        self._flush.wrote(words.nbytes)

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
