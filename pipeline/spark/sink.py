"""The data source `rocketmq` as a whole: what reads a store, and `df.write` and `writeStream` into one."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqctl.formats.errors import RmqctlError, UnreadableError, UsageError
from rmqctl.pipeline.spark.commit import require_target, write_staged
from rmqctl.pipeline.spark.options import is_true
from rmqctl.pipeline.spark.sink_record import (
    MicroBatch,
    StagedRows,
    require_columns,
    rows_to_stage,
    staging_folder,
    write_attempt,
)
from rmqctl.pipeline.spark.source import RocketMQSource
from rmqctl.pipeline.sql.stores import sentence_first
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.files.outputs import in_work, remove_for_good
from rmqctl.store.files.reading import is_directory, is_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

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
