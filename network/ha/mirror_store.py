"""The directory of a mirror: taken, followed into, and made a store that a broker starts with."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rmqctl.formats.errors import NotAStoreError, RefusedError, UnreadableError, refuse_exhausted
from rmqctl.network.ha.mirror_config import set_back
from rmqctl.network.ha.mirror_log import MirrorLog
from rmqctl.network.remoting.services import Tell
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.presence import is_directory, is_file, is_there
from rmqctl.store.files.reading import Descriptors, named
from rmqctl.store.journal.taken import take_for_change
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.queue_table import has_rocksdb_queues, rocksdb_error

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

    def __init__(self, root: Path, config: StoreConfig, progress: Progress | None = None) -> None:
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
            self.log = MirrorLog(log, config.mapped_file_size_commit_log, progress)
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
                report = store.recover(keeps=False, progress=progress)
                done.messages, done.truncated_bytes = report.messages, report.truncated_bytes
                done.queues_changed, done.units_added = report.queues_changed, report.units_added
                done.index_files_rebuilt = report.index_files_rebuilt
                done.damaged_spans = len(report.damaged)
            except RefusedError as error:
                tell(f"the master's log has damage with messages behind it, which the mirror keeps as it is: {error}")
                rebuilt = store.rebuild(keeps=False, progress=progress)
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


def is_new(layout: StoreLayout) -> bool:
    """Whether there is nothing yet. NotAStoreError, UnreadableError."""
    try:
        names = set(os.listdir(layout.root))
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        raise NotAStoreError("is a file, not a directory", file=layout.root) from None
    except OSError as error:
        refuse_exhausted(error, layout.root)
        raise UnreadableError(f"cannot be listed: {error.strerror}", file=layout.root) from error
    return names <= _NOT_A_STORE_YET


def _require_mirror(layout: StoreLayout) -> None:
    if is_new(layout):
        return
    if not any(is_directory(directory) for directory in layout.commitlog):
        raise RefusedError(
            "is neither empty nor a mirror",
            file=layout.root,
            hint="name a new directory, an earlier mirror, or a copy of the master's store",
        )
    if has_rocksdb_queues(layout):
        raise rocksdb_error(layout)
