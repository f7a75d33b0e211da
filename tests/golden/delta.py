"""The difference of two stores that are nearly the same, and how it is put onto a copy of the first one.

A broken golden is its base with a few bytes changed, a file gone or a file more, so only that is kept. As JSON:

    base                 name of the golden that the delta applies to
    removed              files that are gone
    removed_directories  directories that are gone with all they hold
    directories          directories that are new
    files                path -> {"length": its length, "writes": [[offset, bytes in hex], ...]}; a file that the base
                         does not have starts empty, any other with the base's bytes; growing adds zeros
    mtimes               path -> modification time in nanoseconds, where the base's would be wrong ("." = the store)

Paths are relative to the store and use "/".
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

JOIN_GAP = 16
"""Two differing ranges closer than this many bytes become one write: shorter in JSON."""


@dataclass
class FileChange:
    """New length of a file in bytes and the byte ranges written to it, as (offset, hex)."""

    length: int
    writes: list[tuple[int, str]]


@dataclass
class Delta:
    """What turns a copy of golden `base` into another store; the module's docstring tells each field."""

    base: str
    removed: list[str] = field(default_factory=list)
    removed_directories: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    files: dict[str, FileChange] = field(default_factory=dict)
    mtimes: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """The delta as one JSON object, without its empty parts."""
        return json.dumps({name: part for name, part in asdict(self).items() if part}, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Delta:
        """The delta that `to_json` wrote."""
        raw = json.loads(text)
        changes = {
            path: FileChange(change["length"], [(offset, data) for offset, data in change["writes"]])
            for path, change in raw.pop("files", {}).items()
        }
        return cls(files=changes, **raw)


def paths_below(store: Path) -> tuple[set[str], set[str]]:
    """All directories (with "." for the store itself) and all files below `store`, as relative paths."""
    directories: set[str] = set()
    files: set[str] = set()
    for folder, _, names in os.walk(store):
        relative = Path(folder).relative_to(store)
        directories.add(relative.as_posix())
        files.update((relative / name).as_posix() for name in names)
    return directories, files


def differing_ranges(before: bytes, after: bytes) -> Iterator[tuple[int, bytes]]:
    """The ranges of `after` that differ from `before`, cut or filled up with zeros to the same length."""
    padded = before[: len(after)].ljust(len(after), b"\0")
    if padded == after:
        return
    differing = (at for at, (old, new) in enumerate(zip(padded, after, strict=True)) if old != new)
    start = end = next(differing)
    for at in differing:
        if at - end > JOIN_GAP:
            yield start, after[start : end + 1]
            start = at
        end = at
    yield start, after[start : end + 1]


def difference(base_name: str, base: Path, store: Path) -> Delta:
    """The delta that turns a copy of the store at `base` into the store at `store`, bytes and mtimes."""
    base_directories, base_files = paths_below(base)
    directories, files = paths_below(store)
    delta = Delta(base_name, directories=sorted(directories - base_directories))
    gone = base_directories - directories
    delta.removed_directories = sorted(path for path in gone if Path(path).parent.as_posix() not in gone)
    delta.removed = sorted(path for path in base_files - files if Path(path).parent.as_posix() not in gone)
    for path in sorted(files):
        before = (base / path).read_bytes() if path in base_files else None
        after = (store / path).read_bytes()
        if before != after:
            writes = [(at, data.hex()) for at, data in differing_ranges(before or b"", after)]
            delta.files[path] = FileChange(len(after), writes)
    touched = set(delta.files) | set(delta.directories)
    for path in (*delta.files, *delta.directories, *delta.removed, *delta.removed_directories):
        touched.add(Path(path).parent.as_posix())
    for path in sorted(directories | files):
        mtime = (store / path).stat().st_mtime_ns
        if path in touched or mtime != (base / path).stat().st_mtime_ns:
            delta.mtimes[path] = mtime
    return delta


def apply(delta: Delta, store: Path) -> None:
    """Turn the store at `store`, a copy of the delta's base, into the store that the delta stands for."""
    for path in delta.removed:
        (store / path).unlink()
    for path in delta.removed_directories:
        shutil.rmtree(store / path)
    for path in delta.directories:
        (store / path).mkdir()
    for path, change in delta.files.items():
        target = store / path
        with target.open("r+b" if target.exists() else "w+b") as file:
            file.truncate(change.length)
            for offset, data in change.writes:
                file.seek(offset)
                file.write(bytes.fromhex(data))
    for path, mtime in delta.mtimes.items():  # last: the changes above move the mtimes of the directories they are in
        os.utime(store / path, ns=(mtime, mtime))
