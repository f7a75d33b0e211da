"""Bodies compressed by producers: zlib, lz4 frames and zstd, always with a bound on the plain size."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from rmqctl.formats.errors import CorruptError, UnsupportedError, UsageError
from rmqctl.formats.properties import COMPRESSION_LZ4, COMPRESSION_NAMES, COMPRESSION_ZSTD

# a body of 4 MiB is RocketMQ's default limit; 64 MiB leaves room for brokers that raised it and still stops a bomb
DEFAULT_PLAIN_SIZE_LIMIT = 64 * 1024 * 1024
# what every decoder should accept (RFC 8878)
_LEAST_ZSTD_WINDOW_BITS = 23
# how streams begin: little-endian words of lz4 (two forms) and zstd, a frame that both skip, and gzip
_STREAM_MAGICS = (0x184D2204, 0x184C2102, 0xFD2FB528)
_SKIPPABLE_MAGIC = 0x184D2A50
_GZIP_MAGIC = b"\x1f\x8b"
# of a frame, in bytes
_FIRST_CHUNK = 4096
_LARGEST_CHUNK = 1 << 20


class PlainSizeExceededError(CorruptError):
    """The body would decompress to more than the limit: a bomb, or a limit set too low."""

    code = "RMQ-E-011"


def decompress(body: bytes, kind: int, limit: int = DEFAULT_PLAIN_SIZE_LIMIT) -> bytes:
    """Plain bytes of a stored body of compression type `kind` (sys_flag.compression_type).

    Raises CorruptError where the bytes are damaged or cut short, PlainSizeExceededError beyond `limit` bytes.
    """
    try:
        if kind == COMPRESSION_LZ4:
            plain, complete = _lz4(body, limit)
        elif kind == COMPRESSION_ZSTD:
            plain, complete = _zstd(body, limit)
        elif kind in COMPRESSION_NAMES:
            plain, complete = _zlib(body, limit)
        else:
            raise UnsupportedError(f"compression type {kind} does not exist in RocketMQ")
    except (zlib.error, RuntimeError, ValueError, OSError, EOFError) as error:
        name = COMPRESSION_NAMES[kind]
        if is_plain(body):
            raise CorruptError(
                f"body is flagged {name} but begins no compressed stream: it is stored plain",
                hint="the stored bytes are still readable",
            ) from error
        raise CorruptError(f"body is not valid {name}: {error}", hint="the stored bytes are still readable") from error
    if len(plain) > limit:
        raise PlainSizeExceededError(
            f"body decompresses to more than {limit} bytes", hint="raise the limit if it is right"
        )
    if not complete:
        raise CorruptError(f"body ends in the middle of its {COMPRESSION_NAMES[kind]} stream")
    return plain


def is_plain(body: bytes) -> bool:
    """Return whether a body begins like no compressed stream: zlib, gzip, lz4 and zstd all have a mark at their start.

    A short body may have one by chance: it counts as compressed then. An empty one is neither.
    """
    if not body:
        return False
    first = int.from_bytes(body[:4].ljust(4, b"\0"), "little")
    if first in _STREAM_MAGICS or first & 0xFFFFFFF0 == _SKIPPABLE_MAGIC or body.startswith(_GZIP_MAGIC):
        return False
    has_zlib_head = len(body) < 2 or int.from_bytes(body[:2], "big") % 31 == 0
    return not (has_zlib_head and body[0] & 0xF == 8 and body[0] >> 4 <= 7)


def _zlib(body: bytes, limit: int) -> tuple[bytes, bool]:
    machine = zlib.decompressobj()
    plain = machine.decompress(body, limit + 1)
    return plain, machine.eof or len(plain) > limit


def _lz4(body: bytes, limit: int) -> tuple[bytes, bool]:
    from lz4.frame import LZ4FrameDecompressor

    plain = bytearray()

    def take(machine: LZ4FrameDecompressor, given: bytes) -> None:
        plain.extend(machine.decompress(given, max_length=limit + 1 - len(plain)))

    # lz4-java's stream reads on into a next frame
    complete = _read_through(body, LZ4FrameDecompressor, take, lambda: len(plain) > limit)
    return bytes(plain), complete


def _zstd(body: bytes, limit: int) -> tuple[bytes, bool]:
    import io

    import zstandard

    # a window far larger than the limit is refused before memory is taken for it; a stream of little data may still
    # name a window of some MiB, so there is a least one
    machine = zstandard.ZstdDecompressor(max_window_size=1 << max(limit.bit_length(), _LEAST_ZSTD_WINDOW_BITS))
    try:
        with machine.stream_reader(io.BytesIO(body), read_across_frames=True) as reader:
            plain = reader.read(limit + 1)
        complete = len(plain) > limit or _zstd_is_complete(body)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    return plain, complete


def _zstd_is_complete(body: bytes) -> bool:
    """Whether the last of its frames ends where the body does. What comes out is known to be little."""
    import zstandard

    new = zstandard.ZstdDecompressor().decompressobj
    return _read_through(body, new, lambda machine, given: machine.decompress(given), lambda: False)


def _read_through(
    body: bytes, new: Callable[[], Any], take: Callable[[Any, bytes], object], is_enough: Callable[[], bool]
) -> bool:
    """Hand the body to `take`, each of its frames with a `new` decompressor; whether the last frame ends where the body
    does, or `is_enough`.

    A body may be very many empty frames: each gets little at a time, because what it leaves over is copied.
    """
    machine, position, chunk = new(), 0, _FIRST_CHUNK
    while position < len(body):
        given = body[position : position + chunk]
        take(machine, given)
        position += len(given)
        if is_enough():
            return True
        if machine.eof:
            position -= len(machine.unused_data or b"")
            if position == len(body):
                return True
            machine, chunk = new(), _FIRST_CHUNK
        else:
            chunk = min(2 * chunk, _LARGEST_CHUNK)
    return False


def compress(plain: bytes, kind: int, level: int | None = None) -> bytes:
    """Return the body compressed by `kind`, at the default level of the type if `level` is None.

    LZ4 has no levels here, as in RocketMQ. Raises: UsageError for a type RocketMQ does not have.
    """
    if kind == COMPRESSION_LZ4:
        import lz4.frame

        return bytes(lz4.frame.compress(plain))
    if kind == COMPRESSION_ZSTD:
        import zstandard

        return bytes(zstandard.ZstdCompressor(3 if level is None else level).compress(plain))
    if kind in COMPRESSION_NAMES:
        return zlib.compress(plain, -1 if level is None else level)
    raise UsageError(f"compression type {kind} does not exist in RocketMQ")
