"""The data source `rocketmq` as a whole: what reads a store, and `df.write` and `writeStream` into one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqctl.formats.errors import (
    NotAStoreError,
    RefusedError,
    RmqctlError,
    StoreInUseError,
    UnreadableError,
    UsageError,
)
from rmqctl.pipeline.spark.options import is_true
from rmqctl.pipeline.spark.sink_record import (
    BegunWrite,
    MicroBatch,
    StagedRows,
    WriteRecord,
    add_topics,
    end_write,
    forget_write,
    queues_of,
    read_attempt,
    read_record,
    require_columns,
    require_topics,
    rows_to_stage,
    staging_folder,
    write_attempt,
    write_record,
)
from rmqctl.pipeline.spark.source import RocketMQSource
from rmqctl.pipeline.sql.stores import sentence_first
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, looks_like_store
from rmqctl.store.files.lock import is_in_use
from rmqctl.store.files.outputs import (
    check_output_place,
    in_work,
    is_vacant,
    publish,
    remove_for_good,
    staged_directory,
)
from rmqctl.store.files.reading import is_directory, is_file, read_small_file
from rmqctl.store.log.survey import end_of_messages
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.opening import is_empty_place

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter


# The end of a write: what its tasks have put aside becomes messages of one store, all of it or nothing.
#
# A new store is made beside its name, and gets it when it is complete. What is appended to a store is noted in it
# before and afterwards (`record`), so that the next write can tell what a killed one has left (`settle`).

# What a write that was killed has left in a store: taken back as a whole, or brought to its end.

_PROCESS_DIGITS = 32


def settled(root: Path, config: StoreConfig) -> WriteRecord:
    """The record of the store at `root`, of which no write is unfinished any more.

    Everything that a write puts follows the former end of the log, so cutting the log there undoes it; if all of it was
    on disk already, it only lacked its end. RefusedError where something else used the store meanwhile, whose messages
    may stand there too; and as `rmqctl truncate` and `rmqctl recover`.
    """
    layout = config.layout(root)
    record = read_record(layout)
    begun = record.begun
    if begun is None:
        return record
    if begun.end is not None:
        return _brought_to_its_end(root, config, record, begun)
    if _is_as_left(layout, begun):
        take_back(root, config, begun.begin)
    elif begun.begin is not None and log_end(root, config, begun.begin) > begun.begin:
        raise RefusedError(
            "a write from Spark was killed, and the store was recovered or used since: part of its "
            "messages follow this offset, perhaps with other messages after them",
            file=root,
            physical_offset=begun.begin,
            hint=f"`rmqctl truncate --at {begun.begin}` removes everything after it",
        )
    return forget_write(layout, record)


def take_back(root: Path, config: StoreConfig, begin: int | None) -> None:
    """End the log at `begin`, where a write began that has not ended; queues, index and checkpoint follow, and the
    store counts as closed cleanly. None: nothing was put. Errors as of `rmqctl truncate` and `rmqctl recover`."""
    with StoreFiles(root, config) as files:
        if begin is not None and files.log.files:
            truncate(files, begin, ChangeOptions(keep_undo=False))
        elif files.has_abort():
            recover(files, ChangeOptions(keep_undo=False))


def log_end(root: Path, config: StoreConfig, begin: int) -> int:
    """Return the physical end of the messages of the store at `root`; `begin` without later ones."""
    with StoreFiles(root, config) as files:
        return end_of_messages(files.log, begin)


def is_stored(record: WriteRecord, batch: MicroBatch, root: Path, config: StoreConfig) -> bool:
    """Whether the store has this micro-batch already. RefusedError where that cannot be: an earlier one than the last,
    or the last one where its messages are not all there any more."""
    stored = record.queries.get(batch.query)
    if stored is None or batch.batch_id > stored.batch_id:
        return False
    if batch.batch_id < stored.batch_id:
        raise RefusedError(
            f"the last micro-batch that query {batch.query!r} has stored here is {stored.batch_id}, and now comes "
            f"{batch.batch_id}: its checkpoint was set back, or belongs to another query",
            file=root,
            hint='give .option("query", NAME) with a new name to store it all the same',
        )
    end = log_end(root, config, min(stored.begin, stored.end))
    if end < stored.end:
        raise RefusedError(
            f"micro-batch {stored.batch_id} of query {batch.query!r} was stored up to {stored.end}, but the log was "
            f"cut back to {end}",
            file=root,
            hint='give .option("query", NAME) with a new name to store it once more',
        )
    return True


def _brought_to_its_end(root: Path, config: StoreConfig, record: WriteRecord, begun: BegunWrite) -> WriteRecord:
    layout = config.layout(root)
    begin, end = begun.begin or 0, begun.end or 0
    found = log_end(root, config, begin)
    if found < end:
        raise RefusedError(
            f"a write from Spark was on disk up to {end}, but the log ends at {found} now: it was cut back",
            file=root,
            physical_offset=begin,
            hint=f"`rmqctl truncate --at {begin}` takes back all of that write" if found > begin else None,
        )
    if _is_as_left(layout, begun):
        with StoreFiles(root, config) as files:
            recover(files, ChangeOptions(keep_undo=False))
    with StoreFiles(root, config) as files:
        add_topics(files, begun.topics)
    return end_write(layout, record)


def _is_as_left(layout: StoreLayout, begun: BegunWrite) -> bool:
    """Return whether the store was not used since the write was killed: its `abort` is that of the write, and no broker
    has started, which writes into `lock` (DefaultMessageStore#start)."""
    if not is_file(layout.abort) or read_small_file(layout.abort, _PROCESS_DIGITS).strip() != b"%d" % begun.process:
        return False
    return begun.lock_time is None or lock_time(layout) == begun.lock_time


def lock_time(layout: StoreLayout) -> int | None:
    """When the store's `lock` was changed last, ns since 1970; None without it."""
    return layout.lock.stat().st_mtime_ns if is_file(layout.lock) else None


_HINT_IN_USE = "stop the broker, or write to a new store"
Note = Callable[[BegunWrite], None]


class Written(NamedTuple):
    """Result of a write: `messages` messages at physical offsets [begin, end); none if it was `stored_before`."""

    messages: int
    begin: int = 0
    end: int = 0
    stored_before: bool = False


def require_target(target: Path, config: StoreConfig, overwrite: bool) -> None:
    """See that a write could end at `target`, before anything is done for it.

    RefusedError for what would be overwritten and for a place among the files of a store, StoreInUseError for a store
    that a broker runs, NotAStoreError for anything else.
    """
    layout = config.layout(target)
    if is_empty_place(layout):
        check_output_place(target)
        return
    if overwrite:
        raise RefusedError(
            "is there already, and nothing is overwritten",
            file=target,
            hint='name a new store, or add to this one with .mode("append")',
        )
    if not looks_like_store(target) and not any(is_directory(directory) for directory in layout.commitlog):
        raise NotAStoreError("is no store, and not empty", file=target, hint="name a new directory, or a store")
    if is_in_use(layout):
        raise StoreInUseError("a broker or another writer has the store open", file=target, hint=_HINT_IN_USE)


def write_staged(
    target: Path,
    config: StoreConfig,
    tasks: Sequence[StagedRows],
    *,
    as_stored: bool = False,
    batch: MicroBatch | None = None,
) -> Written:
    """Put the rows of `tasks` into the store at `target`, by number of task and in the order of their rows.

    `batch`: the micro-batch that this is; one that the store has already is not put again. UsageError names task and
    row of a message that cannot be stored; as of MessageStore.open and put_columns. After any error, the store is as it
    was, or is so again when the next write begins.
    """
    tasks = sorted(task for task in tasks if task.rows)
    if not tasks:
        return Written(0)
    # it is flushed at the end, as a whole
    config = config._replace(flush_disk_type="ASYNC_FLUSH", transient_store_pool_enable=False)
    if not config.store_path_commit_log and is_vacant(target):
        with staged_directory(target) as staging:
            written = _put(staging, config, tasks, as_stored, lambda begun: None)
            if batch is not None:
                begun = BegunWrite(os.getpid(), None, written.begin, written.end, {}, batch)
                write_record(config.layout(staging), WriteRecord(begun).ended())
            publish(staging, target)
        return written
    with _one_write_at_a_time(target):
        return _append(target, config, tasks, as_stored, batch)


@contextlib.contextmanager
def _one_write_at_a_time(root: Path) -> Iterator[None]:
    """The record of a store is for one write at a time; the store's own lock begins later. StoreInUseError."""
    io.make_directories(root, flushed=True)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreInUseError(
                "another write from Spark is about to end here", file=root, hint="run this one again when it has"
            ) from error
        except OSError:  # a file system without such locks: the store's own has to do
            pass
        yield
    finally:
        os.close(descriptor)


def _append(
    root: Path, config: StoreConfig, tasks: Sequence[StagedRows], as_stored: bool, batch: MicroBatch | None
) -> Written:
    layout = config.layout(root)
    record = settled(root, config)
    if batch is not None and is_stored(record, batch, root, config):
        return Written(0, stored_before=True)
    noted = BegunWrite(os.getpid(), batch=batch)

    def note(begun: BegunWrite) -> None:
        nonlocal noted
        noted = begun._replace(batch=batch)
        write_record(layout, record._replace(begun=noted))

    note(noted)
    try:
        written = _put(root, config, tasks, as_stored, note)
    except BaseException:
        # what this cannot do now, the next write does
        with contextlib.suppress(RmqctlError):
            if noted.begin is None:
                settled(root, config)
            else:
                if noted.end is not None:
                    note(noted._replace(end=None))
                take_back(root, config, noted.begin)
                forget_write(layout, record)
        raise
    end_write(layout, record._replace(begun=noted))
    return written


def _put(root: Path, config: StoreConfig, tasks: Sequence[StagedRows], as_stored: bool, note: Note) -> Written:
    """Open the store, look at all rows, put all rows. `note` keeps how far it is, on disk."""
    layout = config.layout(root)
    with MessageStore.open(root, "rw", config, create=True, allocate_ahead=False) as store:
        require_topics(layout)
        topics = _check(store, tasks, as_stored)
        known = {(queue.topic, queue.queue_id) for queue in store.files.queues.all()}
        begin = store.files.log.max_offset
        begun = BegunWrite(os.getpid(), lock_time(layout), begin)
        note(begun)
        messages = 0
        for task, row, rows in _staged(tasks):
            result = store.put_columns(rows, as_stored=as_stored)
            for number, answer in result.refused.items():
                answer.raise_failure(f"{_place(task, row + number)}: ")
                raise UsageError(f"{_place(task, row + number)}: {answer.status}: {answer.detail}")
            messages += result.stored
        store.flush()
        end = store.files.log.max_offset
        # what is delayed lies in another topic now
        for queue in store.files.queues.all():
            if (queue.topic, queue.queue_id) not in known:
                topics[queue.topic] = max(topics.get(queue.topic, 0), queue.queue_id + 1)
        note(begun._replace(end=end, topics=topics))
        add_topics(store.files, topics)
    return Written(messages, begin, end)


def _check(store: MessageStore, tasks: Sequence[StagedRows], as_stored: bool) -> dict[str, int]:
    """How many queues each topic needs; UsageError for the first row that would be refused."""
    topics: dict[str, int] = {}
    accepted: set[str] = set()
    for task, row, rows in _staged(tasks):
        try:
            refused = store.check_columns(rows, as_stored=as_stored, accepted=accepted)
        except UsageError as error:
            where = f"task {task.partition}, rows {row} to {row + rows.num_rows - 1}"
            raise UsageError(f"{where}: {error.message}", hint=error.hint) from error
        for number, why in refused.items():
            raise UsageError(f"{_place(task, row + number)}: {why}", hint="nothing was written")
        for topic, count in queues_of(rows).items():
            topics[topic] = max(topics.get(topic, 0), count)
    return topics


def _staged(tasks: Sequence[StagedRows]) -> Iterator[tuple[StagedRows, int, pa.RecordBatch]]:
    """What the tasks have put aside, in order, with the number of the first row of each batch in its task."""
    for task in tasks:
        row = 0
        for rows in read_attempt(task):
            yield task, row, rows
            row += rows.num_rows


def _place(task: StagedRows, row: int) -> str:
    return f"task {task.partition}, row {row}"


# The options of a write: what may be given to `df.write.format("rocketmq")` and `writeStream`, checked.

SINK_OPTIONS: dict[str, str] = {
    "path": "the store's directory (or `save(PATH)`, `start(PATH)`), which the driver writes; folders beside it are "
    "written by every executor",
    "config": "a broker.conf, read by the driver: sizes of a new store's files, paths, delay levels",
    "as_stored": "true: the rows are copies of stored messages and keep store time and store host; false: they are new "
    "messages, which are delayed if they ask for it; false",
    "query": "streams: the name under which the store remembers which micro-batch was the last; if not given the "
    "query's own id, which its checkpoint holds",
    "checkpointLocation": "streams: Spark's own",
}
"""Every option with its meaning."""

_KNOWN = {name.lower(): name for name in SINK_OPTIONS} | {"store": "path", "asstored": "as_stored"}


class SinkOptions(NamedTuple):
    """Options of a write. `path` is absolute and follows links."""

    path: Path
    config: str | None = None
    as_stored: bool = False
    query: str | None = None
    checkpoint: str | None = None

    def store_config(self) -> StoreConfig:
        """Settings of the broker.conf, RocketMQ's defaults without. Read where it is: on the driver."""
        return read_broker_conf(Path(self.config)) if self.config else StoreConfig()

    def query_name(self) -> str:
        """Under what the store remembers the micro-batches of this query. UsageError if nothing says so.

        Without a name it is the id that Spark keeps in the checkpoint: with a new checkpoint micro-batches are counted
        from 0 again, and these are others. If the checkpoint is on no file system of this machine, its address is used.
        """
        if self.query:
            return self.query
        if not self.checkpoint:
            raise UsageError(
                "the query has no name, so a repeated micro-batch cannot be recognised",
                hint='give .option("checkpointLocation", DIR), or .option("query", NAME)',
            )
        return _id_of_query(Path(self.checkpoint.removeprefix("file://").removeprefix("file:"))) or self.checkpoint


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a write, names in any case; UsageError for one that is unknown, missing or says nothing."""
    values: dict[str, str] = {}
    for name, text in given.items():
        known = _KNOWN.get(name.lower())
        if known is None:
            raise UsageError(
                f"writing to a store has no option {name!r}", hint=f"its options are {', '.join(SINK_OPTIONS)}"
            )
        values[known] = text.strip()
    if not values.get("path"):
        raise UsageError("no store is named", hint='give .option("path", DIR), .save(DIR) or .start(DIR)')
    return SinkOptions(
        Path(os.path.realpath(values["path"])),
        values.get("config") or None,
        is_true("as_stored", values.get("as_stored", "false")),
        values.get("query") or None,
        values.get("checkpointLocation") or None,
    )


def _id_of_query(checkpoint: Path) -> str | None:
    """The id of the query with this checkpoint (StreamMetadata); None if it cannot be read here."""
    path = checkpoint / "metadata"
    try:
        content = json.loads(path.read_bytes()) if is_file(path) else None
    except (OSError, ValueError):
        return None
    found = content.get("id") if isinstance(content, dict) else None
    return found if isinstance(found, str) and found else None


class RocketMQStore(RocketMQSource):
    """A store of RocketMQ, to read and to write. Options of a write: `options.SINK_OPTIONS`."""

    @sentence_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """What writes a frame of this schema. UsageError for wrong options or columns, StoreInUseError, RefusedError
        where `overwrite` would have to overwrite something."""

        return MessageWriter(parse_sink_options(self.options), schema, overwrite)

    @sentence_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """What writes the micro-batches of a query. UsageError also for the output mode `complete`."""
        if overwrite:
            raise UsageError('a store keeps every message: there is no outputMode("complete"), only "append"')
        return MessageStreamWriter(parse_sink_options(self.options), schema)


# What Spark calls: a task puts its rows aside, the driver ends the write or gives it up.

_Messages = Sequence[WriterCommitMessage | None]


class TaskWritten(WriterCommitMessage):
    """What a task tells the driver: where its rows are."""

    def __init__(self, staged: StagedRows) -> None:
        self.staged = staged


class _StoreWrite:
    """One write, or the micro-batches of one query, as tasks and the driver see it. `name` tells it from others."""

    def __init__(self, options: SinkOptions, schema: StructType, name: str, *, overwrite: bool) -> None:
        self._options = options
        self._config = options.store_config()
        columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        self._columns = require_columns(columns, options.as_stored)
        require_target(options.path, self._config, overwrite)
        self._folder = staging_folder(options.path, name)

    @sentence_first
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: put its rows aside. UsageError for a row without topic or body."""
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        try:
            return TaskWritten(write_attempt(self._folder, partition, _batches(iterator, self._columns)))
        except RmqctlError as error:
            error.message = f"task {partition}, {error.message}"
            raise

    def _commit(self, messages: _Messages, batch: MicroBatch | None) -> None:
        tasks = [message.staged for message in messages if isinstance(message, TaskWritten)]
        if not is_directory(self._folder):
            raise UnreadableError("what the tasks have written is gone", file=self._folder, hint="write it again")
        try:
            with in_work(self._folder):
                write_staged(self._options.path, self._config, tasks, as_stored=self._options.as_stored, batch=batch)
        finally:
            remove_for_good(self._folder)

    def _abort(self) -> None:
        remove_for_good(self._folder)


class MessageWriter(_StoreWrite, DataSourceArrowWriter):
    """Writes one frame."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, uuid.uuid4().hex, overwrite=overwrite)

    @sentence_first
    def commit(self, messages: _Messages) -> None:
        """On the driver: all tasks are done."""
        self._commit(messages, None)

    @sentence_first
    def abort(self, messages: _Messages) -> None:
        """On the driver: the write has failed."""
        self._abort()


class MessageStreamWriter(_StoreWrite, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, each once. Spark makes one to plan a micro-batch and another to end it."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._query = options.query_name()
        super().__init__(options, schema, self._query, overwrite=False)

    @sentence_first
    def commit(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        """On the driver: all tasks of a micro-batch are done."""
        self._commit(messages, MicroBatch(self._query, batchId))

    @sentence_first
    def abort(self, messages: _Messages, batchId: int) -> None:  # noqa: N803
        """On the driver: a micro-batch has failed."""
        self._abort()


def _batches(iterator: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    row = 0
    for batch in iterator:
        if batch.num_rows:
            yield rows_to_stage(batch, columns, row)
        row += batch.num_rows
