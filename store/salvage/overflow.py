"""What a new store cannot hold of messages whose length of topic or properties overflows its field."""

from __future__ import annotations

import base64

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import MAXIMUM_PROPERTIES_SIZE, encode_properties

_MOST = MAXIMUM_PROPERTIES_SIZE - PROPERTY_CRC_SIZE


def fitting(message: StoredMessage) -> tuple[StoredMessage, dict[str, str]]:
    """Return the message without the properties that do not fit, the largest first, and those properties."""
    if len(message.property_bytes) <= MAXIMUM_PROPERTIES_SIZE:
        return message, {}
    properties = message.properties()
    sizes = {name: len(encode_properties({name: value})) for name, value in properties.items()}
    total = sum(sizes.values())
    dropped: dict[str, str] = {}
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if total <= _MOST:
            break
        total -= sizes[name]
        dropped[name] = properties.pop(name)
    return message._replace(property_bytes=encode_properties(properties)), dropped


def content(message: StoredMessage) -> dict[str, str | dict[str, str]]:
    """Return body and properties for a row of the lost and found."""
    return {"body_base64": base64.b64encode(message.body).decode("ascii"), "properties": message.properties()}
