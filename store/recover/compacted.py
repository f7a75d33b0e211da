"""Rebuilds the copies of compacted topics from what is good in them and from the commitlog.

A broker does not do that: it copies a message when it dispatches it, once. Of a folder that is gone or damaged,
consumers get only what is dispatched later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.checksums import tags_code
from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, UnsupportedError
from rmqctl.formats.layouts import BATCH_CONSUMEQUEUE_UNIT, BLANK_FRAME, BLANK_MAGIC
from rmqctl.formats.properties import TAGS
from rmqctl.store.files import io
from rmqctl.store.files.layout import file_name
from rmqctl.store.journal.journal import PlannedChange, changing
from rmqctl.store.journal.plan import Install
from rmqctl.store.options import ChangeOptions
from rmqctl.store.queues.consumequeue import ConsumeQueue, QueueKey, QueueUnit, pack_batch_unit
from rmqctl.store.read.compacted import (
    COMPACTION,
    LOGS,
    QUEUES,
    UNKNOWN,
    CompactedQueue,
    CopiedMessage,
    FileSizes,
    StoredFrame,
    copied_queues,
    file_sizes,
    positions,
)
from rmqctl.store.recover.rebuild import RebuildReport
from rmqctl.store.store_files import StoreFiles

_END = BATCH_CONSUMEQUEUE_UNIT.struct.pack(-1, 0, 0, 0, 0, 0, -1, 0)
_UNIT = BATCH_CONSUMEQUEUE_UNIT.size
_BUFFER = 1 << 20


class _Chosen(NamedTuple):
    """A message for the new copy: in the file `name` of the old one, "" for the commitlog's."""

    unit: QueueUnit
    name: str
    key: bytes | None
    is_empty: bool


def rebuild_compacted(
    files: StoreFiles, change: ChangeOptions = ChangeOptions(), *, topics: Sequence[str] | None = None
) -> RebuildReport:
    """Write the copies of all compacted topics, or of `topics`, again; the store opened as `files` is stale afterwards.

    Up to its position a queue keeps the newest message of each key, as after a compaction, and all messages with keys
    after it. NotFoundError for a topic without a copy and without the policy, RefusedError where nothing tells the
    sizes of the files, StoreInUseError.
    """

    def ends(head: dict[str, Any]) -> bool:
        return head.get("verb") == "rebuild" and head.get("arguments") == change.command_line

    with changing(files, "rebuild", change, ends) as planned:
        report = RebuildReport(dry_run=planned.is_dry)
        sizes = _sizes(planned.files)
        try:
            known = positions(planned.files.layout)
        except CorruptError:  # all is kept, and the next compaction takes it in again
            known = {}
        for key in _queues(planned.files, topics):
            _rebuild(planned, CompactedQueue(planned.files, *key, known.get(key, UNKNOWN)), sizes, report)
        report.topics = sorted({*report.topics})
        report.operations = planned.rows()
    report.journal = planned.kept_in
    return report


def _sizes(files: StoreFiles) -> FileSizes:
    """Return the sizes that the files of all copies have. RefusedError."""
    sizes = file_sizes(files)
    if sizes is None:
        raise RefusedError(
            "no file tells the size of the files of a compaction log, and a broker does not start with others",
            file=files.layout.root / COMPACTION,
            hint="give a broker.conf with compactionMappedFileSize and compactionCqMappedFileSize with -c",
        )
    return sizes


def _queues(files: StoreFiles, topics: Sequence[str] | None) -> list[QueueKey]:
    """Return the queues that have a copy, or are of a topic with the policy."""
    keys = copied_queues(files)
    if not topics:
        return keys
    for topic in topics:
        if topic not in {key[0] for key in keys}:
            raise NotFoundError(f"topic {topic!r} is not a compacted one", hint="`rmqctl topics` lists the attributes")
    return [key for key in keys if key[0] in topics]


def _rebuild(planned: PlannedChange, copy: CompactedQueue, sizes: FileSizes, report: RebuildReport) -> None:
    chosen, begin = _chosen(planned.files, copy, report)
    if not chosen:
        return
    staging = None if planned.staging is None else planned.staging()
    writer = _Writer(staging, copy, sizes)
    for one in chosen:
        if one.unit.queue_offset >= begin:
            # a compaction takes all files but the last
            writer.begin_uncompacted()
        stored = _read(copy, one)
        if stored is None:
            report.damaged_spans += 1
            continue
        writer.add(one.unit, stored)
    writer.finish()
    for made, folder, size in ((writer.logs, copy.logs, sizes.log), (writer.queues, copy.queues, sizes.queue)):
        planned.plan.add(Install(made or folder, folder, size * writer.files))
    report.topics.append(copy.topic)
    report.queues_rebuilt += 1
    report.units += writer.units
    report.messages += writer.units


def _read(copy: CompactedQueue, one: _Chosen) -> StoredFrame | None:
    return copy.message(one.unit, one.name).stored if one.name else copy.in_log(one.unit.queue_offset)


def _chosen(files: StoreFiles, copy: CompactedQueue, report: RebuildReport) -> tuple[list[_Chosen], int]:
    """Return the messages for the new copy, in the order of their offsets, and from which offset on nothing was
    compacted."""
    old = list[CopiedMessage]()
    found: dict[int, _Chosen] = {}
    for one in copy.messages():
        if one.stored is not None:
            found[one.unit.queue_offset] = _Chosen(one.unit, one.name, one.stored.key, not one.stored.message.body)
        old.append(one._replace(stored=None))
    for queue_offset, stored in _of_log(files, copy):
        # a copy may differ where no CRC covers it
        if stored.key is not None:
            message = stored.message
            unit = QueueUnit(queue_offset, message.physical_offset, len(stored.frame), 0)
            found[queue_offset] = _Chosen(unit, "", stored.key, not message.body)
    lost = {one.unit.queue_offset for one in old if one.unit.queue_offset not in found}
    report.damaged_spans += len(lost)
    begin = copy.uncompacted(old)
    newest: dict[bytes | None, int] = {}
    for queue_offset in sorted(found):
        if queue_offset < begin:
            newest[found[queue_offset].key] = queue_offset
    kept = []
    for queue_offset, taken in sorted(found.items()):
        is_newest = taken.key is None or (newest.get(taken.key) == queue_offset and not taken.is_empty)
        if queue_offset >= begin or is_newest:
            kept.append(taken)
    return kept, begin


def _of_log(files: StoreFiles, copy: CompactedQueue) -> Iterator[tuple[int, StoredFrame]]:
    queue = files.queues.find(copy.topic, copy.queue_id)
    if queue is None:
        return
    if not isinstance(queue, ConsumeQueue):
        raise UnsupportedError("the queue holds batches, which a compaction log has no units for", file=queue.directory)
    for queue_offset in range(queue.min_offset(files.log.min_offset), queue.max_offset):
        stored = copy.in_log(queue_offset)
        if stored is not None:
            yield queue_offset, stored


class _Writer:
    """Writes the files of a copy as a broker does (CompactionLog#putMessage). Without `staging` they are counted."""

    def __init__(self, staging: Path | None, copy: CompactedQueue, sizes: FileSizes) -> None:
        self._sizes = sizes
        self.logs, self.queues = (
            None if staging is None else staging / kind / copy.topic / str(copy.queue_id) for kind in (LOGS, QUEUES)
        )
        self.units = self.files = 0
        self._file: str | None = None
        self._begun = 0
        self._log, self._queue = bytearray(), bytearray()
        self._is_uncompacted = False

    def begin_uncompacted(self) -> None:
        """Have what follows in a file of its own: a compaction takes all files but the last."""
        if not self._is_uncompacted and self.units:
            self.finish()
        self._is_uncompacted = True

    def add(self, unit: QueueUnit, stored: StoredFrame) -> None:
        """Put a message after the last one."""
        size, used = len(stored.frame), self._begun + len(self._log)
        is_full = len(self._queue) + _UNIT >= self._sizes.queue // _UNIT * _UNIT
        if self._file is not None and (is_full or used + size + BLANK_FRAME.size > self._sizes.log):
            self._log += BLANK_FRAME.struct.pack(self._sizes.log - used, BLANK_MAGIC)
            self._queue += _END
            self.finish()
        if self._file is None:
            self._file = file_name(self.files * self._sizes.log)
            self.files += 1
            for folder, length in ((self.logs, self._sizes.log), (self.queues, self._sizes.queue)):
                if folder is not None:
                    io.make_directories(folder)
                    io.create_file(folder / self._file, length)
        place = int(self._file) + self._begun + len(self._log)
        code = tags_code(stored.message.properties().get(TAGS))
        packed = QueueUnit(unit.queue_offset, place, size, code, stored.message.store_timestamp)
        self._queue += pack_batch_unit(packed)
        self._log += stored.at(place)
        self.units += 1
        if len(self._log) > _BUFFER:
            self._flush()

    def _flush(self) -> None:
        if self.logs is not None and self._file is not None:
            io.write_range(self.logs / self._file, self._begun, self._log)
        self._begun += len(self._log)
        self._log = bytearray()

    def finish(self) -> None:
        """Write what is held in memory, and end the file."""
        self._flush()
        if self.queues is not None and self._file is not None:
            io.write_range(self.queues / self._file, 0, self._queue)
        self._file, self._begun, self._queue = None, 0, bytearray()
