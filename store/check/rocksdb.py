"""RocksDB databases of a store: their files and blocks, and consume queues, keys and half messages in them against the
log and queue files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from rmqctl.formats.errors import CorruptError, NotFoundError, UnreadableError, counted
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import KEYS, TAGS, TRANSACTION_ROLLBACK, UNIQUE_KEY, split_keys, transaction_type
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.cross import Level, LogSeen
from rmqctl.store.check.queue_look import damaged_slots
from rmqctl.store.config.accounts import account_databases
from rmqctl.store.config.config_database import databases
from rmqctl.store.config.config_files import ROCKSDB_TOPICS
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.reading import is_there, status_of
from rmqctl.store.log.walk import walk
from rmqctl.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue, QueueKey
from rmqctl.store.queues.queue_table import AnyConsumeQueue, has_rocksdb_beside_files, rocksdb_folder
from rmqctl.store.queues.rocksdb_queues import RocksdbQueues
from rmqctl.store.read.frames import message_at
from rmqctl.store.rocksdb.database import Database
from rmqctl.store.rocksdb.message_storage import HOUR_MS, OF_KEY, OF_TAG, OF_UNIQUE_KEY, IndexRow, MessageStorage
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
    yield from _behind(folder, reached, seen)


def _behind(folder: Path, reached: int, seen: LogSeen) -> Iterator[Finding]:
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


def both_kinds(files: StoreFiles, seen: LogSeen) -> Iterator[Finding]:
    """Yield how queues in files differ from those in a RocksDB beside them, from its first units on."""
    if not has_rocksdb_beside_files(files.layout):
        return
    folder = rocksdb_folder(files.layout)
    differing: list[tuple[ConsumeQueue, int]] = []
    try:
        database = RocksdbQueues(folder, None)
        reached = database.dispatched_to()
        for end in database.ends():
            queue = files.queues.find(end.topic, end.queue_id)
            if isinstance(queue, ConsumeQueue):
                slot = _first_difference(queue, database.queue(end), database.begun_at(*end[:2]), reached)
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
    if reached > 0:
        yield from _behind(folder, reached, seen)


def _first_difference(queue: ConsumeQueue, other: ConsumeQueue, begin: int, reached: int) -> int | None:
    """Return the first slot that differs, from slot `begin` on; that after the last one of both where one queue ends
    first. Not those of messages at `reached` and later: the next start dispatches these to RocksDB again."""
    begin = max(queue.first_slot, other.first_slot, begin)
    end = min(queue.max_offset, other.max_offset)
    for slot, units in queue.unit_bytes(begin, end):
        mine = other.files.read(slot * UNIT_SIZE, len(units))
        if mine != units:
            pairs = zip(mine, units, strict=False)
            same = next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(mine), len(units)))
            return slot + same // UNIT_SIZE
    if queue.max_offset == other.max_offset:
        return None
    following = queue.unit(end) if queue.max_offset > end else None
    return end if following is None or following.physical_offset < reached else None


# `rocksdbstore/` against the commitlog: entries of the key index, and rows of half messages.

# parts of the log are compared by the sum of the hashes of their entries, and looked into where these differ
_PART = 22
_LOOKED_INTO = 4


def storage_findings(files: StoreFiles, seen: LogSeen) -> Iterator[Finding]:
    """Yield what is wrong with the rows of `rocksdbstore/`: nothing of a store that is written to, of a damaged
    database, which is a finding of its own, and where only a part of the log was read. UnreadableError."""
    if seen.is_live or not seen.is_whole:
        return
    try:
        storage = files.message_storage
        if storage is None:
            return
        yield from _index(files, storage, seen)
        yield from _transactions(files, storage, seen)
    except CorruptError:
        return


def _index(files: StoreFiles, storage: MessageStorage, seen: LogSeen) -> Iterator[Finding]:
    reached = storage.indexed_to()
    if reached is None or seen.level is Level.QUICK:
        return
    rows = _sums(storage.index_rows())
    begin = min((first for _, _, first in rows.values()), default=reached + 1)
    later, implied = 0, dict[int, tuple[int, int, int]]()
    for message in _messages(files, max(begin, seen.log_begin)):
        if message.physical_offset <= reached:
            _add(implied, index_rows_of(message))
        else:
            later += bool(index_rows_of(message))
    differing = [part for part in rows.keys() | implied.keys() if rows.get(part) != implied.get(part)]
    missing, foreign, past, first = 0, 0, 0, -1
    looked_into: dict[int, set[IndexRow]] = {part: set() for part in sorted(differing)[:_LOOKED_INTO]}
    for row in storage.index_rows() if looked_into else ():
        if row.physical_offset >> _PART in looked_into:
            looked_into[row.physical_offset >> _PART].add(row)
    damaged = damaged_slots(files.log, seen)
    for part, there in looked_into.items():
        messages = _messages(files, max(part << _PART, seen.log_begin, begin), (part + 1) << _PART)
        wanted = {one for message in messages if message.physical_offset <= reached for one in index_rows_of(message)}
        for one in there - wanted:
            place = one.physical_offset
            if place >= seen.log_end:
                past += 1
            elif place >= seen.log_begin and not any(damaged.common(place, place + 1)):
                foreign += 1
                first = place if first < 0 else min(first, place)
        for one in wanted - there:
            missing += 1
            first = one.physical_offset if first < 0 else min(first, one.physical_offset)
    for count, one_is, several_are in (
        (missing, "is not in it", "are not in it"),
        (foreign, "leads to no message with it", "lead to no message with it"),
    ):
        if count:
            text = f"{counted(count, 'key')} of the log {one_is if count == 1 else several_are}, first at {first}"
            yield Finding("RMQ-RDB-006", text, storage.folder, first, messages=count, data_lost=False)
    if past or reached >= seen.log_end:
        text = f"the index has messages up to {reached}, and the commitlog ends at {seen.log_end}"
        yield Finding("RMQ-RDB-006", text, storage.folder, reached, found=reached, data_lost=False)
    elif later:
        text = f"{counted(later, 'message')} after offset {reached} not in the index yet: the next start adds them"
        yield Finding("RMQ-RDB-007", text, storage.folder, reached, messages=later)


def _messages(files: StoreFiles, begin: int, end: int = 1 << 62) -> Iterator[StoredMessage]:
    for record in walk(files.log, begin):
        if record.physical_offset >= end:
            return
        if isinstance(record, StoredMessage):
            yield record


def index_rows_of(message: StoredMessage) -> list[IndexRow]:
    """Return the entries that a broker makes of a message (IndexRocksDBStore#buildIndex)."""
    properties = message.properties()
    unique_key, time = properties.get(UNIQUE_KEY), message.store_timestamp
    if not unique_key or not message.topic or time <= 0 or transaction_type(message.sys_flag) == TRANSACTION_ROLLBACK:
        return []
    named = [(OF_KEY, key) for key in dict.fromkeys(split_keys(properties.get(KEYS)))]
    named += [(OF_TAG, properties[TAGS])] if properties.get(TAGS) else []
    place, hour = message.physical_offset, time // HOUR_MS * HOUR_MS
    return [
        IndexRow(hour, message.topic, kind, key, unique_key, place, time) for kind, key in (*named, (OF_UNIQUE_KEY, ""))
    ]


def _sums(rows: Iterable[IndexRow]) -> dict[int, tuple[int, int, int]]:
    """Return count, sum of hashes and lowest physical offset of the rows of each part of the log."""
    sums: dict[int, tuple[int, int, int]] = {}
    _add(sums, rows)
    return sums


def _add(sums: dict[int, tuple[int, int, int]], rows: Iterable[IndexRow]) -> None:
    for row in rows:
        part = row.physical_offset >> _PART
        count, total, first = sums.get(part, (0, 0, row.physical_offset))
        sums[part] = count + 1, total + hash(row), min(first, row.physical_offset)


def _transactions(files: StoreFiles, storage: MessageStorage, seen: LogSeen) -> Iterator[Finding]:
    """Yield rows that lead to no half message: a broker drops these, and never asks how the transaction ended."""
    wrong, first = 0, -1
    damaged = damaged_slots(files.log, seen)
    for row in storage.transactions():
        place = row.physical_offset
        if place < seen.log_begin or any(damaged.common(place, place + 1)):
            continue
        try:
            message = message_at(files.log, place)
            is_half = message.topic == ROCKSDB_TOPICS[0] and message.total_size == row.size
            if is_half and message.properties().get(UNIQUE_KEY) == row.unique_key:
                continue
        except (CorruptError, NotFoundError, UnreadableError):
            pass
        wrong, first = wrong + 1, place if first < 0 else first
    if wrong:
        text = f"{counted(wrong, 'row')} of transactions lead{'s' if wrong == 1 else ''} to no half message"
        yield Finding("RMQ-RDB-008", text, storage.folder, first, messages=wrong, data_lost=None)
