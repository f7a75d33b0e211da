"""Stored frames of a queue, where its messages are as nearly all are: each checked, and no message made of any."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import chain

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, TOPIC_LENGTH_V1
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.queues.unit import MAXIMUM_EXT_ADDRESS, PLACEHOLDER_SIZE
from rmqctl.store.read.frames import end_of_near, window_at
from rmqctl.store.read.good_frames import WantedFrame, frame_checks
from rmqctl.store.read.message_filter import TagFilter

_UNITS_AT_ONCE = 64
_LONGEST_TOPIC = 0x7F


def usual_frames(
    queue: AnyConsumeQueue, log: MappedFileQueue, offset: int, count: int, most_bytes: int
) -> tuple[bytes, int] | None:
    """Frames, one after the other, of the `count` messages from queue offset `offset` on, fewer where the queue ends
    or, but for the first, where they take more than `most_bytes`; and how many they are.

    None where anything is otherwise than for nearly all messages, damage or not: then each is to be looked at for
    itself. Law 3 holds for those that are given, and each belongs to its unit: the plain twin is
    `QueueView.frame_of`.
    """
    topic = _topic_field(queue.topic)
    if topic is None or not isinstance(queue, ConsumeQueue):
        return None
    units = queue.unit_run(offset, count)
    if not units or len(units) != min(count, queue.max_offset - offset) * CONSUMEQUEUE_UNIT.size:
        return None
    _, good_run, next_read, fitting = frame_checks()
    count, number = fitting(units, most_bytes), 0
    units = units[: count * CONSUMEQUEUE_UNIT.size]
    pieces: list[bytes] = []
    while number < count:
        begin, end = next_read(units, number)
        window, _ = window_at(log, begin, end)
        frames, found = good_run(window, begin, units, number, offset, queue.queue_id, topic)
        if not found:
            return None
        pieces.append(frames)
        number += found
    return b"".join(pieces), count


def usual_matches(
    queue: AnyConsumeQueue, log: MappedFileQueue, offset: int, reach: int, count: int, most_bytes: int, tags: TagFilter
) -> tuple[list[bytes], int] | None:
    """The same of the messages that `tags` let through, and the queue offset behind what was looked at for them: no
    more than `reach` units. No frame where nothing matches; None as above."""
    topic = _topic_field(queue.topic)
    if topic is None or not isinstance(queue, ConsumeQueue):
        return None
    frames: list[bytes] = []
    next_offset, total = offset, 0
    for slot, data in queue.unit_bytes(offset, offset + reach, _UNITS_AT_ONCE):
        units = list(CONSUMEQUEUE_UNIT.struct.iter_unpack(data))
        if slot != next_offset or not all(map(_is_plain, units)):
            return None
        may_match = [tags.may_match(code) for _, _, code in units]
        wanted = [(unit[0], unit[1], slot + place) for place, unit in enumerate(units) if may_match[place]]
        # what is read ahead are no more than can be given
        good = chain.from_iterable(_good_pieces(queue.queue_id, topic, log, wanted, count))
        for (_, size, _), may in zip(units, may_match, strict=True):
            if frames and total + size > most_bytes:
                return frames, next_offset
            if may:
                frame, properties = next(good, (None, b""))
                if frame is None:
                    return None
                if tags.matches_stored(properties):
                    frames.append(frame)
                    total += size
            next_offset += 1
            if len(frames) == count:
                return frames, next_offset
    return None if next_offset == offset else (frames, next_offset)


@functools.lru_cache(maxsize=1024)
def _topic_field(topic: str) -> bytes | None:
    """The topic with its length as it stands in usual frames; None for one that is not usual."""
    if not topic.isascii() or len(topic) > _LONGEST_TOPIC:
        return None
    return TOPIC_LENGTH_V1.struct.pack(len(topic)) + topic.encode()


def _is_plain(unit: tuple[int, int, int]) -> bool:
    """Whether a unit leads to a message, and has its tags code itself."""
    return unit[0] >= 0 and 0 < unit[1] < PLACEHOLDER_SIZE and unit[2] > MAXIMUM_EXT_ADDRESS


def _good_pieces(
    queue_id: int, topic: bytes, log: MappedFileQueue, wanted: list[WantedFrame], ahead: int
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Frames with their properties, as many at once as one read brings, up to the first that is not usual (see
    `FrameChecks`). No more than `ahead` are read at once."""
    checked, number = frame_checks().good_frames, 0
    while number < len(wanted):
        places = wanted[number : number + ahead]
        begin = places[0][0]
        window, _ = window_at(log, begin, end_of_near(places, 0))
        found = checked(window, begin, wanted, number, queue_id, topic)
        yield found
        number += len(found)
        if not found:
            return
