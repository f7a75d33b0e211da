"""Single frames by physical offset: the message there, or an explanation without one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import chain

from rmqctl.formats.errors import CorruptError, NotFoundError, RemovedError, RmqctlError, UnreadableError
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, FRAME_HEADS, TOPIC_LENGTH_V1
from rmqctl.formats.message import (
    LARGEST_HEAD_SIZE,
    MINIMUM_FRAME_SIZE,
    FrameDamage,
    StoredMessage,
    decode_message,
    frame_head,
)
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.walk import MAXIMUM_FRAME_SIZE, Blank, Empty, Record, walk
from rmqctl.store.queues.consumequeue import MAXIMUM_EXT_ADDRESS, PLACEHOLDER_SIZE, ConsumeQueue
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.filter import MessageFilter

# most messages fit into one read of this size
_FIRST_READ = 8192
_SMALLEST_HEAD = FRAME_HEADS[0].size
# what is read in one go: up to so many bytes between two frames cost less than another read, and so many at most
NEAR = 16 * 1024
AHEAD = 256 * 1024


class MessageRemovedError(NotFoundError):
    """A message that was there when the store was opened, and was removed with its commitlog file meanwhile."""

    code = "RMQ-E-017"


def message_at(log: MappedFileQueue, physical_offset: int, size: int = 0) -> StoredMessage:
    """The message whose frame starts at `physical_offset`, held against law 3, its CRC included.

    `size` is what a queue unit says about its size, to read no more than needed. Raises NotFoundError where the log
    does not reach (before its first file, behind its last), MessageRemovedError where it did until a cleaner took the
    file away, and CorruptError, caused by a FrameDamage, where it does and no good frame starts, or where a file is
    missing. `explain_absence` says more about the latter.
    """
    return frame_at(log, physical_offset, size)[1]


def frame_at(log: MappedFileQueue, physical_offset: int, size: int = 0) -> tuple[bytes, StoredMessage]:
    """The bytes of that frame as they are stored, and the message in them; all else as `message_at`."""
    file = log.find(physical_offset)
    if file is None:
        raise _outside(log, physical_offset)
    with file.hold() as held:
        if not held:
            raise _outside(log, physical_offset)
        return _frame_in(file, physical_offset, size)


def _frame_in(file: MappedFile, physical_offset: int, size: int) -> tuple[bytes, StoredMessage]:
    position = physical_offset - file.start_offset
    available = file.committed_position - position
    window = file.read(position, min(max(size, LARGEST_HEAD_SIZE) if size > 0 else _FIRST_READ, MAXIMUM_FRAME_SIZE))
    claimed = int.from_bytes(window[:4], "big", signed=True)
    if len(window) < claimed <= min(available, MAXIMUM_FRAME_SIZE):
        window = file.read(position, claimed)
    try:
        message = decode_message(window, 0, min(available, MAXIMUM_FRAME_SIZE), physical_offset)
    except FrameDamage as damage:
        raise CorruptError(
            f"no good message starts here: {damage.detail}",
            file=file.path,
            physical_offset=physical_offset,
            hint=f"`rmqctl dump {file.path} --at {position}` shows the bytes",
        ) from damage
    return window[: message.total_size], message


def frames_ahead(
    log: MappedFileQueue, places: Sequence[tuple[int, int]]
) -> Iterator[tuple[bytes, StoredMessage] | None]:
    """What `frame_at` gives of each (physical offset, size), with few reads where they lie near each other; None where
    the frame is not as expected, or was not looked at: `frame_at` has it or says why.

    Each is read when it is asked for, together with those behind it that are not far.
    """
    begin = end = 0
    window = b""
    available = 0
    for number, (physical_offset, size) in enumerate(places):
        if not begin <= physical_offset < physical_offset + size <= end:
            begin, end = physical_offset, end_of_near(places, number)
            window, available = window_at(log, begin, end)
            end = begin + len(window)
        at = physical_offset - begin
        if size < _SMALLEST_HEAD or at + size > len(window) or int.from_bytes(window[at : at + 4], "big") != size:
            yield None
            continue
        try:
            message = decode_message(window, at, min(available - at, MAXIMUM_FRAME_SIZE), physical_offset)
        except FrameDamage:
            yield None
        else:
            yield window[at : at + size], message


def end_of_near(places: Sequence[tuple[int, ...]], number: int) -> int:
    """Return the end of a read that begins at a place (physical offset, size and more): after the last place that
    follows within a short distance."""
    begin = places[number][0]
    end = begin + places[number][1]
    for place in places[number + 1 :]:
        next_end = place[0] + place[1]
        if not end <= place[0] <= end + NEAR or next_end - begin > AHEAD:
            break
        end = next_end
    return end


def window_at(log: MappedFileQueue, begin: int, end: int) -> tuple[bytes, int]:
    """Bytes of one file from `begin` on, up to `end` at most, and how many there are up to the end of the file; none
    where they cannot be had: why is for `frame_at` to say, of each frame."""
    file = log.find(begin)
    if file is None or end <= begin:
        return b"", 0
    position = begin - file.start_offset
    try:
        return file.read_once(position, min(end - begin, MAXIMUM_FRAME_SIZE)), file.committed_position - position
    except (UnreadableError, RemovedError):
        return b"", 0


def store_time_at(log: MappedFileQueue, physical_offset: int) -> int | None:
    """Return the store time in ms of the frame at `physical_offset`; None unless a frame's head is there.

    Only the head is read, so a message with a damaged body still has its time. (CommitLog#pickupStoreTimestamp, which
    does not even look at the head)
    """
    if physical_offset < 0:
        return None
    head = frame_head(log.read(physical_offset, LARGEST_HEAD_SIZE))
    if head is None or not head.is_message or head.physical_offset != physical_offset:
        return None
    return head.store_timestamp if head.total_size >= MINIMUM_FRAME_SIZE else None


def explain_absence(log: MappedFileQueue, physical_offset: int) -> RmqctlError:
    """Why no message can be had at `physical_offset`, found by walking the file that covers it from its start.

    NotFoundError where all is well and simply no message starts there (inside another frame, in the filler at a file's
    end, behind the last message), CorruptError where the bytes are damaged or a file is missing.
    """
    file = log.find(physical_offset)
    if file is None:
        return _outside(log, physical_offset)
    record = _record_around(log, file, physical_offset)
    if record is None:
        return CorruptError("the bytes cannot be accounted for", file=file.path, physical_offset=physical_offset)
    if isinstance(record, StoredMessage):
        return NotFoundError(
            f"it is inside the message of {record.total_size} bytes that starts at {record.physical_offset}",
            file=file.path,
            physical_offset=physical_offset,
            hint=f"`rmqctl query -o {record.physical_offset}` shows that message",
        )
    if isinstance(record, Blank):
        return NotFoundError(
            f"it is in the blank frame at the end of its file, which starts at {record.physical_offset}",
            file=file.path,
            physical_offset=physical_offset,
            hint=f"the next message starts at {record.physical_offset + record.size}",
        )
    if isinstance(record, Empty):
        return NotFoundError(
            f"nothing was written there: the file's messages end at {record.physical_offset}",
            file=file.path,
            physical_offset=physical_offset,
        )
    return CorruptError(
        f"it is in damaged bytes {record.physical_offset} to {record.end}: {record.detail}",
        file=record.file,
        physical_offset=physical_offset,
        hint=f"`rmqctl dump {file.path} --at {record.physical_offset - file.start_offset}` shows them",
    )


def _record_around(log: MappedFileQueue, file: MappedFile, physical_offset: int) -> Record | None:
    for record in walk(log, file.start_offset):
        end = record.physical_offset + record.size if isinstance(record, Blank) else record.end
        if record.physical_offset <= physical_offset < end:
            return record
        if record.physical_offset > physical_offset or end >= file.start_offset + log.file_size:
            break
    return None


def _outside(log: MappedFileQueue, physical_offset: int) -> RmqctlError:
    if physical_offset >= 0 and log.was_removed(physical_offset):
        return MessageRemovedError(
            f"it was removed meanwhile with its commitlog file: the log begins at {log.min_offset} now",
            physical_offset=physical_offset,
        )
    if physical_offset < 0:
        return NotFoundError("physical offsets begin at 0", physical_offset=physical_offset)
    if empty := log.empty_between(physical_offset, physical_offset + 1):
        return CorruptError(
            "the commitlog file there has no bytes",
            file=empty[0],
            physical_offset=physical_offset,
            hint="look for the file in a backup; `rmqctl check` says what else is wrong",
        )
    if not log.files:
        return NotFoundError("the store has no commitlog file", physical_offset=physical_offset)
    first, last = log.files[0], log.files[-1]
    if physical_offset < first.start_offset:
        return NotFoundError(
            f"it is before the commitlog, which begins at {first.start_offset}: the message has expired",
            physical_offset=physical_offset,
            hint="brokers remove old files after fileReservedTime or when the disk is full",
        )
    if physical_offset >= last.start_offset + max(last.size, log.file_size):
        return NotFoundError(
            f"it is past the commitlog, whose last file ends at {last.end_offset}", physical_offset=physical_offset
        )
    before = [file for file in log.files if file.start_offset <= physical_offset][-1]
    if before.end_offset <= physical_offset < before.start_offset + log.file_size:
        return CorruptError(
            f"the file is cut short: it has {before.size} bytes of {log.file_size}",
            file=before.path,
            physical_offset=physical_offset,
        )
    return CorruptError(
        "the commitlog file that held it is missing",
        file=before.path.parent,
        physical_offset=physical_offset,
        hint="look for the file in a backup; `rmqctl ls --files` lists what is there",
    )


def span_of(record: Record) -> tuple[int, int]:
    """Physical offsets [begin, end) that a record of the walk covers."""
    if isinstance(record, Blank):
        return record.physical_offset, record.physical_offset + record.size
    return record.physical_offset, record.end


# Stored frames of a queue, where its messages are as nearly all are: each checked, and no message made of any.

WantedFrame = tuple[int, int, int]
"""Physical offset, size, queue offset."""
_UNITS_AT_ONCE = 64
_LONGEST_TOPIC = 0x7F


def usual_frames(
    queue: AnyConsumeQueue, log: MappedFileQueue, offset: int, count: int, most_bytes: int
) -> tuple[bytes, int] | None:
    """Frames, one after the other, of the `count` messages from queue offset `offset` on, fewer where the queue ends
    or, but for the first, where they take more than `most_bytes`; and how many they are.

    None where anything is otherwise than for nearly all messages, damage or not: then each is to be looked at for
    itself. Law 3 holds for those that are given, and each belongs to its unit: message by message
    it is `QueueView.frame_of`.
    """
    # commands that look at few messages do without it
    from rmqctl.store.native.good_frames import fitting, good_run, next_read

    topic = _topic_field(queue.topic)
    if topic is None or not isinstance(queue, ConsumeQueue):
        return None
    units = queue.unit_run(offset, count)
    if not units or len(units) != min(count, queue.max_offset - offset) * CONSUMEQUEUE_UNIT.size:
        return None
    count, number = fitting(units, most_bytes), 0
    units = units[: count * CONSUMEQUEUE_UNIT.size]
    pieces: list[bytes] = []
    while number < count:
        begin, end = next_read(units, number, NEAR, AHEAD)
        window, _ = window_at(log, begin, end)
        frames, found = good_run(window, begin, units, number, offset, queue.queue_id, topic)
        if not found:
            return None
        pieces.append(frames)
        number += found
    return b"".join(pieces), count


def usual_matches(
    queue: AnyConsumeQueue,
    log: MappedFileQueue,
    offset: int,
    reach: int,
    count: int,
    most_bytes: int,
    message_filter: MessageFilter,
) -> tuple[list[bytes], int] | None:
    """The same of the messages that `message_filter` lets through, and the queue offset after the last unit looked at:
    no more than `reach` units. No frame where nothing matches; None as above."""
    topic = _topic_field(queue.topic)
    if topic is None or not isinstance(queue, ConsumeQueue):
        return None
    frames: list[bytes] = []
    next_offset, total = offset, 0
    for slot, data in queue.unit_bytes(offset, offset + reach, _UNITS_AT_ONCE):
        units = list(CONSUMEQUEUE_UNIT.struct.iter_unpack(data))
        if slot != next_offset or not all(map(_is_plain, units)):
            return None
        may_match = [message_filter.may_match(code) for _, _, code in units]
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
                if message_filter.matches_stored(properties):
                    frames.append(frame)
                    total += size
            next_offset += 1
            if len(frames) == count:
                return frames, next_offset
    return None if next_offset == offset else (frames, next_offset)


@functools.lru_cache(maxsize=1024)
def _topic_field(topic: str) -> bytes | None:
    """Return the topic with its length as in usual frames; None for one that is not usual."""
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
    `store/native/good_frames`). No more than `ahead` are read at once."""
    from rmqctl.store.native.good_frames import good_frames

    number = 0
    while number < len(wanted):
        places = wanted[number : number + ahead]
        begin = places[0][0]
        window, _ = window_at(log, begin, end_of_near(places, 0))
        found = good_frames(window, begin, wanted, number, queue_id, topic)
        yield found
        number += len(found)
        if not found:
            return
