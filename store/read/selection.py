"""Iterating over messages for `cat`: in commitlog or queue order, filtered, past damage but not silently."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import FrameDamage, StoredMessage
from rmqctl.store.columns.removed_meanwhile import OnRemoved, SayRemoved, removed_units, say_removed
from rmqctl.store.commitlog.overflow import overflowed_message
from rmqctl.store.commitlog.walk import Damage, Progress, walk
from rmqctl.store.compiled.notices import say
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.store.read.frames import MessageRemovedError
from rmqctl.store.read.get import QueueView
from rmqctl.store.read.key_query import damage_error
from rmqctl.store.read.message_filter import Criteria

if TYPE_CHECKING:
    from rmqctl.store.columns.batch import MessageColumns

Order = Literal["log", "queue"]
PLAIN_BYTES = 8 * 1024 * 1024
"""So much of the log is walked plainly before the compiled walk is loaded: a look at its start need not wait for it."""

OnDamage = Callable[[CorruptError], None]
OnUnitsRemoved = Callable[[QueueView, range], None]
"""Takes the queue offsets of a queue whose messages were removed before they were read."""


@dataclass(frozen=True)
class Selection:
    """Which messages: those of `criteria` from offset `begin` on, before offset `end`.

    The offsets are physical ones in order of the log and queue offsets in order of the queues.
    """

    criteria: Criteria = field(default_factory=Criteria)
    begin: int = 0
    end: int | None = None


def in_log_order(
    log: MappedFileQueue,
    selection: Selection,
    on_damage: OnDamage,
    progress: Progress | None = None,
    start: int | None = None,
    on_removed: OnRemoved | None = None,
) -> Iterator[StoredMessage]:
    """Messages in the order they were stored, every CRC checked; damaged spans are told to `on_damage` and passed.
    `on_removed` gets what is removed before it was read; without it a sentence says so (removed_meanwhile.py).

    A `begin` that is no frame's start is taken as: from the next message on. To find it, the file is walked from its
    start, so that nothing inside a body can be taken for a message; or from `start`, a record that is certain to be one
    (commitlog.resync), where somebody knows it.
    """
    rest = yield from plain_start(log, selection, PLAIN_BYTES, on_damage, progress, start, on_removed)
    if rest is not None:
        start = rest.begin if rest is not selection else _walk_start(log, selection, start)
        yield from _on_columns(log, rest, start, on_damage, progress, on_removed)


def plain_start(
    log: MappedFileQueue,
    selection: Selection,
    most: int,
    on_damage: OnDamage,
    progress: Progress | None = None,
    start: int | None = None,
    on_removed: OnRemoved | None = None,
) -> Generator[StoredMessage, None, Selection | None]:
    """The messages of in_log_order among the first `most` bytes, read one by one; returned is what is left of the
    selection, None if that is nothing. Nothing is read so where the way to the first one is longer than that."""
    start = _walk_start(log, selection, start)
    if selection.begin - start > PLAIN_BYTES:
        return selection
    plain_end = max(selection.begin, start) + most
    records, asked = walk(log, start, progress=progress), max(start, selection.begin)
    for record in say_removed(log, records, asked, selection.end, on_removed, lambda record: record.physical_offset):
        if selection.end is not None and record.physical_offset >= selection.end:
            return None
        if isinstance(record, StoredMessage):
            if record.physical_offset >= plain_end:
                return replace(selection, begin=record.physical_offset)
            if record.physical_offset >= selection.begin and selection.criteria.matches(record):
                yield record
        elif isinstance(record, Damage) and record.end > selection.begin:
            yield from _past_damage(log, selection, record, on_damage)
    return None


def _past_damage(
    log: MappedFileQueue, selection: Selection, damage: Damage, on_damage: OnDamage
) -> Iterator[StoredMessage]:
    """Pass damage to `on_damage`; yield the message in it if only the sign of a length hides it from a broker."""
    on_damage(damage_error(damage))
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
    log: MappedFileQueue,
    selection: Selection,
    start: int,
    on_damage: OnDamage,
    progress: Progress | None,
    on_removed: OnRemoved | None,
) -> Iterator[StoredMessage]:
    """As in_log_order, with a walk from `start` on; what does not match never becomes an object."""
    from rmqctl.store.columns.batch import Columns, MessageColumns, start_of
    from rmqctl.store.columns.walk import walk_columns
    from rmqctl.store.read.choose_rows import RowChooser

    chooser = RowChooser(selection.criteria, selection.begin)
    records = walk_columns(log, start, selection.end, columns=chooser.needs | Columns.HEAD, progress=progress)
    asked = max(start, selection.begin)
    for record in say_removed(log, records, asked, selection.end, on_removed, start_of):
        if isinstance(record, Damage):
            if record.end > selection.begin:
                yield from _past_damage(log, selection, record, on_damage)
        elif isinstance(record, MessageColumns):
            rows = chooser.rows(record)
            for row in range(record.rows) if rows is None else rows.tolist():
                try:
                    message = record.message(row)
                except FrameDamage as damage:
                    on_damage(changed_error(record, row, damage))
                    continue
                yield message


def changed_error(batch: MessageColumns, row: int, damage: FrameDamage) -> CorruptError:
    """A message that is no longer what it was when the walk passed it."""
    return CorruptError(
        f"changed while it was read: {damage.detail}",
        physical_offset=int(batch.physical_offset[row]),
        hint="somebody writes to this store or removes files of it: try again",
    )


def in_queue_order(
    views: Iterator[QueueView],
    selection: Selection,
    on_damage: OnDamage,
    on_removed: OnUnitsRemoved | None = None,
    log_begin: int | None = None,
) -> Iterator[StoredMessage]:
    """Messages queue by queue, each as its queue leads to it; units that lead to none are told to `on_damage`.

    Topic and queue of the criteria choose the queues, which is up to the caller. Units before the queue's minimum,
    whose messages have been removed with old commitlog files, are left out. Messages that are removed while this goes
    on are left out as well, and `on_removed` gets those of a queue; without it a sentence says so. `log_begin`: the
    minimum of the log when reading began; None for that of now.
    """
    criteria = selection.criteria
    first = log_begin
    report = on_removed or units_in_sentences(None)
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
                        on_damage(_missing_units(view, reached, unit.queue_offset))
                reached = unit.next_queue_offset
                if unit.is_placeholder or not criteria.tag_filter.may_match(view.resolved_code(unit)):
                    continue
                try:
                    message = view.message_of(unit)
                except MessageRemovedError:
                    removed = range(removed.start if removed else unit.queue_offset, unit.next_queue_offset)
                    continue
                except CorruptError as error:
                    on_damage(error)
                    continue
                if criteria.matches_content(message):
                    yield message
        if removed:
            report(view, removed)


def units_in_sentences(tell: SayRemoved | None) -> OnUnitsRemoved:
    """Return what gives `tell` a sentence for each queue; without `tell` as in removed_meanwhile.in_sentences."""

    def on_removed(view: QueueView, queue_offsets: range) -> None:
        (tell or say)(removed_units(view.queue.topic, view.queue.queue_id, queue_offsets))

    return on_removed


def _begins_behind(view: QueueView, queue_offset: int) -> bool:
    """Whether units from there on are missing because the queue was cleaned meanwhile."""
    return isinstance(view.queue, ConsumeQueue) and view.queue.files.begins_behind(queue_offset * UNIT_SIZE)


def _missing_units(view: QueueView, begin: int, end: int) -> CorruptError:
    return CorruptError(
        f"units {begin} to {end - 1} of {view.queue.topic!r} queue {view.queue.queue_id} are missing with their file",
        file=view.queue.directory,
        hint="`rmqctl rebuild --queues` makes the queues anew from the commitlog",
    )


def walked_bytes(log: MappedFileQueue, selection: Selection) -> int:
    """Bytes of the log that will be walked."""
    file = log.find(selection.begin)
    start = file.start_offset if file is not None else selection.begin
    end = log.max_offset if selection.end is None else min(selection.end, log.max_offset)
    return max(0, end - max(start, log.min_offset))
