"""Compressed bodies: both ways, cut, garbled, and bombs that must not cost memory."""

from __future__ import annotations

import random
import time
import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.compression import DEFAULT_PLAIN_SIZE_LIMIT, PlainSizeExceededError, compress, decompress
from rmqctl.formats.errors import CorruptError, UnsupportedError, UsageError
from rmqctl.formats.properties import COMPRESSION_LZ4, COMPRESSION_ZSTD

KINDS = {"legacy zlib": 0, "lz4": 1, "zstd": 2, "zlib": 3}
FRAMED = (COMPRESSION_LZ4, COMPRESSION_ZSTD)
MIB = 1024 * 1024
PLAIN = b"".join(b"message body %d of a golden store; " % number for number in range(400))


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> int:
    number = request.param
    assert isinstance(number, int)
    return number


@given(st.binary(max_size=2000), st.sampled_from(sorted(KINDS.values())))
def test_round_trip(plain: bytes, kind: int) -> None:
    assert decompress(compress(plain, kind), kind) == plain


def test_what_other_writers_write() -> None:
    """Streams as Java's classes make them: zlib by level, lz4 frames with small linked blocks, zstd of unknown size."""
    assert decompress(zlib.compress(PLAIN, 9), 3) == PLAIN
    linked = lz4.frame.compress(PLAIN, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True, content_checksum=True)
    assert decompress(linked, 1) == PLAIN
    machine = zstandard.ZstdCompressor(level=5, write_content_size=False).compressobj()
    assert decompress(machine.compress(PLAIN) + machine.flush(), 2) == PLAIN


def test_several_frames_in_one_body_are_read_on() -> None:
    for kind in (1, 2):
        assert decompress(compress(b"one", kind) + compress(b"two", kind), kind) == b"onetwo"


def test_a_small_limit_does_not_refuse_the_window_of_a_small_body() -> None:
    machine = zstandard.ZstdCompressor(level=9, write_content_size=False).compressobj()
    assert decompress(machine.compress(b"small") + machine.flush(), 2, limit=100) == b"small"


def test_every_shorter_stream_is_damaged(kind: int) -> None:
    body = compress(PLAIN, kind)
    for length in {*range(40), *range(40, len(body), 7), len(body) - 2, len(body) - 1}:
        with pytest.raises(CorruptError):
            decompress(body[:length], kind)


def test_garbage_is_damaged(kind: int) -> None:
    generator = random.Random(kind)
    for size in (1, 2, 4, 7, 100, 5000):
        with pytest.raises(CorruptError):
            decompress(generator.randbytes(size), kind)


def test_a_flipped_byte_never_ends_in_anything_but_bytes_or_damage(kind: int) -> None:
    body = compress(PLAIN, kind)
    generator = random.Random(1)
    wrong = 0
    for position in range(len(body)):
        flipped = bytearray(body)
        flipped[position] ^= 1 << generator.randrange(8)
        try:
            wrong += decompress(bytes(flipped), kind, limit=MIB) != PLAIN
        except CorruptError:
            wrong += 1
    assert wrong > len(body) // 3


def test_garbage_behind_a_whole_stream() -> None:
    for kind in (1, 2):
        with pytest.raises(CorruptError):
            decompress(compress(PLAIN, kind) + b"garbage", kind)
    # java.util.zip.InflaterInputStream, which brokers and clients use, never looks behind the end
    assert decompress(compress(PLAIN, 3) + b"garbage", 3) == PLAIN


def bomb(kind: int, size: int) -> bytes:
    """`size` zeros, compressed piece by piece."""
    piece = bytes(MIB)
    if kind == 1:
        machine = lz4.frame.LZ4FrameCompressor()
        head = machine.begin()
        return bytes(head + b"".join(machine.compress(piece) for _ in range(size // MIB)) + machine.flush())
    other = zstandard.ZstdCompressor().compressobj() if kind == 2 else zlib.compressobj(9)
    return b"".join(other.compress(piece) for _ in range(size // MIB)) + other.flush()


def test_a_bomb_is_refused_within_the_memory_of_the_limit(kind: int) -> None:
    body = bomb(kind, 64 * MIB)
    assert len(body) < MIB
    started = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(PlainSizeExceededError):
            decompress(body, kind, limit=MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * MIB
    assert time.process_time() - started < 5


def test_a_bomb_in_many_frames_is_refused() -> None:
    for kind in (1, 2):
        with pytest.raises(PlainSizeExceededError):
            decompress(compress(bytes(100_000), kind) * 100, kind, limit=MIB)


def test_the_limit_is_exact(kind: int) -> None:
    body = compress(bytes(1000), kind)
    assert decompress(body, kind, limit=1000) == bytes(1000)
    with pytest.raises(PlainSizeExceededError):
        decompress(body, kind, limit=999)


def test_the_default_limit_lets_every_body_of_a_broker_through() -> None:
    assert DEFAULT_PLAIN_SIZE_LIMIT == 64 * MIB
    assert len(decompress(bomb(3, 8 * MIB), 3)) == 8 * MIB


@pytest.mark.parametrize(
    "head",
    [
        # a window of 2 GiB
        bytes.fromhex("28b52ffd 00 a8"),
        # one segment of 2**62 bytes
        bytes.fromhex("28b52ffd e0 0000000000000040"),
    ],
)
def test_a_zstd_head_that_asks_for_too_much_memory(head: bytes) -> None:
    block = bytes.fromhex("020000") + b"x"
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError):
            decompress(head + block, 2)
        assert tracemalloc.get_traced_memory()[1] < 70 * MIB
    finally:
        tracemalloc.stop()


def test_no_body_at_all_is_no_stream(kind: int) -> None:
    with pytest.raises(CorruptError):
        decompress(b"", kind)


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_types_that_do_not_exist(number: int) -> None:
    with pytest.raises(UnsupportedError):
        decompress(b"", number)
    with pytest.raises(UsageError):
        compress(b"", number)


@pytest.mark.parametrize("kind", FRAMED)
def test_very_many_empty_frames(kind: int) -> None:
    """Each costs the same, however many follow: what is left of the body is not copied for each."""
    empty = compress(b"", kind)
    few, many = empty * 2_000, empty * 32_000
    seconds = []
    for body in (few, many):
        began = time.process_time()
        assert decompress(body + compress(b"end", kind), kind) == b"end"
        seconds.append(time.process_time() - began)
    assert seconds[1] < 60 * seconds[0] + 1


@pytest.mark.parametrize("kind", FRAMED)
def test_frames_of_all_sizes_one_behind_the_other(kind: int) -> None:
    plains = [random.Random(number).randbytes(number * number * 37) for number in range(120)]
    frames = [compress(plain, kind) for plain in plains]
    body = b"".join(frames)
    assert decompress(body, kind) == b"".join(plains)
    for cut in (1, 5, 4096, 5000, len(frames[-1]) - 1, len(frames[-1]) + 1):
        with pytest.raises(CorruptError):
            decompress(body[:-cut], kind)
    assert decompress(b"".join(frames[:-1]), kind) == b"".join(plains[:-1])


def test_a_stream_that_is_cut_where_all_its_bytes_are_there(kind: int) -> None:
    """As many as the limit allows: whether any are left over is not known, and what ends a stream is missing."""
    body = compress(PLAIN, kind)
    assert decompress(body, kind, limit=len(PLAIN)) == PLAIN
    for cut in range(1, 9):
        with pytest.raises(CorruptError):
            decompress(body[:-cut], kind, limit=len(PLAIN))


def test_bodies_that_do_not_become_smaller(kind: int) -> None:
    """Larger than the pieces in which streams are read."""
    plain = random.Random(kind).randbytes(200_000)
    body = compress(plain, kind)
    assert len(body) > 3 * 65536
    assert decompress(body, kind) == plain
    for cut in (1, 65536, 150_000):
        with pytest.raises(CorruptError):
            decompress(body[:-cut], kind)
