"""Messages that only the copy of a compacted topic or tiered storage holds."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError, UncertainError, counted
from rmqctl.formats.message import StoredMessage
from rmqctl.store.answers.config_offsets import KnownNames
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.options import UNHEARD
from rmqctl.store.read.compacted import CompactedQueue
from rmqctl.store.read.tiered import TieredStorage, tiered_storage
from rmqctl.store.read.tiered_index import has_key, messages_with_key
from rmqctl.store.store_files import StoreFiles, UnreadCopy, unread_copies


class UnreadQueue(NamedTuple):
    """A copy of a queue that holds messages the commitlog no longer has: those before queue offset `until`."""

    copy: UnreadCopy
    until: int

    def holds(self, queue_offset: int) -> bool:
        """Return whether the message at a queue offset may be in the copy alone."""
        return self.copy.holds(queue_offset) and queue_offset < self.until


def unread_queues(files: StoreFiles, topic: str | None = None, queue_id: int | None = None) -> list[UnreadQueue]:
    """Return the queues whose copy goes back further than what the commitlog holds of them: all, or those of a topic,
    or one. UnreadableError."""
    found = []
    for copy in unread_copies(files.layout, topic):
        if queue_id not in (None, copy.queue_id):
            continue
        until = _begin(files, copy)
        if copy.min_offset < until:
            found.append(UnreadQueue(copy, until))
    return found


def _begin(files: StoreFiles, copy: UnreadCopy) -> int:
    """Return the queue offset from which on the commitlog has the messages; the copy's end where that is not known."""
    try:
        queue = files.queues.find(copy.topic, copy.queue_id) if is_safe_topic(copy.topic) else None
    except CorruptError:
        queue = None
    if queue is None or not files.log.files:
        return copy.max_offset
    return queue.min_offset(files.log.min_offset)


def unread_messages(files: StoreFiles, topic: str | None = None) -> Iterator[UncertainError]:
    """Yield what to report of messages, of all topics or of one, that only a compaction log or tiered storage holds.

    Of all topics not those that were deleted: a broker leaves their compaction logs.
    """
    found = unread_queues(files, topic)
    of_topics: dict[str, int] = {}
    for one in found:
        if one.copy.kind == "compaction":
            of_topics[one.copy.topic] = of_topics.get(one.copy.topic, 0) + one.copy.messages
    names = KnownNames.of(files) if of_topics and topic is None else None
    for name, messages in of_topics.items():
        if names is not None and names.is_removed(name):
            continue
        yield compacted(files, name, messages)
    tiered = [one for one in found if one.copy.kind == "tiered"]
    if tiered:
        count = counted(sum(min(one.until, one.copy.max_offset) - one.copy.min_offset for one in tiered), "message")
        topics = sorted({one.copy.topic for one in tiered})
        yield UncertainError(
            f"tiered storage holds {count} that the commitlog no longer has",
            file=tiered[0].copy.folder,
            hint=f"`rmqctl cat --tiered -t {shlex.quote(topics[0])}` prints them before those of the store",
        )


class MessageCopy(NamedTuple):
    """A message that the commitlog does not have any more, and where its copy is, in words."""

    message: StoredMessage
    where: str


def copied_messages(
    files: StoreFiles, topic: str | None, queue_id: int | None = None, *, queue_offset: int | None = None,
    key: str | None = None,
) -> list[MessageCopy]:  # fmt: skip
    """Return the messages at a queue offset of one queue, or with a key or unique key, that only a copy may have.

    That is tiered storage or a compaction log; the commitlog may have them no more. Their physical offset is -1. What
    is damaged in a copy is left out: `check` reports it. UnreadableError.
    """
    queues = [one for one in unread_queues(files, topic, queue_id) if queue_offset is None or one.holds(queue_offset)]
    found = []
    for place in dict.fromkeys((one.copy.topic, one.copy.queue_id) for one in queues if one.copy.kind == "compaction"):
        copies = (one.stored.message for one in CompactedQueue(files, *place).messages() if one.stored is not None)
        wanted = (one for one in copies if (has_key(one, key) if key else one.queue_offset == queue_offset))
        found += [MessageCopy(one._replace(physical_offset=-1), "the compaction log") for one in wanted]
    tiered = sorted({one.copy.topic for one in queues if one.copy.kind == "tiered"})
    if tiered:
        with contextlib.suppress(NotFoundError, CorruptError):
            storage = tiered_storage(files, UNHEARD)
            for name in tiered:
                of_topic = _in_tiered(storage, name, queue_id, queue_offset, key)
                found += [MessageCopy(one, "tiered storage") for one in of_topic]
    return found


class CopyPart(NamedTuple):
    """What a copy of `kind`, compaction or tiered, has of a queue before queue offset `until`: plain data of a task."""

    kind: str
    topic: str
    queue_id: int
    until: int


def copy_parts(files: StoreFiles) -> list[CopyPart]:
    """Return the queues of which a copy has messages that the commitlog has no more. CorruptError where the folder of
    tiered storage is of several brokers and no table chooses, UnreadableError."""
    found = [
        CopyPart(one.copy.kind, one.copy.topic, one.copy.queue_id, one.until)
        for one in unread_queues(files)
        if one.copy.kind == "compaction"
    ]
    # by the names of its segments where its table is lost
    with contextlib.suppress(NotFoundError):
        queues = tiered_storage(files, UNHEARD).queues()
        begins = {(one.topic, one.queue_id): one.begin_of_store() for one in queues}
        if None in begins.values():
            # the files of a queue may be lost, and its messages be there
            in_log = _begins_in_log(files)
            begins |= {key: in_log.get(key) for key, begin in begins.items() if begin is None}
        for queue in queues:
            begin = begins[queue.topic, queue.queue_id]
            until = queue.max_offset if begin is None else min(queue.max_offset, begin)
            if queue.min_offset < until:
                found.append(CopyPart("tiered", queue.topic, queue.queue_id, until))
    return found


def _begins_in_log(files: StoreFiles) -> dict[tuple[str, int], int]:
    """Return the lowest queue offset that the messages of each queue have in the commitlog. UnreadableError."""
    from rmqctl.store.log.column_walk import ends_of_queues

    begins: dict[tuple[str, int], int] = {}
    for key, (_, queue_offset) in ends_of_queues(files.log, [(max(files.log.min_offset, 0), files.log.max_offset)]):
        begins[key] = min(begins.get(key, queue_offset), queue_offset)
    return begins


def messages_of_copy(files: StoreFiles, part: CopyPart) -> Iterator[StoredMessage]:
    """Yield the whole messages of a part, in the order of the queue. NotFoundError where no folder of tiered storage is
    known, CorruptError where its table does not choose between brokers, UnreadableError."""
    if part.kind == "compaction":
        copies = CompactedQueue(files, part.topic, part.queue_id).messages()
        # a compaction that was cut short leaves a message in two files
        whole = {one.stored.message.queue_offset: one.stored.message for one in copies if one.stored is not None}
        yield from (whole[offset] for offset in sorted(whole) if offset < part.until)
        return
    for queue in tiered_storage(files, UNHEARD).queues(part.topic, part.queue_id):
        for one in queue.messages(queue.min_offset, part.until):
            if one.message is not None:
                yield one.message


def _in_tiered(
    storage: TieredStorage, topic: str, queue_id: int | None, queue_offset: int | None, key: str | None
) -> list[StoredMessage]:
    if key is not None:
        return messages_with_key(storage, topic, key, UNHEARD)
    if queue_offset is None:
        return []
    at_offset = [copy.message(queue_offset) for copy in storage.queues(topic, queue_id)]
    return [one.message._replace(physical_offset=-1) for one in at_offset if one and one.message]


def compacted(files: StoreFiles, topic: str, messages: int) -> UncertainError:
    """Return the note about a topic with a compaction log of `messages` messages."""
    folder = files.layout.root / "compaction"
    return UncertainError(
        f"the compaction log of topic {topic!r} holds {counted(messages, 'message')}",
        file=folder,
        hint=f"`rmqctl cat --compacted -t {shlex.quote(topic)}` prints the newest of each key",
    )
