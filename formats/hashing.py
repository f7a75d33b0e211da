"""Java's casts, its parsers of numbers, String.hashCode, and what RocketMQ makes of it: tag codes and key hashes.

See docs/formats.md.
"""

from __future__ import annotations

from functools import lru_cache

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


def _parsed(text: str, bits: int) -> int | None:
    """A sign or none, then digits of any script in the BMP: Java looks at UTF-16 units. No blanks, no underscores."""
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
"""What stands before the tag in the key of a tag entry (MessageConst.INDEX_TAG_TYPE)."""


def tag_key(tags: str) -> str:
    """Return the key under which RocketMQ 5.4 and later index a TAGS value (IndexService#buildKey)."""
    return TAG_KEY_PREFIX + tags


def key_hash(topic: str, key: str) -> int:
    """Hash of an index entry: absolute value of the hash of `topic#key`, 0 for Integer.MIN_VALUE.

    (IndexFile#indexKeyHashMethod)
    """
    value = abs(java_hash(f"{topic}#{key}"))
    return value if value <= 0x7FFFFFFF else 0
