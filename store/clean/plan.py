"""Which files a cleaning would remove and why each of the others stays, and how many messages go with them: decided
here, carried out elsewhere.

Planning reads directory entries, the last unit of queue files and the headers of index files; it changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.formats.errors import RefusedError, UnsupportedError
from rmqctl.store.clean.decision import Because, FileDecision, decision_on, last_position, modified_ms
from rmqctl.store.clean.followers import judge_followers
from rmqctl.store.clean.options import CleaningOrder, CleanOptions, DiskUsage, decide, measure_disks
from rmqctl.store.commitlog.unread_logs import refuse_dledger
from rmqctl.store.files.layout import LARGEST_OFFSET
from rmqctl.store.files.lock import refuse_server
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.queues.queue_table import has_rocksdb_queues
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_survey import start_after_crash


class CleanPlan(NamedTuple):
    """The commitlog's files, then what follows from its new min offset. Offsets physical; -1 without a commitlog."""

    order: CleaningOrder
    usage: DiskUsage
    min_offset_before: int
    min_offset: int
    commitlog: list[FileDecision]
    followers: list[FileDecision]
    notes: list[str]


def plan_clean(
    files: StoreFiles,
    options: CleanOptions,
    *,
    now: int,
    usage: DiskUsage | None = None,
    reference_now: int | None = None,
) -> CleanPlan:
    """What a run at `now` (ms since 1970) would do. RefusedError where it could not be known what is deleted.

    `usage` is measured if not given. `reference_now`: ms of the monotonic clock, for files that readers hold.
    """
    refuse_unknowable(files, options)
    usage = usage or measure_usage(files, options)
    order = decide(options, now, usage)
    is_crashed = cleans_crashed(files, options)
    needed_from = needed_by_recovery(files) if is_crashed else LARGEST_OFFSET
    commitlog = judge_commitlog(files, options, order, now, reference_now, needed_from)
    after = min_offset_after(files.log, commitlog)
    followers = [] if is_crashed else list(judge_followers(files, after))
    notes = notes_on(files, is_crashed=is_crashed)
    return CleanPlan(order, usage, files.log.min_offset, after, commitlog, followers, notes)


def cleans_crashed(files: StoreFiles, options: CleanOptions) -> bool:
    """Whether the store was not closed cleanly, and is to be cleaned all the same as far as that is safe."""
    return options.crashed and files.has_abort()


def needed_by_recovery(files: StoreFiles) -> int:
    """Physical offset from which on a recovery after a crash needs the log: what lies before is covered by the
    checkpoint, so it was on disk, and nothing that follows stands or falls by it."""
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
    """RefusedError where the commitlog's first offset, which everything else follows, cannot be known for certain, and
    on a server, of which nobody knows how full its disk is.

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

    A file that a reader holds is on its way out: the offset lies behind it already (CommitLog#getMinOffset).
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
    except UnsupportedError:
        return None
    now = files.log.min_offset
    return sum(max(0, queue.min_offset(max(now, min_offset)) - queue.min_offset(now)) for queue in queues)
