"""Lengths that overflow their signed field, at both ends of the range."""

from __future__ import annotations

import pytest

from rmqctl.formats.message import FrameDamage, Reason, StoredMessage, decode_message
from tests.store.overflows import long_properties, overflowed


def damage_of(frame: bytes) -> FrameDamage:
    with pytest.raises(FrameDamage) as caught:
        decode_message(frame, 0, len(frame), 1000)
    return caught.value


def unsigned(frame: bytes) -> StoredMessage:
    return decode_message(frame, 0, len(frame), 1000, unsigned=True)


@pytest.mark.parametrize("size", [32768, 33010, 65535])
def test_properties(size: int) -> None:
    frame = overflowed(1000, long_properties(size))
    damage = damage_of(frame)
    assert damage.reason is Reason.OVERFLOW
    assert damage.detail == f"length {size} of the properties is over 32767, a broker reads it as {size - 65536}"
    message = unsigned(frame)
    assert (message.body, len(message.property_bytes), message.overflows) == (b"the body", size, True)
    assert message.properties()["KEYS"] == "k1"


def test_the_largest_that_fits() -> None:
    frame = overflowed(1000, long_properties(32767))
    message = decode_message(frame, 0, len(frame), 1000)
    assert message == unsigned(frame)
    assert not message.overflows


@pytest.mark.parametrize(("size", "v2", "read_as"), [(128, False, -128), (255, False, -1), (32768, True, -32768)])
def test_topic(size: int, v2: bool, read_as: int) -> None:
    frame = overflowed(1000, b"K\1v\2", topic=b"t" * size, v2=v2)
    damage = damage_of(frame)
    assert damage.reason is Reason.OVERFLOW
    most = 32767 if v2 else 127
    assert damage.detail == f"length {size} of the topic is over {most}, a broker reads it as {read_as}"
    assert (unsigned(frame).topic, unsigned(frame).overflows) == ("t" * size, True)


def test_both() -> None:
    damage = damage_of(overflowed(1000, long_properties(40000), topic=b"t" * 200))
    assert damage.reason is Reason.OVERFLOW
    assert "200 of the topic" in damage.detail
    assert "40000 of the properties" in damage.detail


def test_lengths_that_do_not_agree_are_no_overflow() -> None:
    frame = bytearray(overflowed(1000, long_properties(33010)))
    frame[-33011] ^= 1
    assert damage_of(bytes(frame)).reason is Reason.LENGTHS
    with pytest.raises(FrameDamage) as caught:
        unsigned(bytes(frame))
    assert caught.value.reason is Reason.LENGTHS


def test_crcs_count_without_the_signs_too() -> None:
    frame = bytearray(overflowed(1000, long_properties(33010)))
    frame[88] ^= 1
    with pytest.raises(FrameDamage) as caught:
        unsigned(bytes(frame))
    assert caught.value.reason is Reason.BODY_CRC


@pytest.mark.parametrize(("size", "v2"), [(127, False), (32767, True)])
def test_the_longest_topic_that_fits(size: int, v2: bool) -> None:
    frame = overflowed(1000, b"K\1v\2", topic=b"t" * size, v2=v2)
    message = decode_message(frame, 0, len(frame), 1000)
    assert (message, message.overflows) == (unsigned(frame), False)
