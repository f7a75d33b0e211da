"""`rocksdbstore/` of RocketMQ 5.4 and later: key index, timer and open transactions (MessageRocksDBStorage).

A broker makes this database in every store, and fills a part of it only where that is switched on (indexRocksDBEnable,
timerRocksDBEnable, transRocksDBEnable). Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import ROCKSDB_TIMER, ROCKSDB_TRANSACTION
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.options import Events
from rmqctl.store.rocksdb.database import Database
from rmqctl.store.rocksdb.table import Report

INDEX, TIMER, TRANSACTIONS = "default", "timer", "trans"
"""The column families."""
OF_KEY, OF_TAG, OF_UNIQUE_KEY = "K", "T", "U"
"""Kinds of entries of the index (MessageConst)."""
HOUR_MS = 3_600_000
_RAISE = Events().damaged
_LAST_OFFSET = b"lastOffsetPy"
_SCANNED, _DELIVERED = b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint"
_AT = b"@"
_LONG = 8
# keys of rows begin with a number, those of checkpoints with a letter
_ROWS = b"\0", b"\1"


class IndexRow(NamedTuple):
    """One entry of the index. `key`: a key or the tags; "" for an entry of the unique key. Times in ms."""

    hour: int
    topic: str
    kind: str
    key: str
    unique_key: str
    physical_offset: int
    store_timestamp: int


class TimerRow(NamedTuple):
    """A message of the timer. `out`: when it is due (ms); `size`: of its frame."""

    out: int
    unique_key: str
    size: int
    physical_offset: int


class TransactionRow(NamedTuple):
    """A half message without an end. `checks`: how often its producers were asked; `size`: of its frame."""

    physical_offset: int
    topic: str
    unique_key: str
    checks: int
    size: int


class MessageStorage:
    """The rows of the database. Rows that are malformed, and damage, are reported and left out.

    Raises: CorruptError for a database whose tables are not known, and where nothing takes a report; UnreadableError.
    """

    def __init__(self, folder: Path, descriptors: Descriptors | None = None) -> None:
        self.folder = folder
        self.database = Database(folder, descriptors)

    def indexed_to(self, on_damage: Report = _RAISE) -> int | None:
        """Return the physical offset of the last message in the index; None where nothing was ever indexed."""
        return self._number(INDEX, _LAST_OFFSET, on_damage)

    def transactions_to(self, on_damage: Report = _RAISE) -> int | None:
        """Return the offset of the last half message that was taken in; None without any."""
        return self._number(TRANSACTIONS, _LAST_OFFSET, on_damage)

    def scanned_to(self, on_damage: Report = _RAISE) -> int | None:
        """Return up to which offset the timer's topic was taken in; None where this timer never ran."""
        return self._number(TIMER, _SCANNED, on_damage)

    def delivered_to(self, on_damage: Report = _RAISE) -> int | None:
        """Return the time (ms) before which all is delivered; None before the first delivery."""
        return self._number(TIMER, _DELIVERED, on_damage)

    def _number(self, family: str, key: bytes, on_damage: Report) -> int | None:
        value = self.database.get(family, key, on_damage)
        if value is None or len(value) == _LONG:
            return None if value is None else int.from_bytes(value, "big", signed=True)
        on_damage(self._malformed(family, key))
        return None

    def has_index(self) -> bool:
        """Return whether keys of messages are in it: nothing else says that a broker keeps its index here."""
        return next(self.hours(lambda error: None), None) is not None

    def hours(self, on_damage: Report = _RAISE) -> Iterator[int]:
        """Yield the hours (ms) that have entries, in order."""
        begin, end = _ROWS
        while True:
            first = next(self.database.scan(INDEX, on_damage, begin, end), None)
            if first is None:
                return
            hour = int.from_bytes(first[0][:_LONG], "big")
            yield hour
            begin = (hour + 1).to_bytes(_LONG, "big")

    def find(
        self, topic: str, kind: str, key: str, begin: int, end: int, on_damage: Report = _RAISE
    ) -> Iterator[list[int]]:
        """Yield the physical offsets of messages with a key or unique key (`kind` OF_KEY) or with these tags (OF_TAG),
        stored between two times (ms): hour by hour and each the newest first.

        A key with an @ in it may bring in those of others, as for a broker: hold them against the message.
        """
        kinds = (OF_KEY, OF_UNIQUE_KEY) if kind == OF_KEY else (kind,)
        for hour in reversed([hour for hour in self.hours(on_damage) if begin - HOUR_MS < hour <= end]):
            found = {place for one in kinds for place in self._offsets(hour, topic, one, key, on_damage)}
            yield sorted(found, reverse=True)

    def has(self, topic: str, unique_key: str, physical_offset: int, store_timestamp: int) -> bool:
        """Return whether a message is in the index by its unique key. CorruptError."""
        hour = store_timestamp // HOUR_MS * HOUR_MS
        return physical_offset in self._offsets(hour, topic, OF_UNIQUE_KEY, unique_key, _RAISE)

    def _offsets(self, hour: int, topic: str, kind: str, key: str, on_damage: Report) -> list[int]:
        named = f"@{topic}@{kind}@{key}@".encode("utf-8", "surrogatepass")
        prefix = hour.to_bytes(_LONG, "big", signed=True) + named
        rows = self.database.scan(INDEX, on_damage, prefix, prefix[:-1] + bytes([prefix[-1] + 1]))
        return [int.from_bytes(name[-_LONG:], "big", signed=True) for name, _ in rows if len(name) >= len(prefix) + 8]

    def index_rows(self) -> Iterator[IndexRow]:
        """Yield all entries of the index, by hour and topic."""
        for key, value in self.database.scan(INDEX, _RAISE, *_ROWS):
            row = index_row(key, value)
            if row is None:
                _RAISE(self._malformed(INDEX, key))
            else:
                yield row

    def timers(self, begin: int = 0, on_damage: Report = _RAISE) -> Iterator[TimerRow]:
        """Yield the messages of the timer that are due at `begin` (ms) or later, as they are due. A broker leaves those
        that it has delivered for half an hour and more."""
        first = max(begin, 0).to_bytes(_LONG, "big")
        for key, value in self.database.scan(TIMER, on_damage, first, _ROWS[1]):
            row = timer_row(key, value)
            if row is None:
                on_damage(self._malformed(TIMER, key))
            else:
                yield row

    def checks_of(self, physical_offset: int) -> int | None:
        """Return how often the producers of a half message were asked; None where it is not in. CorruptError."""
        return next((one.checks for one in self.transactions(_RAISE, physical_offset, physical_offset + 1)), None)

    def transactions(self, on_damage: Report = _RAISE, begin: int = 0, end: int = 1 << 56) -> Iterator[TransactionRow]:
        """Yield the half messages without an end at physical offsets [begin, end), in the order of the commitlog."""
        keys = (offset.to_bytes(_LONG, "big") for offset in (begin, end))
        for key, value in self.database.scan(TRANSACTIONS, on_damage, *keys):
            row = transaction_row(key, value)
            if row is None:
                on_damage(self._malformed(TRANSACTIONS, key))
            else:
                yield row

    def _malformed(self, family: str, key: bytes) -> CorruptError:
        return CorruptError(f"an entry of {family} is malformed: key {key[:64].hex()}", file=self.folder)


def index_row(key: bytes, value: bytes) -> IndexRow | None:
    """Return the entry of these bytes (IndexRocksDBRecord); None for malformed ones."""
    if len(value) != _LONG or key[_LONG : _LONG + 1] != _AT or key[-_LONG - 1 : -_LONG] != _AT:
        return None
    parts = key[_LONG + 1 : -_LONG - 1].decode("utf-8", "replace").split("@")
    # a topic has no @, a key may
    if len(parts) < 3 or parts[1] not in (OF_KEY, OF_TAG, OF_UNIQUE_KEY) or (len(parts) < 4 and parts[1] != "U"):
        return None
    topic, kind, *named = parts
    middle, unique_key = ("", "@".join(named)) if kind == OF_UNIQUE_KEY else ("@".join(named[:-1]), named[-1])
    numbers = (int.from_bytes(part, "big", signed=True) for part in (key[-_LONG:], value))
    return IndexRow(int.from_bytes(key[:_LONG], "big"), topic, kind, middle, unique_key, *numbers)


def timer_row(key: bytes, value: bytes) -> TimerRow | None:
    """Return the message of these bytes (TimerRocksDBRecord); None for malformed ones."""
    if len(key) <= _LONG or len(value) != ROCKSDB_TIMER.size:
        return None
    out, unique_key = int.from_bytes(key[:_LONG], "big"), key[_LONG:].decode("utf-8", "replace")
    return TimerRow(out, unique_key, *ROCKSDB_TIMER.struct.unpack(value))


def transaction_row(key: bytes, value: bytes) -> TransactionRow | None:
    """Return the half message of these bytes (TransRocksDBRecord); None for malformed ones."""
    if key[_LONG : _LONG + 1] != _AT or len(value) != ROCKSDB_TRANSACTION.size:
        return None
    topic, _, unique_key = key[_LONG + 1 :].partition(_AT)
    names = topic.decode("utf-8", "replace"), unique_key.decode("utf-8", "replace")
    return TransactionRow(int.from_bytes(key[:_LONG], "big"), *names, *ROCKSDB_TRANSACTION.struct.unpack(value))


def row_fields(family: str, key: bytes, value: bytes) -> dict[str, int | str]:
    """Return what an entry of a family of the database says, by name; nothing for one that is malformed."""
    if family in (INDEX, TIMER, TRANSACTIONS) and key[:1].isalpha():
        number = int.from_bytes(value, "big", signed=True)
        return {key.decode("utf-8", "replace"): number} if len(value) == _LONG else {}
    parsed = {INDEX: index_row, TIMER: timer_row, TRANSACTIONS: transaction_row}.get(family)
    row = None if parsed is None else parsed(key, value)
    return {} if row is None else row._asdict()
