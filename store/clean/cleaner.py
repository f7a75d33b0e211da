"""Carries out a cleaning: commitlog first, on disk before anything that points into it goes; then queues and index."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rmqctl.formats.errors import CorruptError, RefusedError, RmqctlError, UnreadableError, WriteFailedError, counted
from rmqctl.formats.notebook import as_html
from rmqctl.store.answers.config_offsets import (
    DELAY_FILE,
    GROUP_TABLE,
    OFFSET_TABLE,
    consumer_table,
    is_own_group,
    offset_key,
    offsets_of,
    table_in,
)
from rmqctl.store.answers.groups import GROUP_FILE
from rmqctl.store.clean.options import (
    CleaningOrder,
    CleanOptions,
    DiskUsage,
    clamped_ratios,
    decide,
    measure_disks,
    options_from_config,
)
from rmqctl.store.clean.plan import (
    Because,
    FileDecision,
    cleans_crashed,
    ext_of,
    judge_commitlog,
    judge_ext,
    judge_index,
    judge_queue,
    measure_usage,
    needed_by_recovery,
    notes_on,
    plan_clean,
    refuse_unknowable,
)
from rmqctl.store.files import io
from rmqctl.store.files.background import sleep
from rmqctl.store.files.layout import LARGEST_OFFSET
from rmqctl.store.files.lock import refuse_server
from rmqctl.store.files.mapped_file import monotonic_ms
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import exists, named
from rmqctl.store.journal.journal import begun
from rmqctl.store.journal.log import new_head, note_permanent, refuse_unfinished, take_for_change
from rmqctl.store.options import ChangeOptions, Events
from rmqctl.store.queues.consumequeue import BatchConsumeQueue, ConsumeQueue
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue, has_rocksdb_queues
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles

# how long a reader may delay the removal of a file, in ms (ReferenceResource#shutdown); the commitlog's is an option
QUEUE_FORCED_AFTER, INDEX_FORCED_AFTER, EXT_FORCED_AFTER = 60_000, 3_000, 1_000
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

    def _repr_html_(self) -> str:
        return as_html(self)

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
        sleep: Callable[[float], None] = sleep,
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
                    if decision.path.parent in self.files.layout.commitlog:
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
                    self._pause_after(decisions)
                elif isinstance(queue, ConsumeQueue):
                    decisions = list(judge_queue(queue, min_offset))
                    done += self._remove_from(queue.files, decisions, QUEUE_FORCED_AFTER)
                    self._pause_after(decisions)
                    ext = ext_of(files, queue)
                    decisions = list(judge_ext(queue, ext, min_offset))
                    done += self._remove_from(ext.files, decisions, EXT_FORCED_AFTER)
        return done + self._remove_from_index(min_offset)

    def _pause_after(self, decisions: list[FileDecision]) -> None:
        if any(one.goes for one in decisions):
            self._sleep(self.options.queue_pause / 1000)

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
    change: ChangeOptions = ChangeOptions(),
) -> CleanReport:
    """Clean a store that no other process has open, once, under its lock; `files` are those that its readers use.

    A file that a reader of this process holds stays: it goes in a later call with the same `files`, once it is
    released, or when the interval of the options is over since the first call.

    `options` are those of the store's configuration unless given. What is removed is gone: nothing is kept of it but a
    line in the log of changes. Of `change` it uses `dry_run` and `command_line`.
    StoreInUseError; RefusedError for a store that was not closed cleanly or whose first offset cannot be known.
    """
    options = options or options_from_config(files.config)
    now = time.time_ns() // 1_000_000 if now is None else now
    with named(files.root):
        if change.dry_run:
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
            return clean_locked(
                Cleaner(files, options, sleep=lambda _: None), now, usage, arguments=change.command_line
            )
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


# What a cleaning takes from consumer groups: messages that go and that they have not read.

LOST = "lost"
UNKNOWN = "unknown"


class Unread(NamedTuple):
    """What one group loses of one topic: `messages` of `queues`, stored from `first_timestamp` to `last_timestamp` (ms,
    None where they cannot be read). `state` unknown: no offset of the group is kept for these queues, so whether it has
    read them is unknown. `group` None: delayed messages that have not been delivered."""

    group: str | None
    topic: str
    state: str
    queues: tuple[int, ...]
    messages: int
    first_timestamp: int | None = None
    last_timestamp: int | None = None


def unread_before(files: StoreFiles, min_offset: int, events: Events) -> list[Unread]:
    """What groups lose if the commitlog begins at physical offset `min_offset`, by group and topic.

    Notes report what is unknown: without offsets, and for queues in a RocksDB. UnreadableError.
    """
    config = files.layout.config
    losing = _losing(files, min_offset, events)
    if not losing:
        return []
    reader = StoreReader(files)
    kept = consumer_table(config, files.config, events)
    table = kept.table
    if table is None:
        events.noted(f"{kept.missing}: what groups have not read is not known")
    rows: list[Unread] = []
    with_offsets: set[str] = set()
    for key, queues in (table or {}).items():
        owner = offset_key(key)
        if owner is None or not isinstance(queues, dict):
            events.damaged(CorruptError(f"{key!r} names no topic and group with offsets", file=kept.path))
            continue
        with_offsets.add(owner.group)
        if owner.topic in losing and not owner.is_broadcast:
            rows += _of_group(reader, owner.group, owner.topic, losing[owner.topic], offsets_of(queues))
    if SCHEDULE_TOPIC in losing:
        levels = offsets_of(table_in(config / DELAY_FILE, OFFSET_TABLE, events) or {})
        delayed = {queue.queue_id: levels.get(queue.queue_id + 1, 0) for queue, _, _ in losing[SCHEDULE_TOPIC]}
        rows += _of_group(reader, None, SCHEDULE_TOPIC, losing[SCHEDULE_TOPIC], delayed)
    configured = table_in(config / GROUP_FILE, GROUP_TABLE, events) or {}
    for name in sorted(map(str, configured)):
        if table is not None and name not in with_offsets and not is_own_group(name):
            events.noted(f"no offset of group {name} is kept: whether it loses anything is not known")
    return sorted(rows, key=lambda row: (row.group or "", row.topic, row.state))


_Losing = dict[str, list[tuple[AnyConsumeQueue, int, int]]]


def _losing(files: StoreFiles, min_offset: int, events: Events) -> _Losing:
    """By topic its queues that lose messages, with the first offset of each now and then."""
    found: _Losing = {}
    if not files.log.files:
        return found
    now = files.log.min_offset
    try:
        queues: Iterable[AnyConsumeQueue] = files.queues.all()
    except CorruptError as error:
        events.noted(f"{error}: what groups have not read is not known")
        return found
    for queue in queues:
        begin, then = queue.min_offset(now), queue.min_offset(max(now, min_offset))
        if then > begin:
            found.setdefault(queue.topic, []).append((queue, begin, then))
    return found


def _of_group(
    reader: StoreReader,
    group: str | None,
    topic: str,
    losing: list[tuple[AnyConsumeQueue, int, int]],
    offsets: dict[int, int],
) -> list[Unread]:
    rows = []
    for state in (LOST, UNKNOWN):
        row = Unread(group, topic, state, (), 0)
        for queue, begin, then in losing:
            offset = offsets.get(queue.queue_id, -1)
            first = max(begin, offset)
            if (offset < 0) == (state == UNKNOWN) and first < then:
                row = _joined(row, reader, queue, first, then)
        if row.queues:
            rows.append(row)
    return rows


def _joined(row: Unread, reader: StoreReader, queue: AnyConsumeQueue, first: int, then: int) -> Unread:
    """`row` with the messages [first, then) of a queue."""
    units = (queue.unit(first), queue.unit(then - 1))
    begun, ended = (reader.unit_store_time(unit) if unit is not None else None for unit in units)
    known = [time for time in (row.first_timestamp, begun) if time is not None]
    last = [time for time in (row.last_timestamp, ended) if time is not None]
    return row._replace(
        queues=(*row.queues, queue.queue_id),
        messages=row.messages + then - first,
        first_timestamp=min(known, default=None),
        last_timestamp=max(last, default=None),
    )


# Why a broker on this store refuses messages, as far as files, disks and broker.conf show it.

_WRITE_PERMISSION = 2
_UNSEEN_FLAGS = (
    "running flags of the broker (an error while it wrote queues or index, a disk that was full, a fenced replica): "
    "they are in its memory only, and stay set until it is restarted or, for a full disk, has deleted files; search "
    "its store.log and storeerror.log for `error`"
)
_UNSEEN_CACHE = "a busy page cache (OS_PAGE_CACHE_BUSY, code 2): `mqadmin brokerStatus` has pageCacheLockTimeMills"


class Cause(NamedTuple):
    """One reason. `response`: what a producer gets, None where it finds no queue; `effect` says what follows."""

    name: str
    response: str | None
    effect: str


class Writes(NamedTuple):
    """Whether a broker started on this store with this configuration refuses messages.

    `accepted`: False where a cause is seen, None where the disks cannot be measured; True says that no visible cause
    exists. `not_seen`: causes that leave no trace in files.
    """

    accepted: bool | None
    sentence: str
    causes: list[Cause]
    disk_percent: list[int | None]
    queue_disk_percent: int | None
    warnings: list[str]
    not_seen: list[str]


def judge_writes(files: StoreFiles, usage: DiskUsage | None = None) -> Writes:
    """Return what `info` says about writes. `usage`: how full the disks are, measured if None."""
    try:
        refuse_server(files.root)
    except RmqctlError:
        sentence = "Writes: unknown, because the disks of a server cannot be measured."
        return Writes(None, sentence, [], [], None, [], [])
    usage = usage or measure_disks(files.layout)
    causes = [*_of_disks(files, usage), *_of_config(files)]
    warnings = [] if any(cause.name == "disk" for cause in causes) else _of_cleaning(files, usage)
    is_known = any(percent is not None for percent in (*usage.commitlog, usage.consumequeue))
    accepted: bool | None
    if causes:
        accepted, sentence = False, f"A broker takes no messages here: {'; '.join(cause.effect for cause in causes)}."
    elif is_known:
        shown = f"(disk {_worst(usage)} % used)"
        accepted, sentence = True, f"Writes: accepted, as far as files, disks and settings show {shown}."
    else:
        accepted, sentence = None, "Writes: unknown, because the disks cannot be measured."
    unseen = [_UNSEEN_FLAGS, _UNSEEN_CACHE] if files.lock_holder() is not None else []
    return Writes(accepted, sentence, causes, list(usage.commitlog), usage.consumequeue, warnings, unseen)


def _worst(usage: DiskUsage) -> int:
    return max(percent for percent in (*usage.commitlog, usage.consumequeue) if percent is not None)


def _of_disks(files: StoreFiles, usage: DiskUsage) -> list[Cause]:
    """Above the warning ratio the cleaner sets DISK_FULL (CleanCommitLogService#isSpaceToDelete)."""
    warning, _, _ = clamped_ratios(options_from_config(files.config))
    found = []
    for name, percent in (("commitlog", usage.emptiest_commitlog), ("consumequeue", usage.consumequeue)):
        if percent is not None and percent > warning:
            effect = (
                f"the disk of {name} is {percent} % full, above diskSpaceWarningLevelRatio {warning} % "
                "(CODE 14, SERVICE_NOT_AVAILABLE); `clean --forecast` shows which files go"
            )
            found.append(Cause("disk", "SERVICE_NOT_AVAILABLE", effect))
            break
    problem = _unwritable(files)
    if problem is not None:
        effect = f"{problem}, so no next commitlog file can be created (CODE 14, SERVICE_NOT_AVAILABLE)"
        found.append(Cause("no file", "SERVICE_NOT_AVAILABLE", effect))
    return found


def _unwritable(files: StoreFiles) -> str | None:
    """Return what keeps any user from creating commitlog files, None for nothing."""
    full = []
    for directory in files.layout.commitlog:
        if not exists(directory):
            continue
        try:
            status = os.statvfs(directory)
        except OSError:
            continue
        if status.f_flag & os.ST_RDONLY:
            full.append(f"{directory} is on a disk that is mounted read-only ({os.strerror(errno.EROFS)})")
        elif status.f_files and not status.f_ffree:
            full.append(f"the disk of {directory} has no free inodes")
        else:
            return None
    return full[0] if full else None


def _of_config(files: StoreFiles) -> list[Cause]:
    config = files.config
    found = []
    if config.is_slave and not config.duplication_enable:
        effect = "brokerRole=SLAVE takes none from producers (CODE 14, SERVICE_NOT_AVAILABLE)"
        found.append(Cause("role", "SERVICE_NOT_AVAILABLE", effect))
    if not config.broker_permission & _WRITE_PERMISSION:
        effect = (
            f"brokerPermission={config.broker_permission} has no write permission, so producers find no queue here "
            "(CODE 16, NO_PERMISSION for ordered topics)"
        )
        found.append(Cause("permission", None, effect))
    return found


def _of_cleaning(files: StoreFiles, usage: DiskUsage) -> list[str]:
    """Levels below the one that stops writes, and settings that do not count as written."""
    config = files.config
    options = options_from_config(config)
    warning, forcibly, maximum = clamped_ratios(options)
    found = []
    worst = max(
        (percent for percent in (usage.emptiest_commitlog, usage.consumequeue) if percent is not None), default=0
    )
    if worst > forcibly and options.may_force:
        found.append(
            f"disk {worst} % full, above diskSpaceCleanForciblyRatio {forcibly} %: a broker deletes the oldest files "
            "of any age, read or not"
        )
    elif worst > maximum:
        found.append(f"disk {worst} % full, above diskMaxUsedSpaceRatio {maximum} %: expired files go at any hour")
    written = (config.disk_space_warning_level_ratio, config.disk_space_clean_forcibly_ratio)
    names = ("diskSpaceWarningLevelRatio", "diskSpaceCleanForciblyRatio")
    for name, value, counts in zip(names, written, (warning, forcibly), strict=True):
        if value != counts:
            found.append(f"{name}={value} counts as {counts}: RocketMQ limits it")
    free = _free_bytes(files)
    if free is not None and free < files.log.file_size:
        file_size = counted(files.log.file_size, "byte")
        found.append(f"{counted(free, 'byte')} are free, less than the next commitlog file of {file_size}")
    return found


def _free_bytes(files: StoreFiles) -> int | None:
    """Return the bytes that the roomiest disk of the commitlog has left, None where that cannot be measured."""
    free = []
    for directory in files.layout.commitlog:
        try:
            status = os.statvfs(directory)
        except OSError:
            continue
        free.append(status.f_bavail * status.f_frsize)
    return max(free, default=None)
