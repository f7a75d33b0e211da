"""Messages of the log that their queues lack: at its end, as a broker that was killed leaves them, or of queues whose
files are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqctl.formats.checksums import parse_long
from rmqctl.formats.errors import CorruptError, UncertainError, counted
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.answers.config_offsets import (
    DELAY_FILE,
    OFFSET_TABLE,
    KnownNames,
    consumer_table,
    offset_key,
    offsets_of,
    table_in,
)
from rmqctl.store.config.config_files import ROCKSDB_TOPICS
from rmqctl.store.files.background import sleep
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.lock import FILES_COME_IN, is_in_use
from rmqctl.store.files.reading import has_entries
from rmqctl.store.log.sampled import END, END_FOR_ONE, ends_seen, is_long
from rmqctl.store.log.walk import message_if_any, walk
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.dispatch import LMQ_PREFIX, SCHEDULE_TOPIC, queue_slots
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.filter import TopicFilter
from rmqctl.store.store_files import StoreFiles

# Where transactions stand in a store: the topics, the properties of half messages, and what ends one.

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC = ROCKSDB_TOPICS
"""Of half messages that a RocksDB leads to (transWriteOriginTransHalfEnable=false), and of what ends these."""
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
"""Whose offsets of the two topics say how far the transactions are looked through."""
PRODUCER_GROUP = "PGROUP"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"


def ended_offsets(body: bytes) -> list[int]:
    """Queue offsets of half messages that an op message ends; what Long.parseLong refuses is left out.

    (TransactionalMessageServiceImpl#fillOpRemoveMap)
    """
    read = (parse_long(part) for part in body.decode("utf-8", "replace").split(","))
    return [offset for offset in read if offset is not None and offset >= 0]


_TAIL = 1024 * 1024
_KEPT_TOPICS = (HALF_TOPIC, OP_TOPIC)
_KEPT_PREFIX = "%DLQ%"


@dataclass
class Undispatched:
    """What the log holds past the dispatch point: the number of messages by (topic, queue), and those messages that
    answers look into: half messages, marks that end them, dead letters."""

    slots: Counter[tuple[str, int]] = field(default_factory=Counter)
    messages: list[StoredMessage] = field(default_factory=list)
    error: UncertainError | None = None

    def of(self, topic: str) -> list[StoredMessage]:
        """Return the messages of a topic, of those that are kept."""
        return [message for message in self.messages if message.topic == topic]


def undispatched(files: StoreFiles, events: Events, topics: TopicFilter | None = None) -> Undispatched:
    """Return what the queues lack at the log's end, and report it as an UncertainError where there is any; and as
    damage which queues of `topics` lack files though the log holds their messages. See `_lacking`."""
    found = _lacking(files, topics)
    lost = None if topics is None else lost_error(files, topics, behind=found.slots)
    for error in filter(None, (lost, found.error)):
        events.damaged(error)
    return found


def _lacking(files: StoreFiles, topics: TopicFilter | None) -> Undispatched:
    """Return what the queues lack at the log's end, with an UncertainError where there is any.

    Not of a store that is in use: a broker that runs has dispatched all. One that was closed cleanly has, too: there
    queues of `topics` may have lost their last files, for which the last `_TAIL` bytes of the log are looked at.
    Nothing is said of queues in a RocksDB. UnreadableError.
    """
    found = Undispatched()
    has_crashed = files.has_abort()
    if not has_crashed and topics is None:
        return found
    if is_in_use(files.layout) or not files.log.files:
        return found
    try:
        if files.queues.database() is not None:
            return found
        begin = _dispatched(files) if has_crashed else max(files.log.min_offset, files.log.written_end() - _TAIL)
    except CorruptError:
        return found
    levels = files.config.delay_levels()
    first: int | None = None
    for record in walk(files.log, begin):
        if not isinstance(record, StoredMessage) or not has_queue_slot(record.sys_flag):
            continue
        if is_safe_topic(record.topic) and (has_crashed or (topics is not None and topics.matches(record.topic))):
            missing = lacking_queues(files, record, levels, has_crashed=has_crashed)
            if missing:
                found.slots.update(missing)
                first = record.physical_offset if first is None else first
                if record.topic in _KEPT_TOPICS or record.topic.startswith(_KEPT_PREFIX):
                    found.messages.append(record)
    if first is not None:
        found.error = _error(files, first, sum(found.slots.values()), has_crashed)
    return found


def queues_behind(
    files: StoreFiles, topics: TopicFilter, queue_id: int | None = None, *, looks_at_tail: bool = True
) -> list[CorruptError]:
    """Return what to report where some of these queues are lost, or lack messages at the log's end. Without
    `looks_at_tail` a store that was closed cleanly is asked for queues without files alone."""
    found = _lacking(files, topics if looks_at_tail else None)
    are_meant = (topics.matches(name) and queue_id in (None, number) for name, number in found.slots)
    lost = lost_error(files, topics, queue_id, behind=found.slots, looks_at_files=looks_at_tail)
    return list(filter(None, (lost, found.error if any(are_meant) else None)))


# Queues that lack files whose messages the log holds. A queue that was never used has no folder either, so the log is
# asked, as far as a look that nobody asked for may take: `check` reads all of it.

_NAMED = 3


class LostQueue(NamedTuple):
    """A queue that lacks the file for its message at a physical offset."""

    topic: str
    queue_id: int
    physical_offset: int


def lost_error(
    files: StoreFiles,
    topics: TopicFilter,
    queue_id: int | None = None,
    *,
    behind: Container[tuple[str, int]] = (),
    looks_at_files: bool = True,
) -> CorruptError | None:
    """Return the damage that queues of `topics` lack files, though the log holds messages of theirs, or that there is
    no log; an UncertainError where that cannot be known. None where none is lost, and of queues in a RocksDB.

    `behind`: queues that end before the log, as is known. `looks_at_files`: whether queues that have files may lack
    others. UnreadableError.
    """
    if not files.log.files:
        return files.lost_log()
    looked = _lost(files, topics, queue_id, looks_at_files=looks_at_files)
    there, unsure = looked.there, looked.unsure
    if found := [one for one in looked.found if (one.topic, one.queue_id) not in behind]:
        return _lost_error(files, found)
    if there is None:
        return None
    only = topics.only
    if unsure and only is not None and not there:
        who = f"topic {only!r} has queues" if queue_id is None else f"queue {queue_id} of {only!r} is"
        last = max(one.physical_offset for one in unsure)
        said = f"{who} without files: lost, or the topic was created again after the message at offset {last}"
        return UncertainError(said, file=files.layout.consumequeue, hint=remade_by(files, only))
    if not is_long(files.log):
        return None
    for who, topic, number, offset in _consumed(files) if files.log.min_offset == 0 else ():
        if topics.matches(topic) and queue_id in (None, number) and (topic, number) not in there:
            said = f"{who} has consumed queue {number} of {topic!r} up to offset {offset}, but the queue has no files"
            hint = "it is lost, or the offset is not of this store: `rmqctl check` reads all of the log"
            return UncertainError(said, file=files.layout.consumequeue, hint=hint)
    if only is not None and queue_id is not None and not there:
        said = f"queue {queue_id} of {only!r} has no files, and only the log's first and last {END_FOR_ONE >> 20} MiB"
        hint = "`rmqctl check` reads all of the log, `rmqctl where TOPIC QUEUE OFFSET` looks for one message"
        said += " and samples between them were searched for its messages"
        return UncertainError(said, file=files.layout.consumequeue, hint=hint)
    return None


def remade_by(files: StoreFiles, topic: str) -> str:
    """Return what writes queues of a topic whose files are lost, or were deleted with the topic before."""
    recovers = "does so, too" if files.has_abort() else "leaves them out"
    return f"`rmqctl rebuild --queues -t {topic}` makes them from the log, `rmqctl recover` {recovers}"


class LostQueues(NamedTuple):
    """Queues that lack files; `unsure`: lost, or deleted with a topic that was created again."""

    found: list[LostQueue]
    unsure: list[LostQueue]


def lost_queues(files: StoreFiles) -> LostQueues:
    """Return the queues that lack files though the log, as far as it is looked at, holds messages of theirs, by topic
    and queue; none of queues in a RocksDB. UnreadableError."""
    looked = _lost(files, TopicFilter(), None) if files.log.files else _Lost()
    return LostQueues(sorted(looked.found), sorted(looked.unsure))


@dataclass
class _Lost:
    """`there`: the queues of files that there are; None where nothing was looked at. `unsure`: messages of queues
    without files which may be from before the topic was created again."""

    found: list[LostQueue] = field(default_factory=list)
    there: set[tuple[str, int]] | None = None
    unsure: list[LostQueue] = field(default_factory=list)


def _lost(files: StoreFiles, topics: TopicFilter, queue_id: int | None, *, looks_at_files: bool = True) -> _Lost:
    only, log = topics.only, files.log
    is_one = only is not None and queue_id is not None
    asked: list[AnyConsumeQueue | None]
    try:
        if only is not None and queue_id is not None and is_safe_topic(only):
            asked = [files.queues.find(only, queue_id)]
        else:
            asked = [*files.queues.of_topics(topics.matches)]
        queues = {(one.topic, one.queue_id): one for one in asked if one and (one.files.files or one.files.problems)}
        if files.queues.database() is not None or (is_one and queues and not looks_at_files):
            return _Lost()
    except CorruptError:
        return _Lost()
    looks_at_files = looks_at_files and not is_in_use(files.layout)
    names = KnownNames.of(files)
    is_earlier = names.earlier_life()
    found, unsure = [], []
    for (topic, number), (first, last) in ends_seen(log, END_FOR_ONE if is_one else END).items():
        if not topics.matches(topic) or queue_id not in (None, number) or topic.startswith(LMQ_PREFIX):
            continue
        queue, place = queues.get((topic, number)), last[0]
        if queue is not None:
            if looks_at_files and _begins_after(queue, *first):
                place = first[0]
            elif not looks_at_files or not _ends_before(queue, *last):
                continue
        message = message_if_any(log, place)
        if message is None or message.topic != topic or not is_safe_topic(topic):
            continue
        if queue is not None or not is_earlier(topic, place):
            found.append(LostQueue(topic, number, place))
        elif names.may_be_lost(topic):
            unsure.append(LostQueue(topic, number, place))
    if found:  # a cleaner may have come by since the log was looked at: it takes log and queues
        log.begins_behind(min(one.physical_offset for one in found))
        found = [one for one in found if not log.was_removed(one.physical_offset)]
    if found and files.has_abort():  # what no queue has yet is no queue's loss
        dispatched = _dispatched(files)
        found = [one for one in found if one.physical_offset < dispatched]
    if found and is_in_use(files.layout):
        found = _still_without_files(files, found)
    return _Lost(found, set(queues), unsure)


def _still_without_files(files: StoreFiles, found: list[LostQueue]) -> list[LostQueue]:
    """Return the queues that lack files after a while, too: a writer makes those of many new queues one by one."""
    roots = files.layout.consumequeue, files.layout.batchconsumequeue
    for seconds in (0, *FILES_COME_IN):
        sleep(seconds)
        found = [one for one in found if not any(has_entries(root / one.topic / str(one.queue_id)) for root in roots)]
        if not found:
            break
    return found


def _consumed(files: StoreFiles) -> Iterator[tuple[str, str, int, int]]:
    """Yield who has consumed from a queue of a topic that is configured, by the offsets of config/: who, topic, queue
    and offset."""
    config, topics = files.layout.config, KnownNames.of(files).topics or {}
    table = consumer_table(config, files.config, UNHEARD).table or {}
    for key, offsets in table.items():
        owner = offset_key(key)
        if owner is not None and owner.topic in topics and isinstance(offsets, Mapping):
            for number, offset in offsets_of(offsets).items():
                if offset > 0:
                    yield f"group {owner.group!r}", owner.topic, number, offset
    for level, offset in offsets_of(table_in(config / DELAY_FILE, OFFSET_TABLE, UNHEARD) or {}).items():
        if offset > 0:
            yield DELAY_FILE, SCHEDULE_TOPIC, level - 1, offset


def _lost_error(files: StoreFiles, found: list[LostQueue]) -> CorruptError:
    found = sorted(found)
    named = ", ".join(f"queue {one.queue_id} of {one.topic!r}" for one in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    queues = [files.queues.find(one.topic, one.queue_id) for one in found]
    has_files = any(queue is not None and queue.files.files for queue in queues)
    what = "lack messages at their end or beginning" if has_files else "have no files"
    if len(found) == 1:
        what = "lacks messages at its end or beginning" if has_files else "has no files"
    return CorruptError(
        f"the log holds messages of {named}{more}, which {what}: `rmqctl recover` makes them again",
        file=files.layout.consumequeue,
        physical_offset=found[0].physical_offset,
        hint="--as-recovered shows what it would leave",
    )


def lacking_queues(
    files: StoreFiles, message: StoredMessage, levels: tuple[int, ...], *, has_crashed: bool = True
) -> list[tuple[str, int]]:
    """Return the queues that end before the slot that a message takes in them: after a crash those without files, too;
    else those that end before the message, and do not go on in a later life of their topic."""
    own = files.queues.find(message.topic, message.queue_id)
    found = []
    for slot in queue_slots(message, levels, own is not None and own.kind == "BatchCQ"):
        queue = files.queues.find(slot.topic, slot.queue_id)
        if queue is None or not queue.files.files:
            is_missing = has_crashed
        else:
            is_missing = _ends_before(queue, message.physical_offset, slot.unit.queue_offset)
        if is_missing:
            found.append((slot.topic, slot.queue_id))
    return found


def _ends_before(queue: AnyConsumeQueue, physical_offset: int, slot: int) -> bool:
    """Return whether a queue ends before the slot of a message, and before the message, too: where it does not, it goes
    on in a later life of its topic."""
    if slot < queue.max_offset:
        return False
    last = queue.unit(queue.max_offset - 1)
    return last is None or last.physical_offset < physical_offset


def _begins_after(queue: AnyConsumeQueue, physical_offset: int, slot: int) -> bool:
    """Return whether the first file of a queue begins after a message that the log holds."""
    if not isinstance(queue, ConsumeQueue) or slot >= queue.first_slot:
        return False
    first = queue.unit(queue.first_slot)
    return first is not None and first.physical_offset > physical_offset


def _dispatched(files: StoreFiles) -> int:
    """Return the physical offset of the last message that any queue leads to; the log's beginning if none does."""
    newest = files.log.min_offset
    for queue in files.queues.all():
        unit = queue.unit(queue.max_offset - 1)
        if unit is not None and unit.is_written:
            newest = max(newest, unit.physical_offset)
    return newest


def _error(files: StoreFiles, offset: int, messages: int, has_crashed: bool) -> UncertainError:
    one = messages == 1
    where = "missing in its queue" if one else "missing in their queues"
    if has_crashed:
        where = "in no queue yet, as the store was not closed cleanly"
    return UncertainError(
        f"the log goes on after its queues: {counted(messages, 'message')} from offset {offset} on "
        f"{'is' if one else 'are'} {where}",
        file=files.root,
        hint="`rmqctl recover` completes the queues",
    )
