"""CRCs of bodies and of whole frames (docs/formats.md)."""

from __future__ import annotations

import zlib

from rmqctl.formats.layouts import PROPERTY_CRC

# The sign bit is masked off because RocketMQ keeps the value in a Java int and wants it non-negative.
CRC_MASK = 0x7FFFFFFF

PROPERTY_CRC_NAME = b"__CRC32#\x01"
# CommitLog.CRC32_RESERVED_LEN: name, 0x01, ten digits, 0x02
PROPERTY_CRC_SIZE = PROPERTY_CRC.size
PROPERTY_CRC_DIGITS = PROPERTY_CRC_SIZE - len(PROPERTY_CRC_NAME) - 1


def crc32_definition(data: bytes) -> int:
    """CRC-32 as crcmod defines it: the executable definition the fast functions are held against in the tests."""
    import crcmod.predefined

    return int(crcmod.predefined.mkCrcFun("crc-32")(data))


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """Value of the frame's body_crc field for the stored body; 0 for no body (UtilAll#crc32)."""
    return zlib.crc32(body) & CRC_MASK if len(body) else 0


def property_crc_text(crc: int) -> bytes:
    """The 20 bytes that end a frame with a property CRC: the digits stand least significant first."""
    digits = f"{crc & CRC_MASK:0{PROPERTY_CRC_DIGITS}d}"[::-1]
    return PROPERTY_CRC_NAME + digits.encode("ascii") + b"\x02"


def parse_property_crc(tail: bytes) -> int | None:
    """The CRC in the last 20 bytes of a frame; None if they are not a `__CRC32#` property.

    Digits that are none, or overflow 31 bits, give -1: present but certainly wrong.
    """
    if len(tail) != PROPERTY_CRC_SIZE or not tail.startswith(PROPERTY_CRC_NAME) or tail[-1] != 2:
        return None
    digits = tail[len(PROPERTY_CRC_NAME) : -1]
    value = int(digits[::-1]) if digits.isdigit() else -1
    return value if value <= CRC_MASK else -1


def frame_crc(region: bytes | bytearray | memoryview) -> int:
    """CRC over a frame without its last 20 bytes, as the `__CRC32#` property holds it."""
    return zlib.crc32(region) & CRC_MASK


# CRC-32 as polynomials over GF(2) in the reflected order of zlib: the highest bit is x^0
_POLYNOMIAL = 0xEDB88320


def _multiply(left: int, right: int) -> int:
    """Product of two polynomials modulo the CRC's."""
    product = 0
    bit = 1 << 31
    while bit:
        if left & bit:
            product ^= right
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
        bit >>= 1
    return product


def _powers() -> list[int]:
    """x^8, x^16, x^32, ...: what one, two, four, ... bytes of zeros multiply a CRC with."""
    power, powers = 1 << 23, []
    for _ in range(64):
        powers.append(power)
        power = _multiply(power, power)
    return powers


_POWERS: list[int] = []


def crc32_shift(crc: int, length: int) -> int:
    """What `crc` (of some bytes) contributes to the CRC-32 of these bytes with `length` further bytes behind them.

    crc32(a + b) == crc32_shift(crc32(a), len(b)) ^ crc32(b)   (crc32_combine of zlib)
    """
    if not _POWERS:
        _POWERS.extend(_powers())
    for power in _POWERS[: length.bit_length()]:
        if length & 1:
            crc = _multiply(power, crc)
        length >>= 1
    return crc
