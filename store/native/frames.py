"""Frames of ordinary messages written from columns, as `rmqctl.formats.message.frame_bytes` writes them."""

from __future__ import annotations

from rmqctl.formats.checksums import CRC_MASK
from rmqctl.formats.layouts import FRAME_HEAD_44, MESSAGE_MAGIC_V1, PROPERTIES_LENGTH
from rmqctl.store.native import uncompiled as cython
from rmqctl.store.native.tables import Frame, FrameSpan

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.memory import copy, crc32, set_int, set_long, set_short

if not cython.compiled:
    from rmqctl.store.native.memory import copy, crc32, set_int, set_long, set_short
    from rmqctl.store.native.uncompiled import Bytes, ReadLongRows, ReadLongs, WritableBytes, views

_AT = {name: offset for name, _, offset, _ in FRAME_HEAD_44.fields}
_MAGIC_AT, _CRC_AT, _QUEUE_ID_AT, _FLAG_AT = _AT["magic_code"], _AT["body_crc"], _AT["queue_id"], _AT["flag"]
_QUEUE_OFFSET_AT, _PHYSICAL_AT, _SYS_FLAG_AT = _AT["queue_offset"], _AT["physical_offset"], _AT["sys_flag"]
_BORN_AT, _BORN_HOST_AT, _STORED_AT = _AT["born_timestamp"], _AT["born_host_ip"], _AT["store_timestamp"]
_STORE_HOST_AT, _RECONSUMED_AT = _AT["store_host_ip"], _AT["reconsume_times"]
_PREPARED_AT, _BODY_LENGTH_AT = _AT["prepared_transaction_offset"], _AT["body_length"]
_HEAD, _PROPERTIES_LENGTH = FRAME_HEAD_44.size, PROPERTIES_LENGTH.size
_MAGIC, _CRC_MASK = MESSAGE_MAGIC_V1, CRC_MASK
_SIZE, _QUEUE_ID, _FLAG, _SYS_FLAG = int(Frame.SIZE), int(Frame.QUEUE_ID), int(Frame.FLAG), int(Frame.SYS_FLAG)
_QUEUE_OFFSET, _BORN, _BORN_HOST = int(Frame.QUEUE_OFFSET), int(Frame.BORN_TIMESTAMP), int(Frame.BORN_HOST)
_RECONSUMED, _PREPARED, _TOPIC = int(Frame.RECONSUME_TIMES), int(Frame.PREPARED), int(Frame.TOPIC)
_STORED, _STORE_HOST = int(Frame.STORE_TIMESTAMP), int(Frame.STORE_HOST)
_BODY, _PROPERTIES = int(FrameSpan.BODY), int(FrameSpan.PROPERTIES)


def write_frames(
    target: WritableBytes,
    physical_offset: cython.longlong,
    columns: ReadLongRows,
    hosts: ReadLongs,
    starts: ReadLongRows,
    ends: ReadLongRows,
    bodies: Bytes,
    properties: Bytes,
    topics: Bytes,
    topic_places: ReadLongs,
    begin: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> None:
    """Frames of rows [begin, end) one behind the other to `target`, all but their first eight bytes.

    `columns` by `Frame`; `starts` and `ends` by `FrameSpan`: places in `bodies` and `properties`. `topic_places` has
    begin and end of each topic's field in `topics`. `hosts`: packed, by their numbers. IndexError where something does
    not fit.
    """
    at: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    place: cython.Py_ssize_t
    body: cython.Py_ssize_t
    length: cython.Py_ssize_t
    topic: cython.Py_ssize_t
    if not cython.compiled:
        target, columns, hosts, starts, ends = views(target, columns, hosts, starts, ends)
        bodies, properties, topics, topic_places = views(bodies, properties, topics, topic_places)
    with cython.nogil:
        for row in range(begin, end):
            body = starts[_BODY, row]
            length = ends[_BODY, row] - body
            _write_head(target, at, columns, hosts, row)
            set_long(target, at + _PHYSICAL_AT, physical_offset + at)
            set_int(target, at + _CRC_AT, crc32(bodies, body, length) & _CRC_MASK)
            set_int(target, at + _BODY_LENGTH_AT, length)
            place = at + _HEAD
            copy(target, place, bodies, body, length)
            place += length
            topic = columns[_TOPIC, row]
            length = topic_places[topic + 1] - topic_places[topic]
            copy(target, place, topics, topic_places[topic], length)
            place += length
            length = ends[_PROPERTIES, row] - starts[_PROPERTIES, row]
            set_short(target, place, length)
            copy(target, place + _PROPERTIES_LENGTH, properties, starts[_PROPERTIES, row], length)
            at += columns[_SIZE, row]


def _write_head(
    target: WritableBytes, at: cython.Py_ssize_t, columns: ReadLongRows, hosts: ReadLongs, row: cython.Py_ssize_t
) -> cython.int:
    """The numbers of a frame's head that its columns say."""
    set_int(target, at + _QUEUE_ID_AT, columns[_QUEUE_ID, row])
    set_int(target, at + _FLAG_AT, columns[_FLAG, row])
    set_long(target, at + _QUEUE_OFFSET_AT, columns[_QUEUE_OFFSET, row])
    set_int(target, at + _SYS_FLAG_AT, columns[_SYS_FLAG, row])
    set_long(target, at + _BORN_AT, columns[_BORN, row])
    set_long(target, at + _BORN_HOST_AT, hosts[columns[_BORN_HOST, row]])
    set_long(target, at + _STORED_AT, columns[_STORED, row])
    set_long(target, at + _STORE_HOST_AT, hosts[columns[_STORE_HOST, row]])
    set_int(target, at + _RECONSUMED_AT, columns[_RECONSUMED, row])
    set_long(target, at + _PREPARED_AT, columns[_PREPARED, row])
    return 0


def write_first_bytes(
    target: WritableBytes, columns: ReadLongRows, begin: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> None:
    """Size and magic number of the same frames: a reader of the file sees each frame whole from this write on."""
    at: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    if not cython.compiled:
        target, columns = views(target, columns)
    with cython.nogil:
        for row in range(begin, end):
            set_int(target, at + _MAGIC_AT, _MAGIC)
            set_int(target, at, columns[_SIZE, row])
            at += columns[_SIZE, row]
