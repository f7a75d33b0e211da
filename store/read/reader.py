"""Reading a store: by queue, time, key, id and offset, whole or broken, and without changing a byte of it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Unpack

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.reading import is_directory
from rmqctl.store.options import Events, KeyChoice
from rmqctl.store.queues.dispatch import LMQ_PREFIX
from rmqctl.store.read import query as lookups
from rmqctl.store.read.filter import TagFilter, TopicFilter, known_topics, newest_first
from rmqctl.store.read.query import QueryResult
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from rmqctl.store.queues.consumequeue import QueueUnit
    from rmqctl.store.queues.offset_by_time import Boundary
    from rmqctl.store.queues.queue_table import AnyConsumeQueue
    from rmqctl.store.read.by_key import FindResult
    from rmqctl.store.read.get import GetResult, QueueView
    from rmqctl.store.read.select import Order, Selection

# the same numbers as in rmqctl.store.read.get and rmqctl.store.read.key_query, which are imported where they are needed
_LIMIT = 32
_MAX_BYTES = 128 * 1024 * 1024
_START_OF_TIME, _END_OF_TIME = -(1 << 63), (1 << 63) - 1


class StoreReader:
    """All ways to read one store. Times are in ms. Nothing here recovers, creates or locks anything."""

    def __init__(self, files: StoreFiles, events: Events = Events()) -> None:
        """`events`: who hears of what the looks meet."""
        self.files = files
        self.events = events

    def telling(self, events: Events) -> StoreReader:
        """The same store, for a look whose `events` go elsewhere."""
        return StoreReader(self.files, events)

    # ---- by queue

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        limit: int = _LIMIT,
        tags: str | None = None,
        max_bytes: int = _MAX_BYTES,
    ) -> GetResult:
        """Messages of a queue from queue offset `offset` on, with RocketMQ's status and next offset.

        `tags`: an expression such as `TagA || TagB`. At most 32 messages and 256 KiB come in one call (see
        rmqctl.store.read.get.get_messages). A queue that does not exist reads as an empty one, as the broker has it.
        UnsupportedError for queues in a RocksDB.
        """
        from rmqctl.store.read.get import get_messages, no_queue

        tag_filter = TagFilter(tags)
        queue = self.files.queues.find_any(topic, queue_id)
        if queue is None:
            return no_queue()
        return get_messages(self.view(queue), offset, limit, tag_filter, max_bytes)

    def view(self, queue: AnyConsumeQueue) -> QueueView:
        """`queue` with its ext queue and all that is needed to read its messages."""
        from rmqctl.store.queues.consumequeue_ext import ConsumeQueueExt

        plain = self.view_without_ext(queue)
        directory = self.files.layout.consumequeue_ext / queue.directory.parent.name / queue.directory.name
        if is_directory(directory):
            config = self.files.config
            ext = ConsumeQueueExt(directory, config.mapped_file_size_consume_queue_ext, self.files.descriptors)
            ext.load()
            return plain._replace(ext=ext)
        return plain

    def view_without_ext(self, queue: AnyConsumeQueue) -> QueueView:
        """The same for who asks for no tags: nothing is looked for on the disk."""
        from rmqctl.store.read.get import QueueView, ReadLimits, physical_memory

        config = self.files.config
        limits = ReadLimits(
            config.max_transfer_bytes_on_message_in_memory,
            config.max_transfer_count_on_message_in_memory,
            config.max_filter_message_size,
            physical_memory() * config.access_message_in_memory_max_ratio // 100,
            config.max_transfer_bytes_on_message_in_disk,
            config.max_transfer_count_on_message_in_disk,
        )
        return QueueView(queue, None, self.files.log, config.delay_levels(), limits)

    def queue(self, topic: str, queue_id: int) -> AnyConsumeQueue:
        """The queue; NotFoundError, naming what there is, if it has none on disk."""
        queue = self.files.queues.find_any(topic, queue_id)
        if queue is None:
            ids = [str(other.queue_id) for other in self._of_topics(topic.__eq__)]
            if ids:
                raise NotFoundError(f"topic {topic!r} has no queue {queue_id}", hint=f"its queues are {', '.join(ids)}")
            raise self._unknown_topic(topic)
        return queue

    def _unknown_topic(self, topic: str) -> NotFoundError:
        from difflib import get_close_matches

        if topic.startswith(LMQ_PREFIX):
            self.files.queues.light()  # damage of these is no absence
        near = get_close_matches(topic, self.files.queues.topics(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`rmqctl ls --topics` lists the topics"
        return NotFoundError(f"there is no topic {topic!r} in the consume queues", hint=hint)

    def queues(self, topic: str | None = None, queue_id: int | None = None) -> list[AnyConsumeQueue]:
        """Queues of `topic` with id `queue_id`, None meaning all; NotFoundError if there are none of that topic."""
        if topic is not None and queue_id is not None:
            return [self.queue(topic, queue_id)]
        found = [
            queue
            for queue in (*self.files.queues.all(), *self._light())
            if topic in (None, queue.topic) and queue_id in (None, queue.queue_id)
        ]
        if topic is not None and not found:
            raise self._unknown_topic(topic)
        return found

    def in_empty_file(self, queue: AnyConsumeQueue, queue_offset: int) -> CorruptError | None:
        """The damage that a slot before the queue's first message leads to: a commitlog file that is there, with no
        bytes. None if its message has expired."""
        from rmqctl.store.read.frames import explain_absence

        unit = queue.unit(queue_offset)
        if unit is None or not unit.is_written or unit.physical_offset >= self.files.log.min_offset:
            return None
        error = explain_absence(self.files.log, unit.physical_offset)
        return error if isinstance(error, CorruptError) else None

    def offset_at(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = "lower") -> int:
        """Queue offset for a time: `lower` the first message stored at or after it, `upper` the last at or before it.

        NotFoundError for a queue that does not exist. (DefaultMessageStore#getOffsetInQueueByTime)
        """
        from rmqctl.store.queues.offset_by_time import offset_by_time

        queue = self.queue(topic, queue_id)
        minimum = queue.min_offset(self.files.log.min_offset)
        return offset_by_time(queue, timestamp, boundary, minimum, self.unit_store_time)

    def unit_store_time(self, unit: QueueUnit) -> int | None:
        """Store time of the message that `unit` points at; None if it points at none."""
        from rmqctl.store.read.frames import store_time_at

        return store_time_at(self.files.log, unit.physical_offset) if unit.is_written else None

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of the message at `queue_offset`; -1 without one (getMessageStoreTimeStamp)."""
        queue = self.files.queues.find_any(topic, queue_id)
        unit = queue.unit(queue_offset) if queue is not None and queue_offset >= 0 else None
        time = self.unit_store_time(unit) if unit is not None else None
        return -1 if time is None else time

    # ---- by key and id

    def query(
        self,
        topic: str | TopicFilter,
        key: str,
        begin: int = _START_OF_TIME,
        end: int = _END_OF_TIME,
        limit: int = _LIMIT,
        **choice: Unpack[KeyChoice],
    ) -> QueryResult:
        """Messages of `topic` with `key`, stored between `begin` and `end`, newest first, each once. `choice`: see
        KeyChoice; tags are in the index of RocketMQ 5.4 and later (QUERY_MESSAGE's indexType).

        NotIndexedError if there is no index. A small part of the commitlog that it does not cover is searched; with
        `scan` all that is needed is, also where the index is damaged.
        """
        from rmqctl.store.read import by_key
        from rmqctl.store.read.query import KeyQuery

        most_bytes = None if choice.get("scan", False) else by_key.UNASKED_BYTES
        tags, grep, index_type = choice.get("tags"), choice.get("grep"), choice.get("index_type", "K")
        query = KeyQuery("", key, begin, end, limit, tags, grep, index_type)
        topics = topic if isinstance(topic, TopicFilter) else TopicFilter.of_one(topic)
        return by_key.messages_by_key(self.files, query, topics, most_bytes, self.events)

    def indexed(
        self, topic: str, key: str, begin: int = _START_OF_TIME, end: int = _END_OF_TIME, limit: int = _LIMIT
    ) -> QueryResult:
        """The same as the index alone has it, as brokers answer."""
        from rmqctl.store.read.query import KeyQuery, query_index, storage_of

        query = KeyQuery(topic, key, begin, end, limit)
        return query_index(self.files.index, self.files.log, query, storage=storage_of(self.files, []))

    def lookup(self, physical_offset: int) -> StoredMessage:
        """Return the message whose frame starts exactly there; NotFoundError or CorruptError explain other data
        there."""
        return lookups.lookup(self.files, physical_offset)

    def find(self, text: str, topic: str | None = None, *, scan: bool = False) -> FindResult:
        """What an id means: a broker's offset id, else a unique key (see rmqctl.store.read.by_key.find)."""
        from rmqctl.store.read import by_key

        return by_key.find(self.files, text, topic, None if scan else by_key.UNASKED_BYTES, self.events)

    # ---- many

    def messages(self, selection: Selection, order: Order = "log") -> Iterator[StoredMessage]:
        """Messages of `selection` in the order of the log or of the queues. A note says what was removed before it was
        read (walk.RemovedMeanwhile).

        NotFoundError for an unknown topic or queue and UnsupportedError for RocksDB queues, in order of the queues.
        """
        from rmqctl.store.read.select import in_log_order, in_queue_order

        if order == "log":
            return in_log_order(self.files.log, selection, self.events)
        views = map(self.view, self._chosen_queues(selection))
        return in_queue_order(views, selection, self.events)

    def last_messages(self, selection: Selection, count: int, order: Order = "log") -> list[StoredMessage]:
        """Return the last `count` messages of `selection`, in order. Only the end is read, as far as needed. Events
        and errors as of `messages`."""
        from rmqctl.store.read.select import last_in_log_order, last_in_queue_order

        if order == "log":
            return last_in_log_order(self.files.log, selection, count, self.events)
        views = map(self.view, self._chosen_queues(selection)[::-1])
        minimum = self.files.log.min_offset
        return last_in_queue_order(views, minimum, selection, count, self.events)

    def _of_topics(self, is_wanted: Callable[[str], bool]) -> list[AnyConsumeQueue]:
        return self.files.queues.of_topics(is_wanted) + [queue for queue in self._light() if is_wanted(queue.topic)]

    def _light(self) -> list[AnyConsumeQueue]:
        try:
            return self.files.queues.light()
        except CorruptError as error:  # the queues in files are good all the same
            if self.events.damage is not None:
                self.events.damage(error)
            return []

    def _chosen_queues(self, selection: Selection) -> list[AnyConsumeQueue]:
        criteria = selection.criteria
        if criteria.topic is not None or criteria.topic_filter.is_all:
            return self.queues(criteria.topic, criteria.queue_id)
        queues = self._of_topics(criteria.topic_filter.matches)
        return [queue for queue in queues if criteria.queue_id in (None, queue.queue_id)]

    def has_topic(self, topic: str) -> bool | None:
        """Return whether the store knows `topic`; None if the queues cannot be read."""
        try:
            return topic in known_topics(self.files)
        except CorruptError:
            return None


# Messages of a topic by their tag, as brokers since 5.4 find them by the tag entries of the index (`topic#T#tag`).
#
# One function, so that the way may change: the queues are read, whose units hold the hash of each tag.


def messages_with_tag(reader: StoreReader, topic: str, tag: str, begin: int, end: int, limit: int) -> QueryResult:
    """Return the newest messages of `topic` whose whole TAGS value is `tag`, stored between two times (ms).

    Damaged messages whose unit has the tag's hash are in `damaged`.
    """
    result = QueryResult()
    newest: list[tuple[int, StoredMessage]] = []
    # a value with || is one tag here, and no expression
    wanted = tag if "||" not in tag and tag.strip() == tag and tag not in ("", "*") else None
    for queue in (one for one in reader.files.queues.all() if one.topic == topic):
        offset = reader.offset_at(topic, queue.queue_id, begin) if begin > 0 else 0
        while offset < queue.max_offset:
            found = reader.get(topic, queue.queue_id, offset, tags=wanted)
            result.damaged += [unit.error for unit in found.damaged]
            for message in found.messages:
                if begin <= message.store_timestamp <= end and message.properties().get(names.TAGS) == tag:
                    heapq.heappush(newest, (message.physical_offset, message))
                    if len(newest) > limit:
                        heapq.heappop(newest)
            if found.next_offset <= offset:
                break
            offset = found.next_offset
    result.messages = newest_first(message for _, message in newest)
    return result
