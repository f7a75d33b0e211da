"""A store taken in order to change it: first its lock, then a look at its files; nothing seen before that counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from store.files.exclusive import take_for_change
from store.files.reading import named
from store.store_files import StoreFiles


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
                now.keep_interrupted_sizes()
            yield now
    finally:
        lock.release()
