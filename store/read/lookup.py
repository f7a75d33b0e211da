"""Single messages by what people have in hand: a physical offset, an offset id, a unique key, or just "some id"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, UnsupportedError
from rmqctl.formats.hosts import is_message_id, parse_offset_message_id
from rmqctl.formats.message import StoredMessage
from rmqctl.store.read.frames import explain_absence, message_at

if TYPE_CHECKING:
    # a lookup by physical offset must stay short: queues and index are imported where they are needed
    from rmqctl.store.commitlog.walk import Progress
    from rmqctl.store.store_files import StoreFiles

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
    files: StoreFiles,
    unique_key: str,
    topic: str | None = None,
    *,
    scan: bool = False,
    progress: Progress | None = None,
) -> FindResult:
    """Messages with that unique key, through the index for `topic`, or for every known topic.

    NotIndexedError without an index, unless `scan` allows to search the commitlog. The result may be empty.
    """
    from rmqctl.store.read.key_query import END_OF_TIME, KeyQuery, NotIndexedError, query_index, query_scan
    from rmqctl.store.read.message_filter import Criteria, newest_first
    from rmqctl.store.read.topic_names import known_topics

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
        found = query_scan(files.log, criteria, END_OF_TIME, progress, on_damage=result.damaged.append)
        result.messages = [message for message in found if _is_unique_key(message, unique_key)]
    return result


def _is_unique_key(message: StoredMessage, unique_key: str) -> bool:
    from rmqctl.formats.properties import UNIQUE_KEY

    return message.properties().get(UNIQUE_KEY) == unique_key


def find(
    files: StoreFiles,
    text: str,
    topic: str | None = None,
    *,
    scan: bool = False,
    progress: Progress | None = None,
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
        result = find_unique(files, text, topic, scan=scan, progress=progress)
    except (NotFoundError, UnsupportedError):
        if offset_error is not None:
            raise offset_error from None
        raise
    if not result.messages and offset_error is not None:
        raise offset_error
    return result
