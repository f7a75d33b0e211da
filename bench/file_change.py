"""The longest put at a change of the commitlog's file, with and without files made ahead, and with warm-up.

`python -m bench.file_change [FOLDER]` prints a JSON line for each: milliseconds, medians over the rounds of the longest
of the puts that began a new file, the variants in turns. Files of 64 MiB, messages of 128 KiB, asynchronous flush; the
sender rests after each put, so that files can be made ahead.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.measure import Measurement, say, tell
from rmqctl.store import Message, MessageStore
from rmqctl.store.config.config import StoreConfig

_FILE_BYTES = 64 * 1024 * 1024
_BODY = bytes(128 * 1024)
_FILES = 3
_ROUNDS = 3
_REST = 0.001


class Variant(NamedTuple):
    """How files of the log are made."""

    name: str
    is_ahead: bool
    is_warm: bool


VARIANTS = (
    Variant("when-needed", is_ahead=False, is_warm=False),
    Variant("when-needed-warm", is_ahead=False, is_warm=True),
    Variant("ahead", is_ahead=True, is_warm=False),
    Variant("ahead-warm", is_ahead=True, is_warm=True),
)


class Longest(NamedTuple):
    """The longest puts in ms: of those that began a file, and of the others."""

    at_change: float
    elsewhere: float


def longest(variant: Variant, root: Path) -> Longest:
    """Put messages until some files are full."""
    config = StoreConfig(mapped_file_size_commit_log=_FILE_BYTES, warm_maped_file_enable=variant.is_warm)
    at_change, elsewhere = 0.0, 0.0
    with MessageStore.open(root, "rw", config=config, create=True, allocate_ahead=variant.is_ahead) as store:
        message, number = Message("Bench", _BODY), 0
        store.put(message)
        while number < _FILES:
            begin = time.perf_counter()
            result = store.put(message)
            taken = (time.perf_counter() - begin) * 1000
            assert result.physical_offset is not None, result
            if result.physical_offset // _FILE_BYTES > number:
                number += 1
                at_change = max(at_change, taken)
            else:
                elsewhere = max(elsewhere, taken)
            time.sleep(_REST)
    return Longest(at_change, elsewhere)


def main(folder: str | None) -> int:
    """Measure in a temporary folder of `folder`."""
    taken: dict[str, list[Longest]] = {one.name: [] for one in VARIANTS}
    for _ in range(_ROUNDS):
        for variant in VARIANTS:
            with tempfile.TemporaryDirectory(dir=folder) as root:
                taken[variant.name].append(longest(variant, Path(root, "store")))
    base = statistics.median(one.at_change for one in taken[VARIANTS[0].name])
    for name, rounds in taken.items():
        ours = statistics.median(one.at_change for one in rounds)
        tell(Measurement(f"file-change-{name}", ours, base, base / ours, "ms", _ROUNDS, "files made when needed"))
        say(f"longest put within a file: {statistics.median(one.elsewhere for one in rounds):.3g} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
