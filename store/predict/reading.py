"""The broker's pass over the commitlog: file by file, frame by frame, up to where the log ends for it.

Good frames are walked as columns; where law 3 and the broker may differ, its own judgement decides (`frames`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from rmqctl.formats.layouts import MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.formats.message import LARGEST_HEAD_SIZE, StoredMessage, frame_head
from rmqctl.store.checkpoint import Checkpoint
from rmqctl.store.columns.batch import ColumnRecord, MessageColumns
from rmqctl.store.columns.parallel import walk_parallel
from rmqctl.store.commitlog.walk import Blank, Progress
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.predict.frames import FrameVerdict, judge
from rmqctl.store.predict.rules import Rules
from rmqctl.store.survey.log_runs import Digest, Run, RunRecord
from rmqctl.store.survey.refused import unreadable_number
from rmqctl.store.survey.refused_rows import may_be_refused

_PIECE = 32 * 1024 * 1024
_LONGEST_V1_TOPIC = 127


class LogPlace(NamedTuple):
    """A byte of the log: the number of a file, and the position in it."""

    file: int
    position: int


class Taker(Protocol):
    """Who gets what is read, in the log's order."""

    def take_run(self, run: Run) -> None:
        """Messages that pass law 3 as well."""

    def take_message(self, message: StoredMessage) -> None:
        """One that only the broker takes."""


class _Part(NamedTuple):
    """What a piece of a file holds, up to a message (at `refused`) that is good and that the broker does not take."""

    records: list[RunRecord]
    refused: int | None


class BrokerReading:
    """Reads `log`, whose files are those that the broker loaded. `checks_crc`: checkCRCOnRecover."""

    def __init__(
        self,
        log: MappedFileQueue,
        rules: Rules,
        digest: Digest,
        progress: Progress | None,
        *,
        checks_crc: bool = True,
    ) -> None:
        self._checks_crc = checks_crc
        self._log = log
        self._rules = rules
        self._digest = digest
        self._progress = progress
        self.why_it_ended = ""

    def read(self, begin: LogPlace, taker: Taker) -> LogPlace:
        """Read on from `begin` to where the log ends for the broker, and return that place.

        The next file is the next one there is.
        """
        files = self._log.files
        place = begin
        while True:
            goes_on, position = self._read_file(files[place.file], place.position, taker, False)
            place = LogPlace(place.file, position)
            if not goes_on or place.file + 1 >= len(files):
                return place
            place = LogPlace(place.file + 1, 0)

    def catch_up(self, begin: int, taker: Taker) -> int:
        """Read on from the physical offset `begin` as the dispatcher of a running broker does (ReputMessageService#
        doReput); the offset at which it finds nothing more to read.

        Bodies are not read, what cannot be read is passed over to the end of its file, and a frame whose lengths do not
        add up by the size it claims. The next file is the one at the next offset: where it is missing nothing follows.
        """
        offset = begin
        while offset < self._log.max_offset:
            file = next(
                (one for one in self._log.files if 0 <= offset - one.start_offset < one.committed_position), None
            )
            if file is None:
                break
            goes_on, position = self._read_file(file, offset - file.start_offset, taker, True)
            is_over = goes_on and position < file.committed_position
            offset = file.start_offset + (file.committed_position if is_over else position)
        return offset

    def _read_file(self, file: MappedFile, position: int, taker: Taker, catching_up: bool) -> tuple[bool, int]:
        """Whether the next file follows, and where this one was left."""
        start, end = file.start_offset, file.committed_position
        while position < end:
            for record in self._records(file, position):
                if isinstance(record, Run):
                    taker.take_run(record)
                    position = record.end - start
                    continue
                if isinstance(record, Blank):
                    return True, position
                stop = end if record is None else record.end - start
                position, verdict = self._judged(file, position, stop, taker, catching_up)
                if verdict is not None:
                    self.why_it_ended = verdict.why
                    return verdict.is_blank or catching_up, position
                if position != stop:
                    break
        return catching_up, position

    def _judged(
        self, file: MappedFile, position: int, stop: int, taker: Taker, catching_up: bool
    ) -> tuple[int, FrameVerdict | None]:
        """Frames from `position` to `stop` by the broker's own judgement; with what ends the file, if anything does."""
        while position < stop:
            verdict = judge(
                file.read,
                position,
                file.committed_position,
                self._rules,
                check_crc=self._checks_crc and not catching_up,
                reads_body=not catching_up,
            )
            if verdict.message is None and not (catching_up and verdict.size > 0):
                return position, verdict
            if verdict.message is not None:
                taker.take_message(verdict.message)
            position += verdict.size
        return position, None

    def _records(self, file: MappedFile, position: int) -> Iterator[RunRecord | None]:
        """Records of one file; None at a good message that the broker does not take."""
        log = MappedFileQueue(self._log.directories, self._log.file_size, self._log.descriptors)
        log.is_shared = False
        log.files = [file]
        digest = self._digest
        begin = file.start_offset + position
        parts = walk_parallel(
            log,
            self._part,
            begin,
            columns=digest.columns,
            topics=digest.topics,
            progress=self._progress,
            piece=_PIECE,
        )
        reached = begin
        for part in parts:
            if part.refused is None:
                yield from part.records
                reached = part.records[-1].end if part.records else reached
                continue
            before = walk_parallel(
                log, digest.runs, reached, part.refused, columns=digest.columns, topics=digest.topics, piece=_PIECE
            )
            for records in before:
                yield from records
            yield None
            return

    def _part(self, records: Iterator[ColumnRecord]) -> _Part:
        refused: list[int] = []

        def passed() -> Iterator[ColumnRecord]:
            for record in records:
                if isinstance(record, MessageColumns) and not refused:
                    first = self._first_refused(record)
                    refused.extend([] if first is None else [first])
                yield record

        made = self._digest.runs(passed())
        return _Part([], refused[0]) if refused else _Part(made, None)

    def _first_refused(self, batch: MessageColumns) -> int | None:
        """Physical offset of the first good message that ends the log for the broker."""
        names = self._digest.topics.names
        refused = [
            message.physical_offset
            for _, message in may_be_refused(batch)
            if unreadable_number(message, knows_batches=self._rules.knows_batches)
        ]
        if not self._rules.reads_v2:
            # only a V2 frame has room for a longer topic
            long = [number for number, name in enumerate(names) if len(name.encode()) > _LONGEST_V1_TOPIC]
            rows = np.flatnonzero(np.isin(batch.topic_id, long))
            refused += [int(batch.physical_offset[rows[0]])] if len(rows) else []
        return min(refused, default=None)


def first_file_after_crash(
    log: MappedFileQueue, checkpoint: Checkpoint | None, rules: Rules, *, covers_index: bool = False
) -> int:
    """Number of the newest file whose first message the checkpoint covers, else 0.

    `covers_index`: the index as well, as with messageIndexSafe=true. (CommitLog#isMappedFileMatchedRecover)
    """
    checkpoint = checkpoint or Checkpoint()
    covered = checkpoint.min_timestamp_index if covers_index else checkpoint.min_timestamp
    magics = (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2) if rules.reads_v2 else (MESSAGE_MAGIC_V1,)
    for number in range(len(log.files) - 1, -1, -1):
        head = frame_head(log.files[number].read(0, LARGEST_HEAD_SIZE))
        if head is not None and head.magic_code in magics and 0 != head.store_timestamp <= covered:
            return number
    return 0
