"""Carries out a cleaning: commitlog first, on disk before anything that points into it goes; then queues and index."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rmqctl.formats.errors import RefusedError, UnreadableError, WriteFailedError
from rmqctl.store.clean.decision import Because, FileDecision
from rmqctl.store.clean.followers import ext_of, judge_ext, judge_index, judge_queue
from rmqctl.store.clean.options import CleaningOrder, CleanOptions, DiskUsage, decide, options_from_config
from rmqctl.store.clean.plan import (
    cleans_crashed,
    judge_commitlog,
    measure_usage,
    needed_by_recovery,
    notes_on,
    plan_clean,
    refuse_unknowable,
)
from rmqctl.store.files import io
from rmqctl.store.files.layout import LARGEST_OFFSET
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import named
from rmqctl.store.files.reference import monotonic_ms
from rmqctl.store.journal.begun import begun
from rmqctl.store.journal.kept.history import note_permanent
from rmqctl.store.journal.log import new_head, refuse_unfinished
from rmqctl.store.journal.taken import take_for_change
from rmqctl.store.queues.batch_consumequeue import BatchConsumeQueue
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.queue_table import has_rocksdb_queues
from rmqctl.store.store_files import StoreFiles

# how long a reader may delay the removal of a file, in ms (ReferenceResource#shutdown); the commitlog's is an option
QUEUE_FORCED_AFTER = 60_000
INDEX_FORCED_AFTER = 3_000
EXT_FORCED_AFTER = 1_000
_AGAIN = "some files are removed, the others are as they were: run `rmqctl clean` again"


class CleanReport(NamedTuple):
    """What was done, or with `dry_run` would be. Offsets physical, -1 without a commitlog; sizes in bytes."""

    order: CleaningOrder
    usage: DiskUsage
    min_offset_before: int
    min_offset: int
    decisions: list[FileDecision]
    notes: list[str]
    dry_run: bool

    @property
    def removed(self) -> list[FileDecision]:
        """Files that went."""
        return [decision for decision in self.decisions if decision.goes]

    @property
    def kept(self) -> list[FileDecision]:
        """Files that stay."""
        return [decision for decision in self.decisions if not decision.goes]

    @property
    def bytes_freed(self) -> int:
        """Sum of the sizes of the files that went (sparse files take less on disk)."""
        return sum(decision.size for decision in self.removed)


class Destroyable(Protocol):
    """A file that can be removed unless a reader holds it."""

    path: Path

    def destroy(self, interval: int, now: int | None = None) -> bool:
        """See MappedFile.destroy."""


class Cleaner:
    """Cleans one open store, again and again: what readers hold goes in a later run.

    The caller holds the store's lock. `clock`: ms, monotonic; `sleep` takes seconds.
    """

    def __init__(
        self,
        files: StoreFiles,
        options: CleanOptions,
        *,
        clock: Callable[[], int] = monotonic_ms,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.files = files
        self.options = options
        self._clock = clock
        self._sleep = sleep
        self._last_retry: int | None = None
        self.has_removed = False
        """Whether a removal was begun."""

    def run(
        self, now: int | None = None, usage: DiskUsage | None = None, needed_from: int = LARGEST_OFFSET
    ) -> CleanReport:
        """One run at `now` (ms since 1970), as the broker's cleaning threads do every ten seconds.

        `needed_from`: physical offset from which on a store that is open for writing still needs its log.

        RefusedError where it could not be known what is deleted; WriteFailedError where a removal fails.
        """
        files, options = self.files, self.options
        refuse_unknowable(files, options)
        is_crashed = cleans_crashed(files, options)
        if is_crashed:
            needed_from = min(needed_from, needed_by_recovery(files))
        now = time.time_ns() // 1_000_000 if now is None else now
        usage = usage or measure_usage(files, options)
        order = decide(options, now, usage)
        before = files.log.min_offset
        first = files.log.files[0] if files.log.files else None
        commitlog = judge_commitlog(files, options, order, now, self._clock(), needed_from)
        commitlog = self._remove_from(files.log, commitlog, options.forced_after)
        if self._retry_hanging_first() and first is not None and first not in files.log.files:
            commitlog[0] = commitlog[0]._replace(because=Because.EXPIRED, detail="was held by a reader before")
        # they point into a log whose end is not known yet
        followers = [] if is_crashed else self._follow(files.log.min_offset)
        decisions = [*commitlog, *followers]
        notes = notes_on(files, is_crashed=is_crashed)
        return CleanReport(order, usage, before, files.log.min_offset, decisions, notes, False)

    def _remove_from(
        self, queue: MappedFileQueue, decisions: list[FileDecision], forced_after: int
    ) -> list[FileDecision]:
        """Carry out decisions on the files of `queue`, which they are about in order; returns what became of them."""
        done: list[FileDecision] = []
        try:
            # a store that is open for writing may have added files since
            self._remove(queue.files[: len(decisions)], decisions, forced_after, done)
        finally:
            gone = {decision.path for decision in done if decision.goes}
            queue.forget(gone)
            _flush_directories(gone)
        return done

    def _remove(
        self, files: Sequence[Destroyable], decisions: list[FileDecision], forced_after: int, done: list[FileDecision]
    ) -> None:
        held = False
        for file, decision in zip(files, decisions, strict=True):
            result = decision
            if held and decision.goes:
                result = decision._replace(because=Because.BEHIND, detail="behind a file that a reader holds")
            elif decision.goes or decision.because is Because.HELD:
                if any(earlier.goes for earlier in done):
                    # a power cut may undo this removal and not the next, which leaves a gap
                    io.flush_directory(decision.path.parent)
                    self._sleep(self.options.pause / 1000)
                self.has_removed = True
                if not file.destroy(forced_after, self._clock()):
                    held = True
                    result = decision._replace(because=Because.HELD, detail="a reader holds it")
                elif not decision.goes:
                    result = decision._replace(because=Because.EXPIRED, detail="was held by a reader before")
            done.append(result)

    def _retry_hanging_first(self) -> bool:
        """Every now and then, try again to remove a first file that was held (CommitLog#retryDeleteFirstFile)."""
        now = self._clock()
        if self._last_retry is not None and now - self._last_retry < self.options.retry_hanging_after:
            return False
        self._last_retry = now
        log = self.files.log
        if not log.files or log.files[0].reference.available:
            return False
        first = log.files[0]
        if not first.destroy(self.options.forced_after, now):
            return False
        log.forget({first.path})
        _flush_directories({first.path})
        return True

    def _follow(self, min_offset: int) -> list[FileDecision]:
        """Queues, ext files and index after the commitlog now begins at `min_offset`."""
        files = self.files
        done: list[FileDecision] = []
        if min_offset <= 0:
            return done
        if not has_rocksdb_queues(files.layout):
            for queue in files.queues.all():
                if isinstance(queue, BatchConsumeQueue):
                    with queue.changing:
                        decisions = list(judge_queue(queue, min_offset))
                        done += self._remove_from(queue.files, decisions, QUEUE_FORCED_AFTER)
                        queue.reread()
                if isinstance(queue, ConsumeQueue):
                    decisions = list(judge_queue(queue, min_offset))
                    done += self._remove_from(queue.files, decisions, QUEUE_FORCED_AFTER)
                    ext = ext_of(files, queue)
                    decisions = list(judge_ext(queue, ext, min_offset))
                    done += self._remove_from(ext.files, decisions, EXT_FORCED_AFTER)
        return done + self._remove_from_index(min_offset)

    def _remove_from_index(self, min_offset: int) -> list[FileDecision]:
        index = self.files.index
        known = {file.path: file for file in index.files}
        decisions = list(judge_index(index, min_offset))
        judged = [decision for decision in decisions if decision.path in known]
        done: list[FileDecision] = []
        try:
            self._remove([known[decision.path] for decision in judged], judged, INDEX_FORCED_AFTER, done)
        finally:
            gone = {decision.path for decision in done if decision.goes}
            index.forget(gone)
            _flush_directories(gone)
        return done + [decision for decision in decisions if decision.path not in known]


def _flush_directories(gone: set[Path]) -> None:
    for directory in sorted({path.parent for path in gone}):
        io.flush_directory(directory)


def clean(
    files: StoreFiles,
    options: CleanOptions | None = None,
    *,
    now: int | None = None,
    usage: DiskUsage | None = None,
    dry_run: bool = False,
    arguments: list[str] | None = None,
) -> CleanReport:
    """Clean a store that nobody else has open, once, under its lock; `files` are those that its readers use.

    A file that a reader of this process holds stays: it goes in a later call with the same `files`, once it is
    released, or when the interval of the options is over since the first call.

    `options` are those of the store's configuration unless given. What is removed is gone: nothing is kept of it but a
    line in the log of changes.
    StoreInUseError; RefusedError for a store that was not closed cleanly or whose first offset cannot be known.
    """
    options = options or options_from_config(files.config)
    now = time.time_ns() // 1_000_000 if now is None else now
    with named(files.root):
        if dry_run:
            refuse_unfinished(files.layout)
            plan = plan_clean(files, options, now=now, usage=usage)
            notes = plan.notes
            if files.has_abort() and files.log.is_shared and not options.crashed:
                notes = [
                    *notes,
                    "`abort` exists: the store is open or was not closed cleanly, so it would not be cleaned",
                ]
            decisions = [*plan.commitlog, *plan.followers]
            return CleanReport(
                plan.order, plan.usage, plan.min_offset_before, plan.min_offset, decisions, notes, dry_run=True
            )
        lock = take_for_change(files.layout)
        try:
            # under the lock, and in the same files: others may have changed the store, and readers hold some of them
            files.look_again()
            if files.has_abort() and not options.crashed:
                raise RefusedError(
                    "the store was not closed cleanly",
                    file=files.layout.abort,
                    hint="run `rmqctl recover` first; if its disk is too full for that, `rmqctl clean --crashed` "
                    "removes expired files at the beginning of the log",
                )
            # nobody else uses the store while we hold its lock, so there is nobody to leave pauses for
            return clean_locked(Cleaner(files, options, sleep=lambda _: None), now, usage, arguments=arguments)
        finally:
            lock.release()


def clean_locked(
    cleaner: Cleaner,
    now: int | None = None,
    usage: DiskUsage | None = None,
    *,
    needed_from: int = LARGEST_OFFSET,
    arguments: list[str] | None = None,
) -> CleanReport:
    """One run for a store whose lock is ours, with its line in the log of changes if anything went."""
    head = new_head(cleaner.files.layout, "clean", arguments)
    with begun(_AGAIN, cleaner.files.root, lambda: cleaner.has_removed):
        report = cleaner.run(now, usage, needed_from)
    if report.removed:
        _note(cleaner.files, head, report)
    return report


def _note(files: StoreFiles, head: dict[str, Any], report: CleanReport) -> None:
    """A line in the history: from here on no earlier change can be undone."""
    try:
        note_permanent(files.layout, {**head, "paths": len(report.removed), "bytes": report.bytes_freed})
    except (UnreadableError, WriteFailedError) as error:  # the work itself is done
        report.notes.append(f"`rmqctl log` will not show this cleaning: {error}")
