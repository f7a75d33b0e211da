"""Frames from columns: compiled and plain write what frame_bytes does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.hosts import Host
from rmqctl.formats.layouts import TOPIC_LENGTH_V1
from rmqctl.formats.message import Message, frame_bytes, prepare_frame
from rmqctl.formats.properties import encode_properties
from rmqctl.store.native.tables import Frame, FrameSpan
from tests.store.native.forms import compiled_form, plain_form

_INT = st.one_of(st.sampled_from([0, 0x7FFFFFFF, -0x80000000]), st.integers(-(1 << 31), (1 << 31) - 1))
_LONG = st.integers(-(1 << 63), (1 << 63) - 1)
_ROW = st.tuples(
    st.sampled_from(["T", "Topic", "t" * 127]),
    st.binary(max_size=30),
    st.dictionaries(st.sampled_from(["KEYS", "TAGS", "a"]), st.text("ab é", min_size=1, max_size=8), max_size=3),
    st.tuples(_INT, _INT, _INT, _LONG, _LONG, _LONG, _LONG),
)
_HOSTS = [Host(b"\x7f\0\0\x01", 10911), Host(b"\xff\xff\xff\xff", -1)]


def _source(rows: list[Any]) -> tuple[list[Any], list[bytes]]:
    """What the frames are written from, and the frames."""
    columns = np.zeros((len(Frame), len(rows)), np.int64)
    starts, ends = np.zeros((len(FrameSpan), len(rows)), np.int64), np.zeros((len(FrameSpan), len(rows)), np.int64)
    topics = sorted({row[0] for row in rows})
    fields = [TOPIC_LENGTH_V1.struct.pack(len(topic)) + topic.encode() for topic in topics]
    bodies = properties = b""
    frames: list[bytes] = []
    at = 1 << 40
    for number, (topic, body, named, (queue, flag, again, offset, born, stored, prepared)) in enumerate(rows):
        message = Message(
            topic, body, queue, flag, named, born_host=_HOSTS[1], reconsume_times=again,
            prepared_transaction_offset=prepared,
        )  # fmt: skip
        parts = prepare_frame(message, _HOSTS[0], born)
        frames.append(frame_bytes(parts, offset, at, stored))
        at += parts.total_size
        text = encode_properties(named)
        starts[:, number] = len(bodies), len(properties)
        bodies, properties = bodies + body, properties + text
        ends[:, number] = len(bodies), len(properties)
        values = {
            Frame.SIZE: parts.total_size, Frame.QUEUE_ID: queue, Frame.FLAG: flag, Frame.QUEUE_OFFSET: offset,
            Frame.BORN_TIMESTAMP: born, Frame.BORN_HOST: 1, Frame.RECONSUME_TIMES: again, Frame.PREPARED: prepared,
            Frame.TOPIC: topics.index(topic), Frame.STORE_TIMESTAMP: stored, Frame.STORE_HOST: 0,
        }  # fmt: skip
        for name, value in values.items():
            columns[name, number] = value
    hosts = np.frombuffer(b"".join(host.ip + host.port.to_bytes(4, "big", signed=True) for host in _HOSTS), ">i8")
    places = np.cumsum([0, *map(len, fields)]).astype(np.int64)
    return [columns, hosts.astype(np.int64), starts, ends, bodies, properties, b"".join(fields), places], frames


@given(st.lists(_ROW, min_size=1, max_size=6))
def test_frames_are_those_of_frame_bytes(rows: list[Any]) -> None:
    source, frames = _source(rows)
    wanted = b"".join(frames)
    for form in (plain_form("frames"), compiled_form("frames")):
        target = np.zeros(len(wanted) + 9, np.uint8)
        form.write_frames(target, 1 << 40, *source, 0, len(rows))
        hidden = target.tobytes()
        at = 0
        for frame in frames:
            assert hidden[at : at + 8] == bytes(8)
            at += len(frame)
        form.write_first_bytes(target, source[0], 0, len(rows))
        assert target.tobytes() == wanted + bytes(9)
        form.write_frames(target, (1 << 40) + len(frames[0]), *source, 1, len(rows))
        form.write_first_bytes(target, source[0], 1, len(rows))
        assert target.tobytes()[: len(wanted) - len(frames[0])] == wanted[len(frames[0]) :]


def test_what_does_not_fit_is_refused() -> None:
    source, frames = _source([("T", b"body", {"KEYS": "k"}, (0,) * 7)])
    for form in (plain_form("frames"), compiled_form("frames")):
        with pytest.raises(IndexError):
            form.write_frames(np.zeros(len(frames[0]) - 1, np.uint8), 0, *source, 0, 1)
        with pytest.raises(IndexError):
            form.write_frames(np.zeros(200, np.uint8), 0, *source, 0, 2)
        for at, value in ((2, 9), (3, 99), (3, -99)):  # starts, ends
            wrong = [*source]
            wrong[at] = source[at] + value
            with pytest.raises(IndexError):
                form.write_frames(np.zeros(400, np.uint8), 0, *wrong, 0, 1)
