"""Makes consume queues and index anew from the commitlog: written beside the store, flushed, then swapped in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from formats.errors import NotFoundError, RefusedError, UsageError
from formats.layouts import CONSUMEQUEUE_UNIT
from formats.message import StoredMessage
from store.commitlog.walk import Progress
from store.dispatch import QueueSlot, queue_slots
from store.files import io
from store.files.journal import Journal
from store.files.layout import file_name, is_safe_topic, topic_directory
from store.files.lock import take_lock
from store.files.plan import Install, MoveAway, Plan
from store.log_survey import new_survey, survey_log
from store.mend.index import IndexMend
from store.queues.batch_consumequeue import BatchConsumeQueue, pack_batch_unit
from store.queues.queue_table import QueueTable, has_rocksdb_queues, rocksdb_error
from store.queues.unit import PLACEHOLDER_SIZE, QueueUnit
from store.store_files import StoreFiles

_PLACEHOLDER = CONSUMEQUEUE_UNIT.struct.pack(0, PLACEHOLDER_SIZE, 0)
_BUFFER = 256 * 1024


@dataclass(slots=True)
class RebuildReport:
    """What rebuild made. `kept_queues`: queues whose messages have all expired; they hold the next offset, so stay.

    `damaged_spans`: places of the log that gave no messages. `journal` is the folder with the old files.
    """

    messages: int = 0
    queues_rebuilt: int = 0
    units: int = 0
    kept_queues: int = 0
    slot_conflicts: int = 0
    unplaceable_messages: int = 0
    index_files_rebuilt: int = 0
    damaged_spans: int = 0
    journal: str | None = None
    dry_run: bool = False
    topics: list[str] = field(default_factory=list)


class _QueueWriter:
    """One queue written to a staging folder, file by file, in the order of the log."""

    def __init__(self, directory: Path, slot: QueueSlot, file_size: int) -> None:
        self.directory = directory
        self.units = 0
        self.conflicts = 0
        self._file_size = file_size
        self._is_batch = slot.is_batch
        unit_size = len(self._pack(slot.unit))
        self._per_file = file_size // unit_size
        self._file_bytes = self._per_file * unit_size
        first = 0 if slot.is_batch else slot.unit.queue_offset - slot.unit.queue_offset % self._per_file
        self._next_offset = first
        self._position = first * unit_size
        self._buffer = bytearray()
        self._file: Path | None = None

    def _pack(self, unit: QueueUnit) -> bytes:
        if self._is_batch:
            return pack_batch_unit(unit)
        return CONSUMEQUEUE_UNIT.struct.pack(unit.physical_offset, unit.size, unit.tags_code)

    def add(self, unit: QueueUnit) -> None:
        if unit.queue_offset < self._next_offset:
            self.conflicts += 1
            return
        while not self._is_batch and self._next_offset < unit.queue_offset:
            self._put(_PLACEHOLDER)
            self._next_offset += 1
        self._put(self._pack(unit))
        self._next_offset = unit.next_queue_offset
        self.units += 1

    def _put(self, packed: bytes) -> None:
        if self._file is None:
            start = self._position // self._file_bytes * self._file_size
            self._file = self.directory / file_name(start)
            io.make_directories(self.directory)
            io.create_file(self._file, self._file_size)
        self._buffer += packed
        self._position += len(packed)
        if self._position % self._file_bytes == 0:
            self.flush()
            self._file = None
        elif len(self._buffer) >= _BUFFER:
            self.flush()

    def flush(self) -> None:
        if self._file is not None and self._buffer:
            position = self._position % self._file_bytes or self._file_bytes
            io.write_range(self._file, position - len(self._buffer), self._buffer)
        self._buffer = bytearray()


class _QueuesRebuild:
    """All queues of the chosen topics (None for all)."""

    def __init__(self, queues: QueueTable, staging: Path | None, topics: frozenset[str] | None) -> None:
        self._queues = queues
        self._staging = staging
        self._topics = topics
        self._batch = {(queue.topic, queue.queue_id) for queue in queues.all() if isinstance(queue, BatchConsumeQueue)}
        self._writers: dict[tuple[str, int], _QueueWriter] = {}
        self.counted: dict[tuple[str, int], int] = {}

    def add(self, message: StoredMessage, levels: tuple[int, ...]) -> None:
        batch = (message.topic, message.queue_id) in self._batch
        for slot in queue_slots(message, levels, batch):
            if self._topics is not None and slot.topic not in self._topics:
                continue
            key = (slot.topic, slot.queue_id)
            self.counted[key] = self.counted.get(key, 0) + 1
            if self._staging is None:
                continue
            writer = self._writers.get(key)
            if writer is None:
                writer = self._writers[key] = self._writer(slot)
            writer.add(slot.unit)

    def _writer(self, slot: QueueSlot) -> _QueueWriter:
        assert self._staging is not None
        name = "batchconsumequeue" if slot.is_batch else "consumequeue"
        directory = topic_directory(self._staging / name, slot.topic) / str(slot.queue_id)
        size = self._queues.batch_file_size() if slot.is_batch else self._queues.consumequeue_file_size()
        return _QueueWriter(directory, slot, size)

    def finish(self, plan: Plan, report: RebuildReport, log_min_offset: int) -> None:
        """Plan the swaps. A queue without messages in the log stays if its own have expired, else goes."""
        root = self._queues.layout.root
        for writer in self._writers.values():
            writer.flush()
            assert self._staging is not None
            plan.add(Install(writer.directory, root / writer.directory.relative_to(self._staging)))
            report.slot_conflicts += writer.conflicts
        for queue in self._queues.all():
            key = (queue.topic, queue.queue_id)
            if key in self.counted or (self._topics is not None and queue.topic not in self._topics):
                continue
            last = queue.unit(queue.max_offset - 1) if queue.max_offset else None
            if last is not None and last.is_written and last.physical_offset < log_min_offset:
                report.kept_queues += 1
            elif queue.directory.is_dir():
                plan.add(MoveAway(queue.directory))
        report.queues_rebuilt = len(self.counted)
        report.units = sum(self.counted.values()) - report.slot_conflicts
        report.topics = sorted({topic for topic, _ in self.counted})


def rebuild(
    files: StoreFiles,
    *,
    queues: bool = True,
    index: bool = True,
    topics: list[str] | None = None,
    dry_run: bool = False,
    arguments: list[str] | None = None,
    progress: Progress | None = None,
) -> RebuildReport:
    """Rebuild queues and/or index of the store opened as `files`, which is stale afterwards: open it again.

    `topics` restricts the queues; the index is one for all topics. Damage in the log is passed over and counted.
    UsageError, NotFoundError for a topic without messages, RefusedError without a log, StoreInUseError.
    """
    if topics and index:
        raise UsageError("the index holds the keys of all topics", hint="use --queues with -t, or leave -t out")
    if queues and has_rocksdb_queues(files.layout):
        raise rocksdb_error(files.layout)
    if not files.log.files:
        raise RefusedError(
            "there is no commitlog to rebuild from",
            file=files.layout.commitlog[0],
            hint="bring the commitlog back first",
        )
    if dry_run:
        return _rebuild(files, None, Plan(), queues, index, topics, progress)
    lock = take_lock(files.layout)
    journal = Journal(files.layout, "rebuild", arguments)
    plan = Plan()
    try:
        report = _rebuild(files, journal, plan, queues, index, topics, progress)
        journal.apply(plan)
        report.journal = str(journal.folder)
    except (NotFoundError, RefusedError):
        journal.discard()
        raise
    finally:
        lock.release()
    return report


def _rebuild(
    files: StoreFiles,
    journal: Journal | None,
    plan: Plan,
    with_queues: bool,
    with_index: bool,
    topics: list[str] | None,
    progress: Progress | None,
) -> RebuildReport:
    report = RebuildReport(dry_run=journal is None)
    staging = None if journal is None else journal.staging
    chosen = frozenset(topics) if topics else None
    made = _QueuesRebuild(files.queues, staging, chosen) if with_queues else None
    keys = IndexMend(files.index, files.descriptors) if with_index else None
    levels = files.config.delay_levels()

    def on_message(message: StoredMessage) -> None:
        if made is not None:
            made.add(message, levels)
        if keys is not None:
            keys.add(message)
        report.unplaceable_messages += not is_safe_topic(message.topic)

    survey = new_survey(files.log, 0)
    survey_log(survey, files.log, on_message, tolerant=True, progress=progress)
    report.messages = survey.messages
    report.damaged_spans = len(survey.tolerated)
    if made is not None:
        missing = sorted((chosen or frozenset()) - {topic for topic, _ in made.counted})
        if missing:
            raise NotFoundError(
                f"the commitlog holds no message of topic {missing[0]!r}", hint="`rmqctl ls --topics` lists the topics"
            )
        made.finish(plan, report, files.log.min_offset)
    if keys is not None:
        report.index_files_rebuilt = _plan_index(files, keys, staging, plan)
    return report


def _plan_index(files: StoreFiles, keys: IndexMend, staging: Path | None, plan: Plan) -> int:
    geometry = files.index.geometry
    if staging is None:
        return keys.file_count(geometry)
    folder = staging / "index"
    io.make_directories(folder)
    made = keys.stage(folder, geometry)
    plan.add(Install(folder, files.layout.index))
    return len(made)


def report_row(report: RebuildReport) -> dict[str, Any]:
    """The report as `rebuild --json` prints it."""
    return {name: getattr(report, name) for name in report.__slots__}
