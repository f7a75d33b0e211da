"""Look messages up by key or id: in the index, and in the commitlog where the index does not reach or is damaged.

The one place that decides which part of the commitlog an answer covers. What was not searched and damage that may hide
a message are in `damaged`; damage of an index is not once the whole commitlog was searched instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqctl.formats.errors import (
    CorruptError,
    NotFoundError,
    RmqctlError,
    UnreadableError,
    UnsupportedError,
    counted,
)
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import UNIQUE_KEY
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.log.sampled import END, ends_seen
from rmqctl.store.options import Events
from rmqctl.store.read.filter import Criteria, TopicFilter, known_topics, newest_first
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

if TYPE_CHECKING:
    from rmqctl.store.files.mapped_file_queue import MappedFileQueue
    from rmqctl.store.rocksdb.message_storage import MessageStorage
    from rmqctl.store.store_files import StoreFiles

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
    files: StoreFiles,
    criteria: Criteria,
    spans: list[tuple[int, int]],
    limit: int,
    result: QueryResult,
    events: Events,
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
