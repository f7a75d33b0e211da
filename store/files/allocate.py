"""Creates the next file of the commitlog before it is needed (AllocateMappedFileService)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rmqctl.store.files import io
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue


class Allocator:
    """Hands out new empty files of `log`, made ahead by a thread of their own where `is_ahead`.

    Unlike RocketMQ's it makes one file ahead, not two, and only when it is asked to: a writer asks once half of the
    current file is used. A file that nobody took is removed by `close`; a kill leaves it behind, all zeros.
    `flush_names` brings the names of the log's files to disk: a power cut that took an earlier one and left that of the
    new file would leave a log without its beginning.
    """

    def __init__(self, log: MappedFileQueue, is_ahead: bool, flush_names: Callable[[], None]) -> None:
        self._log = log
        self._is_ahead = is_ahead
        self._flush_names = flush_names
        self._condition = threading.Condition()
        self._wanted: int | None = None
        self._ready: MappedFile | None = None
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def ask(self, start_offset: int) -> None:
        """Begin to make the file that starts at `start_offset`, unless that was asked for already."""
        if not self._is_ahead or self._wanted == start_offset:
            return
        with self._condition:
            if self._ready is not None or self._is_closing:
                return
            self._wanted = start_offset
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="rmqctl-allocate", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # no thread can be started: `take` makes the file
                    self._wanted = None
                    return
                self._thread = thread
            self._condition.notify_all()

    def take(self, start_offset: int) -> MappedFile:
        """The empty file that starts at `start_offset`, made now if it is not there; not in the log's list yet.

        WriteFailedError if it cannot be created.
        """
        with self._condition:
            if self._wanted == start_offset:
                self._condition.wait_for(lambda: self._ready is not None or self._wanted is None)
            ready, self._ready, self._wanted = self._ready, None, None
        if ready is not None:
            if ready.start_offset == start_offset:
                return ready
            self.give_back(ready)
        return self._create(start_offset)

    def give_back(self, file: MappedFile) -> None:
        """Remove a file that was taken and is not needed after all."""
        file.close()
        io.remove(file.path)
        io.flush_directory(file.path.parent)

    def _create(self, start_offset: int) -> MappedFile:
        path = self._log.path_of(start_offset)
        io.make_directories(path.parent, flushed=True)
        self._flush_names()
        io.create_file(path, self._log.file_size)
        file = MappedFile(path, start_offset, self._log.file_size, self._log.descriptors)
        file.set_positions(0)
        return file

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._is_closing or (self._wanted is not None and self._ready is None))
                if self._is_closing or self._wanted is None:
                    return
                start_offset = self._wanted
            try:
                file: MappedFile | None = self._create(start_offset)
            except BaseException:  # noqa: BLE001 - `take` waits for it: it tries again, and tells
                file = None
            with self._condition:
                self._ready = file
                if file is None:
                    self._wanted = None
                self._condition.notify_all()

    def close(self) -> None:
        """Stop, and remove the file that nobody took."""
        with self._condition:
            self._is_closing = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()
        if self._ready is not None:
            self.give_back(self._ready)
            self._ready = None
