"""Stored frames of a queue, where its messages are as nearly all are: each checked, and no message made of any."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, TOPIC_LENGTH_V1
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.queues.unit import MAXIMUM_EXT_ADDRESS, PLACEHOLDER_SIZE
from rmqctl.store.read.frames import AHEAD, NEAR, end_of_near, window_at
from rmqctl.store.read.good_frames import WantedFrame, crc_address, frame_checks, good_frames
from rmqctl.store.read.message_filter import TagFilter

_UNITS_AT_ONCE = 64
_LONGEST_TOPIC = 0x7F


def usual_frames(
    queue: AnyConsumeQueue, log: MappedFileQueue, offset: int, count: int, most_bytes: int
) -> list[bytes] | None:
    """Frames of the `count` messages from queue offset `offset` on, fewer where the queue ends or, but for the first,
    where they take more than `most_bytes`.

    None where anything is otherwise than for nearly all messages, damage or not: then each is to be looked at for
    itself. Law 3 holds for those that are given, and each belongs to its unit: the plain twin is
    `QueueView.frame_of`.
    """
    topic = _topic_field(queue)
    if topic is None or not isinstance(queue, ConsumeQueue):
        return None
    slot, data = next(queue.unit_bytes(offset, offset + count), (-1, b""))
    if slot != offset or len(data) != min(count, queue.max_offset - offset) * CONSUMEQUEUE_UNIT.size:
        return None
    sizes = [unit[1] for unit in CONSUMEQUEUE_UNIT.struct.iter_unpack(data)]
    while len(sizes) > 1 and sum(sizes) > most_bytes:
        sizes.pop()
    frames: list[bytes] = []
    for piece in _good_run(queue.queue_id, topic, log, data[: len(sizes) * CONSUMEQUEUE_UNIT.size], offset):
        frames += piece
    return frames if len(frames) == len(sizes) else None


def usual_matches(
    queue: AnyConsumeQueue, log: MappedFileQueue, offset: int, reach: int, count: int, most_bytes: int, tags: TagFilter
) -> tuple[list[bytes], int] | None:
    """The same of the messages that `tags` let through, and the queue offset behind what was looked at for them: no
    more than `reach` units. No frame where nothing matches; None as above."""
    topic = _topic_field(queue)
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


def _topic_field(queue: AnyConsumeQueue) -> bytes | None:
    """The topic with its length as it stands in usual frames; None for one that is not usual."""
    if not queue.topic.isascii() or len(queue.topic) > _LONGEST_TOPIC:
        return None
    return TOPIC_LENGTH_V1.struct.pack(len(queue.topic)) + queue.topic.encode()


def _is_plain(unit: tuple[int, int, int]) -> bool:
    """Whether a unit leads to a message, and has its tags code itself."""
    return unit[0] >= 0 and 0 < unit[1] < PLACEHOLDER_SIZE and unit[2] > MAXIMUM_EXT_ADDRESS


def _good_pieces(
    queue_id: int, topic: bytes, log: MappedFileQueue, wanted: list[WantedFrame], ahead: int
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Frames with their properties, as many at once as one read brings, up to the first that is not usual (see
    `GoodFrames`). No more than `ahead` are read at once."""
    checked, number = good_frames(), 0
    while number < len(wanted):
        places = wanted[number : number + ahead]
        begin = places[0][0]
        window, _ = window_at(log, begin, end_of_near(places, 0))
        found = checked(window, begin, wanted, number, queue_id, topic)
        yield found
        number += len(found)
        if not found:
            return


def _good_run(queue_id: int, topic: bytes, log: MappedFileQueue, units: bytes, slot: int) -> Iterator[list[bytes]]:
    """The same for all of some units, the first of which is that of `slot`."""
    module = frame_checks()
    if module is None:
        fields = enumerate(CONSUMEQUEUE_UNIT.struct.iter_unpack(units), slot)
        wanted: list[WantedFrame] = [(unit[0], unit[1], number) for number, unit in fields]
        for pairs in _good_pieces(queue_id, topic, log, wanted, len(wanted)):
            yield [frame for frame, _ in pairs]
        return
    number, count = 0, len(units) // CONSUMEQUEUE_UNIT.size
    while number < count:
        begin, end = module.next_read(units, number, NEAR, AHEAD)
        window, _ = window_at(log, begin, end)
        found = module.good_run(window, begin, units, number, slot, queue_id, topic, crc_address())
        yield found
        number += len(found)
        if not found:
            return
