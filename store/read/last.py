"""The last messages of a selection, read from its end: a look at what came last does not walk a log of a terabyte."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.commitlog.frame_search import FrameSearch
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.zeros import end_of_nonzero
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.read.get import QueueView
from rmqctl.store.read.selection import OnDamage, Selection, in_log_order, in_queue_order

# what is read first, from the end of the log and of a queue; each further look reads so many times as much
_FIRST_BYTES = 256 * 1024
_FIRST_UNITS = 256
_GROWTH = 4
# what matches in so much is in memory at a time
_MOST_BYTES = 256 * 1024 * 1024


def last_in_log_order(
    log: MappedFileQueue, selection: Selection, count: int, on_damage: OnDamage
) -> list[StoredMessage]:
    """The last `count` messages of the log that are meant, in its order; fewer if there are no more.

    Damage behind the first of them is told to `on_damage`, and all that there is where they are fewer.
    """

    def parts() -> Iterator[_Part]:
        files = log.files
        for number, file in reversed([*enumerate(files, start=1)]):
            # up to the next file: what is missing between them belongs to this one
            reach = files[number].start_offset if number < len(files) else file.start_offset + log.file_size
            if reach <= selection.begin:
                return
            for begin, end, start in _spans(file, reach, selection):
                span = replace(selection, begin=begin, end=end)
                yield partial(in_log_order, log, span, start=start)

    return _last(parts(), count, on_damage)


def last_in_queue_order(
    views: Iterable[QueueView], selection: Selection, count: int, on_damage: OnDamage
) -> list[StoredMessage]:
    """The same in order of the queues. `views`: the queues, the last one first."""

    def parts() -> Iterator[_Part]:
        for view in views:
            for begin, end in _slots(view, selection):
                span = replace(selection, begin=begin, end=end)
                yield partial(in_queue_order, iter((view,)), span)

    return _last(parts(), count, on_damage)


_Part = Callable[[OnDamage], Iterator[StoredMessage]]


def _last(parts: Iterator[_Part], count: int, on_damage: OnDamage) -> list[StoredMessage]:
    """The last `count` messages of all `parts`, the last of which comes first."""
    kept: deque[StoredMessage | CorruptError] = deque()
    messages = 0
    for part in parts:
        found: deque[StoredMessage | CorruptError] = deque()
        missing = count - messages
        new = 0
        for message in part(found.append):
            found.append(message)
            new += 1
            while new > missing:
                new -= isinstance(found.popleft(), StoredMessage)
        kept.extendleft(reversed(found))
        messages += new
        if messages == count:
            break
    if messages == count:
        while isinstance(kept[0], CorruptError):
            kept.popleft()
    for one in kept:
        if isinstance(one, CorruptError):
            on_damage(one)
    return [one for one in kept if isinstance(one, StoredMessage)]


def _spans(file: MappedFile, reach: int, selection: Selection) -> Iterator[tuple[int, int, int]]:
    """Spans of a file from its end on, up to physical offset `reach`: where each begins and ends, and the record to
    walk from."""
    from rmqctl.store.commitlog.resync import sure_start

    first = max(file.start_offset, selection.begin)
    end = reach if selection.end is None else min(reach, selection.end)
    counted = min(file.size, reach - file.start_offset)
    search = FrameSearch(file, counted)
    written = file.start_offset + end_of_nonzero(file.descriptors, file.path, 0, counted)
    stop, length = min(end, max(written, first)), _FIRST_BYTES
    while first < end:
        wanted = max(first, stop - length)
        start = file.start_offset + sure_start(search, file.start_offset, wanted - file.start_offset, counted)
        begin = max(first, start)
        yield begin, end, start
        if begin <= first:
            return
        end = stop = begin
        length = min(length * _GROWTH, _MOST_BYTES)


def _slots(view: QueueView, selection: Selection) -> Iterator[tuple[int, int]]:
    """Ranges of queue offsets, from the end of a queue on."""
    first = max(selection.begin, view.queue.min_offset(view.log.min_offset))
    end = view.queue.max_offset if selection.end is None else min(view.queue.max_offset, selection.end)
    # batches may reach over any border
    length = _FIRST_UNITS if isinstance(view.queue, ConsumeQueue) else max(end - first, 1)
    while first < end:
        begin = max(first, end - length)
        yield begin, end
        end = begin
        length *= _GROWTH
