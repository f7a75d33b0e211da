"""The directory of a mirror: taken, followed into, and made a store that a broker starts with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rmqctl.formats.errors import CorruptError, RefusedError
from rmqctl.formats.layouts import BLANK_FRAME, BLANK_MAGIC, FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.formats.message import FrameDamage, StoredMessage, decode_message
from rmqctl.network.ha.mirror_config import set_back
from rmqctl.network.remoting.requests import Tell
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors, end_of_nonzero, is_directory, is_file, is_there, named
from rmqctl.store.journal.log import take_for_change
from rmqctl.store.log.search import MAXIMUM_FRAME_SIZE, FrameSearch
from rmqctl.store.log.walk import Progress, walk_file
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.queues.queue_table import has_rocksdb_queues, rocksdb_error
from rmqctl.store.write.opening import names_at

# Follows the records of a log through bytes that are cut anywhere: where one begins, and how long files are.

_MESSAGES = (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2)
_HEAD = BLANK_FRAME.size


class Trail:
    """Where records begin, going by their sizes alone. `next_record`: physical offset of the next one, None if the
    bytes are no records; then it is unknown until `begin` is called again."""

    def __init__(self) -> None:
        self.next_record: int | None = None
        self.last_record: int | None = None
        self._rest = b""

    def begin(self, offset: int) -> None:
        """A record begins here."""
        self.next_record = offset
        self._rest = b""

    def feed(self, offset: int, body: bytes) -> Iterator[int]:
        """Go through the bytes that follow; yields the end of every blank frame, which is the end of its file, as soon
        as its head is there."""
        data, start = self._rest + body, offset - len(self._rest)
        end = start + len(data)
        while self.next_record is not None and self.next_record + _HEAD <= end:
            size, magic = BLANK_FRAME.unpack_from(data, self.next_record - start)
            if size <= 0 or magic not in (*_MESSAGES, BLANK_MAGIC):
                self.next_record = None
                break
            self.last_record = self.next_record
            self.next_record += size
            if magic == BLANK_MAGIC:
                yield self.next_record
        self._rest = b""
        if self.next_record is not None and self.next_record < end:
            self._rest = data[self.next_record - start :]


# The records of a file that are whole, up to the first that is not: nothing behind that is looked at.

_WINDOW = 4 * 1024 * 1024


def whole_records(file: MappedFile, written: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each, as positions in the file, of which [0, `written`) is all that is not zero.

    A message whose topic or properties have zeros counts as one that is not whole: no checksum covers these, and bytes
    that have not come, or that a power cut has taken, are zeros. UnreadableError.
    """
    window, start, position = b"", 0, 0
    while position < written:
        at = position - start
        if at + BLANK_FRAME.size > len(window):
            window, start, at = file.read(position, _WINDOW), position, 0
            if len(window) < BLANK_FRAME.size:
                return
        size, magic = BLANK_FRAME.unpack_from(window, at)
        if magic == BLANK_MAGIC:
            if size == file.size - position:
                yield position, file.size
            return
        if not 0 < size <= min(file.size - position, MAXIMUM_FRAME_SIZE):
            return
        if at + max(size, FRAME_HEADS[3].size) > len(window) and start + len(window) < file.size:
            window, start, at = file.read(position, max(size, _WINDOW)), position, 0
        try:
            message = decode_message(window, at, file.size - position, file.start_offset + position)
        except FrameDamage:
            return
        if "\0" in message.topic or b"\0" in message.property_bytes:
            return
        yield position, position + size
        position += size


# The commitlog of a mirror: what a master sends goes to its place, or is held against what stands there already.

DEFAULT_FILE_SIZE = 1 << 30
# so much of the end is held against the master's log each time, or the last record where that is more
_COMPARED = 64 * 1024
_OTHER_HISTORY = (
    "the mirror's last messages are not in the master's log: it is another broker, or it has lost its own end. Keep "
    "this directory, which may have the only copy of some messages, and start a new mirror in another one"
)


class MirrorLog:
    """A commitlog that grows as its master's. It has no other writer.

    `begin`: physical offset of its first byte, None for a log that is to begin. `end`: behind the last byte that is
    known to be the master's; what a killed mirror has left behind it is kept as far as the master says the same.
    `flushed`: all before it is on disk. `has_changed`: whether anything was written since it is open.
    """

    def __init__(self, log: MappedFileQueue, file_size: int | None) -> None:
        """`log` is as on disk; `file_size`: that of the master's files, None if unknown. Reads the last file.
        RefusedError for files that are no log that could go on."""
        _require_whole(log, file_size)
        self._log = log
        self.is_size_known = file_size is not None or len(log.files) > 1
        self.file_size = log.file_size = file_size or log.file_size or DEFAULT_FILE_SIZE
        self.begin = log.files[0].start_offset if log.files else None
        self._trail = Trail()
        self.has_changed = False
        self._descriptor: int | None = None
        self._place = -1
        self.end = self.flushed = self._last_record = max(0, log.min_offset)
        self._written_end = self.end
        self._look_at_the_end()

    def _look_at_the_end(self) -> None:
        """Find out up to where the last file is whole, and what follows."""
        file = self._log.last_with_data()
        if file is None:
            self._trail.begin(self.end)
            return
        self.end = self._last_record = file.start_offset
        written = end_of_nonzero(file.descriptors, file.path, 0, file.size)
        for begin, end in whole_records(file, written):
            self.end, self._last_record = file.start_offset + end, file.start_offset + begin
        # what is before the last file was flushed before that was made
        self._written_end = max(file.start_offset + written, self.end)
        self.flushed = file.start_offset
        self._trail.begin(self.end)

    @property
    def is_ahead(self) -> bool:
        """Return whether a whole message from before follows `end`: the master has not sent it again."""
        return self._written_end > self.end and self._has_record_behind()

    def _has_record_behind(self) -> bool:
        file = self._log.find(self.end)
        if file is None:
            return False
        begin, end = self.end - file.start_offset, min(self._written_end - file.start_offset, file.size)
        walked = walk_file(file, FrameSearch(file, end), begin, end, 0, None)
        return any(isinstance(record, StoredMessage) for record in walked)

    def compare_from(self, master_begin: int = 0) -> int:
        """From where a master, whose log begins at `master_begin`, has to send it again, so that the end that is here
        is held against its log. RefusedError where it has nothing of that end any more."""
        begin = max(master_begin, 0 if self.begin is None else self.begin)
        if self.end < begin or (self.end == begin != self.begin):
            raise RefusedError(
                f"the mirror ends at {self.end}, and the master has removed its log up to {begin}, so that nothing of "
                "the two can be compared",
                physical_offset=self.end,
                hint="keep this directory, and begin a new mirror in another one",
            )
        last = self._last_record if self._trail.last_record is None else self._trail.last_record
        return max(begin, min(last, self.end - _COMPARED))

    def start_at(self, offset: int) -> None:
        """A new log begins here. RefusedError unless it is the beginning of a file."""
        if offset % self.file_size:
            raise RefusedError(
                f"the master's log begins at {offset}, where no file of {self.file_size} bytes begins",
                hint="name the master's broker.conf with -c (mappedFileSizeCommitLog), or its port with --broker",
            )
        self.begin = self.end = self.flushed = self._written_end = self._last_record = offset
        self._trail.begin(offset)

    def take(self, offset: int, body: bytes) -> int:
        """Bytes of the master's log; those that are here already are compared, the others written, not flushed. Returns
        how many are new. RefusedError where other bytes stand here; nothing of `body` is written then."""
        new = 0
        while body:
            position = offset % self.file_size
            part = body[: self.file_size - position]
            self._check(offset, part)
            known = min(max(self.end - offset, 0), len(part))
            if known < len(part):
                self._write(offset + known, part[known:])
                new += len(part) - known
            offset, body = offset + len(part), body[len(part) :]
        return new

    def _check(self, offset: int, part: bytes) -> None:
        """RefusedError if these bytes differ from the master's. Before `end` every byte is; behind it there may be
        zeros, which are pages that a power cut has taken."""
        known = min(max(self._written_end - offset, 0), len(part))
        if not known:
            return
        here = self._log.read(offset, known)
        if len(here) == known and here == part[:known]:
            return
        for place, (ours, theirs) in enumerate(zip(here, part, strict=False)):
            if ours != theirs and (ours or offset + place < self.end):
                raise RefusedError(
                    f"another byte than the master's, which has 0x{theirs:02x} where this has 0x{ours:02x}",
                    file=self._log.path_of(self._file_start(offset)),
                    physical_offset=offset + place,
                    hint=_OTHER_HISTORY,
                )

    def _file_start(self, offset: int) -> int:
        return offset - offset % self.file_size

    def _write(self, offset: int, part: bytes) -> None:
        if offset != self.end:
            raise CorruptError(f"bytes from {offset} on, where the mirror ends at {self.end}")
        start = self._file_start(offset)
        if self._place != start:
            self._open(start)
        assert self._descriptor is not None
        path = self._log.path_of(start)
        self.has_changed = True
        io.write_at(self._descriptor, path, offset - start, part)
        self.end = offset + len(part)
        self._written_end = max(self._written_end, self.end)
        if offset == start and self._trail.next_record != start:
            self._trail.begin(start)
        for blank_end in self._trail.feed(offset, part):
            self._learn_size(start, blank_end)
        if self.end - start == self.file_size:
            self.flush()

    def _open(self, start: int) -> None:
        """Continue in the file of `start`, created if necessary. What was written before is on disk by then."""
        self.flush()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        path = self._log.path_of(start)
        if self._log.find(start) is None:
            self.has_changed = True
            self._log.create_file(start).set_positions(self.file_size)
            io.flush_directory(path.parent)
        self._descriptor, self._place = io.open_for_writing(path), start

    def _learn_size(self, start: int, blank_end: int) -> None:
        """A blank frame ends its file. RefusedError if that is not the end of a file here."""
        size = blank_end - start
        if size == self.file_size:
            self.is_size_known = True
            return
        path = self._log.path_of(start)
        if self.is_size_known or start != self.begin or start % size or self.end > blank_end:
            raise RefusedError(
                f"a file of the master's log ends here, after {size} bytes, not {self.file_size}",
                file=path,
                physical_offset=blank_end,
                hint="name the master's broker.conf with -c (mappedFileSizeCommitLog), or its port with --broker, and "
                "begin in an empty directory",
            )
        io.truncate(path, size)
        self.file_size, self.is_size_known = size, True
        self._log.forget([path])
        self._log.file_size = size
        self._log.add_file(path, start).set_positions(size)

    def settle(self) -> None:
        """The master's log ends at `end`: clear what a killed mirror has left behind it of a record that the master
        does not have any more."""
        if self._written_end > self.end and (file := self._log.find(self.end)) is not None:
            position = self.end - file.start_offset
            self.has_changed = True
            io.write_range(file.path, position, bytes(self._written_end - self.end))
            self._written_end = self.end

    def flush(self) -> None:
        """Bring to disk what was written, and what was found here."""
        if self.flushed >= self.end:
            return
        if self._descriptor is not None:
            io.flush_descriptor(self._descriptor, self._log.path_of(self._place))
        else:
            io.flush_file(self._log.path_of(self._file_start(self.end - 1)))
        self.flushed = self.end

    def close(self) -> None:
        """Flush, and let go of the files."""
        try:
            self.flush()
        finally:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            self._place = -1


def _require_whole(log: MappedFileQueue, file_size: int | None) -> None:
    """RefusedError where the files could not be those of a mirror."""
    for problem in log.problems:
        raise RefusedError(
            f"the mirror cannot go on with this file: {problem.detail}",
            file=problem.path,
            hint="`rmqctl check` says more; or begin a new mirror in an empty directory",
        )
    if file_size is not None and log.files and log.file_size != file_size:
        raise RefusedError(
            f"the files have {log.file_size} bytes, those of the master {file_size}",
            file=log.files[0].path,
            hint="begin a new mirror in an empty directory",
        )


# what a directory may hold and still count as empty
_NOT_A_STORE_YET = {"lock", "lost+found", "config"}


@dataclass(slots=True)
class CompletedMirror:
    """What a mirror is once its queues, index and config are made. `damaged_spans`: places of the master's log that
    hold no messages. `offsets_set_back`: of groups and delay levels, because their messages had not come yet."""

    messages: int = 0
    queues_changed: int = 0
    units_added: int = 0
    index_files_rebuilt: int = 0
    truncated_bytes: int = 0
    damaged_spans: int = 0
    offsets_set_back: int = 0
    config_files: list[str] = field(default_factory=list)


class MirrorStore:
    """A directory that is ours while the mirror goes on: locked, and marked with `abort`, so that no broker takes it
    for whole. A context manager."""

    def __init__(self, root: Path, config: StoreConfig) -> None:
        """A missing or empty directory becomes a store without messages; an earlier mirror, or a copy of the master's
        store, goes on. `config`: sizes of its files, as far as they are known.

        RefusedError for a directory that is something else; StoreInUseError; UnreadableError; WriteFailedError.
        """
        self.config = config
        self.layout: StoreLayout = config.layout(root)
        _require_mirror(self.layout)
        io.make_directories(self.layout.root, flushed=True)
        self._lock = take_for_change(self.layout)
        self._descriptors = Descriptors()
        try:
            for directory in self.layout.commitlog:
                io.make_directories(directory, flushed=True)
            self._was_whole = not is_there(self.layout.abort)
            log = MappedFileQueue(self.layout.commitlog, config.mapped_file_size_commit_log, self._descriptors)
            log.load()
            log.is_shared = False
            self.log = MirrorLog(log, config.mapped_file_size_commit_log)
            if self._was_whole:
                io.write_whole(self.layout.abort, str(os.getpid()).encode("ascii"))
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        self._descriptors.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.log.close()
            if self.is_as_it_was:
                io.remove(self.layout.abort)
                io.flush_directory(self.layout.root)
        finally:
            self._release()

    @property
    def is_as_it_was(self) -> bool:
        """Whether nothing was written into a store that was at rest: our mark is taken back then."""
        return self._was_whole and not self.log.has_changed


def complete(root: Path, config: StoreConfig, tell: Tell, progress: Progress | None = None) -> CompletedMirror:
    """Make queues and index of the log at `root`, and it a store that was closed cleanly: what `recover` does.

    A message that had come only in part is cut. Damage that the master's log has is kept as it is, and passed over.
    Errors as of MessageStore.recover.
    """
    done = CompletedMirror()
    layout = config.layout(root)
    if _has_log(layout):
        with MessageStore.open(root, "r", config) as store:
            try:
                # what goes is sent again
                change = ChangeOptions(keep_undo=False, progress=progress, below_confirm=True)
                report = store.recover(change=change)
                done.messages, done.truncated_bytes = report.messages, report.truncated_bytes
                done.queues_changed, done.units_added = report.queues_changed, report.units_added
                done.index_files_rebuilt = report.index_files_rebuilt
                done.damaged_spans = len(report.damaged)
            except RefusedError as error:
                tell(f"the master's log has damage with messages behind it, which the mirror keeps as it is: {error}")
                rebuilt = store.rebuild(change=ChangeOptions(keep_undo=False, progress=progress))
                done.messages, done.damaged_spans = rebuilt.messages, rebuilt.damaged_spans
                done.queues_changed, done.units_added = rebuilt.queues_rebuilt, rebuilt.units
                done.index_files_rebuilt = rebuilt.index_files_rebuilt
            done.offsets_set_back = set_back(store.files)
    if is_there(layout.abort):
        io.remove(layout.abort)
        io.flush_directory(layout.root)
    if is_directory(layout.config):
        with named(layout.config):
            done.config_files = sorted(path.name for path in layout.config.iterdir() if path.suffix == ".json")
    return done


def _has_log(layout: StoreLayout) -> bool:
    with named(layout.root):
        return any(is_file(path) for directory in layout.commitlog for path in directory.iterdir())


def _require_mirror(layout: StoreLayout) -> None:
    names = names_at(layout.root)
    if names is None or names <= _NOT_A_STORE_YET:
        return
    if not any(is_directory(directory) for directory in layout.commitlog):
        raise RefusedError(
            "is neither empty nor a mirror",
            file=layout.root,
            hint="name a new directory, an earlier mirror, or a copy of the master's store",
        )
    if has_rocksdb_queues(layout):
        raise rocksdb_error(layout)
