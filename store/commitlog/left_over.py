"""Recognise what a broker with writeWithoutMmap=true leaves after the end of the log: no damage, and no message.

It writes messages from buffers that it uses again, rounded up to whole pages. So the rest of the last page holds pieces
of earlier messages, after a clean stop too (DefaultMappedFile#appendMessagesInner, RocketMQ 5.4 and later).
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.layouts import FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.store.files.layout import file_name
from rmqctl.store.files.mapped_file import MappedFile

_PAGE = 4096
_PIECE = 12
_MOST_PIECES = 16
_SEARCHED = 64 * 1024 * 1024


def is_left_over(file: MappedFile, begin: int, stop: int) -> bool:
    """Return whether the bytes [begin, stop) of `file`, after which only zeros follow, are such pieces.

    They end with the page in which the log ends, do not begin like a message of this place, and at least half of some
    samples stand in earlier messages. Whether `begin` is the end of the log is for the caller to know.
    """
    if begin % _PAGE == 0 or not begin < stop <= -(-begin // _PAGE) * _PAGE:
        return False
    data = file.read(begin, stop - begin)
    if not any(data[:_PIECE]) or _begins_like_a_message(data, file.start_offset + begin):
        return False
    places = range(0, max(len(data) - _PIECE, 0) + 1, max(_PIECE, len(data) // _MOST_PIECES))
    pieces = [data[at : at + _PIECE] for at in places]
    missing = len(pieces) // 2
    for earlier in _before(file, begin):
        pieces = [piece for piece in pieces if piece not in earlier]
        if len(pieces) <= missing:
            return True
    return False


def _begins_like_a_message(data: bytes, physical_offset: int) -> bool:
    if len(data) < FRAME_HEADS[0].size:
        return False
    fields = FRAME_HEADS[0].unpack_from(data, 0)
    return fields[1] in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2) and fields[6] == physical_offset


def _before(file: MappedFile, begin: int) -> Iterator[bytes]:
    """Yield the bytes before a place of the log: of its file, then of the file before."""
    length = min(begin, _SEARCHED)
    yield file.read(begin - length, length)
    previous = file.path.with_name(file_name(file.start_offset - file.size)) if file.start_offset >= file.size else None
    if previous is not None and length < _SEARCHED:
        rest = min(file.size, _SEARCHED - length)
        try:
            yield file.descriptors.read(previous, file.size - rest, rest)
        except RmqctlError:
            return
