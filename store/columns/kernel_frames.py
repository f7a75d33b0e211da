"""The kernels that write frames of ordinary messages from columns. Plain twin: `rmqctl.formats.message.frame_bytes`."""

from __future__ import annotations

from typing import Any

from rmqctl.formats.checksums import CRC_MASK
from rmqctl.formats.layouts import FRAME_HEAD_44, MESSAGE_MAGIC_V1, PROPERTIES_LENGTH
from rmqctl.store.compiled.compiling import inner, kernel
from rmqctl.store.compiled.kernel_memory import copy_bytes, crc_by_address, set_int, set_long, set_short
from rmqctl.store.native.tables import Frame, FrameSpan

_AT = {name: offset for name, _, offset, _ in FRAME_HEAD_44.fields}
_MAGIC_AT, _CRC_AT, _QUEUE_ID_AT, _FLAG_AT = _AT["magic_code"], _AT["body_crc"], _AT["queue_id"], _AT["flag"]
_QUEUE_OFFSET_AT, _PHYSICAL_AT, _SYS_FLAG_AT = _AT["queue_offset"], _AT["physical_offset"], _AT["sys_flag"]
_BORN_AT, _BORN_HOST_AT, _STORED_AT = _AT["born_timestamp"], _AT["born_host_ip"], _AT["store_timestamp"]
_STORE_HOST_AT, _RECONSUMED_AT = _AT["store_host_ip"], _AT["reconsume_times"]
_PREPARED_AT, _BODY_LENGTH_AT = _AT["prepared_transaction_offset"], _AT["body_length"]
_HEAD, _PROPERTIES_LENGTH = FRAME_HEAD_44.size, PROPERTIES_LENGTH.size
_MAGIC = MESSAGE_MAGIC_V1
_SIZE, _QUEUE_ID, _FLAG, _SYS_FLAG = int(Frame.SIZE), int(Frame.QUEUE_ID), int(Frame.FLAG), int(Frame.SYS_FLAG)
_QUEUE_OFFSET, _BORN, _BORN_HOST = int(Frame.QUEUE_OFFSET), int(Frame.BORN_TIMESTAMP), int(Frame.BORN_HOST)
_RECONSUMED, _PREPARED, _TOPIC = int(Frame.RECONSUME_TIMES), int(Frame.PREPARED), int(Frame.TOPIC)
_STORED, _STORE_HOST = int(Frame.STORE_TIMESTAMP), int(Frame.STORE_HOST)
_BODY, _PROPERTIES = int(FrameSpan.BODY), int(FrameSpan.PROPERTIES)


@inner
def write_head(
    at: int, crc_function: int, queue_id: int, flag: int, queue_offset: int, physical_offset: int, sys_flag: int,
    born_timestamp: int, born_host: int, store_timestamp: int, store_host: int, reconsume_times: int, prepared: int,
    body: int, body_length: int,
) -> None:  # fmt: skip
    """The head of a frame at address `at`, all but its first eight bytes. `body`: an address; hosts are packed."""
    set_int(at + _CRC_AT, crc_by_address(crc_function, body, body_length) & CRC_MASK if body_length else 0)
    set_int(at + _QUEUE_ID_AT, queue_id)
    set_int(at + _FLAG_AT, flag)
    set_long(at + _QUEUE_OFFSET_AT, queue_offset)
    set_long(at + _PHYSICAL_AT, physical_offset)
    set_int(at + _SYS_FLAG_AT, sys_flag)
    set_long(at + _BORN_AT, born_timestamp)
    set_long(at + _BORN_HOST_AT, born_host)
    set_long(at + _STORED_AT, store_timestamp)
    set_long(at + _STORE_HOST_AT, store_host)
    set_int(at + _RECONSUMED_AT, reconsume_times)
    set_long(at + _PREPARED_AT, prepared)
    set_int(at + _BODY_LENGTH_AT, body_length)


@inner
def _write_frames(
    target: int, physical_offset: int, crc_function: int, columns: Any, hosts: Any,
    starts: Any, ends: Any, bodies: int, properties: int, topics: int, topic_places: Any, begin: int, end: int,
) -> None:  # fmt: skip
    """Frames of rows [begin, end) one behind the other from address `target` on, all but their first eight bytes.

    `columns`: by `Frame`; `starts` and `ends`: by `FrameSpan`, bytes from `bodies` and `properties`, addresses like
    `topics`, where `topic_places` has begin and end of each topic's field. `hosts`: packed, by their numbers.
    """
    at = target
    for row in range(begin, end):
        body = bodies + starts[_BODY, row]
        length = ends[_BODY, row] - starts[_BODY, row]
        write_head(
            at, crc_function, columns[_QUEUE_ID, row], columns[_FLAG, row], columns[_QUEUE_OFFSET, row],
            physical_offset + at - target, columns[_SYS_FLAG, row], columns[_BORN, row],
            hosts[columns[_BORN_HOST, row]], columns[_STORED, row], hosts[columns[_STORE_HOST, row]],
            columns[_RECONSUMED, row], columns[_PREPARED, row], body, length,
        )  # fmt: skip
        place = at + _HEAD
        copy_bytes(place, body, length)
        place += length
        topic = columns[_TOPIC, row]
        length = topic_places[topic + 1] - topic_places[topic]
        copy_bytes(place, topics + topic_places[topic], length)
        place += length
        length = ends[_PROPERTIES, row] - starts[_PROPERTIES, row]
        set_short(place, length)
        copy_bytes(place + _PROPERTIES_LENGTH, properties + starts[_PROPERTIES, row], length)
        at += columns[_SIZE, row]


@inner
def _write_first_bytes(target: int, columns: Any, begin: int, end: int) -> None:
    """Size and magic number of the same frames: the moment in which somebody else sees them, each of them whole."""
    at = target
    for row in range(begin, end):
        set_int(at + _MAGIC_AT, _MAGIC)
        set_int(at, columns[_SIZE, row])
        at += columns[_SIZE, row]


def make_kernels(stamp: int) -> tuple[Any, Any]:
    """`write_frames` and `write_first_bytes`; see `compiling.load_kernels`. Both return `stamp`."""

    @kernel
    def write_frames(
        target: int, physical_offset: int, crc_function: int, columns: Any, hosts: Any,
        starts: Any, ends: Any, bodies: int, properties: int, topics: int, topic_places: Any, begin: int, end: int,
    ) -> int:  # fmt: skip
        _write_frames(
            target, physical_offset, crc_function, columns, hosts,
            starts, ends, bodies, properties, topics, topic_places, begin, end,
        )  # fmt: skip
        return stamp

    @kernel
    def write_first_bytes(target: int, columns: Any, begin: int, end: int) -> int:
        _write_first_bytes(target, columns, begin, end)
        return stamp

    return write_frames, write_first_bytes
