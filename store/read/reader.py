"""Reading a store: by queue, time, key, id and offset, whole or broken, and without changing a byte of it."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Unpack

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, UnreadableError, UnsupportedError, counted
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import UNIQUE_KEY
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.reading import is_directory
from rmqctl.store.log.sampled import END, ends_seen
from rmqctl.store.options import Events, KeyChoice
from rmqctl.store.queues.dispatch import LMQ_PREFIX
from rmqctl.store.read import query as lookups
from rmqctl.store.read.filter import Criteria, TagFilter, TopicFilter, known_topics, newest_first
from rmqctl.store.read.frames import message_at
from rmqctl.store.read.query import (
    END_OF_TIME,
    KeyQuery,
    NotIndexedError,
    QueryResult,
    indexed_range,
    lookup_offset_id,
    may_be_offset_id,
    query_index,
    storage_of,
    unindexed_spans,
)
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from rmqctl.store.files.mapped_file_queue import MappedFileQueue
    from rmqctl.store.log.columns import MessageColumns
    from rmqctl.store.native.tables import Columns
    from rmqctl.store.queues.consumequeue import Boundary, QueueUnit
    from rmqctl.store.queues.queue_table import AnyConsumeQueue
    from rmqctl.store.read.get import GetResult, QueueView
    from rmqctl.store.read.select import Order, Selection
    from rmqctl.store.rocksdb.message_storage import MessageStorage


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
        from rmqctl.store.queues.consumequeue import offset_by_time

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
        from rmqctl.store.read.query import KeyQuery

        most_bytes = None if choice.get("scan", False) else UNASKED_BYTES
        tags, grep, index_type = choice.get("tags"), choice.get("grep"), choice.get("index_type", "K")
        query = KeyQuery("", key, begin, end, limit, tags, grep, index_type)
        topics = topic if isinstance(topic, TopicFilter) else TopicFilter.of_one(topic)
        return messages_by_key(self.files, query, topics, most_bytes, self.events)

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
        """What an id means: a broker's offset id, else a unique key (see rmqctl.store.read.reader.find)."""

        return find(self.files, text, topic, None if scan else UNASKED_BYTES, self.events)

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

    def columns_in_queue_order(self, selection: Selection, needs: Columns) -> Iterator[MessageColumns | StoredMessage]:
        """The same in order of the queues: as columns with `needs` where units and log agree."""
        from rmqctl.store.read.queue_columns import columns_in_queue_order

        views = map(self.view, self._chosen_queues(selection))
        return columns_in_queue_order(views, selection, needs, self.events)

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


# Look messages up by key or id: in the index, and in the commitlog where the index does not reach or is damaged.
#
# The one place that decides which part of the commitlog an answer covers. What was not searched and damage that may
# hide a message are in `damaged`; damage of an index is not once the whole commitlog was searched instead.

UNASKED_BYTES = 64 * 1024 * 1024
"""Bytes of the commitlog after and between index files that a command searches without being asked to."""
# bytes of a place in the log that say whether anything was written there
_ENOUGH = 16
_WAYS = "--scan searches the commitlog; `rmqctl rebuild --index` makes one"


def messages_by_key(
    files: StoreFiles,
    query: KeyQuery,
    topics: TopicFilter,
    most_bytes: int | None,
    events: Events,
    also: Iterable[str] = (),
) -> QueryResult:
    """Return the newest messages of `topics` with the key of `query`, whose own topic counts for nothing.

    `most_bytes`: bytes of the commitlog to search where a sound index does not reach; None searches all that is needed,
    the whole commitlog where the index is missing or damaged. `also`: topics that the store may not name.

    NotIndexedError where most_bytes rules out the only way; UnreadableError.
    """
    log, criteria = files.log, query.criteria_of(topics)
    result = QueryResult()
    storage = storage_of(files, result.damaged)
    why = _ask_index(files, storage, query, criteria, result, most_bytes is None, also)
    if topics.only is None and not (why or result.messages or result.damaged or storage):
        # of topics without queues that are not configured the log alone knows
        unknown = {topic for topic, _ in ends_seen(log, END) if topics.matches(topic)} - {
            *_names(files, topics)[0],
            *also,
        }
        for name in sorted(unknown):
            _add_indexed(files, name, query, criteria, storage, result)
    result.leads = [one.physical_offset for one in result.damaged if one.physical_offset is not None]
    if result.damaged and not why:
        why = f"the index leads to damage ({result.damaged[0]})"
    is_partial = result.in_rocksdb and not _are_of_unique_key(result, query.key)
    is_all = bool(why) or is_partial
    spans = [(max(log.min_offset, 0), log.max_offset)] if is_all else unindexed_spans(log, files.index, storage)
    written = log.written_end()
    size = sum(max(0, min(end, written) - begin) for begin, end in spans)
    if most_bytes is None or (size <= most_bytes and not why):
        if why:
            events.noted(f"{why}: the whole commitlog is searched")
            result.damaged = [error for error in result.damaged if _may_hide(log, error)]
            result.is_whole = True
        # what the index covers is done
        events.passed(written - max(log.min_offset, 0) - size)
        _search_log(files, criteria, spans, query.limit, result, events)
    elif most_bytes > 0 and not result.damaged:
        partial = "the index is in a RocksDB, without messages that have no unique key" if is_partial else ""
        covered = (
            why
            or partial
            or f"{counted(size, 'byte')} of the commitlog, from offset {spans[0][0]} on, are not in the index"
        )
        result.damaged.append(NotIndexedError(covered, file=files.layout.index, hint=_WAYS))
    lost = files.lost_log()
    result.damaged += [*([] if lost is None else [lost]), *criteria.unsure_errors()]
    return result


def _are_of_unique_key(result: QueryResult, key: str) -> bool:
    """Return whether messages were found, all by their unique key, which other copies of them have, too."""
    return bool(result.messages) and all(one.properties().get(UNIQUE_KEY) == key for one in result.messages)


def _ask_index(
    files: StoreFiles,
    storage: MessageStorage | None,
    query: KeyQuery,
    criteria: Criteria,
    result: QueryResult,
    may_search: bool,
    also: Iterable[str],
) -> str:
    """Add what the index finds; return why it is not enough, empty if it is. NotIndexedError and UnreadableError
    without an index, unless the log may be searched."""
    try:
        if not files.index.files and not files.index.problems and storage is None:
            why = "the store has no index"
            if result.damaged and may_search:
                return "the index in RocksDB is damaged"
            if result.damaged:
                raise result.damaged[0]
            if may_search:
                return why
            raise NotIndexedError(why, file=files.layout.index, hint=_WAYS)
    except UnreadableError as error:
        if not may_search:
            raise
        return f"the index cannot be read ({error})"
    result.indexed = indexed_range(files.index)
    names, why = _names(files, criteria.topic_filter)
    for name in sorted({*names, *also}):
        _add_indexed(files, name, query, criteria, storage, result)
    return why


def _add_indexed(
    files: StoreFiles,
    topic: str,
    query: KeyQuery,
    criteria: Criteria,
    storage: MessageStorage | None,
    result: QueryResult,
) -> None:
    """Add what the index finds in a topic."""
    found = query_index(files.index, files.log, query._replace(topic=topic), criteria, storage)
    result.messages = newest_first((*result.messages, *found.messages))[: query.limit]
    known = set(map(str, result.damaged))
    result.damaged += [error for error in found.damaged if str(error) not in known]
    result.removed += found.removed
    result.in_rocksdb = result.in_rocksdb or found.in_rocksdb
    result.indexed = found.indexed
    result.topics += 1


def _names(files: StoreFiles, topics: TopicFilter) -> tuple[list[str], str]:
    """Return the topics to ask the index for, which finds a key by its topic; and why they may not be all."""
    if topics.only is not None:
        return [topics.only], ""
    why = "" if not files.log.files else "the store's topics are not all known without its queues"
    try:
        if files.queues.topics():
            why = ""
    except CorruptError:
        pass
    return [name for name in known_topics(files) if topics.matches(name) and is_safe_topic(name)], why


def _search_log(
    files: StoreFiles, criteria: Criteria, spans: list[tuple[int, int]], limit: int, result: QueryResult, events: Events
) -> None:
    """Add what the commitlog holds in [begin, end) of each span, and the damage there."""
    from rmqctl.store.read.select import Selection, in_log_order  # here: most lookups search no log

    heard = events._replace(damage=result.damaged.append)
    newest: deque[StoredMessage] = deque(maxlen=limit)
    for begin, end in spans:
        selection = Selection(criteria, begin, end)
        newest.extend(in_log_order(files.log, selection, heard, _frame_begin(files.log, begin)))
    every = {message.physical_offset: message for message in (*newest, *result.messages)}
    result.messages = newest_first(every.values())[:limit]


def _frame_begin(log: MappedFileQueue, offset: int) -> int | None:
    """Return the offset where a message begins there; None where what an index file says of it is wrong."""
    try:
        return message_at(log, offset).physical_offset
    except (CorruptError, NotFoundError):
        return None


def _may_hide(log: MappedFileQueue, error: CorruptError) -> bool:
    """Return whether damage of the index may hide a message from who reads the whole log: where an entry leads to
    nothing, because the end of the log is lost."""
    place = error.physical_offset
    if place is None or place < 0:
        return False
    try:
        message_at(log, place)
    except NotFoundError:
        return True
    except CorruptError:
        return not log.read(place, _ENOUGH).strip(b"\0")
    return False


# Messages by the id that people have in hand: a broker's offset id, or a unique key.

BY_OFFSET_ID = "offset id"
BY_UNIQUE_KEY = "unique key"


class FindResult(QueryResult):
    """What was found for an id: `how` is BY_OFFSET_ID or BY_UNIQUE_KEY.

    A unique key may be on several messages: retried, delayed and half messages keep that of the first one.
    """

    __slots__ = ("how",)

    def __init__(self, how: str, found: QueryResult) -> None:
        super().__init__()
        self.how = how
        for name in QueryResult.__slots__:
            setattr(self, name, getattr(found, name))


def find(files: StoreFiles, text: str, topic: str | None, most_bytes: int | None, events: Events) -> FindResult:
    """The message or messages that an id means: tried as a broker's offset id first, then as a unique key.

    Both kinds have the same length, so only trying tells. If neither is found, the more specific error is raised: that
    of the offset if the id can be an offset id, else that no message has the key. `most_bytes` as of `messages_by_key`.
    """
    offset_error: RmqctlError | None = None
    if may_be_offset_id(files, text):
        result = QueryResult()
        try:
            result.messages = [lookup_offset_id(files, text)]
            return FindResult(BY_OFFSET_ID, result)
        except (NotFoundError, CorruptError) as error:
            offset_error = error
    topics = TopicFilter() if topic is None else TopicFilter.of_one(topic)
    try:
        found = messages_by_key(files, KeyQuery("", text, limit=END_OF_TIME), topics, most_bytes, events)
    except (NotIndexedError, NotFoundError, UnsupportedError):
        if offset_error is not None:
            raise offset_error from None
        raise
    found.messages = [one for one in found.messages if one.properties().get(UNIQUE_KEY) == text]
    if not found.messages and offset_error is not None:
        raise offset_error
    return FindResult(BY_UNIQUE_KEY, found)
