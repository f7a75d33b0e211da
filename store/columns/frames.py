"""Writes frames of ordinary messages into memory from columns; compiled, or not at all (see `frame_writer`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.hosts import LOCAL_HOST
from rmqctl.formats.layouts import BLANK_FRAME, TOPIC_LENGTH_V1
from rmqctl.formats.message import Message, frame_bytes, prepare_frame
from rmqctl.store.compiled.extensions import crc_address
from rmqctl.store.compiled.tried import loaded_once, tried_kernels
from rmqctl.store.log.columns import Int64s
from rmqctl.store.native.tables import Frame, FrameSpan

_Bytes = NDArray[np.uint8]


class Held(NamedTuple):
    """Bytes that kernels read by address. `owner` keeps them alive."""

    address: int
    owner: object

    @classmethod
    def of(cls, data: bytes) -> Held:
        """The bytes of an object of Python's."""
        array = np.frombuffer(data or b"\0", np.uint8)
        return cls(array.ctypes.data, array)


class FrameSource(NamedTuple):
    """What frames are written from: see `kernel_frames.write_frames`.

    `columns` by `Frame`, `starts` and `ends` by `FrameSpan`. `topics`: the fields of all topics, one behind the
    other, with their places. `hosts`: packed into 64 bits each.
    """

    columns: Int64s
    starts: Int64s
    ends: Int64s
    bodies: Held
    properties: Held
    topics: Held
    topic_places: Int64s
    hosts: Int64s


class FrameWriter:
    """The compiled kernels."""

    def __init__(self, write_frames: Callable[..., int], write_first_bytes: Callable[..., int], crc: int) -> None:
        self._write_frames = write_frames
        self._write_first_bytes = write_first_bytes
        self._crc = crc

    def write(self, target: _Bytes, source: FrameSource, begin: int, end: int, physical_offset: int) -> None:
        """Frames of rows [begin, end) to the start of `target`, which has room for them. Their first eight bytes come
        after everything else, so that a reader sees whole frames only."""
        self._write_frames(
            target.ctypes.data, physical_offset, self._crc, source.columns, source.hosts,
            source.starts, source.ends, source.bodies.address, source.properties.address, source.topics.address,
            source.topic_places, begin, end,
        )  # fmt: skip
        self._write_first_bytes(target.ctypes.data, source.columns, begin, end)


def packed_hosts(hosts: list[bytes]) -> Int64s:
    """Hosts of eight bytes each as the kernels take them."""
    return np.frombuffer(b"".join(hosts), ">i8").astype(np.int64)


def topic_fields(topics: list[bytes]) -> tuple[Held, Int64s]:
    """The fields of topics (length and name), and where each begins; behind the last one its end."""
    fields = [TOPIC_LENGTH_V1.struct.pack(len(topic)) + topic for topic in topics]
    places = np.zeros(len(fields) + 1, np.int64)
    places[1:] = np.cumsum([len(field) for field in fields])
    return Held.of(b"".join(fields)), places


def frame_writer() -> FrameWriter | None:
    """The compiled kernels, None where nothing is compiled: then messages are put one by one."""
    address = crc_address()
    return _load(address) if address else None


@loaded_once
def _load(crc: int) -> FrameWriter | None:
    found = tried_kernels(
        "rmqctl.store.columns.kernel_frames",
        lambda tried: _is_right(FrameWriter(tried[0], tried[1], crc)),
        is_waited_for=False,
    )
    return None if found is None else FrameWriter(found[0], found[1], crc)


def _is_right(writer: FrameWriter) -> bool:
    """Whether it writes what the plain form does, tried on two messages."""
    message = Message("Topic", b"body" * 20, 3, 4, {"KEYS": "a"}, reconsume_times=5, prepared_transaction_offset=6)
    parts = prepare_frame(message, LOCAL_HOST, 77)
    wanted = frame_bytes(parts, 8, 1000, 99) + frame_bytes(parts, 9, 1000 + parts.total_size, 99)
    columns: Any = np.zeros((len(Frame), 2), np.int64)
    for name, values in {
        Frame.SIZE: parts.total_size, Frame.QUEUE_ID: 3, Frame.FLAG: 4, Frame.QUEUE_OFFSET: (8, 9),
        Frame.BORN_TIMESTAMP: 77, Frame.BORN_HOST: 1, Frame.RECONSUME_TIMES: 5, Frame.PREPARED: 6,
        Frame.STORE_TIMESTAMP: 99, Frame.STORE_HOST: 1,
    }.items():  # fmt: skip
        columns[name] = values
    starts, ends = np.zeros((len(FrameSpan), 2), np.int64), np.zeros((len(FrameSpan), 2), np.int64)
    ends[FrameSpan.BODY], ends[FrameSpan.PROPERTIES] = len(message.body), len(b"KEYS\x01a\x02")
    host = LOCAL_HOST.ip + LOCAL_HOST.port.to_bytes(4, "big")
    topics = topic_fields([b"Topic"])
    bodies, properties = Held.of(message.body), Held.of(b"KEYS\x01a\x02")
    source = FrameSource(columns, starts, ends, bodies, properties, *topics, packed_hosts([host, host]))
    target = np.zeros(len(wanted) + BLANK_FRAME.size, np.uint8)
    writer.write(target, source, 0, 2, 1000)
    return target.tobytes() == wanted + bytes(BLANK_FRAME.size)
