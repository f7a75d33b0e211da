"""Messages at the end of the log that no queue has yet, as a broker that was killed leaves them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rmqctl.formats.checksums import parse_long
from rmqctl.formats.errors import CorruptError, UncertainError, counted
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.lock import is_in_use
from rmqctl.store.log.walk import walk
from rmqctl.store.options import Events
from rmqctl.store.queues.dispatch import queue_slots
from rmqctl.store.store_files import StoreFiles

# Where transactions stand in a store: the topics, the properties of half messages, and what ends one.

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
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


_KEPT_TOPICS = (HALF_TOPIC, OP_TOPIC)
_KEPT_PREFIX = "%DLQ%"


@dataclass
class Undispatched:
    """What the log holds past the dispatch point: the number of messages by (topic, queue), and those messages that
    answers look into: half messages, marks that end them, dead letters."""

    slots: Counter[tuple[str, int]] = field(default_factory=Counter)
    messages: list[StoredMessage] = field(default_factory=list)

    def of(self, topic: str) -> list[StoredMessage]:
        """Return the messages of a topic, of those that are kept."""
        return [message for message in self.messages if message.topic == topic]


def undispatched(files: StoreFiles, events: Events) -> Undispatched:
    """Return what the queues lack at the log's end, and report it as an UncertainError where there is any.

    Only of a store that was not closed cleanly and is not in use: a broker that runs, or was stopped, has dispatched
    all. Nothing is said of queues in a RocksDB. UnreadableError.
    """
    found = Undispatched()
    if not files.has_abort() or is_in_use(files.layout) or not files.log.files:
        return found
    try:
        begin = _dispatched(files)
    except CorruptError:
        return found
    levels = files.config.delay_levels()
    first: int | None = None
    for record in walk(files.log, begin):
        if isinstance(record, StoredMessage) and has_queue_slot(record.sys_flag) and is_safe_topic(record.topic):
            missing = _missing(files, record, levels)
            if missing:
                found.slots.update(missing)
                first = record.physical_offset if first is None else first
                if record.topic in _KEPT_TOPICS or record.topic.startswith(_KEPT_PREFIX):
                    found.messages.append(record)
    if first is not None:
        events.damaged(_error(files, first, sum(found.slots.values())))
    return found


def _missing(files: StoreFiles, message: StoredMessage, levels: tuple[int, ...]) -> list[tuple[str, int]]:
    """Return the queues that end before the slot that a message takes in them."""
    own = files.queues.find(message.topic, message.queue_id)
    found = []
    for slot in queue_slots(message, levels, own is not None and own.kind == "BatchCQ"):
        queue = files.queues.find(slot.topic, slot.queue_id)
        if queue is None or slot.unit.queue_offset >= queue.max_offset:
            found.append((slot.topic, slot.queue_id))
    return found


def _dispatched(files: StoreFiles) -> int:
    """Return the physical offset of the last message that any queue leads to; the log's beginning if none does."""
    newest = files.log.min_offset
    for queue in files.queues.all():
        unit = queue.unit(queue.max_offset - 1)
        if unit is not None and unit.is_written:
            newest = max(newest, unit.physical_offset)
    return newest


def _error(files: StoreFiles, offset: int, messages: int) -> UncertainError:
    return UncertainError(
        f"the log goes on after its queues: {counted(messages, 'message')} from offset {offset} on "
        f"{'is' if messages == 1 else 'are'} in no queue yet, as the store was not closed cleanly",
        file=files.root,
        hint="`rmqctl recover` completes the queues",
    )
