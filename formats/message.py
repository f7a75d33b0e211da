"""One message: decoding and checking a stored frame (law 3). The other way round: formats/framing.py."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, body_crc, frame_crc, parse_property_crc
from rmqctl.formats.compression import DEFAULT_PLAIN_SIZE_LIMIT, decompress, is_plain
from rmqctl.formats.errors import CorruptError, UnsupportedError, counted
from rmqctl.formats.hosts import Host, format_offset_message_id
from rmqctl.formats.layouts import (
    FRAME_HEADS,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    PROPERTIES_LENGTH,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)
from rmqctl.formats.properties import MAXIMUM_PROPERTIES_SIZE, compression_type, parse_properties

if TYPE_CHECKING:
    from rmqctl.formats.framing import NO_PROPERTIES, FrameParts, Message, frame_bytes, prepare_frame, utf16_length

__all__ = [
    "LARGEST_HEAD_SIZE",
    "LATEST_TIME",
    "MINIMUM_FRAME_SIZE",
    "FrameDamage",
    "FrameHead",
    "Reason",
    "StoredMessage",
    "decode_message",
    "frame_head",
    "is_possible_time",
    # what another module has, see __getattr__
    "NO_PROPERTIES",
    "FrameParts",
    "Message",
    "frame_bytes",
    "prepare_frame",
    "utf16_length",
]

_Buffer = bytes | bytearray | memoryview

_MAGICS = (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2)
# what a frame has at least: an IPv4 head, the two lengths, and one byte of topic
MINIMUM_FRAME_SIZE = FRAME_HEADS[0].size + TOPIC_LENGTH_V1.size + 1 + PROPERTIES_LENGTH.size


class Reason(enum.StrEnum):
    """Why bytes are not a good message (law 3), or why a span of the commitlog is damaged."""

    SIZE = "size"
    MAGIC = "magic"
    POSITION = "position"
    LENGTHS = "lengths"
    OVERFLOW = "overflow"
    BODY_CRC = "body_crc"
    PROPERTY_CRC = "property_crc"
    TOPIC = "topic"
    PROPERTIES = "properties"
    GAP = "gap"
    SHORT_FILE = "short_file"
    BLANK_SIZE = "blank_size"
    NUMBER = "number"


class FrameDamage(Exception):  # noqa: N818 - a finding that travels by exception inside the walk, not a failure
    """The bytes at a place are not a good frame: `reason` for programs, `detail` for people."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


LARGEST_HEAD_SIZE = FRAME_HEADS[3].size
LATEST_TIME = (1 << 42) - 1
"""In ms, of the year 2109: what is later, or negative, is no time that a broker writes, but has a flipped bit."""


class FrameHead(NamedTuple):
    """What stands before the body of a frame. Timestamps in ms; `size` in bytes, as its sysFlag says."""

    total_size: int
    magic_code: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host_ip: bytes
    born_host_port: int
    store_timestamp: int
    store_host_ip: bytes
    store_host_port: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int

    @property
    def size(self) -> int:
        """Bytes of the head itself."""
        return FRAME_HEADS[self.sys_flag >> 4 & 3].size

    @property
    def is_message(self) -> bool:
        """Whether the magic code is that of a message."""
        return self.magic_code in _MAGICS


def is_possible_time(timestamp: int) -> bool:
    """Return whether a broker may have written this time, ms."""
    return 0 <= timestamp <= LATEST_TIME


def frame_head(data: _Buffer, position: int = 0) -> FrameHead | None:
    """The head at `position`, of whichever addresses; None where there are fewer bytes than it has. Nothing in it is
    checked."""
    layout = FRAME_HEADS[0]
    if len(data) - position < layout.size:
        return None
    fields = layout.unpack_from(data, position)
    layout = FRAME_HEADS[fields[_SYS_FLAG] >> 4 & 3]
    if len(data) - position < layout.size:
        return None
    return FrameHead._make(fields if layout is FRAME_HEADS[0] else layout.unpack_from(data, position))


_SYS_FLAG = FrameHead._fields.index("sys_flag")


class StoredMessage(NamedTuple):
    """A frame as stored. Timestamps in ms; `body` as stored (see `plain_body`); `property_bytes` as stored."""

    total_size: int
    magic_code: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host_ip: bytes
    born_host_port: int
    store_timestamp: int
    store_host_ip: bytes
    store_host_port: int
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    property_bytes: bytes

    def properties(self) -> dict[str, str]:
        """Properties in stored order."""
        return parse_properties(self.property_bytes)

    @property
    def born_host(self) -> Host:
        """Address of the producer."""
        return Host(self.born_host_ip, self.born_host_port)

    @property
    def store_host(self) -> Host:
        """Address of the broker that stored it."""
        return Host(self.store_host_ip, self.store_host_port)

    @property
    def message_id(self) -> str:
        """The broker's id: store host and physical offset."""
        return format_offset_message_id(self.store_host, self.physical_offset)

    @property
    def overflows(self) -> bool:
        """Whether its topic or properties are longer than a broker can read (see Reason.OVERFLOW)."""
        longest_topic = 0x7FFF if self.magic_code == MESSAGE_MAGIC_V2 else 0x7F
        return len(self.property_bytes) > MAXIMUM_PROPERTIES_SIZE or len(self.topic.encode("utf-8")) > longest_topic

    @property
    def end(self) -> int:
        """Physical offset behind the frame."""
        return self.physical_offset + self.total_size

    def plain_body(self, limit: int = DEFAULT_PLAIN_SIZE_LIMIT) -> bytes:
        """The body, decompressed where the producer compressed it; CorruptError where that fails."""
        kind = compression_type(self.sys_flag)
        return self.body if kind is None else decompress(self.body, kind, limit)

    def has_good_crc(self) -> bool:
        """Whether the stored body matches the stored CRC."""
        return body_crc(self.body) == self.body_crc


def decode_message(
    buffer: _Buffer,
    position: int,
    available: int,
    physical_offset: int | None,
    check_crc: bool = True,
    unsigned: bool = False,
) -> StoredMessage:
    """The message whose frame starts at `position` of `buffer`; raises FrameDamage unless law 3 holds for it.

    `available`: bytes from `position` to the end of the file (all of them must be in the buffer up to the frame's
    own size). `physical_offset`: where the frame stands in the commitlog, None to trust the frame. Without
    `check_crc` the body's and the frame's CRC are left unchecked. (CommitLog#checkMessageAndReturnSize, stricter.)
    `unsigned` reads the lengths of topic and properties without a sign: it accepts frames that fail with
    Reason.OVERFLOW, which brokers cannot read.
    """
    head = FRAME_HEADS[0]
    if available < head.size:
        raise FrameDamage(Reason.SIZE, f"only {counted(available, 'byte is', 'bytes are')} left, less than any message")
    fields = head.unpack_from(buffer, position)
    size, magic, sys_flag = fields[0], fields[1], fields[7]
    if magic not in _MAGICS:
        raise FrameDamage(Reason.MAGIC, f"magic code is 0x{magic:08X}")
    if not MINIMUM_FRAME_SIZE <= size <= available:
        raise FrameDamage(Reason.SIZE, f"size {size} is impossible with {available} bytes left")
    hosts = sys_flag >> 4 & 3
    if hosts:
        head = FRAME_HEADS[hosts]
        if size < head.size:
            raise FrameDamage(Reason.LENGTHS, f"size {size} is less than the head of an IPv6 message")
        fields = head.unpack_from(buffer, position)
    stored_offset = fields[6]
    if physical_offset is not None and stored_offset != physical_offset:
        raise FrameDamage(Reason.POSITION, f"the frame says it stands at {stored_offset}")
    parts = _Parts(position, size, head.size, fields[16], magic)
    body, topic_bytes, property_bytes = _variable_parts(buffer, parts, unsigned)
    if check_crc:
        _check_crcs(buffer, position, size, body, fields[2], property_bytes)
    try:
        topic = topic_bytes.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FrameDamage(Reason.TOPIC, "topic is not UTF-8") from error
    try:
        property_bytes.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FrameDamage(Reason.PROPERTIES, "properties are not UTF-8") from error
    return StoredMessage._make((*fields[:16], body, topic, property_bytes))


class _Parts(NamedTuple):
    """Where the parts of variable length follow the head of a frame."""

    position: int
    size: int
    head_size: int
    body_length: int
    magic: int


def _variable_parts(buffer: _Buffer, parts: _Parts, unsigned: bool) -> tuple[bytes, bytes, bytes]:
    """Return body, topic and properties. FrameDamage where their lengths do not add up to the size of the frame."""
    position, size, head_size, body_length, magic = parts
    topic_layout = TOPIC_LENGTH_V2 if magic == MESSAGE_MAGIC_V2 else TOPIC_LENGTH_V1
    fixed = head_size + topic_layout.size + PROPERTIES_LENGTH.size
    if not 0 <= body_length <= size - fixed:
        raise FrameDamage(Reason.LENGTHS, f"body length {body_length} does not fit into a frame of {size} bytes")
    body_start = position + head_size
    topic_at = body_start + body_length
    (signed_topic,) = topic_layout.unpack_from(buffer, topic_at)
    topic_length = signed_topic & (1 << 8 * topic_layout.size) - 1 if unsigned else signed_topic
    if topic_length <= 0 or topic_length > size - fixed - body_length:
        detail = f"topic length {topic_length} does not fit into a frame of {size} bytes"
        raise _wrong_lengths(buffer, parts, unsigned, detail)
    topic_start = topic_at + topic_layout.size
    properties_at = topic_start + topic_length
    (signed_properties,) = PROPERTIES_LENGTH.unpack_from(buffer, properties_at)
    properties_length = signed_properties & 0xFFFF if unsigned else signed_properties
    if properties_length < 0 or fixed + body_length + topic_length + properties_length != size:
        detail = (
            f"body {body_length}, topic {topic_length} and properties {properties_length} do not add up to size {size}"
        )
        raise _wrong_lengths(buffer, parts, unsigned, detail)
    properties_start = properties_at + PROPERTIES_LENGTH.size
    return (
        bytes(buffer[body_start:topic_at]),
        bytes(buffer[topic_start:properties_at]),
        bytes(buffer[properties_start : properties_start + properties_length]),
    )


def _wrong_lengths(buffer: _Buffer, parts: _Parts, unsigned: bool, detail: str) -> FrameDamage:
    """Return the damage of a frame whose lengths do not add up: an overflow if they do without their signs."""
    if unsigned:
        return FrameDamage(Reason.LENGTHS, detail)
    try:
        _, topic, properties = _variable_parts(buffer, parts, True)
    except FrameDamage:
        return FrameDamage(Reason.LENGTHS, detail)
    long = []
    topic_bits = 16 if parts.magic == MESSAGE_MAGIC_V2 else 8
    for name, length, bits in (("topic", len(topic), topic_bits), ("properties", len(properties), 16)):
        most = (1 << bits - 1) - 1
        if length > most:
            long.append(f"length {length} of the {name} is over {most}, a broker reads it as {length - (1 << bits)}")
    return FrameDamage(Reason.OVERFLOW, "; ".join(long))


def _check_crcs(
    buffer: _Buffer, position: int, size: int, body: bytes, expected_body_crc: int, property_bytes: bytes
) -> None:
    found = body_crc(body)
    if body and found != expected_body_crc:
        raise FrameDamage(Reason.BODY_CRC, f"body CRC is {found}, the frame says {expected_body_crc}")
    expected = parse_property_crc(property_bytes[-PROPERTY_CRC_SIZE:])
    if expected is not None:
        found = frame_crc(memoryview(buffer)[position : position + size - PROPERTY_CRC_SIZE])
        if found != expected:
            raise FrameDamage(Reason.PROPERTY_CRC, f"frame CRC is {found}, its __CRC32# property says {expected}")


_OF_FRAMING = ("NO_PROPERTIES", "FrameParts", "Message", "frame_bytes", "prepare_frame", "utf16_length")


def __getattr__(name: str) -> object:
    # reading goes without what only writing needs: a lookup as a command has no time for it
    if name in _OF_FRAMING:
        from rmqctl.formats import framing

        return getattr(framing, name)
    raise AttributeError(f"module 'rmqctl.formats.message' has no attribute {name!r}")


def unread_body(message: StoredMessage) -> str | None:
    """Return why clients cannot unpack the body, None if they can."""
    if not message.body:
        return None  # a client unpacks no empty body
    try:
        message.plain_body()
    except (CorruptError, UnsupportedError) as error:
        way = "; `rmqctl repair --only RMQ-LOG-032` clears the flag"
        if not is_plain(message.body) or names.CRC32 in message.properties():
            way = ""
        return f"Java clients drop it and the messages after it in the same pull: {error.message}{way}"
    return None


def unread_body_error(message: StoredMessage) -> CorruptError | None:
    """Return what to report of a message whose body clients cannot unpack, None if they can."""
    why = unread_body(message)
    return None if why is None else CorruptError(why, physical_offset=message.physical_offset)
