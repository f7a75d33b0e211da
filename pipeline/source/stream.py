"""The commitlog as a stream: micro-batches of messages, each message once, while a broker writes to the store.

The position of a query is a physical offset: all messages that begin before it have been read. That makes a batch
what it is for good, so a query that is started again from its checkpoint reads exactly the same messages again. That
holds while the log is the same one: a position says by which frames this is known, and whoever goes on from it looks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rmqctl.formats.errors import UnreadableError, UsageError
from rmqctl.pipeline.source.continuity import StreamLoss, loss_at, removed
from rmqctl.pipeline.source.history import (
    Mark,
    Position,
    behind_blank,
    marks_for,
    offset_behind,
    offset_since,
    position_from_json,
    stands,
)
from rmqctl.pipeline.source.options import SourceOptions
from rmqctl.pipeline.source.planning import LogTask, split_size
from rmqctl.pipeline.source.split_reading import SplitPartition, read_split, subscribed
from rmqctl.pipeline.splits.splits import Split, files_between, plan_splits
from rmqctl.pipeline.stores.telling import sentence_first
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.tail import end_of_messages

if TYPE_CHECKING:
    import pyarrow as pa

# Spark passes on what a planning process says through it
_LOGGER = logging.getLogger("rmqctl.stream")
_FORK, _EARLIEST, _LATEST = "fork", "earliest", "latest"


class StreamPartition(SplitPartition):
    """A task of a micro-batch; `mark` is the last frame before the end of that, None where it need not be there."""

    def __init__(
        self, split: Split, labels: Mapping[str, str | None], mark: Mark | None, *, requires_all: bool
    ) -> None:
        super().__init__(LogTask(split), labels)
        self.mark = mark
        self.requires_all = requires_all


class MessageStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads messages as they come. Each call looks at the store anew: files come and go."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: int | None = None
        self._said: set[str] = set()

    @sentence_first
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins. UsageError for an offset behind the end of the log."""
        wanted = self._options.starting_offset
        with self._files() as files:
            first = max(files.log.min_offset, 0)
            if wanted == _EARLIEST and self._options.starting_timestamp is None:
                return Position(first, marks_for(files.log, first, first)).as_json()
            end = end_of_messages(files.log, first)
            since = self._options.starting_timestamp
            if since is not None:
                wanted = offset_since(files.log, since, end)
            offset = wanted if isinstance(wanted, int) else end
            if offset > end:
                raise UsageError(
                    f"starting_offset={offset} lies behind the end of the log, {end}: begin there with "
                    '.option("starting_offset", "latest")',
                    file=self._options.path,
                )
            return Position(offset, marks_for(files.log, offset, end)).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Messages or bytes a micro-batch, where the options `max_messages` or `max_bytes` say so."""
        messages, size = self._options.max_messages, self._options.max_bytes
        if messages is not None:
            return ReadMaxRows(messages)
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    @sentence_first
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Keep the end of the log as it is now: the query ends there."""
        with self._files() as files:
            self._target = end_of_messages(files.log, max(files.log.min_offset, 0))

    @sentence_first
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far a micro-batch from `start` on may go; `start` itself if there is nothing new.

        UnreadableError where the log is not the one that was read up to `start`, or lacks what comes then, unless the
        options say how to go on.
        """
        position = position_from_json(start)
        with self._files() as files:
            loss = loss_at(files.log, position)
            begin = position.next_offset if loss is None else self._resume(files.log, loss)
            final = end_of_messages(files.log, begin)
            reached = min(final, position.physical_offset) if loss is None else begin
            end = self._end(files.log, reached, final, limit)
            if loss is None and end == position.physical_offset and position.marks is not None:
                return start
            # only what is still so is worth remembering
            known = [mark for mark in position.marks or () if loss is None or mark.end <= loss.resume]
            marks = marks_for(files.log, end, final, known)
        if loss is not None:
            return Position(end, marks, begin, self._say(f"{loss.reason}; the query goes on at {begin}")).as_json()
        if position.marks is None:
            self._say(
                f"the checkpoint is an older one and does not say to which log its offset {begin} belongs; "
                "it does from now on, and until now nobody knows whether that log was cut back"
            )
        return Position(end, marks).as_json()

    def _end(self, log: MappedFileQueue, begin: int, final: int, limit: ReadLimit) -> int:
        """Where a batch from `begin` on ends, at most at `final`."""
        end = final
        if self._target is not None:
            end = min(end, max(begin, self._target))
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if isinstance(limit, ReadMaxRows):
            end = offset_behind(log, begin, limit.max_rows, end)
            size = self._options.max_bytes
        if size is not None and begin + size < end:
            end = min(end, behind_blank(log, begin + size, final))
        return end

    @sentence_first
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the log, for the query's status."""
        with self._files() as files:
            return Position(end_of_messages(files.log, max(files.log.min_offset, 0)), None).as_json()

    @sentence_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A task for each split between two positions. UnreadableError if what was planned is not there any more."""
        before, behind = position_from_json(start), position_from_json(end)
        begin = before.next_offset if behind.begin is None else behind.begin
        stop = behind.physical_offset
        if start == end:
            return []
        mark = behind.marks[0] if behind.marks and behind.marks[0].begin >= begin else None
        with self._files() as files:
            minimum = files.log.min_offset if files.log.files else stop
            unread = behind.begin if behind.begin is not None else before.physical_offset
            if unread < min(minimum, stop):
                self._resume(files.log, removed(unread, min(minimum, stop)))
            loss = loss_at(files.log, behind) if minimum < stop else None
            if loss is not None and not loss.is_removed:
                # a batch that was planned, and cut off: the next one begins where the histories part
                self._resume(files.log, loss)
                stop, mark = min(stop, loss.resume), None
            mark = mark if self._on_changed_log == "fail" else None
            # a task opens the files that it was told of; where some may be missing it looks for itself
            requires_all = self._options.fail_on_data_loss
            marked = files_between(files.log, mark.begin, mark.end) if mark is not None else ()
            return [
                StreamPartition(
                    split._replace(files=tuple(dict.fromkeys(split.files + marked)) if requires_all else ()),
                    self._options.labels,
                    mark,
                    requires_all=requires_all,
                )
                for split in plan_splits(files, split_size(self._options, files.log, begin, stop), begin, stop)
            ]

    @sentence_first
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Batches of the schema. UnreadableError if the log was changed meanwhile."""
        if not isinstance(partition, StreamPartition):
            return
        try:
            wanted = subscribed(self._options)
            yield from read_split(partition, self._schema, wanted, lambda files: self._require_mark(files, partition))
        except UnreadableError:
            # a file that is gone has a reason that says more
            split = partition.split
            with self._files() as files:
                minimum = min(files.log.min_offset, split.end) if files.log.files else split.end
                if split.begin < minimum:
                    self._resume(files.log, removed(split.begin, minimum))
                self._require_mark(files, partition)
            raise

    def _require_mark(self, files: StoreFiles, partition: StreamPartition) -> None:
        """UnreadableError if the log is not the one that the batch was planned for."""
        if partition.mark is not None and not stands(files.log, partition.mark):
            raise UnreadableError(
                f"the log was cut back or replaced while {partition.split.begin} to {partition.split.end} was read: "
                "start the query again, which says more",
                file=self._options.path,
            )

    @property
    def _on_changed_log(self) -> str:
        options = self._options
        return options.on_changed_log or ("fail" if options.fail_on_data_loss else _FORK)

    def _resume(self, log: MappedFileQueue, loss: StreamLoss) -> int:
        """Where to go on after a loss; UnreadableError unless the options allow it."""
        options = self._options
        how = self._on_changed_log
        if loss.is_removed:
            if options.fail_on_data_loss:
                raise UnreadableError(
                    f'{loss.reason}; go on without them with .option("fail_on_data_loss", "false")', file=options.path
                )
            self._say(loss.reason)
            return loss.resume
        if how == "fail":
            raise UnreadableError(
                f"{loss.reason}. Go on at {loss.resume} with "
                '.option("on_changed_log", "fork"): messages between there and the cut come again; with "latest" only '
                "what comes from now on; or begin anew with another checkpoint",
                file=options.path,
            )
        if how == _LATEST:
            return end_of_messages(log, max(log.min_offset, 0))
        return max(log.min_offset, 0) if how == _EARLIEST else loss.resume

    def _say(self, sentence: str) -> str:
        if sentence not in self._said:
            self._said.add(sentence)
            _LOGGER.warning("%s: %s", self._options.path, sentence)
        return sentence

    def _files(self) -> StoreFiles:
        return StoreFiles(Path(self._options.path), self._options.store_config())
