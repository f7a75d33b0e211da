"""Rebuilds consume queues and index from the commitlog: written beside the store, flushed, then swapped in."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from rmqctl.formats.errors import NotFoundError, RefusedError, UsageError
from rmqctl.formats.layouts import BATCH_CONSUMEQUEUE_UNIT, CONSUMEQUEUE_UNIT
from rmqctl.formats.notebook import as_html
from rmqctl.store.compare.lives import Lives, LiveSlots, held_by, superseded
from rmqctl.store.compare.queues import SlotOrder, has_batch_slot
from rmqctl.store.files import io
from rmqctl.store.files.layout import file_name, topic_directory
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import is_directory
from rmqctl.store.journal.journal import Journal, changing
from rmqctl.store.journal.plan import Install, MoveAway, Plan
from rmqctl.store.log.columns import Int64s
from rmqctl.store.log.implied import Digest, QueueRun, Run, Units, route
from rmqctl.store.log.survey import new_survey, survey_runs
from rmqctl.store.options import ChangeOptions, Events
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, BatchConsumeQueue, QueueKey, QueueUnit, pack_batch_unit
from rmqctl.store.queues.dispatch import FurtherSlots, QueueSlot
from rmqctl.store.queues.queue_table import QueueTable, has_rocksdb_queues, is_in_rocksdb_alone, rocksdb_error
from rmqctl.store.recover.entries import goal_of_entries
from rmqctl.store.recover.ext_units import plan_empty_ext, put_ext_units
from rmqctl.store.recover.index import IndexBuilder
from rmqctl.store.store_files import StoreFiles

# Writes one new queue to a folder, file by file, in the order of the log.

_PLACEHOLDER = CONSUMEQUEUE_UNIT.struct.pack(0, PLACEHOLDER_SIZE, 0)
_BUFFER = 256 * 1024
_PLACEHOLDERS_AT_ONCE = 8192


class QueueWriter(SlotOrder):
    """A queue of 46-byte units if `is_batch`. `file_size` in bytes. Nothing is flushed to disk."""

    def __init__(
        self, directory: Path, is_batch: bool, file_size: int, below: Path | None = None, *, writes: bool = True
    ) -> None:
        """`below`: the directory is made below this one, which must be there, see io.make_directories. Without
        `writes` nothing is made, only counted."""
        self._unit_size = BATCH_CONSUMEQUEUE_UNIT.size if is_batch else CONSUMEQUEUE_UNIT.size
        super().__init__(file_size // self._unit_size)
        self.directory = directory
        self.file_bytes = 0
        """Sizes of all files, 0 if no unit could be put."""
        self._writes = writes
        self._below = below
        self._file_size = file_size
        self.is_batch = is_batch
        self._file_bytes = self._per_file * self._unit_size
        self._position = 0
        self._buffer = bytearray()
        self._file: Path | None = None

    def add(self, unit: QueueUnit) -> None:
        """The log implies `unit`."""
        if not self.is_batch:
            super().add(unit)
        elif has_batch_slot(unit, self._next or 0, self.rows):
            self._write(pack_batch_unit(unit))
            self._next = unit.next_queue_offset
        else:
            self.conflicts += 1

    def add_units(self, slots: Int64s, units: Units) -> None:
        """`add` for many units, in their order."""
        if not self.is_batch:
            super().add_units(slots, units)
            return
        for slot, unit in zip(slots.tolist(), units, strict=True):
            self.add(QueueUnit(slot, *unit.item()))

    def _begin(self, queue_offset: int) -> int:
        first = queue_offset - queue_offset % self._per_file
        self._position = first * self._unit_size
        return first

    def _keep(self, begin: int, end: int) -> None:
        for first in range(begin, end, _PLACEHOLDERS_AT_ONCE):
            self._put(_PLACEHOLDER * min(end - first, _PLACEHOLDERS_AT_ONCE))

    def _put(self, packed: bytes) -> None:
        self._write(packed)
        self._next = (self._next or 0) + len(packed) // self._unit_size

    def _write(self, packed: bytes) -> None:
        at = 0
        while at < len(packed):
            if self._file is None:
                start = self._position // self._file_bytes * self._file_size
                self._file = self.directory / file_name(start)
                self.file_bytes += self._file_size
                if self._writes:
                    io.make_directories(self.directory, self._below)
                    io.create_file(self._file, self._file_size)
            piece = packed[at : at + self._file_bytes - self._position % self._file_bytes]
            self._buffer += piece
            self._position += len(piece)
            at += len(piece)
            if self._position % self._file_bytes == 0:
                self.flush()
                self._file = None
            elif len(self._buffer) >= _BUFFER:
                self.flush()

    def flush(self) -> None:
        """Write what is held in memory."""
        if self._file is not None and self._buffer and self._writes:
            position = self._position % self._file_bytes or self._file_bytes
            io.write_range(self._file, position - len(self._buffer), self._buffer)
        self._buffer = bytearray()

    def discard(self) -> None:
        """Remove what was written, to begin again."""
        if self._writes and is_directory(self.directory):
            io.remove_tree(self.directory)


# units that all queues together hold in memory at most before they are written
_HELD_UNITS = 1 << 20


@dataclass(slots=True)
class RebuildReport:
    """What rebuild made. `kept_queues`: queues whose messages have all expired; they hold the next offset, so stay.
    `deleted_topic_messages`: messages of topics that were deleted and created again, which are in no queue any more.

    `damaged_spans`: places of the log that gave no messages. `journal` is the folder with the old files. `operations`
    is the plan.
    """

    _repr_html_ = as_html

    messages: int = 0
    queues_rebuilt: int = 0
    units: int = 0
    kept_queues: int = 0
    slot_conflicts: int = 0
    deleted_topic_messages: int = 0
    unplaceable_messages: int = 0
    index_files_rebuilt: int = 0
    damaged_spans: int = 0
    journal: str | None = None
    dry_run: bool = False
    topics: list[str] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)


class MadeQueue(NamedTuple):
    """A written queue. `units`: those implied, `conflicts` of which had no place. `twice` and `deleted`: messages that
    later ones have superseded, see `LiveSlots`. `directory` is relative to the folder that it was written below, None
    where no unit had a place."""

    topic: str
    queue_id: int
    is_batch: bool
    units: int
    conflicts: int
    twice: int
    deleted: int
    directory: str | None


class _QueuesRebuild:
    """All queues of the chosen topics (None for all); written to `staging`, None to find out only what would be."""

    def __init__(
        self, queues: QueueTable, staging: Path | None, topics: frozenset[str] | None, *, has_ext: bool
    ) -> None:
        """`has_ext`: units of 20 bytes get ext units."""
        self._queues = queues
        self._has_ext = has_ext
        self._staging = staging
        self._root = staging or queues.layout.root
        self._topics = topics
        self._only: Set[QueueKey] | None = None
        self._batch = {(queue.topic, queue.queue_id) for queue in queues.all() if isinstance(queue, BatchConsumeQueue)}
        self._writers: dict[tuple[str, int], QueueWriter] = {}
        self._held = 0
        self._further: dict[QueueKey, set[int]] = {}
        """Physical offsets of messages that a queue has by multi-dispatch: their units get no ext units."""
        self.counted: dict[tuple[str, int], int] = {}

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether the store has this queue with 46-byte units."""
        return (topic, queue_id) in self._batch

    def add(self, slot: QueueSlot) -> None:
        """The log implies this slot."""
        writer = self._counted(slot.topic, slot.queue_id, slot.is_batch, 1)
        if writer is not None:
            writer.add(slot.unit)
            if slot.is_further and self._has_ext:
                self._further.setdefault((slot.topic, slot.queue_id), set()).add(slot.unit.physical_offset)

    def add_units(self, run: QueueRun) -> None:
        """The log implies these units of a queue with 20-byte units."""
        writer = self._counted(run.topic, run.queue_id, False, len(run.slots))
        if writer is not None:
            writer.add_units(run.slots, run.units)

    def _counted(self, topic: str, queue_id: int, is_batch: bool, units: int) -> QueueWriter | None:
        is_one_kind = self._topics is None and not self._queues.of_files
        if is_one_kind and is_in_rocksdb_alone(self._queues.layout, topic):
            return None
        key = (topic, queue_id)
        if (self._topics is not None and topic not in self._topics) or (
            self._only is not None and key not in self._only
        ):
            return None
        self.counted[key] = self.counted.get(key, 0) + units
        self._held += units
        if self._held > _HELD_UNITS:
            self._held = 0
            for writer in self._writers.values():
                writer.flush()
        found = self._writers.get(key)
        if found is None:
            directory = topic_directory(self._root / queue_root(is_batch), topic) / str(queue_id)
            size = self._queues.batch_file_size() if is_batch else self._queues.consumequeue_file_size()
            found = self._writers[key] = QueueWriter(directory, is_batch, size, writes=self._staging is not None)
        return found

    def lives(self) -> dict[QueueKey, Lives]:
        """Return what later messages have superseded, by queue: of queues whose offsets go back along the log."""
        found = {
            key: superseded(writer.rows, held_by(self._queues.find(*key)))
            for key, writer in self._writers.items()
            if writer.conflicts
        }
        return {key: lives for key, lives in found.items() if lives}

    def begin_again(self, keys: Set[QueueKey]) -> None:
        """Forget what was written of these queues, and take the units of no others from now on."""
        for key in keys:
            self._writers.pop(key).discard()
            del self.counted[key]
        self._only = keys

    def _plan_ext(self, key: QueueKey, writer: QueueWriter, log: MappedFileQueue, plan: Plan) -> None:
        """Give a queue that was written its ext units, and plan their swap."""
        further = self._further.get(key, set())
        if writer.is_batch or self.counted[key] <= len(further):
            return
        target = topic_directory(self._queues.layout.consumequeue_ext, key[0]) / str(key[1])
        if self._staging is None:
            plan.add(Install(target, target))
            return
        staged = topic_directory(self._staging / "consumequeue_ext", key[0]) / str(key[1])
        size = put_ext_units(writer.directory, staged, self._queues.ext_file_size(), log, further)
        if size:
            plan.add(Install(staged, target, size))

    def finish(self, plan: Plan, log: MappedFileQueue) -> list[MadeQueue]:
        """Plan the swaps of what was written."""
        root = self._queues.layout.root
        made = []
        for key, writer in sorted(self._writers.items()):
            writer.flush()
            relative = None
            if writer.file_bytes:
                if self._has_ext:
                    self._plan_ext(key, writer, log, plan)
                relative = writer.directory.relative_to(self._root)
                plan.add(Install(writer.directory, root / relative, writer.file_bytes))
            path = None if relative is None else str(relative)
            made.append(MadeQueue(*key, writer.is_batch, self.counted[key], writer.conflicts, 0, 0, path))
        return made


def finish_queues(
    files: StoreFiles, made: Sequence[MadeQueue], topics: frozenset[str] | None, plan: Plan, report: RebuildReport
) -> None:
    """The report's numbers about queues; plan that the others of `topics` (None for all) go. NotFoundError for a topic
    without messages."""
    report.topics = sorted({one.topic for one in made})
    missing = sorted((topics or frozenset()) - set(report.topics))
    if missing:
        raise NotFoundError(
            f"the commitlog holds no message of topic {missing[0]!r}", hint="`rmqctl ls --topics` lists the topics"
        )
    present = {(one.topic, one.queue_id) for one in made if one.directory is not None}
    report.kept_queues = _plan_gone_queues(files.queues, present, topics, plan, files.log.min_offset)
    plan_empty_ext(files.queues, plan, topics)
    report.slot_conflicts += sum(one.conflicts + one.twice for one in made)
    report.deleted_topic_messages += sum(one.deleted for one in made)
    report.queues_rebuilt = len(made)
    report.units = sum(one.units - one.conflicts for one in made)


def queue_root(is_batch: bool) -> str:
    """Return the name of the directory of a store that such queues are in."""
    return "batchconsumequeue" if is_batch else "consumequeue"


def _plan_gone_queues(
    queues: QueueTable, made: Set[tuple[str, int]], topics: frozenset[str] | None, plan: Plan, log_min_offset: int
) -> int:
    """Plan that the queues of `topics` (None for all) go that were not `made`, but for those whose messages have all
    expired; returns how many stay."""
    kept = 0
    for queue in queues.all():
        key = (queue.topic, queue.queue_id)
        if key in made or (topics is not None and queue.topic not in topics):
            continue
        last = queue.unit(queue.max_offset - 1) if queue.max_offset else None
        if last is not None and last.is_written and last.physical_offset < log_min_offset:
            kept += 1
        elif is_directory(queue.directory):
            plan.add(MoveAway(queue.directory))
    return kept


def plan_index(files: StoreFiles, folder: Path | None, file_count: int) -> Install:
    """Plan the swap of the index for `count` new files in `folder`, None to keep it."""
    size = file_count * files.index_to_mend.geometry.file_size
    return Install(folder or files.layout.index, files.layout.index, size)


class RebuildWork(Protocol):
    """What reads the log, stages what it implies in the journal and plans the swaps."""

    def __call__(
        self,
        files: StoreFiles,
        journal: Journal,
        plan: Plan,
        with_queues: bool,
        with_index: bool,
        topics: list[str] | None,
        events: Events,
    ) -> RebuildReport: ...


def rebuild(
    files: StoreFiles,
    change: ChangeOptions = ChangeOptions(),
    *,
    queues: bool | Literal["files"] = True,
    index: bool = True,
    topics: Sequence[str] | None = None,
    work: RebuildWork | None = None,
) -> RebuildReport:
    """Rebuild queues and/or index of the store opened as `files`, which is stale afterwards: open it again.

    `queues` "files": those in files, beside a RocksDB that has the queues. `topics` restricts the queues; the index is
    one for all topics. `work` does it, by default in this process, as a dry run always is: which units have a place,
    and so which files there will be, shows only where the units of a queue come together. Damage in the log is passed
    over and counted; a DLedger log ends where DLedger ends it.
    UsageError, NotFoundError for a topic without messages, RefusedError without a log, StoreInUseError.
    """
    if topics and index:
        raise UsageError("the index holds the keys of all topics", hint="use --queues with -t, or leave -t out")
    of_files = queues == "files"
    if queues and not of_files and has_rocksdb_queues(files.layout):
        raise rocksdb_error(files.layout)
    is_all = queues and index
    chosen = None if topics is None else list(topics)

    def ends(head: dict[str, Any]) -> bool:
        return head.get("verb") == "rebuild" and (is_all or head.get("arguments") == change.command_line)

    with changing(files, "rebuild", change, ends, in_dledger=True) as planned:
        _require_log(planned.files)
        is_member = planned.files.dledger is not None
        if is_member:
            planned.files.log.truncate(goal_of_entries(planned.files, cut=False, full=False).at or 0)
        if of_files:
            planned.files.use_queue_files()
        # others make no ext units
        with_ext = bool(queues) and files.config.enable_consume_queue_ext
        if planned.journal is None or work is None or with_ext or of_files or is_member:
            report = _rebuild(planned.files, planned.journal, planned.plan, bool(queues), index, chosen, change.events)
        else:
            report = work(planned.files, planned.journal, planned.plan, bool(queues), index, chosen, change.events)
        report.operations = planned.rows()
    report.journal = planned.kept_in
    return report


def _require_log(files: StoreFiles) -> None:
    if not files.log.files:
        raise RefusedError(
            "there is no commitlog to rebuild from",
            file=files.layout.commitlog[0],
            hint="bring the commitlog back first",
        )


def _rebuild(
    files: StoreFiles,
    journal: Journal | None,
    plan: Plan,
    with_queues: bool,
    with_index: bool,
    topics: list[str] | None,
    events: Events,
) -> RebuildReport:
    """The work in this process; without a journal nothing is written, and the plan is only to be shown."""
    report = RebuildReport(dry_run=journal is None)
    staging = None if journal is None else journal.staging
    chosen = frozenset(topics) if topics else None
    has_ext = files.config.enable_consume_queue_ext
    made = _QueuesRebuild(files.queues, staging, chosen, has_ext=has_ext) if with_queues else None
    levels = files.config.delay_levels_to_write()
    geometry = files.index_to_mend.geometry
    folder = None if staging is None else staging / "index"
    keys = IndexBuilder(geometry, None if folder is None else lambda: folder)
    if folder is not None and with_index:
        io.make_directories(folder)

    further = FurtherSlots(files.queues.find)

    def on_run(run: Run) -> None:
        if made is not None:
            route(run, files.log, levels, made, further=further)
        keys.add(run.key_hashes, run.key_offsets, run.key_timestamps)
        report.unplaceable_messages += run.unplaceable

    survey = new_survey(files.log, 0, tolerant=True)
    digest = Digest(levels, queues=with_queues, keys=with_index, tags=with_index and files.has_tag_entries)
    try:
        survey_runs(survey, files.log, digest, on_run, events.progress, files.config)
        keys.finish()
    finally:
        keys.close()
    report.messages = survey.messages
    report.damaged_spans = len(survey.tolerated)
    if made is not None:
        if lives := made.lives():
            _write_again(files, made, levels, lives, report)
        finish_queues(files, made.finish(plan, files.log), chosen, plan, report)
    if with_index:
        plan.add(plan_index(files, folder, keys.file_count))
        report.index_files_rebuilt = keys.file_count
    return report


def _write_again(
    files: StoreFiles,
    made: _QueuesRebuild,
    levels: tuple[int, ...],
    lives: dict[QueueKey, Lives],
    report: RebuildReport,
) -> None:
    """Write the queues again that have superseded messages, without these: it shows only at the end of the log."""
    made.begin_again(lives.keys())
    slots = LiveSlots(made, lives)
    survey = new_survey(files.log, 0, tolerant=True)
    digest = Digest(levels, keys=False)
    further = FurtherSlots(files.queues.find)

    def on_run(run: Run) -> None:
        route(run, files.log, levels, slots, further=further)

    survey_runs(survey, files.log, digest, on_run, config=files.config)
    report.slot_conflicts += slots.twice
    report.deleted_topic_messages = slots.deleted


def report_row(report: RebuildReport) -> dict[str, Any]:
    """The report as `rebuild --json` prints it."""
    return {name: getattr(report, name) for name in report.__slots__}
