"""Make the twin of a store: of the same shape and with the same faults, and with no name and no body of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqctl.formats.errors import RefusedError, UnsupportedError
from rmqctl.formats.layouts import (
    BATCH_CONSUMEQUEUE_UNIT,
    CONSUMEQUEUE_UNIT,
    INDEX_ENTRY,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    TIMER_LOG_UNIT,
)
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, is_file_name, is_queue_name
from rmqctl.store.files.lock import is_in_use
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.outputs import publish, staged_directory
from rmqctl.store.files.reading import (
    Descriptors,
    data_extents,
    exists,
    is_directory,
    is_link,
    is_real_directory,
    is_real_file,
    named,
)
from rmqctl.store.index.index_file import infer_geometry
from rmqctl.store.log.walk import is_left_over
from rmqctl.store.options import Events
from rmqctl.store.salvage.sources import check_target
from rmqctl.store.store_files import StoreFiles, refuse_dledger
from rmqctl.store.twin.config_text import rewrite_config
from rmqctl.store.twin.derived import Hashes, rewrite_ext, rewrite_index, rewrite_units
from rmqctl.store.twin.frames import rewrite_span
from rmqctl.store.twin.words import Words

_UNITS = {
    "consumequeue": (CONSUMEQUEUE_UNIT, "tags_code"),
    "batchconsumequeue": (BATCH_CONSUMEQUEUE_UNIT, "tags_code"),
    "timerlog": (TIMER_LOG_UNIT, "topic_hash"),
}
_FOLDERS = frozenset(
    ("commitlog", "index", "config", "compaction", "consumequeue_ext", "compactionLog", "compactionCq")
)
# nothing but numbers
_NUMBERS = frozenset("checkpoint timercheck timerwheel".split())
_TEXTS = frozenset(
    "abort abort.bak lock epochFileCheckpoint epochFileCheckpoint.bak brokerIdentity brokerIdentity.bak "
    "position-checkpoint position-checkpoint.bak".split()
)
_CHUNK = 16 << 20
_WINDOW = 1 << 16
_PAGE, _PIECE = 4096, 12
_MAGICS = tuple(one.to_bytes(4, "big") for one in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2))


@dataclass(slots=True)
class TwinReport:
    """Numbers of a twin: files, and bytes of them."""

    twin: str
    source: str
    files: int = 0
    bytes: int = 0


def make_twin(files: StoreFiles, target: Path, events: Events = Events()) -> TwinReport:
    """Make the twin of a store at rest in the new directory `target`, which appears when it is complete and on disk.

    Raises:
        UnsupportedError: the store has a RocksDB with entries, a DLedger log, or a folder that is not known.
        RefusedError: `target` exists or is in the store, or a broker has the store open. WriteFailedError,
        UnreadableError: nothing is left behind.
    """
    layout = files.layout
    check_target(target, [files.root, *layout.commitlog], [])
    if exists(target):
        raise RefusedError("exists already", file=target, hint="name a new directory")
    _refuse_unknown(layout)
    if is_in_use(layout):
        raise RefusedError(
            "a broker has the store open",
            file=files.root,
            hint="`rmqctl snapshot DIR` copies it: make the twin of that",
        )
    with named(files.root), staged_directory(target) as staging:
        report = _Twin(files, staging, events).run()
        publish(staging, target)
    report.twin = str(target)
    return report


def _refuse_unknown(layout: StoreLayout) -> None:
    refuse_dledger(layout)
    hint = "`rmqctl report --anonymise` writes its numbers without names"
    for folder in (*layout.rocksdb, *_databases(layout.config)):
        if any(_has_entries(path) for path in folder.iterdir()):
            raise UnsupportedError("a RocksDB with entries cannot be rewritten yet", file=folder, hint=hint)
    logs = {os.path.realpath(path) for path in layout.commitlog}
    if any(not Path(path).is_relative_to(os.path.realpath(layout.root)) for path in logs):
        raise UnsupportedError("a commitlog outside of its store cannot be rewritten yet", file=layout.root, hint=hint)
    known = {*_UNITS, *_FOLDERS, "rocksdbstore"}
    for path in sorted(layout.root.iterdir()):
        is_log = any(Path(log).is_relative_to(os.path.realpath(path)) for log in logs)
        if is_link(path) or (is_directory(path) and path.name not in known and not is_log):
            raise UnsupportedError("it is not known how to replace what is in this folder", file=path, hint=hint)


def _databases(config: Path) -> list[Path]:
    return [path for path in sorted(config.iterdir()) if is_directory(path)] if is_directory(config) else []


def _has_entries(path: Path) -> bool:
    return path.suffix in (".sst", ".log", ".blob") and path.stat().st_size > 0


class _Twin:
    """One twin on its way."""

    def __init__(self, files: StoreFiles, target: Path, events: Events) -> None:
        self._root, self._target = files.root, target
        self._files = files
        self._events = events
        self._words = Words()
        self._hashes = Hashes(self._words, files.log)
        self._extents: dict[tuple[str, ...], dict[int, int]] = {}
        self._descriptors = Descriptors()
        # below the store, whose own path may be relative or lead over a link
        root = os.path.realpath(files.root)
        self._logs = [Path(os.path.realpath(path)).relative_to(root) for path in files.layout.commitlog]
        self._report = TwinReport(str(target), str(files.root))

    def run(self) -> TwinReport:
        """Write all files, then the times of the folders."""
        folders = [(self._root, self._target)]
        with self._descriptors:
            for path in _tree(self._root):
                if self._is_left_out(path):
                    continue
                target = self._target / self._name_of(path)
                if is_directory(path):
                    io.make_directories(target)
                    folders.append((path, target))
                else:
                    self._write(path, target)
        for path, target in reversed(folders):
            status = path.stat()
            io.set_modified(target, status.st_mtime_ns)
            io.flush_directory(target)
        return self._report

    def _is_left_out(self, path: Path) -> bool:
        """Return whether a file holds nothing but how and where a RocksDB was opened."""
        return not (is_real_file(path) or is_real_directory(path)) or path.name.startswith("OPTIONS-")

    def _name_of(self, path: Path) -> Path:
        """Return the path in the twin: folders and files of every store keep their names."""
        below = path.relative_to(self._root)
        parts = list(below.parts)
        is_log = any(below.is_relative_to(log) or log.is_relative_to(below) for log in self._logs)
        for at, part in enumerate(parts):
            is_known = at == 0 and (part in _UNITS or part in _FOLDERS or part in _NUMBERS or part in _TEXTS)
            is_known = is_known or is_file_name(part) or is_queue_name(part) or part in _FOLDERS or part in _TEXTS
            is_known = is_known or parts[0] in ("config", "rocksdbstore", "index") or (is_log and is_directory(path))
            if not is_known and not (is_log and is_file_name(parts[-1]) and at < len(parts) - 1):
                parts[at] = self._words.name(part)
        return Path(*parts)

    def _write(self, path: Path, target: Path) -> None:
        status = path.stat()
        io.create_file(target, status.st_size)
        descriptor = io.open_for_writing(target)
        try:
            for at, data in self._content(path, target, status.st_size):
                if any(data):
                    io.write_at(descriptor, target, at, data)
                self._events.passed(len(data))
            io.set_modified(target, status.st_mtime_ns)
            io.flush_descriptor(descriptor, target)
        finally:
            os.close(descriptor)
        self._report.files += 1
        self._report.bytes += status.st_size

    def _content(self, path: Path, target: Path, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield the pieces of the twin of a file that are not holes, with their positions."""
        below = path.relative_to(self._root)
        parts = below.parts
        is_offset = is_file_name(path.name)
        if is_offset and (any(below.is_relative_to(log) for log in self._logs) or "compactionLog" in parts):
            yield from self._log(path, target, size)
        elif parts[0] == "index" and size >= INDEX_ENTRY.size * 2:
            data = self._descriptors.read(path, 0, size)
            yield 0, rewrite_index(self._words, self._hashes, data, infer_geometry(path, size, self._descriptors))
        elif is_offset and parts[0] == "consumequeue_ext":
            extents = self._extents.get(parts[1:-1], {})
            data = self._descriptors.read(path, 0, size)
            yield 0, rewrite_ext(self._words, self._hashes, data, int(path.name), extents)
        elif is_offset and (parts[0] in _UNITS or "compactionCq" in parts):
            layout, field = _UNITS.get(parts[0], _UNITS["batchconsumequeue"])
            hashes = self._hashes if parts[0] in _UNITS else self._of_compacted(path.parent)
            extents = self._extents.setdefault(parts[1:-1], {})
            step = _CHUNK // layout.size * layout.size
            for begin, end in _whole_units(path, size, layout.size):
                for at in range(begin, end, step):
                    data = self._descriptors.read(path, at, min(step, end - at))
                    yield at, rewrite_units(hashes, layout, field, data, extents)
        else:
            for begin, end in data_extents(path, 0, size):
                for at in range(begin, end, _CHUNK):
                    yield at, self._other(path, parts, self._descriptors.read(path, at, min(_CHUNK, end - at)))

    def _of_compacted(self, queue: Path) -> Hashes:
        """Return the hashes of a queue of compacted messages: its units lead into the log of the queue alone."""
        folder = queue.parents[2] / "compactionLog" / queue.parent.name / queue.name
        log = MappedFileQueue([folder], None, self._descriptors)
        log.load()
        return Hashes(self._words, log)

    def _other(self, path: Path, parts: tuple[str, ...], data: bytes) -> bytes:
        if path.name.removesuffix(".bak") in _NUMBERS or parts[0] == "rocksdbstore":
            return data
        if parts[0] == "config" or path.name in _TEXTS:
            return rewrite_config(self._words, data)
        return self._words.noise(data)

    def _log(self, path: Path, target: Path, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield the frames of a file of the log, and what is between them."""
        done, is_after_frame = 0, False
        for begin, end in data_extents(path, 0, size):
            at = max(begin, done)
            while at < end:
                head = self._descriptors.read(path, at, 8)
                length = int.from_bytes(head[:4], "big") if head[4:] in _MAGICS else 0
                window = min(size - at, length if _WINDOW < length <= size - at else _WINDOW)
                data = self._descriptors.read(path, at, window)
                is_last = at + window == size
                twin = rewrite_span(self._words, data, is_last=is_last)
                stop = at + len(data[: -at % _PAGE].rstrip(b"\0"))
                if is_after_frame and head[4:] not in _MAGICS and not any(data[stop - at :]):
                    file = MappedFile(path, int(path.name), size, self._descriptors)
                    if is_left_over(file, at, stop):
                        twin = self._left_over(self._descriptors.read(path, 0, at), data[: stop - at], target)
                is_after_frame = head[4:] in _MAGICS
                yield at, twin
                at += len(twin)
            done = at

    def _left_over(self, before: bytes, data: bytes, target: Path) -> bytes:
        """Return the twin of pieces of earlier messages of the file: the same pieces of their twins."""
        new = self._descriptors.read(target, 0, len(before))
        out = bytearray()
        while len(out) < len(data):
            begin = len(out)
            found = before.rfind(data[begin : begin + _PIECE])
            ends = range(_PIECE, len(data) - begin)
            differs = (at for at in ends if before[found + at : found + at + 1] != data[begin + at : begin + at + 1])
            length = next(differs, len(data) - begin) if found >= 0 else 1
            out += self._words.noise(data[begin : begin + 1]) if found < 0 else new[found : found + length]
        return bytes(out)


def _whole_units(path: Path, size: int, unit: int) -> Iterator[tuple[int, int]]:
    """Yield ranges that hold data, from the start of a unit on, each once."""
    done = 0
    for start, end in data_extents(path, 0, size):
        begin = max(done, start // unit * unit)
        done = min(size, -(-end // unit) * unit)
        if begin < done:
            yield begin, done


def _tree(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder, folders first, queues before their ext units."""
    for path in sorted(folder.iterdir()):
        yield path
        if is_real_directory(path):
            yield from _tree(path)
