"""What somebody has in hand to name a message by, and what it leads to: an id, an offset, or a place in a queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, UnsupportedError, UsageError
from rmqctl.formats.hashing import whole_number
from rmqctl.formats.hosts import parse_offset_message_id
from rmqctl.formats.message import StoredMessage
from rmqctl.store.answers.config_offsets import Say
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.frames import MessageRemovedError, message_at
from rmqctl.store.read.key_query import END_OF_TIME, query_scan
from rmqctl.store.read.lookup import lookup, lookup_offset_id, may_be_offset_id
from rmqctl.store.read.message_filter import Criteria
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import Selection, in_log_order

BY_PLACE = "place in a queue"
BY_OFFSET = "physical offset"
BY_ID = "offset id"
BY_KEY = "key"
BY_UNIQUE_KEY = "unique key"
_LARGEST_OFFSET = (1 << 63) - 1
# slots that are looked at on either side of one that leads nowhere
_NEIGHBOURS = 1000


class Place(NamedTuple):
    """A place of a queue."""

    topic: str
    queue_id: int
    queue_offset: int


@dataclass
class Named:
    """What one name leads to without a look for keys: a message, or why there is none (`error`); `place` is known of a
    message that cannot be read, too."""

    how: str
    message: StoredMessage | None = None
    error: RmqctlError | None = None
    place: Place | None = None
    physical_offset: int | None = None


def place_in(words: list[str]) -> Place:
    """`TOPIC QUEUE OFFSET`; UsageError for anything else."""
    topic, queue_id, queue_offset = words
    number = whole_number(queue_id)
    if number is None or not _is_offset(queue_offset):
        raise UsageError(
            f"{' '.join(words)!r} is not a topic, a queue id and a queue offset",
            hint="write one KEY, ID or OFFSET, or TOPIC QUEUE OFFSET as in `rmqctl where Orders 3 1000`",
        )
    return Place(topic, number, int(queue_offset))


def _is_offset(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _LARGEST_OFFSET


def at_place(reader: StoreReader, place: Place, tell: Say, progress: Progress | None) -> Named:
    """The message in a slot of a queue. Where the queue does not lead to it, the log is searched for it, which is told:
    between the messages of the slots around it. NotFoundError for a queue that nothing knows of, UnsupportedError where
    it lies in a RocksDB and the log has no such message."""
    named = Named(BY_PLACE, place=place)
    try:
        queue = reader.queue(place.topic, place.queue_id)
    except (NotFoundError, UnsupportedError) as error:
        tell(f"{error.message}: the whole commitlog is searched")
        named.message = _in_log(reader, place, (0, None), progress)
        if named.message is None:
            raise
        return named
    begin, end = queue.min_offset(reader.files.log.min_offset), queue.max_offset
    if place.queue_offset < begin:
        lost = reader.in_empty_file(queue, place.queue_offset)
        named.error = lost or MessageRemovedError(f"the queue begins at {begin} now")
        return named
    unit = next(queue.units(place.queue_offset, place.queue_offset + 1), None)
    if unit is not None and unit.is_written:
        named.physical_offset = unit.physical_offset
        try:
            named.message = reader.view_without_ext(queue).message_of(unit)
        except (CorruptError, NotFoundError) as error:
            named.error = error
            if not _is_message(reader, unit.physical_offset):
                return named
        else:
            return named
    elif place.queue_offset >= end:
        named.error = NotFoundError(f"the queue ends at {end}, and the log behind its last message has no such one")
    else:
        what = "lies in no file of the queue" if unit is None else "leads nowhere"
        named.error = CorruptError(f"slot {place.queue_offset} {what}", file=queue.directory)
    tell(
        f"slot {place.queue_offset} of {place.topic} queue {place.queue_id} leads to no message of its own: "
        "the commitlog is searched for it"
    )
    named.message = _in_log(reader, place, _span_around(queue, place.queue_offset), progress)
    return named


def _is_message(reader: StoreReader, physical_offset: int) -> bool:
    """Whether a good message begins there, whatever it is."""
    try:
        message_at(reader.files.log, physical_offset)
    except (CorruptError, NotFoundError):
        return False
    return True


def _span_around(queue: AnyConsumeQueue, queue_offset: int) -> tuple[int, int | None]:
    """Physical offsets from the last message before a slot to the first one behind it: their order is the log's."""
    begin, end = 0, None
    for unit in queue.units(max(0, queue_offset - _NEIGHBOURS), queue_offset + _NEIGHBOURS):
        if unit.is_written and unit.queue_offset < queue_offset:
            begin = unit.physical_offset
        elif unit.is_written and end is None:
            end = unit.physical_offset
    if begin == 0 and queue_offset > queue.max_offset:
        last = queue.unit(queue.max_offset - 1)
        begin = last.physical_offset if last is not None and last.is_written else 0
    return begin, end


def _in_log(
    reader: StoreReader, place: Place, span: tuple[int, int | None], progress: Progress | None
) -> StoredMessage | None:
    """The message that says of itself that it has that place. Damage on the way is not told: the slot's is."""
    end = END_OF_TIME if span[1] is None else span[1]
    criteria = Criteria(topic=place.topic, queue_id=place.queue_id)
    log = reader.files.log
    selection = Selection(criteria)
    walked = in_log_order(log, selection, _ignored, progress)
    if span[0] > 0:
        walked = (one for one in query_scan(log, criteria, END_OF_TIME, progress, [(span[0], end)]))
    return next((one for one in walked if one.queue_offset == place.queue_offset), None)


def _ignored(_error: CorruptError) -> None:
    """What is damaged beside a message does not make it another."""


def by_offset(reader: StoreReader, text: str) -> Named | None:
    """What begins at a physical offset, or is named by an offset id; None where `text` is neither."""
    if _is_offset(text) and len(text) < 20:
        return _looked_up(Named(BY_OFFSET, physical_offset=int(text)), reader, None)
    if may_be_offset_id(reader.files, text):
        return _looked_up(Named(BY_ID, physical_offset=parse_offset_message_id(text)[1]), reader, text)
    return None


def _looked_up(named: Named, reader: StoreReader, message_id: str | None) -> Named:
    try:
        if message_id is not None:
            named.message = lookup_offset_id(reader.files, message_id)
        else:
            named.message = lookup(reader.files, named.physical_offset or 0)
    except (CorruptError, NotFoundError) as error:
        named.error = error
    return named


def search_key(message: StoredMessage) -> str | None:
    """What the copies of a message are found by: its unique key, which they keep, else the first of its keys."""
    properties = message.properties()
    if names.UNIQUE_KEY in properties:
        return properties[names.UNIQUE_KEY]
    return next(iter(names.split_keys(properties.get(names.KEYS))), None)
