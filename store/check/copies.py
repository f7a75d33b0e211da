"""The copies of compacted topics against themselves and against the commitlog: a lost copy is not a lost message."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import CorruptError, UnreadableError, counted
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.cross import LogSeen
from rmqctl.store.files.layout import is_file_name
from rmqctl.store.files.reading import is_directory, listed
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.read.compacted import (
    COMPACTION,
    POSITIONS,
    UNKNOWN,
    CompactedQueue,
    compacted_queues,
    copied_queues,
    positions,
)
from rmqctl.store.store_files import StoreFiles


def compaction_findings(files: StoreFiles, seen: LogSeen) -> Iterator[Finding]:
    """Yield what is wrong with the copies below compaction/. UnreadableError."""
    try:
        known = positions(files.layout)
    except CorruptError as error:
        path = files.layout.root / COMPACTION / POSITIONS
        yield Finding("RMQ-CMP-002", error.message, path, data_lost=False)
        known = {}
    # a broker that compacts makes the folder; without it this one may not (enableCompaction)
    if not is_directory(files.layout.root / COMPACTION):
        return
    try:
        places = copied_queues(files)
    except (CorruptError, UnreadableError):  # topics.json has findings of its own
        places = compacted_queues(files.layout)
    for place in places:
        yield from _findings(CompactedQueue(files, *place, known.get(place, UNKNOWN)), seen)


def _findings(copy: CompactedQueue, seen: LogSeen) -> Iterator[Finding]:
    for folder in (copy.logs, copy.queues):
        for name in listed(folder):
            if not is_file_name(name) and not is_directory(folder / name):
                text = f"{name} is left of a compaction that was cut off"
                yield _finding(copy, "RMQ-CMP-001", text, folder / name)
    differ = sorted(set(copy.log_names) ^ set(copy.queue_names))
    if differ:
        text = f"{differ[0]} is a file of only one of compactionLog and compactionCq"
        yield _finding(copy, "RMQ-CMP-001", text, copy.logs / differ[0])
    known = []
    for one in copy.messages():
        logged, problem = copy.in_log(one.unit.queue_offset), one.problem
        if one.stored is not None and logged is not None and logged.at(one.unit.physical_offset) != one.stored.frame:
            problem = "it differs from the same message of the commitlog"
        if problem:
            where = "the commitlog has it" if logged is not None else "the commitlog has it no more"
            text = f"message {one.unit.queue_offset}: {problem}; {where}"
            yield _finding(copy, "RMQ-CMP-002", text, copy.logs / one.name, one.unit, data_lost=logged is None)
        known.append(one._replace(stored=None))
    if not seen.is_live:
        # the last file was never compacted: where the position is lost, that much is known
        offsets = {one.unit.queue_offset for one in known}
        lacking = copy.lacking(max(copy.uncompacted(known), min(offsets)) if known else 0, offsets)
        if lacking:
            text = f"the copy lacks {counted(len(lacking), 'message')} of the queue, from offset {lacking[0]} on"
            yield dataclasses.replace(_finding(copy, "RMQ-CMP-003", text, copy.queues), messages=len(lacking))


def _finding(
    copy: CompactedQueue, code: str, text: str, path: Path, unit: QueueUnit | None = None, *, data_lost: bool = False
) -> Finding:
    offset, messages = (None, None) if unit is None else (unit.physical_offset, 1)
    return Finding(code, text, path, offset, copy.topic, copy.queue_id, messages=messages, data_lost=data_lost)
