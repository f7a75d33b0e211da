"""The last messages of a selection, read from its end: a look at what came last does not walk a log of a terabyte."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError, RemovedError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.columns.removed_meanwhile import SayRemoved, in_sentences, removed_units
from rmqctl.store.commitlog.frame_search import FrameSearch
from rmqctl.store.compiled.notices import say
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
    log: MappedFileQueue,
    selection: Selection,
    count: int,
    on_damage: OnDamage,
    tell: SayRemoved | None = None,
) -> list[StoredMessage]:
    """Return the last `count` messages of `selection` in the order of the log; fewer if there are no more.

    `on_damage` gets damage after the first of them, and all damage where they are fewer. So does `tell` with a
    sentence for what a cleaner removes before it is read.
    """
    files = log.files

    def parts() -> Iterator[_Part]:
        for number, file in reversed([*enumerate(files, start=1)]):
            # up to the next file: what is missing between them belongs to this one
            reach = files[number].start_offset if number < len(files) else file.start_offset + log.file_size
            if reach <= selection.begin:
                return
            left = reach
            try:
                for begin, end, start in _spans(file, reach, selection):
                    yield _of_log(log, replace(selection, begin=begin, end=end), start)
                    left = begin
            except RemovedError:
                if not log.begins_behind(file.start_offset):
                    # not a cleaner's work: the walk reports the missing file as damage
                    yield _of_log(
                        log, replace(selection, begin=max(file.start_offset, selection.begin), end=left), None
                    )
                    continue
                yield _removed_part(max(files[0].start_offset, selection.begin), _before(left, selection.end))
                return

    with log.descriptors.exact_about_removed():
        return _last(parts(), count, on_damage, tell)


def last_in_queue_order(
    views: Iterable[QueueView],
    log_begin: int,
    selection: Selection,
    count: int,
    on_damage: OnDamage,
    tell: SayRemoved | None = None,
) -> list[StoredMessage]:
    """Return the same in the order of the queues. `views`: the queues, the last one first. `log_begin`: the minimum of
    the log, before anything is read."""

    def parts() -> Iterator[_Part]:
        for view in views:
            for begin, end in _slots(view, log_begin, selection):
                yield _of_queue(view, log_begin, replace(selection, begin=begin, end=end))

    return _last(parts(), count, on_damage, tell)


class _Removed(NamedTuple):
    """Offsets [begin, end) that were removed before they were read: of a queue, or of the log."""

    queue: tuple[str, int] | None
    begin: int
    end: int

    def say(self, tell: SayRemoved | None) -> None:
        """Give the sentence to `tell`."""
        if self.queue is None:
            in_sentences(tell)(self.begin, self.end)
        else:
            (tell or say)(removed_units(*self.queue, range(self.begin, self.end)))


_Found = deque[StoredMessage | CorruptError | _Removed]
_Part = Callable[[_Found], Iterator[StoredMessage]]
"""Yields the messages of a part; what hides others goes into the deque, in its place among them."""


def _of_log(log: MappedFileQueue, selection: Selection, start: int | None) -> _Part:
    def part(found: _Found) -> Iterator[StoredMessage]:
        def on_removed(begin: int, end: int) -> None:
            found.append(_Removed(None, begin, end))

        return in_log_order(log, selection, found.append, start=start, on_removed=on_removed)

    return part


def _of_queue(view: QueueView, log_begin: int, selection: Selection) -> _Part:
    def part(found: _Found) -> Iterator[StoredMessage]:
        def on_removed(view: QueueView, offsets: range) -> None:
            found.append(_Removed((view.queue.topic, view.queue.queue_id), offsets.start, offsets.stop))

        return in_queue_order(iter((view,)), selection, found.append, on_removed, log_begin)

    return part


def _removed_part(begin: int, end: int) -> _Part:
    def part(found: _Found) -> Iterator[StoredMessage]:
        if begin < end:
            found.append(_Removed(None, begin, end))
        return iter(())

    return part


def _before(offset: int, end: int | None) -> int:
    return offset if end is None else min(offset, end)


def _last(parts: Iterator[_Part], count: int, on_damage: OnDamage, tell: SayRemoved | None) -> list[StoredMessage]:
    """The last `count` messages of all `parts`, the last of which comes first."""
    kept: _Found = deque()
    messages = 0
    for part in parts:
        found: _Found = deque()
        missing = count - messages
        new = 0
        for message in part(found):
            found.append(message)
            new += 1
            while new > missing:
                new -= isinstance(found.popleft(), StoredMessage)
        kept.extendleft(reversed(found))
        messages += new
        if messages == count:
            break
    if messages == count:
        while not isinstance(kept[0], StoredMessage):
            kept.popleft()
    for one in kept:
        if isinstance(one, CorruptError):
            on_damage(one)
    for removed in _joined(one for one in kept if isinstance(one, _Removed)):
        removed.say(tell)
    return [one for one in kept if isinstance(one, StoredMessage)]


def _joined(spans: Iterable[_Removed]) -> Iterator[_Removed]:
    """Yield adjacent spans as one."""
    last: _Removed | None = None
    for span in spans:
        if last is not None and (last.queue, last.end) == (span.queue, span.begin):
            last = last._replace(end=span.end)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


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


def _slots(view: QueueView, log_begin: int, selection: Selection) -> Iterator[tuple[int, int]]:
    """Ranges of queue offsets, from the end of a queue on."""
    first = max(selection.begin, view.queue.min_offset(log_begin))
    end = view.queue.max_offset if selection.end is None else min(view.queue.max_offset, selection.end)
    # batches may reach over any border
    length = _FIRST_UNITS if isinstance(view.queue, ConsumeQueue) else max(end - first, 1)
    while first < end:
        begin = max(first, end - length)
        yield begin, end
        end = begin
        length *= _GROWTH
