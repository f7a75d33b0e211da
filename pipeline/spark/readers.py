"""How each view is read: its tasks, as plain data, and the batches of one task. Consumer offsets and topics are read
here as rows: what the broker's configuration says, beside what queues and log show; so are messages
that only copies have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, UnreadableError, UnsupportedError, UsageError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import (
    TRANSACTION_NAMES,
    compression_name,
    encode_properties,
    split_keys,
    transaction_type,
)
from rmqctl.pipeline.queue_pruning import span_columns, spans_to_read
from rmqctl.pipeline.spark.planning import columns_of, entry_columns, index_parts, queue_parts, queue_sums, unit_columns
from rmqctl.pipeline.splits import Split
from rmqctl.pipeline.views import TABLES
from rmqctl.store.answers.unread import CopyPart, copy_parts, messages_of_copy
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.config.config_files import read_config
from rmqctl.store.info.counts import count_topics, is_large
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.log.walk import Progress
from rmqctl.store.native.tables import Columns
from rmqctl.store.options import Events
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.store_files import StoreFiles

# The view `copied_messages`: rows of messages that only a compaction log or tiered storage has.

_OF_PROPERTIES = frozenset(("unique_key", "tags", "keys", "properties", "stored_properties"))
_OF_BODY = frozenset(("body", "body_size", "body_error", "stored_body"))


def copied_rows(files: StoreFiles, part: CopyPart, columns: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield a row of each whole message of a part, with `columns` at least. Errors as `messages_of_copy`."""
    for message in messages_of_copy(files, part):
        row: dict[str, Any] = {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "size": message.total_size,
            "store_timestamp": message.store_timestamp,
            "born_timestamp": message.born_timestamp,
            "store_host": str(message.store_host),
            "born_host": str(message.born_host),
            "sys_flag": message.sys_flag,
            "flag": message.flag,
            "transaction": TRANSACTION_NAMES[transaction_type(message.sys_flag)],
            "compression": compression_name(message.sys_flag),
            "body_crc": message.body_crc,
            "crc_ok": True,
            "reconsume_times": message.reconsume_times,
            "prepared_transaction_offset": message.prepared_transaction_offset,
            "copy": part.kind,
        }
        if not _OF_PROPERTIES.isdisjoint(columns):
            row |= _properties(message)
        if not _OF_BODY.isdisjoint(columns):
            row |= _body(message)
        yield row


def _properties(message: StoredMessage) -> dict[str, Any]:
    found = message.properties()
    is_lost = encode_properties(found) != message.property_bytes
    return {
        "unique_key": found.get(names.UNIQUE_KEY),
        "tags": found.get(names.TAGS),
        "keys": split_keys(found.get(names.KEYS)),
        "properties": list(found.items()),
        "stored_properties": message.property_bytes if is_lost else None,
    }


def _body(message: StoredMessage) -> dict[str, Any]:
    stored = None if compression_name(message.sys_flag) is None else message.body
    try:
        body, error = message.plain_body(), None
    except (CorruptError, UnsupportedError) as problem:
        body, error = message.body, problem.message
    return {"body": body, "body_size": len(body), "body_error": error, "stored_body": stored}


_Row = dict[str, Any]

_SEPARATOR = "@"  # ConsumerOffsetManager#TOPIC_GROUP_SEPARATOR
_OF_QUEUES = frozenset(("queues", "queue_messages", "queue_bytes"))
_COUNTS_OF_LOG = ("log_queues", "log_messages", "log_bytes")
_OF_LOG = frozenset((*_COUNTS_OF_LOG, "first_store_timestamp", "last_store_timestamp"))
_LARGEST_INT = 0x7FFFFFFF


def offset_rows(files: StoreFiles) -> Iterator[_Row]:
    """Rows of the view `consumer_offsets`; none without the file. CorruptError, UnreadableError where it is no good."""
    path = files.layout.config / "consumerOffset.json"
    content = read_config(path)
    if content is None:
        return
    table = content.get("offsetTable") if isinstance(content, dict) else None
    if not isinstance(table, dict):
        raise CorruptError("has no offsetTable", file=path, hint="its backup .bak may be whole")
    minimum = max(files.log.min_offset, 0)
    for key, offsets in table.items():
        topic, separator, group = str(key).partition(_SEPARATOR)
        for queue_id, offset in offsets.items() if isinstance(offsets, dict) else ():
            numbers = _numbers(queue_id, offset)
            if not separator or numbers is None:
                continue
            row: _Row = {"consumer_group": group, "topic": topic, "queue_id": numbers[0], "consumer_offset": numbers[1]}
            queue = _queue(files, topic, numbers[0])
            if queue is not None:
                begin, end = queue.min_offset(minimum), queue.max_offset
                row["min_offset"], row["max_offset"] = begin, end
                # past the end, as after a loss, a group has no lag that is known
                row["lag"] = end - max(begin, numbers[1]) if numbers[1] <= end else None
            yield row


def _numbers(queue_id: object, offset: object) -> tuple[int, int] | None:
    """Queue id and offset, None unless both are numbers that a broker could load."""
    try:
        queue, position = int(str(queue_id)), int(str(offset))
    except ValueError:
        return None
    return (queue, position) if abs(queue) <= _LARGEST_INT and -(1 << 63) <= position < 1 << 63 else None


def _queue(files: StoreFiles, topic: str, queue_id: int) -> AnyConsumeQueue | None:
    if queue_id < 0:
        return None
    try:
        return files.queues.find_any(topic, queue_id)
    except (UnsupportedError, UsageError):  # in a RocksDB; a topic that cannot be a directory
        return None


def topic_view_rows(files: StoreFiles, columns: Collection[str], events: Events = Events()) -> Iterator[_Row]:
    """Rows of the view `topics`, by name, whole for `columns`.

    The log is walked for columns about it; else of a large one only what no queue names, as topics may be found there.
    """
    rows: dict[str, _Row] = {}

    def row_of(topic: str) -> _Row:
        return rows.setdefault(topic, {"topic": topic})

    configured = _configured(files)
    for topic, settings in (configured or {}).items():
        row_of(topic).update(_settings(settings))
    queues = _queues(files)
    for queue in queues or ():
        row = row_of(queue.topic)
        row["queues"] = row.get("queues", 0) + 1
        if not _OF_QUEUES.isdisjoint(columns):
            sums = queue_sums(queue, max(files.log.min_offset, 0))
            row["queue_messages"] = row.get("queue_messages", 0) + sums.messages
            row["queue_bytes"] = row.get("queue_bytes", 0) + sums.bytes
    unqueued = _unqueued_topics(files, events) if _OF_LOG.isdisjoint(columns) else None
    for topic in unqueued or ():
        row_of(topic)
    # which messages are good is known by a walk over the log only
    for topic, numbers in (count_topics(files.log, events) if unqueued is None else {}).items():
        row_of(topic).update(
            log_queues=len(numbers.queue_ids),
            log_messages=numbers.messages,
            log_bytes=numbers.bytes,
            first_store_timestamp=numbers.first_store_timestamp,
            last_store_timestamp=numbers.last_store_timestamp,
        )
    for topic in sorted(rows):
        row = rows[topic]
        row["is_configured"] = None if configured is None else topic in configured
        for name in _OF_QUEUES if queues is not None else ():
            row.setdefault(name, 0)
        for name in _COUNTS_OF_LOG if unqueued is None else ():
            row.setdefault(name, 0)
        yield row


def _unqueued_topics(files: StoreFiles, events: Events) -> set[str] | None:
    """Topics of the messages that no queue names; None where that takes no less than a walk over the log."""
    log = files.log
    if not is_large(log):
        return None
    split = Split(str(files.root), files.config, max(log.min_offset, 0), log.max_offset)
    spans = spans_to_read(files, split.begin, split.end, lambda *_: None)
    if spans is None:
        return None
    found: set[str] = set()
    for record in span_columns(files, split, spans, columns=Columns.TOPIC):
        if isinstance(record, MessageColumns):
            found.update(record.topics.names[number] for number in np.unique(record.topic_id).tolist())
    events.passed(split.end - split.begin)
    return found


def _configured(files: StoreFiles) -> Mapping[str, Any] | None:
    """Topics of topics.json with their settings; none without the file, None where it cannot be read."""
    try:
        content = read_config(files.layout.config / "topics.json")
    except (CorruptError, UnreadableError):
        return None
    if content is None:
        return {}
    table = content.get("topicConfigTable") if isinstance(content, dict) else None
    return {str(name): settings for name, settings in table.items()} if isinstance(table, dict) else None


def _settings(settings: object) -> _Row:
    if not isinstance(settings, dict):
        return {}
    attributes = settings.get("attributes")
    kind = attributes.get("message.type") if isinstance(attributes, dict) else None
    return {
        "read_queue_nums": _small(settings.get("readQueueNums")),
        "write_queue_nums": _small(settings.get("writeQueueNums")),
        "perm": _small(settings.get("perm")),
        "message_type": kind if isinstance(kind, str) else None,
    }


def _small(value: object) -> int | None:
    return value if type(value) is int and abs(value) <= _LARGEST_INT else None


def _queues(files: StoreFiles) -> list[AnyConsumeQueue] | None:
    """All queues, None where they lie in a RocksDB."""
    try:
        return [*files.queues.all(), *files.queues.light()]
    except UnsupportedError:
        return None


_Arrays = Mapping[str, pa.Array]

_ROWS = 10_000


class TableReader(NamedTuple):
    """`parts`: what tasks are about, each picklable. `batches`: all columns of the view, or at least the requested
    ones, of one part; the second argument is a part, the third the requested columns, and the last gets the bytes of
    the log that were passed, if it is walked."""

    parts: Callable[[StoreFiles], Sequence[Any]]
    batches: Callable[[StoreFiles, Any, Sequence[str], Progress | None], Iterator[_Arrays]]


def row_columns(view: str, rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Iterator[_Arrays]:
    """Rows of a view as columns `names`, some thousand rows at a time."""
    kinds = {name: TABLES[view].columns[name].kind for name in names}
    page: list[Mapping[str, Any]] = []
    for row in rows:
        page.append(row)
        if len(page) >= _ROWS:
            yield columns_of(page, kinds)
            page = []
    if page:
        yield columns_of(page, kinds)


def finding_rows(found: Iterable[Finding]) -> Iterator[Mapping[str, Any]]:
    """Rows of the view `findings`."""
    for finding in found:
        row = finding.row()
        yield {**row, **{name: None if row[name] is None else str(row[name]) for name in ("expected", "found")}}


def _checked(files: StoreFiles, events: Events) -> Iterable[Finding]:
    from rmqctl.store.check.check import check

    return check(files, events=events)


def _one_task(files: StoreFiles) -> Sequence[Any]:
    return [None]


READERS: dict[str, TableReader] = {
    "copied_messages": TableReader(
        copy_parts, lambda files, part, names, _: row_columns("copied_messages", copied_rows(files, part, names), names)
    ),
    "consumequeue": TableReader(queue_parts, lambda files, part, *_: unit_columns(files, part)),
    "index_entries": TableReader(index_parts, lambda files, part, *_: entry_columns(files, part)),
    "consumer_offsets": TableReader(
        _one_task, lambda files, _, names, __: row_columns("consumer_offsets", offset_rows(files), names)
    ),
    "topics": TableReader(
        _one_task,
        lambda files, _, names, told: row_columns("topics", topic_view_rows(files, names, Events(told)), names),
    ),
    "findings": TableReader(
        _one_task,
        lambda files, _, names, told: row_columns("findings", finding_rows(_checked(files, Events(told))), names),
    ),
}
"""Every view but `messages`, which is read by splits of the log."""
