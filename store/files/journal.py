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
from store.files.blob import Blob, Spilled
from store.files.layout import StoreLayout
from store.files.plan import ClearRange, CreateFile, Install, MoveAway, Operation, Plan, Resize, WriteRange, data_of
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
        self._after = Blob(self.folder / "after.bin")
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

    def spill(self, data: bytes) -> Spilled:
        """Put bytes that a plan is going to write into the journal at once, so that they need not be kept in memory."""
        return self._after.put(data)

    def discard(self) -> None:
        """Remove the journal of a plan that is not carried out."""
        self._after.close()
        if self.folder.is_dir():
            io.remove_tree(self.folder)
        with suppress(WriteFailedError):  # others' journals may be beside it
            io.remove_directory(self.layout.kept)

    def apply(self, plan: Plan) -> None:
        """Prepare, apply, verify. After an error the journal stays, and says `prepared`."""
        io.make_directories(self.folder)
        entries = self._prepare(plan)
        self._save(entries, "prepared")
        unflushed: dict[Path, None] = {}
        for operation, entry in zip(plan.operations, entries, strict=True):
            if isinstance(operation, MoveAway | Install):
                _flush(unflushed, _at_or_below(operation.path, unflushed))
            self._carry_out(operation, entry)
            # at once: a later operation of the plan may change the same bytes or move the file away
            _verify(operation)
            if isinstance(operation, WriteRange | ClearRange | Resize | CreateFile):
                unflushed[operation.path] = None
        _flush(unflushed, list(unflushed))
        for directory in _directories(plan, self.layout.root):
            io.flush_directory(directory)
        self._save(entries, "applied")

    def _save(self, entries: list[dict[str, Any]], state: str) -> None:
        text = json.dumps({**self._head, "state": state, "operations": entries}, indent=1)
        io.write_whole(self.folder / "journal.json", text.encode("utf-8"))

    def _prepare(self, plan: Plan) -> list[dict[str, Any]]:
        """Write before.bin and after.bin; returns the journal's entries."""
        with (
            Blob(self.folder / "before.bin") as before,
            self._after as after,
        ):
            entries = [_entry(number, operation, before, after) for number, operation in enumerate(plan.operations)]
        io.flush_directory(self.folder)
        io.flush_directory(self.folder.parent)
        return entries

    def _carry_out(self, operation: Operation, entry: dict[str, Any]) -> None:
        match operation:
            case WriteRange():
                _write(operation.path, operation.offset, [data_of(operation)])
            case ClearRange():
                _write(operation.path, operation.offset, _zeros(operation.length))
            case Resize():
                io.truncate(operation.path, operation.size)
            case CreateFile():
                io.make_directories(operation.path.parent)
                io.create_file(operation.path, operation.size)
            case MoveAway():
                self._keep(operation.path, entry["moved"])
            case Install():
                if entry["moved"] is not None:
                    self._keep(operation.path, entry["moved"])
                io.make_directories(operation.path.parent)
                io.flush_tree(operation.staged)
                io.move(operation.staged, operation.path)

    def _keep(self, path: Path, place: str) -> None:
        """Move `path` into the journal's folder, and make sure that it is found there after a power cut."""
        target = self.folder / place
        io.move(path, target)
        for directory in (target.parent, target.parent.parent, self.folder):
            io.flush_directory(directory)


def _entry(number: int, operation: Operation, before: Blob, after: Blob) -> dict[str, Any]:
    status = operation.path.stat() if operation.path.exists() else None
    entry: dict[str, Any] = {
        "kind": type(operation).__name__,
        "path": str(operation.path),
        "size": None if status is None else status.st_size,
        "mtime_ns": None if status is None else status.st_mtime_ns,
    }
    if isinstance(operation, CreateFile | MoveAway | Install):
        entry |= _directory_state(operation.path.parent)
    match operation:
        case WriteRange():
            entry["offset"] = operation.offset
            entry["before"] = list(_images(operation.path, operation.offset, len(operation.data), before))
            spilled = operation.data if isinstance(operation.data, Spilled) else after.put(operation.data)
            entry["after"] = _place(spilled)
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


def _directory_state(directory: Path) -> dict[str, Any]:
    """What an undo needs to know of a directory whose entries change: its time, or which directories are to be made."""
    made: list[str] = []
    while not directory.is_dir():
        made.append(str(directory))
        directory = directory.parent
    return {"made_directories": made, "directory": str(directory), "directory_mtime_ns": directory.stat().st_mtime_ns}


def _images(path: Path, offset: int, length: int, blob: Blob) -> Iterator[dict[str, int]]:
    """Old bytes of a range, holes left out: pieces as {offset in the file, at, bytes}."""
    if not path.exists():  # created earlier in the same plan
        return
    end = min(offset + length, path.stat().st_size)
    with path.open("rb") as file:
        for start, stop in data_extents(path, offset, end):
            for position in range(start, stop, _CHUNK):
                file.seek(position)
                data = file.read(min(_CHUNK, stop - position))
                yield {"offset": position, **_place(blob.put(data))}


def _place(spilled: Spilled) -> dict[str, int]:
    return {"at": spilled.position, "bytes": spilled.length}


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
    finally:
        os.close(descriptor)


def _flush(unflushed: dict[Path, None], paths: list[Path]) -> None:
    """Flush files that were written to: once each, however many operations did."""
    for path in paths:
        io.flush_file(path)
        del unflushed[path]


def _at_or_below(top: Path, paths: dict[Path, None]) -> list[Path]:
    if top in paths:
        return [top]
    return [path for path in paths if path.is_relative_to(top)] if paths and top.is_dir() else []


def _directories(plan: Plan, root: Path) -> list[Path]:
    """Directories of the paths that change, and those above them up to the store's: any of them may be new."""
    above = (
        parent
        for path in plan.paths()
        for parent in path.parents
        if parent in (path.parent, root) or root in parent.parents
    )
    return [parent for parent in dict.fromkeys(above) if parent.is_dir()]


def _verify(operation: Operation) -> None:
    """Read back what was written; WriteFailedError where the disk says something else."""
    match operation:
        case WriteRange():
            good = _read(operation.path, operation.offset, len(operation.data)) == data_of(operation)
        case ClearRange():
            end = operation.offset + operation.length
            good = not any(
                any(_read(operation.path, position, min(_CHUNK, end - position)))
                for position in range(operation.offset, end, _CHUNK)
            )
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
