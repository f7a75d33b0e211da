"""Messages queue by queue as columns where units and log agree; one by one, as objects, where they do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from rmqctl.formats.message import StoredMessage
from rmqctl.store.log.column_walk import columns_at
from rmqctl.store.log.columns import Int64s, MessageColumns, TopicIds
from rmqctl.store.log.implied import UNIT
from rmqctl.store.native.tables import Columns
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, ConsumeQueue
from rmqctl.store.read.get import QueueView
from rmqctl.store.read.row_filter import RowChooser
from rmqctl.store.read.select import Selection, in_queue_order, units_in_sentences

_UNITS_AT_ONCE = 8192
# messages that lie further apart, on average, are read each by itself: a window of the log would have few of them
_FAR = 64 * 1024


def columns_in_queue_order(
    views: Iterable[QueueView], selection: Selection, needs: Columns, events: Events
) -> Iterator[MessageColumns | StoredMessage]:
    """What `in_queue_order` yields, as columns with `needs` where that is possible. Progress in bytes of messages."""
    chooser = RowChooser(selection.criteria)
    # what was read and checked is looked at, not what the file holds a moment later
    asked = needs | chooser.needs | Columns.HEAD | Columns.TOPIC | Columns.BYTES
    topics = TopicIds()
    log_begin: int | None = None
    for view in views:
        log_begin = view.log.min_offset if log_begin is None else log_begin
        with view.log.descriptors.exact_about_removed():
            queue = _QueueRead(view, selection, log_begin, events)
            # a batch has units of another kind; whether one may be meant by its tag, its ext unit says
            if isinstance(view.queue, ConsumeQueue) and selection.criteria.tag_filter.is_all:
                for slot, offsets, sizes in _usual_units(view.queue, queue.reached, selection.end):
                    for part, batch in columns_at(view.log, offsets, sizes, topics, asked):
                        begin, end = slot + part.start, slot + part.stop
                        if batch is None or not _belong(view.queue, batch, np.arange(begin, end)):
                            continue
                        yield from queue.up_to(begin)
                        yield batch.take(chooser.rows(batch))
                        queue.reached = end
                        events.passed(int(batch.size.sum()))
            yield from queue.up_to(selection.end)
        queue.finish()


class _QueueRead:
    """How far a queue is read. What is not as usual is read one by one."""

    def __init__(self, view: QueueView, selection: Selection, log_begin: int, events: Events) -> None:
        self._view = view
        self._selection = selection
        self._log_begin = log_begin
        self._events = events
        self._removed = range(0)
        self.reached = max(selection.begin, view.queue.min_offset(log_begin))

    def up_to(self, end: int | None) -> Iterator[StoredMessage]:
        """Yield the messages of the slots that were not read yet, before `end`."""
        if end is None or self.reached < end:
            rest = self._selection._replace(begin=self.reached, end=end)
            yield from in_queue_order(iter((self._view,)), rest, self._events, self._note_removed, self._log_begin)

    def _note_removed(self, view: QueueView, queue_offsets: range) -> None:
        self._removed = range(self._removed.start if self._removed else queue_offsets.start, queue_offsets.stop)

    def finish(self) -> None:
        """Say what was removed while the queue was read."""
        if self._removed:
            units_in_sentences(self._events)(self._view, self._removed)


def _usual_units(queue: ConsumeQueue, begin: int, end: int | None) -> Iterator[tuple[int, Int64s, Int64s]]:
    """Yield runs of units that lead to one message behind the other: the first slot, physical offsets and sizes. The
    first unit behind missing ones is left out: read by itself, it shows that they are missing."""
    expected = begin
    for first, data in queue.unit_bytes(begin, end, _UNITS_AT_ONCE):
        units = np.frombuffer(data, UNIT)
        is_behind, expected = first != expected, first + len(units)
        if is_behind:
            units = units[1:]
        offsets, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        is_usual = (offsets >= 0) & (sizes > 0) & (sizes < PLACEHOLDER_SIZE)
        is_usual[1:] &= offsets[1:] >= offsets[:-1] + sizes[:-1]
        if len(units) and is_usual.all() and int(offsets[-1] - offsets[0]) <= _FAR * len(units):
            yield first + is_behind, offsets, sizes


def _belong(queue: ConsumeQueue, batch: MessageColumns, slots: Int64s) -> bool:
    """Whether all messages are those of these slots; not of further queues, which their properties name."""
    fits = batch.is_of_topic(queue.topic) & (batch.queue_id == queue.queue_id) & (batch.queue_offset == slots)
    return bool(fits.all())
