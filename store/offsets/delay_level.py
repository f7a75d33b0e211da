"""Set the offset of a delay level in delayOffset.json: the next message that the broker delivers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, RefusedError
from rmqctl.store.answers.config_offsets import DELAY_FILE, OFFSET_TABLE, offsets_of
from rmqctl.store.answers.delays import unknown_level
from rmqctl.store.config.config_files import load_what_is_left, next_version
from rmqctl.store.journal.journal import changing
from rmqctl.store.offsets.change import OffsetChange, OffsetsReport, plan_file, queues_lack, require_inside, with_bounds
from rmqctl.store.options import ChangeOptions
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles

_VERSION = "dataVersion"


def set_delay_offset(
    files: StoreFiles, level: int, offset: int, change: ChangeOptions, *, anywhere: bool = False
) -> OffsetsReport:
    """Set a delay level, the queue `level` - 1 of SCHEDULE_TOPIC_XXXX, to `offset`. The file's content goes to its
    backup, as a broker does it, and both as they were into the journal.

    RefusedError for an offset outside of the queue and for a level that messageDelayLevel lacks, unless `anywhere`.
    StoreInUseError. Where the file and its backup are damaged, what can still be read of them is kept.
    """
    report = OffsetsReport(dry_run=change.dry_run)
    with changing(files, "offsets", change, mends=False) as planned:
        path = planned.files.layout.config / DELAY_FILE
        loaded, note = load_what_is_left(path)
        report.notes += [note] if note else []
        content = _table_in(loaded.content) if loaded is not None else {}
        if loaded is not None and loaded.source != path:
            report.notes.append(f"{path} is missing, empty or damaged: its backup is what is changed")
        table = content.get(OFFSET_TABLE) or {}
        behind = queues_lack(planned.files, report.notes.append)
        row = _row(StoreReader(planned.files), level, offsets_of(table).get(level), offset, behind)
        if not anywhere:
            _require_level(planned.files, level)
            require_inside(row, "set-delay")
        report.rows = [row]
        if row.is_change:
            report.changed, report.skipped, report.again = 1, row.skipped or 0, row.again or 0
            planned.plan.messages_skipped = report.skipped
            plan_file(planned, path, _content_with(content, level, offset))
        report.operations = planned.rows()
    report.journal = planned.kept_in
    return report


def _row(
    reader: StoreReader, level: int, before: int | None, offset: int, behind: Mapping[tuple[str, int], int]
) -> OffsetChange:
    """The change of one level. A broker begins at 0 with a level that its file does not name
    (ScheduleMessageService#start)."""
    detail = f"delay level {level}"
    row = with_bounds(reader, OffsetChange("", SCHEDULE_TOPIC, level - 1, before or 0, offset, detail=detail), behind)
    return row._replace(before=before)


def _require_level(files: StoreFiles, level: int) -> None:
    levels = len(files.config.delay_levels())
    if not 1 <= level <= levels:
        raise RefusedError(unknown_level(levels), hint="-c names the broker.conf; `rmqctl delays` lists the levels")


def _table_in(content: Any) -> dict[Any, Any]:
    """The content of delayOffset.json; CorruptError where that is not a table of offsets."""
    if content is None:
        return {}
    table = content.get(OFFSET_TABLE, {}) if isinstance(content, dict) else None
    if not isinstance(table, dict):
        raise CorruptError(
            f"{DELAY_FILE} holds no table {OFFSET_TABLE}", hint="`rmqctl offsets lint` shows what it holds"
        )
    return dict(content)


def _content_with(content: Mapping[Any, Any], level: int, offset: int) -> bytes:
    """The file with one level changed, as DelayOffsetSerializeWrapper is written; 4.x has no dataVersion."""
    table = dict(sorted({**(content.get(OFFSET_TABLE) or {}), level: offset}.items()))
    after = {**content, OFFSET_TABLE: table}
    if isinstance(content.get(_VERSION), dict):
        after[_VERSION] = next_version(content[_VERSION], time.time_ns() // 1_000_000)
    return format_config_json(after).encode("utf-8")
