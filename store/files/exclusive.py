"""Taking a store in order to change it: nobody else has it, and no earlier change of it is unfinished."""

from __future__ import annotations

from store.files.journal_log import refuse_unfinished
from store.files.layout import StoreLayout
from store.files.lock import StoreLock, take_lock


def take_for_change(layout: StoreLayout, *, mends: bool = False) -> StoreLock:
    """The store's lock. StoreInUseError; RefusedError where the store is another user's, or an interrupted change waits
    for undo or resume, or, unless what comes `mends` the store, for that."""
    lock = take_lock(layout)
    try:
        # under the lock: a change that is under way in another process is not an interrupted one
        refuse_unfinished(layout, mends=mends)
    except BaseException:
        lock.release()
        raise
    return lock
