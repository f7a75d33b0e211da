"""Messages by key, through the index (DefaultMessageStore#queryMessage; by_key.py also searches the log), and by id.

Unlike RocketMQ's store the key and the topic are compared on the message itself (RocketMQ leaves that to the client),
a message is given once however often it is indexed, and the time window is held against the message's own store time,
not against the index entry's, which is only good to the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats.checksums import key_hash, tag_key
from rmqctl.formats.errors import CorruptError, NotFoundError, UncertainError, counted
from rmqctl.formats.message import StoredMessage, is_message_id, parse_offset_message_id
from rmqctl.formats.notebook import as_html
from rmqctl.formats.properties import TAGS, UNIQUE_KEY
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.index.index_file import IndexEntry, IndexFile
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.log.walk import Damage, message_if_any
from rmqctl.store.queues.dispatch import index_keys
from rmqctl.store.read.filter import Criteria, TopicFilter, newest_first
from rmqctl.store.read.frames import MessageRemovedError, explain_absence, message_at

if TYPE_CHECKING:
    from rmqctl.store.rocksdb.message_storage import MessageStorage
    from rmqctl.store.store_files import StoreFiles

DEFAULT_LIMIT = 32
BY_KEY, BY_TAG = "K", "T"
"""What a query asks for (MessageConst.INDEX_KEY_TYPE, INDEX_TAG_TYPE)."""
START_OF_TIME, END_OF_TIME = -(1 << 63), (1 << 63) - 1
"""No checksum covers a store time: after a flipped bit a message may have any, also one below 0."""
_REBUILD = "`rmqctl rebuild --index` rebuilds it from the commitlog; --scan searches without it"


class NotIndexedError(UncertainError):
    """The index is missing, or does not cover all of the commitlog: a key cannot be looked up without `scan`."""

    code = "RMQ-E-012"


class QueryResult:
    """Messages newest first. `damaged`: what stood in the way of a complete answer.

    `in_rocksdb`: the index of `rocksdbstore/` was asked, which has no message without a unique key.
    `removed` counts index entries of messages that have been removed with their old commitlog files, which is no
    damage. `indexed`: physical offsets [begin, end] that the index covers, None without an index. `topics`: the number
    of topics that it was asked for. `is_whole`: all of the commitlog was searched. `leads`: physical offsets of
    entries with the key's hash that lead to no such message.
    """

    _repr_html_ = as_html

    __slots__ = ("damaged", "in_rocksdb", "indexed", "is_whole", "leads", "messages", "removed", "topics")

    def __init__(self, indexed: tuple[int, int] | None = None) -> None:
        self.messages: list[StoredMessage] = []
        self.damaged: list[CorruptError] = []
        self.removed = 0
        self.indexed = indexed
        self.topics = 0
        self.is_whole = False
        self.in_rocksdb = False
        self.leads: list[int] = []

    def notebook_fields(self) -> dict[str, object]:
        """What a notebook shows of it."""
        return {name: getattr(self, name) for name in ("messages", "damaged", "removed", "indexed", "is_whole")}


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
        """The same for a search of the log."""
        return self.criteria_of(TopicFilter.of_one(self.topic))

    def criteria_of(self, topics: TopicFilter) -> Criteria:
        """The same in other topics."""
        if self.index_type == BY_TAG:
            return _OfTag(self, topics)
        return Criteria(topics, None, self.tags, self.key, self.begin, self.end, grep=self.grep)

    @property
    def hash(self) -> int:
        """The hash of the index entries that lead to the messages."""
        return key_hash(self.topic, tag_key(self.key) if self.index_type == BY_TAG else self.key)


class _OfTag(Criteria):
    """Takes the messages whose whole TAGS value is what the query asks for."""

    def __init__(self, query: KeyQuery, topics: TopicFilter) -> None:
        super().__init__(topics, tags=query.tags, begin_time=query.begin, end_time=query.end, grep=query.grep)
        self._tag = query.key

    @property
    def needs_properties(self) -> bool:
        """Return True: the tag is one of them."""
        return True

    def matches_properties(self, properties: dict[str, str]) -> bool:
        """Return whether the tag is the one asked for, and the rest fits."""
        return properties.get(TAGS) == self._tag and super().matches_properties(properties)


def indexed_range(index: IndexService) -> tuple[int, int] | None:
    """Physical offsets of the first and last message that the index files say they hold; None without files."""
    filled = [file.header for file in index.files if file.header.index_count > 1]
    if not filled:
        return None
    return min(header.begin_physical_offset for header in filled), max(header.end_physical_offset for header in filled)


def query_index(
    index: IndexService,
    log: MappedFileQueue,
    query: KeyQuery,
    criteria: Criteria | None = None,
    storage: MessageStorage | None = None,
) -> QueryResult:
    """Return messages of `query`, whose `criteria` these are, as the index files know them, and the index in `storage`
    (`storage_of`); NotIndexedError if there is no index."""
    if not index.files and not index.problems and storage is None:
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
    if storage is not None:
        _query_storage(storage, log, query, criteria, result)
    # a file can begin with what an older one already held, so the order of the chains is not yet that of the log
    result.messages = newest_first(result.messages)[: query.limit]
    return result


# The index in rocksdbstore/ (indexRocksDBEnable): entries by hour, topic and key, of messages with a unique key.


def storage_of(files: StoreFiles, damaged: list[CorruptError]) -> MessageStorage | None:
    """Return `rocksdbstore/` where it has keys that no index file has: a broker writes either, or both, and reads the
    files while indexFileReadEnable is on. Its damage goes to `damaged` if there is no index file. UnreadableError.
    """
    index = files.index
    found: list[CorruptError] = []
    try:
        storage = files.message_storage
        reached = None if storage is None else storage.indexed_to(found.append)
    except CorruptError as error:
        damaged += [] if index.files or index.problems else [_of_storage(error)]
        return None
    covered = indexed_range(index)
    if (
        storage is None
        or (reached is None and not found)
        or (covered is None and not found and not storage.has_index())
    ):
        return None
    return storage if covered is None or (reached is not None and covered[1] < reached) else None


def storage_range(storage: MessageStorage, log: MappedFileQueue) -> tuple[int, int] | None:
    """Return the physical offsets of the first and last message that the index in `storage` is known to hold.

    It is written in the order of the log: it covers all from the first commitlog file on whose first message it has.
    """
    reached = storage.indexed_to()
    if reached is None:
        return None
    for file in log.files:
        first = message_if_any(log, file.start_offset)
        key = None if first is None else first.properties().get(UNIQUE_KEY)
        if first is not None and key and storage.has(first.topic, key, first.physical_offset, first.store_timestamp):
            return first.physical_offset, max(reached, first.physical_offset)
    return None


def _of_storage(error: CorruptError) -> CorruptError:
    """The same without an offset: that is one in a file of the database, and not in the log."""
    return CorruptError(error.message, file=error.file, hint=error.hint or _REBUILD)


def _query_storage(
    storage: MessageStorage, log: MappedFileQueue, query: KeyQuery, criteria: Criteria, result: QueryResult
) -> None:
    result.in_rocksdb = True

    def report(error: CorruptError) -> None:
        result.damaged.append(_of_storage(error))

    try:
        covered = storage_range(storage, log)
    except CorruptError as error:
        report(error)
        return
    if covered is not None:
        known = result.indexed or covered
        result.indexed = min(known[0], covered[0]), max(known[1], covered[1])
    seen = {message.physical_offset for message in result.messages}
    of_files = len(seen)
    for places in storage.find(query.topic, query.index_type, query.key, query.begin, query.end, report):
        for place in places:
            if len(result.messages) - of_files >= query.limit:
                return
            if place not in seen:
                message = _indexed_message(place, log, result, "entry of the RocksDB index", storage.folder)
                if message is not None and criteria.matches(message):
                    result.messages.append(message)


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
    """Return the message of an entry with hash `wanted`; None if it was removed, or if the entry is wrong, and `result`
    then records it."""
    message = _indexed_message(entry.physical_offset, log, result, f"index entry {entry.number}", file.path)
    if message is None:
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


def _indexed_message(
    place: int, log: MappedFileQueue, result: QueryResult, entry: str, file: Path
) -> StoredMessage | None:
    if 0 <= place < log.min_offset and not log.empty_between(place, place + 1):
        result.removed += 1
        return None
    try:
        return message_at(log, place)
    except MessageRemovedError:
        result.removed += 1
    except (CorruptError, NotFoundError) as error:
        result.damaged.append(
            CorruptError(
                f"{entry} leads to no message: {error.message}",
                file=file,
                physical_offset=place,
                hint=error.hint or _REBUILD,
            )
        )
    return None


def damage_error(damage: Damage) -> CorruptError:
    """A damaged span of the walk as an error to report."""
    return CorruptError(
        f"damaged up to {damage.end} ({counted(damage.end - damage.physical_offset, 'byte')}): {damage.detail}",
        file=damage.file,
        physical_offset=damage.physical_offset,
    )


def unindexed_spans(
    log: MappedFileQueue, index: IndexService, storage: MessageStorage | None = None
) -> list[tuple[int, int]]:
    """Spans of the commitlog that no index says it covers: before, between and behind the files, the older first."""
    end = log.max_offset
    covers = [header for header in (file.header for file in index.files) if header.index_count > 1]
    known = [(header.begin_physical_offset, header.end_physical_offset) for header in covers]
    in_storage = None if storage is None else storage_range(storage, log)
    spans: list[tuple[int, int]] = []
    covered = max(log.min_offset, 0)
    for first, last in sorted([*known, *([in_storage] if in_storage is not None else [])]):
        spans.append((covered, min(first, end)))
        covered = max(covered, last)
    return [span for span in (*spans, (covered, end)) if span[0] < span[1]]


def entries_of(index: IndexService, topic: str, key: str, damaged: list[CorruptError]) -> Iterator[IndexEntry]:
    """What the index has for a key of a topic, newest file first; other keys with the same hash are among it. What is
    in the way goes to `damaged`."""
    wanted = key_hash(topic, key)
    for file in reversed(index.files):
        yield from chain_entries(file, wanted, damaged)


# Single messages by what people have in hand: a physical offset, an offset id, a unique key, or just "some id".

_LARGEST_PORT = 65535


def lookup(files: StoreFiles, physical_offset: int) -> StoredMessage:
    """The message whose frame starts exactly at `physical_offset`, good by law 3.

    Otherwise NotFoundError (before, after or between messages, with the frame around it) or CorruptError.
    """
    try:
        return message_at(files.log, physical_offset)
    except CorruptError as error:
        raise explain_absence(files.log, physical_offset) from error
    except NotFoundError as error:
        raise files.lost_log() or error from None


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
