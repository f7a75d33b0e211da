"""Message ids: the broker's offset id and the client's unique id (docs/formats.md)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from rmqctl.formats import layouts
from rmqctl.formats.errors import UsageError
from rmqctl.formats.hosts import Host


class UniqueId(NamedTuple):
    """Decoded client id. `time_difference`: ms since the start of some month in the client's time zone."""

    ip: str
    process_id: int
    class_loader_hash: int
    time_difference: int
    counter: int


def format_offset_message_id(store_host: Host, physical_offset: int) -> str:
    """Upper-case hex of host and offset (MessageDecoder#createMessageId)."""
    layout = layouts.OFFSET_MESSAGE_ID_V6 if store_host.is_v6 else layouts.OFFSET_MESSAGE_ID_V4
    return layout.struct.pack(store_host.ip, store_host.port, physical_offset).hex().upper()


def is_message_id(text: str) -> bool:
    """Whether `text` has the form of either kind of id: 32 or 56 hex digits."""
    return len(text) in (32, 56) and all(digit in "0123456789abcdefABCDEF" for digit in text)


def parse_offset_message_id(text: str) -> tuple[Host, int]:
    """Store host and physical offset (MessageDecoder#decodeMessageId); UsageError for a malformed id."""
    if not is_message_id(text):
        raise UsageError(
            f"message id {text!r} is malformed",
            hint="an id has 32 hex digits (IPv4) or 56 (IPv6); look for other keys with `query -k`",
        )
    layout = layouts.OFFSET_MESSAGE_ID_V4 if len(text) == 32 else layouts.OFFSET_MESSAGE_ID_V6
    try:
        ip, port, physical_offset = layout.struct.unpack(bytes.fromhex(text))
    except (ValueError, struct.error) as error:
        raise UsageError(f"message id {text!r} is malformed") from error
    return Host(ip, port), physical_offset


def parse_unique_id(text: str) -> UniqueId:
    """Fields of a client's UNIQ_KEY (MessageClientIDSetter); UsageError for a malformed id."""
    import socket

    if not is_message_id(text):
        raise UsageError(f"unique id {text!r} is malformed", hint="an id has 32 hex digits (IPv4) or 56 (IPv6)")
    layout = layouts.UNIQUE_ID_V4 if len(text) == 32 else layouts.UNIQUE_ID_V6
    ip, process_id, class_loader_hash, time_difference, counter = layout.struct.unpack(bytes.fromhex(text))
    address = socket.inet_ntop(socket.AF_INET if len(ip) == 4 else socket.AF_INET6, ip)
    return UniqueId(address, process_id, class_loader_hash, time_difference, counter)
