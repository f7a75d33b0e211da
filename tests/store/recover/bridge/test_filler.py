"""Fillers and padding: frames of any size that RocketMQ's rules find good, and where they are put."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE
from rmqctl.formats.message import (
    LOCAL_HOST,
    MINIMUM_FRAME_SIZE,
    Message,
    StoredMessage,
    decode_message,
    frame_bytes,
    prepare_frame,
)
from rmqctl.formats.properties import has_queue_slot, parse_properties
from rmqctl.store.recover.bridge import (
    DAMAGED_PROPERTY,
    PADDING_TOPIC,
    Neighbour,
    filler_frame,
    filler_size,
    lay_out,
    lengthened_frame,
    marked_filler_size,
    padding_frame,
    padding_size,
)
from rmqctl.store.recover.lost import Lost, Slot, Span, _missing


def good(topic: str = "T", properties: dict[str, str] | None = None, *, crc: bool = False, body: bytes = b"x") -> bytes:
    message = Message(topic=topic, body=body, properties=properties or {})
    parts = prepare_frame(message, LOCAL_HOST, 5, with_property_crc=crc)
    return frame_bytes(parts, 7, 1000, 12345)


def decoded(frame: bytes, offset: int = 1000) -> StoredMessage:
    return decode_message(frame, 0, len(frame), offset)


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("topic", ["T", "a" * 127, "a" * 200, "SCHEDULE_TOPIC_XXXX", "主题"])
def test_fillers_of_any_size(crc: bool, topic: str) -> None:
    beside = Neighbour(decoded(good(crc=crc)))
    least = filler_size(beside, topic, {})
    lost = Lost([Slot((topic, 3), 99)])
    for size in [*range(least, least + 80), least + 5000]:
        message = decoded(filler_frame(beside, lost, 2000, size, "body_crc"), 2000)
        assert (message.total_size, message.topic, message.queue_id, message.queue_offset) == (size, topic, 3, 99)
        assert message.store_timestamp == 12345
        assert (DAMAGED_PROPERTY in message.properties()) == (size >= least + len("RMQCTL_DAMAGED_body_crc_"))
        assert ("__CRC32#" in message.properties()) == crc
    assert 88 + len(topic.encode()) <= least


@pytest.mark.parametrize("crc", [False, True])
def test_padding_of_any_size_takes_no_slot(crc: bool) -> None:
    beside = Neighbour(decoded(good(crc=crc)))
    least = padding_size(beside)
    for size in [*range(least, least + 60), 100_000]:
        message = decoded(padding_frame(beside, 3000, size), 3000)
        assert (message.total_size, has_queue_slot(message.sys_flag), message.queue_id) == (size, False, 0)
        assert PADDING_TOPIC.startswith(message.topic)
    assert (least, message.topic) == (MINIMUM_FRAME_SIZE + crc * PROPERTY_CRC_SIZE, PADDING_TOPIC)


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("properties", [{}, {"KEYS": "k", "TAGS": "t"}])
def test_a_message_can_be_lengthened_by_any_number_of_bytes(crc: bool, properties: dict[str, str]) -> None:
    original = decoded(good(properties=properties, crc=crc))
    for more in range(1, 120):
        frame = lengthened_frame(original, more)
        assert frame is not None
        longer = decoded(frame)
        assert len(frame) == original.total_size + more
        for name in ("topic", "body", "queue_id", "queue_offset", "store_timestamp", "sys_flag", "born_host_ip"):
            assert getattr(longer, name) == getattr(original, name)
        kept = parse_properties(longer.property_bytes)
        kept.pop("__CRC32#", None)
        assert kept == properties
    assert lengthened_frame(original, 40_000) is None


@pytest.mark.parametrize("crc", [False, True])
def test_so_can_one_whose_properties_end_without_a_separator(crc: bool) -> None:
    """RocketMQ puts one before the CRC; another program need not."""
    message = Message("T", b"x", property_bytes=b"KEYS\x01k")
    original = decoded(frame_bytes(prepare_frame(message, LOCAL_HOST, 5), 7, 1000, 12345))
    if crc:
        covered = prepare_frame(message._replace(property_bytes=b"KEYS\x01k" + bytes(20)), LOCAL_HOST, 5)
        original = decoded(frame_bytes(covered._replace(with_property_crc=True), 7, 1000, 12345))
    assert Neighbour(original).has_property_crc == crc
    for more in range(1, 40):
        frame = lengthened_frame(original, more)
        assert frame is not None
        assert len(frame) == original.total_size + more
        kept = parse_properties(decoded(frame).property_bytes)
        assert ("__CRC32#" in kept, kept["KEYS"]) == (crc, "k")


def places(lost: list[Lost], begin: int, limit: int, *, must_fill: bool = True) -> list[tuple[int, int, bool]]:
    beside = Neighbour(decoded(good()))
    found, _ = lay_out(beside, lost, begin, limit, "magic", must_fill=must_fill)
    position = begin
    for place in found:
        assert place.physical_offset == position
        position += place.size
    assert position == limit if must_fill and found else position <= limit
    return [(place.physical_offset, place.size, place.lost is not None) for place in found]


def slot(number: int, offset: int = -1, size: int = 0) -> Lost:
    return Lost([Slot(("T", 0), number)], offset, size)


def test_lost_messages_stand_where_they_stood() -> None:
    assert places([slot(1, 0, 300), slot(2, 300, 200)], 0, 500) == [(0, 300, True), (300, 200, True)]
    assert places([slot(1, 400, 200)], 0, 1000) == [(0, 400, False), (400, 200, True), (600, 400, False)]
    # too little for padding before or behind it goes to the filler
    assert places([slot(1, 50, 200)], 0, 300) == [(0, 300, True)]


def test_messages_known_by_their_slot_alone_are_put_between() -> None:
    beside = Neighbour(decoded(good()))
    least, marked = filler_size(beside, "T", {}), marked_filler_size(beside, "T", "magic", {})
    # as large as its mark, if those that are known stay where they were
    assert places([slot(1), slot(2, 500, 200)], 0, 700) == [
        (0, marked, True),
        (marked, 500 - marked, False),
        (500, 200, True),
    ]
    assert places([slot(1), slot(2, 200, 200)], 0, 400) == [
        (0, least, True),
        (least, 200 - least, False),
        (200, 200, True),
    ]
    assert places([slot(1), slot(2)], 0, marked + least) == [(0, least, True), (least, marked, True)]
    # no room before the one that is known: it moves
    assert places([slot(1), slot(2, 20, 300)], 0, 320) == [(0, least, True), (least, 320 - least, True)]


def test_what_has_no_room_is_given_up() -> None:
    beside = Neighbour(decoded(good()))
    found, given_up = lay_out(beside, [slot(number) for number in range(9)], 0, 300, "magic", must_fill=True)
    assert ([place.lost.own.queue_offset for place in found if place.lost], given_up) == ([0, 1, 2], 6)
    assert lay_out(beside, [slot(1)], 0, 50, "magic", must_fill=True) == ([], 1)


def test_nothing_is_known() -> None:
    assert places([], 0, 300) == [(0, 300, False)]
    assert places([], 0, 50) == []
    assert places([], 0, 300, must_fill=False) == []
    big = places([], 0, 3 * (1 << 20) + 10)
    assert [size for _, size, _ in big][:2] == [1 << 20, 1 << 20]
    assert not [record for record in big if record[1] < 100]


@pytest.mark.parametrize("begin", [0, 1_000_000])
def test_slots_are_missing_where_there_was_room_for_them(begin: int) -> None:
    """Room for three messages; more than that is a damaged number, whatever the queue offset is."""
    span = Span(5000, 5000 + 3 * MINIMUM_FRAME_SIZE, "size", Path("0"), 0, 10_000, 10_000)
    key = ("T", 0)

    def offsets(end: int, known: list[Slot], spans: list[Span]) -> list[int]:
        return [slot.queue_offset for slot in _missing(key, begin, end, known, spans)]

    assert offsets(begin + 3, [], [span]) == [begin, begin + 1, begin + 2]
    assert offsets(begin + 3, [Slot(key, begin + 1)], [span]) == [begin, begin + 2]
    assert offsets(begin + 4, [], [span]) == offsets(begin, [], [span]) == offsets(begin + 1, [], []) == []
