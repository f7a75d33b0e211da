"""RocksDB databases of a store: their files and blocks, and consume queues in them against the log and queue files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rmqctl.formats.errors import CorruptError, UnreadableError, counted
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.cross import LogSeen
from rmqctl.store.config.accounts import account_databases
from rmqctl.store.config.config_database import databases
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.reading import is_there, status_of
from rmqctl.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue, QueueKey
from rmqctl.store.queues.queue_table import AnyConsumeQueue, has_rocksdb_beside_files, rocksdb_folder
from rmqctl.store.queues.rocksdb_queues import RocksdbQueues
from rmqctl.store.rocksdb.database import Database
from rmqctl.store.store_files import StoreFiles

_REPORTED_BLOCKS = 20
"""Damaged blocks of one database that get a finding each."""


def database_findings(layout: StoreLayout, *, is_quick: bool, is_live: bool) -> Iterator[Finding]:
    """Yield damage of every RocksDB of the store; `is_quick`: of names and sizes alone.

    A database that is written to is looked at by its manifest alone: tables come and go meanwhile.
    """
    # a broker makes these again from the log
    derived = (layout.consumequeue, layout.consumequeue_rocksdb, layout.message_storage)
    for folder in (*layout.rocksdb, *databases(layout.config), *account_databases(layout.config)):
        for finding in _findings_of(folder, is_quick=is_quick, is_live=is_live):
            is_damage = finding.code == "RMQ-RDB-001"
            yield replace(finding, data_lost=False if folder in derived else None) if is_damage else finding
        if folder in derived[:2] and not is_quick and not is_live:
            yield from _ends_of_queues(folder)


def _ends_of_queues(folder: Path) -> Iterator[Finding]:
    """Yield a queue whose end cannot be: a broker and others would go through slots that no unit is in."""
    try:
        queues = RocksdbQueues(folder, None)
        if not queues.is_damaged():  # a finding of the blocks
            for end in queues.ends():
                queues.queue(end)
    except CorruptError as error:
        yield replace(_damaged(folder, error), data_lost=False)


def _findings_of(folder: Path, *, is_quick: bool, is_live: bool) -> Iterator[Finding]:
    try:
        database = Database(folder)
    except CorruptError as error:
        yield _damaged(folder, error)
        return
    if is_live:
        return
    missing = {folder / table.name for table in database.tables() if not is_there(folder / table.name)}
    yield from _file_findings(database, missing)
    if not is_quick:
        yield from _block_findings(database, missing)


def _damaged(folder: Path, error: CorruptError) -> Finding:
    file = folder if error.file is None else Path(error.file)
    return Finding("RMQ-RDB-001", error.message, file, error.physical_offset)


def _file_findings(database: Database, missing: set[Path]) -> Iterator[Finding]:
    folder = database.folder
    for table in database.tables():
        status = status_of(folder / table.name)
        if folder / table.name in missing:
            yield Finding("RMQ-RDB-001", "the manifest names this table, and it is missing", folder / table.name)
        elif status is not None and status.st_size != table.size:
            text = f"the table has {status.st_size} bytes, and the manifest says {table.size}"
            yield Finding("RMQ-RDB-001", text, folder / table.name, expected=table.size, found=status.st_size)
    unused = database.unused_files()
    if unused:
        names = ", ".join(path.name for path in unused[:3]) + (" and others" if len(unused) > 3 else "")
        size = sum(0 if (status := status_of(path)) is None else status.st_size for path in unused)
        text = f"{counted(len(unused), 'file')} that the manifest does not name: {names}"
        yield Finding("RMQ-RDB-005", text, folder, found=len(unused), bytes=size)


def _block_findings(database: Database, missing: set[Path]) -> Iterator[Finding]:
    for error in database.damage[:_REPORTED_BLOCKS]:
        if error.file is None or Path(error.file) not in missing:
            yield _damaged(database.folder, error)
    if len(database.damage) > _REPORTED_BLOCKS:
        text = f"{len(database.damage)} places are damaged in all"
        yield Finding("RMQ-RDB-001", text, database.folder)


def are_queues_readable(files: StoreFiles) -> bool:
    """Return whether queues can be compared: not those in a damaged RocksDB, or in one with impossible ends."""
    try:
        database = files.queues.database()
        if database is not None:
            files.queues.all()
    except CorruptError:
        return False
    return database is None or not database.is_damaged()


def in_rocksdb(database: RocksdbQueues, found: Iterator[Finding], seen: LogSeen) -> Iterator[Finding]:
    """Yield what was found of queues, as it is for those in a RocksDB: a broker dispatches the log again from the
    checkpoint in the database on, and nothing here writes the database. Damage of it is reported elsewhere."""
    folder = database.folder
    try:
        reached = database.dispatched_to()
        for finding in found:
            of_queues = finding.code.startswith("RMQ-CQ-") and finding.severity.is_alarm
            if not of_queues:
                yield finding
            elif reached and not _is_late(finding, reached):
                yield replace(finding, code="RMQ-RDB-002", fix="", file=folder)
    except CorruptError:
        return
    if seen.is_whole and not seen.is_live and reached < seen.log_end:
        begin = max(reached, seen.log_begin)
        text = f"queues have the log up to {begin}: the next start dispatches the rest again"
        yield Finding("RMQ-RDB-003", text, folder, expected=seen.log_end, found=begin, bytes=seen.log_end - begin)


def _is_late(finding: Finding, reached: int) -> bool:
    return finding.physical_offset is not None and finding.physical_offset >= reached


def light_queues(files: StoreFiles) -> dict[QueueKey, AnyConsumeQueue]:
    """Return the queues that are in a RocksDB beside the files alone; none where that is damaged, which is a finding of
    its own."""
    try:
        return {(queue.topic, queue.queue_id): queue for queue in files.queues.light()}
    except CorruptError:
        return {}


def both_kinds(files: StoreFiles) -> Iterator[Finding]:
    """Yield how queues in files differ from those in a RocksDB beside them, from its first units on."""
    if not has_rocksdb_beside_files(files.layout):
        return
    folder = rocksdb_folder(files.layout)
    differing: list[tuple[ConsumeQueue, int]] = []
    try:
        database = RocksdbQueues(folder, None)
        for end in database.ends():
            queue = files.queues.find(end.topic, end.queue_id)
            if isinstance(queue, ConsumeQueue):
                slot = _first_difference(queue, database.queue(end))
                if slot is not None:
                    differing.append((queue, slot))
    except (CorruptError, UnreadableError):  # reported with the database
        return
    if differing:
        queue, slot = differing[0]
        more = f", and {counted(len(differing) - 1, 'more queue')}" if len(differing) > 1 else ""
        text = f"{queue.topic} queue {queue.queue_id} differs from its units in RocksDB at slot {slot}{more}"
        yield Finding(
            "RMQ-RDB-004", text, folder, topic=queue.topic, queue_id=queue.queue_id, found=slot, data_lost=False
        )


def _first_difference(queue: ConsumeQueue, other: ConsumeQueue) -> int | None:
    """Return the first slot that differs; that after the last one of both where one queue ends first."""
    begin = max(queue.first_slot, other.first_slot)
    end = min(queue.max_offset, other.max_offset)
    for slot, units in queue.unit_bytes(begin, end):
        mine = other.files.read(slot * UNIT_SIZE, len(units))
        if mine != units:
            pairs = zip(mine, units, strict=False)
            same = next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(mine), len(units)))
            return slot + same // UNIT_SIZE
    return end if queue.max_offset != other.max_offset else None
