"""CRCs of bodies and of whole frames (docs/formats.md)."""

from __future__ import annotations

import zlib
from functools import lru_cache

from rmqctl.formats.layouts import PROPERTY_CRC

# The sign bit is masked off because RocketMQ keeps the value in a Java int and wants it non-negative.
CRC_MASK = 0x7FFFFFFF

PROPERTY_CRC_NAME = b"__CRC32#\x01"
# CommitLog.CRC32_RESERVED_LEN: name, 0x01, ten digits, 0x02
PROPERTY_CRC_SIZE = PROPERTY_CRC.size
PROPERTY_CRC_DIGITS = PROPERTY_CRC_SIZE - len(PROPERTY_CRC_NAME) - 1


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


# MurmurHash3 of 128 bits for 64-bit machines, with seed 0, of which RocketMQ takes the first half (Guava's asLong).

_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_LONG = 0xFFFFFFFFFFFFFFFF


def murmur3(data: bytes) -> int:
    """Return the first 64 bits of murmur3_128 as an unsigned number (Hashing#murmur3_128)."""
    first = second = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        first ^= _mixed(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        first = ((_rotated(first, 27) + second) * 5 + 0x52DCE729) & _LONG
        second ^= _mixed(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        second = ((_rotated(second, 31) + first) * 5 + 0x38495AB5) & _LONG
    first ^= _mixed(int.from_bytes(data[whole : whole + 8], "little"), _C1, 31, _C2)
    second ^= _mixed(int.from_bytes(data[whole + 8 :], "little"), _C2, 33, _C1)
    first, second = first ^ len(data), second ^ len(data)
    first = (first + second) & _LONG
    return (_finished(first) + _finished((second + first) & _LONG)) & _LONG


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _LONG


def _mixed(value: int, before: int, bits: int, after: int) -> int:
    return _rotated(value * before & _LONG, bits) * after & _LONG


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _LONG
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _LONG
    return value ^ value >> 33


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


# Java's casts, its parsers of numbers, String.hashCode, and what RocketMQ makes of it: tag codes and key hashes.
#
# See docs/formats.md.

_SIGN = 0x80000000
_MASK = 0xFFFFFFFF
# digits of a text that Python reads at once; zeros of other scripts may lead a number
_LONGEST_NUMBER = 4000


def java_int(value: int) -> int:
    """Return what Java's cast to int makes of a value."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def java_long(value: int) -> int:
    """Return what a Java long holds after arithmetic whose exact outcome is `value`."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def parse_short(text: str) -> int | None:
    """Return what Short.parseShort reads in a text, None for NumberFormatException."""
    return _parsed(text, 16)


def parse_int(text: str) -> int | None:
    """Return what Integer.parseInt reads in a text, None for NumberFormatException."""
    return _parsed(text, 32)


def parse_long(text: str) -> int | None:
    """Return what Long.parseLong reads in a text, None for NumberFormatException."""
    return _parsed(text, 64)


def whole_number(text: str) -> int | None:
    """Return the queue id, delay level or count that Integer.parseInt reads; None for no int and a negative one."""
    number = parse_int(text)
    return number if number is not None and number >= 0 else None


# how many digits fit into so many bits, whatever they are
_ALWAYS_FIT = {16: 4, 32: 9, 64: 18}


def _parsed(text: str, bits: int) -> int | None:
    """A sign or none, then digits of any script in the BMP: Java looks at UTF-16 units. No blanks, no underscores."""
    if len(text) <= _ALWAYS_FIT[bits] and text.isascii() and text.isdigit():
        return int(text)
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or not all(digit.isdecimal() and digit <= "\uffff" for digit in digits):
        return None
    digits = digits.lstrip("0") or "0"
    if len(digits) > _LONGEST_NUMBER:
        return None
    value = -int(digits) if text[0] == "-" else int(digits)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def java_hash(text: str) -> int:
    """String.hashCode: h = 31 * h + unit over UTF-16 code units, as a signed 32-bit integer."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = value * 31 + unit & _MASK
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(data), 2):
            value = value * 31 + (data[position] << 8 | data[position + 1]) & _MASK
    return (value ^ _SIGN) - _SIGN


@lru_cache(maxsize=4096)
def tags_code(tags: str | None) -> int:
    """Code of a TAGS property in a consumequeue unit; 0 without a tag (MessageExtBrokerInner#tagsString2tagsCode)."""
    return java_hash(tags) if tags else 0


TAG_KEY_PREFIX = "T#"
"""Prefix of the tag in the key of a tag entry (MessageConst.INDEX_TAG_TYPE)."""


def tag_key(tags: str) -> str:
    """Return the key under which RocketMQ 5.4 and later index a TAGS value (IndexService#buildKey)."""
    return TAG_KEY_PREFIX + tags


def key_hash(topic: str, key: str) -> int:
    """Hash of an index entry: absolute value of the hash of `topic#key`, 0 for Integer.MIN_VALUE.

    (IndexFile#indexKeyHashMethod)
    """
    value = abs(java_hash(f"{topic}#{key}"))
    return value if value <= 0x7FFFFFFF else 0
