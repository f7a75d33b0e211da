"""One message: decoding and checking a stored frame (law 3), and encoding one to be put."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rmqctl.formats import layouts
from rmqctl.formats import properties as names
from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, body_crc, frame_crc, parse_property_crc, property_crc_text
from rmqctl.formats.compression import DEFAULT_PLAIN_SIZE_LIMIT, decompress, is_plain
from rmqctl.formats.errors import CorruptError, UnsupportedError, UsageError, counted
from rmqctl.formats.layouts import (
    FRAME_HEADS,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    PROPERTIES_LENGTH,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)
from rmqctl.formats.notebook import as_html
from rmqctl.formats.properties import MAXIMUM_PROPERTIES_SIZE, compression_type, encode_properties, parse_properties

# Born and store hosts, an IPv4 or IPv6 address with a port, and the broker's message ids, which are made of one and an
# offset (docs/formats.md).

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
    ENTRY = "entry"


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
    """Fields of a frame before its body. Timestamps in ms; `size` in bytes, as its sysFlag says."""

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

    def _repr_html_(self) -> str:
        return as_html(self)

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
        """The broker's id: store host and physical offset; "" for a copy, which has no place in the commitlog."""
        return "" if self.physical_offset < 0 else format_offset_message_id(self.store_host, self.physical_offset)

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

    def notebook_fields(self) -> dict[str, object]:
        """What a notebook shows of it."""
        try:
            body = self.plain_body()
        except (CorruptError, UnsupportedError):
            body = self.body
        return {
            "topic": self.topic,
            "queue_id": self.queue_id,
            "queue_offset": self.queue_offset,
            "physical_offset": self.physical_offset,
            "message_id": self.message_id,
            "store_timestamp": self.store_timestamp,
            "born_timestamp": self.born_timestamp,
            "born_host": self.born_host,
            "size": self.total_size,
            "properties": self.properties(),
            "body": body,
        }

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

    `available`: bytes from `position` to the end of the file (all of them must be in the buffer up to the frame's own
    size). `physical_offset`: offset of the frame in the commitlog, None to trust the frame. Without `check_crc` the
    body's and the frame's CRC are left unchecked. (CommitLog#checkMessageAndReturnSize, stricter.) `unsigned` reads the
    lengths of topic and properties without a sign: it accepts frames that fail with Reason.OVERFLOW, which brokers
    cannot read.
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
        raise FrameDamage(Reason.POSITION, f"the frame names physical offset {stored_offset}")
    body, topic_bytes, property_bytes = _variable_parts(
        buffer, position, size, magic, head.size, fields[16], unsigned=unsigned
    )
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


def _variable_parts(
    buffer: _Buffer, position: int, size: int, magic: int, head_size: int, body_length: int, *, unsigned: bool
) -> tuple[bytes, bytes, bytes]:
    """Return body, topic and properties. FrameDamage where their lengths do not add up to the size of the frame."""
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
        raise _wrong_lengths(buffer, (position, size, magic, head_size, body_length), detail, unsigned=unsigned)
    topic_start = topic_at + topic_layout.size
    properties_at = topic_start + topic_length
    (signed_properties,) = PROPERTIES_LENGTH.unpack_from(buffer, properties_at)
    properties_length = signed_properties & 0xFFFF if unsigned else signed_properties
    if properties_length < 0 or fixed + body_length + topic_length + properties_length != size:
        detail = (
            f"body {body_length}, topic {topic_length} and properties {properties_length} do not add up to size {size}"
        )
        raise _wrong_lengths(buffer, (position, size, magic, head_size, body_length), detail, unsigned=unsigned)
    properties_start = properties_at + PROPERTIES_LENGTH.size
    return (
        bytes(buffer[body_start:topic_at]),
        bytes(buffer[topic_start:properties_at]),
        bytes(buffer[properties_start : properties_start + properties_length]),
    )


def _wrong_lengths(
    buffer: _Buffer, parts: tuple[int, int, int, int, int], detail: str, *, unsigned: bool
) -> FrameDamage:
    """Return the damage of a frame whose lengths do not add up: an overflow if they do without their signs."""
    if unsigned:
        return FrameDamage(Reason.LENGTHS, detail)
    try:
        _, topic, properties = _variable_parts(buffer, *parts, unsigned=True)
    except FrameDamage:
        return FrameDamage(Reason.LENGTHS, detail)
    long = []
    topic_bits = 16 if parts[2] == MESSAGE_MAGIC_V2 else 8
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


# Encoding: a message to be put, and the frame that it becomes (MessageExtEncoder).


NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
"""Those of a message that has none."""


class Message(NamedTuple):
    """A message to be put. `properties` in the order they are stored; `body` in stored form (compressed if the sys_flag
    says so). The store fills in what is None.

    `property_bytes` replaces `properties` where the exact stored bytes matter (copies of stored messages).
    """

    topic: str
    body: bytes
    queue_id: int = 0
    flag: int = 0
    properties: Mapping[str, str] = NO_PROPERTIES
    property_bytes: bytes | None = None
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: Host = LOCAL_HOST
    store_timestamp: int | None = None
    store_host: Host | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class FrameParts(NamedTuple):
    """A message made ready for a frame: everything but queue offset, physical offset and store time."""

    head: int
    magic_code: int
    body_crc: int
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    tail: bytes
    body_length: int
    total_size: int
    with_property_crc: bool


def utf16_length(text: str) -> int:
    """Length of `text` as Java counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def prepare_frame(
    message: Message, store_host: Host, born_timestamp: int, *, with_property_crc: bool = False, allow_v2: bool = True
) -> FrameParts:
    """Everything of the frame that does not depend on where and when it is stored (MessageExtEncoder#encode).

    V2 frames are used for topics of more than 127 UTF-16 units if `allow_v2`.
    """
    is_v2 = allow_v2 and utf16_length(message.topic) > 127
    topic = message.topic.encode("utf-8")
    stored = message.property_bytes
    if stored is None:
        given = message.properties
        if with_property_crc and names.CRC32 in given:
            given = {name: value for name, value in given.items() if name != names.CRC32}
        stored = encode_properties(given)
    if with_property_crc:
        if stored and not stored.endswith(b"\x02"):
            stored += b"\x02"
        # room for the CRC itself, filled in by `frame_bytes`
        stored += bytes(PROPERTY_CRC_SIZE)
    hosts = (1 if message.born_host.is_v6 else 0) + (2 if store_host.is_v6 else 0)
    sys_flag = message.sys_flag & ~(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6) | hosts << 4
    topic_layout = TOPIC_LENGTH_V2 if is_v2 else TOPIC_LENGTH_V1
    tail = b"".join(
        (message.body, topic_layout.struct.pack(len(topic)), topic, PROPERTIES_LENGTH.struct.pack(len(stored)), stored)
    )
    return FrameParts(
        hosts,
        MESSAGE_MAGIC_V2 if is_v2 else MESSAGE_MAGIC_V1,
        body_crc(message.body),
        message.queue_id,
        message.flag,
        sys_flag,
        born_timestamp,
        message.born_host,
        store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
        tail,
        len(message.body),
        FRAME_HEADS[hosts].size + len(tail),
        with_property_crc,
    )


def frame_bytes(parts: FrameParts, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytes:
    """The finished frame."""
    head = FRAME_HEADS[parts.head].struct.pack(
        parts.total_size,
        parts.magic_code,
        parts.body_crc,
        parts.queue_id,
        parts.flag,
        queue_offset,
        physical_offset,
        parts.sys_flag,
        parts.born_timestamp,
        parts.born_host.ip,
        parts.born_host.port,
        store_timestamp,
        parts.store_host.ip,
        parts.store_host.port,
        parts.reconsume_times,
        parts.prepared_transaction_offset,
        parts.body_length,
    )
    frame = head + parts.tail
    if parts.with_property_crc:
        covered = frame[:-PROPERTY_CRC_SIZE]
        frame = covered + property_crc_text(frame_crc(covered))
    return frame
