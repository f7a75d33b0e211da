"""The log of one store as a stream: where it begins, how far a micro-batch may go, and the tasks between two positions.

The position is a physical offset: all messages that begin before it have been read. That makes a batch what it is for
good, so a query that is started again from its checkpoint reads exactly the same messages again. That holds while the
log is the same one: a position says by which frames this is known, and whoever goes on from it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import UnreadableError, UsageError
from rmqctl.pipeline.source.options import SourceOptions
from rmqctl.pipeline.source.planning import LogTask, split_size
from rmqctl.pipeline.source.split_reading import SplitPartition
from rmqctl.pipeline.splits.splits import Split, files_between, plan_splits
from rmqctl.pipeline.streams.continuity import StreamLoss, loss_at, removed
from rmqctl.pipeline.streams.history import Mark, Position, marks_for, offset_since, stands
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.tail import end_of_messages

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
    messages end. `position`: where the query stands, None where it has not read this log yet; `loss`: what is missing
    there.
    """

    begin: int
    reached: int
    stop: int
    final: int
    position: Position | None
    loss: StreamLoss | None = None


class StreamedLog:
    """A store that a stream reads, opened; `say` is told what the query's user ought to know."""

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
        name if they do, latest or a physical offset. UsageError for an offset behind the end of the log."""
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
                f"starting_offset={offset} lies behind the end of the log, {end}: begin there with "
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
        """What there is for a query that stands at `position`, before physical offset `target` if there is one.

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
                f"the checkpoint is an older one and does not say to which log its offset {backlog.begin} belongs; "
                "it does from now on, and until now nobody knows whether that log was cut back"
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
                "what comes from now on; or begin anew with another checkpoint",
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
