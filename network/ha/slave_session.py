"""What a slave goes by on one connection to its master: what it says, and what it takes (DefaultHAClient)."""

from __future__ import annotations

from rmqctl.formats.errors import CorruptError
from rmqctl.network.ha.protocol import Transfer, TransferDecoder, encode_report

LAST_FILE = 0
"""A first report that a master takes for the beginning of its last file, not of its log."""
WHOLE_LOG = 1
"""A first report that gets a log from its second byte on. There is no way to ask for the first one, if the log has more
than one file; it is the high byte of a message's size, and 0 for every message of less than 16 MiB."""


class SlaveSession:
    """One connection. `next_offset`: where the next body has to begin, None until a master that was asked for its last
    file has said where that is."""

    def __init__(self, request: int) -> None:
        """`request`: the first report."""
        self._decoder = TransferDecoder()
        self._request = request
        self.next_offset = None if request == LAST_FILE else request
        self._beats = 0
        self._has_body = False

    @property
    def is_quiet(self) -> bool:
        """Whether the master has nothing more just now: it says so every 5 s (haSendHeartbeatInterval). The first time
        may be before it has begun."""
        return self._beats > (0 if self._has_body else 1)

    def report(self, offset: int | None = None) -> bytes:
        """What is to be sent first, and every few seconds from then on. As it stands it asks for the log and says
        nothing else; with `offset` it says that all before that is on disk here."""
        return encode_report(self._request if offset is None else max(offset, self._request))

    def received(self, data: bytes) -> list[Transfer]:
        """The bodies that bytes of the master complete, one behind the other. CorruptError where they are not: nothing
        that comes after that can be trusted."""
        self._decoder.feed(data)
        bodies: list[Transfer] = []
        while (transfer := self._decoder.next_transfer()) is not None:
            if self.next_offset is None and transfer.physical_offset >= 0:
                self.next_offset = transfer.physical_offset
            if transfer.physical_offset != self.next_offset:
                raise CorruptError(
                    f"a frame from physical offset {transfer.physical_offset} on, where {self.next_offset} is next"
                )
            self.next_offset = transfer.end
            if transfer.body:
                self._beats, self._has_body = 0, True
                bodies.append(transfer)
            else:
                self._beats += 1
        return bodies
