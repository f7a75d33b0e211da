"""Where output may go: never among the files of a store, neither of the one that is read nor of any other."""

from __future__ import annotations

import os
from pathlib import Path

from rmqctl.formats.errors import RefusedError
from rmqctl.store.files.layout import StoreLayout, holds_log_files, looks_like_store
from rmqctl.store.files.presence import is_directory, is_there

_FOLDERS = frozenset(
    "commitlog consumequeue consumequeue_ext batchconsumequeue index config timerwheel timerlog compaction".split()
)
_FILES = frozenset("checkpoint abort abort.bak lock timerwheel".split())
_ELSEWHERE = "name a place outside of every store"


def is_vacant(path: Path) -> bool:
    """Whether a new directory may take this name: nothing has it, or a directory without anything in it."""
    return not is_there(path) or (is_directory(path) and not any(path.iterdir()))


def check_output_place(path: Path, read: StoreLayout | None = None, *, beside_loose_files: bool = False) -> None:
    """RefusedError if something new at `path` would lie among the files of a store. A broker does not start with a
    stray file in its commitlog, and what replaces a file of a store destroys it.

    Stores are known by their layout, and folders by the files of a log in them. In the store that is `read` nothing may
    be written at all. Links are followed. `beside_loose_files`: folders with files of a log in them are no stores.
    """
    real = Path(os.path.realpath(path))
    if read is not None:
        for top in (read.root, *read.commitlog):
            if real.is_relative_to(os.path.realpath(top)):
                raise RefusedError("lies in the store that is read", file=path, hint=_ELSEWHERE)
    for above in real.parents:
        first, *further = real.relative_to(above).parts
        if (first in _FOLDERS or (first in _FILES and not further)) and looks_like_store(above):
            raise RefusedError(f"lies among the files of the store {above}", file=path, hint=_ELSEWHERE)
    if not beside_loose_files and holds_log_files(real.parent):
        raise RefusedError("lies among the files of a commitlog or a consume queue", file=path, hint=_ELSEWHERE)
