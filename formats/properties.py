"""The property string of a message: `name 0x01 value 0x02 ...` (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Mapping

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
