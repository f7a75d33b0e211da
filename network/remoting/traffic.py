"""What went through a server since it began: for the line that a person watches, and for the page of metrics."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from rmqctl.network.remoting.codes import RequestCode

OTHER = -1
"""Stands for all codes that are none of RocketMQ's: what a client sends must not make new ones."""
_CODES = {int(code): int(code) for code in RequestCode}


class Seen(NamedTuple):
    """Counts at one moment. `bytes_in` and `bytes_out` are of whole frames; `held`: pulls that wait for messages."""

    connections: int
    requests: int
    bytes_in: int
    bytes_out: int
    held: int


class Traffic:
    """Counts requests by code, and bytes both ways. For the thread of the loop alone."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.bytes_in = 0
        self.bytes_out = 0
        self.refused_connections = 0

    def request(self, code: int) -> None:
        """A request with this code came."""
        self.requests[_CODES.get(code, OTHER)] += 1

    def seen(self, connections: int, held: int) -> Seen:
        """The counts now, with what is not counted here."""
        return Seen(connections, self.requests.total(), self.bytes_in, self.bytes_out, held)
