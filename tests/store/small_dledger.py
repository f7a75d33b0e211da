"""A small store whose commitlog is a DLedger log, made of a plain one: for tests that read all of it many times."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from rmqctl.formats.layouts import DLEDGER_ENTRY_HEAD, DLEDGER_INDEX_UNIT
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.store.write.writing import stored_messages

INDEX_FILE = 30 * DLEDGER_INDEX_UNIT.size
_HEAD = DLEDGER_ENTRY_HEAD.size
_PLACE = 28
"""Where a frame has its physical offset."""


@contextmanager
def small_index() -> Iterator[None]:
    """Files of the index have 30 units, not the 5 Mi of DLedger."""
    modules = ("compare.replicas", "check.copies", "recover.entries")
    with ExitStack() as patched:
        for module in modules:
            patched.enter_context(mock.patch(f"rmqctl.store.{module}.INDEX_FILE_SIZE", INDEX_FILE))
        yield


def into_dledger(root: Path, config: StoreConfig, *, plain_files: int = 0) -> None:
    """Move all messages of a store into a DLedger log, but for those of its first files, as if it had been switched to
    DLedger after them; only in `small_index`."""
    size = config.mapped_file_size_commit_log
    assert size is not None
    data = bytearray()
    units = b""
    first = plain_files * size
    with StoreFiles(root, config) as files:
        frames = [
            bytearray(files.log.read(one.physical_offset, one.total_size))
            for one in stored_messages(root, config)
            if one.physical_offset >= first
        ]
    for number, frame in enumerate(frames):
        entry_size = _HEAD + len(frame)
        left = size - len(data) % size
        if left < entry_size + 8:
            data += struct.pack(">ii", -1, left).ljust(left, b"\0")
        pos = first + len(data)
        frame[_PLACE : _PLACE + 8] = (pos + _HEAD).to_bytes(8, "big")
        data += struct.pack(">iiqqqiiii", 1, entry_size, number, 1, pos, 0, 0, 0, len(frame)) + frame
        units += struct.pack(">iqiqq", 1, pos, entry_size, number, 1)
    for name in ("consumequeue", "index", *(() if plain_files else ("commitlog",))):
        shutil.rmtree(root / name)
    for path in (root / "commitlog").glob("0*"):
        if int(path.name) >= first:
            path.unlink()
    folder = root / "dledger-n0"
    for name, begin, content, length in (("data", first, bytes(data), size), ("index", 0, units, INDEX_FILE)):
        (folder / name).mkdir(parents=True)
        for start in range(0, len(content), length):
            piece = content[start : start + length].ljust(length, b"\0")
            (folder / name / f"{begin + start:020d}").write_bytes(piece)
    (folder / "checkpoint").write_bytes(b"endIndex=10\ncommittedIndex=9\n")
    (folder / "currterm").write_bytes(b"currTerm=1\nvoteLeader=n0\n")
    with StoreFiles(root, config) as files:
        recover(files)
    shutil.rmtree(root.with_name(f"{root.name}.rmqctl"))
