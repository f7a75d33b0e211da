"""Messages by key: through the index where there is one, else by a scan of the log (DefaultMessageStore#queryMessage).

Unlike RocketMQ's store the key and the topic are compared on the message itself (RocketMQ leaves that to the client),
a message is given once however often it is indexed, and the time window is held against the message's own store time,
not against the index entry's, which is only good to the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats.checksums import key_hash, tag_key
from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, UnsupportedError, counted
from rmqctl.formats.hosts import is_message_id, parse_offset_message_id
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import TAGS, UNIQUE_KEY
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.index.index_file import IndexEntry, IndexFile
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.log.walk import Damage, walk
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.queues.dispatch import index_keys
from rmqctl.store.read.filter import Criteria, known_topics, newest_first
from rmqctl.store.read.frames import MessageRemovedError, explain_absence, message_at

if TYPE_CHECKING:
    from rmqctl.store.store_files import StoreFiles

DEFAULT_LIMIT = 32
BY_KEY, BY_TAG = "K", "T"
"""What a query asks for (MessageConst.INDEX_KEY_TYPE, INDEX_TAG_TYPE)."""
START_OF_TIME, END_OF_TIME = -(1 << 63), (1 << 63) - 1
"""No checksum covers a store time: after a flipped bit a message may have any, also one below 0."""
_REBUILD = "`rmqctl rebuild --index` makes the index anew from the commitlog; --scan does without it"


class NotIndexedError(NotFoundError):
    """The store has no index, so a key says nothing about where a message is: only a scan of the log finds it."""

    code = "RMQ-E-012"


class QueryResult:
    """Messages newest first. `damaged`: what stood in the way of a complete answer.

    `removed` counts index entries of messages that have been removed with their old commitlog files, which is no
    damage. `indexed`: physical offsets [begin, end] that the index covers, None without an index. `scanned` says
    whether the commitlog itself was searched, at least where the index does not reach.
    """

    __slots__ = ("damaged", "indexed", "messages", "removed", "scanned")

    def __init__(self, indexed: tuple[int, int] | None = None) -> None:
        self.messages: list[StoredMessage] = []
        self.damaged: list[CorruptError] = []
        self.removed = 0
        self.indexed = indexed
        self.scanned = False


class KeyQuery(NamedTuple):
    """What is asked for. Times in ms, both included; at most `limit` messages. `tags` and `grep` as of Criteria.

    `index_type`: BY_KEY, or BY_TAG for messages whose whole TAGS value is `key` (QUERY_MESSAGE's indexType).
    """

    topic: str
    key: str
    begin: int = START_OF_TIME
    end: int = END_OF_TIME
    limit: int = DEFAULT_LIMIT
    tags: str | None = None
    grep: str | None = None
    index_type: str = BY_KEY

    @property
    def criteria(self) -> Criteria:
        """The same for a scan."""
        begin, end = self.begin, self.end
        if self.index_type == BY_TAG:
            return _OfTag(self)
        return Criteria(self.topic, tags=self.tags, key=self.key, begin_time=begin, end_time=end, grep=self.grep)

    @property
    def hash(self) -> int:
        """The hash of the index entries that lead to the messages."""
        return key_hash(self.topic, tag_key(self.key) if self.index_type == BY_TAG else self.key)


class _OfTag(Criteria):
    """Takes the messages whose whole TAGS value is what the query asks for."""

    def __init__(self, query: KeyQuery) -> None:
        super().__init__(query.topic, tags=query.tags, begin_time=query.begin, end_time=query.end, grep=query.grep)
        self._tag = query.key

    def matches(self, message: StoredMessage) -> bool:
        """Return whether the message meets all criteria."""
        return message.properties().get(TAGS) == self._tag and super().matches(message)


def indexed_range(index: IndexService) -> tuple[int, int] | None:
    """Physical offsets of the first and last message that the index files say they hold; None without files."""
    filled = [file.header for file in index.files if file.header.index_count > 1]
    if not filled:
        return None
    return min(header.begin_physical_offset for header in filled), max(header.end_physical_offset for header in filled)


def query_index(
    index: IndexService, log: MappedFileQueue, query: KeyQuery, criteria: Criteria | None = None
) -> QueryResult:
    """Return messages of `query`, whose `criteria` these are, as the index knows them; NotIndexedError if there is no
    index file."""
    if not index.files and not index.problems:
        raise NotIndexedError(
            "the store has no index",
            file=index.directory,
            hint="--scan searches the whole commitlog; `rmqctl rebuild --index` makes an index",
        )
    result = QueryResult(indexed=indexed_range(index))
    for path, problem in index.problems:
        if path.name.isdigit():
            result.damaged.append(CorruptError(f"this index file cannot be used: {problem}", file=path, hint=_REBUILD))
    wanted = query.hash
    criteria = criteria or query.criteria
    seen: set[int] = set()
    for file in reversed(index.files):
        for entry in chain_entries(file, wanted, result.damaged):
            if len(result.messages) >= query.limit:
                break
            if entry.physical_offset in seen:
                continue
            seen.add(entry.physical_offset)
            message = entry_message(entry, file, log, wanted, result)
            if message is not None and criteria.matches(message):
                result.messages.append(message)
    # a file can begin with what an older one already held, so the order of the chains is not yet that of the log
    result.messages = newest_first(result.messages)
    return result


def chain_entries(file: IndexFile, wanted: int, damaged: list[CorruptError]) -> Iterator[IndexEntry]:
    """The entries of a file with hash `wanted`, newest first. What is wrong with their chain goes to `damaged`."""
    with file.hold() as held:
        if not held:  # removed, or about to be: its messages are gone already
            return
        slot = file.raw_slot(wanted)
        if not 0 <= slot <= file.header.index_count:
            damaged.append(
                CorruptError(
                    f"hash slot {wanted % file.geometry.slots} holds {slot}, which is no entry's number",
                    file=file.path,
                    hint=_REBUILD,
                )
            )
            return
        try:
            for entry in file.chain(wanted):
                if entry.key_hash == wanted:
                    yield entry
                elif not file.belongs(entry, wanted):
                    damaged.append(
                        CorruptError(
                            f"index entry {entry.number} is in a chain that its hash does not belong to",
                            file=file.path,
                            hint=_REBUILD,
                        )
                    )
        except CorruptError as error:
            damaged.append(error)


def entry_message(
    entry: IndexEntry, file: IndexFile, log: MappedFileQueue, wanted: int, result: QueryResult
) -> StoredMessage | None:
    """The message that an entry with hash `wanted` leads to; None if it was removed, or if the entry is wrong, both
    of which `result` is told."""
    place = entry.physical_offset
    if 0 <= place < log.min_offset and not log.empty_between(place, place + 1):
        result.removed += 1
        return None
    try:
        message = message_at(log, place)
    except MessageRemovedError:
        result.removed += 1
        return None
    except (CorruptError, NotFoundError) as error:
        result.damaged.append(
            CorruptError(
                f"index entry {entry.number} leads to no message: {error.message}",
                file=file.path,
                physical_offset=entry.physical_offset,
                hint=error.hint or _REBUILD,
            )
        )
        return None
    # another key with the same hash is a collision and normal; no key with that hash is a wrong entry
    if all(key_hash(message.topic, key) != wanted for key in index_keys(message, with_tags=True)):
        result.damaged.append(
            CorruptError(
                f"index entry {entry.number} points at a message that has no such key",
                file=file.path,
                physical_offset=entry.physical_offset,
                hint=_REBUILD,
            )
        )
        return None
    return message


def query_scan(
    log: MappedFileQueue,
    criteria: Criteria,
    limit: int,
    events: Events = UNHEARD,
    spans: list[tuple[int, int]] | None = None,
) -> list[StoredMessage]:
    """The newest `limit` messages of the commitlog that meet `criteria`, newest first; only within `spans` if given.

    A span is [begin, end) in physical offsets. Damaged spans of the log are reported.
    """
    found: list[StoredMessage] = []
    for begin, end in spans if spans is not None else [(0, END_OF_TIME)]:
        for record in walk(log, begin, progress=events.progress):
            if record.physical_offset >= end:
                break
            if isinstance(record, StoredMessage):
                if criteria.matches(record):
                    found.append(record)
                    if len(found) >= 2 * limit:
                        found = newest_first(found)[:limit]
            elif isinstance(record, Damage):
                events.damaged(damage_error(record))
    return newest_first(found)[:limit]


def damage_error(damage: Damage) -> CorruptError:
    """A damaged span of the walk as an error to report."""
    return CorruptError(
        f"damaged up to {damage.end} ({counted(damage.end - damage.physical_offset, 'byte')}): {damage.detail}",
        file=damage.file,
        physical_offset=damage.physical_offset,
    )


def uncovered_spans(log: MappedFileQueue, indexed: tuple[int, int] | None) -> list[tuple[int, int]]:
    """Spans of the commitlog that the index does not cover, older first. Its last message is taken in once more."""
    begin, end = max(log.min_offset, 0), log.max_offset
    if indexed is None:
        return [(begin, end)] if begin < end else []
    spans = [(begin, min(indexed[0], end)), (max(indexed[1], begin), end)]
    return [span for span in spans if span[0] < span[1]]


def unindexed_spans(log: MappedFileQueue, index: IndexService) -> list[tuple[int, int]]:
    """Spans of the commitlog that no index file says it covers: before, between and behind them, the older first."""
    end = log.max_offset
    spans: list[tuple[int, int]] = []
    covered = max(log.min_offset, 0)
    for header in sorted((file.header for file in index.files), key=lambda one: one.begin_physical_offset):
        if header.index_count <= 1:
            continue
        spans.append((covered, min(header.begin_physical_offset, end)))
        covered = max(covered, header.end_physical_offset)
    return [span for span in (*spans, (covered, end)) if span[0] < span[1]]


def entries_of(index: IndexService, topic: str, key: str, damaged: list[CorruptError]) -> Iterator[IndexEntry]:
    """What the index has for a key of a topic, newest file first; other keys with the same hash are among it. What is
    in the way goes to `damaged`."""
    wanted = key_hash(topic, key)
    for file in reversed(index.files):
        yield from chain_entries(file, wanted, damaged)


# Single messages by what people have in hand: a physical offset, an offset id, a unique key, or just "some id".

BY_OFFSET_ID = "offset id"
BY_UNIQUE_KEY = "unique key"
_LARGEST_PORT = 65535


class FindResult:
    """What was found for an id: `how` is BY_OFFSET_ID or BY_UNIQUE_KEY; messages newest first.

    A unique key may be on several messages: retried, delayed and half messages keep that of the first one.
    `topics`: how many topics were asked for in the index. `scanned`: the commitlog itself was searched.
    """

    __slots__ = ("damaged", "how", "messages", "scanned", "topics")

    def __init__(self, how: str, messages: list[StoredMessage]) -> None:
        self.how = how
        self.messages = messages
        self.damaged: list[CorruptError] = []
        self.topics = 0
        self.scanned = False


def lookup(files: StoreFiles, physical_offset: int) -> StoredMessage:
    """The message whose frame starts exactly at `physical_offset`, good by law 3.

    Otherwise NotFoundError (before, behind or between messages, naming the frame it lies in) or CorruptError.
    """
    try:
        return message_at(files.log, physical_offset)
    except CorruptError as error:
        raise explain_absence(files.log, physical_offset) from error


def lookup_offset_id(files: StoreFiles, text: str) -> StoredMessage:
    """The message with that broker id. UsageError if the id is malformed, else as `lookup`.

    The store host in the id is held against the message's: an id of another broker is no id of this store, although
    RocketMQ's own store would answer it.
    """
    host, physical_offset = parse_offset_message_id(text)
    message = lookup(files, physical_offset)
    if message.store_host != host:
        raise NotFoundError(
            f"the id is of broker {host}, the message at its offset was stored by {message.store_host}",
            physical_offset=physical_offset,
            hint=f"`rmqctl query -o {physical_offset}` shows that message",
        )
    return message


def may_be_offset_id(files: StoreFiles, text: str) -> bool:
    """Whether `text` reads as a broker id whose port exists and whose offset is not behind the commitlog."""
    if not is_message_id(text):
        return False
    host, physical_offset = parse_offset_message_id(text)
    return 0 < host.port <= _LARGEST_PORT and 0 <= physical_offset < max(files.log.max_offset, 1)


def find_unique(
    files: StoreFiles, unique_key: str, topic: str | None = None, *, scan: bool = False, events: Events = Events()
) -> FindResult:
    """Messages with that unique key, through the index for `topic`, or for every known topic.

    NotIndexedError without an index, unless `scan` allows to search the commitlog. The result may be empty.
    """
    result = FindResult(BY_UNIQUE_KEY, [])
    try:
        topics = [topic] if topic is not None else known_topics(files)
        for name in topics:
            answer = query_index(files.index, files.log, KeyQuery(name, unique_key, limit=END_OF_TIME))
            result.messages += [message for message in answer.messages if _is_unique_key(message, unique_key)]
            result.damaged += [error for error in answer.damaged if str(error) not in map(str, result.damaged)]
        result.topics = len(topics)
        result.messages = newest_first(result.messages)
    except (NotIndexedError, UnsupportedError):
        if not scan:
            raise
    if scan and not result.messages:
        result.scanned = True
        criteria = Criteria(topic=topic, key=unique_key)
        heard = events._replace(damage=result.damaged.append)
        found = query_scan(files.log, criteria, END_OF_TIME, heard)
        result.messages = [message for message in found if _is_unique_key(message, unique_key)]
    return result


def _is_unique_key(message: StoredMessage, unique_key: str) -> bool:
    return message.properties().get(UNIQUE_KEY) == unique_key


def find(
    files: StoreFiles, text: str, topic: str | None = None, *, scan: bool = False, events: Events = Events()
) -> FindResult:
    """The message or messages that an id means: tried as a broker's offset id first, then as a unique key.

    Both kinds have the same length, so only trying tells. Where neither is found, the better founded of the two
    errors is raised: what stands at the offset if the id can be an offset id, else that no message has the key.
    """
    offset_error: RmqctlError | None = None
    if may_be_offset_id(files, text):
        try:
            return FindResult(BY_OFFSET_ID, [lookup_offset_id(files, text)])
        except (NotFoundError, CorruptError) as error:
            offset_error = error
    try:
        result = find_unique(files, text, topic, scan=scan, events=events)
    except (NotFoundError, UnsupportedError):
        if offset_error is not None:
            raise offset_error from None
        raise
    if not result.messages and offset_error is not None:
        raise offset_error
    return result
