"""Creates the next files of the commitlog before they are needed (AllocateMappedFileService)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rmqctl.store.files import io, presence
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue

_AHEAD = 2
"""The next file and the next but one."""


class Allocator:
    """Hands out new empty files of `log`, made ahead by a thread of their own where `is_ahead`.

    Two files are made ahead, in order, once they are asked for; unlike RocketMQ, which asks when it begins a file, a
    writer asks when half of its file is used. A file that was not taken is removed by `close`; a kill leaves it, all
    zeros. At no moment is there a file without the one before it: a log with a gap would be damaged.
    `flush_names` brings the names of the log's files to disk: a power cut that took an earlier one and left that of the
    new file would leave a log without its beginning. `warm` prepares a new file, in the thread that makes it.
    """

    def __init__(
        self,
        log: MappedFileQueue,
        is_ahead: bool,
        flush_names: Callable[[], None],
        warm: Callable[[MappedFile], None] | None = None,
    ) -> None:
        self._log = log
        self._is_ahead = is_ahead
        self._flush_names = flush_names
        self._warm = warm
        self._condition = threading.Condition()
        self._asked: int | None = None
        self._wanted: list[int] = []
        """Start offsets of files to make, in order; the first one may be in the making."""
        self._ready: dict[int, MappedFile] = {}
        """Files by their start offset, in order."""
        self._is_closing = False
        self._thread: threading.Thread | None = None

    @property
    def is_warming(self) -> bool:
        """Whether new files are prepared, all of their pages at once."""
        return self._warm is not None

    def ask(self, start_offset: int) -> None:
        """Begin to make the file that starts at `start_offset` and the one after it, unless they were asked for."""
        if not self._is_ahead or self._asked == start_offset:
            return
        with self._condition:
            if self._is_closing:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="rmqctl-allocate", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return  # no thread can be started: `take` makes the file
                self._thread = thread
            self._asked = start_offset
            for offset in range(start_offset, start_offset + _AHEAD * self._log.file_size, self._log.file_size):
                if offset not in self._ready and offset not in self._wanted:
                    self._wanted.append(offset)
            self._condition.notify_all()

    def take(self, start_offset: int) -> MappedFile:
        """Return the empty file that starts at `start_offset`, made now if it is not there; not in the log's list yet.

        WriteFailedError if it cannot be created.
        """
        with self._condition:
            self._condition.wait_for(lambda: start_offset not in self._wanted)
            ready = self._ready.pop(start_offset, None)
        if ready is not None:
            return ready
        self._remove_ready()
        return self._create(start_offset)

    def give_back(self, file: MappedFile) -> None:
        """Remove a file that was taken and is not needed after all, and first those that were made to follow it. What
        cannot be removed now can be taken again."""
        with self._condition:
            self._ready = {file.start_offset: file, **self._ready}
        self._remove_ready()

    def _remove_ready(self) -> None:
        """Remove the files that were not taken, the last one first."""
        with self._condition:
            del self._wanted[1:]
            self._condition.wait_for(lambda: not self._wanted or self._thread is None)
            self._asked = None
            while self._ready:
                start_offset, file = next(reversed(self._ready.items()))
                file.close()
                io.remove(file.path)
                del self._ready[start_offset]
                io.flush_directory(file.path.parent)

    def _create(self, start_offset: int) -> MappedFile:
        path = self._log.path_of(start_offset)
        io.make_directories(path.parent, flushed=True)
        self._flush_names()
        io.create_file(path, self._log.file_size)
        file = MappedFile(path, start_offset, self._log.file_size, self._log.descriptors)
        file.set_positions(0)
        if self._warm is not None:
            try:
                self._warm(file)
            except BaseException:
                file.close()
                io.remove(file.path)
                raise
        return file

    def _flush_name_before(self, start_offset: int) -> None:
        """Flush the name of the file before, which may have been made or taken and is not in the log's list yet."""
        if start_offset >= self._log.file_size:
            before = self._log.path_of(start_offset - self._log.file_size)
            if presence.is_there(before):
                io.flush_directory(before.parent)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._is_closing or self._wanted)
                if self._is_closing:
                    self._wanted.clear()
                    self._condition.notify_all()
                    return
                start_offset = self._wanted[0]
            try:
                self._flush_name_before(start_offset)
                file: MappedFile | None = self._create(start_offset)
            except BaseException:  # noqa: BLE001 - `take` waits for it: it tries again, and tells
                file = None
            with self._condition:
                if file is None:
                    self._wanted.clear()
                    self._asked = None
                else:
                    self._wanted.pop(0)
                    self._ready[start_offset] = file
                self._condition.notify_all()

    def close(self) -> None:
        """Stop, and remove the files that were not taken."""
        with self._condition:
            self._is_closing = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._remove_ready()
