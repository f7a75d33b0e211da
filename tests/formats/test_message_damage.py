"""Damaged frames: every change is either seen, for the right reason, or lies in what no checksum covers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.checksums import body_crc
from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.formats.message import FrameDamage, Host, Message, Reason, StoredMessage, decode_message
from tests.formats.frames import EXAMPLE, HOSTS, MESSAGES, frame_of

STORE_HOST = Host(b"\x7f\0\0\1", 10911)
OFFSET = 1000

# fields whose change nothing can see without a property CRC, and what of a message they change
UNCOVERED = {
    "queue_id",
    "flag",
    "queue_offset",
    "born_timestamp",
    "born_host_ip",
    "born_host_port",
    "store_timestamp",
    "store_host_ip",
    "store_host_port",
    "reconsume_times",
    "prepared_transaction_offset",
}
# fields whose change is always seen, and as what
SEEN_AS = {
    "total_size": {Reason.SIZE, Reason.LENGTHS},
    "magic_code": {Reason.MAGIC, Reason.LENGTHS},
    "body_crc": {Reason.BODY_CRC},
    "physical_offset": {Reason.POSITION},
    "body_length": {Reason.LENGTHS},
}


def attempt(frame: bytes | bytearray) -> StoredMessage | Reason:
    """The message, or why there is none. Anything but FrameDamage is a failure of the test."""
    try:
        return decode_message(frame, 0, len(frame), OFFSET)
    except FrameDamage as damage:
        return damage.reason


def differing(before: StoredMessage, after: StoredMessage) -> set[str]:
    return {name for name in before._fields if getattr(before, name) != getattr(after, name)}


@given(MESSAGES.filter(lambda message: message.body), HOSTS, st.data())
def test_any_change_of_the_body_is_seen(message: Message, store_host: Host, data: st.DataObject) -> None:
    frame = bytearray(frame_of(message, store_host, physical_offset=OFFSET))
    start = FRAME_HEADS[frame[39] >> 4 & 3].size
    position = start + data.draw(st.integers(0, len(message.body) - 1))
    frame[position] ^= data.draw(st.integers(1, 255))
    assert attempt(frame) is Reason.BODY_CRC


def test_a_message_without_a_topic_is_none() -> None:
    """All its lengths add up: no queue could have it, and a broker stores none."""
    topic = b"\x06TopicA"
    frame = bytearray(EXAMPLE.replace(topic, b"\0"))
    frame[:4] = len(frame).to_bytes(4, "big")
    assert len(EXAMPLE) - len(frame) == len(topic) - 1
    with pytest.raises(FrameDamage, match="topic length 0"):
        decode_message(frame, 0, len(frame), None)


@given(MESSAGES.filter(lambda message: message.body), HOSTS, st.data())
def test_any_change_of_the_head_is_seen_or_uncovered(message: Message, store_host: Host, data: st.DataObject) -> None:
    frame = bytearray(frame_of(message, store_host, physical_offset=OFFSET))
    before = attempt(frame)
    assert isinstance(before, StoredMessage)
    head = FRAME_HEADS[frame[39] >> 4 & 3]
    name, _, offset, size = data.draw(st.sampled_from(head.fields))
    frame[offset + data.draw(st.integers(0, size - 1))] ^= data.draw(st.integers(1, 255))
    after = attempt(frame)
    if name in UNCOVERED:
        assert isinstance(after, StoredMessage)
        assert differing(before, after) == {name}
    elif name == "sys_flag":
        hosts_moved = (before.sys_flag ^ int.from_bytes(frame[36:40], "big", signed=True)) & 0x30
        if hosts_moved == 0x30 and before.born_host.is_v6 is not before.store_host.is_v6:
            # the hosts change places and the head keeps its length: nothing in the frame can tell
            assert isinstance(after, StoredMessage)
            hosts = {"born_host_ip", "born_host_port", "store_host_ip", "store_host_port", "store_timestamp"}
            assert differing(before, after) <= {"sys_flag"} | hosts
        elif hosts_moved:
            assert isinstance(after, Reason)
        else:
            assert isinstance(after, StoredMessage)
            assert differing(before, after) == {"sys_flag"}
    else:
        assert after in SEEN_AS[name]


@given(MESSAGES, HOSTS, st.data())
def test_any_change_behind_the_body_is_seen_or_changes_topic_or_properties_only(
    message: Message, store_host: Host, data: st.DataObject
) -> None:
    frame = bytearray(frame_of(message, store_host, physical_offset=OFFSET))
    before = attempt(frame)
    assert isinstance(before, StoredMessage)
    start = FRAME_HEADS[frame[39] >> 4 & 3].size + len(message.body)
    frame[data.draw(st.integers(start, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    after = attempt(frame)
    if isinstance(after, StoredMessage):
        assert differing(before, after) in ({"topic"}, {"property_bytes"}, {"topic", "property_bytes"})
        assert after.total_size == before.total_size
    else:
        assert after in (Reason.LENGTHS, Reason.TOPIC, Reason.PROPERTIES)


@given(MESSAGES, HOSTS, st.data())
def test_with_a_property_crc_every_change_of_the_frame_is_seen(
    message: Message, store_host: Host, data: st.DataObject
) -> None:
    frame = bytearray(frame_of(message, store_host, physical_offset=OFFSET, with_property_crc=True))
    assert isinstance(attempt(frame), StoredMessage)
    digits = range(len(frame) - 11, len(frame) - 1)
    position = data.draw(st.one_of(st.integers(0, len(frame) - 21), st.sampled_from(digits)))
    frame[position] ^= data.draw(st.integers(1, 255))
    reason = attempt(frame)
    assert isinstance(reason, Reason)
    if position in digits:
        assert reason in (Reason.PROPERTY_CRC, Reason.PROPERTIES)


@given(MESSAGES, HOSTS, st.data())
def test_many_wild_changes_never_raise_anything_else(message: Message, store_host: Host, data: st.DataObject) -> None:
    frame = bytearray(frame_of(message, store_host, physical_offset=OFFSET))
    for _ in range(data.draw(st.integers(1, 8))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    attempt(frame)


@given(st.binary(max_size=300))
def test_garbage_never_raises_anything_else(data: bytes) -> None:
    assert isinstance(attempt(data), Reason)
    attempt(data[:4] + EXAMPLE[4:8] + data[8:])
    attempt(len(data).to_bytes(4, "big") + EXAMPLE[4:8] + data[8:])


@given(st.binary(min_size=4, max_size=4), st.integers(84, 100))
def test_wild_lengths_stay_inside_the_frame(length: bytes, position: int) -> None:
    attempt(changed(position, length))


def changed(position: int, data: bytes) -> bytearray:
    frame = bytearray(EXAMPLE)
    frame[28:36] = OFFSET.to_bytes(8, "big")
    frame[position : position + len(data)] = data
    return frame


@pytest.mark.parametrize(
    ("position", "data", "reason"),
    [
        (0, (0).to_bytes(4, "big"), Reason.SIZE),
        (0, (-1).to_bytes(4, "big", signed=True), Reason.SIZE),
        (0, (91).to_bytes(4, "big"), Reason.SIZE),
        (0, (124).to_bytes(4, "big"), Reason.SIZE),
        (0, (122).to_bytes(4, "big"), Reason.LENGTHS),
        (0, (0x7FFFFFFF).to_bytes(4, "big"), Reason.SIZE),
        (4, bytes(4), Reason.MAGIC),
        (4, bytes.fromhex("cbd43194"), Reason.MAGIC),
        (4, bytes.fromhex("daa320ab"), Reason.LENGTHS),
        (28, OFFSET.to_bytes(7, "big") + b"\1", Reason.POSITION),
        (84, (-1).to_bytes(4, "big", signed=True), Reason.LENGTHS),
        (84, (0x7FFFFFFF).to_bytes(4, "big"), Reason.LENGTHS),
        (84, (6).to_bytes(4, "big"), Reason.LENGTHS),
        (93, b"\0", Reason.LENGTHS),
        (93, b"\x80", Reason.LENGTHS),
        (93, b"\x7f", Reason.LENGTHS),
        (100, b"\xff\xff", Reason.LENGTHS),
        (100, b"\x00\x14", Reason.LENGTHS),
        (8, bytes(4), Reason.BODY_CRC),
        (8, b"\xb6", Reason.BODY_CRC),
        (88, b"j", Reason.BODY_CRC),
        (94, b"\xff", Reason.TOPIC),
        (102, b"\xff", Reason.PROPERTIES),
    ],
)
def test_what_each_change_is_seen_as(position: int, data: bytes, reason: Reason) -> None:
    frame = changed(position, data)
    with pytest.raises(FrameDamage) as caught:
        decode_message(frame, 0, len(frame), OFFSET)
    assert caught.value.reason is reason
    assert caught.value.detail


def test_a_torn_frame_whose_body_is_whole_is_seen_by_its_lengths() -> None:
    """As in the golden `torn-zero`: size, magic, position and body CRC are right, topic and properties are zeros."""
    frame = bytearray(EXAMPLE)
    frame[28:36] = OFFSET.to_bytes(8, "big")
    frame[96:] = bytes(len(frame) - 96)
    assert body_crc(bytes(frame[88:93])) == int.from_bytes(frame[8:12], "big")
    assert attempt(frame) is Reason.LENGTHS


def test_without_crc_a_changed_body_passes() -> None:
    frame = changed(88, b"j")
    assert decode_message(frame, 0, len(frame), OFFSET, check_crc=False).body == b"jello"


def test_a_size_that_is_too_small_for_its_ipv6_head() -> None:
    frame = bytearray(frame_of(Message("T", b"", born_timestamp=0), STORE_HOST, physical_offset=OFFSET))
    frame[39] |= 0x30
    assert attempt(frame) is Reason.LENGTHS
