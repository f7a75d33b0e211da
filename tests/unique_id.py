"""A unique id taken apart: what the ids that we make are held against."""

from __future__ import annotations

import socket
from typing import NamedTuple

from rmqctl.formats import layouts


class UniqueId(NamedTuple):
    """Decoded client id. `time_difference`: ms since the start of some month in the client's time zone."""

    ip: str
    process_id: int
    class_loader_hash: int
    time_difference: int
    counter: int


def parse_unique_id(text: str) -> UniqueId:
    """Fields of a client's UNIQ_KEY (MessageClientIDSetter)."""
    layout = layouts.UNIQUE_ID_V4 if len(text) == 32 else layouts.UNIQUE_ID_V6
    ip, process_id, class_loader_hash, time_difference, counter = layout.struct.unpack(bytes.fromhex(text))
    address = socket.inet_ntop(socket.AF_INET if len(ip) == 4 else socket.AF_INET6, ip)
    return UniqueId(address, process_id, class_loader_hash, time_difference, counter)
