"""The bytes between master and slave, as RocketMQ has them, in any pieces, and what no peer of ours sends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.errors import CorruptError
from rmqctl.network.ha.master import (
    LARGEST_BODY,
    ReportDecoder,
    Transfer,
    TransferDecoder,
    encode_report,
    encode_transfer_head,
)
from tests.quick import examples

OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)


def test_the_bytes_are_those_of_rocketmq() -> None:
    assert encode_report(1) == b"\0\0\0\0\0\0\0\1"
    assert encode_report(-1) == b"\xff" * 8
    assert encode_transfer_head(3145728, 32768) == b"\0\0\0\0\0\x30\0\0\0\0\x80\0"
    decoder = TransferDecoder()
    decoder.feed(b"\0\0\0\0\0\x30\0\0\0\0\0\3abc\0\0\0\0\0\x30\0\3\0\0\0\0")
    first, beat = decoder.next_transfer(), decoder.next_transfer()
    assert (first, beat) == (Transfer(3145728, b"abc"), Transfer(3145731, b""))
    assert first is not None
    assert first.end == 3145731
    assert decoder.next_transfer() is None


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 62), st.binary(max_size=40)), max_size=8), st.data())
def test_frames_come_in_any_pieces(frames: list[tuple[int, bytes]], data: st.DataObject) -> None:
    sent = b"".join(encode_transfer_head(offset, len(body)) + body for offset, body in frames)
    decoder, got, position = TransferDecoder(), [], 0
    while position < len(sent):
        end = data.draw(st.integers(position + 1, len(sent)))
        decoder.feed(sent[position:end])
        position = end
        while (frame := decoder.next_transfer()) is not None:
            got.append(tuple(frame))
    assert got == frames


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(OFFSETS, max_size=6), st.data())
def test_of_reports_the_last_whole_one_counts(offsets: list[int], data: st.DataObject) -> None:
    sent = b"".join(map(encode_report, offsets))
    decoder, position = ReportDecoder(), 0
    while position < len(sent):
        end = data.draw(st.integers(position + 1, len(sent)))
        whole = end // 8
        expected = offsets[whole - 1] if whole > position // 8 else None
        assert decoder.feed(sent[position:end]) == expected
        position = end


@pytest.mark.parametrize(("offset", "size"), [(0, -1), (0, LARGEST_BODY + 1), (0, 0x7FFFFFFF), (-5, 3)])
def test_what_no_master_sends_is_refused_before_it_is_waited_for(offset: int, size: int) -> None:
    decoder = TransferDecoder()
    decoder.feed(encode_transfer_head(offset, size))
    with pytest.raises(CorruptError, match="a frame"):
        decoder.next_transfer()


def test_a_heartbeat_may_come_from_any_offset() -> None:
    decoder = TransferDecoder()
    decoder.feed(encode_transfer_head(-2, 0))
    assert decoder.next_transfer() == Transfer(-2, b"")
