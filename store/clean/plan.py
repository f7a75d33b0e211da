"""Which files a cleaning would remove and why each of the others stays, and how many messages go with them: decided
here, carried out elsewhere.

Planning reads directory entries, the last unit of queue files and the headers of index files; it changes nothing.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError, RefusedError, UnreadableError, counted, unreadable
from rmqctl.store.clean.options import CleaningOrder, CleanOptions, DiskUsage, decide, measure_disks
from rmqctl.store.files.layout import LARGEST_OFFSET
from rmqctl.store.files.lock import refuse_server
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import is_file
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.log.survey import start_after_crash
from rmqctl.store.queues.consumequeue import BATCH_UNIT_SIZE, UNIT_SIZE, ConsumeQueue, ext_offset
from rmqctl.store.queues.consumequeue_ext import ConsumeQueueExt
from rmqctl.store.queues.queue_table import AnyConsumeQueue, has_rocksdb_queues
from rmqctl.store.read.frames import store_time_at
from rmqctl.store.store_files import StoreFiles, refuse_dledger

# What becomes of one file in a cleaning, and why.


class Because(enum.StrEnum):
    """Why a file goes (the first three) or stays."""

    EXPIRED = "expired"
    AT_ONCE = "at_once"
    STALE = "stale"
    NOT_DUE = "not_due"
    YOUNG = "young"
    BEHIND = "behind_a_kept_file"
    BATCH_MAXIMUM = "batch_maximum"
    HELD = "held"
    LAST = "last"
    PREALLOCATED = "preallocated"
    STILL_USED = "still_used"
    DAMAGED = "damaged"


_GOES = (Because.EXPIRED, Because.AT_ONCE, Because.STALE)
_SAYS = {
    Because.NOT_DUE: "neither the hour nor the disks ask for a deletion",
    Because.BEHIND: "an older file is kept, and files are removed in their order",
    Because.BATCH_MAXIMUM: "enough for one run: run again, or raise the maximum",
    Because.HELD: "a reader holds it",
    Because.LAST: "the last file with data is always kept",
    Because.PREALLOCATED: "holds nothing yet",
}


class FileDecision(NamedTuple):
    """What becomes of one file. `start_offset` as its name says it; None for index files. `size` in bytes.

    `modified_timestamp` (ms) is the file's mtime, the only age RocketMQ knows. `kind`: commitlog, consumequeue,
    batchconsumequeue, consumequeue_ext or index.
    """

    kind: str
    path: Path
    size: int
    start_offset: int | None
    modified_timestamp: int
    because: Because
    detail: str

    @property
    def goes(self) -> bool:
        """Whether the file is removed."""
        return self.because in _GOES


def modified_ms(path: Path) -> int:
    """The file's mtime in ms, as Java's File#lastModified gives it."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError as error:
        raise unreadable(error, path) from error


# a sealed file is flushed within seconds; time zones and slow copies are no reason to complain
_MTIME_TOLERANCE_MS = 3_600_000


class Misdated(NamedTuple):
    """A commitlog file that is not the last, and by how much its mtime is later than its last message, in ms.

    `closed`: when the file was closed, by the store time of the next file's first message, in ms.
    """

    file: MappedFile
    closed: int
    difference: int

    @property
    def code(self) -> str:
        """The code of the finding."""
        return "RMQ-TIME-001" if self.difference > 0 else "RMQ-TIME-002"


def misdated_files(files: StoreFiles) -> Iterator[Misdated]:
    """Return closed commitlog files whose mtime is not that of their messages.

    A broker closes a file when it stores the next message, which sets the file's mtime; so the first message of the
    next file says when that was.
    """
    last = files.log.last_with_data()
    for file, following in itertools.pairwise(files.log.files):
        if file is last:
            return
        closed = store_time_at(files.log, following.start_offset)
        try:
            modified = modified_ms(file.path)
        except UnreadableError:  # expired meanwhile
            continue
        if closed is not None and abs(modified - closed) > _MTIME_TOLERANCE_MS:
            yield Misdated(file, closed, modified - closed)


def decision_on(kind: str, file: MappedFile, because: Because, detail: str | None = None) -> FileDecision:
    """The decision about a file of a queue; without `detail` the usual words for its reason."""
    modified = modified_ms(file.path)
    return FileDecision(kind, file.path, file.size, file.start_offset, modified, because, detail or words_for(because))


def words_for(because: Because) -> str:
    """Return a reason as a sentence, empty if only the case is known."""
    return _SAYS.get(because, "")


def last_position(files: MappedFileQueue) -> int:
    """Return the position of the last file with data, which a broker always keeps; 0 without one."""
    last = files.last_with_data()
    return 0 if last is None else files.files.index(last)


# Queues, their ext files and the index follow the commitlog's first offset (CleanConsumeQueueService).


def judge_followers(files: StoreFiles, min_offset: int) -> Iterator[FileDecision]:
    """Files of queues, their ext files, and the index, by the commitlog's first offset (CleanConsumeQueueService)."""
    if min_offset <= 0:
        return
    if not has_rocksdb_queues(files.layout):
        for queue in files.queues.all():
            yield from judge_queue(queue, min_offset)
            if isinstance(queue, ConsumeQueue):
                yield from judge_ext(queue, ext_of(files, queue), min_offset)
    yield from judge_index(files.index, min_offset)


def judge_queue(queue: AnyConsumeQueue, min_offset: int) -> Iterator[FileDecision]:
    """Files whose last unit points before `min_offset` go, oldest first, never the last one.

    A last unit of zeros is damage: what the file holds is not certain, so it and what follows it stay.
    (MappedFileQueue#deleteExpiredFileByOffset)
    """
    kind = "consumequeue" if isinstance(queue, ConsumeQueue) else "batchconsumequeue"
    last = last_position(queue.files)
    stop: Because | None = None
    for position, file in enumerate(queue.files.files):
        if position >= last:
            yield decision_on(kind, file, Because.LAST if position == last else Because.PREALLOCATED)
            continue
        if stop is not None:
            yield decision_on(kind, file, stop)
            continue
        because, detail = _judge_units(queue, file, min_offset)
        stop = None if because is Because.STALE else Because.BEHIND
        yield decision_on(kind, file, because, detail)


def _judge_units(queue: AnyConsumeQueue, file: MappedFile, min_offset: int) -> tuple[Because, str]:
    if file.size != queue.files.file_size:
        return Because.DAMAGED, f"{counted(file.size, 'byte')} instead of {queue.files.file_size}"
    physical_offset = last_physical_offset(queue, file)
    if physical_offset is None:
        return Because.DAMAGED, "its last unit is empty"
    if physical_offset < min_offset:
        return Because.STALE, f"its last unit points to {physical_offset}, before {min_offset}"
    return Because.STILL_USED, f"its last unit points to {physical_offset}"


def last_physical_offset(queue: AnyConsumeQueue, file: MappedFile) -> int | None:
    """Where the last unit of a full file of `queue` points to; None where it points to nothing."""
    unit_size = UNIT_SIZE if isinstance(queue, ConsumeQueue) else BATCH_UNIT_SIZE
    # both kinds of units begin with the physical offset and the size
    head = file.read((file.size // unit_size - 1) * unit_size, 12)
    physical_offset = int.from_bytes(head[:8], "big", signed=True)
    size = int.from_bytes(head[8:], "big", signed=True)
    return None if len(head) < 12 or size <= 0 or physical_offset < 0 else physical_offset


def ext_of(files: StoreFiles, queue: ConsumeQueue) -> ConsumeQueueExt:
    """Return the ext queue beside `queue`, possibly without files."""
    directory = files.layout.consumequeue_ext / queue.directory.parent.name / queue.directory.name
    ext = ConsumeQueueExt(directory, files.config.mapped_file_size_consume_queue_ext, files.descriptors)
    ext.load()
    return ext


def judge_ext(queue: ConsumeQueue, ext: ConsumeQueueExt, min_offset: int) -> Iterator[FileDecision]:
    """Ext files that end before the ext unit of the queue's first valid unit go; none where it has no ext unit."""
    if not ext.files.files:
        return
    unit = queue.unit(queue.min_offset(min_offset))
    address = ext_offset(unit.tags_code) if unit is not None and unit.is_written else None
    for file in ext.files.files:
        if file is ext.files.files[-1]:
            yield decision_on("consumequeue_ext", file, Because.LAST)
        elif address is not None and file.end_offset <= address:
            yield decision_on("consumequeue_ext", file, Because.STALE, f"the queue now begins at ext byte {address}")
        else:
            yield decision_on("consumequeue_ext", file, Because.STILL_USED, "the queue still refers to it")


def judge_index(index: IndexService, min_offset: int) -> Iterator[FileDecision]:
    """Leading index files whose last message is before `min_offset` go, never the last.

    (IndexService#deleteExpiredFile)
    """
    known = {file.path: file for file in index.files}
    unknown = {path: detail for path, detail in index.problems if path.name.isdigit() and is_file(path)}
    paths = sorted([*known, *unknown])
    stop: Because | None = None
    for path in paths:
        detail = ""
        if path == paths[-1]:
            because = Because.LAST
        elif stop is not None:
            because = stop
        elif path in unknown:
            because, detail = Because.DAMAGED, unknown[path]
        else:
            end = known[path].header.end_physical_offset
            because = Because.STALE if end < min_offset else Because.STILL_USED
            detail = f"its last message is at {end}" + (f", before {min_offset}" if because is Because.STALE else "")
        stop = None if because is Because.STALE else Because.BEHIND
        size = path.stat().st_size
        yield FileDecision("index", path, size, None, modified_ms(path), because, detail or words_for(because))


class CleanPlan(NamedTuple):
    """The commitlog's files, then what follows from its new min offset. Offsets physical; -1 without a commitlog."""

    order: CleaningOrder
    usage: DiskUsage
    min_offset_before: int
    min_offset: int
    commitlog: list[FileDecision]
    followers: list[FileDecision]
    notes: list[str]


def plan_clean(files: StoreFiles, options: CleanOptions, *, now: int, usage: DiskUsage | None = None) -> CleanPlan:
    """What a run at `now` (ms since 1970) would do. RefusedError where it could not be known what is deleted.

    `usage` is measured if not given.
    """
    refuse_unknowable(files, options)
    usage = usage or measure_usage(files, options)
    order = decide(options, now, usage)
    is_crashed = cleans_crashed(files, options)
    needed_from = needed_by_recovery(files) if is_crashed else LARGEST_OFFSET
    commitlog = judge_commitlog(files, options, order, now, needed_from=needed_from)
    after = min_offset_after(files.log, commitlog)
    followers = [] if is_crashed else list(judge_followers(files, after))
    notes = notes_on(files, is_crashed=is_crashed)
    return CleanPlan(order, usage, files.log.min_offset, after, commitlog, followers, notes)


def cleans_crashed(files: StoreFiles, options: CleanOptions) -> bool:
    """Whether the store was not closed cleanly, and is to be cleaned all the same as far as that is safe."""
    return options.crashed and files.has_abort()


def needed_by_recovery(files: StoreFiles) -> int:
    """Return the physical offset from which a recovery after a crash needs the log: the checkpoint covers what is
    before it, so it was on disk and later messages do not depend on it."""
    return start_after_crash(files.log, files.readable_checkpoint())


def measure_usage(files: StoreFiles, options: CleanOptions) -> DiskUsage:
    """Usage of the store's disks; its own bytes are counted only where the rule asks for them."""
    own = 0
    if options.replicas_per_partition > 1:
        own = sum(file.size for file in files.log.files)
        own += sum(file.geometry.file_size for file in files.index.files)
        if not has_rocksdb_queues(files.layout):
            own += sum(file.size for queue in files.queues.all() for file in queue.files.files)
    return measure_disks(files.layout, own)


def refuse_unknowable(files: StoreFiles, options: CleanOptions) -> None:
    """RefusedError if the commitlog's first offset, on which everything else depends, is uncertain, and on a server,
    whose disk usage is unknown.

    That is: files that cannot be read, that overlap, or that are missing in the middle (they may lie in a directory
    which only a broker.conf names), and read-only commitlog directories, which are not looked at. Damage inside
    files, files of a wrong size and stray files do not matter here.
    """
    refuse_server(files.root)
    refuse_dledger(files.layout)
    if files.config.read_only_commit_log_store_paths:
        raise RefusedError(
            "the configuration names read-only commitlog directories, whose files are not known here",
            hint="let the broker clean this store",
        )
    hints = {
        "unreadable": "check its permissions",
        "overlap": "two files claim the same offsets: find out which one is right and move the other away",
        "gap": "name all commitlog directories with -c broker.conf, or accept the gap if the files are gone for good",
    }
    for problem in files.log.problems:
        if problem.kind in hints and not (problem.kind == "gap" and options.accept_gaps):
            raise RefusedError(
                f"cannot tell what may be deleted: {problem.detail}", file=problem.path, hint=hints[problem.kind]
            )


def notes_on(files: StoreFiles, *, is_crashed: bool = False) -> list[str]:
    """What a person should know besides the list of files."""
    notes = [f"{problem.path}: {problem.detail}" for problem in files.log.problems]
    if is_crashed:
        notes.append(
            "the store was not closed cleanly: queues and index are kept as they are; run `rmqctl recover`, then "
            "`rmqctl clean` again"
        )
    if has_rocksdb_queues(files.layout):
        notes.append("the consume queues are in a RocksDB: the broker's compaction drops their stale units")
    if not files.log.files:
        notes.append("there are no commitlog files: queues and index have nothing to follow")
    return notes


def judge_commitlog(
    files: StoreFiles,
    options: CleanOptions,
    order: CleaningOrder,
    now: int,
    reference_now: int | None = None,
    needed_from: int = LARGEST_OFFSET,
) -> list[FileDecision]:
    """Every commitlog file, oldest first (MappedFileQueue#deleteExpiredFileByTime).

    What reaches behind `needed_from` stays: a store that is open for writing has yet to flush and dispatch it, and one
    that was not closed cleanly is recovered from there.
    """
    log = files.log
    last = last_position(log)
    decisions: list[FileDecision] = []
    stop = None if order.deletes else Because.NOT_DUE
    why_needed = "a recovery reads it" if options.crashed else "not yet flushed and dispatched"
    for position, file in enumerate(log.files):
        age = now - modified_ms(file.path)
        # the clock of whoever wrote or copied it, and a broker goes by it all the same
        when = f"{_span(age)} ago" if age >= 0 else f"in the future, {_span(-age)} from now"
        detail = f"last modified {when}, kept for {_span(options.reserved_time)}"
        if position >= last:
            because, detail = (Because.LAST if position == last else Because.PREALLOCATED), ""
        elif stop is not None:
            because, detail = stop, ""
        elif file.end_offset > needed_from:
            because, stop, detail = Because.STILL_USED, Because.BEHIND, why_needed
        elif not order.at_once and age < options.reserved_time:
            because, stop = Because.YOUNG, Because.BEHIND
        elif not file.reference.would_end(options.forced_after, reference_now):
            because, stop, detail = Because.HELD, Because.BEHIND, ""
        else:
            because = Because.AT_ONCE if order.at_once else Because.EXPIRED
            if sum(decision.goes for decision in decisions) + 1 == options.batch_maximum:
                stop = Because.BATCH_MAXIMUM
        decisions.append(decision_on("commitlog", file, because, detail))
    return decisions


def _span(milliseconds: int) -> str:
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if milliseconds >= 2 * size:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds // 1000} s"


def min_offset_after(log: MappedFileQueue, decisions: list[FileDecision]) -> int:
    """The commitlog's first offset once the decisions are carried out; -1 without files.

    A file that a reader holds is being removed: the offset is already past it (CommitLog#getMinOffset).
    """
    for file, decision in zip(log.files, decisions, strict=True):
        if not decision.goes and decision.because is not Because.HELD and file.reference.available:
            return file.start_offset
    return -1


def messages_before(files: StoreFiles, min_offset: int) -> int | None:
    """Units of all consume queues that point from the commitlog's beginning up to physical offset `min_offset`.

    Counted by the queues, which takes a few reads where the log itself would have to be read to its new beginning. None
    where the queues cannot be read (a RocksDB).
    """
    if not files.log.files:
        return 0
    try:
        queues = files.queues.all()
    except CorruptError:
        return None
    now = files.log.min_offset
    return sum(max(0, queue.min_offset(max(now, min_offset)) - queue.min_offset(now)) for queue in queues)
