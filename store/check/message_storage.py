"""`rocksdbstore/` against the commitlog: entries of the key index, and rows of half messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmqctl.formats.errors import CorruptError, NotFoundError, UnreadableError, counted
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import KEYS, TAGS, TRANSACTION_ROLLBACK, UNIQUE_KEY, split_keys, transaction_type
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.cross import Level, LogSeen
from rmqctl.store.check.queue_look import damaged_slots
from rmqctl.store.config.config_files import ROCKSDB_TOPICS
from rmqctl.store.log.walk import walk
from rmqctl.store.read.frames import message_at
from rmqctl.store.rocksdb.message_storage import (
    HOUR_MS,
    OF_KEY,
    OF_TAG,
    OF_UNIQUE_KEY,
    IndexRow,
    MessageStorage,
)
from rmqctl.store.store_files import StoreFiles

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
