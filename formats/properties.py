"""The property string of a message: `name 0x01 value 0x02 ...` (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rmqctl.formats.checksums import java_hash
from rmqctl.formats.layouts import (
    COMPRESSION_MASK,
    COMPRESSION_SHIFT,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_INNER_BATCH,
    TRANSACTION_MASK,
)

NAME_SEPARATOR = b"\x01"
PROPERTY_SEPARATOR = b"\x02"

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
UNIQUE_KEY = "UNIQ_KEY"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
CRC32 = "__CRC32#"
TIMER_PROPERTIES = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DELETE_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_ROLL_LABEL = "TIMER_ROLL_LABEL"
TRANS_OFFSET = "TRANS_OFFSET"
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."

# the properties length field is a signed 16-bit integer
MAXIMUM_PROPERTIES_SIZE = 32767


def parse_properties(data: bytes) -> dict[str, str]:
    """Properties in stored order (MessageDecoder#string2messageProperties).

    As in RocketMQ a segment without a name or without a value is dropped, and a later duplicate wins.
    Raises UnicodeDecodeError where the bytes are not UTF-8.
    """
    found: dict[str, str] = {}
    for segment in data.split(PROPERTY_SEPARATOR):
        name, separator, value = segment.partition(NAME_SEPARATOR)
        if separator and name and value:
            found[name.decode("utf-8")] = value.decode("utf-8")
    return found


def encode_properties(properties: Mapping[str, str], trailing_separator: bool = True) -> bytes:
    """The stored form of `properties`, in their order.

    5.2.0 and later keep the final 0x02, 4.9.x and 5.0-5.1 do not: `trailing_separator` chooses.
    Transient properties (`__RMQ.TRANSIENT.`) are never stored.
    """
    segments = [
        name.encode("utf-8") + NAME_SEPARATOR + value.encode("utf-8")
        for name, value in properties.items()
        if not name.startswith(TRANSIENT_PREFIX)
    ]
    data = PROPERTY_SEPARATOR.join(segments)
    return data + PROPERTY_SEPARATOR if data and trailing_separator else data


def replace_property(data: bytes, name: str, value: str) -> bytes:
    """The stored properties `data` with `name` set to `value`, in its place if it is there already, else at the end."""
    encoded = name.encode("utf-8") + NAME_SEPARATOR
    segment = encoded + value.encode("utf-8")
    segments = data.split(PROPERTY_SEPARATOR)
    if any(part.startswith(encoded) for part in segments):
        return PROPERTY_SEPARATOR.join(segment if part.startswith(encoded) else part for part in segments)
    if data and not data.endswith(PROPERTY_SEPARATOR):
        data += PROPERTY_SEPARATOR
    return data + segment + PROPERTY_SEPARATOR


def split_keys(keys: str | None) -> list[str]:
    """Single keys of a KEYS property: separated by one space, empty pieces dropped (IndexService#buildIndex)."""
    return [key for key in keys.split(" ") if key] if keys else []


# The order in which a java.util.HashMap gives its keys: that of the properties which RocketMQ writes.

PARSED = 128
"""Buckets of a map made of a property string (MessageDecoder#string2messageProperties)."""
BUILT = 16
"""Buckets of a map that properties are put into one by one (Message#putProperty)."""


def in_java_order(properties: Mapping[str, str], buckets: int = PARSED) -> dict[str, str]:
    """`properties`, given in the order in which they were put, in the order in which a HashMap has them."""
    return {name: properties[name] for name in _ordered(tuple(properties), buckets)}


@lru_cache(maxsize=4096)
def _ordered(names: tuple[str, ...], buckets: int) -> tuple[str, ...]:
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return tuple(sorted(names, key=lambda name: _bucket(name, buckets)))


def _bucket(name: str, buckets: int) -> int:
    spread = java_hash(name) & 0xFFFFFFFF
    return (spread ^ spread >> 16) & buckets - 1


# Meaning of the sysFlag bits: transaction type, compression type and their names (docs/formats.md).

TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
TRANSACTION_NAMES = {
    TRANSACTION_NONE: "none",
    TRANSACTION_PREPARED: "prepared",
    TRANSACTION_COMMIT: "commit",
    TRANSACTION_ROLLBACK: "rollback",
}

# CompressionType: 0 is what producers before 5.0 wrote, always zlib; 4..7 are invalid
COMPRESSION_ZLIB_LEGACY = 0
COMPRESSION_LZ4 = 1
COMPRESSION_ZSTD = 2
COMPRESSION_ZLIB = 3
COMPRESSION_NAMES = {
    COMPRESSION_ZLIB_LEGACY: "zlib",
    COMPRESSION_LZ4: "lz4",
    COMPRESSION_ZSTD: "zstd",
    COMPRESSION_ZLIB: "zlib",
}


def transaction_type(sys_flag: int) -> int:
    """One of the TRANSACTION_ values."""
    return sys_flag & TRANSACTION_MASK


def has_queue_slot(sys_flag: int) -> bool:
    """Whether a message of this flag gets a consumequeue unit: prepared and rolled back ones do not."""
    return sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)


def compression_type(sys_flag: int) -> int | None:
    """The three-bit compression type of a compressed body, None for a plain body."""
    if not sys_flag & SYS_FLAG_COMPRESSED:
        return None
    return (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT


def compression_name(sys_flag: int) -> str | None:
    """`zlib`, `lz4`, `zstd` or `invalid (n)`; None for a plain body."""
    kind = compression_type(sys_flag)
    if kind is None:
        return None
    return COMPRESSION_NAMES.get(kind, f"invalid ({kind})")


def is_inner_batch(sys_flag: int) -> bool:
    """Whether the body is a concatenation of batch items."""
    return bool(sys_flag & SYS_FLAG_INNER_BATCH)
