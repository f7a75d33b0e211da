"""Which files a cleaning would remove and why each of the others stays: decided here, carried out elsewhere.

Planning reads directory entries, the last unit of queue files and the headers of index files; it changes nothing.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from formats.errors import RefusedError, UnreadableError
from store.clean_options import CleanOptions, DiskUsage, Order, decide, measure_disks
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import FileProblem, MappedFileQueue
from store.files.reading import Descriptors, end_of_nonzero
from store.index.index_service import IndexService
from store.queues.batch_consumequeue import UNIT_SIZE as BATCH_UNIT_SIZE
from store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from store.queues.consumequeue_ext import ConsumeQueueExt
from store.queues.queue_table import AnyConsumeQueue, has_rocksdb_queues
from store.queues.unit import ext_offset
from store.store_files import StoreFiles


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
    Because.BEHIND: "an older file stays, and files go in their order",
    Because.BATCH_MAXIMUM: "enough for one run: run again, or raise the maximum",
    Because.HELD: "a reader holds it",
    Because.LAST: "the last file with data always stays",
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


class CleanPlan(NamedTuple):
    """The commitlog's files, then what follows from its new min offset. Offsets physical; -1 without a commitlog."""

    order: Order
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
    commitlog = judge_commitlog(files, options, order, now, reference_now)
    after = min_offset_after(files.log, commitlog)
    return CleanPlan(
        order, usage, files.log.min_offset, after, commitlog, list(judge_followers(files, after)), notes_on(files)
    )


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
    """RefusedError where the commitlog's first offset, which everything else follows, cannot be known for certain.

    That is: files that cannot be read, that overlap, or that are missing in the middle (they may lie in a directory
    which only a broker.conf names), and read-only commitlog directories, which are not looked at. Damage inside
    files, files of a wrong size and stray files do not matter here.
    """
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


def notes_on(files: StoreFiles) -> list[str]:
    """What a person should know besides the list of files."""
    notes = [_note(problem) for problem in files.log.problems]
    if has_rocksdb_queues(files.layout):
        notes.append("the consume queues are in a RocksDB: the broker's compaction drops their stale units")
    if not files.log.files:
        notes.append("there are no commitlog files: queues and index have nothing to follow")
    return notes


def _note(problem: FileProblem) -> str:
    return f"{problem.path}: {problem.detail}"


def modified_ms(path: Path) -> int:
    """The file's mtime in ms, as Java's File#lastModified gives it."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}", file=path) from error


def _decision(kind: str, file: MappedFile, because: Because, detail: str | None = None) -> FileDecision:
    text = detail or _SAYS.get(because, "")
    return FileDecision(kind, file.path, file.size, file.start_offset, modified_ms(file.path), because, text)


def last_with_data(files: list[MappedFile], descriptors: Descriptors) -> int:
    """Position of the last file that is not all zeros, 0 if all are: what a broker leaves as the last one."""
    for position in range(len(files) - 1, 0, -1):
        if end_of_nonzero(descriptors, files[position].path, 0, files[position].size):
            return position
    return 0


def judge_commitlog(
    files: StoreFiles, options: CleanOptions, order: Order, now: int, reference_now: int | None = None
) -> list[FileDecision]:
    """Every commitlog file, oldest first (MappedFileQueue#deleteExpiredFileByTime, spec/cleanup.md 3)."""
    log = files.log
    last = last_with_data(log.files, files.descriptors)
    decisions: list[FileDecision] = []
    stop = None if order.deletes else Because.NOT_DUE
    for position, file in enumerate(log.files):
        age = now - modified_ms(file.path)
        detail = f"last modified {_span(age)} ago, kept for {_span(options.reserved_time)}"
        if position >= last:
            because, detail = (Because.LAST if position == last else Because.PREALLOCATED), ""
        elif stop is not None:
            because, detail = stop, ""
        elif not order.at_once and age < options.reserved_time:
            because, stop = Because.YOUNG, Because.BEHIND
        elif not file.reference.would_end(options.forced_after, reference_now):
            because, stop, detail = Because.HELD, Because.BEHIND, ""
        else:
            because = Because.AT_ONCE if order.at_once else Because.EXPIRED
            if sum(decision.goes for decision in decisions) + 1 == options.batch_maximum:
                stop = Because.BATCH_MAXIMUM
        decisions.append(_decision("commitlog", file, because, detail))
    return decisions


def _span(milliseconds: int) -> str:
    if milliseconds < 0:
        return f"-{_span(-milliseconds)}"
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


def judge_followers(files: StoreFiles, min_offset: int) -> Iterator[FileDecision]:
    """Files of queues, their ext files, and the index, by the commitlog's first offset (spec/cleanup.md 5)."""
    if min_offset <= 0:
        return
    if not has_rocksdb_queues(files.layout):
        for queue in files.queues.all():
            yield from judge_queue(queue, min_offset, files.descriptors)
            if isinstance(queue, ConsumeQueue):
                yield from judge_ext(queue, ext_of(files, queue), min_offset)
    yield from judge_index(files.index, min_offset)


def judge_queue(queue: AnyConsumeQueue, min_offset: int, descriptors: Descriptors) -> Iterator[FileDecision]:
    """Files whose last unit points before `min_offset` go, oldest first, never the last one.

    A last unit of zeros is damage: what the file holds is not certain, so it and what follows it stay.
    (MappedFileQueue#deleteExpiredFileByOffset)
    """
    kind = "consumequeue" if isinstance(queue, ConsumeQueue) else "batchconsumequeue"
    unit_size = UNIT_SIZE if isinstance(queue, ConsumeQueue) else BATCH_UNIT_SIZE
    last = last_with_data(queue.files.files, descriptors)
    stop: Because | None = None
    for position, file in enumerate(queue.files.files):
        if position >= last:
            yield _decision(kind, file, Because.LAST if position == last else Because.PREALLOCATED)
            continue
        if stop is not None:
            yield _decision(kind, file, stop)
            continue
        because, detail = _judge_units(queue, file, unit_size, min_offset)
        stop = None if because is Because.STALE else Because.BEHIND
        yield _decision(kind, file, because, detail)


def _judge_units(queue: AnyConsumeQueue, file: MappedFile, unit_size: int, min_offset: int) -> tuple[Because, str]:
    if file.size != queue.files.file_size:
        return Because.DAMAGED, f"{file.size} bytes instead of {queue.files.file_size}"
    # both kinds of units begin with the physical offset and the size
    head = file.read((file.size // unit_size - 1) * unit_size, 12)
    physical_offset = int.from_bytes(head[:8], "big", signed=True)
    size = int.from_bytes(head[8:], "big", signed=True)
    if len(head) < 12 or size <= 0 or physical_offset < 0:
        return Because.DAMAGED, "its last unit is empty"
    if physical_offset < min_offset:
        return Because.STALE, f"its last unit points to {physical_offset}, before {min_offset}"
    return Because.STILL_USED, f"its last unit points to {physical_offset}"


def ext_of(files: StoreFiles, queue: ConsumeQueue) -> ConsumeQueueExt:
    """The ext queue beside `queue`, without files where there is none."""
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
            yield _decision("consumequeue_ext", file, Because.LAST)
        elif address is not None and file.end_offset <= address:
            yield _decision("consumequeue_ext", file, Because.STALE, f"the queue now begins at ext byte {address}")
        else:
            yield _decision("consumequeue_ext", file, Because.STILL_USED, "the queue still refers to it")


def judge_index(index: IndexService, min_offset: int) -> Iterator[FileDecision]:
    """Leading index files whose last message lies before `min_offset` go, never the last (spec/cleanup.md 5.2)."""
    known = {file.path: file for file in index.files}
    unknown = {path: detail for path, detail in index.problems if path.name.isdigit() and path.is_file()}
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
        yield FileDecision("index", path, size, None, modified_ms(path), because, detail or _SAYS.get(because, ""))


def kept_by_reason(decisions: list[FileDecision]) -> Counter[tuple[str, str]]:
    """How many files of each kind stay for each reason."""
    return Counter((decision.kind, decision.because.value) for decision in decisions if not decision.goes)
