"""Integers, strings and checksums as RocksDB stores them: little-endian, varints, masked CRC-32C or XXH3."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

DAMAGE_HINT = (
    "keep a copy of the folder; `rmqctl check --explain RMQ-RDB-001` says which databases a broker makes again"
)
NO_CHECKSUM, CRC32C, XXHASH, XXHASH64, XXH3 = range(5)
"""Checksum types of a table's footer (ChecksumType of RocksDB's table.h)."""
_MASK_DELTA = 0xA282EAD8
_LAST_BYTE_FACTOR = 0x6B9083D9
_WORD = 0xFFFFFFFF
_LONGEST_VARINT = 10


class MalformedError(ValueError):
    """Bytes that do not hold what their place requires."""


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the varint at `position` and the position after it. Raises: MalformedError."""
    value = shift = 0
    for at in range(position, min(position + _LONGEST_VARINT, len(data))):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise MalformedError("an integer has no end")


def prefixed(data: bytes, position: int) -> tuple[bytes, int]:
    """Return the string behind its length at `position`, and the position after it. Raises: MalformedError."""
    length, position = varint(data, position)
    end = position + length
    if end > len(data):
        raise MalformedError(f"a string of {length} bytes exceeds its record")
    return data[position:end], end


@cache
def _crc32c() -> Callable[[bytes], int]:
    try:
        from crc32c import crc32c  # by the processor's own instruction
    except ImportError:
        import crcmod.predefined

        slower: Callable[[bytes], int] = crcmod.predefined.mkCrcFun("crc-32c")
        return slower
    return crc32c


def masked_crc32c(data: bytes) -> int:
    """Return the CRC-32C of `data` as RocksDB stores it: rotated, with a constant added (crc32c::Mask)."""
    crc = _crc32c()(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _WORD


def block_checksum(kind: int, data: bytes, compression: int) -> int | None:
    """Return the checksum of a block: `data` as stored, and its compression byte. None for `kind` 0 and an
    unknown one (ComputeBuiltinChecksumWithLastByte)."""
    if kind == CRC32C:
        return masked_crc32c(data + bytes((compression,)))
    if kind == XXH3:
        import xxhash

        return (xxhash.xxh3_64_intdigest(data) ^ compression * _LAST_BYTE_FACTOR) & _WORD
    if kind in (XXHASH, XXHASH64):
        import xxhash

        digest = xxhash.xxh32_intdigest if kind == XXHASH else xxhash.xxh64_intdigest
        return digest(data + bytes((compression,))) & _WORD
    return None
