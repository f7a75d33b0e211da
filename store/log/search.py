"""Finds the next good frame after damage, at a cost that depends on the size of the file, not on its content."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property

from rmqctl.formats.checksums import CRC_MASK, PROPERTY_CRC_SIZE, crc32_shift, parse_property_crc
from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.layouts import (
    BLANK_FRAME,
    BLANK_MAGIC,
    DLEDGER_ENTRY_HEAD,
    DLEDGER_MAGIC,
    FRAME_HEADS,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
)
from rmqctl.formats.message import (
    LARGEST_HEAD_SIZE,
    MINIMUM_FRAME_SIZE,
    FrameDamage,
    Reason,
    decode_message,
    frame_head,
)
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.reading import end_of_nonzero

# Far above any maxMessageSize in use; a size beyond it is damage and is never read into memory.
MAXIMUM_FRAME_SIZE = 256 * 1024 * 1024
_WINDOW = 4 * 1024 * 1024
_FIRST_WINDOW = 4096
# frames up to this size are always read whole; larger ones while no more than this many bytes were read in vain
_SMALL_FRAME = 64 * 1024
_READ_IN_VAIN = 64 * 1024 * 1024
_PREFIX_STEP = 16 * 1024
# a V2 topic and properties, both as long as their signed 16-bit lengths can say
_LARGEST_TAIL = 2 * (2 + 0x7FFF)

_BLANK_MAGIC_BYTES = BLANK_MAGIC.to_bytes(4, "big")
MESSAGE_MAGICS = (MESSAGE_MAGIC_V1.to_bytes(4, "big"), MESSAGE_MAGIC_V2.to_bytes(4, "big"))
_MAGICS = (*MESSAGE_MAGICS, _BLANK_MAGIC_BYTES)
_MAGIC_OFFSET = BLANK_FRAME.offset("magic_code")
_POSITION_OFFSET = FRAME_HEADS[0].offset("physical_offset")
_BODY_LENGTH_SIZE = 4


_END_OF_ENTRIES = -1
_FRAME_SIZE = BLANK_FRAME.offset("magic_code")
ENTRY_HEAD_SIZE = DLEDGER_ENTRY_HEAD.size


def entry_head_size(window: bytes, at: int, available: int, physical_offset: int) -> int:
    """Return the bytes of the DLedger entry's head that begins at byte `at` of a window; 0 where none begins.

    `window` has 52 bytes from there, or all that are `available` in the file. FrameDamage for a head that does not fit
    its place or the frame in its body. (DLedgerMmapFileStore#recover)
    """
    magic, begin = int.from_bytes(window[at : at + 4], "big"), at + ENTRY_HEAD_SIZE
    if available < ENTRY_HEAD_SIZE:
        return 0
    if magic != DLEDGER_MAGIC:
        stored = window[begin + _POSITION_OFFSET : begin + _POSITION_OFFSET + 8]
        is_frame = window[begin + _MAGIC_OFFSET : begin + _MAGIC_OFFSET + 4] in MESSAGE_MAGICS
        if is_frame and int.from_bytes(stored, "big") == physical_offset + ENTRY_HEAD_SIZE:
            raise FrameDamage(Reason.ENTRY, f"the head of the entry has magic {magic}")
        return 0
    _, size, _, _, pos, *_, body_size = DLEDGER_ENTRY_HEAD.unpack_from(window, at)
    if pos != physical_offset:
        raise FrameDamage(Reason.ENTRY, f"the head of the entry gives offset {pos}")
    if size != ENTRY_HEAD_SIZE + body_size or not 0 <= body_size <= available - ENTRY_HEAD_SIZE:
        raise FrameDamage(Reason.ENTRY, f"the head of the entry gives sizes {size} and {body_size}")
    frame_size = int.from_bytes(window[begin : begin + _FRAME_SIZE], "big", signed=True)
    if body_size and frame_size != body_size:
        raise FrameDamage(Reason.ENTRY, f"the body of the entry has {body_size} bytes, its frame {frame_size}")
    return ENTRY_HEAD_SIZE


class FrameSearch:
    """Questions about places in one file, [0, end) of which counts. Positions are bytes from the file's start."""

    def __init__(self, file: MappedFile, end: int) -> None:
        self._file = file
        self._end = end
        self._read_in_vain = 0
        self._prefix_crcs = [0]

    def read(self, position: int, length: int) -> bytes:
        """Exactly `length` bytes; UnreadableError where the file has become shorter than it was when it was opened."""
        data = self._file.read(position, length)
        if len(data) < length:
            raise UnreadableError(
                f"has become shorter while it was read: {length} bytes were expected, {len(data)} are left",
                file=self._file.path,
                physical_offset=self._file.start_offset + position,
                hint="run the command again; if it is not being cleaned or copied just now, check the disk",
            )
        return data

    @cached_property
    def nonzero_end(self) -> int:
        """Position behind the last byte that is not zero."""
        return end_of_nonzero(self._file.descriptors, self._file.path, 0, self._end)

    def check(self, position: int, check_crc: bool = True, unsigned: bool = False) -> None:
        """Raises FrameDamage unless a message that passes law 3 starts there; `unsigned` as in decode_message."""
        available = self._end - position
        head = self.read(position, min(LARGEST_HEAD_SIZE, available))
        size = int.from_bytes(head[:4], "big", signed=True)
        physical_offset = self._file.start_offset + position
        if not len(head) < size <= min(available, MAXIMUM_FRAME_SIZE):
            decode_message(head, 0, available, physical_offset, check_crc, unsigned)
        elif not check_crc:
            self._check_frame(position, head, unsigned)
        elif size <= _SMALL_FRAME or self._read_in_vain + size <= _READ_IN_VAIN + 4 * position:
            self._read_in_vain += size
            decode_message(self.read(position, size), 0, available, physical_offset, unsigned=unsigned)
        else:
            self._check_by_prefixes(position, head, size, unsigned)

    def _check_by_prefixes(self, position: int, head: bytes, size: int, unsigned: bool = False) -> None:
        """The same for a large frame, without reading its body: every place of a hostile file may claim one."""
        tail_size = self._check_frame(position, head, unsigned)
        body_end = position + size - tail_size
        said = frame_head(head)
        assert said is not None
        found = self._crc(position + said.size, body_end) & CRC_MASK
        if said.body_length and found != said.body_crc:
            raise FrameDamage(Reason.BODY_CRC, f"body CRC is {found}, the frame says {said.body_crc}")
        expected = parse_property_crc(self.read(position + size - PROPERTY_CRC_SIZE, PROPERTY_CRC_SIZE))
        if expected is not None:
            found = self._crc(position, position + size - PROPERTY_CRC_SIZE) & CRC_MASK
            if found != expected:
                raise FrameDamage(Reason.PROPERTY_CRC, f"frame CRC is {found}, its __CRC32# property says {expected}")

    def _check_frame(self, position: int, head: bytes, unsigned: bool = False) -> int:
        """FrameDamage unless everything of a message but its CRCs is right; returns the bytes behind its body.

        The frame is decoded as if it had no body, so that the rules stand in one place only.
        """
        available = self._end - position
        physical_offset = self._file.start_offset + position
        said = frame_head(head)
        tail_size = 0 if said is None else said.total_size - said.size - said.body_length
        if said is None or said.body_length < 0 or tail_size <= 0 or said.total_size > available:
            decode_message(head, 0, available, physical_offset, check_crc=False)
            assert said is not None, "what is too short for a head was refused"
            detail = f"body length {said.body_length} does not fit into a frame of {said.total_size} bytes"
            raise FrameDamage(Reason.LENGTHS, detail)
        if said.size + tail_size < MINIMUM_FRAME_SIZE <= said.total_size:
            detail = f"body length {said.body_length} leaves {tail_size} bytes for topic and properties"
            raise FrameDamage(Reason.LENGTHS, detail)
        # a tail that is cut here has more bytes than topic and properties can fill, so it does not add up either
        begin = position + said.total_size - tail_size
        tail = self.read(begin, min(tail_size, _LARGEST_TAIL + 1))
        if len(tail) < tail_size and _overflows(tail, tail_size, said.magic_code):
            tail = self.read(begin, tail_size)
        without_body = bytearray(head[: said.size]) + tail
        without_body[:4] = len(without_body).to_bytes(4, "big")
        without_body[said.size - _BODY_LENGTH_SIZE : said.size] = bytes(_BODY_LENGTH_SIZE)
        decode_message(without_body, 0, len(without_body), physical_offset, False, unsigned)
        return tail_size

    def _crc(self, begin: int, end: int) -> int:
        """CRC-32 of [begin, end), from those of two prefixes of the file."""
        return self._prefix_crc(end) ^ crc32_shift(self._prefix_crc(begin), end - begin)

    def _prefix_crc(self, position: int) -> int:
        known, rest = divmod(position, _PREFIX_STEP)
        while len(self._prefix_crcs) <= known:
            at = (len(self._prefix_crcs) - 1) * _PREFIX_STEP
            self._prefix_crcs.append(zlib.crc32(self.read(at, _PREFIX_STEP), self._prefix_crcs[-1]))
        return zlib.crc32(self.read(position - rest, rest), self._prefix_crcs[known])

    def is_framed(self, position: int) -> bool:
        """Whether a message, a blank frame or the empty rest of the file starts at `position`.

        CRCs and the signs of lengths do not count.
        """
        if position >= self._end:
            return position == self._end
        available = self._end - position
        head = self.read(position, min(LARGEST_HEAD_SIZE, available))
        if position >= self.nonzero_end or self._is_blank(head, 0, available):
            return True
        if self.entry_head(position):
            return self.is_framed(position + ENTRY_HEAD_SIZE)
        try:
            self._check_frame(position, head, unsigned=True)
        except FrameDamage:
            return False
        return True

    def entry_head(self, position: int) -> int:
        """Return the bytes of a good head of a DLedger entry at `position`; 0 where none begins."""
        available = self._end - position
        if not self._file.holds_entries or not 0 <= position < self._end:
            return 0
        window = self.read(position, min(ENTRY_HEAD_SIZE + _FRAME_SIZE, available))
        try:
            return entry_head_size(window, 0, available, self._file.start_offset + position)
        except FrameDamage:
            return 0

    def own_entry_head(self, position: int) -> int:
        """Return the same for a file of any place: the head itself gives the offset of its place."""
        head = self._file.read(position, ENTRY_HEAD_SIZE)
        if len(head) == ENTRY_HEAD_SIZE:
            self._file.start_offset = DLEDGER_ENTRY_HEAD.unpack_from(head, 0)[4] - position
        return self.entry_head(position)

    def next_good(self, position: int) -> int | None:
        """Return the position of the next message or blank frame from `position` on, None without one; that of the
        entry's head before it in a DLedger log.

        A candidate is a magic code; it counts if the whole frame passes law 3, its own physical offset included.
        """
        found = self._next_frame(position)
        before = 0 if found is None else found - ENTRY_HEAD_SIZE
        return before if found is not None and before >= position and self.entry_head(before) else found

    def _next_frame(self, position: int) -> int | None:
        overlap = _MAGIC_OFFSET + len(_BLANK_MAGIC_BYTES) - 1
        length = _FIRST_WINDOW
        while self._end - position > overlap:
            # windows grow, because the next frame is near as a rule and there may be many damages
            window = self.read(position, min(length, self._end - position))
            for at in frames_by_magic(window, _MAGICS):
                if self._is_good(window, at, position + at):
                    return position + at
            position += len(window) - overlap
            length = min(length * 8, _WINDOW)
        return None

    def _is_blank(self, buffer: bytes, at: int, available: int) -> bool:
        return blank_size(buffer, at, self._file.holds_entries) == available

    def _is_good(self, window: bytes, at: int, position: int) -> bool:
        """Whether a good message or blank frame starts at `position`, which is byte `at` of `window`."""
        if window.startswith(_BLANK_MAGIC_BYTES, at + _MAGIC_OFFSET):
            return self._is_blank(window, at, self._end - position)
        stored = window[at + _POSITION_OFFSET : at + _POSITION_OFFSET + 8]
        if len(stored) == 8 and int.from_bytes(stored, "big") != self._file.start_offset + position:
            return False
        try:
            self.check(position)
        except FrameDamage:
            return False
        return True


def frames_by_magic(window: bytes, magics: Sequence[bytes]) -> Iterator[int]:
    """Where in a window frames begin if their magic codes are to be believed, in order."""
    # to look for one after the other is several times as fast as an expression, where there is nothing
    first = min((at for magic in magics if (at := window.find(magic, _MAGIC_OFFSET)) >= 0), default=None)
    if first is not None:
        for match in re.compile(b"|".join(map(re.escape, magics))).finditer(window, first):
            yield match.start() - _MAGIC_OFFSET


def _overflows(tail: bytes, tail_size: int, magic_code: int) -> bool:
    """Whether topic and properties fill a tail, of which more is to be read, if their lengths have no signs."""
    width = 2 if magic_code == MESSAGE_MAGIC_V2 else 1
    at = width + int.from_bytes(tail[:width], "big")
    return tail_size == at + 2 + int.from_bytes(tail[at : at + 2], "big")


def blank_size(buffer: bytes, at: int, in_entries: bool) -> int | None:
    """Return how many bytes a frame at byte `at` says that it fills, to the end of the file; None where it is a message
    or anything else. DLedger writes size and magic in the other order, and its own magic."""
    if len(buffer) - at < BLANK_FRAME.size:
        return None
    size, magic = BLANK_FRAME.unpack_from(buffer, at)
    if in_entries:
        return int.from_bytes(buffer[at + 4 : at + 8], "big", signed=True) if size == _END_OF_ENTRIES else None
    return int(size) if magic == BLANK_MAGIC else None
