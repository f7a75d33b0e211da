"""Which index files a broker destroys when it starts (IndexService#load)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rmqctl.formats.hashing import parse_long
from rmqctl.formats.layouts import INDEX_ENTRY, INDEX_HEADER
from rmqctl.store.checkpoint import Checkpoint
from rmqctl.store.files.presence import is_file
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.predict.loading import list_in_order

_CHUNK = 65536


@dataclass(slots=True)
class IndexStart:
    """`deleted`: files that go. `resized`: files of another length than configured, which the broker extends or reads
    in part. `error`: what it cannot open."""

    deleted: list[Path] = field(default_factory=list)
    resized: list[Path] = field(default_factory=list)
    error: str | None = None


def start_index(
    service: IndexService, checkpoint: Checkpoint | None, after_crash: bool, descriptors: Descriptors
) -> IndexStart:
    """What loading does to the files in the folder of `service`. After a crash those go whose end the checkpoint does
    not cover; it covers full files only, so the newest one goes always."""
    covered = 0 if checkpoint is None else checkpoint.index_msg_timestamp
    start = IndexStart()
    for name in sorted(list_in_order(service.directory)):
        path = service.directory / name
        if parse_long(name) is None:
            continue
        if not is_file(path):
            start.error = f"load file {path} error: java.io.FileNotFoundException: {path} (Is a directory)"
            return start
        head = descriptors.read(path, 0, INDEX_HEADER.size).ljust(INDEX_HEADER.size, b"\0")
        if after_crash and int(INDEX_HEADER.unpack_from(head, 0)[1]) > covered:
            start.deleted.append(path)
        elif path.stat().st_size != service.geometry.file_size:
            start.resized.append(path)
    return start


def lost_entries(service: IndexService, deleted: list[Path], start_offset: int) -> int:
    """Entries of `deleted` files that nothing makes anew, because recovery begins behind their messages."""
    lost = 0
    for file in service.files:
        if file.path not in deleted:
            continue
        for number in range(1, file.header.index_count, _CHUNK):
            data = file.read_entries(number, min(_CHUNK, file.header.index_count - number))
            entries = np.frombuffer(data, INDEX_ENTRY.dtype(), len(data) // INDEX_ENTRY.size)
            lost += int(np.count_nonzero(entries["physical_offset"] < start_offset))
    return lost
