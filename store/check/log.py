"""What the walk over the log yields, as findings: damage in it, its torn tail, messages that came back to life."""

from __future__ import annotations

import bisect
import functools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import RmqctlError, UnreadableError, refuse_exhausted
from rmqctl.formats.message import Reason, StoredMessage
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.cross import CrossCheck, LogSeen
from rmqctl.store.check.log_findings import AffectedMessages, DamageFindings, Look
from rmqctl.store.config.epoch_file import Epoch
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import FileProblem, MappedFileQueue
from rmqctl.store.files.reading import end_of_nonzero
from rmqctl.store.log.columns import ColumnRecord, MessageColumns
from rmqctl.store.log.implied import PIECE, Digest, QueueRun, Run, RunRecord, columns_of, split_at_refused
from rmqctl.store.log.parallel import walk_parallel
from rmqctl.store.log.survey import Settled, Settling, Tail
from rmqctl.store.log.walk import Damage, walk
from rmqctl.store.options import Events
from rmqctl.store.read.frames import message_at
from rmqctl.store.store_files import StoreFiles

# The one walk over the log that feeds everything: runs for the cross checks, damage, and what batches showed.


class Walked(NamedTuple):
    """A piece of the log: its records in order, and what was noted of its messages."""

    records: list[RunRecord]
    look: Look


def walk_range(
    log: MappedFileQueue,
    begin: int,
    end: int | None,
    digest: Digest,
    *,
    is_full: bool = False,
    events: Events = Events(),
) -> Iterator[Walked]:
    """Walk [begin, end) of the log, every checksum included; `begin` is where a frame starts. Pieces in order."""
    columns = digest.columns | Look(is_full).columns
    work = functools.partial(walked, digest, is_full)
    return walk_parallel(
        log, work, begin, end, columns=columns, topics=digest.topics, progress=events.progress, piece=PIECE
    )


def walked(digest: Digest, is_full: bool, records: Iterator[ColumnRecord]) -> Walked:
    """The records of a piece, and what was noted of them."""
    look = Look(is_full)

    def looked_at() -> Iterator[ColumnRecord]:
        for record in split_at_refused(records):
            if isinstance(record, MessageColumns):
                look.add(record)
            yield record

    return Walked(digest.runs(looked_at()), look)


# Messages of the log that are older than those before them: left after a truncation, which only moves positions.
#
# Two things show it: queue offsets that were given already, and in a store under a controller another master's
# address than that of the epoch (apache/rocketmq#10666). A clock that was set back shows neither.


IsQueued = Callable[[StoredMessage], bool]


class OldMessages:
    """Takes the runs of the valid log in order. `tail`: how the log ends; `epochs`: of the epoch file, ascending.
    `is_queued`: whether the queue of a message leads to it: a truncation cuts the queues at once."""

    def __init__(self, log: MappedFileQueue, tail: Tail, epochs: Sequence[Epoch], is_queued: IsQueued) -> None:
        self._log = log
        self._tail = tail
        self._epochs = epochs
        self._is_queued = is_queued
        self._masters: dict[int, str | None] = {}
        self._reported: set[int] = set()
        self._slots: dict[tuple[str, int], int] = {}
        self._last_message_offset = -1

    def pass_run(self, run: Run, jumps: Sequence[int]) -> Iterator[Finding]:
        """Yield what the first such place of a run is; `jumps`: messages stored earlier than the one before them."""
        for physical_offset in jumps:
            if run.physical_offset <= physical_offset < run.end:
                found = self._judge(run, physical_offset)
                if found is not None:
                    yield found
                    break
        queues = columns_of(run.queues)
        for key, slot in zip(queues.keys, queues.highest_slots(), strict=True):
            self._slots[key] = max(self._slots.get(key, -1), slot)
        self._last_message_offset = run.last_message_offset

    def _judge(self, run: Run, physical_offset: int) -> Finding | None:
        message = self._message(physical_offset)
        if message is None:
            return None
        return self._given_twice(run, message) or self._of_another_master(run, message)

    def _given_twice(self, run: Run, message: StoredMessage) -> Finding | None:
        """Return a finding if the message takes a queue offset given already."""
        if not has_queue_slot(message.sys_flag):
            return None
        known = self._slots.get((message.topic, message.queue_id), -1)
        for queue in run.queues:
            if (queue.topic, queue.queue_id) == (message.topic, message.queue_id):
                before = queue.slots[_offsets(queue) < message.physical_offset]
                known = max(known, int(before.max()) if len(before) else -1)
        if message.queue_offset > known:
            return None
        text = f"older than the message before it, and queue offset {message.queue_offset} was given already"
        return self._finding("RMQ-LOG-015", text, run, message, known + 1, message.queue_offset)

    def _of_another_master(self, run: Run, message: StoredMessage) -> Finding | None:
        """Return a finding if another broker stored the message than the master of its epoch."""
        number = bisect.bisect_right([epoch.start for epoch in self._epochs], message.physical_offset) - 1
        if number < 0 or number in self._reported:
            return None
        master, host = self._master(number), str(message.store_host)
        if master is None or master == host or self._is_queued(message):
            return None
        self._reported.add(number)
        epoch = self._epochs[number].number
        text = f"older than the message before it, and stored by {host}: the master of epoch {epoch} is {master}"
        return self._finding("RMQ-EPO-004", text, run, message, master, host)

    def _master(self, number: int) -> str | None:
        """Return the address of an epoch's master, which its first message has; None where that is not known."""
        if number not in self._masters:
            start = max(self._epochs[number].start, self._log.min_offset)
            # a blank frame may come before it
            first = (one for _, one in zip(range(2), walk(self._log, start), strict=False))
            message = next((one for one in first if isinstance(one, StoredMessage)), None)
            self._masters[number] = None if message is None else str(message.store_host)
        return self._masters[number]

    def _finding(
        self, code: str, text: str, run: Run, message: StoredMessage, expected: str | int, found: str | int
    ) -> Finding:
        file = self._log.find(message.physical_offset)
        return Finding(
            code,
            text,
            None if file is None else file.path,
            message.physical_offset,
            message.topic,
            message.queue_id,
            expected,
            found,
            data_lost=False,
            # where newer messages follow, a cut would take them along
            fix=f"rmqctl repair --only {code}" if self._is_end_left_over(run, message.physical_offset) else "",
        )

    def _is_end_left_over(self, run: Run, physical_offset: int) -> bool:
        """Return whether all that follows up to the log's end is older than the message before the offset."""
        before = [self._last_message_offset]
        for queue in run.queues:
            offsets = _offsets(queue)
            before += offsets[offsets < physical_offset][-1:].tolist()
        before += [one.physical_offset for _, one in run.special if one.physical_offset < physical_offset]
        message = self._message(max(before))
        return message is not None and self._tail.is_left_over(message.store_timestamp)

    def _message(self, physical_offset: int) -> StoredMessage | None:
        if physical_offset < 0:
            return None
        try:
            return message_at(self._log, physical_offset)
        except RmqctlError:
            return None


def _offsets(queue: QueueRun) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return queue.units["physical_offset"].astype(np.int64)


# found by the names and sizes of the files already
_OF_FILES = (Reason.GAP, Reason.SHORT_FILE)
_JUMPS_A_PIECE = 8


class LogCheck:
    """Takes the pieces of the walk in order. `seen` is filled on the way; `cross` gets every run of the valid log.

    `unreadable` is called with a file that a cross check cannot read; that check is left out of `cross` from then on.
    """

    def __init__(
        self,
        seen: LogSeen,
        cross: Sequence[CrossCheck],
        findings: DamageFindings,
        settling: Settling,
        old_messages: OldMessages,
        unreadable: Callable[[UnreadableError], Finding],
    ) -> None:
        self.look = Look(is_full=True)
        self.last_message_offset = -1
        self._seen = seen
        self.cross = list(cross)
        self._unreadable = unreadable
        self._findings = findings
        self._settling = settling
        self._old_messages = old_messages

    def take(self, walked: Walked) -> Iterator[Finding]:
        """The next piece."""
        jumps = walked.look.jumps.first[:_JUMPS_A_PIECE]
        if walked.look.messages and walked.look.first_store_timestamp < self.look.last_store_timestamp:
            jumps = [walked.look.first_physical_offset, *jumps]
        for record in walked.records:
            if isinstance(record, Run):
                yield from self._run(record, jumps)
            elif isinstance(record, Damage) and record.reason in _OF_FILES:
                self._seen.damaged.append(record)
            else:
                self._settling.pass_other(record)
                self._advance()
        self.look.join(walked.look)

    def _run(self, run: Run, jumps: list[int]) -> Iterator[Finding]:
        settled = self._settling.pass_run(run)
        if settled is None:
            return
        yield from self._told(settled)
        yield from self._old_messages.pass_run(run, jumps)
        self._advance()
        self.last_message_offset = run.last_message_offset
        for check in list(self.cross):
            try:
                check.add(run)
            except UnreadableError as error:
                self.cross.remove(check)
                yield self._unreadable(error)

    def _advance(self) -> None:
        self._seen.log_end = max(self._seen.log_end, self._settling.valid_end)

    def end_range(self) -> Iterator[Finding]:
        """A stretch of the log was walked to its end."""
        settled = self._settling.finish()
        self._seen.is_live |= self._settling.is_live
        yield from self._told(settled)

    def _told(self, settled: Settled) -> Iterator[Finding]:
        self._seen.damaged += settled.damaged
        yield from map(self._findings.inside, settled.inside)
        if settled.torn is not None:
            yield self._findings.tail(settled.torn, settled.torn_frames)
        for stale in settled.stale:
            yield self._findings.stale(*stale, log_end=self._settling.valid_end)


# The commitlog's files as files: names, sizes, gaps, links, and what is no file.

_BRIDGE = "rmqctl recover --bridge"


def log_file_findings(files: StoreFiles, affected: AffectedMessages) -> Iterator[Finding]:
    """Everything that can be said of the commitlog without reading messages."""
    log = files.log
    missing = files.missing_log()
    if missing is not None:
        units = affected.count(-(1 << 63), (1 << 63) - 1)
        yield Finding(
            "RMQ-FILE-010", missing, files.layout.commitlog[0], messages=units, data_lost=True if units else None
        )
    if files.dledger is not None:
        yield Finding("RMQ-FILE-050", files.dledger.said, files.dledger.folder, data_lost=False)
    for problem in log.problems:
        yield from _problem(log, problem, affected)
    for directory in log.directories:
        yield from entry_findings(directory)
    last = log.last_with_data()
    for file in log.files:
        if last is None or file.start_offset > last.start_offset:
            text = "all zeros: prepared for messages to come"
            yield Finding("RMQ-FILE-011", text, file.path, file.start_offset, bytes=file.size, messages=0)


def entry_findings(directory: Path) -> Iterator[Finding]:
    """Entries of a directory of offset-named files that are no plain files: links, directories."""
    try:
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        refuse_exhausted(error, directory)
        # absent; one that cannot be listed was told where it was loaded
        return
    for entry in found:
        path = Path(entry.path)
        if entry.is_symlink():
            yield Finding("RMQ-FILE-008", f"a link to {os.readlink(path)}", path, found="link", expected="file")
        elif entry.is_dir():
            yield Finding("RMQ-FILE-009", "a directory among the files", path, found="directory", expected="file")


def _problem(log: MappedFileQueue, problem: FileProblem, affected: AffectedMessages) -> Iterator[Finding]:
    path, detail = problem.path, problem.detail
    file = next((file for file in log.files if file.path == path), None)
    match problem.kind:
        case "stray":
            is_special = not _is_regular(path)
            yield Finding("RMQ-FILE-007" if is_special else "RMQ-FILE-001", detail, path, bytes=_size(path))
        case "unreadable":
            yield Finding("RMQ-FILE-006", detail, path, data_lost=None)
        case "empty":
            yield _empty(log, path, detail, affected)
        case "size" if file is not None:
            yield _wrong_size(log, file, detail, affected)
        case "gap" if file is not None:
            yield _gap(log, file, affected)
        case "overlap" if file is not None:
            yield Finding("RMQ-FILE-005", detail, path, file.start_offset, data_lost=None)


def _empty(log: MappedFileQueue, path: Path, detail: str, affected: AffectedMessages) -> Finding:
    """The gap reports the content of an empty file inside the log, the queues report that of one past the log's end. Of
    one before all that is left the units alone tell it: they look like those of expired messages."""
    begin = int(path.name)
    messages: int | None = 0
    if log.files and begin < log.files[0].start_offset:
        following = min(start for start in (*log.empty_files(), log.files[0].start_offset) if start > begin)
        messages = affected.count(begin, following)
    return Finding(
        "RMQ-FILE-003",
        detail,
        path,
        expected=log.file_size,
        found=0,
        bytes=0,
        messages=messages,
        data_lost=None if messages is None else messages > 0,
    )


def _wrong_size(log: MappedFileQueue, file: MappedFile, detail: str, affected: AffectedMessages) -> Finding:
    missing = log.file_size - file.size
    is_last = file is log.last_with_data() or file is log.files[-1]
    messages: int | None = None
    data_lost: bool | None = False
    if missing > 0:
        messages = affected.count(file.end_offset, file.start_offset + log.file_size)
        # zeros up to the cut: nothing had been written behind it
        ends_in_zeros = end_of_nonzero(file.descriptors, file.path, 0, file.size) < file.size
        data_lost = not ends_in_zeros if is_last or messages is None else messages > 0 or not ends_in_zeros
    return Finding(
        "RMQ-FILE-002",
        detail,
        file.path,
        file.start_offset,
        expected=log.file_size,
        found=file.size,
        bytes=abs(missing),
        messages=messages,
        data_lost=data_lost,
        fix=None if is_last or missing < 0 else _BRIDGE,
    )


def _gap(log: MappedFileQueue, file: MappedFile, affected: AffectedMessages) -> Finding:
    number = log.files.index(file)
    begin = log.files[number - 1].start_offset + log.file_size
    return Finding(
        "RMQ-FILE-004",
        f"the commitlog has no file for [{begin}, {file.start_offset})",
        file.path.with_name(f"{begin:020d}"),
        begin,
        expected=begin,
        found=file.start_offset,
        bytes=file.start_offset - begin,
        messages=affected.count(begin, file.start_offset),
        data_lost=True,
    )


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
