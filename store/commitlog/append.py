"""Appending frames to the commitlog: room is made first, then all is seen at once (DefaultAppendMessageCallback)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from rmqctl.formats.errors import ExhaustedError, WriteFailedError
from rmqctl.formats.layouts import BLANK_FRAME, BLANK_MAGIC
from rmqctl.store.files.allocate import Allocator
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue


class Sink(Protocol):
    """Where appended bytes go: into the file at once, or into a buffer first (transient_pool.py)."""

    @property
    def refuses_files(self) -> bool:
        """Whether no new file may be begun now."""

    def begin(self, file: MappedFile) -> None:
        """Take a new empty file, before anything is appended to it."""

    def cancel(self, file: MappedFile) -> None:
        """Give up a file that was begun and is not needed after all."""

    def append(self, file: MappedFile, data: bytes, length: int, store_timestamp: int) -> None:
        """Append `data`, which stands for the next `length` bytes of `file`."""

    def commit(self, least_pages: int = 0) -> bool:
        """Make what was appended readable, and return whether there was anything. A file with fewer than `least_pages`
        pages to commit waits, unless it is full; 0 commits any byte."""


class DirectSink:
    """Bytes go into the mapped file and are readable at once."""

    refuses_files = False

    def begin(self, file: MappedFile) -> None:
        """See Sink."""

    def cancel(self, file: MappedFile) -> None:
        """See Sink."""

    def append(self, file: MappedFile, data: bytes, length: int, store_timestamp: int) -> None:
        """See Sink."""
        # in this order, so that a write that fails has moved nothing
        file.commit(data, length, store_timestamp)
        file.defer(length)

    def commit(self, least_pages: int = 0) -> bool:
        """Nothing is kept back."""
        return False


class FileNotCreatedError(WriteFailedError):
    """The next file of the commitlog could not be created."""

    code = "RMQ-E-014"


class Room(NamedTuple):
    """Reserved space in `file`. `full_file` is the file before it, still to be closed with a blank frame."""

    file: MappedFile
    full_file: MappedFile | None
    is_new_file: bool

    @property
    def physical_offset(self) -> int:
        """Where the first byte will stand."""
        return self.file.start_offset + self.file.wrote_position


class LogAppender:
    """The end of the commitlog. Used under the put lock only.

    `reserve` does everything that can fail and changes nothing that can be seen; `append` then cannot fail for want of
    space. Disk blocks are allocated in `reserve`, so a full disk is a WriteFailedError there.
    """

    def __init__(self, log: MappedFileQueue, sink: Sink, allocator: Allocator) -> None:
        self._log = log
        self._sink = sink
        self._allocator = allocator

    @property
    def end_offset(self) -> int:
        """Physical offset behind what was appended, committed or not."""
        files = self._log.files
        return files[-1].start_offset + files[-1].wrote_position if files else 0

    @property
    def last_file(self) -> MappedFile | None:
        """The file that is being appended to; None where there is none, or it is full."""
        files = self._log.files
        return files[-1] if files and not files[-1].is_full else None

    def reserve(self, length: int) -> Room:
        """Room for `length` bytes in one file: the current one, or a new one if they and the 8 bytes of a blank frame
        do not fit any more. `length` + 8 must not exceed a file."""
        last = self._log.files[-1] if self._log.files else None
        if last is not None and length + BLANK_FRAME.size <= last.size - last.wrote_position:
            last.reserve(length)
            return Room(last, None, False)
        full_file = last if last is not None and not last.is_full else None
        if full_file is not None:
            full_file.reserve(BLANK_FRAME.size)
        if self._sink.refuses_files:
            raise FileNotCreatedError(
                "the transient store pool has no buffer for a new commitlog file",
                hint="fastFailIfNoBufferInStorePool refuses it: put again later, or raise transientStorePoolSize",
            )
        try:
            file = self._allocator.take(last.end_offset if last is not None else 0)
        except WriteFailedError as error:
            if isinstance(error, ExhaustedError):
                raise
            raise FileNotCreatedError(error.message, file=error.file, hint=error.hint) from error
        try:
            file.reserve(length)
            self._sink.begin(file)
        except BaseException:
            self._allocator.give_back(file)
            raise
        return Room(file, full_file, True)

    def cancel(self, room: Room) -> None:
        """Give up a room that nothing was appended to."""
        if room.is_new_file:
            self._sink.cancel(room.file)
            self._allocator.give_back(room.file)

    def append(self, room: Room, data: bytes, store_timestamp: int) -> None:
        """Append `data` where `reserve` made room for it, the blank frame of the file before it first."""
        self.enter(room)
        self._sink.append(room.file, data, len(data), store_timestamp)
        self.leave(room)

    def enter(self, room: Room) -> None:
        """Close the file before the room, and make the room's file the last one: `append` begins so. Who calls this
        instead writes into the room, publishes what it wrote (MappedFile.publish) and calls `leave`."""
        if room.full_file is not None:
            left = room.full_file.size - room.full_file.wrote_position
            try:
                self._sink.append(room.full_file, BLANK_FRAME.struct.pack(left, BLANK_MAGIC), left, 0)
            except BaseException:
                self.cancel(room)
                raise
        if room.is_new_file:
            self._log.files.append(room.file)

    def leave(self, room: Room) -> None:
        """The room is used: let the next file be made ahead if it is time to."""
        # a warm file has all its pages: compiled puts do not come here again before it is full
        if room.file.wrote_position * 2 > room.file.size or self._allocator.is_warming:
            self._allocator.ask(room.file.end_offset)
