"""The longest put at a change of the commitlog's file: files made when needed or ahead, warm, locked in memory.

`python -m bench.file_change [FOLDER]` prints a JSON line for each: milliseconds, medians over the rounds of the longest
of the puts that began a new file, the variants in turns, with asynchronous flush and with SYNC_FLUSH. Files of 64 MiB,
messages of 128 KiB; the sender rests after each put, so that files can be made ahead. `short of memory`: shortly before
each change the kernel is asked to take back the pages of the files made ahead, as it does where memory is short
(MADV_PAGEOUT); it leaves those that are locked.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from bench.measure import Measurement, say, tell
from rmqctl.store import Message, MessageStore
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.log.transient_pool import lock_memory

_FILE_BYTES = 64 * 1024 * 1024
_BODY = bytes(128 * 1024)
_FILES = 3
_ROUNDS = 3
_REST = 0.001
# Linux 5.4; not among the constants of mmap
_MADV_PAGEOUT = 21


class Variant(NamedTuple):
    """How files of the log are made, and what happens to them before they are written."""

    name: str
    is_ahead: bool = True
    is_warm: bool = True
    is_locked: bool = False
    is_short: bool = False


_VARIANTS = (
    Variant("when-needed", is_ahead=False, is_warm=False),
    Variant("when-needed-warm", is_ahead=False),
    Variant("ahead", is_warm=False),
    Variant("ahead-warm"),
    Variant("ahead-warm-locked", is_locked=True),
    Variant("ahead-warm-short-of-memory", is_short=True),
    Variant("ahead-warm-locked-short-of-memory", is_locked=True, is_short=True),
)
_FLUSHES = {"": "ASYNC_FLUSH", "sync-flush-": "SYNC_FLUSH"}


class _Longest(NamedTuple):
    """The longest puts in ms: of those that began a file, and of the others."""

    at_change: float
    elsewhere: float


def _longest(variant: Variant, flush: str, root: Path) -> _Longest:
    """Put messages until some files are full."""
    config = StoreConfig(
        mapped_file_size_commit_log=_FILE_BYTES, warm_maped_file_enable=variant.is_warm, flush_disk_type=flush
    )
    at_change, elsewhere = 0.0, 0.0
    lock = lock_memory if variant.is_locked else lambda _: None
    with (
        mock.patch("rmqctl.store.log.transient_pool.lock_memory", lock),
        MessageStore.open(root, "rw", config=config, create=True, allocate_ahead=variant.is_ahead) as store,
    ):
        message, number, end = Message("Bench", _BODY), 0, 0
        store.put(message)
        while number < _FILES:
            if variant.is_short and end % _FILE_BYTES > _FILE_BYTES - 2 * len(_BODY):
                _take_pages(store, variant)
            begin = time.perf_counter()
            result = store.put(message)
            taken = (time.perf_counter() - begin) * 1000
            assert result.physical_offset is not None, result
            end = result.physical_offset + len(_BODY)
            if result.physical_offset // _FILE_BYTES > number:
                number += 1
                at_change = max(at_change, taken)
            else:
                elsewhere = max(elsewhere, taken)
            time.sleep(_REST)
    return _Longest(at_change, elsewhere)


def _take_pages(store: MessageStore, variant: Variant) -> None:
    """Have the kernel take the pages of the files that were made ahead: it takes none that it has to write first."""
    for file in list(store._writing._allocator._ready.values()):
        descriptor = os.open(file.path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        # refused for a map that is locked
        with contextlib.suppress(OSError) if variant.is_locked else contextlib.nullcontext():
            file.writable_map.map.madvise(_MADV_PAGEOUT)


def measured(folder: Path | None) -> Iterator[Measurement]:
    """Yield a line for each variant, in a temporary folder of `folder`; `other` is that of files made when needed."""
    for prefix, flush in _FLUSHES.items():
        taken: dict[str, list[_Longest]] = {one.name: [] for one in _VARIANTS}
        for _ in range(_ROUNDS):
            for variant in _VARIANTS:
                with tempfile.TemporaryDirectory(dir=folder) as root:
                    taken[variant.name].append(_longest(variant, flush, Path(root, "store")))
        base = statistics.median(one.at_change for one in taken[_VARIANTS[0].name])
        for name, rounds in taken.items():
            ours = statistics.median(one.at_change for one in rounds)
            against = f"files made when needed, {flush}"
            yield Measurement(f"file-change-{prefix}{name}", ours, base, base / ours, "ms", _ROUNDS, against)
            say(f"longest put within a file: {statistics.median(one.elsewhere for one in rounds):.3g} ms")


if __name__ == "__main__":
    for one in measured(Path(sys.argv[1]) if len(sys.argv) > 1 else None):
        tell(one)
