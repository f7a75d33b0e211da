"""Gives a queue that was written to a folder its ext units, in the order of its units (enableConsumeQueueExt)."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.store.commitlog.one_message import walked_message
from rmqctl.store.compiled.notices import say
from rmqctl.store.files import io
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.queues.ext_appender import ExtAppender
from rmqctl.store.queues.unit import QueueUnit


def put_ext_units(directory: Path, ext: Path, file_size: int, log: MappedFileQueue, without: Container[int]) -> int:
    """Write an ext unit to the folder `ext` for each unit in `directory`, and its address into the unit; return the
    bytes of the ext files. Units of messages at the physical offsets `without` stay as they are."""
    written: set[Path] = set()
    with Descriptors() as descriptors:
        appender = ExtAppender(ext, file_size, descriptors, None, written.add, say)
        try:
            for path in sorted(directory.iterdir()):
                data = bytearray(path.read_bytes())
                for at in range(0, len(data) - CONSUMEQUEUE_UNIT.size + 1, CONSUMEQUEUE_UNIT.size):
                    unit = QueueUnit(0, *CONSUMEQUEUE_UNIT.unpack_from(data, at))
                    if unit.is_written and unit.physical_offset not in without:
                        message = walked_message(log, unit.physical_offset, unit.size)
                        code = appender.append(unit.tags_code, message.store_timestamp)
                        data[at : at + CONSUMEQUEUE_UNIT.size] = CONSUMEQUEUE_UNIT.struct.pack(*unit[1:3], code)
                io.write_range(path, 0, data)
        finally:
            appender.release()
    return len(written) * file_size
