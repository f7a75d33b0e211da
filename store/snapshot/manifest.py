"""The manifest of a snapshot: what was copied, with a hash of each file and of itself; reading it and holding to it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, NoReturn

from rmqctl.formats.errors import CorruptError, NotAStoreError, UnreadableError, refuse_exhausted
from rmqctl.store.files import io
from rmqctl.store.files.presence import is_link, is_real_directory, is_same_time, is_there
from rmqctl.store.files.reading import named
from rmqctl.store.files.zeros import data_extents

MANIFEST_NAME = "rmqctl-snapshot.json"
FORMAT = 1
_SELF = "manifest_sha256"
_LARGEST_MANIFEST = 1 << 30
_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)


class CopiedFile(NamedTuple):
    """A file of a snapshot. `path` is relative, with slashes; `how`: copy, reflink or hardlink."""

    path: str
    size: int
    mtime_ns: int
    sha256: str
    how: str


class Problem(NamedTuple):
    """What is not as the manifest has it: `problem` is missing, size, content, time, kind, extra or path. Times are
    in ns since 1970."""

    path: str
    problem: str
    expected: str | int | None = None
    found: str | int | None = None


def sha256_of(path: Path) -> str:
    """SHA-256 of a regular file, holes read as zeros without reading them. UnreadableError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        refuse_exhausted(error, path)
        raise UnreadableError(f"cannot be opened: {error.strerror}", file=path) from error
    digest = hashlib.sha256()
    try:
        size, position = os.fstat(descriptor).st_size, 0
        for begin, end in (*data_extents(path, 0, size), (size, size)):
            while position < begin:
                count = min(_CHUNK, begin - position)
                digest.update(memoryview(_ZEROS)[:count])
                position += count
            while position < end:
                data = os.pread(descriptor, min(_CHUNK, end - position), position)
                if not data:
                    raise UnreadableError("has become shorter while it was read", file=path)
                digest.update(data)
                position += len(data)
    except OSError as error:
        refuse_exhausted(error, path)
        raise UnreadableError(f"cannot be read: {error.strerror}", file=path) from error
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def write_manifest(root: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of the snapshot at `root`, its own hash in it."""
    manifest = {**manifest, _SELF: _own_hash(manifest)}
    io.write_whole(root / MANIFEST_NAME, (json.dumps(manifest, indent=1) + "\n").encode("ascii"))


def _own_hash(manifest: dict[str, Any]) -> str:
    """Of the canonical form without the hash itself."""
    content = {name: value for name, value in manifest.items() if name != _SELF}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def read_manifest(root: Path) -> dict[str, Any]:
    """The manifest of a snapshot. NotAStoreError without one; CorruptError where it is not as it was written."""
    path = root / MANIFEST_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise NotAStoreError(
            "holds no manifest of a snapshot", file=root, hint="`rmqctl snapshot DIR` makes one"
        ) from None
    except OSError as error:
        refuse_exhausted(error, path)
        raise UnreadableError(f"cannot be opened: {error.strerror}", file=path) from error
    with open(descriptor, "rb") as file:
        data = file.read(_LARGEST_MANIFEST) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    try:
        manifest = json.loads(data)
        if isinstance(manifest, dict) and manifest.get(_SELF) == _own_hash(manifest):
            return manifest
    except (ValueError, RecursionError):  # not JSON, numbers beyond all bounds, or nested beyond all bounds
        pass
    raise CorruptError("is not as it was written: its own hash does not fit", file=path)


def check_files(root: Path, manifest: dict[str, Any]) -> Iterator[Problem]:
    """Everything at `root` that is not as the manifest says, file by file in its order, then what is there besides."""
    expected: set[str] = {MANIFEST_NAME}
    for name in manifest.get("directories", ()):
        expected.add(name)
        problem = _check_directory(root, name)
        if problem is not None:
            yield problem
    for row in manifest.get("files", ()):
        copied = CopiedFile(*(row[name] for name in CopiedFile._fields))
        expected.add(copied.path)
        problem = _check(root, copied)
        if problem is not None:
            yield problem
    # directories are known since they are in the manifest
    for path in _present(root, with_directories="directories" in manifest):
        if path not in expected:
            yield Problem(path, "extra")


def _leads_out(name: str) -> Problem | None:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        return Problem(name, "path", None, "it leads out of the snapshot")
    return None


def _check_directory(root: Path, name: str) -> Problem | None:
    wrong = _leads_out(name)
    if wrong is not None:
        return wrong
    path = root / name
    if not is_there(path):
        return Problem(name, "missing")
    return None if is_real_directory(path) else Problem(name, "kind", "a directory", "none")


def _check(root: Path, copied: CopiedFile) -> Problem | None:
    wrong = _leads_out(copied.path)
    if wrong is not None:
        return wrong
    path = root / copied.path
    if not is_there(path):
        return Problem(copied.path, "missing")
    with named(path):
        status = path.lstat()
    is_inside = Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(root))
    if not stat.S_ISREG(status.st_mode) or not is_inside:
        return Problem(copied.path, "kind", "a regular file", "a link or another kind of file")
    if status.st_size != copied.size:
        return Problem(copied.path, "size", copied.size, status.st_size)
    found = sha256_of(path)
    if found != copied.sha256:
        return Problem(copied.path, "content", copied.sha256, found)
    # a broker deletes commitlog files by their age
    is_same = is_same_time(status.st_mtime_ns, copied.mtime_ns)
    return None if is_same else Problem(copied.path, "time", copied.mtime_ns, status.st_mtime_ns)


def _cannot_be_listed(error: OSError) -> NoReturn:
    raise UnreadableError(f"cannot be listed: {error.strerror}", file=error.filename) from error


def _present(root: Path, *, with_directories: bool) -> Iterator[str]:
    for folder, names, files in os.walk(root, onerror=_cannot_be_listed):
        names.sort()
        others = [name for name in names if with_directories or is_link(os.path.join(folder, name))]
        for name in sorted((*files, *others)):
            yield Path(folder, name).relative_to(root).as_posix()
