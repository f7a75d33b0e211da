"""Unique ids of messages that are produced here, made as a producer of RocketMQ makes them (MessageClientIDSetter)."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import java_int
from rmqctl.formats.layouts import UNIQUE_ID_V4
from rmqctl.formats.message import Message

if TYPE_CHECKING:
    from rmqctl.store.log.columns import Bytes

# any address that is not ours: connecting a datagram socket sends nothing, and tells which address would be used
_ELSEWHERE = ("192.0.2.1", 9)


_COUNTS = 1 << 16


class NextId(NamedTuple):
    """How far ids are given out: the counter of the next one, the least time that it may have and the last time that
    one had, in ms."""

    counter: int = 0
    earliest: int = 0
    latest: int = -1


class UniqueIds:
    """Ids that no two messages have: our address, process, a number of this object, time since the month began (local
    time, ms) and a counter. `clock` gives ms since 1970; when the counter has come round, time has gone on.

    `place`: what the next id is made of; set back, the same ids are given once more.
    """

    def __init__(self, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock = clock
        self._address = _own_address() or (clock() & 0xFFFFFFFF).to_bytes(4, "big")
        # a client takes the hash of its class loader, which is as good as random
        self._number = secrets.randbits(31)
        self.place = NextId()

    def next(self) -> str:
        """The next id: 32 hexadecimal digits."""
        return self._run(1)[0]

    def take(self, count: int) -> Bytes:
        """The next ids, each a row of 32 characters. The clock is asked once for as many as the counter allows."""
        import numpy as np

        digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
        made = np.empty((count, 2 * UNIQUE_ID_V4.size), np.uint8)
        done = 0
        while done < count:
            first, run = self._run(count - done)
            rows = made[done : done + run]
            rows[:] = np.frombuffer(first.encode("ascii"), np.uint8)
            counters = np.arange(run) + int(first[-4:], 16)
            for place in range(1, 5):
                rows[:, -place] = digits[counters >> 4 * (place - 1) & 15]
            done += run
        return made

    def _run(self, most: int) -> tuple[str, int]:
        """Return the next id, and how many, at most `count`, differ from it only by counting on."""
        counter, earliest, latest = self.place
        run = min(most, _COUNTS - counter)
        now = max(self._clock(), earliest)
        latest = max(now, latest)
        has_come_round = counter + run == _COUNTS
        self.place = NextId(0, latest + 1, latest) if has_come_round else NextId(counter + run, earliest, latest)
        month = time.localtime(now / 1000)
        begin = int(time.mktime((month.tm_year, month.tm_mon, 1, 0, 0, 0, 0, 0, -1))) * 1000
        # MessageClientIDSetter casts to int: from the 25th, 20:31:23.648 on the difference is negative
        difference = java_int(now - begin)
        fields = self._address, os.getpid() & 0xFFFF, self._number, difference, counter
        return UNIQUE_ID_V4.struct.pack(*fields).hex().upper(), run

    def given_to(self, message: Message) -> Message:
        """`message` with an id behind its other properties, unless it carries one or its properties are given as
        stored."""
        if names.UNIQUE_KEY in message.properties or message.property_bytes is not None:
            return message
        return message._replace(properties={**message.properties, names.UNIQUE_KEY: self.next()})


def own_address() -> str | None:
    """The IPv4 address that others see, None without one."""
    address = _own_address()
    return None if address is None else socket.inet_ntoa(address)


def _own_address() -> bytes | None:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(_ELSEWHERE)
            address = socket.inet_aton(probe.getsockname()[0])
    except OSError:
        return None
    return None if address[0] in (0, 127) else address
