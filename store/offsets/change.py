"""A change of offsets: decided under the store's lock, journalled like every change, written as a broker writes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.store.config.config_files import backup_of, next_backup
from rmqctl.store.journal.frame import PlannedChange, Terms, changing
from rmqctl.store.journal.plan import install_config
from rmqctl.store.offsets.offset_file import OffsetFile, content_with, offset_file_of
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles


class OffsetChange(NamedTuple):
    """One group in one queue: its offset `before` and `after`, None where it has none. `skipped`: messages that it has
    not read and does not get any more; `again`: those that it gets once more; None where the queue's beginning and end,
    or the offset before, are not known."""

    group: str
    topic: str
    queue_id: int
    before: int | None
    after: int | None
    min_offset: int | None = None
    max_offset: int | None = None
    skipped: int | None = None
    again: int | None = None
    detail: str = ""

    @property
    def is_change(self) -> bool:
        """Whether the offset is another one afterwards."""
        return self.before != self.after


@dataclass(slots=True)
class OffsetsReport:
    """What was changed, or with `dry_run` would be. `rows`: every queue looked at, those too that stay as they are."""

    rows: list[OffsetChange] = field(default_factory=list)
    changed: int = 0
    skipped: int = 0
    again: int = 0
    notes: list[str] = field(default_factory=list)
    journal: str | None = None
    dry_run: bool = False
    operations: list[dict[str, Any]] = field(default_factory=list)


class Deciding(NamedTuple):
    """What a change of offsets decides by: the store under its lock, and its offsets. `tell` takes what is to be said
    of the change as a whole."""

    reader: StoreReader
    file: OffsetFile
    tell: Callable[[str], None]

    def row(self, group: str, topic: str, queue_id: int, after: int | None, detail: str = "") -> OffsetChange:
        """The change of one queue to the offset `after`, with what follows from it."""
        before = self.file.offsets(group, topic).get(queue_id)
        return with_bounds(self.reader, OffsetChange(group, topic, queue_id, before, after, detail=detail))

    def bounds(self, queue: AnyConsumeQueue) -> tuple[int, int]:
        """First offset and end of a queue."""
        return bounds_of(self.reader, queue)


def with_bounds(reader: StoreReader, row: OffsetChange) -> OffsetChange:
    """Return `row` with the beginning and the end of its queue, and what follows from the change."""
    queue = reader.files.queues.find(row.topic, row.queue_id)
    if queue is None:
        return row._replace(detail=row.detail or "the queue has no files, so its end is not known")
    begin, end = bounds_of(reader, queue)
    row = row._replace(min_offset=begin, max_offset=end)
    if row.before is None or row.after is None:
        return row
    first, last = min(max(row.before, begin), end), min(max(row.after, begin), end)
    return row._replace(skipped=max(0, last - first), again=max(0, first - last))


def bounds_of(reader: StoreReader, queue: AnyConsumeQueue) -> tuple[int, int]:
    """Return the first offset and the end of a queue."""
    return queue.min_offset(reader.files.log.min_offset), queue.max_offset


Decision = Callable[[Deciding], list[OffsetChange]]


def change_offsets(files: StoreFiles, decide: Decision, terms: Terms) -> OffsetsReport:
    """Change offsets in the store opened as `files`, as `decide` says. What the file held goes to its backup, as a
    broker does it (MixAll#string2File), and both as they were into the journal.

    StoreInUseError; CorruptError where offsets are kept that cannot be read; what `decide` raises.
    """
    report = OffsetsReport(dry_run=terms.dry_run)
    with changing(files, "offsets", terms, mends=False) as change:
        file = offset_file_of(change.files)
        if file.note:
            report.notes.append(file.note)
        if file.source not in (None, file.path):
            report.notes.append(f"{file.path} is missing, empty or damaged: its backup is what is changed")
        report.rows = decide(Deciding(StoreReader(change.files), file, report.notes.append))
        _plan(change, file, report)
        report.operations = change.rows()
    report.journal = change.kept_in
    return report


def _plan(change: PlannedChange, file: OffsetFile, report: OffsetsReport) -> None:
    changed: dict[tuple[str, str], dict[int, int | None]] = {}
    for row in report.rows:
        if row.is_change:
            changed.setdefault((row.group, row.topic), {})[row.queue_id] = row.after
            report.changed += 1
            report.skipped += row.skipped or 0
            report.again += row.again or 0
    if not changed:
        return
    _require_plain(file)
    change.plan.messages_skipped = report.skipped
    plan_file(change, file.path, content_with(file, changed, time.time_ns() // 1_000_000))


def plan_file(change: PlannedChange, path: Path, data: bytes) -> None:
    """Plan that the config file `path` is to hold `data`, and its backup what the file holds now."""
    old = next_backup(path)
    if old is not None:
        install_config(change.plan, change.staging, backup_of(path), old)
    install_config(change.plan, change.staging, path, data)


def _require_plain(file: OffsetFile) -> None:
    """A broker reads nothing of a file in which an offset is none: what is changed in it would have no effect."""
    for key, queues in file.table.items():
        good = isinstance(queues, dict) and all(
            isinstance(offset, int) and not isinstance(offset, bool) for offset in queues.values()
        )
        if not good:
            raise CorruptError(
                f"{key!r} holds no offsets by queue: a broker may not load the file",
                file=file.source,
                hint="`rmqctl offsets lint` names all that is wrong; correct it, or take its backup, first",
            )
