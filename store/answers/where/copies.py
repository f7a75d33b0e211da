"""All stored messages with a key: through the index where it can be trusted, else by a walk over the log."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rmqctl.formats.errors import CorruptError, UnreadableError, UnsupportedError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.wording import counted
from rmqctl.store.answers.config_offsets import Say
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.queues.queue_table import has_rocksdb_queues
from rmqctl.store.read.key_query import KeyQuery, query_index, query_scan, unindexed_spans
from rmqctl.store.read.message_filter import Criteria
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import Selection, in_log_order
from rmqctl.store.read.topic_names import known_topics

# a key may be on any number of messages, and all of them would be kept in memory
_MOST = 10_000


@dataclass
class Copies:
    """Messages with a key. `damaged`: what may hide others, or is damage on the way to them. `removed`: index
    entries with the key's hash whose messages went with old files. `is_walked`: the whole log was searched."""

    messages: list[StoredMessage] = field(default_factory=list)
    damaged: list[CorruptError] = field(default_factory=list)
    removed: int = 0
    leads: list[int] = field(default_factory=list)
    """Where index entries with the key's hash lead to damage."""
    is_walked: bool = False


def usable_index(reader: StoreReader, tell: Say) -> IndexService | None:
    """The index, None where it cannot lead to every message, and why, which is told."""
    why = ""
    try:
        index = reader.files.index
    except UnreadableError as error:
        why = f"the index cannot be read ({error})"
    else:
        broken = [path for path, _ in index.problems if path.name.isdigit()]
        if broken:
            why = f"{counted(len(broken), 'index file')} cannot be used, such as {broken[0]}"
        elif not index.files:
            why = "there is no index"
        else:
            return index
    tell(f"{why}: the whole commitlog is searched")
    return None


def copies_with(reader: StoreReader, key: str, also: set[str], tell: Say, progress: Progress | None = None) -> Copies:
    """Every message with `key`, among its KEYS or as its unique key, in any topic; the topics `also` are asked for even
    if nothing else in the store names them. What the index does not cover is walked over, and all of the log where the
    index cannot be trusted or leads to damage. UnreadableError."""
    index = usable_index(reader, tell)
    topics = _topics(reader, tell) if index is not None else None
    if index is None or topics is None:
        return _walked(reader, key, tell, progress)
    found: dict[int, StoredMessage] = {}
    copies = Copies()
    log = reader.files.log
    for topic in sorted(topics | also):
        answer = query_index(index, log, KeyQuery(topic, key, limit=_MOST))
        found.update({message.physical_offset: message for message in answer.messages})
        if len(answer.messages) >= _MOST:
            _tell_cut(key, tell)
        copies.damaged += answer.damaged
        copies.removed += answer.removed
    if copies.damaged:
        tell(f"the index leads to damage ({copies.damaged[0]}): the whole commitlog is searched")
        walked = _walked(reader, key, tell, progress)
        walked.damaged = [*copies.damaged, *walked.damaged]
        walked.removed = copies.removed
        walked.leads = [one.physical_offset for one in copies.damaged if one.physical_offset is not None]
        return walked
    spans = unindexed_spans(log, index)
    more = query_scan(log, Criteria(key=key), _MOST, progress, spans, on_damage=copies.damaged.append)
    found.update({message.physical_offset: message for message in more})
    copies.messages = list(found.values())
    return copies


def _topics(reader: StoreReader, tell: Say) -> set[str] | None:
    """Topics to ask the index for; None, which is told, where nobody knows all of them: it finds a key by its topic."""
    try:
        topics = set(known_topics(reader.files))
        is_whole = not has_rocksdb_queues(reader.files.layout) and bool(reader.files.queues.topics())
    except UnsupportedError:
        topics, is_whole = set(), False
    if not is_whole:
        tell("the store's topics are not all known without its queues: the whole commitlog is searched")
        return None
    return {topic for topic in topics if is_safe_topic(topic)}


def _walked(reader: StoreReader, key: str, tell: Say, progress: Progress | None) -> Copies:
    copies = Copies(is_walked=True)
    selection = Selection(Criteria(key=key))
    found = in_log_order(reader.files.log, selection, copies.damaged.append, progress)
    copies.messages = list(deque(found, maxlen=_MOST))
    if len(copies.messages) == _MOST:
        _tell_cut(key, tell)
    return copies


def _tell_cut(key: str, tell: Say) -> None:
    tell(f"{_MOST} messages or more have the key {key!r}: only the newest of them are looked at")
