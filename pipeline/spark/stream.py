"""Commitlogs as a stream: micro-batches of messages, each message once, while brokers write to the stores.

A query may read several stores, as a cluster is many brokers: each has a position of its own in the checkpoint, and
what happens to one of them changes nothing for the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from rmqctl.pipeline.spark.history import (
    ONLY,
    Mark,
    Position,
    StreamLoss,
    behind_blank,
    loss_at,
    marks_for,
    offset_behind,
    offset_since,
    positions_as_json,
    positions_from_json,
    removed,
    stands,
)
from rmqctl.pipeline.spark.options import SourceOptions
from rmqctl.pipeline.spark.planning import LogTask, split_size
from rmqctl.pipeline.spark.split_task import SplitPartition, read_split, subscribed
from rmqctl.pipeline.splits import Split, files_between, plan_splits
from rmqctl.pipeline.sql.stores import sentence_first
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.remote import absolute_place
from rmqctl.store.log.survey import end_of_messages
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    import pyarrow as pa

# The log of one store as a stream: where it begins, how far a micro-batch may go, and the tasks between two
# positions.
#
# The position is a physical offset: all messages that begin before it have been read. That makes a batch what it is
# for good, so a query that is started again from its checkpoint reads exactly the same messages again. That holds
# while the log is the same one: a position says by which frames this is known, and whoever goes on from it looks.

_FORK, EARLIEST, LATEST = "fork", "earliest", "latest"


class StreamPartition(SplitPartition):
    """A task of a micro-batch over the store that `options` name; `mark` is the last frame before the end of the batch,
    None where it need not be there."""

    def __init__(self, split: Split, options: SourceOptions, mark: Mark | None) -> None:
        super().__init__(LogTask(split), options.labels)
        self.options = options
        self.mark = mark


class Backlog(NamedTuple):
    """What of a log a micro-batch may have: from `reached` up to `stop` at most, physical offsets.

    `begin`: where reading begins, which is `reached` or the end of the last message before it; `final`: where the
    messages end. `position`: the position of the query, None if it has not read this log yet; `loss`: what is missing
    there.
    """

    begin: int
    reached: int
    stop: int
    final: int
    position: Position | None
    loss: StreamLoss | None = None


class StreamedLog:
    """A store that a stream reads, opened; `say` gets notes for the query's user."""

    def __init__(self, options: SourceOptions, say: Callable[[str], str]) -> None:
        """NotAStoreError, UnreadableError as `StoreFiles`."""
        self.options = options
        self._say = say
        self.files = StoreFiles.of_log(Path(options.path), options.store_config())

    def close(self) -> None:
        """Close all files."""
        self.files.close()

    @property
    def minimum(self) -> int:
        """Physical offset at which the log begins."""
        return max(self.files.log.min_offset, 0)

    def end(self) -> int:
        """Physical offset behind the last complete message."""
        return end_of_messages(self.files.log, self.minimum)

    def first(self, wanted: str | int) -> Position:
        """Where a query begins that does not know this log; `wanted`: earliest, which is at the time that the options
        name if they do, latest or a physical offset. UsageError for an offset past the end of the log."""
        log, first = self.files.log, self.minimum
        since = self.options.starting_timestamp
        if wanted == EARLIEST and since is None:
            return Position(first, marks_for(log, first, first))
        end = end_of_messages(log, first)
        if wanted == EARLIEST and since is not None:
            wanted = offset_since(log, since, end)
        offset = wanted if isinstance(wanted, int) else end
        if offset > end:
            raise UsageError(
                f"starting_offset={offset} is beyond the end of the log, {end}: start at the end with "
                '.option("starting_offset", "latest")',
                file=self.options.path,
            )
        return Position(offset, marks_for(log, offset, end))

    def added(self) -> Backlog:
        """What there is of a log that was named after the query had begun."""
        begin = self.first(self.options.new_stores).physical_offset
        final = end_of_messages(self.files.log, begin)
        return Backlog(begin, begin, final, final, None)

    def backlog(self, position: Position, target: int | None) -> Backlog:
        """Return what is new for a query at `position`, before physical offset `target` if given.

        UnreadableError where the log is not the one that was read up to there, or lacks what comes then, unless the
        options say how to go on.
        """
        log = self.files.log
        loss = loss_at(log, position)
        begin = position.next_offset if loss is None else self.resume(loss)
        final = end_of_messages(log, begin)
        reached = min(final, position.physical_offset) if loss is None else begin
        stop = final if target is None else min(final, max(reached, target))
        return Backlog(begin, reached, stop, final, position, loss)

    def position(self, backlog: Backlog, end: int, *, is_found_again: bool) -> Position:
        """The position at `end`, once all of the backlog before it is read; that of the backlog itself where nothing
        is new. `is_found_again`: the query has read this log under another name, and may not know this one."""
        before, loss = backlog.position, backlog.loss
        if before is not None and loss is None and end == before.physical_offset and before.marks is not None:
            return before._replace(begin=before.next_offset, notice=None) if is_found_again else before
        known: tuple[Mark, ...] = () if before is None else before.marks or ()
        if loss is not None:
            # only what is still so is worth remembering
            known = tuple(mark for mark in known if mark.end <= loss.resume)
        marks = marks_for(self.files.log, end, backlog.final, known)
        if before is None:
            said = self._say(f"was not read before: the query begins there at {backlog.begin}")
            return Position(end, marks, backlog.begin, said)
        if loss is not None:
            said = self._say(f"{loss.reason}; the query goes on at {backlog.begin}")
            return Position(end, marks, backlog.begin, said)
        if before.marks is None:
            self._say(
                f"the checkpoint is from an older version and does not identify the log of its offset {backlog.begin}: "
                "whether that log was cut back is unknown. From now on the checkpoint identifies it"
            )
        return Position(end, marks, backlog.begin if is_found_again else None)

    def partitions(self, before: Position, behind: Position) -> list[StreamPartition]:
        """A task for each split between two positions. UnreadableError if what was planned is not there any more."""
        if before == behind:
            return []
        log = self.files.log
        begin = before.next_offset if behind.begin is None else behind.begin
        unread = before.physical_offset if behind.begin is None else behind.begin
        stop = behind.physical_offset
        mark = behind.marks[0] if behind.marks and behind.marks[0].begin >= begin else None
        minimum = log.min_offset if log.files else stop
        if unread < min(minimum, stop):
            self.resume(removed(unread, min(minimum, stop)))
        loss = loss_at(log, behind) if minimum < stop else None
        if loss is not None and not loss.is_removed:
            # a batch that was planned, and cut off: the next one begins where the histories part
            self.resume(loss)
            stop, mark = min(stop, loss.resume), None
        mark = mark if self._on_changed_log == "fail" else None
        # a task opens the files that it was told of; where some may be missing it looks for itself
        marked = files_between(log, mark.begin, mark.end) if mark is not None else ()
        return [
            StreamPartition(
                split._replace(
                    files=tuple(dict.fromkeys(split.files + marked)) if self.options.fail_on_data_loss else ()
                ),
                self.options,
                mark,
            )
            for split in plan_splits(self.files, split_size(self.options, log, begin, stop), begin, stop)
        ]

    def require_there(self, partition: StreamPartition) -> None:
        """UnreadableError that says why a task could not read its files, if the log is not the one any more that the
        batch was planned for."""
        split, log = partition.split, self.files.log
        minimum = min(log.min_offset, split.end) if log.files else split.end
        if split.begin < minimum:
            self.resume(removed(split.begin, minimum))
        require_mark(self.files, partition)

    def resume(self, loss: StreamLoss) -> int:
        """Where to go on after a loss; UnreadableError unless the options allow it."""
        options, how = self.options, self._on_changed_log
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
                "new messages; or start again with another checkpoint",
                file=options.path,
            )
        if how == LATEST:
            return self.end()
        return self.minimum if how == EARLIEST else loss.resume

    @property
    def _on_changed_log(self) -> str:
        options = self.options
        return options.on_changed_log or ("fail" if options.fail_on_data_loss else _FORK)


def require_mark(files: StoreFiles, partition: StreamPartition) -> None:
    """UnreadableError if the log is not the one that the batch was planned for."""
    if partition.mark is not None and not stands(files.log, partition.mark):
        raise UnreadableError(
            f"the log was cut back or replaced while {partition.split.begin} to {partition.split.end} was read: "
            "start the query again, which says more",
            file=partition.options.path,
        )


def found_again(positions: Mapping[str, Position], logs: Mapping[str, StreamedLog]) -> dict[str, str]:
    """Of positions in logs that are not named any more: the one log that has what was read there, by the name of the
    position. A store that was moved, or a replica in its place, is found by the last message that was read."""
    homes: dict[str, str] = {}
    for name, position in positions.items():
        mark = position.marks[0] if position.marks else None
        standing = [other for other, log in logs.items() if mark is not None and stands(log.files.log, mark)]
        if len(standing) == 1 and standing[0] not in homes.values():
            homes[name] = standing[0]
    return homes


# How far a micro-batch goes in each of several logs, so that what limits it is shared fairly.

Logs = Sequence[tuple[MappedFileQueue, Backlog]]


def shared_ends(logs: Logs, most_messages: int | None, most_bytes: int | None, turn: int) -> list[int]:
    """Physical offset in each log behind what a batch may have of it; None: no limit.

    What one log has no messages for goes to the others. What cannot be divided goes to another log each time: `turn`
    counts batches.
    """
    stops = [backlog.stop for _, backlog in logs]
    if most_messages is not None:
        stops = _by_messages(logs, most_messages, turn)
    return stops if most_bytes is None else _by_bytes(logs, stops, most_bytes, turn)


def _by_messages(logs: Logs, most: int, turn: int) -> list[int]:
    """Messages are counted as far as the share of a log goes, and again where others leave something over."""
    ends = [backlog.reached for _, backlog in logs]
    waiting = [number for number, (_, backlog) in enumerate(logs) if backlog.reached < backlog.stop]
    while most and waiting:
        for number, share in _shares(waiting, most, turn):
            log, backlog = logs[number]
            ends[number], counted = offset_behind(log, ends[number], share, backlog.stop)
            most -= counted
        waiting = [number for number in waiting if ends[number] < logs[number][1].stop]
    return ends


def _by_bytes(logs: Logs, stops: Sequence[int], most: int, turn: int) -> list[int]:
    ends = [backlog.reached for _, backlog in logs]
    waiting = [number for number, end in enumerate(ends) if end < stops[number]]
    while most and waiting:
        for number, share in _shares(waiting, most, turn):
            taken = min(share, stops[number] - ends[number])
            ends[number] += taken
            most -= taken
        waiting = [number for number in waiting if ends[number] < stops[number]]
    for number in waiting:
        log, backlog = logs[number]
        ends[number] = min(stops[number], behind_blank(log, ends[number], backlog.final))
    return ends


def _shares(waiting: Sequence[int], most: int, turn: int) -> list[tuple[int, int]]:
    """As much for each of those that wait; of what is left over one for each of the first, who are others each turn."""
    first = turn % len(waiting)
    share, over = divmod(most, len(waiting))
    shares = [(number, share + (place < over)) for place, number in enumerate([*waiting[first:], *waiting[:first]])]
    return [(number, one) for number, one in shares if one]


# Spark passes on what a planning process says through it
_LOGGER = logging.getLogger("rmqctl.stream")
_NOTHING = Position(0)


class MessageStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads messages as they come. Each call lists the stores and reads their content again."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._targets: dict[str, int] | None = None
        self._turn = 0
        self._said: set[str] = set()

    @sentence_first
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins. UsageError for an offset past the end of the log."""
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
            yield from read_split(
                partition,
                self._schema,
                wanted,
                lambda files: require_mark(files, partition),
                fails_on_damage=self._options.fail_on_damage,
            )
        except UnreadableError as error:
            # what is said of a store on a server is said now: the folder that stands for it is made anew
            told = copy(error)
            # a file that is gone has a reason that says more
            with closing(StreamedLog(partition.options, partial(self._say, partition.options.path))) as log:
                log.require_there(partition)
            raise told from error

    def _paths(self, positions: Mapping[str, Position], logs: Mapping[str, StreamedLog]) -> dict[str, str]:
        """Return the current path of the store of each position; without those that are not named any more.

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
                hint="start the query with that store alone to see its error, or start again with another checkpoint",
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
