"""What the files of a log hold, as runs: a start asks twice, starts of several versions again, and one walk serves."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmqctl.store.config.releases import Release
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import ColumnRecord, MessageColumns
from rmqctl.store.log.implied import Digest, GatheredUnits, QueueRuns, Run, RunRecord, columns_of, may_be_refused
from rmqctl.store.log.parallel import walk_parallel
from rmqctl.store.log.walk import Damage, Empty, Progress, unreadable_number

PIECE = 32 * 1024 * 1024
_LONGEST_V1_TOPIC = 127
_ROOM = 256 * 1024 * 1024
"""Bytes of runs that are kept, about."""
_UNIT_BYTES, _QUEUE_BYTES, _MESSAGE_BYTES = 28, 120, 800
_AT_ENDS = 4096


class Refused(NamedTuple):
    """Physical offsets of the first good messages that end the log for a broker: one that knows batches, one that does
    not, and one that reads V1 frames alone."""

    with_batches: int | None = None
    without: int | None = None
    for_v1: int | None = None


class WalkedPart(NamedTuple):
    """What a piece of a file holds."""

    records: list[RunRecord]
    refused: Refused = Refused()

    def refused_by(self, release: Release) -> int | None:
        """Physical offset of the first good message that ends the log for a broker."""
        first = self.refused.with_batches if release.knows_batches else self.refused.without
        return _first([first, None if release.reads_v2 else self.refused.for_v1])

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        runs = [run for run in self.records if isinstance(run, Run)]
        columns = [columns_of(run.queues) for run in runs]
        units = sum(_QUEUE_BYTES * len(queues) + _UNIT_BYTES * len(queues.slots) for queues in columns)
        # these are whole messages
        special = [message for run in runs for _, message in run.special]
        return units + sum(_MESSAGE_BYTES + len(one.body) + len(one.property_bytes) for one in special)


class _Kept(NamedTuple):
    """A file from some position on: records up to `end`, a position, and zeros from there to `walked`. `damage`: the
    position of bytes that are damaged up to `end`, and the first of these."""

    parts: list[WalkedPart]
    end: int
    walked: int
    damage: tuple[int, bytes] | None

    def is_full(self, file: MappedFile, following: MappedFile) -> bool:
        """Whether good records go on to the end of the file, where the following one begins or behind it."""
        is_whole = self.damage is None and self.end == file.committed_position == file.size
        return is_whole and file.end_offset <= following.start_offset


@dataclass
class WalkedLog:
    """Runs of the files of one log, up to _ROOM bytes, and the queues beside it: starts of all versions meet the same
    ones."""

    _digest: Digest = field(default_factory=lambda: _digest_of(()))
    listed: dict[Path, Any] = field(default_factory=dict)
    """Folders of queues as a start lists them."""
    units: dict[Path, Any] = field(default_factory=dict)
    """Units of small queue files."""
    permissions: tuple[str | None, list[str]] | None = None
    _files: object = None
    _kept: dict[tuple[Path, int], _Kept] = field(default_factory=dict)
    _room: int = _ROOM

    def clear(self) -> None:
        """Forget what was seen."""
        self._kept, self._room = {}, _ROOM
        self.use_queues(None)

    def use_queues(self, files: object) -> None:
        """Forget the queues of a store that was opened before: they may have been written since."""
        if self._files is not files:
            self._files = files
            self.listed, self.units, self.permissions = {}, {}, None

    def use(self, levels: tuple[int, ...]) -> None:
        """Make runs as a broker with these delay levels, in ms; those made with others are forgotten."""
        if self._digest.delay_levels != levels:
            self.clear()
            self._digest = _digest_of(levels)

    def alone(
        self, log: MappedFileQueue, file: MappedFile, position: int, progress: Progress | None
    ) -> Iterator[WalkedPart]:
        """A file from `position` on as if it were the only one, in pieces."""
        kept = self._known(file, position)
        if kept is None:
            yield from self._walked(_log_of(log, file), file, position, progress)
            return
        if progress is not None:
            progress(file.committed_position - position)
        yield from kept.parts
        if kept.end < file.committed_position:
            start = file.start_offset
            yield WalkedPart([Empty(start + kept.end, start + file.committed_position)])

    def up_to(self, log: MappedFileQueue, file: MappedFile, begin: int, end: int) -> Iterator[RunRecord]:
        """Records of physical offsets [begin, end) of a file as if it were the only one."""
        columns, topics = self._digest.columns, self._digest.topics
        for records in walk_parallel(
            _log_of(log, file), self._digest.runs, begin, end, columns=columns, topics=topics, piece=PIECE
        ):
            yield from records

    def all(self, log: MappedFileQueue) -> Iterator[WalkedPart]:
        """All files of the log, in pieces; zeros at the end of it may be left out."""
        for file, following in itertools.zip_longest(log.files, log.files[1:]):
            kept = self._known(file, 0)
            # what ends a file that another one follows, or overlaps, may be other damage in a walk of the whole log
            if kept is None or not (following is None or kept.is_full(file, following)):
                yield from self._walked(log, file, 0, None)
            else:
                yield from kept.parts

    def _walked(
        self, log: MappedFileQueue, file: MappedFile, position: int, progress: Progress | None
    ) -> Iterator[WalkedPart]:
        """Walk the file, and keep what is found. A caller that takes the last part may stop there: the walk is over."""
        begin, end = file.start_offset + position, file.start_offset + file.committed_position
        digest = self._digest
        last, size = None, 0
        made: list[WalkedPart] | None = []
        for part in walk_parallel(
            log, self._part, begin, end, columns=digest.columns, topics=digest.topics, progress=progress, piece=PIECE
        ):
            if last is not None:
                yield last
            last = part
            if made is None:
                continue
            made.append(part)
            size += part.size
            if size > self._room:
                made = _joined(made)
                size = sum(one.size for one in made)
                # to join them again and again would take longer than another walk
                made = made if size < self._room // 2 else None
        kept = None if made is None else _of_parts(_joined(made), file, position)
        if kept is not None:
            self._kept[file.path, position] = kept
            self._room -= sum(one.size for one in kept.parts)
        if last is not None:
            yield last

    def _known(self, file: MappedFile, position: int) -> _Kept | None:
        """What the file holds up to the position that counts now; None where that is not known."""
        kept = self._kept.get((file.path, position))
        if kept is None or not kept.end <= file.committed_position <= kept.walked:
            return None
        # a broker may have written on meanwhile
        behind = file.read(kept.end, min(_AT_ENDS, file.committed_position - kept.end))
        at, damaged = kept.damage or (kept.end, b"")
        return kept if not any(behind) and file.read(at, len(damaged)) == damaged else None

    def _part(self, records: Iterator[ColumnRecord]) -> WalkedPart:
        refused: list[Refused] = []

        def passed() -> Iterator[ColumnRecord]:
            for record in records:
                if isinstance(record, MessageColumns):
                    refused.append(self._refused(record))
                yield record

        made = self._digest.runs(passed())
        return WalkedPart(
            made,
            Refused(
                _first(one.with_batches for one in refused),
                _first(one.without for one in refused),
                _first(one.for_v1 for one in refused),
            ),
        )

    def _refused(self, batch: MessageColumns) -> Refused:
        doubtful = [message for _, message in may_be_refused(batch)]
        with_batches, without = (
            _first(one.physical_offset for one in doubtful if unreadable_number(one, knows_batches=knows))
            for knows in (True, False)
        )
        # only a V2 frame has room for a longer topic
        long = self._digest.topics.longer_than(_LONGEST_V1_TOPIC)
        for_v1 = batch.physical_offset[np.isin(batch.topic_id, long)] if len(long) else batch.physical_offset[:0]
        return Refused(with_batches, without, int(for_v1[0]) if len(for_v1) else None)


def _digest_of(levels: tuple[int, ...]) -> Digest:
    return Digest(levels, keys=False, refuses=False)


def _log_of(log: MappedFileQueue, file: MappedFile) -> MappedFileQueue:
    """One file of a log as a log of its own."""
    one = MappedFileQueue(log.directories, log.file_size, log.descriptors)
    one.is_shared = False
    one.files = [file]
    return one


def _first(offsets: Iterable[int | None]) -> int | None:
    return min((offset for offset in offsets if offset is not None), default=None)


def _joined(parts: list[WalkedPart]) -> list[WalkedPart]:
    """The same with neighbours as one: of many queues each part has few units, and a run of each queue costs more than
    its units."""
    joined: list[WalkedPart] = []
    for is_plain, group in itertools.groupby(parts, _is_plain):
        if is_plain:
            runs = [run for part in group for run in part.records if isinstance(run, Run)]
            joined.append(WalkedPart([_one_of(runs)]))
        else:
            joined += group
    return joined


def _is_plain(part: WalkedPart) -> bool:
    """Whether a part is a run of messages that no version refuses and that all take the fast way."""
    if part.refused != Refused() or len(part.records) != 1:
        return False
    [record] = part.records
    return isinstance(record, Run) and not record.special


def _one_of(runs: list[Run]) -> Run:
    """Runs that follow one another as one."""
    gathered = GatheredUnits[tuple[str, int]]()
    for run in runs:
        queues = columns_of(run.queues)
        gathered.add(queues.keys, queues)
    numbers, slots, units = gathered.take()
    ends = np.searchsorted(numbers, np.arange(len(gathered.numbers)), side="right")
    last = runs[-1]
    return Run(
        runs[0].physical_offset,
        last.end,
        sum(run.messages for run in runs),
        last.last_message_offset,
        last.last_store_timestamp,
        sum(run.unplaceable for run in runs),
        QueueRuns(list(gathered.numbers), ends, slots, units, None),
    )


def _of_parts(parts: list[WalkedPart], file: MappedFile, position: int) -> _Kept | None:
    """What was found, where it is all of the file from `position` on."""
    records = [record for part in parts for record in part.records]
    zeros = records.pop() if records and isinstance(records[-1], Empty) else None
    reached = file.start_offset + position
    for record in records:
        if record.physical_offset != reached:
            return None
        reached = record.end
    walked = reached if zeros is None else zeros.end
    if walked != file.start_offset + file.committed_position or (zeros and zeros.physical_offset != reached):
        return None
    damage = None
    if records and isinstance(records[-1], Damage):
        at = records[-1].physical_offset - file.start_offset
        damage = at, file.read(at, min(_AT_ENDS, reached - file.start_offset - at))
    # a caller that asks for less of the file than was walked gets less of the zeros
    without = [WalkedPart([one for one in part.records if not isinstance(one, Empty)], part.refused) for part in parts]
    return _Kept(without, reached - file.start_offset, walked - file.start_offset, damage)
