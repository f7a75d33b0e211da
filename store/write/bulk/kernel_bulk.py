"""The kernels that look at rows before they are written: what may go as columns, and which queue each one is for.

Plain twins: `BulkRows.judge`, and a dict of queues. Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

from rmqctl.formats.layouts import BLANK_FRAME
from rmqctl.formats.properties import MAXIMUM_PROPERTIES_SIZE
from rmqctl.store.compiled.compiling import short_kernel
from rmqctl.store.native.tables import Frame, FrameSpan
from rmqctl.store.write.bulk.bulk_rows import NO_TIME
from rmqctl.store.write.checks import MAXIMUM_TOPIC_SIZE, STORE_TIMES
from rmqctl.store.write.known import OVERHEAD, UNUSUAL_FLAGS

_SIZE, _QUEUE_ID, _FLAG, _SYS_FLAG = int(Frame.SIZE), int(Frame.QUEUE_ID), int(Frame.FLAG), int(Frame.SYS_FLAG)
_RECONSUMED, _TOPIC, _STORED = int(Frame.RECONSUME_TIMES), int(Frame.TOPIC), int(Frame.STORE_TIMESTAMP)
_BODY, _PROPERTIES = int(FrameSpan.BODY), int(FrameSpan.PROPERTIES)
_OVERHEAD, _BLANK = OVERHEAD, BLANK_FRAME.size
_LARGEST_TOPIC, _LARGEST_PROPERTIES, _UNUSUAL = MAXIMUM_TOPIC_SIZE, MAXIMUM_PROPERTIES_SIZE, UNUSUAL_FLAGS
_NO_TIME, _TIMES_END, _INTS = NO_TIME, STORE_TIMES.stop, 1 << 31
# odd, with bits of every kind: spreads the numbers of queues
_SPREAD = 0x9E3779B97F4A7C15 - (1 << 64)


def make_kernels(stamp: int) -> tuple[Any, Any, Any]:
    """`judge_rows`, `number_queues` and `give_offsets`; see `compiling.load_kernels`."""

    @short_kernel
    def judge_rows(
        columns: Any, starts: Any, ends: Any, topic_sizes: Any, usual: Any, largest_body: int, file_size: int
    ) -> int:
        """See BulkRows.judge."""
        for row in range(columns.shape[1]):
            body = ends[_BODY, row] - starts[_BODY, row]
            properties = ends[_PROPERTIES, row] - starts[_PROPERTIES, row]
            topic = topic_sizes[columns[_TOPIC, row]]
            size = _OVERHEAD + topic + body + properties
            columns[_SIZE, row] = size
            time, sys_flag = columns[_STORED, row], columns[_SYS_FLAG, row]
            usual[row] &= (
                topic <= _LARGEST_TOPIC
                and size + _BLANK <= file_size
                and (time == _NO_TIME or 0 <= time < _TIMES_END)
                and body <= largest_body
                and properties <= _LARGEST_PROPERTIES
                and sys_flag & _UNUSUAL == 0
                and -_INTS <= sys_flag < _INTS
                and 0 <= columns[_QUEUE_ID, row] < _INTS
                and -_INTS <= columns[_FLAG, row] < _INTS
                and -_INTS <= columns[_RECONSUMED, row] < _INTS
            )
        return stamp

    @short_kernel
    def number_queues(columns: Any, slots: Any, first_rows: Any, queues: Any) -> int:
        """Give every queue among the rows a number: `queues` gets that of each row, `first_rows` the first row of each
        number. `slots`: all -1, a power of two and more than rows. How many there are."""
        mask = len(slots) - 1
        found = 0
        for row in range(columns.shape[1]):
            topic, queue_id = columns[_TOPIC, row], columns[_QUEUE_ID, row]
            slot = ((topic << 32) ^ queue_id) * _SPREAD >> 32 & mask
            while True:
                number = slots[slot]
                if number < 0:
                    number = slots[slot] = found
                    first_rows[found] = row
                    found += 1
                    break
                first = first_rows[number]
                if columns[_TOPIC, first] == topic and columns[_QUEUE_ID, first] == queue_id:
                    break
                slot = slot + 1 & mask
            queues[row] = number
        return found if stamp else 0

    @short_kernel
    def give_offsets(queues: Any, next_offsets: Any, offsets: Any, begin: int, end: int) -> int:
        """The queue offsets of the rows [begin, end); `next_offsets` moves on, by the numbers of queues."""
        for row in range(begin, end):
            queue = queues[row]
            offsets[row] = next_offsets[queue]
            next_offsets[queue] += 1
        return stamp

    return judge_rows, number_queues, give_offsets
