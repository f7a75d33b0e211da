"""What a cleaner removes from under a reader: found where a walk over the log jumps, and said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.options import Events, say

OnRemoved = Callable[[int, int], None]
"""Takes the physical offsets [begin, end) that were removed before they were read."""


class _Span(Protocol):
    """A record of the walk: bytes [physical_offset, end) or [begin, end) of the log."""

    @property
    def end(self) -> int: ...


_Record = TypeVar("_Record", bound=_Span)


class RemovedMeanwhile:
    """Compare the spans that a walk passes with one another: what is between two of them was removed by a cleaner, as
    a walk yields everything else, damage included."""

    def __init__(self, log: MappedFileQueue, begin: int, end: int | None, on_removed: OnRemoved) -> None:
        """Begin before the walk does. `begin` and `end` are physical offsets."""
        first = log.files[0].start_offset if log.files else begin
        self._log = log
        self._reached = max(begin, first)
        self._end = end
        self._on_removed = on_removed

    def pass_over(self, begin: int, end: int) -> None:
        """Note that the walk has yielded the bytes [begin, end)."""
        self._say(begin)
        self._reached = max(self._reached, end)

    def finish(self) -> None:
        """Note that the walk is over."""
        if self._log.was_removed(self._reached):
            self._say(self._log.min_offset)

    def _say(self, begin: int) -> None:
        begin = begin if self._end is None else min(begin, self._end)
        if begin > self._reached:
            file = self._log.find(self._reached)
            if file is None or not file.holds_entries:  # else heads of entries, which no walk yields
                self._on_removed(self._reached, begin)
            self._reached = begin


def say_removed(
    log: MappedFileQueue,
    records: Iterator[_Record],
    begin: int,
    end: int | None,
    on_removed: OnRemoved,
    start_of: Callable[[_Record], int],
) -> Iterator[_Record]:
    """Yield the records of a walk over [begin, end), and give what was removed meanwhile to `on_removed`.
    `start_of`: a record's first byte."""
    removed = RemovedMeanwhile(log, begin, end, on_removed)
    with log.descriptors.exact_about_removed():
        for record in records:
            removed.pass_over(start_of(record), record.end)
            yield record
        removed.finish()


def in_sentences(events: Events) -> OnRemoved:
    """Return what says a sentence for each span. Where nothing takes notes it is a warning of the logger
    `rmqctl.store`, or a notice of the command line."""

    def on_removed(begin: int, end: int) -> None:
        (events.note or say)(
            f"messages of physical offsets {begin} to {end - 1} were removed by a cleaner before they were read"
        )

    return on_removed


def removed_units(topic: str, queue_id: int, queue_offsets: range) -> str:
    """Return the sentence about messages of a queue that were removed before they were read."""
    first, last = queue_offsets[0], queue_offsets[-1]
    return f"messages {first} to {last} of {topic!r} queue {queue_id} were removed by a cleaner before they were read"
