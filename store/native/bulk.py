"""Loops over rows of messages before they are written: what may go as columns, and which queue each row is for.

`columns`: a row of 64-bit integers for each field of a frame (Frame in store/native/tables.py), a column for
each message. `starts` and `ends`: where bodies and properties begin and end.
"""

from __future__ import annotations

from rmqctl.formats.layouts import BLANK_FRAME, FRAME_HEAD_44, PROPERTIES_LENGTH, TOPIC_LENGTH_V1
from rmqctl.formats.properties import MAXIMUM_PROPERTIES_SIZE
from rmqctl.store.native import uncompiled as cython
from rmqctl.store.native.tables import Frame, FrameSpan

if cython.compiled:
    import cython

if not cython.compiled:
    from rmqctl.store.native.uncompiled import LongRows, Longs, WritableBytes, views

_SIZE, _QUEUE_ID, _FLAG, _SYS_FLAG = int(Frame.SIZE), int(Frame.QUEUE_ID), int(Frame.FLAG), int(Frame.SYS_FLAG)
_RECONSUMED, _TOPIC, _STORED = int(Frame.RECONSUME_TIMES), int(Frame.TOPIC), int(Frame.STORE_TIMESTAMP)
_BODY, _PROPERTIES = int(FrameSpan.BODY), int(FrameSpan.PROPERTIES)
# bytes of a frame besides body, topic and properties
_OVERHEAD = FRAME_HEAD_44.size + TOPIC_LENGTH_V1.size + PROPERTIES_LENGTH.size
_BLANK, _LARGEST_PROPERTIES = BLANK_FRAME.size, MAXIMUM_PROPERTIES_SIZE
_NO_TIME, _INTS = -(1 << 63), 1 << 31
# odd, with bits of every kind: spreads the numbers of queues
_SPREAD = 0x9E3779B97F4A7C15


def judge_rows(
    columns: LongRows, starts: LongRows, ends: LongRows, topic_sizes: Longs, usual: WritableBytes,
    largest_body: cython.longlong, file_size: cython.longlong, largest_topic: cython.longlong,
    unusual_flags: cython.longlong, times_end: cython.longlong,
) -> None:  # fmt: skip
    """Fill in SIZE, and let rows take the slow path that fields or files cannot hold, or that are unusual by their
    numbers: a row that was `usual` (1) is not any more (0)."""
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
            body = ends[_BODY, row] - starts[_BODY, row]
            properties = ends[_PROPERTIES, row] - starts[_PROPERTIES, row]
            topic = topic_sizes[columns[_TOPIC, row]]
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
    """Whether a number has room in a field of 32 bits."""
    return -_INTS <= number < _INTS


def number_queues(columns: LongRows, slots: Longs, first_rows: Longs, queues: Longs) -> int:
    """Give every queue among the rows a number: `queues` gets that of each row, `first_rows` the first row of each
    number. `slots`: all -1, a power of two and more than rows. Return how many there are."""
    row: cython.Py_ssize_t
    key: cython.ulonglong
    slot: cython.ulonglong
    mask: cython.ulonglong = slots.shape[0] - 1
    found: cython.longlong = 0
    topic: cython.longlong
    queue_id: cython.longlong
    number: cython.longlong
    first: cython.longlong
    if not cython.compiled:
        columns, slots, first_rows, queues = views(columns, slots, first_rows, queues)
    with cython.nogil:
        for row in range(columns.shape[1]):
            topic = columns[_TOPIC, row]
            queue_id = columns[_QUEUE_ID, row]
            # the compiled form loses the upper bits, which moves a slot and no number
            key = cython.cast(cython.ulonglong, topic) << 32 ^ cython.cast(cython.ulonglong, queue_id)
            slot = key * _SPREAD >> 32 & mask
            number = slots[slot]
            while number >= 0:
                first = first_rows[number]
                if columns[_TOPIC, first] == topic and columns[_QUEUE_ID, first] == queue_id:
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
    queues: Longs, next_offsets: Longs, offsets: Longs, begin: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> None:
    """The queue offsets of the rows [begin, end); `next_offsets` moves on, by the numbers of queues."""
    row: cython.Py_ssize_t
    queue: cython.longlong
    if not cython.compiled:
        queues, next_offsets, offsets = views(queues, next_offsets, offsets)
    with cython.nogil:
        for row in range(begin, end):
            queue = queues[row]
            offsets[row] = next_offsets[queue]
            next_offsets[queue] += 1
