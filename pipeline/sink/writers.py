"""What Spark calls: a task puts its rows aside, the driver ends the write or gives it up."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqctl.formats.errors import RmqctlError, UnreadableError
from rmqctl.pipeline.sink.commit import require_target, write_staged
from rmqctl.pipeline.sink.options import SinkOptions
from rmqctl.pipeline.sink.record import MicroBatch
from rmqctl.pipeline.sink.rows import require_columns, rows_to_stage
from rmqctl.pipeline.sink.staging import StagedRows, staging_folder, write_attempt
from rmqctl.pipeline.stores.telling import sentence_first
from rmqctl.store.files.presence import is_directory
from rmqctl.store.outputs.staging import in_work
from rmqctl.store.outputs.temporary import remove_for_good

if TYPE_CHECKING:
    import pyarrow as pa

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
