"""The commitlog as a stream: micro-batches of messages, each message once, while a broker writes to the store.

The position of a query is a physical offset: all messages that begin before it have been read. That makes a batch
what it is for good, so a query that is started again from its checkpoint reads exactly the same messages again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from formats.errors import UnreadableError
from pipeline.source.datasource import SplitPartition, read_split
from pipeline.source.options import SourceOptions
from pipeline.source.tail import end_of_messages
from pipeline.source.wanted import Wanted
from pipeline.splits import plan_splits
from store.files.mapped_file_queue import MappedFileQueue
from store.store_files import StoreFiles

if TYPE_CHECKING:
    import pyarrow as pa

Position = dict[str, Any]

_OFFSET = "physical_offset"


class MessageStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads messages as they come. Each call looks at the store anew: files come and go."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: int | None = None

    def initialOffset(self) -> Position:  # noqa: N802
        """Where a query without a checkpoint begins."""
        wanted = self._options.starting_offset
        if isinstance(wanted, int):
            return {_OFFSET: wanted}
        with self._files() as files:
            first = max(files.log.min_offset, 0)
            return {_OFFSET: first if wanted == "earliest" else end_of_messages(files.log, first)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Bytes a micro-batch, where the option `max_bytes` says so."""
        limit = self._options.max_bytes
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Keep the end of the log as it is now: the query ends there."""
        with self._files() as files:
            self._target = end_of_messages(files.log, max(files.log.min_offset, 0))

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:  # noqa: N802
        """How far a micro-batch from `start` on may go. A log that was cut back before `start` has nothing new."""
        begin = int(start[_OFFSET])
        with self._files() as files:
            end = max(begin, end_of_messages(files.log, begin))
        if self._target is not None:
            end = min(end, max(begin, self._target))
        if isinstance(limit, ReadMaxBytes):
            end = min(end, begin + limit.max_bytes)
        return {_OFFSET: end}

    def reportLatestOffset(self) -> Position | None:  # noqa: N802
        """The end of the log, for the query's status."""
        with self._files() as files:
            return {_OFFSET: end_of_messages(files.log, max(files.log.min_offset, 0))}

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        """A task for each split between two positions. UnreadableError for messages that were removed unread."""
        begin, stop = int(start[_OFFSET]), int(end[_OFFSET])
        with self._files() as files:
            self._require_all(files.log, begin, stop)
            return [SplitPartition(split) for split in plan_splits(files, self._options.split_size, begin, stop)]

    def _require_all(self, log: MappedFileQueue, begin: int, end: int) -> None:
        minimum = log.min_offset if log.files else end
        if begin < min(minimum, end) and self._options.fail_on_data_loss:
            raise UnreadableError(
                f"messages from {begin} to {min(minimum, end)} were removed before the stream had read them",
                file=self._options.path,
                hint='go on without them with .option("fail_on_data_loss", "false")',
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Batches of the schema."""
        return read_split(partition, self._schema, Wanted())

    def _files(self) -> StoreFiles:
        return StoreFiles(Path(self._options.path), self._options.store_config())
