"""Rows of messages that go to the log together: judged, separated by queue, and written as frames.

`columns` has a row of 64-bit integers for each number of a frame (`tables.Frame`) and a column for each message;
`starts` and `ends` say where bodies and properties lie (`tables.FrameSpan`). Frames are those of
`rmqctl.formats.message.frame_bytes`. IndexError where a number leads out of what it is a place in.
"""

from __future__ import annotations

from rmqctl.formats.checksums import CRC_MASK
from rmqctl.formats.layouts import BLANK_FRAME, FRAME_HEAD_44, MESSAGE_MAGIC_V1, PROPERTIES_LENGTH, TOPIC_LENGTH_V1
from rmqctl.formats.properties import MAXIMUM_PROPERTIES_SIZE
from rmqctl.store.native import uncompiled as cython
from rmqctl.store.native.tables import Frame, FrameSpan

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.memory import (
        copy,
        crc32,
        fence,
        out_of_range,
        put_int,
        put_long,
        set_int,
        set_short,
    )

if not cython.compiled:
    from rmqctl.store.native.memory import copy, crc32, fence, out_of_range, put_int, put_long, set_int, set_short
    from rmqctl.store.native.uncompiled import Bytes, LongRows, Longs, ReadLongRows, ReadLongs, WritableBytes, views

_AT = {name: offset for name, _, offset, _ in FRAME_HEAD_44.fields}
_MAGIC_AT, _CRC_AT, _QUEUE_ID_AT, _FLAG_AT = _AT["magic_code"], _AT["body_crc"], _AT["queue_id"], _AT["flag"]
_QUEUE_OFFSET_AT, _PHYSICAL_AT, _SYS_FLAG_AT = _AT["queue_offset"], _AT["physical_offset"], _AT["sys_flag"]
_BORN_AT, _BORN_HOST_AT, _STORED_AT = _AT["born_timestamp"], _AT["born_host_ip"], _AT["store_timestamp"]
_STORE_HOST_AT, _RECONSUMED_AT = _AT["store_host_ip"], _AT["reconsume_times"]
_PREPARED_AT, _BODY_LENGTH_AT = _AT["prepared_transaction_offset"], _AT["body_length"]
_HEAD, _PROPERTIES_LENGTH, _BLANK = FRAME_HEAD_44.size, PROPERTIES_LENGTH.size, BLANK_FRAME.size
# bytes of a frame besides body, topic and properties
_OVERHEAD = FRAME_HEAD_44.size + TOPIC_LENGTH_V1.size + PROPERTIES_LENGTH.size
_MAGIC, _CRC_MASK, _LARGEST_PROPERTIES = MESSAGE_MAGIC_V1, CRC_MASK, MAXIMUM_PROPERTIES_SIZE
_NO_TIME, _INTS = -(1 << 63), 1 << 31
# odd, with bits of every kind: spreads the numbers of queues
_SPREAD = 0x9E3779B97F4A7C15
_SIZE, _QUEUE_ID, _FLAG, _SYS_FLAG = int(Frame.SIZE), int(Frame.QUEUE_ID), int(Frame.FLAG), int(Frame.SYS_FLAG)
_QUEUE_OFFSET, _BORN, _BORN_HOST = int(Frame.QUEUE_OFFSET), int(Frame.BORN_TIMESTAMP), int(Frame.BORN_HOST)
_RECONSUMED, _PREPARED, _TOPIC = int(Frame.RECONSUME_TIMES), int(Frame.PREPARED), int(Frame.TOPIC)
_STORED, _STORE_HOST = int(Frame.STORE_TIMESTAMP), int(Frame.STORE_HOST)
_FRAME_ROWS, _SPAN_ROWS = len(Frame), len(FrameSpan)
_BODY, _PROPERTIES = int(FrameSpan.BODY), int(FrameSpan.PROPERTIES)


def judge_rows(
    columns: LongRows, starts: ReadLongRows, ends: ReadLongRows, body_bytes: cython.longlong,
    property_bytes: cython.longlong, topic_sizes: ReadLongs, usual: WritableBytes, largest_body: cython.longlong,
    file_size: cython.longlong, largest_topic: cython.longlong, unusual_flags: cython.longlong,
    times_end: cython.longlong,
) -> None:  # fmt: skip
    """Fill in SIZE. A row is not `usual` any more (0) that fields or a file cannot hold, or that is unusual by its
    numbers."""
    row: cython.Py_ssize_t
    body: cython.longlong
    properties: cython.longlong
    topic: cython.longlong
    size: cython.longlong
    time: cython.longlong
    sys_flag: cython.longlong
    if not cython.compiled:
        columns, starts, ends, topic_sizes, usual = views(columns, starts, ends, topic_sizes, usual)
    with cython.nogil:
        for row in range(columns.shape[1]):
            body = length_of(starts[_BODY, row], ends[_BODY, row], body_bytes)
            properties = length_of(starts[_PROPERTIES, row], ends[_PROPERTIES, row], property_bytes)
            topic = topic_sizes[place_of(columns[_TOPIC, row], len(topic_sizes))]
            size = _OVERHEAD + topic + body + properties
            columns[_SIZE, row] = size
            time = columns[_STORED, row]
            sys_flag = columns[_SYS_FLAG, row]
            if not (
                topic <= largest_topic
                and size + _BLANK <= file_size
                and (time == _NO_TIME or 0 <= time < times_end)
                and body <= largest_body
                and properties <= _LARGEST_PROPERTIES
                and sys_flag & unusual_flags == 0
                and is_int(sys_flag)
                and 0 <= columns[_QUEUE_ID, row] < _INTS
                and is_int(columns[_FLAG, row])
                and is_int(columns[_RECONSUMED, row])
            ):
                usual[row] = 0


def is_int(number: cython.longlong) -> cython.bint:
    """Whether a field of 32 bits holds a number."""
    return -_INTS <= number < _INTS


def place_of(at: cython.longlong, count: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """A place in an array of `count`: Python would count a negative one from the end."""
    if at < 0 or at >= count:
        out_of_range(at)
    return at


def length_of(begin: cython.longlong, end: cython.longlong, count: cython.longlong) -> cython.longlong:
    """The length of a range of `count` bytes."""
    if begin < 0 or end < begin or end > count:
        out_of_range(begin)
    return end - begin


def number_queues(columns: ReadLongRows, slots: Longs, first_rows: Longs, queues: Longs) -> int:
    """Give every queue among the rows a number: `queues` gets that of each row, `first_rows` the first row of each
    number. `slots`: all -1, a power of two and more than rows. Return how many there are."""
    row: cython.Py_ssize_t
    key: cython.ulonglong
    slot: cython.ulonglong
    mask: cython.ulonglong = len(slots) - 1
    found: cython.longlong = 0
    topic: cython.longlong
    queue_id: cython.longlong
    number: cython.longlong
    if not cython.compiled:
        columns, slots, first_rows, queues = views(columns, slots, first_rows, queues)
    with cython.nogil:
        for row in range(columns.shape[1]):
            topic = columns[_TOPIC, row]
            queue_id = columns[_QUEUE_ID, row]
            # the compiled form loses the upper bits, which no slot has
            key = cython.cast(cython.ulonglong, topic) << 32 ^ cython.cast(cython.ulonglong, queue_id)
            slot = key * _SPREAD >> 32 & mask
            number = slots[slot]
            # ends at a free slot: there are more slots than rows
            while number >= 0:
                if columns[_TOPIC, first_rows[number]] == topic and columns[_QUEUE_ID, first_rows[number]] == queue_id:
                    break
                slot = slot + 1 & mask
                number = slots[slot]
            if number < 0:
                number = found
                slots[slot] = found
                first_rows[found] = row
                found += 1
            queues[row] = number
    return found


def give_offsets(
    queues: ReadLongs, next_offsets: Longs, offsets: Longs, begin: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> None:
    """The queue offsets of the rows [begin, end); `next_offsets` moves on, by the numbers of queues."""
    row: cython.Py_ssize_t
    queue: cython.Py_ssize_t
    if not cython.compiled:
        queues, next_offsets, offsets = views(queues, next_offsets, offsets)
    with cython.nogil:
        for row in range(begin, end):
            queue = place_of(queues[row], len(next_offsets))
            offsets[row] = next_offsets[queue]
            next_offsets[queue] += 1


def check_rows(
    columns: ReadLongRows, starts: ReadLongRows, ends: ReadLongRows, begin: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.int:
    """Have every place of the rows [begin, end) be one within these tables."""
    count: cython.Py_ssize_t = columns.shape[1]
    if begin < 0 or end > count or columns.shape[0] != _FRAME_ROWS:
        out_of_range(end)
    if (
        starts.shape[0] != _SPAN_ROWS
        or ends.shape[0] != _SPAN_ROWS
        or starts.shape[1] != count
        or ends.shape[1] != count
    ):
        out_of_range(end)
    return 0


# No further check: check_rows has looked at columns, starts and ends, place_of and length_of at all other places, and
# end_of_frame has shown that the frame, and so each field of its head, is within the target.
@cython.boundscheck(False)
def write_frames(
    target: WritableBytes, physical_offset: cython.longlong, columns: ReadLongRows, hosts: ReadLongs,
    starts: ReadLongRows, ends: ReadLongRows, bodies: Bytes, properties: Bytes, topics: Bytes,
    topic_places: ReadLongs, begin: cython.Py_ssize_t, end: cython.Py_ssize_t,
) -> None:  # fmt: skip
    """Frames of the rows [begin, end) one behind the other to `target`, all but their first eight bytes.

    `topic_places`: where each topic's field begins in `topics`, and the last one ends. `hosts`: packed, by their
    numbers.
    """
    at: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    place: cython.Py_ssize_t
    body: cython.Py_ssize_t
    length: cython.Py_ssize_t
    topic: cython.Py_ssize_t
    next_at: cython.Py_ssize_t
    if not cython.compiled:
        target, columns, hosts, starts, ends = views(target, columns, hosts, starts, ends)
        bodies, properties, topics, topic_places = views(bodies, properties, topics, topic_places)
    with cython.nogil:
        check_rows(columns, starts, ends, begin, end)
        for row in range(begin, end):
            next_at = end_of_frame(columns[_SIZE, row], at, len(target))
            body = starts[_BODY, row]
            length = length_of(body, ends[_BODY, row], len(bodies))
            put_int(target, at + _CRC_AT, crc32(bodies, body, length) & _CRC_MASK)
            put_int(target, at + _QUEUE_ID_AT, columns[_QUEUE_ID, row])
            put_int(target, at + _FLAG_AT, columns[_FLAG, row])
            put_long(target, at + _QUEUE_OFFSET_AT, columns[_QUEUE_OFFSET, row])
            put_long(target, at + _PHYSICAL_AT, physical_offset + at)
            put_int(target, at + _SYS_FLAG_AT, columns[_SYS_FLAG, row])
            put_long(target, at + _BORN_AT, columns[_BORN, row])
            put_long(target, at + _BORN_HOST_AT, hosts[place_of(columns[_BORN_HOST, row], len(hosts))])
            put_long(target, at + _STORED_AT, columns[_STORED, row])
            put_long(target, at + _STORE_HOST_AT, hosts[place_of(columns[_STORE_HOST, row], len(hosts))])
            put_int(target, at + _RECONSUMED_AT, columns[_RECONSUMED, row])
            put_long(target, at + _PREPARED_AT, columns[_PREPARED, row])
            put_int(target, at + _BODY_LENGTH_AT, length)
            place = at + _HEAD
            copy(target, place, bodies, body, length)
            place += length
            topic = place_of(columns[_TOPIC, row], len(topic_places) - 1)
            length = length_of(topic_places[topic], topic_places[topic + 1], len(topics))
            copy(target, place, topics, topic_places[topic], length)
            place += length
            length = length_of(starts[_PROPERTIES, row], ends[_PROPERTIES, row], len(properties))
            set_short(target, place, length)
            place += _PROPERTIES_LENGTH
            copy(target, place, properties, starts[_PROPERTIES, row], length)
            if place + length != next_at:
                out_of_range(next_at)
            at = next_at


def end_of_frame(size: cython.longlong, at: cython.Py_ssize_t, room: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where a frame of `size` bytes that begins at `at` ends: within `room` bytes."""
    if size < _OVERHEAD or size > room - at:
        out_of_range(at)
    return at + size


def write_first_bytes(
    target: WritableBytes, columns: ReadLongRows, begin: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> None:
    """Size and magic number of the same frames: a reader of the file sees each frame whole from this write on."""
    at: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    next_at: cython.Py_ssize_t
    if not cython.compiled:
        target, columns = views(target, columns)
    if begin < 0:
        raise IndexError(begin)
    fence()
    with cython.nogil:
        for row in range(begin, end):
            next_at = end_of_frame(columns[_SIZE, row], at, len(target))
            set_int(target, at + _MAGIC_AT, _MAGIC)
            set_int(target, at, next_at - at)
            at = next_at
