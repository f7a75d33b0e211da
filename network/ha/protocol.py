"""The bytes between a master and its slave (DefaultHAConnection, DefaultHAClient; HAConnection of 4.x): no socket, no
clock.

A slave reports an int64, where its log ends; its first report says from where it wants the log. A master sends frames:
int64 physical offset, int32 size, and so many bytes of the commitlog from there on. A frame of no bytes is a heartbeat.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError

REPORT = struct.Struct(">q")
TRANSFER_HEAD = struct.Struct(">qi")
BATCH = 32 * 1024
"""The most that a master sends in one frame unless it is configured otherwise (haTransferBatchSize)."""
LARGEST_BODY = 4 * 1024 * 1024
"""A frame has to fit into the buffer that a slave reads into (READ_MAX_BUFFER_SIZE), and no larger one is taken."""


class Transfer(NamedTuple):
    """Bytes of the log from a physical offset on; none in a heartbeat."""

    physical_offset: int
    body: bytes

    @property
    def end(self) -> int:
        """Physical offset behind the bytes."""
        return self.physical_offset + len(self.body)


def encode_report(offset: int) -> bytes:
    """What a slave says: its first report asks for the log from `offset` on, later ones say that all before it is
    there."""
    return REPORT.pack(offset)


def encode_transfer_head(physical_offset: int, size: int) -> bytes:
    """What stands before `size` bytes of the log."""
    return TRANSFER_HEAD.pack(physical_offset, size)


class ReportDecoder:
    """A slave's reports, as its master takes them in."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The last whole report after more bytes came; None if none was completed. Those before it are passed over, as
        RocketMQ does (ReadSocketService#processReadEvent)."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        return REPORT.unpack_from(data, whole - REPORT.size)[0] if whole else None


class TransferDecoder:
    """A master's frames, as its slave takes them in: in any pieces. It holds what a frame lacks, so at most
    `largest_body` bytes and what was fed last."""

    def __init__(self, largest_body: int = LARGEST_BODY) -> None:
        self._largest_body = largest_body
        self._data = bytearray()
        self._position = 0

    def feed(self, data: bytes) -> None:
        """More bytes came."""
        del self._data[: self._position]
        self._position = 0
        self._data += data

    def next_transfer(self) -> Transfer | None:
        """The next whole frame; None until more bytes come. CorruptError for a head that no master sends; nothing more
        can be understood then."""
        begin = self._position + TRANSFER_HEAD.size
        if len(self._data) < begin:
            return None
        offset, size = TRANSFER_HEAD.unpack_from(self._data, self._position)
        if not 0 <= size <= self._largest_body:
            raise CorruptError(f"a frame of {size} bytes; a master sends 0 to {self._largest_body}")
        if size and offset < 0:
            raise CorruptError(f"a frame from physical offset {offset} on")
        if len(self._data) < begin + size:
            return None
        self._position = begin + size
        return Transfer(offset, bytes(memoryview(self._data)[begin : begin + size]))
