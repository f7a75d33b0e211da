"""A store taken in order to change it: first its lock, then a look at its files; nothing seen before that counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rmqctl.store.commitlog.unread_logs import refuse_dledger
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import StoreLock, take_lock
from rmqctl.store.files.reading import named
from rmqctl.store.journal.interrupted_sizes import keep_interrupted_sizes
from rmqctl.store.journal.log import refuse_unfinished
from rmqctl.store.store_files import StoreFiles


def take_for_change(layout: StoreLayout, *, mends: bool = False) -> StoreLock:
    """The store's lock. StoreInUseError; RefusedError where the store is another user's, or an interrupted change waits
    for undo or resume, or, unless what comes `mends` the store, for that. UnsupportedError for a DLedger store."""
    refuse_dledger(layout)
    lock = take_lock(layout)
    try:
        # under the lock: a change that is under way in another process is not an interrupted one
        refuse_unfinished(layout, mends=mends)
    except BaseException:
        lock.release()
        raise
    return lock


@contextmanager
def taken(files: StoreFiles, *, mends: bool = False) -> Iterator[StoreFiles]:
    """The store of `files`, opened anew under its lock: others may have changed it, or even made it, since `files` was
    opened. Every change decides and plans by what it gets here.

    StoreInUseError; RefusedError where an interrupted change waits for undo or resume (unless what comes `mends`). An
    OSError of reading in the block is an UnreadableError.
    """
    lock = take_for_change(files.layout, mends=mends)
    try:
        with named(files.root), StoreFiles(files.root, files.config) as now:
            now.is_taken = True
            if mends:
                keep_interrupted_sizes(now)
            yield now
    finally:
        lock.release()
