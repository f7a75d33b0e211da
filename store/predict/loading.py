"""Which files a broker loads of a directory, and what it refuses to start on (MappedFileQueue#doLoad)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rmqctl.formats.errors import refuse_exhausted
from rmqctl.formats.hashing import parse_long
from rmqctl.store.predict.rules import Rules

_LONG = 1 << 63


@dataclass(slots=True)
class Loaded:
    """`files`: (start offset, path) in the order of their names. `deleted`: what loading removes. `error`: why it
    fails, in the broker's words; None if it does not."""

    files: list[tuple[int, Path]] = field(default_factory=list)
    deleted: list[Path] = field(default_factory=list)
    error: str | None = None


def load_files(directories: Iterable[Path], file_size: int, rules: Rules) -> Loaded:
    """What loading the files of one queue comes to; `file_size` is the configured one. Nothing is changed."""
    found: list[Path] = []
    for directory in directories:
        try:
            found += [directory / name for name in os.listdir(directory)]
        except OSError as error:
            refuse_exhausted(error, directory)
            continue  # File#listFiles gives null: nothing to load
    found.sort(key=lambda path: path.name)
    loaded = Loaded()
    for number, path in enumerate(found, start=1):
        length, is_directory = _length(path)
        if rules.tidies_listing and is_directory:
            continue
        if rules.tidies_listing and length == 0 and number == len(found):
            loaded.deleted.append(path)
            continue
        if length != file_size:
            loaded.error = f"{path}\t{length} length not matched message store config value, please check it manually"
            return loaded
        start = parse_long(path.name)
        if start is None:
            loaded.error = number_format(path.name)
            return loaded
        loaded.files.append((start, path))
    return loaded


def _length(path: Path) -> tuple[int, bool]:
    """File#length and File#isDirectory: 0 for whatever cannot be looked at."""
    try:
        status = path.stat()
    except OSError:
        return 0, False
    return status.st_size, stat.S_ISDIR(status.st_mode)


def number_format(text: str) -> str:
    """What Java says of a text that is no number."""
    return f'load exception: java.lang.NumberFormatException: For input string: "{text}"'


def list_in_order(directory: Path) -> list[str]:
    """Names in the order in which the file system lists them, as File#listFiles gives them; empty if it cannot."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]
    except OSError as error:
        refuse_exhausted(error, directory)
        return []
