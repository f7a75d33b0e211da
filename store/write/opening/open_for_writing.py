"""Opening a store for writing: its lock, the checks, the `abort` mark; or a new store (DefaultMessageStore#start)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import (
    NotAStoreError,
    RefusedError,
    RmqctlError,
    UnreadableError,
    UnsupportedError,
    refuse_exhausted,
)
from rmqctl.store.commitlog.unread_logs import refuse_dledger
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import StoreLock
from rmqctl.store.files.presence import exists, is_directory, is_there
from rmqctl.store.files.reading import named
from rmqctl.store.journal.log import refuse_unfinished
from rmqctl.store.journal.taken import take_for_change
from rmqctl.store.queues.queue_table import has_rocksdb_queues, rocksdb_error
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.opening.queue_check import refusal
from rmqctl.store.write.opening.writing_checks import LogEnd, check_for_writing

DEFAULT_COMMITLOG_FILE_SIZE = 1024 * 1024 * 1024
# what a directory may hold and still count as empty
_NOT_A_STORE_YET = {"lock", "config", "abort.bak", "lost+found"}


class OpenedStore(NamedTuple):
    """A store that is ours now: locked, checked, marked with `abort`, the log's positions set to its end."""

    files: StoreFiles
    lock: StoreLock
    end: LogEnd


def open_store_for_writing(
    root: Path,
    config: StoreConfig | None = None,
    *,
    create: bool = False,
    is_full_check: bool = False,
    progress: Progress | None = None,
) -> OpenedStore:
    """Take the store at `root` for writing; with `create` a missing or empty directory becomes a new store.

    UsageError for a messageDelayLevel that does not parse, StoreInUseError if another process has it, RefusedError if
    it was not closed cleanly, its parts do not agree or a change of it was interrupted, UnsupportedError for queues in
    a RocksDB. A refused store is left as it was, byte for byte; but that a new `lock` file may appear if the store
    changes while it is being opened.
    """
    config = config or StoreConfig()
    if config.read_only_commit_log_store_paths:
        raise UnsupportedError(
            "a commitlog with read-only directories is not written to yet",
            file=config.read_only_commit_log_store_paths,
            hint="reading works; to write, take readOnlyCommitLogStorePaths out of the configuration",
        )
    config.delay_levels_to_write()
    layout = config.layout(root)
    if create and is_empty_place(layout):
        io.make_directories(layout.root, flushed=True)
    else:
        refuse_unfinished(layout)
        with named(root), StoreFiles(root, config) as files:
            # a refusal must leave nothing behind, not even the lock file
            if not exists(layout.lock):
                _check(files, is_full_check, progress)
    lock = take_for_change(layout)
    try:
        # once more, now that nobody else can: meanwhile the store may have been made, written to, or removed
        if create and is_empty_place(layout):
            return _created(layout, config, lock)
        return _opened(root, config, lock, is_full_check, progress)
    except BaseException:
        lock.release()
        raise


def _opened(
    root: Path, config: StoreConfig, lock: StoreLock, is_full_check: bool, progress: Progress | None
) -> OpenedStore:
    files = StoreFiles(root, config)
    try:
        with named(root):
            end = _check(files, is_full_check, progress)
        files.log.is_shared = False
        files.log.truncate(end.end_offset)
        _mark(files.layout)
    except BaseException:
        files.close()
        raise
    return OpenedStore(files, lock, end)


def _check(files: StoreFiles, is_full: bool, progress: Progress | None) -> LogEnd:
    refuse_dledger(files.layout)
    if files.has_abort():
        raise refusal("the store was not closed cleanly", files.root, files.layout.abort)
    if has_rocksdb_queues(files.layout):
        error = rocksdb_error(files.layout)
        error.hint = "its queues could not be kept in step, so nothing can be appended"
        raise error
    if files.config.store_type.startswith("defaultRocksDB"):
        raise RefusedError("storeType=defaultRocksDB: the queues of such a store cannot be written", file=files.root)
    if not files.log.file_size:
        files.log.file_size = DEFAULT_COMMITLOG_FILE_SIZE
    return check_for_writing(files, is_full=is_full, progress=progress)


def is_empty_place(layout: StoreLayout) -> bool:
    """Whether a new store may be made there: there is nothing yet, or nothing but what may lie beside a store's files.
    NotAStoreError for a file, UnreadableError."""
    try:
        names = set(os.listdir(layout.root))
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        raise NotAStoreError("is a file, not a directory", file=layout.root) from None
    except OSError as error:
        refuse_exhausted(error, layout.root)
        raise UnreadableError(f"cannot be listed: {error.strerror}", file=layout.root) from error
    return names <= _NOT_A_STORE_YET and not any(is_directory(directory) for directory in layout.commitlog)


def _created(layout: StoreLayout, config: StoreConfig, lock: StoreLock) -> OpenedStore:
    """A new store: the directories that a broker makes, before it has any message."""
    for directory in (*layout.commitlog, layout.consumequeue):
        io.make_directories(directory, flushed=True)
    files = StoreFiles(layout.root, config)
    files.log.is_shared = False
    if not files.log.file_size:
        files.log.file_size = DEFAULT_COMMITLOG_FILE_SIZE
    _mark(layout)
    return OpenedStore(files, lock, LogEnd())


def _mark(layout: StoreLayout) -> None:
    """Write `abort` with our process id, as a broker does; whoever finds it knows of no clean close. Where that fails
    there is none, because nothing was written to the store."""
    try:
        io.write_whole(layout.abort, str(os.getpid()).encode("ascii"))
    except BaseException:
        _unmark_unused(layout)
        raise


def _unmark_unused(layout: StoreLayout) -> None:
    """Remove the `abort` of a store that we have written nothing to; a disk that fails keeps it."""
    with contextlib.suppress(RmqctlError):
        if is_there(layout.abort):
            unmark(layout)


def give_back(opened: OpenedStore) -> None:
    """Let go of a store that was taken and not written to: it is as it was closed before, and its lock is free."""
    _unmark_unused(opened.files.layout)
    try:
        opened.files.close()
    finally:
        opened.lock.release()


def unmark(layout: StoreLayout) -> None:
    """Remove `abort`: everything is on disk and agrees."""
    io.remove(layout.abort)
    io.flush_directory(layout.root)
