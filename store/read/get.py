"""Reading a queue: messages from an offset on, with the statuses and next offsets of DefaultMessageStore#getMessage.

Three things are done otherwise than by the broker, all to the reader's gain. A read does not stop where a consumequeue
file ends, so that it finds in one call what the broker gives in two. Every message is held against law 3 and against
the unit that led to it; what fails is listed in `GetResult.damaged` and never passed off as absent. And tags are
compared themselves, not only their hashes, as the broker leaves to its clients.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.notebook import as_html
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.queues.consumequeue import BATCH_UNIT_SIZE, UNIT_SIZE, ConsumeQueue, QueueUnit, ext_offset
from rmqctl.store.queues.consumequeue_ext import ConsumeQueueExt
from rmqctl.store.queues.dispatch import places_in
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.filter import MessageFilter, TagFilter
from rmqctl.store.read.frames import MessageRemovedError, frame_at, frames_ahead, usual_frames, usual_matches
from rmqctl.store.status import GetStatus

DEFAULT_LIMIT = 32
# MAX_PULL_MSG_SIZE
DEFAULT_MAX_BYTES = 128 * 1024 * 1024
_LEAST_MAX_BYTES = 100
_REBUILD = "`rmqctl rebuild --queues` rebuilds the queues from the commitlog"


class UnreadableUnit(NamedTuple):
    """A unit that leads to no good message of its queue; `error` says why."""

    queue_offset: int
    physical_offset: int
    error: CorruptError


@dataclass(slots=True)
class GetResult:
    """What a read gave. FOUND means that `messages` is not empty; `damaged` may come with any status.

    Where the only units read lead to no readable message, the status is MESSAGE_WAS_REMOVING. `frames`: in the place of
    `messages` their bytes as they are stored, where these were asked for; each piece is of one message or more.
    """

    _repr_html_ = as_html

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[StoredMessage] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    damaged: list[UnreadableUnit] = field(default_factory=list)


@functools.cache
def physical_memory() -> int:
    """Return the bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class ReadLimits(NamedTuple):
    """What one read gives: bytes and number of messages (maxTransfer…OnMessageInMemory), and the bytes of units that it
    looks through at least (maxFilterMessageSize). `memory_bytes`: of the end of the log; of messages before them it
    gives `disk_bytes` and `disk_count` (maxTransfer…OnMessageInDisk)."""

    transfer_bytes: int = 262_144
    transfer_count: int = 32
    filter_bytes: int = 16_000
    memory_bytes: int = 1 << 62
    disk_bytes: int = 65_536
    disk_count: int = 8


class QueueView(NamedTuple):
    """One queue with all that is needed to read its messages."""

    queue: AnyConsumeQueue
    ext: ConsumeQueueExt | None
    log: MappedFileQueue
    delay_levels: Sequence[int]
    limits: ReadLimits = ReadLimits()

    def resolved_code(self, unit: QueueUnit) -> int | None:
        """Tags code of `unit`, from its ext unit if it has one; None where that cannot be found."""
        address = ext_offset(unit.tags_code)
        if address is None:
            return unit.tags_code
        found = self.ext.unit(address) if self.ext is not None else None
        return None if found is None else found.tags_code

    def message_of(self, unit: QueueUnit) -> StoredMessage:
        """Return the message that `unit` points at; CorruptError if it is missing or belongs elsewhere.
        MessageRemovedError where a cleaner has removed it since the store was opened."""
        return self.frame_of(unit)[1]

    def frame_of(
        self, unit: QueueUnit, ahead: tuple[bytes, StoredMessage] | None = None
    ) -> tuple[bytes, StoredMessage]:
        """The same with the bytes of its frame. `ahead`: what `frames_ahead` has read of it."""
        if ahead is not None and self._belongs(unit, ahead[1]):
            return ahead
        if not unit.is_written:
            kind = "is a placeholder" if unit.is_placeholder else "was never written"
            if unit.is_nonsense:
                kind = "holds what no unit has"
            raise self._corrupt(unit, kind, _REBUILD)
        try:
            frame, message = frame_at(self.log, unit.physical_offset, unit.size)
        except MessageRemovedError:
            raise
        except (CorruptError, NotFoundError) as error:
            # what is absent from the log is damage all the same where a unit promises it
            raise self._corrupt(unit, f"leads to no message: {error.message}", error.hint) from error
        if message.total_size != unit.size:
            raise self._corrupt(unit, f"says {unit.size} bytes, the message has {message.total_size}", _REBUILD)
        if not self._belongs(unit, message):
            there = f"message {message.queue_offset} of {message.topic!r} queue {message.queue_id}"
            raise self._corrupt(unit, f"points at {there}", _REBUILD)
        return frame, message

    def _corrupt(self, unit: QueueUnit, said: str, hint: str | None) -> CorruptError:
        what = f"unit {unit.queue_offset} of {self.queue.topic!r} queue {self.queue.queue_id}"
        place = unit.physical_offset if unit.is_written else None
        return CorruptError(f"{what} {said}", file=self._file_of(unit), physical_offset=place, hint=hint)

    def _belongs(self, unit: QueueUnit, message: StoredMessage) -> bool:
        wanted = (self.queue.topic, self.queue.queue_id, unit.queue_offset)
        if (message.topic, message.queue_id, message.queue_offset) == wanted:
            return True
        return unit.queue_offset in places_in(self.queue, message, self.delay_levels)

    def _file_of(self, unit: QueueUnit) -> str:
        if isinstance(self.queue, ConsumeQueue):
            file = self.queue.files.find(unit.queue_offset * UNIT_SIZE)
            if file is not None:
                return str(file.path)
        return str(self.queue.directory)


def no_queue() -> GetResult:
    """The answer for a queue that does not exist: as in RocketMQ, which makes it on the spot, an empty one."""
    return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)


def get_messages(
    view: QueueView,
    offset: int,
    limit: int = DEFAULT_LIMIT,
    message_filter: MessageFilter | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    *,
    frames: bool = False,
) -> GetResult:
    """Messages of a queue from queue offset `offset` on (DefaultMessageStore#getMessage).

    One call gives at most 32 messages and 256 KiB, as the broker does for what is in memory, reads at most max(800,
    limit) units (see ReadLimits), and gives the first message at any size. Ask again from `next_offset` on. `frames`:
    give the stored bytes in the place of messages.
    """
    min_offset = view.queue.min_offset(view.log.min_offset)
    max_offset = view.queue.max_offset
    edge = _edge(offset, min_offset, max_offset)
    if edge is not None:
        return GetResult(edge[0], edge[1], min_offset, max_offset)
    message_filter = message_filter or TagFilter(None)
    if _is_on_disk(view, offset):
        limits = view.limits
        view = view._replace(limits=limits._replace(transfer_bytes=limits.disk_bytes, transfer_count=limits.disk_count))
    usual = _usual(view, offset, limit, message_filter, _allowed(max_bytes)) if frames else None
    if usual is not None:
        status = GetStatus.FOUND if usual[0] else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, usual[1], min_offset, max_offset, frames=usual[0])
    result = GetResult(GetStatus.OFFSET_FOUND_NULL, _next_file(view.queue, offset), min_offset, max_offset)
    _read(view, offset, result, limit, message_filter, _allowed(max_bytes), frames)
    return result


def _is_on_disk(view: QueueView, offset: int) -> bool:
    """Return whether the first message to give is too far from the end of the log to be in memory
    (DefaultMessageStore#estimateInMemByCommitOffset, which is asked for each message)."""
    log, most = view.log, view.limits.memory_bytes
    if log.max_offset - log.min_offset <= most:
        return False
    unit = view.queue.unit(offset)
    return unit is not None and unit.is_written and log.max_offset - unit.physical_offset > most


def _usual(
    view: QueueView, offset: int, limit: int, message_filter: MessageFilter, max_bytes: int
) -> tuple[list[bytes], int] | None:
    """Frames and the next offset where all is as nearly always; None where each message is to be looked at."""
    most_bytes, most_messages, filter_bytes = view.limits[:3]
    count, most_bytes = min(max(limit, 1), most_messages), min(max_bytes, most_bytes)
    if not message_filter.is_all:
        reach = max(filter_bytes // UNIT_SIZE, limit)
        return usual_matches(view.queue, view.log, offset, reach, count, most_bytes, message_filter)
    found = usual_frames(view.queue, view.log, offset, count, most_bytes)
    return None if found is None else ([found[0]], offset + found[1])


def _allowed(max_bytes: int) -> int:
    return min(max(max_bytes, _LEAST_MAX_BYTES), DEFAULT_MAX_BYTES)


def _edge(offset: int, min_offset: int, max_offset: int) -> tuple[GetStatus, int] | None:
    if max_offset == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < min_offset:
        return GetStatus.OFFSET_TOO_SMALL, min_offset
    if offset == max_offset:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > max_offset:
        return GetStatus.OFFSET_OVERFLOW_BADLY, max_offset
    return None


def _read(
    view: QueueView,
    offset: int,
    result: GetResult,
    limit: int,
    message_filter: MessageFilter,
    max_bytes: int,
    frames: bool,
) -> None:
    unit_size = UNIT_SIZE if isinstance(view.queue, ConsumeQueue) else BATCH_UNIT_SIZE
    reach = max(view.limits.filter_bytes, limit * unit_size)
    found: list[Any] = result.frames if frames else result.messages
    total = count = 0

    def first_is_missing(unit: QueueUnit) -> bool:
        # batches may leave gaps between their offsets; slots are only left out with their file
        is_first = result.status is GetStatus.OFFSET_FOUND_NULL
        return is_first and unit.queue_offset > offset and isinstance(view.queue, ConsumeQueue)

    for unit, ahead in _units(view, offset, reach // unit_size, limit, message_filter):
        if first_is_missing(unit):
            break
        if (unit.queue_offset - offset) * unit_size >= reach or total >= max_bytes:
            if result.status is GetStatus.OFFSET_FOUND_NULL:
                result.next_offset = unit.queue_offset  # behind a long gap between batches
            break
        if found and _is_full(view.limits, unit, count, total, limit, max_bytes):
            break
        result.next_offset = unit.next_queue_offset
        status = GetStatus.NO_MATCHED_MESSAGE
        if message_filter.may_match(view.resolved_code(unit)):
            try:
                frame, message = view.frame_of(unit, ahead)
            except MessageRemovedError:
                status = GetStatus.MESSAGE_WAS_REMOVING
            except CorruptError as error:
                # a file that the cleaner took away meanwhile is no damage
                if not unit.is_written or unit.physical_offset >= view.log.min_offset:
                    result.damaged.append(UnreadableUnit(unit.queue_offset, unit.physical_offset, error))
                status = GetStatus.MESSAGE_WAS_REMOVING
            else:
                if message_filter.is_all or message_filter.matches_properties(message.properties()):
                    found.append(frame if frames else message)
                    total += unit.size
                    count += unit.batch_size
                    status = GetStatus.FOUND
        if status is GetStatus.FOUND or not found:
            result.status = status
        if count >= min(limit, view.limits.transfer_count):
            break  # whatever the next one is: its message need not be read


def _units(
    view: QueueView, offset: int, reach: int, limit: int, message_filter: MessageFilter
) -> Iterator[tuple[QueueUnit, tuple[bytes, StoredMessage] | None]]:
    """The units from an offset on, as many as one read may look at, with what `frame_of` is given of each: what is read
    of neighbours at once, where all of them are wanted."""
    if not isinstance(view.queue, ConsumeQueue):
        yield from ((unit, None) for unit in view.queue.units(offset))
    elif message_filter.is_all:
        yield from units_ahead(view, offset, offset + reach, max(limit, 1))
    else:
        yield from ((unit, None) for unit in view.queue.units(offset, offset + reach))


def units_ahead(
    view: QueueView, begin: int, end: int, at_once: int = DEFAULT_LIMIT
) -> Iterator[tuple[QueueUnit, tuple[bytes, StoredMessage] | None]]:
    """Units of slots [begin, end) of a queue, each with what `frame_of` is given: neighbours are read together."""
    units = view.queue.units(begin, end)
    while some := list(islice(units, at_once)):
        places = [(unit.physical_offset, unit.size) if unit.is_written else (-1, 0) for unit in some]
        yield from zip(some, frames_ahead(view.log, places), strict=True)


def _is_full(limits: ReadLimits, unit: QueueUnit, count: int, total: int, limit: int, max_bytes: int) -> bool:
    """Whether `unit` has to wait for the next call (DefaultMessageStore#isTheBatchFull)."""
    return (
        count + unit.batch_size > limit
        or count >= limits.transfer_count
        or total + (unit.size if unit.is_written else 0) > min(max_bytes, limits.transfer_bytes)
    )


def _next_file(queue: AnyConsumeQueue, offset: int) -> int:
    """Queue offset of the first slot of the next file (ConsumeQueue#rollNextFile); the same for batches."""
    if not isinstance(queue, ConsumeQueue) or not queue.files.file_size:
        return offset
    per_file = queue.files.file_size // UNIT_SIZE
    return (offset // per_file + 1) * per_file
