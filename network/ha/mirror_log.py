"""The commitlog of a mirror: what a master sends goes to its place, or is held against what stands there already."""

from __future__ import annotations

import os

from rmqctl.formats.errors import CorruptError, RefusedError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.ha.trail import Trail
from rmqctl.network.ha.whole_records import whole_records
from rmqctl.store.commitlog.frame_search import FrameSearch
from rmqctl.store.commitlog.walk import Progress, walk_file
from rmqctl.store.files import io
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.zeros import end_of_nonzero

DEFAULT_FILE_SIZE = 1 << 30
# so much of the end is held against the master's log each time, or the last record where that is more
_COMPARED = 64 * 1024
_OTHER_HISTORY = (
    "the mirror's last messages are not in the master's log: it is another broker, or it has lost its own end. Keep "
    "this directory, which may have messages that nobody else has, and begin a new mirror in another one"
)


class MirrorLog:
    """A commitlog that grows as its master's. Nobody else writes to it.

    `begin`: physical offset of its first byte, None for a log that is to begin. `end`: behind the last byte that is
    known to be the master's; what a killed mirror has left behind it is kept as far as the master says the same.
    `flushed`: all before it is on disk. `has_changed`: whether anything was written since it is open.
    """

    def __init__(self, log: MappedFileQueue, file_size: int | None, progress: Progress | None = None) -> None:
        """`log` is as it lies on disk; `file_size`: that of the master's files, None if it is not known. Reads the last
        file. RefusedError for files that are no log that could go on."""
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
        self._look_at_the_end(progress)

    def _look_at_the_end(self, progress: Progress | None) -> None:
        """Find out up to where the last file is whole, and what stands behind that."""
        file = self._log.last_with_data()
        if file is None:
            self._trail.begin(self.end)
            return
        self.end = self._last_record = file.start_offset
        written = end_of_nonzero(file.descriptors, file.path, 0, file.size)
        for begin, end in whole_records(file, written, progress):
            self.end, self._last_record = file.start_offset + end, file.start_offset + begin
        # what is before the last file was flushed before that was made
        self._written_end = max(file.start_offset + written, self.end)
        self.flushed = file.start_offset
        self._trail.begin(self.end)

    @property
    def whole_end(self) -> int:
        """Physical offset behind the last whole record, as far as that is known."""
        next_record, last = self._trail.next_record, self._trail.last_record
        if next_record is None or next_record <= self.end:
            return self.end if next_record is None else next_record
        return self._last_record if last is None else last

    @property
    def is_ahead(self) -> bool:
        """Whether a whole message that was here before stands behind `end`: the master has not sent it again."""
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
        """A new log begins here. RefusedError for what is no beginning of a file."""
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
        """RefusedError where what stands here is not what the master has. Before `end` every byte is; behind it there
        may be zeros, which are pages that a power cut has taken."""
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
        """Go on in the file of `start`, a new one where there is none. What was written before is on disk by then."""
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
        """A blank frame ends its file. RefusedError where that is not where a file of ours ends."""
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
