"""Consume queues against the commitlog, both ways: the check that one walk over the log feeds."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.store.answers.known_names import KnownNames
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.cross import Level, LogSeen
from rmqctl.store.check.queues.compare import QueuesComparison
from rmqctl.store.check.queues.findings import (
    behind,
    deleted_topics,
    end_findings,
    expired_files,
    gone,
    look_findings,
    removed_topics,
    slot_findings,
)
from rmqctl.store.check.queues.live import live_tally
from rmqctl.store.check.queues.look import UnitLook
from rmqctl.store.check.queues.tally import QueuesTally, QueueTally, SlotState, Stretch, Stretches
from rmqctl.store.queues.batch_consumequeue import BatchConsumeQueue
from rmqctl.store.queues.queue_table import AnyConsumeQueue, has_rocksdb_queues, is_in_rocksdb_alone
from rmqctl.store.queues.unit import QueueKey
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_runs import Run


class QueueCheck:
    """`add` the runs of the log in its order, or `merge` what was found in its parts, then `finish` once.

    Memory: some 50 bytes for every stretch of slots that is not as the one before it; one stretch for a sound queue.
    Queues in a RocksDB are not looked at.
    """

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._is_wanted = not has_rocksdb_queues(files.layout)
        self._comparison = QueuesComparison(files) if self._is_wanted else None

    @property
    def tally(self) -> QueuesTally:
        """What was found so far; can be pickled."""
        return self._comparison.tally if self._comparison is not None else QueuesTally()

    def add(self, run: Run) -> None:
        """The log holds these messages."""
        if self._comparison is not None:
            self._comparison.take(run)

    def merge(self, later: QueuesTally) -> None:
        """A part of the log that follows was compared elsewhere; `later` is used up."""
        if self._comparison is not None:
            self._comparison.tally.merge(later)

    def finish(self, seen: LogSeen) -> Iterator[Finding]:
        """What differs, queue by queue. At the quick level the last unit of each queue is looked at, and no more."""
        if not self._is_wanted:
            return
        if seen.level is Level.QUICK:
            yield from _ends(self._files, seen)
            return
        if not seen.is_live:
            yield from self._finish(self._files, seen)
            return
        # What waits is compared before the queues are looked at anew: what was found by then came before that, and so
        # did all that the log has before it.
        assert self._comparison is not None
        self._comparison.compare()
        # files that came since this check began count too
        with StoreFiles(self._files.root, self._files.config) as now:
            yield from self._finish(now, seen)

    def _finish(self, files: StoreFiles, seen: LogSeen) -> Iterator[Finding]:
        queues: dict[QueueKey, AnyConsumeQueue] = {(queue.topic, queue.queue_id): queue for queue in files.queues.all()}
        removed = _removed_keys(files, queues, self.tally)
        yield from removed_topics(files, self.tally, removed)
        implied = self.tally.queues.keys() - removed
        if implied and not any(_has_units(queue) for queue in queues.values()) and not seen.is_live:
            yield gone(files, self.tally)
            return
        reached = self._dispatched(queues, seen)
        undispatched: list[tuple[QueueKey, Stretch]] = []
        look = UnitLook(files, seen)
        deleted: list[tuple[QueueKey, Stretches]] = []
        for key in sorted({*queues, *self.tally.queues}):
            queue = queues.get(key)
            if key in removed or (queue is None and is_in_rocksdb_alone(files.layout, key[0])):
                continue
            tally = self.tally.queues.get(key) or QueueTally(isinstance(queue, BatchConsumeQueue))
            live = live_tally(files.log, queue, tally, is_whole=seen.is_whole)
            tally = live.tally
            if len(live.deleted):
                deleted.append((key, live.deleted))
            missing = tally.of(SlotState.MISSING)
            if seen.is_live:
                missing = _all_still_missing(queue, missing)
            table = missing.table()
            # in a store in use a stretch may have come in part, so only its last message tells
            is_late = table[:, 3 if seen.is_live else 2] > reached
            undispatched += [(key, Stretch(*row)) for row in table[is_late].tolist()]
            yield from slot_findings(files, key, queue, tally, table[~is_late])
            if queue is None:
                continue
            yield from look_findings(files, queue, look.look(queue, live), seen)
            if not seen.is_live:
                yield from end_findings(queue)
        if deleted:
            yield deleted_topics(files, deleted)
        if undispatched:
            yield behind(files, undispatched, seen)
        if seen.is_whole and not seen.is_live:
            yield from expired_files(files, seen)

    def _dispatched(self, queues: dict[QueueKey, AnyConsumeQueue], seen: LogSeen) -> int:
        """Physical offset of the last message that reached its queue; all messages before it should have."""
        if seen.is_whole:
            return self.tally.last_matched()
        last = [queue.unit(queue.max_offset - 1) for queue in queues.values() if _has_units(queue)]
        known = [unit.physical_offset for unit in last if unit is not None and unit.is_written]
        return max((offset for offset in known if offset < seen.log_end), default=-1)


def _removed_keys(
    files: StoreFiles, queues: dict[QueueKey, AnyConsumeQueue], tally: QueuesTally
) -> frozenset[QueueKey]:
    """Return the queues that only the log knows, because their topics were removed."""
    absent = {key for key in tally.queues if key not in queues}
    if not absent:
        return frozenset()
    names = KnownNames.of(files)
    topics = {topic for topic in {topic for topic, _ in absent} if names.is_removed(topic)}
    return frozenset(key for key in absent if key[0] in topics)


def _ends(files: StoreFiles, seen: LogSeen) -> Iterator[Finding]:
    """What the last unit of each queue points at."""
    look = UnitLook(files, seen)
    for queue in files.queues.all():
        yield from look_findings(files, queue, look.look_at_end(queue), seen)
        if not seen.is_live:
            yield from end_findings(queue)


def _has_units(queue: AnyConsumeQueue) -> bool:
    if isinstance(queue, BatchConsumeQueue):
        return queue.max_offset > 0
    return queue.max_offset > queue.first_slot


def _all_still_missing(queue: AnyConsumeQueue | None, stretches: Stretches) -> Stretches:
    left = Stretches()
    for stretch in stretches:
        missing = _still_missing(queue, stretch)
        if missing is not None:
            left.add(missing)
    return left


def _still_missing(queue: AnyConsumeQueue | None, stretch: Stretch) -> Stretch | None:
    """What of a stretch that was missing is missing now: a store in use dispatches while it is looked at."""
    if queue is None or queue.max_offset <= stretch.slot_begin:
        return stretch
    come = min(queue.max_offset, stretch.slot_end)
    first, last = queue.unit(stretch.slot_begin), queue.unit(come - 1)
    if first is None or last is None or first.physical_offset != stretch.first_offset or not last.is_written:
        return stretch
    if come == stretch.slot_end:
        return None
    left = stretch.slot_end - come
    size = stretch.bytes * left // (stretch.slot_end - stretch.slot_begin)
    return stretch._replace(slot_begin=come, first_offset=last.end, units=left, bytes=size)
