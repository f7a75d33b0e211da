"""The records of a file that are whole, up to the first that is not: nothing behind that is looked at."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.formats.layouts import BLANK_FRAME, BLANK_MAGIC, FRAME_HEADS
from rmqctl.formats.message import FrameDamage, decode_message
from rmqctl.store.commitlog.frame_search import MAXIMUM_FRAME_SIZE
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.files.mapped_file import MappedFile

_WINDOW = 4 * 1024 * 1024


def whole_records(file: MappedFile, written: int, progress: Progress | None = None) -> Iterator[tuple[int, int]]:
    """Begin and end of each, as positions in the file, of which [0, `written`) is all that is not zero.

    A message whose topic or properties have zeros counts as one that is not whole: no checksum covers these, and bytes
    that have not come, or that a power cut has taken, are zeros. UnreadableError.
    """
    window, start, position = b"", 0, 0
    while position < written:
        at = position - start
        if at + BLANK_FRAME.size > len(window):
            window, start, at = file.read(position, _WINDOW), position, 0
            if len(window) < BLANK_FRAME.size:
                return
            if progress is not None:
                progress(len(window))
        size, magic = BLANK_FRAME.unpack_from(window, at)
        if magic == BLANK_MAGIC:
            if size == file.size - position:
                yield position, file.size
            return
        if not 0 < size <= min(file.size - position, MAXIMUM_FRAME_SIZE):
            return
        if at + max(size, FRAME_HEADS[3].size) > len(window) and start + len(window) < file.size:
            window, start, at = file.read(position, max(size, _WINDOW)), position, 0
        try:
            message = decode_message(window, at, file.size - position, file.start_offset + position)
        except FrameDamage:
            return
        if "\0" in message.topic or b"\0" in message.property_bytes:
            return
        yield position, position + size
        position += size
