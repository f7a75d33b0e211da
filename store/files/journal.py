"""Carries out a plan: before-images and new bytes are on disk beside the store before its first byte changes.

A journal is a folder `<store>.rmqctl/<time>-<verb>/` with
`journal.json` (operations, sizes, mtimes, state), `before.bin` (bytes that were there), `after.bin` (bytes to come),
`moved/` (files and directories taken out) and `staged/` (files made beforehand). States: prepared, applied.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from formats.errors import RefusedError, WriteFailedError
from store.files import io
from store.files.layout import StoreLayout
from store.files.plan import ClearRange, CreateFile, Install, MoveAway, Operation, Plan, Resize, WriteRange
from store.files.reading import data_extents

VERSION = 1
_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)


class Journal:
    """One change of a store. Made empty, so that files can be staged in it before the plan is complete."""

    def __init__(self, layout: StoreLayout, verb: str, arguments: list[str] | None = None) -> None:
        moment = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(moment)) + f"{int(moment * 1000) % 1000:03d}Z"
        self.layout = layout
        self.folder = layout.kept / f"{stamp}-{verb}"
        self._head: dict[str, Any] = {
            "version": VERSION,
            "id": self.folder.name,
            "verb": verb,
            "arguments": arguments or [],
            "store": str(layout.root.resolve()),
            "started": int(moment * 1000),
        }

    @property
    def staging(self) -> Path:
        """Folder for files that a plan installs."""
        path = self.folder / "staged"
        io.make_directories(path)
        return path

    def discard(self) -> None:
        """Remove the journal of a plan that is not carried out."""
        if self.folder.is_dir():
            io.remove_tree(self.folder)
        with suppress(WriteFailedError):  # others' journals may be beside it
            io.remove_directory(self.layout.kept)

    def apply(self, plan: Plan) -> None:
        """Prepare, apply, verify. After an error the journal stays, and says `prepared`."""
        io.make_directories(self.folder)
        entries = self._prepare(plan)
        self._save(entries, "prepared")
        for operation, entry in zip(plan.operations, entries, strict=True):
            self._carry_out(operation, entry)
        for directory in _directories(plan):
            io.flush_directory(directory)
        for operation in plan.operations:
            _verify(operation)
        self._save(entries, "applied")

    def _save(self, entries: list[dict[str, Any]], state: str) -> None:
        text = json.dumps({**self._head, "state": state, "operations": entries}, indent=1)
        io.write_whole(self.folder / "journal.json", text.encode("utf-8"))

    def _prepare(self, plan: Plan) -> list[dict[str, Any]]:
        """Write before.bin and after.bin; returns the journal's entries."""
        with (
            _Blob(self.folder / "before.bin") as before,
            _Blob(self.folder / "after.bin") as after,
        ):
            entries = [_entry(number, operation, before, after) for number, operation in enumerate(plan.operations)]
        io.flush_directory(self.folder)
        io.flush_directory(self.folder.parent)
        return entries

    def _carry_out(self, operation: Operation, entry: dict[str, Any]) -> None:
        match operation:
            case WriteRange():
                _write(operation.path, operation.offset, [operation.data])
            case ClearRange():
                _write(operation.path, operation.offset, _zeros(operation.length))
            case Resize():
                io.truncate(operation.path, operation.size)
                io.flush_file(operation.path)
            case CreateFile():
                io.make_directories(operation.path.parent)
                io.create_file(operation.path, operation.size)
                io.flush_file(operation.path)
            case MoveAway():
                io.move(operation.path, self.folder / entry["moved"])
            case Install():
                if entry["moved"] is not None:
                    io.move(operation.path, self.folder / entry["moved"])
                io.make_directories(operation.path.parent)
                _flush_tree(operation.staged)
                io.move(operation.staged, operation.path)


class _Blob:
    """A file of byte strings put one behind the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def __enter__(self) -> _Blob:
        self._descriptor = io.open_for_writing(self._path, create=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                io.flush_descriptor(self._descriptor, self._path)
        finally:
            os.close(self._descriptor)

    def put(self, data: bytes) -> dict[str, int]:
        """Append `data`; returns where it lies."""
        io.write_at(self._descriptor, self._path, self._position, data)
        place = {"at": self._position, "bytes": len(data)}
        self._position += len(data)
        return place


def _entry(number: int, operation: Operation, before: _Blob, after: _Blob) -> dict[str, Any]:
    status = operation.path.stat() if operation.path.exists() else None
    entry: dict[str, Any] = {
        "kind": type(operation).__name__,
        "path": str(operation.path),
        "size": None if status is None else status.st_size,
        "mtime_ns": None if status is None else status.st_mtime_ns,
    }
    match operation:
        case WriteRange():
            entry["offset"] = operation.offset
            entry["before"] = list(_images(operation.path, operation.offset, len(operation.data), before))
            entry["after"] = after.put(operation.data)
        case ClearRange():
            entry["offset"], entry["length"] = operation.offset, operation.length
            entry["before"] = list(_images(operation.path, operation.offset, operation.length, before))
        case Resize():
            entry["new_size"] = operation.size
            if status is not None and operation.size < status.st_size:
                cut = status.st_size - operation.size
                entry["before"] = list(_images(operation.path, operation.size, cut, before))
        case CreateFile():
            if status is not None:
                raise RefusedError("was to be created but exists", file=operation.path, hint="run the command again")
            entry["new_size"] = operation.size
        case MoveAway():
            entry["moved"] = f"moved/{number:06d}/{operation.path.name}"
        case Install():
            entry["staged"] = str(operation.staged)
            entry["moved"] = None if status is None else f"moved/{number:06d}/{operation.path.name}"
    return entry


def _images(path: Path, offset: int, length: int, blob: _Blob) -> Iterator[dict[str, int]]:
    """Old bytes of a range, holes left out: pieces as {offset in the file, at, bytes}."""
    if not path.exists():  # created earlier in the same plan
        return
    end = min(offset + length, path.stat().st_size)
    with path.open("rb") as file:
        for start, stop in data_extents(path, offset, end):
            for position in range(start, stop, _CHUNK):
                file.seek(position)
                data = file.read(min(_CHUNK, stop - position))
                yield {"offset": position, **blob.put(data)}


def _zeros(length: int) -> Iterator[bytes]:
    while length > 0:
        yield _ZEROS[: min(length, _CHUNK)]
        length -= _CHUNK


def _write(path: Path, offset: int, pieces: Iterator[bytes] | list[bytes]) -> None:
    descriptor = io.open_for_writing(path)
    try:
        for piece in pieces:
            io.write_at(descriptor, path, offset, piece)
            offset += len(piece)
        io.flush_descriptor(descriptor, path)
    finally:
        os.close(descriptor)


def _flush_tree(path: Path) -> None:
    if path.is_file():
        io.flush_file(path)
        return
    for directory, _, names in os.walk(path):
        for name in names:
            io.flush_file(Path(directory) / name)
        io.flush_directory(Path(directory))


def _directories(plan: Plan) -> list[Path]:
    return [parent for parent in dict.fromkeys(path.parent for path in plan.paths()) if parent.is_dir()]


def _verify(operation: Operation) -> None:
    """Read back what was written; WriteFailedError where the disk says something else."""
    match operation:
        case WriteRange():
            good = _read(operation.path, operation.offset, len(operation.data)) == operation.data
        case ClearRange():
            first = _read(operation.path, operation.offset, min(operation.length, _CHUNK))
            good = not any(first)
        case Resize() | CreateFile():
            good = operation.path.stat().st_size == operation.size
        case MoveAway():
            good = not operation.path.exists()
        case Install():
            good = operation.path.exists()
    if not good:
        raise WriteFailedError("reads back differently from what was written", file=operation.path)


def _read(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)
