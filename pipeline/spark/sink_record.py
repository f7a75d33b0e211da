"""What a store remembers of writes: the one that has begun, and the last micro-batch of each query. It is in the
store's config folder, so that it is copied and moved with the store; brokers do not read it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.formats.errors import CorruptError, UnreadableError, UsageError
from rmqctl.network.broker.members import system_topics
from rmqctl.network.broker.settings import BrokerIdentity, BrokerSettings
from rmqctl.network.topic_config import TopicConfig, topic_from_bean
from rmqctl.pipeline.engine import attempt
from rmqctl.pipeline.views import BIGINT, BINARY, INT, STRING, TABLES, TIMESTAMP
from rmqctl.store.config.config_files import next_version, read_config, write_config
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.outputs import OutputFile, clear_left_behind, left_behind
from rmqctl.store.files.reading import is_file, read_small_file
from rmqctl.store.queues.consumequeue import BatchConsumeQueue
from rmqctl.store.queues.dispatch import LMQ_PREFIX
from rmqctl.store.store_files import StoreFiles

FILE = "rmqctlWrites.json"
_FORMAT = 1
_LARGEST = 16 * 1024 * 1024


class MicroBatch(NamedTuple):
    """Which micro-batch of which query a write is."""

    query: str
    batch_id: int


class StoredBatch(NamedTuple):
    """The last micro-batch of a query: its messages stand at physical offsets [begin, end), with others perhaps."""

    batch_id: int
    begin: int
    end: int


class BegunWrite(NamedTuple):
    """A write that has begun, and has not ended unless its process is still at it.

    `process`: its id, which is in the store's `abort` while it writes. `lock_time`: when `lock` was changed last, ns
    since 1970. `begin`: where the log ended before; None while the store is being opened, and nothing was put. `end`:
    where it ended when all was put and on disk; None before. `topics`: how many queues each needs. `batch`: of streams.
    """

    process: int
    lock_time: int | None = None
    begin: int | None = None
    end: int | None = None
    topics: Mapping[str, int] = {}
    batch: MicroBatch | None = None


class WriteRecord(NamedTuple):
    """All of it. `queries`: by name."""

    begun: BegunWrite | None = None
    queries: Mapping[str, StoredBatch] = {}

    def ended(self) -> WriteRecord:
        """The record once the write that has begun is complete: nothing of it stays but that of a stream."""
        begun = self.begun
        if begun is None or begun.batch is None or begun.begin is None or begun.end is None:
            return self._replace(begun=None)
        stored = StoredBatch(begun.batch.batch_id, begun.begin, begun.end)
        return WriteRecord(None, {**self.queries, begun.batch.query: stored})


def record_path(layout: StoreLayout) -> Path:
    """Return the path of a store's record."""
    return layout.config / FILE


def read_record(layout: StoreLayout) -> WriteRecord:
    """The record of a store; an empty one without the file. CorruptError, UnreadableError."""
    path = record_path(layout)
    try:
        content = json.loads(read_small_file(path, _LARGEST))
    except FileNotFoundError:
        return WriteRecord()
    except ValueError as error:
        raise _damaged(path) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise _damaged(path)
    try:
        queries = {name: StoredBatch(**one) for name, one in content["queries"].items()}
        return WriteRecord(_begun(content["begun"]), queries)
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(path) from error


def _begun(content: dict[str, Any] | None) -> BegunWrite | None:
    if content is None:
        return None
    batch = content["batch"]
    return BegunWrite(**{**content, "batch": None if batch is None else MicroBatch(**batch)})


def _damaged(path: Path) -> CorruptError:
    return CorruptError(
        "is no record of writes from Spark",
        file=path,
        hint="see with `rmqctl check` that the store is whole; then remove the file: a micro-batch that comes again "
        "will be stored again",
    )


def write_record(layout: StoreLayout, record: WriteRecord) -> None:
    """Replace the record; it is on disk when this returns. WriteFailedError."""
    begun = record.begun
    content = {
        "format": _FORMAT,
        "begun": None
        if begun is None
        else {**begun._asdict(), "batch": None if begun.batch is None else begun.batch._asdict()},
        "queries": {name: stored._asdict() for name, stored in record.queries.items()},
    }
    io.make_directories(layout.config, flushed=True)
    io.write_whole(record_path(layout), (json.dumps(content, indent=1, sort_keys=True) + "\n").encode("ascii"))


def end_write(layout: StoreLayout, record: WriteRecord) -> WriteRecord:
    """The write that has begun is complete; the record that is on disk then. WriteFailedError."""
    return _settle(layout, record.ended())


def forget_write(layout: StoreLayout, record: WriteRecord) -> WriteRecord:
    """The write that has begun has left nothing; the record that is on disk then. WriteFailedError."""
    return _settle(layout, record._replace(begun=None))


def _settle(layout: StoreLayout, record: WriteRecord) -> WriteRecord:
    path = record_path(layout)
    if record.queries:
        write_record(layout, record)
    elif is_file(path):  # a record that says nothing
        io.remove(path)
        io.flush_directory(path.parent)
    return record


# Rows of a frame as messages: which columns it may have, of which types, and what of them is taken.

_REQUIRED = ("topic", "body")
# what a message is made of, as in write.bulk.arrow_rows; all other columns of the view follow from it or from its place
_MADE_OF = (
    *_REQUIRED,
    *("queue_id", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset", "born_timestamp", "born_host"),
    *("tags", "keys", "properties", "stored_properties", "stored_body", "body_error"),
)
_OF_COPIES = ("store_timestamp", "store_host")
_WHOLE = ("tinyint", "smallint", INT, BIGINT)
_ALSO = {INT: _WHOLE, BIGINT: _WHOLE, TIMESTAMP: (TIMESTAMP, BIGINT)}
_BODIES = (BINARY, STRING)


def require_columns(columns: Sequence[tuple[str, str]], as_stored: bool) -> tuple[str, ...]:
    """Which columns of a frame are taken, given names and types as Spark's DDL writes them. UsageError for a column
    that the view `messages` does not have, that has another type or comes twice, and if one is missing."""
    known = TABLES["messages"].columns
    names = [name for name, _ in columns]
    for name, kind in columns:
        if name not in known:
            raise UsageError(f"messages have no column {name!r}", hint=f"their columns are {', '.join(known)}")
        if names.count(name) > 1:
            raise UsageError(f"there are several columns {name!r}")
        allowed = _BODIES if name == "body" else _ALSO.get(known[name].kind, (known[name].kind,))
        if name in (*_MADE_OF, *_OF_COPIES) and kind not in allowed:
            raise UsageError(f"column {name!r} has type {kind}", hint=f"it must be {' or '.join(allowed)}")
    for name in _REQUIRED:
        if name not in names:
            raise UsageError(f"there is no column {name!r}", hint=f"every message needs {' and '.join(_REQUIRED)}")
    wanted = (*_MADE_OF, *_OF_COPIES) if as_stored else _MADE_OF
    return tuple(name for name in names if name in wanted)


def rows_to_stage(batch: pa.RecordBatch, names: Sequence[str], row: int) -> pa.RecordBatch:
    """The columns `names` of a batch whose first row is number `row` of its task. Times become ms: Spark has
    microseconds. UsageError names a row without topic or body."""
    for name in _REQUIRED:
        column = batch.column(name)
        if column.null_count:
            first = pc.index(column.is_null(), True).as_py()
            raise UsageError(f"row {row + first} has no {name}")
    return pa.RecordBatch.from_arrays([_in_milliseconds(batch.column(name)) for name in names], names=list(names))


def _in_milliseconds(array: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(array.type):
        return array
    return pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms", array.type.tz))


def queues_of(batch: pa.RecordBatch) -> Mapping[str, int]:
    """How many queues each topic of a batch of staged rows needs."""
    numbers = batch.column("queue_id") if "queue_id" in batch.schema.names else pa.repeat(pa.scalar(0), batch.num_rows)
    table = pa.table({"topic": batch.column("topic").cast(pa.string()), "queue": pc.fill_null(numbers, 0)})
    found = table.group_by("topic").aggregate([("queue", "max")])
    return {row["topic"]: int(row["queue_max"]) + 1 for row in found.to_pylist()}


# Topics of messages that were written, in topics.json: without it a broker has messages and no route to them.

_FILE = "topics.json"
_TABLE, _VERSION = "topicConfigTable", "dataVersion"
_OF_BATCHES = {"queue.type": "BatchCQ"}


def require_topics(layout: StoreLayout) -> None:
    """CorruptError or UnreadableError if topics could not be added to topics.json."""
    _content(layout)


def add_topics(files: StoreFiles, queues: Mapping[str, int]) -> None:
    """Ensure that topics.json has these topics with at least these numbers of queues. What is configured stays but for
    that; topics that every broker has are as it makes them. WriteFailedError, and as `require_topics`."""
    content = _content(files.layout)
    batch_topics = {queue.topic for queue in files.queues.all() if isinstance(queue, BatchConsumeQueue)}
    table = content.get(_TABLE)
    table = table if isinstance(table, dict) else {}
    brokers_own = {topic.name: topic for topic in system_topics(BrokerIdentity(), BrokerSettings(), has_timer=True)}
    changed = {}
    for name, count in sorted(queues.items()):
        if name.startswith(LMQ_PREFIX):
            continue
        found = table.get(name)
        if isinstance(found, dict):
            topic = topic_from_bean(name, found)
        else:
            attributes = _OF_BATCHES if name in batch_topics else {}
            topic = brokers_own.get(name) or TopicConfig(name, count, count, attributes=attributes)
        if found is None or min(topic.read_queue_nums, topic.write_queue_nums) < count:
            reads, writes = max(topic.read_queue_nums, count), max(topic.write_queue_nums, count)
            bean = topic._replace(read_queue_nums=reads, write_queue_nums=writes).as_bean()
            changed[name] = {**(found if isinstance(found, dict) else {}), **bean}
    if changed:
        version = content.get(_VERSION)
        version = next_version(version if isinstance(version, dict) else {}, int(time.time() * 1000))
        write_config(files.layout.config / _FILE, {**content, _VERSION: version, _TABLE: {**table, **changed}})


def _content(layout: StoreLayout) -> dict[Any, Any]:
    path = layout.config / _FILE
    content = read_config(path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise CorruptError("holds no topics", file=path, hint="mend the file, or move it away")
    return content


# What tasks have written and no store holds yet: a file of record batches for each attempt, in a folder beside the
# store, so that a task that runs twice does no harm: only files that a commit names count.

_AS_LETTERS = str.maketrans("0123456789", "ghijklmnop")


class StagedRows(NamedTuple):
    """What one task wrote. Rows of one task; `path` is None without rows; `partition`: the task's number."""

    partition: int
    rows: int
    path: str | None


def staging_folder(target: Path, write: str) -> Path:
    """The folder beside `target` into which the tasks of one write, or of one query, put their rows; made if it is not
    there. What killed drivers left of the same target goes first.

    Its name says which process has to live for it to be at work: the one above ours, which is Spark's driver or serves
    it. What works for Spark in Python ends with each step. WriteFailedError.
    """
    clear_left_behind(target)
    tag = hashlib.sha256(write.encode()).hexdigest()[:16].translate(_AS_LETTERS)
    found = [path for path in target.parent.glob(f".*-{tag}") if path.name.startswith(f".{target.name}.rmqctl-")]
    for path in sorted(set(found) - set(left_behind(target.parent))):
        return path
    folder = target.with_name(f".{target.name}.rmqctl-{os.getppid()}-{tag}")
    io.make_directories(folder)
    return folder


def write_attempt(folder: Path, partition: int, batches: Iterable[pa.RecordBatch]) -> StagedRows:
    """Put batches of one schema into a file of their own. WriteFailedError, also if the folder is gone, because the
    write was abandoned: no task creates it again."""
    path = attempt(folder, f"task-{partition}")
    output: OutputFile | None = None
    writer: pa.RecordBatchStreamWriter | None = None
    rows = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if output is None or writer is None:
                output = OutputFile(path)
                writer = pa.ipc.new_stream(output, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
        if output is None or writer is None:
            return StagedRows(partition, 0, None)
        writer.close()
        output.finish()
    except BaseException:
        if output is not None:
            output.abandon()
            io.remove(path)
        raise
    return StagedRows(partition, rows, str(path))


def read_attempt(staged: StagedRows) -> Iterator[pa.RecordBatch]:
    """The batches that a task put aside, one in memory at a time. UnreadableError if they are not all there."""
    if staged.path is None:
        return
    rows = 0
    try:
        with pa.OSFile(staged.path) as source, pa.ipc.open_stream(source) as batches:
            for batch in batches:
                rows += batch.num_rows
                yield batch
    except (OSError, pa.ArrowException) as error:
        raise UnreadableError(f"what a task has written cannot be read: {error}", file=staged.path) from error
    if rows != staged.rows:
        raise UnreadableError(f"has {rows} rows, and its task wrote {staged.rows}", file=staged.path)
