"""Remoting frames: cutting a stream of bytes into commands, and commands as bytes. No I/O (NettyDecoder, NettyEncoder).

int32 total length      of all that follows
int32 serialize type << 24 | header length
header, body
"""

from __future__ import annotations

import struct

from rmqctl.formats.errors import CorruptError
from rmqctl.network.remoting.command import RemotingCommand, SerializeType, decode_command, encode_header

LARGEST_FRAME = 16 * 1024 * 1024
"""Bytes of a frame with its first word (com.rocketmq.remoting.frameMaxLength)."""

_WORD = struct.Struct(">I")
_WORDS = struct.Struct(">II")
_HEADER_LENGTH_MASK = 0xFFFFFF
_TLS_HANDSHAKE = b"\x16\x03"


class FrameDecoder:
    """Takes what a connection brings in and gives the commands in it, one by one.

    At most one frame is kept; nothing is kept of one that is larger than it may be.
    """

    def __init__(self, largest_frame: int = LARGEST_FRAME) -> None:
        self._largest_frame = largest_frame
        self._buffer = bytearray()

    @property
    def buffered(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return len(self._buffer)

    def feed(self, data: bytes | memoryview) -> None:
        """Take more bytes; nothing is kept of what they lie in."""
        self._buffer += data

    def next_command(self) -> RemotingCommand | None:
        """The next whole command, None until more bytes come. CorruptError: the connection is of no more use."""
        buffer = self._buffer
        available = len(buffer)
        if available < _WORDS.size:
            if available >= _WORD.size:
                self._check(*_WORD.unpack_from(buffer))
            return None
        length, kind = _WORDS.unpack_from(buffer)
        self._check(length)
        end = _WORD.size + length
        if available < end:
            return None
        body_at = _WORDS.size + (kind & _HEADER_LENGTH_MASK)
        if body_at > end:
            raise CorruptError(
                f"a header of {kind & _HEADER_LENGTH_MASK} bytes does not fit into its frame of {length}"
            )
        body = bytes(buffer[body_at:end]) if body_at < end else b""
        command = decode_command(bytes(buffer[_WORDS.size : body_at]), kind >> 24, body)
        if end == available:
            buffer.clear()
        else:
            del buffer[:end]
        return command

    def _check(self, length: int) -> None:
        """CorruptError for a length that no frame has, or none that is taken."""
        if _WORD.size <= length <= self._largest_frame - _WORD.size:
            return
        if length < _WORD.size:
            raise CorruptError(f"a frame of {length} bytes has no room for its header's length")
        if self._buffer.startswith(_TLS_HANDSHAKE):
            raise CorruptError("the client speaks TLS, which is not offered here")
        raise CorruptError(f"a frame of {length} bytes is larger than the {self._largest_frame} that are allowed")


def encode_frame(command: RemotingCommand) -> bytes:
    """The frame of a command, its header as JSON. CorruptError for one that no peer would take."""
    return encode_head(command) + command.body


def encode_head(command: RemotingCommand) -> bytes:
    """Return what a frame begins with, up to the command's body. CorruptError for one that no peer would take."""
    header = encode_header(command)
    length = _WORD.size + len(header) + len(command.body)
    if length + _WORD.size > LARGEST_FRAME or len(header) > _HEADER_LENGTH_MASK:
        raise CorruptError(f"an answer of {length} bytes is larger than a frame may be ({LARGEST_FRAME})")
    return _WORDS.pack(length, SerializeType.JSON << 24 | len(header)) + header
