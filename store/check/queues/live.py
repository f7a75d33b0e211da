"""A queue's present life among what the log implies for it: the tally without what later messages superseded."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from rmqctl.store.check.queues.tally import QueueTally, SlotState, Stretch, Stretches
from rmqctl.store.commitlog.one_message import message_if_any
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.queues.earlier_life import beginning
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.survey import lives
from rmqctl.store.survey.lives import Lives, Superseded


class LiveTally(NamedTuple):
    """A queue without its superseded messages.

    `deleted`: the messages of deleted topics, `twice`: those whose queue offset a later message has.
    """

    tally: QueueTally
    deleted: Stretches
    twice: Stretches


def live_tally(log: MappedFileQueue, queue: AnyConsumeQueue | None, tally: QueueTally, *, is_whole: bool) -> LiveTally:
    """Return what the present life of a queue is made of. `is_whole`: all of the log was compared."""
    implied = tally.of(SlotState.IMPLIED)
    rows = [lives.SlotRow(*row[:4]) for row in implied]
    if is_whole:
        found = lives.superseded(rows, lives.held_by(queue)) if lives.goes_back(rows) else Lives(())
    else:
        found = _before_its_first_unit(log, queue, rows)
    deleted, twice = Stretches(), Stretches()
    if not found:
        return LiveTally(tally, deleted, twice)
    live = QueueTally(tally.is_batch)
    for state, stretches in tally.states.items():
        if state is SlotState.IMPLAUSIBLE:
            live.states[state] = stretches
            continue
        for stretch in stretches:
            kept, gone = _divided(stretch, found)
            for part in kept:
                live.states.setdefault(state, Stretches()).add(part)
            if state is SlotState.IMPLIED:
                for part, one in gone:
                    (deleted if one.is_deleted else twice).add(part)
    return LiveTally(live, deleted, twice)


def _before_its_first_unit(log: MappedFileQueue, queue: AnyConsumeQueue | None, rows: list[lives.SlotRow]) -> Lives:
    """Where only a part of the log was compared: the messages that stand before the one of the queue's first slot."""
    first = beginning(queue, partial(message_if_any, log)) if queue is not None and rows else None
    if first is None:
        return Lives(())
    return Lives(
        Superseded(*row, True)
        for row in rows
        if row.last_offset < first.physical_offset and row.slot_begin >= first.queue_offset
    )


def _divided(stretch: Stretch, found: Lives) -> tuple[list[Stretch], list[tuple[Stretch, Superseded]]]:
    """The parts of a stretch that live, and those that are superseded."""
    kept, gone = [stretch], []
    for one in found.between(stretch.first_offset, stretch.last_offset):
        left = []
        for part in kept:
            begin, end = max(part.slot_begin, one.slot_begin), min(part.slot_end, one.slot_end)
            is_inside = one.first_offset <= stretch.first_offset and stretch.last_offset <= one.last_offset
            if begin >= end or not is_inside:
                left.append(part)
                continue
            # where the first message of a part stands is not known
            first = part.first_offset if begin == stretch.slot_begin else -1
            gone.append((_part(part, begin, end)._replace(first_offset=first), one))
            left += [
                _part(part, low, high) for low, high in ((part.slot_begin, begin), (end, part.slot_end)) if low < high
            ]
        kept = left
    return kept, gone


def _part(stretch: Stretch, begin: int, end: int) -> Stretch:
    """Some slots of a stretch. Of its messages only the first and the last one are known by their place."""
    if (begin, end) == (stretch.slot_begin, stretch.slot_end):
        return stretch
    slots = end - begin
    units = max(1, stretch.units * slots // max(1, stretch.slot_end - stretch.slot_begin))
    return stretch._replace(
        slot_begin=begin, slot_end=end, units=units, bytes=stretch.bytes * units // max(1, stretch.units)
    )
