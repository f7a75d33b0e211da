"""Iterating over messages for `cat`: in commitlog or queue order, filtered, past damage but not silently."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from rmqctl.formats.errors import CorruptError, RemovedError
from rmqctl.formats.message import FrameDamage, StoredMessage
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import end_of_nonzero
from rmqctl.store.log.search import FrameSearch
from rmqctl.store.log.walk import Damage, OnRemoved, in_sentences, overflowed_message, removed_units, say_removed, walk
from rmqctl.store.options import Events, say
from rmqctl.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.frames import MessageRemovedError
from rmqctl.store.read.query import damage_error

if TYPE_CHECKING:
    from rmqctl.store.log.columns import MessageColumns
    from rmqctl.store.read.get import QueueView

Order = Literal["log", "queue"]
PLAIN_BYTES = 8 * 1024 * 1024
"""So much of the log is walked plainly before the compiled walk is loaded: a look at its start need not wait for it."""

OnDamage = Callable[[CorruptError], None]
OnUnitsRemoved = Callable[["QueueView", range], None]
"""Takes the queue offsets of a queue whose messages were removed before they were read."""


class Selection(NamedTuple):
    """Which messages: those of `criteria` from offset `begin` on, before offset `end`.

    The offsets are physical ones in order of the log and queue offsets in order of the queues.
    """

    criteria: Criteria = Criteria()
    begin: int = 0
    end: int | None = None


def in_log_order(
    log: MappedFileQueue,
    selection: Selection,
    events: Events,
    start: int | None = None,
    on_removed: OnRemoved | None = None,
) -> Iterator[StoredMessage]:
    """Messages in the order they were stored, every CRC checked; damaged spans are reported and passed.
    `on_removed` gets what is removed before it was read; without it a note says so (walk.RemovedMeanwhile).

    A `begin` that is no frame's start is taken as: from the next message on. To find it, the file is walked from its
    start, so that nothing inside a body can be taken for a message; or from `start`, a certain record
    (store.log.resync), if the caller knows one.
    """
    rest = yield from plain_start(log, selection, PLAIN_BYTES, events, start, on_removed)
    if rest is not None:
        start = rest.begin if rest is not selection else _walk_start(log, selection, start)
        yield from _on_columns(log, rest, start, events, on_removed)


def plain_start(
    log: MappedFileQueue,
    selection: Selection,
    most: int,
    events: Events,
    start: int | None = None,
    on_removed: OnRemoved | None = None,
) -> Generator[StoredMessage, None, Selection | None]:
    """The messages of in_log_order among the first `most` bytes, read one by one; returned is what is left of the
    selection, None if that is nothing. Nothing is read so where the way to the first one is longer than that."""
    start = _walk_start(log, selection, start)
    if selection.begin - start > PLAIN_BYTES:
        return selection
    plain_end = max(selection.begin, start) + most
    records, asked = walk(log, start, progress=events.progress), max(start, selection.begin)
    heard = on_removed or in_sentences(events)
    for record in say_removed(log, records, asked, selection.end, heard, lambda record: record.physical_offset):
        if selection.end is not None and record.physical_offset >= selection.end:
            return None
        if isinstance(record, StoredMessage):
            if record.physical_offset >= plain_end:
                return selection._replace(begin=record.physical_offset)
            if record.physical_offset >= selection.begin and selection.criteria.matches(record):
                yield record
        elif isinstance(record, Damage) and record.end > selection.begin:
            yield from _past_damage(log, selection, record, events)
    return None


def _past_damage(log: MappedFileQueue, selection: Selection, damage: Damage, events: Events) -> Iterator[StoredMessage]:
    """Report damage; yield the message in it if only the sign of a length hides it from a broker."""
    events.damaged(damage_error(damage))
    message = overflowed_message(log, damage)
    if message is not None and message.physical_offset >= selection.begin and selection.criteria.matches(message):
        yield message


def _walk_start(log: MappedFileQueue, selection: Selection, start: int | None) -> int:
    """Where the first frame of the file begins that the selection begins in; `start` where that is known."""
    if start is not None:
        return start
    file = log.find(selection.begin)
    return file.start_offset if file is not None else selection.begin


def _on_columns(
    log: MappedFileQueue, selection: Selection, start: int, events: Events, on_removed: OnRemoved | None
) -> Iterator[StoredMessage]:
    """As in_log_order, with a walk from `start` on; what does not match never becomes an object."""
    from rmqctl.store.log.column_walk import walk_columns
    from rmqctl.store.log.columns import MessageColumns, start_of
    from rmqctl.store.native.tables import Columns
    from rmqctl.store.read.row_filter import RowChooser

    chooser = RowChooser(selection.criteria, selection.begin)
    records = walk_columns(log, start, selection.end, columns=chooser.needs | Columns.HEAD, progress=events.progress)
    heard = on_removed or in_sentences(events)
    for record in say_removed(log, records, max(start, selection.begin), selection.end, heard, start_of):
        if isinstance(record, Damage):
            if record.end > selection.begin:
                yield from _past_damage(log, selection, record, events)
        elif isinstance(record, MessageColumns):
            rows = chooser.rows(record)
            for row in range(record.rows) if rows is None else rows.tolist():
                try:
                    message = record.message(row)
                except FrameDamage as damage:
                    events.damaged(changed_error(record, row, damage))
                    continue
                yield message


def changed_error(batch: MessageColumns, row: int, damage: FrameDamage) -> CorruptError:
    """A message that is no longer what it was when the walk passed it."""
    return CorruptError(
        f"changed while it was read: {damage.detail}",
        physical_offset=int(batch.physical_offset[row]),
        hint="another program writes to this store or removes files of it: try again",
    )


def in_queue_order(
    views: Iterator[QueueView],
    selection: Selection,
    events: Events,
    on_removed: OnUnitsRemoved | None = None,
    log_begin: int | None = None,
) -> Iterator[StoredMessage]:
    """Messages queue by queue, each as its queue leads to it; units that lead to none are reported.

    Topic and queue of the criteria choose the queues, which is up to the caller. Units before the queue's minimum,
    whose messages have been removed with old commitlog files, are left out. Messages that are removed while this goes
    on are left out as well, and `on_removed` gets those of a queue; without it a sentence says so. `log_begin`: the
    minimum of the log when reading began; None for that of now.
    """
    criteria = selection.criteria
    first = log_begin
    report = on_removed or units_in_sentences(events)
    for view in views:
        # as it was when the first queue was begun: what is removed since is said of the others, too
        first = view.log.min_offset if first is None else first
        with view.log.descriptors.exact_about_removed():
            begin = max(selection.begin, view.queue.min_offset(first))
            reached = begin
            removed = range(0)
            for unit in view.queue.units(begin, selection.end):
                if unit.queue_offset > reached:
                    if _begins_behind(view, reached):
                        removed = range(removed.start if removed else reached, unit.queue_offset)
                    else:
                        events.damaged(_missing_units(view, reached, unit.queue_offset))
                reached = unit.next_queue_offset
                if unit.is_placeholder or not criteria.tag_filter.may_match(view.resolved_code(unit)):
                    continue
                try:
                    message = view.message_of(unit)
                except MessageRemovedError:
                    removed = range(removed.start if removed else unit.queue_offset, unit.next_queue_offset)
                    continue
                except CorruptError as error:
                    events.damaged(error)
                    continue
                if criteria.matches_content(message):
                    yield message
        if removed:
            report(view, removed)


def units_in_sentences(events: Events) -> OnUnitsRemoved:
    """Return what says a sentence for each queue; see walk.in_sentences."""

    def on_removed(view: QueueView, queue_offsets: range) -> None:
        (events.note or say)(removed_units(view.queue.topic, view.queue.queue_id, queue_offsets))

    return on_removed


def _begins_behind(view: QueueView, queue_offset: int) -> bool:
    """Whether units from there on are missing because the queue was cleaned meanwhile."""
    return isinstance(view.queue, ConsumeQueue) and view.queue.files.begins_behind(queue_offset * UNIT_SIZE)


def _missing_units(view: QueueView, begin: int, end: int) -> CorruptError:
    return CorruptError(
        f"units {begin} to {end - 1} of {view.queue.topic!r} queue {view.queue.queue_id} are missing with their file",
        file=view.queue.directory,
        hint="`rmqctl rebuild --queues` rebuilds the queues from the commitlog",
    )


def walked_bytes(log: MappedFileQueue, selection: Selection, log_end: int | None = None) -> int:
    """Return the bytes of the log that will be walked, up to `log_end`; None counts a preallocated file in full."""
    file = log.find(selection.begin)
    start = file.start_offset if file is not None else selection.begin
    last = log.max_offset if log_end is None else log_end
    end = last if selection.end is None else min(selection.end, last)
    return max(0, end - max(start, log.min_offset))


# The last messages of a selection, read from its end: a look at what came last does not walk a log of a terabyte.

# what is read first, from the end of the log and of a queue; each further look reads so many times as much
_FIRST_BYTES = 256 * 1024
_FIRST_UNITS = 256
_GROWTH = 4
# what matches in so much is in memory at a time
_MOST_BYTES = 256 * 1024 * 1024


def last_in_log_order(log: MappedFileQueue, selection: Selection, count: int, events: Events) -> list[StoredMessage]:
    """Return the last `count` messages of `selection` in the order of the log; fewer if there are no more.

    Damage after the first of them is reported, and all damage where they are fewer; so is, in a sentence, what a
    cleaner removes before it is read.
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
                    yield _of_log(log, selection._replace(begin=begin, end=end), start)
                    left = begin
            except RemovedError:
                if not log.begins_behind(file.start_offset):
                    # not a cleaner's work: the walk reports the missing file as damage
                    yield _of_log(
                        log, selection._replace(begin=max(file.start_offset, selection.begin), end=left), None
                    )
                    continue
                yield _removed_part(max(files[0].start_offset, selection.begin), _before(left, selection.end))
                return

    with log.descriptors.exact_about_removed():
        return _last(parts(), count, events)


def last_in_queue_order(
    views: Iterable[QueueView], log_begin: int, selection: Selection, count: int, events: Events
) -> list[StoredMessage]:
    """Return the same in the order of the queues. `views`: the queues, the last one first. `log_begin`: the minimum of
    the log, before anything is read."""

    def parts() -> Iterator[_Part]:
        for view in views:
            for begin, end in _slots(view, log_begin, selection):
                yield _of_queue(view, log_begin, selection._replace(begin=begin, end=end))

    return _last(parts(), count, events)


class _Removed(NamedTuple):
    """Offsets [begin, end) that were removed before they were read: of a queue, or of the log."""

    queue: tuple[str, int] | None
    begin: int
    end: int

    def say(self, events: Events) -> None:
        """Say the sentence."""
        if self.queue is None:
            in_sentences(events)(self.begin, self.end)
        else:
            (events.note or say)(removed_units(*self.queue, range(self.begin, self.end)))


_Found = deque[StoredMessage | CorruptError | _Removed]
_Part = Callable[[_Found], Iterator[StoredMessage]]
"""Yields the messages of a part; what hides others goes into the deque, in its place among them."""


def _of_log(log: MappedFileQueue, selection: Selection, start: int | None) -> _Part:
    def part(found: _Found) -> Iterator[StoredMessage]:
        def on_removed(begin: int, end: int) -> None:
            found.append(_Removed(None, begin, end))

        return in_log_order(log, selection, Events(damage=found.append), start=start, on_removed=on_removed)

    return part


def _of_queue(view: QueueView, log_begin: int, selection: Selection) -> _Part:
    def part(found: _Found) -> Iterator[StoredMessage]:
        def on_removed(view: QueueView, offsets: range) -> None:
            found.append(_Removed((view.queue.topic, view.queue.queue_id), offsets.start, offsets.stop))

        return in_queue_order(iter((view,)), selection, Events(damage=found.append), on_removed, log_begin)

    return part


def _removed_part(begin: int, end: int) -> _Part:
    def part(found: _Found) -> Iterator[StoredMessage]:
        if begin < end:
            found.append(_Removed(None, begin, end))
        return iter(())

    return part


def _before(offset: int, end: int | None) -> int:
    return offset if end is None else min(offset, end)


def _last(parts: Iterator[_Part], count: int, events: Events) -> list[StoredMessage]:
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
            events.damaged(one)
    for removed in _joined(one for one in kept if isinstance(one, _Removed)):
        removed.say(events)
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
    from rmqctl.store.log.resync import sure_start

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
