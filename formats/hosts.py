"""Born and store hosts, an IPv4 or IPv6 address with a port, and the broker's message ids, which are made of one and an
offset (docs/formats.md)."""

from __future__ import annotations

import re
from typing import NamedTuple

from rmqctl.formats import layouts
from rmqctl.formats.errors import UsageError

# int() alone would take "+1", "1_000" and digits of other scripts
_PORT = r"-?[0-9]{1,10}"
_MAPPED = bytes(10) + b"\xff\xff"


class Host(NamedTuple):
    """`ip` holds 4 or 16 bytes; `port` is a signed 32-bit integer on disk."""

    ip: bytes
    port: int

    def __str__(self) -> str:
        if len(self.ip) == 4:
            return f"{self.ip[0]}.{self.ip[1]}.{self.ip[2]}.{self.ip[3]}:{self.port}"
        import socket

        return f"[{socket.inet_ntop(socket.AF_INET6, self.ip)}]:{self.port}"

    @property
    def is_v6(self) -> bool:
        """Whether the address takes 16 bytes."""
        return len(self.ip) == 16

    @property
    def as_written(self) -> Host:
        """The host as a broker writes it: an IPv4 address in the dress of IPv6 (`::ffff:1.2.3.4`) takes 4 bytes.

        Java knows no such address of 16 bytes (InetAddress#getByAddress makes it an Inet4Address), and a broker that
        copies a frame with one, as 4.9 does with delayed messages, writes 4 bytes where the flag says 16.
        """
        return Host(self.ip[-4:], self.port) if self.is_v6 and self.ip.startswith(_MAPPED) else self


LOCAL_HOST = Host(b"\x7f\x00\x00\x01", 10911)


def parse_host(text: str) -> Host:
    """`1.2.3.4:10911` or `[::1]:10911`; UsageError for anything else (names are not resolved)."""
    import socket

    address, separator, port_text = text.rpartition(":")
    try:
        if not separator or not re.fullmatch(_PORT, port_text):
            raise ValueError("no port")
        port = int(port_text)
        if not -0x80000000 <= port <= 0x7FFFFFFF:
            raise ValueError("port out of range")
        if address.startswith("[") and address.endswith("]"):
            return Host(socket.inet_pton(socket.AF_INET6, address[1:-1]), port)
        return Host(socket.inet_pton(socket.AF_INET, address), port)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"host {text!r} is neither IPv4:port nor [IPv6]:port", hint="write it as 10.0.0.1:10911 or [::1]:10911"
        ) from error


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
    ip, port, physical_offset = layout.struct.unpack(bytes.fromhex(text))
    return Host(ip, port), physical_offset
