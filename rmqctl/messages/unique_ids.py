"""Unique ids of messages that are produced here, made as a producer of RocketMQ makes them (MessageClientIDSetter)."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable

from rmqctl.formats import properties as names
from rmqctl.formats.layouts import UNIQUE_ID_V4
from rmqctl.formats.message import Message

# any address that is not ours: connecting a datagram socket sends nothing, and tells which address would be used
_ELSEWHERE = ("192.0.2.1", 9)


class UniqueIds:
    """Ids that no two messages have: our address, process, a number of this object, time since the month began (local
    time, ms) and a counter. `clock` gives ms since 1970."""

    def __init__(self, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock = clock
        self._address = _own_address() or (clock() & 0xFFFFFFFF).to_bytes(4, "big")
        # a client takes the hash of its class loader, which is as good as random
        self._number = secrets.randbits(31)
        self._counter = 0

    def next(self) -> str:
        """The next id: 32 hexadecimal digits."""
        now = self._clock()
        month = time.localtime(now / 1000)
        begin = int(time.mktime((month.tm_year, month.tm_mon, 1, 0, 0, 0, 0, 0, -1))) * 1000
        fields = self._address, os.getpid() & 0xFFFF, self._number, (now - begin) & 0xFFFFFFFF, self._counter
        self._counter = (self._counter + 1) & 0xFFFF
        return UNIQUE_ID_V4.struct.pack(*fields).hex().upper()

    def given_to(self, message: Message) -> Message:
        """`message` with an id behind its other properties, unless it carries one or its properties are given as
        stored."""
        if names.UNIQUE_KEY in message.properties or message.property_bytes is not None:
            return message
        return message._replace(properties={**message.properties, names.UNIQUE_KEY: self.next()})


def _own_address() -> bytes | None:
    """The IPv4 address that others see, None without one."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(_ELSEWHERE)
            address = socket.inet_aton(probe.getsockname()[0])
    except OSError:
        return None
    return None if address[0] in (0, 127) else address
