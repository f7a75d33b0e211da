"""Show which queues a log holds messages of: all of a short log is read, ends and samples of a long one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.walk import walk

if TYPE_CHECKING:
    from rmqctl.store.log.column_walk import MessageAt

_WHOLE = 64 * 1024 * 1024
"""Bytes of log that are read as a whole; of a longer one its ends and samples between them."""
END = 4 * 1024 * 1024
END_FOR_ONE = 32 * 1024 * 1024
"""Bytes of each end of a long log: for many queues, and for one that is asked for."""
_SAMPLES = 64
_SAMPLE = 256 * 1024
_PLAIN = 4 * 1024 * 1024
"""Bytes that are walked in less time than it takes to load the compiled walk."""


def is_long(log: MappedFileQueue) -> bool:
    """Return whether the ends and samples of a log stand for all of it."""
    return log.written_end() - max(log.min_offset, 0) > _WHOLE


def _spans(log: MappedFileQueue, end: int, end_size: int) -> list[tuple[int, int]]:
    """Return the parts [begin, end) to look at of the log, which ends at `end`, in order."""
    begin = max(log.min_offset, 0)
    if not is_long(log):
        return [(begin, end)]
    starts = [file.start_offset for file in log.files if file.start_offset < end]
    starts = [*starts[:: -(-len(starts) // _SAMPLES)], *range(begin, end, -(-(end - begin) // _SAMPLES))]
    samples = [(start, min(start + _SAMPLE, end)) for start in sorted({*starts})]
    spans = [(begin, begin + end_size)]
    for start, stop in sorted([*samples, (max(begin, end - end_size), end)]):
        if start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], stop)
        else:
            spans.append((start, stop))
    return spans


_Ends: TypeAlias = "dict[tuple[str, int], tuple[MessageAt, MessageAt]]"

_SEEN: WeakKeyDictionary[MappedFileQueue, dict[tuple[int, ...], _Ends]] = WeakKeyDictionary()
"""Looks at open logs, by where the log began and ended and the size of the ends."""


def ends_seen(log: MappedFileQueue, end_size: int) -> _Ends:
    """Return the first message after queue offsets last went back, and the last one, of each queue in what is looked
    at. An open log that did not change is looked at once."""
    end = log.written_end()
    seen, key = _SEEN.setdefault(log, {}), (log.min_offset, end, end_size)
    if key not in seen:
        seen[key] = _look(log, _spans(log, end, end_size))
    return seen[key]


def _look(log: MappedFileQueue, spans: list[tuple[int, int]]) -> _Ends:
    if sum(end - begin for begin, end in spans) > _PLAIN:
        from rmqctl.store.log.column_walk import ends_of_queues

        messages = ends_of_queues(log, spans)
    else:
        messages = _walked(log, spans)
    ends: _Ends = {}
    for queue, place in messages:
        first, last = ends.get(queue, (place, place))
        ends[queue] = first if place[1] > last[1] else place, place
    return ends


def _walked(log: MappedFileQueue, spans: list[tuple[int, int]]) -> Iterator[tuple[tuple[str, int], MessageAt]]:
    for begin, end in spans:
        for record in walk(log, begin):
            if record.physical_offset >= end:
                break
            if isinstance(record, StoredMessage) and has_queue_slot(record.sys_flag):
                yield (record.topic, record.queue_id), (record.physical_offset, record.queue_offset)
