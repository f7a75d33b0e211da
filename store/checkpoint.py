"""The checkpoint file: what was flushed up to which store time (docs/formats.md)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.layouts import CHECKPOINT, CHECKPOINT_SIZE
from rmqctl.store.files import io
from rmqctl.store.files.reading import read_small_file, refuse_broken_link

# StoreCheckpoint#getMinTimestamp keeps a margin for what was stored within the same moments
_MARGIN_MS = 3000
_SHORTEST = CHECKPOINT.offset("logics_physical_offset")


class Checkpoint(NamedTuple):
    """Timestamps in ms, offsets physical. `logics_physical_offset` is 0 before RocketMQ 5.5."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0
    logics_physical_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """Everything stored up to this time is on disk in commitlog and queues (StoreCheckpoint#getMinTimestamp)."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _MARGIN_MS)

    @property
    def min_timestamp_index(self) -> int:
        """The same of full index files, too (StoreCheckpoint#getMinTimestampIndex)."""
        return min(self.min_timestamp, self.index_msg_timestamp)


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Return the checkpoint, None if the file is missing or too short to hold one. Fields that only newer versions
    write may be missing.

    Raises: UnreadableError, also where the path is a directory, a fifo or a broken link.
    """
    try:
        data = read_small_file(path, CHECKPOINT.size)
    except FileNotFoundError:
        refuse_broken_link(path)
        return None
    if len(data) < _SHORTEST:
        return None
    return Checkpoint(*CHECKPOINT.unpack_from(data.ljust(CHECKPOINT.size, b"\0"), 0))


def checkpoint_bytes(checkpoint: Checkpoint) -> bytes:
    """The whole page as it stands on disk."""
    return CHECKPOINT.struct.pack(*checkpoint).ljust(CHECKPOINT_SIZE, b"\0")


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the file, old or new but never half."""
    io.write_whole(path, checkpoint_bytes(checkpoint))
