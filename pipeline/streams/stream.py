"""Commitlogs as a stream: micro-batches of messages, each message once, while brokers write to the stores.

A query may read several stores, as a cluster is many brokers: each has a position of its own in the checkpoint, and
what happens to one of them changes nothing for the others.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from copy import copy
from functools import partial
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

from rmqctl.formats.errors import NotAStoreError, UnreadableError, UsageError
from rmqctl.pipeline.source.options import SourceOptions
from rmqctl.pipeline.source.split_reading import read_split, subscribed
from rmqctl.pipeline.stores.telling import sentence_first
from rmqctl.pipeline.streams.history import Position
from rmqctl.pipeline.streams.positions import ONLY, positions_as_json, positions_from_json
from rmqctl.pipeline.streams.shares import shared_ends
from rmqctl.pipeline.streams.streamed_log import Backlog, StreamedLog, StreamPartition, found_again, require_mark
from rmqctl.store.remote.address import absolute_place

if TYPE_CHECKING:
    import pyarrow as pa

# Spark passes on what a planning process says through it
_LOGGER = logging.getLogger("rmqctl.stream")
_NOTHING = Position(0)


class MessageStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads messages as they come. Each call looks anew which stores there are and what they hold."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._targets: dict[str, int] | None = None
        self._turn = 0
        self._said: set[str] = set()

    @sentence_first
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins. UsageError for an offset behind the end of the log."""
        with ExitStack() as stack:
            wanted = self._options.starting_offset
            return self._as_json({path: log.first(wanted) for path, log in self._logs(stack).items()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Messages or bytes a micro-batch, where the options `max_messages` or `max_bytes` say so."""
        messages, size = self._options.max_messages, self._options.max_bytes
        if messages is not None:
            return ReadMaxRows(messages)
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    @sentence_first
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Keep the ends of the logs as they are now: the query ends there."""
        self._targets = self._ends()

    @sentence_first
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far a micro-batch from `start` on may go; `start` itself if there is nothing new.

        UnreadableError where a log is not the one that was read up to `start`, or lacks what comes then, or where a
        store is not named any more, unless the options say how to go on.
        """
        positions = positions_from_json(start)
        with ExitStack() as stack:
            logs = self._logs(stack, positions)
            paths = self._paths(positions, logs)
            # those that are not named any more keep their positions: named again, they go on there
            ends = {name: position for name, position in positions.items() if name not in paths}
            for name, position in ends.items():
                self._require_named(name, position, "goes on without it, and from there when it is named again")
            names = {path: name for name, path in paths.items()}
            is_alone = names.keys() == logs.keys() and not self._options.several
            backlogs = self._backlogs(logs, {path: positions[name] for path, name in names.items()})
            for path, end in self._shares({path: (logs[path], one) for path, one in backlogs.items()}, limit).items():
                name = names.get(path, path)
                is_found_again = name != path and not is_alone
                position = logs[path].position(backlogs[path], end, is_found_again=is_found_again)
                ends[name if is_alone else path] = position
                if is_found_again and name != ONLY:
                    self._say(path, f"is the store that was read as {name}")
        return start if ends == positions else positions_as_json(ends)

    def _backlogs(self, logs: Mapping[str, StreamedLog], positions: Mapping[str, Position]) -> dict[str, Backlog]:
        found = {}
        for name, log in logs.items():
            position, targets = positions.get(name), self._targets
            if position is not None:
                # what came after the ends were kept is for another time
                target = None if targets is None else targets.get(name, position.physical_offset)
                found[name] = log.backlog(position, target)
            elif targets is None or name in targets:
                found[name] = log.added()
        return found

    def _shares(self, logs: Mapping[str, tuple[StreamedLog, Backlog]], limit: ReadLimit) -> dict[str, int]:
        """Where the batch ends in each log."""
        messages = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if messages is not None:
            size = self._options.max_bytes
        self._turn += 1
        ends = shared_ends([(log.files.log, one) for log, one in logs.values()], messages, size, self._turn)
        return dict(zip(logs, ends, strict=True))

    @sentence_first
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the logs, for the query's status."""
        return self._as_json({path: Position(end, None) for path, end in self._ends().items()})

    @sentence_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A task for each split between two positions. UnreadableError if what was planned is not there any more."""
        if start == end:
            return []
        before, behind = positions_from_json(start), positions_from_json(end)
        tasks: list[InputPartition] = []
        with ExitStack() as stack:
            logs = self._logs(stack, behind)
            paths = self._paths(behind, logs)
            for name, position in behind.items():
                if name in paths:
                    tasks += logs[paths[name]].partitions(before.get(name, _NOTHING), position)
                elif position != before.get(name):
                    self._require_named(name, position, "leaves out what it was about to read of it")
        return tasks

    @sentence_first
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Batches of the schema. UnreadableError if the log was changed meanwhile."""
        if not isinstance(partition, StreamPartition):
            return
        self._options.use_storage()
        try:
            wanted = subscribed(self._options)
            yield from read_split(partition, self._schema, wanted, lambda files: require_mark(files, partition))
        except UnreadableError as error:
            # what is said of a store on a server is said now: the folder that stands for it is made anew
            told = copy(error)
            # a file that is gone has a reason that says more
            with closing(StreamedLog(partition.options, partial(self._say, partition.options.path))) as log:
                log.require_there(partition)
            raise told from error

    def _paths(self, positions: Mapping[str, Position], logs: Mapping[str, StreamedLog]) -> dict[str, str]:
        """By the name of each position the path of its store now; without those that nobody names any more.

        UsageError for a checkpoint of one store, of several in which it is not found.
        """
        if positions.keys() == {ONLY} and len(logs) == 1:
            return {ONLY: next(iter(logs))}
        missing = {name: position for name, position in positions.items() if name not in logs}
        added = {path: log for path, log in logs.items() if path not in positions}
        found = found_again(missing, added) if missing and added else {}
        if ONLY in missing and ONLY not in found:
            raise UsageError(
                f"the checkpoint is of a query over one store, and of the {len(logs)} that are named now none, or more "
                f"than one, has the last message before {missing[ONLY].physical_offset}",
                hint="start the query with that store alone, which says what is wrong with it; or begin anew with "
                "another checkpoint",
            )
        return {name: name for name in positions if name in logs} | found

    def _require_named(self, name: str, position: Position, how_on: str) -> None:
        """UnreadableError for a store that is not named any more, unless the options allow it."""
        read = f"was read up to {position.physical_offset} and is not among the stores that are named now"
        if self._options.fail_on_data_loss:
            raise UnreadableError(
                f'{read}. Name it again, or go on without it with .option("fail_on_data_loss", "false")', file=name
            )
        self._say(name, f"{read}: the query {how_on}")

    def _as_json(self, positions: Mapping[str, Position]) -> dict[str, Any]:
        """Positions by path as Spark is given them; without path where only one store can be named."""
        if self._options.several:
            return positions_as_json(positions)
        return positions_as_json({ONLY: next(iter(positions.values()))})

    def _ends(self) -> dict[str, int]:
        with ExitStack() as stack:
            return {path: log.end() for path, log in self._logs(stack).items()}

    def _logs(self, stack: ExitStack, known: Container[str] = ()) -> dict[str, StreamedLog]:
        """The stores that are named, by their paths; opened until the end of `stack`. NotAStoreError, but not for what
        a pattern matches and is not `known`: a broker may be about to make its store there."""
        by_name = {absolute_place(path) for path in self._options.several or (self._options.path,)}
        found = {}
        for options in self._options.stores():
            try:
                log = StreamedLog(options, partial(self._say, options.path))
            except NotAStoreError as error:
                if options.path in by_name or options.path in known:
                    raise
                self._say(options.path, f"{error.message}: it is looked at again with the next micro-batch")
                continue
            stack.callback(log.close)
            found[options.path] = log
        return found

    def _say(self, path: str, sentence: str) -> str:
        told = f"{path}: {sentence}"
        if told not in self._said:
            self._said.add(told)
            _LOGGER.warning("%s", told)
        return sentence
