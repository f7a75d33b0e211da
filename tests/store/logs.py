"""Small commitlogs made byte by byte, for tests of what reads them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from rmqctl.formats.layouts import BLANK_MAGIC, FRAME_HEADS
from rmqctl.formats.message import Host, Message, StoredMessage
from rmqctl.store.files.layout import file_name
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.log.walk import Blank, Damage, Empty, Record, walk
from tests.formats.frames import frame_of

STORE_HOST = Host(bytes([10, 0, 0, 1]), 10911)
BODY_AT = FRAME_HEADS[0].size
"""Where the body of an IPv4 frame begins."""

Span = tuple[str, int, int]


def frame(
    physical_offset: int,
    body: bytes = b"body",
    *,
    topic: str = "T",
    queue_id: int = 0,
    queue_offset: int = 0,
    with_property_crc: bool = False,
    store_timestamp: int = 1_700_000_000_000,
    sys_flag: int = 0,
    properties: Mapping[str, str] | None = None,
) -> bytes:
    """A good IPv4 frame that says it stands at `physical_offset`."""
    message = Message(topic, body, queue_id, properties=properties or {}, sys_flag=sys_flag)
    return frame_of(
        message,
        STORE_HOST,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_timestamp=store_timestamp,
        with_property_crc=with_property_crc,
    )


def frames(bodies: list[bytes], begin: int = 0) -> list[bytes]:
    """Frames one behind the other from `begin` on."""
    made: list[bytes] = []
    for number, body in enumerate(bodies):
        made.append(frame(begin + sum(map(len, made)), body, queue_offset=number))
    return made


def blank(size: int, said: int | None = None) -> bytes:
    """The frame that fills a file's last `size` bytes."""
    return struct.pack(">iI", size if said is None else said, BLANK_MAGIC).ljust(size, b"\0")


def log_of(folder: Path, *files: bytes, file_size: int | None = None, first: int = 0) -> MappedFileQueue:
    """A commitlog of these files, all as long as the first unless `file_size` says otherwise."""
    size = file_size or len(files[0])
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(files):
        (folder / file_name(first + number * size)).write_bytes(data)
    return opened(folder, file_size)


def opened(folder: Path, file_size: int | None = None) -> MappedFileQueue:
    """The commitlog in `folder`."""
    log = MappedFileQueue([folder], file_size, Descriptors())
    log.load()
    return log


def span(record: Record) -> Span:
    """What a record is, with its first and its end offset; damage by its reason."""
    if isinstance(record, StoredMessage):
        return "message", record.physical_offset, record.end
    if isinstance(record, Blank):
        return "blank", record.physical_offset, record.physical_offset + record.size
    kind = "empty" if isinstance(record, Empty) else str(record.reason)
    return kind, record.physical_offset, record.end


def spans(log: MappedFileQueue, begin: int = 0) -> list[Span]:
    """All records of the walk from `begin` on."""
    return [span(record) for record in walk(log, begin)]


def damages(log: MappedFileQueue) -> list[Damage]:
    """All damaged spans."""
    return [record for record in walk(log) if isinstance(record, Damage)]


def is_tiling(found: list[Span], begin: int, end: int) -> bool:
    """Whether the spans cover [begin, end) without overlap and without gap."""
    for _, first, stop in found:
        if first != begin or stop <= first:
            return False
        begin = stop
    return begin == end


def changed(data: bytes, at: int, new: bytes) -> bytes:
    """`data` with `new` at byte `at`."""
    return data[:at] + new + data[at + len(new) :]


Change = Callable[[bytes], bytes]


def bytes_to_read(log: MappedFileQueue) -> int:
    """Return the bytes that progress adds up to: all but zeros after the last record of a file."""
    return sum(file.size for file in log.files) - sum(
        record.end - record.physical_offset for record in walk(log) if isinstance(record, Empty)
    )
