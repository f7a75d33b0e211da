"""Puts a store back from what a journal kept: written from the journal's description alone, with plain file calls."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


def undo(folder: Path) -> None:
    """Undo a journal that was prepared, whatever part of it was carried out. Staged files are lost."""
    journal = json.loads((folder / "journal.json").read_text())
    kept = (folder / "before.bin").read_bytes()
    for entry in reversed(journal["operations"]):
        _undo_one(folder, entry, kept)
    for entry in journal["operations"]:
        if "directory" in entry:
            os.utime(entry["directory"], ns=(entry["directory_mtime_ns"], entry["directory_mtime_ns"]))


def _undo_one(folder: Path, entry: Entry, kept: bytes) -> None:
    path = Path(entry["path"])
    match entry["kind"]:
        case "WriteRange" | "ClearRange" | "Resize":
            if entry["size"] is not None:
                _restore_bytes(path, entry, kept)
        case "CreateFile":
            path.unlink(missing_ok=True)
        case "MoveAway":
            _move_back(folder, path, entry)
        case "Install":
            if entry["moved"] is None or (folder / entry["moved"]).exists():
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            if entry["moved"] is not None:
                _move_back(folder, path, entry)
    for directory in entry.get("made_directories", []):
        if Path(directory).is_dir():
            os.rmdir(directory)


def _move_back(folder: Path, path: Path, entry: Entry) -> None:
    moved = folder / entry["moved"]
    if moved.exists():
        assert not path.exists()
        os.rename(moved, path)


def _restore_bytes(path: Path, entry: Entry, kept: bytes) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        if "offset" in entry:
            length = entry.get("length", entry.get("after", {}).get("bytes"))
            length = min(length, max(0, entry["size"] - entry["offset"]))
            file.seek(entry["offset"])
            file.write(bytes(length))
        elif size > entry["new_size"] > entry["size"]:
            raise AssertionError("a file grew by itself")
        file.truncate(entry["size"])
        for piece in entry.get("before", []):
            file.seek(piece["offset"])
            file.write(kept[piece["at"] : piece["at"] + piece["bytes"]])
    os.utime(path, ns=(entry["mtime_ns"], entry["mtime_ns"]))
