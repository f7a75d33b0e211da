"""Frames both ways: the real broker's example, every golden message, construct against struct."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.checksums import parse_property_crc
from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.formats.message import (
    MINIMUM_FRAME_SIZE,
    FrameDamage,
    Host,
    Message,
    Reason,
    decode_message,
    frame_bytes,
    frame_head,
    parse_host,
    prepare_frame,
    utf16_length,
)
from rmqctl.formats.schemas import message_frame
from tests.formats.frames import EXAMPLE, HOSTS, LONG, MESSAGES, crc32_definition, frame_of
from tests.goldens import golden, truth

STORE_HOST = Host(b"\x7f\0\0\1", 10911)
EXAMPLE_MESSAGE = Message(
    topic="TopicA",
    body=b"hello",
    properties={"KEYS": "k1 k2", "TAGS": "TagA"},
    born_timestamp=0x18BCFE5687B,
    born_host=parse_host("10.1.2.3:54321"),
)


def test_the_worked_example_is_decoded() -> None:
    assert len(EXAMPLE) == 123
    message = decode_message(EXAMPLE, 0, len(EXAMPLE), 0)
    assert (message.topic, message.body, message.properties()) == (
        "TopicA",
        b"hello",
        {"KEYS": "k1 k2", "TAGS": "TagA"},
    )
    assert (str(message.born_host), str(message.store_host)) == ("10.1.2.3:54321", "127.0.0.1:10911")
    assert (message.born_timestamp, message.store_timestamp) == (0x18BCFE5687B, 0x1A1FB4A8C5D)
    assert (message.total_size, message.end, message.queue_id, message.queue_offset) == (123, 123, 0, 0)
    assert (message.body_crc, message.has_good_crc()) == (0x3610A686, True)
    assert message.message_id == "7F00000100002A9F0000000000000000"
    assert message.plain_body() == b"hello"


def test_the_worked_example_is_encoded_byte_for_byte() -> None:
    parts = prepare_frame(EXAMPLE_MESSAGE, STORE_HOST, 0x18BCFE5687B)
    assert frame_bytes(parts, 0, 0, 0x1A1FB4A8C5D) == EXAMPLE


def test_it_stands_anywhere_in_a_buffer() -> None:
    buffer = b"x" * 7 + EXAMPLE + b"y" * 9
    for kind in (bytes, bytearray, memoryview):
        assert decode_message(kind(buffer), 7, len(buffer) - 7, 0).body == b"hello"
    with pytest.raises(FrameDamage) as caught:
        decode_message(buffer, 7, len(buffer) - 7, 7)
    assert caught.value.reason is Reason.POSITION
    assert decode_message(buffer, 7, len(buffer) - 7, None).physical_offset == 0


GOLDENS = ("clean", "v4-clean", "features", "v4-features", "longtopic", "propcrc", "innerbatch", "lmq")


def digest(body: bytes) -> str | None:
    """As the truths have it: none for no body."""
    return hashlib.sha256(body).hexdigest() if body else None


@pytest.mark.parametrize("name", GOLDENS)
def test_every_message_of_a_golden_as_rocketmq_sees_it(name: str, tmp_path: Path) -> None:
    log = golden(name, tmp_path) / "commitlog"
    files = {int(path.name): path.read_bytes() for path in log.iterdir()}
    rows = truth(name).messages
    assert rows
    for row in rows:
        start = row["phyOffset"] // 262144 * 262144
        position = row["phyOffset"] - start
        message = decode_message(files[start], position, 262144 - position, row["phyOffset"])
        assert message.total_size == row["storeSize"]
        assert message.magic_code == row["magic"] & 0xFFFFFFFF
        assert message.topic == row["topic"]
        assert (message.queue_id, message.queue_offset) == (row["queueId"], row["queueOffset"])
        assert (message.born_timestamp, message.store_timestamp) == (row["bornTimestamp"], row["storeTimestamp"])
        assert (message.flag, message.body_crc) == (row["flag"], row["bodyCRC"])
        assert message.reconsume_times == row["reconsumeTimes"]
        assert message.prepared_transaction_offset == row["preparedTransactionOffset"]
        assert message.message_id == row["msgId"]
        assert message.properties() == row["properties"]
        assert digest(message.body) == row["bodySha256Raw"]
        assert digest(message.plain_body()) == row["bodySha256"]
        assert message.has_good_crc()


@pytest.mark.parametrize("name", ["features", "longtopic", "propcrc"])
def test_construct_reads_golden_frames_the_same_and_builds_them_back(name: str, tmp_path: Path) -> None:
    log = golden(name, tmp_path) / "commitlog"
    files = {int(path.name): path.read_bytes() for path in log.iterdir()}
    for row in truth(name).messages:
        start = row["phyOffset"] // 262144 * 262144
        frame = files[start][row["phyOffset"] - start : row["phyOffset"] - start + row["storeSize"]]
        assert_construct_agrees(frame, row["phyOffset"])


def assert_construct_agrees(frame: bytes, physical_offset: int) -> None:
    message = decode_message(frame, 0, len(frame), physical_offset)
    parsed = message_frame.parse(frame)
    plain = {
        name: parsed[name]
        for name in message._fields
        if name not in ("born_host_ip", "born_host_port", "store_host_ip", "store_host_port", "property_bytes")
    }
    plain["topic"] = parsed.topic.decode()
    assert plain == {name: getattr(message, name) for name in plain}
    assert Host(parsed.born_host.ip, parsed.born_host.port) == message.born_host
    assert Host(parsed.store_host.ip, parsed.store_host.port) == message.store_host
    assert parsed.properties == message.property_bytes
    assert message_frame.build(parsed) == frame


@given(MESSAGES, HOSTS, LONG, st.booleans())
def test_round_trip_and_construct(message: Message, store_host: Host, offset: int, with_crc: bool) -> None:
    frame = frame_of(message, store_host, queue_offset=9, physical_offset=offset, with_property_crc=with_crc)
    decoded = decode_message(frame, 0, len(frame) + 100, offset)
    assert (decoded.total_size, decoded.physical_offset, decoded.queue_offset) == (len(frame), offset, 9)
    assert (decoded.topic, decoded.body, decoded.queue_id, decoded.flag) == (
        message.topic,
        message.body,
        message.queue_id,
        message.flag,
    )
    assert (decoded.born_host, decoded.store_host) == (message.born_host, store_host)
    assert decoded.sys_flag & ~0x30 == message.sys_flag
    assert (bool(decoded.sys_flag & 0x10), bool(decoded.sys_flag & 0x20)) == (
        message.born_host.is_v6,
        store_host.is_v6,
    )
    found = decoded.properties()
    assert (found.pop("__CRC32#", None) is not None) is with_crc
    assert found == message.properties
    assert_construct_agrees(frame, offset)


# V1 and V2


@pytest.mark.parametrize(
    ("topic", "magic", "length_bytes"),
    [
        ("t", 0xDAA320A7, 1),
        ("t" * 127, 0xDAA320A7, 1),
        ("t" * 128, 0xDAA320AB, 2),
        ("t" * 255, 0xDAA320AB, 2),
        # the choice is made by UTF-16 units: 64 pairs are 128 units, and 256 bytes
        ("\U0001f600" * 64, 0xDAA320AB, 2),
        ("标" * 42, 0xDAA320A7, 1),
    ],
)
def test_the_frame_version_follows_the_topic(topic: str, magic: int, length_bytes: int) -> None:
    frame = frame_of(Message(topic, b"b", born_timestamp=0), STORE_HOST, physical_offset=0)
    assert int.from_bytes(frame[4:8], "big") == magic
    assert len(frame) == 88 + 1 + length_bytes + len(topic.encode()) + 2
    assert decode_message(frame, 0, len(frame), 0).topic == topic


def test_java_s_length_of_a_text() -> None:
    assert [utf16_length(text) for text in ("", "abc", "标签", "\U0001f600", "\ud83d")] == [0, 3, 2, 2, 1]


# the property CRC


def test_the_property_crc_covers_the_frame_without_its_last_twenty_bytes() -> None:
    frame = frame_of(EXAMPLE_MESSAGE, STORE_HOST, physical_offset=0, with_property_crc=True)
    assert len(frame) == 123 + 20
    assert parse_property_crc(frame[-20:]) == crc32_definition(frame[:-20]) & 0x7FFFFFFF
    assert frame[-21] == 2


def test_a_separator_is_put_before_the_crc_where_it_lacks_and_only_there() -> None:
    bare = Message("T", b"b", property_bytes=b"a\x01b", born_timestamp=0)
    frame = frame_of(bare, STORE_HOST, physical_offset=0, with_property_crc=True)
    assert frame[-24:-20] == b"a\x01b\x02"
    none = frame_of(Message("T", b"b", born_timestamp=0), STORE_HOST, physical_offset=0, with_property_crc=True)
    assert decode_message(none, 0, len(none), 0).property_bytes == none[-20:]


def test_a_crc_property_of_the_producer_is_replaced() -> None:
    message = Message("T", b"b", properties={"__CRC32#": "0000000000", "a": "b"}, born_timestamp=0)
    frame = frame_of(message, STORE_HOST, physical_offset=0, with_property_crc=True)
    assert frame.count(b"__CRC32#") == 1
    assert decode_message(frame, 0, len(frame), 0).properties()["a"] == "b"


def test_a_crc_property_of_the_producer_stays_where_none_is_made() -> None:
    properties = {"__CRC32#": "of the producer", "TAGS": "a"}
    frame = frame_of(Message("T", b"body", properties=properties), STORE_HOST, physical_offset=0)
    assert decode_message(frame, 0, len(frame), 0).properties() == properties


# what a good frame needs


def test_an_empty_body_is_good_and_its_crc_is_not_compared() -> None:
    frame = bytearray(frame_of(Message("T", b"", born_timestamp=0), STORE_HOST, physical_offset=0))
    assert frame[8:12] == bytes(4)
    frame[11] = 7
    assert decode_message(frame, 0, len(frame), 0).body == b""


def test_a_compressed_body_that_is_none_is_damage_of_the_body_only() -> None:
    frame = frame_of(Message("T", b"not zlib", sys_flag=0x301, born_timestamp=0), STORE_HOST, physical_offset=0)
    message = decode_message(frame, 0, len(frame), 0)
    with pytest.raises(CorruptError):
        message.plain_body()


@pytest.mark.parametrize("length", range(len(EXAMPLE)))
def test_every_shorter_file_ends_in_damage(length: int) -> None:
    with pytest.raises(FrameDamage) as caught:
        decode_message(EXAMPLE[:length], 0, length, 0)
    assert caught.value.reason is Reason.SIZE


def test_a_topic_longer_than_what_is_left_behind_a_long_body() -> None:
    frame = bytearray(frame_of(Message("T", b"b" * 300, born_timestamp=0), STORE_HOST, physical_offset=0))
    frame[-4] = 127  # its length; nothing stands behind the frame that could be read
    with pytest.raises(FrameDamage) as caught:
        decode_message(bytes(frame), 0, len(frame), 0)
    assert caught.value.reason is Reason.LENGTHS


def test_what_is_not_said_of_a_message() -> None:
    frame = frame_of(Message("T", b"body", born_timestamp=5), STORE_HOST, physical_offset=0)
    message = decode_message(frame, 0, len(frame), 0)
    assert (message.queue_id, message.flag, message.sys_flag, message.properties()) == (0, 0, 0, {})
    assert (message.reconsume_times, message.prepared_transaction_offset, message.born_timestamp) == (0, 0, 5)


def test_a_damage_is_told_by_its_detail() -> None:
    damage = FrameDamage(Reason.SIZE, "size 5 is impossible")
    assert (str(damage), damage.args, damage.reason) == ("size 5 is impossible", ("size 5 is impossible",), Reason.SIZE)


@pytest.mark.parametrize("hosts", range(4))
@pytest.mark.parametrize("position", [0, 1, 300])
def test_a_head_is_read_where_all_of_it_is_there(hosts: int, position: int) -> None:
    v4, v6 = Host(bytes(4), 1), Host(bytes(range(16)), 2)
    message = Message("T", b"body", born_host=v6 if hosts & 1 else v4, born_timestamp=5)
    data = frame_of(message, v6 if hosts & 2 else v4, physical_offset=7)
    size = FRAME_HEADS[hosts].size
    head = frame_head(bytes(position) + data[:size], position)
    assert head is not None
    assert (head.size, head.is_message, head.physical_offset, head.body_length) == (size, True, 7, 4)
    assert head == frame_head(data)
    for short in (0, 4, 87, size - 1):
        assert frame_head(bytes(position) + data[:short], position) is None


def test_the_smallest_frame() -> None:
    frame = frame_of(Message("T", b"", born_timestamp=0), STORE_HOST, physical_offset=0)
    assert len(frame) == MINIMUM_FRAME_SIZE == 92
    assert decode_message(frame, 0, len(frame), 0).topic == "T"
