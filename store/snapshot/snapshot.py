"""A copy of a store with its holes, times and a manifest; of a live store one that recovers up to a stated offset.

The order makes it so. What may lag behind the log is copied first: checkpoint, config, index, queues. Then the end of
the log is pinned, and the log is copied up to there, newest file first: a cleaner removes the oldest, so that what was
copied has no gap. The copy of a live store gets an `abort` file: the program that opens it recovers it, as after a
crash.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

from rmqctl.formats.errors import CorruptError, NotAStoreError, UnreadableError, WriteFailedError, unreadable
from rmqctl.formats.notebook import as_html
from rmqctl.store.files import io
from rmqctl.store.files.layout import of_one
from rmqctl.store.files.lock import is_in_use
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.outputs import Sharing, copy_sparsely, publish, staged_directory
from rmqctl.store.files.reading import (
    data_extents,
    exists,
    is_directory,
    is_link,
    is_real_directory,
    is_same_time,
    is_there,
    named,
    no_answer,
)
from rmqctl.store.log.survey import settled_end
from rmqctl.store.options import Events
from rmqctl.store.salvage.sources import check_target
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from concurrent.futures import Future

# The manifest of a snapshot: what was copied, with a hash of each file and of itself; reading it and holding to it.

MANIFEST_NAME = "rmqctl-snapshot.json"
FORMAT = 1
_SELF = "manifest_sha256"
_LARGEST_MANIFEST = 1 << 30
_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)
# files that are hashed at a time, at most, and that wait for it: of ten thousand queues each has 6 MB, nearly all zeros
_THREADS, _WAITING = 4, 16

_Result = TypeVar("_Result")


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
        raise unreadable(error, path, "opened") from error
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
        raise unreadable(error, path) from error
    finally:
        os.close(descriptor)
    return digest.hexdigest()


class _SideBySide(Generic[_Result]):
    """Threads make something of the files of a snapshot, some at a time; what they made comes in the files' order."""

    def __init__(self, work: Callable[[CopiedFile], _Result]) -> None:
        from concurrent.futures import ThreadPoolExecutor  # loads logging, which few commands need

        self._work = work
        self._waiting: deque[tuple[CopiedFile, Future[_Result]]] = deque()
        self._pool = ThreadPoolExecutor(min(_THREADS, len(os.sched_getaffinity(0))), "hash")

    def __enter__(self) -> _SideBySide[_Result]:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, file: CopiedFile) -> Iterator[tuple[CopiedFile, _Result]]:
        """Take one more file. Yields the first one that waits, once there are many."""
        self._waiting.append((file, self._pool.submit(self._work, file)))
        if len(self._waiting) >= _WAITING:
            yield self._next()

    def rest(self) -> Iterator[tuple[CopiedFile, _Result]]:
        """Yield what still waits."""
        while self._waiting:
            yield self._next()

    def _next(self) -> tuple[CopiedFile, _Result]:
        file, made = self._waiting.popleft()
        return file, made.result()


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
        raise unreadable(error, path, "opened") from error
    with open(descriptor, "rb") as file:
        data = file.read(_LARGEST_MANIFEST) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    try:
        manifest = json.loads(data)
        if isinstance(manifest, dict) and manifest.get(_SELF) == _own_hash(manifest):
            return manifest
    except (ValueError, RecursionError):  # not JSON, numbers beyond all bounds, or nested beyond all bounds
        pass
    raise CorruptError("is not as it was written: its own hash does not fit", file=path)


def check_files(root: Path, manifest: dict[str, Any], events: Events) -> Iterator[Problem]:
    """Yield everything at `root` that is not as the manifest says, file by file in its order, then what is there
    besides. `progress` gets what files take on disk."""
    expected: set[str] = {MANIFEST_NAME}
    for name in manifest.get("directories", ()):
        expected.add(name)
        problem = _check_directory(root, name)
        if problem is not None:
            yield problem
    copies = [CopiedFile(*(row[name] for name in CopiedFile._fields)) for row in manifest.get("files", ())]
    expected.update(copied.path for copied in copies)
    with _SideBySide(lambda copied: _check(root, copied)) as checks:
        for copied, problem in chain(chain.from_iterable(map(checks.add, copies)), checks.rest()):
            if problem is not None:
                yield problem
            elif events.progress is not None:
                events.passed(io.tree_on_disk_bytes(root / copied.path))
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


# what is copied before the rest, in this order; a unit of a queue may point into its ext file, so that comes later
_FIRST = ("checkpoint", "config", "index", "consumequeue", "batchconsumequeue", "consumequeue_ext")
_MARKS = ("abort", "abort.bak", "lock")


@dataclass(slots=True)
class SnapshotReport:
    """What was copied. `min_offset` and `end_offset`: of the log in the copy; up to `end_offset` it recovers.
    `was_live`: a process had the store open. `skipped`: links and special files, which are not copied; `vanished`:
    files that the live store removed meanwhile."""

    _repr_html_ = as_html

    snapshot: str
    source: str
    was_live: bool
    min_offset: int = 0
    end_offset: int = 0
    files: int = 0
    bytes: int = 0
    reflinks: int = 0
    hard_links: int = 0
    vanished: int = 0
    skipped: list[str] = field(default_factory=list)


@dataclass(slots=True)
class VerifyReport:
    """What `verify_snapshot` found."""

    _repr_html_ = as_html

    snapshot: str
    created: str
    files: int
    bytes: int
    end_offset: int
    problems: list[Problem] = field(default_factory=list)


def take_snapshot(
    files: StoreFiles,
    target: Path,
    version: str,
    *,
    sharing: Sharing = Sharing.AUTO,
    hard_links: bool = False,
    events: Events = Events(),
) -> SnapshotReport:
    """Copy the store to the new directory `target`, which appears when it is complete and on disk.

    `version`: of the program, for the manifest. `hard_links`: give full commitlog files a second name instead of
    copying them. A broker only ever removes those, and changes by rmqctl give them bytes of their own first; what else
    writes into them changes the snapshot, which `verify_snapshot` finds. RefusedError for a target that exists or is in
    a store, UnreadableError, WriteFailedError; the partial copy is then removed.
    """
    check_target(target, [files.root, *files.layout.commitlog], [])
    with named(files.root), staged_directory(target) as staging:
        with _SideBySide(lambda copied: sha256_of(staging / copied.path)) as hashes:
            copying = _Snapshot(files, staging, hashes, sharing, hard_links, events)
            copying.run()
            copying.finish(version)
        publish(staging, target)
    copying.report.snapshot = str(target)
    return copying.report


def verify_snapshot(target: Path, events: Events = Events()) -> VerifyReport:
    """Hold a snapshot against its manifest; only looks. NotAStoreError without one, CorruptError where the manifest
    itself is not as it was written."""
    manifest = read_manifest(target)
    rows = manifest.get("files", [])
    report = VerifyReport(
        str(target), str(manifest.get("created")), len(rows), 0, int(manifest.get("log", {}).get("end_offset", 0))
    )
    for row in rows:
        report.bytes += int(row["size"])
    report.problems += check_files(target, manifest, events)
    return report


class _Snapshot:
    """One snapshot on its way."""

    def __init__(
        self,
        files: StoreFiles,
        root: Path,
        hashes: _SideBySide[str],
        sharing: Sharing,
        hard_links: bool,
        events: Events,
    ) -> None:
        self._files = files
        self._root = root
        self._sharing = sharing
        self._hard_links = hard_links
        self._events = events
        self._copied: list[CopiedFile] = []
        self._hashes = hashes
        self._directories: dict[Path, os.stat_result] = {}
        is_live = is_in_use(files.layout)
        self._has_abort = files.has_abort()
        self.report = SnapshotReport(str(root), str(files.root), is_live)
        self._logs = [Path(os.path.realpath(directory)) for directory in files.layout.commitlog]

    def run(self) -> None:
        """Copy everything in the order that makes it consistent."""
        self._note_directory(self._files.root, self._root)
        for name in _FIRST:
            self._copy_below(self._files.root / name, self._root / name)
        known = {*_FIRST, *_MARKS}
        for name in sorted(os.listdir(self._files.root)):
            path = self._files.root / name
            if name not in known and Path(os.path.realpath(path)) not in self._logs:
                self._copy_below(path, self._root / name)
        self._copy_log()
        for name in _MARKS:
            self._copy_below(self._files.root / name, self._root / name)
        if (self.report.was_live or self._has_abort) and not exists(self._root / "abort"):
            io.create_file(self._root / "abort", 0)
            self._note(self._root / "abort", "copy")

    def finish(self, version: str) -> None:
        """Times and owners of the directories, the manifest, and all of it on disk."""
        report = self.report
        self._take(self._hashes.rest())
        report.files, report.bytes = len(self._copied), sum(copied.size for copied in self._copied)
        write_manifest(
            self._root,
            {
                "format": FORMAT,
                "program": f"rmqctl {version}",
                "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "source": report.source,
                "was_live": report.was_live,
                "log": {"min_offset": report.min_offset, "end_offset": report.end_offset},
                "skipped": report.skipped,
                "directories": sorted(self._relative(path) for path in self._directories if path != self._root),
                "files": [copied._asdict() for copied in self._copied],
            },
        )
        for directory in sorted(self._directories, reverse=True):
            status = self._directories[directory]
            io.give_to(directory, of_one(status))
            io.set_modified(directory, status.st_mtime_ns)
            io.flush_directory(directory)

    # ---- the log

    def _copy_log(self) -> None:
        report = self.report
        log = MappedFileQueue(self._files.layout.commitlog, self._files.log.file_size or None, self._files.descriptors)
        log.load()
        report.end_offset = settled_end(log)
        kept = [file for file in log.files if not report.was_live or file.start_offset <= report.end_offset]
        for directory in self._files.layout.commitlog:
            self._prepare(directory)
        for number, file in enumerate(reversed(kept)):
            # a live file is copied up to the pinned end; of a store at rest every byte is kept
            length = file.size
            if report.was_live:
                length = min(length, max(0, report.end_offset - file.start_offset))
            is_full = number > 0 and length == file.size
            if not self._copy_file(file.path, self._target_of(file.path), length, file.size, is_full):
                break
            report.min_offset = file.start_offset
        if not report.was_live:
            logged = {file.path for file in log.files}
            for directory in self._files.layout.commitlog:
                for name in self._listed(directory):
                    if directory / name not in logged:
                        self._copy_below(directory / name, self._target_of(directory / name))

    def _prepare(self, directory: Path) -> None:
        if is_directory(directory):
            target = self._target_of(directory / "x").parent
            io.make_directories(target)
            self._note_directory(directory, target)

    def _target_of(self, path: Path) -> Path:
        """Return the place of a commitlog file in the copy: its place below the root, or `commitlog` if it is
        elsewhere."""
        root = self._files.root
        if path.is_relative_to(root):
            return self._root / path.relative_to(root)
        return self._root / "commitlog" / path.name

    # ---- everything else

    def _copy_below(self, source: Path, target: Path) -> None:
        """A file, or a directory with everything in it."""
        try:
            # a folder of the store itself may be a link to another disk; no other link is followed
            is_own = source.parent == self._files.root and source.name in _FIRST
            status = source.stat() if is_own else source.lstat()
        except FileNotFoundError:
            return
        except OSError as error:  # without it the copy would seem whole
            raise no_answer(error, source) from error
        if stat.S_ISREG(status.st_mode):
            self._copy_file(source, target, status.st_size, status.st_size, False)
        elif stat.S_ISDIR(status.st_mode):
            io.make_directories(target)
            self._note_directory(source, target)
            for name in self._listed(source):
                self._copy_below(source / name, target / name)
        else:
            self.report.skipped.append(self._relative(target))

    def _listed(self, directory: Path) -> Iterator[str]:
        try:
            yield from sorted(os.listdir(directory))
        except FileNotFoundError:
            return
        except OSError as error:
            raise unreadable(error, directory, "listed") from error

    def _copy_file(self, source: Path, target: Path, length: int, size: int, is_full: bool) -> bool:
        """One regular file; False if a live store has removed it."""
        how = "copy"
        try:
            if is_full and self._hard_links and self._linked(source, target):
                how = "hardlink"
            elif copy_sparsely(source, target, length, self._sharing):
                how = "reflink"
        except (UnreadableError, WriteFailedError) as error:
            if not self.report.was_live or not isinstance(error.__cause__, FileNotFoundError):
                raise
            self.report.vanished += 1
            return False
        if length < size:
            modified = target.stat().st_mtime_ns
            io.truncate(target, size)
            io.set_modified(target, modified)
            io.flush_file(target)
        self._note(target, how)
        if self._events.progress is not None:
            with contextlib.suppress(FileNotFoundError):  # a live store may have removed it since
                self._events.passed(io.tree_on_disk_bytes(source))
        return True

    def _linked(self, source: Path, target: Path) -> bool:
        try:
            io.link(source, target)
        except WriteFailedError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise
            return False  # another file system, or one without links
        self.report.hard_links += 1
        return True

    def _note(self, path: Path, how: str) -> None:
        status = path.stat()
        self.report.reflinks += how == "reflink"
        copied = CopiedFile(self._relative(path), status.st_size, status.st_mtime_ns, "", how)
        self._take(self._hashes.add(copied))

    def _take(self, hashed: Iterable[tuple[CopiedFile, str]]) -> None:
        self._copied += [copied._replace(sha256=sha256) for copied, sha256 in hashed]

    def _note_directory(self, source: Path, target: Path) -> None:
        self._directories[target] = source.stat()

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()
