"""The ext units of a consumequeue: tag, store time and filter bit map by address (docs/formats.md)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.layouts import CONSUMEQUEUE_EXT_UNIT_HEAD
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors

DEFAULT_EXT_FILE_SIZE = 48 * 1024 * 1024


class ExtUnit(NamedTuple):
    """`store_timestamp` in ms; `bit_map` holds the bloom filter hits of SQL92 subscriptions."""

    size: int
    tags_code: int
    store_timestamp: int
    bit_map: bytes


class ConsumeQueueExt:
    """Ext units of one topic and queue, read only."""

    def __init__(self, directory: Path, file_size: int | None, descriptors: Descriptors) -> None:
        self.directory = directory
        self.files = MappedFileQueue([directory], file_size, descriptors)

    def load(self) -> None:
        """List the files."""
        self.files.load()

    def unit(self, offset: int) -> ExtUnit | None:
        """The unit at byte `offset` of the ext queue; None where there is no whole unit."""
        head = self.files.read(offset, CONSUMEQUEUE_EXT_UNIT_HEAD.size)
        if len(head) < CONSUMEQUEUE_EXT_UNIT_HEAD.size:
            return None
        size, tags_code, store_timestamp, bit_map_size = CONSUMEQUEUE_EXT_UNIT_HEAD.unpack_from(head, 0)
        if bit_map_size < 0 or size != CONSUMEQUEUE_EXT_UNIT_HEAD.size + bit_map_size:
            return None
        bit_map = self.files.read(offset + CONSUMEQUEUE_EXT_UNIT_HEAD.size, bit_map_size)
        return ExtUnit(size, tags_code, store_timestamp, bit_map) if len(bit_map) == bit_map_size else None
