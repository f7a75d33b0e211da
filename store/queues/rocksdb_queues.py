"""Consume queues of a RocksDB (storeType=defaultRocksDB), read as if each were one file of 20-byte units.

Units are read from the database in pieces of consecutive slots when they are asked for, and a bounded number of pieces
is kept.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, ROCKSDB_QUEUE_END, ROCKSDB_QUEUE_UNIT
from rmqctl.store.files.layout import is_database
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.native.units import UnitSlots
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.rocksdb.database import Database

UNITS, ENDS = "default", "offset"
"""The column families: units of all queues, and where each queue ends (RocksDBConsumeQueueStore)."""
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
"""Its end entry holds where the last dispatched message ends, in 8 bytes."""
_SEPARATOR = b"\1"
_LAST, _FIRST = b"max", b"min"
_SLOTS_OF_A_PIECE = 1 << 13
_MOST_PIECES = 96
# who reads more at a time reads a queue through, and nothing of it again
_MOST_KEPT = 4 * _SLOTS_OF_A_PIECE
# so few slots are read alone, some times: a sample of a queue does not read all of it
_FEW_SLOTS = 16
_TIMES_ALONE = 8
_MOST_COUNTED = 1 << 14
_UNIT = CONSUMEQUEUE_UNIT.size


class QueueEnd(NamedTuple):
    """A queue of the database. `physical_offset`: of its last message; `end`: the queue offset after its last unit."""

    topic: str
    queue_id: int
    physical_offset: int
    end: int


def _queue_key(topic: str, queue_id: int) -> bytes:
    """Return what the keys of a queue's units begin with (RocksDBConsumeQueueTable#buildCQUnitCommonKey)."""
    return _topic_key(topic) + queue_id.to_bytes(4, "big", signed=True) + _SEPARATOR


def _end_key(topic: str, which: bytes, queue_id: int) -> bytes:
    """Return the key of the last or the first unit of a queue in ENDS (RocksDBConsumeQueueOffsetTable)."""
    return _topic_key(topic) + which + _SEPARATOR + queue_id.to_bytes(4, "big", signed=True)


def _topic_key(topic: str) -> bytes:
    name = topic.encode("utf-8")
    return len(name).to_bytes(4, "big") + _SEPARATOR + name + _SEPARATOR


class RocksdbQueues:
    """The queues of one database. Damage that could hide units is raised: CorruptError."""

    def __init__(self, folder: Path, file_size: int | None) -> None:
        self.folder = folder
        self._file_size = file_size
        self._database = Database(folder)
        self._pieces: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._read_alone: Counter[tuple[str, int, int]] = Counter()
        self._lock = threading.RLock()

    def look_again(self) -> None:
        """Take in what a broker wrote meanwhile."""
        with self._lock:
            self._database = Database(self.folder)
            self._pieces.clear()
            self._read_alone.clear()
            self.__dict__.pop("most_units", None)

    def ends(self) -> list[QueueEnd]:
        """Return every queue with the end that its entry names. CorruptError for an entry that is malformed."""
        with self._lock:
            return list(self._ends())

    def _ends(self) -> Iterator[QueueEnd]:
        for key, value in self._database.scan(ENDS):
            length = int.from_bytes(key[:4], "big")
            name, rest = key[5 : 5 + length], key[5 + length :]
            if name.decode("utf-8", "replace") == CHECKPOINT_TOPIC or not rest.startswith(_SEPARATOR + _LAST):
                continue
            if len(rest) != 9 or len(value) != ROCKSDB_QUEUE_END.size:
                raise CorruptError(f"end of a queue has the malformed key {key.hex()}", file=self.folder)
            physical_offset, last = ROCKSDB_QUEUE_END.unpack_from(value, 0)
            queue_id = int.from_bytes(rest[5:], "big", signed=True)
            try:
                yield QueueEnd(name.decode("utf-8"), queue_id, physical_offset, last + 1)
            except UnicodeDecodeError:
                raise CorruptError(f"topic of key {key.hex()} is not UTF-8", file=self.folder) from None

    def is_damaged(self) -> bool:
        """Return whether anything of the database is damaged. Reads all of it, once."""
        with self._lock:
            return bool(self._database.damage)

    def dispatched_to(self) -> int:
        """Return where the last message ends whose unit is in the database; 0 for an empty database."""
        with self._lock:
            value = self._database.get(ENDS, _end_key(CHECKPOINT_TOPIC, _LAST, 0))
        return int.from_bytes(value[:8], "big", signed=True) if value is not None else 0

    def first_slot(self, topic: str, queue_id: int) -> int | None:
        """Return the queue offset of the first unit; None for a queue without units."""
        prefix = _queue_key(topic, queue_id)
        with self._lock:
            for key, _ in self._database.scan(UNITS, begin=prefix, end=prefix + b"\x80"):
                return int.from_bytes(key[len(prefix) :], "big", signed=True)
        return None

    def begun_at(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset by the queue's entry of it; 0 without one.

        Of two kinds of queues, the one in RocksDB begins again where the files end if it was not complete
        (RocksDBConsumeQueue#initializeWithOffset).
        """
        with self._lock:
            value = self._database.get(ENDS, _end_key(topic, _FIRST, queue_id))
        return int.from_bytes(value[8:16], "big", signed=True) if value is not None else 0

    @cached_property
    def most_units(self) -> int:
        """How many units a queue may have: no more than there are entries. CorruptError."""
        return self._database.entry_count(UNITS)

    def queue(self, end: QueueEnd) -> RocksdbConsumeQueue:
        """Return the queue that ends there, with the interface of one in files."""
        return RocksdbConsumeQueue(self, end, self._file_size)

    def read_units(self, topic: str, queue_id: int, first: int, count: int) -> bytes:
        """Return 20-byte units of the slots [first, first + count); zeros for slots without a unit."""
        if count > _MOST_KEPT:
            with self._lock:
                return self._units(topic, queue_id, first, count)
        parts = []
        slot, stop = first, first + count
        while slot < stop:
            piece, at = divmod(slot, _SLOTS_OF_A_PIECE)
            taken = min(stop - slot, _SLOTS_OF_A_PIECE - at)
            parts.append(self._units_within(topic, queue_id, piece, at, taken))
            slot += taken
        return b"".join(parts)

    def _units_within(self, topic: str, queue_id: int, piece: int, at: int, count: int) -> bytes:
        key, first = (topic, queue_id, piece), piece * _SLOTS_OF_A_PIECE
        with self._lock:
            if key in self._pieces:
                self._pieces.move_to_end(key)
            elif count <= _FEW_SLOTS and self._read_alone[key] < _TIMES_ALONE:
                if len(self._read_alone) >= _MOST_COUNTED:
                    self._read_alone.clear()
                self._read_alone[key] += 1
                return self._units(topic, queue_id, first + at, count)
            else:
                self._pieces[key] = self._units(topic, queue_id, first, _SLOTS_OF_A_PIECE)
                if len(self._pieces) > _MOST_PIECES:
                    self._pieces.popitem(last=False)
            return self._pieces[key][at * _UNIT : (at + count) * _UNIT]

    def _units(self, topic: str, queue_id: int, first: int, count: int) -> bytes:
        prefix = _queue_key(topic, queue_id)
        begin, end = (prefix + slot.to_bytes(8, "big") for slot in (first, first + count))
        units = bytearray(count * _UNIT)
        blocks = self._database.blocks(UNITS, begin, end)
        if blocks is not None:
            slots = UnitSlots(prefix, first, units)
            if all(slots.place(block, stop) for block, stop in blocks):
                return bytes(units)
            units = bytearray(count * _UNIT)
        for unit_key, value in self._database.scan(UNITS, begin=begin, end=end):
            if len(unit_key) != len(prefix) + 8 or len(value) != ROCKSDB_QUEUE_UNIT.size:
                raise CorruptError(f"unit of {topic} queue {queue_id} has a malformed entry", file=self.folder)
            place = (int.from_bytes(unit_key[len(prefix) :], "big") - first) * _UNIT
            # the same fields in the same order, with the store time after them
            units[place : place + _UNIT] = value[:_UNIT]
        return bytes(units)


class RocksdbConsumeQueue(ConsumeQueue):
    """A queue of a database, with one file that is not there: `directory` and its path are the database's folder."""

    kind = "RocksDBCQ"

    def __init__(self, queues: RocksdbQueues, end: QueueEnd, file_size: int | None) -> None:
        self._queues = queues
        self._queue_end = end
        self._reader = _UnitReader(queues, end.topic, end.queue_id)
        super().__init__(end.topic, end.queue_id, queues.folder, file_size, self._reader)
        self.load()

    def load(self) -> None:
        """Find the first slot. CorruptError."""
        end = self._queue_end
        first = self._queues.first_slot(end.topic, end.queue_id)
        self._reader.first = first if first is not None else end.end
        if end.end - self._reader.first > self._queues.most_units:
            raise CorruptError(
                f"{end.topic} queue {end.queue_id} has units from {self._reader.first} to {end.end} by its end, and "
                f"the database {self._queues.most_units} entries in all",
                file=self.directory,
            )
        self.files = _OneFile(self.directory, self._reader.first, end.end, self._reader)

    def look_again(self) -> None:
        """Take in units that a broker added; the table has opened the database again."""
        for end in self._queues.ends():
            if (end.topic, end.queue_id) == (self.topic, self.queue_id):
                self._queue_end = end
        self.load()
        super().look_again()

    def _find_end(self) -> int:
        return self._queue_end.end

    @property
    def first_slot(self) -> int:
        """Queue offset of the first unit; the end without units."""
        return self._reader.first


class _OneFile(MappedFileQueue):
    """The slots [first, end) of a queue as one file, which no other process changes."""

    def __init__(self, folder: Path, first: int, end: int, reader: Descriptors) -> None:
        super().__init__([folder], None, reader)
        self.is_shared = False
        if first < end:
            self.file_size = (end - first) * _UNIT
            self.files = [MappedFile(folder, first * _UNIT, self.file_size, reader)]

    def look_again(self) -> None:
        """Nothing: the queue makes a new one."""


class _UnitReader(Descriptors):
    """Reads the units of one queue; `path` is that of the database, positions are those in the queue's one file."""

    def __init__(self, queues: RocksdbQueues, topic: str, queue_id: int) -> None:
        super().__init__(1)
        self._queues = queues
        self._topic = topic
        self._queue_id = queue_id
        self.first = 0

    def read(self, path: Path, position: int, length: int) -> bytes:
        """Return `length` bytes of units. CorruptError, UnreadableError."""
        slot, skipped = divmod(position, _UNIT)
        stop = -(-(position + length) // _UNIT)
        data = self._queues.read_units(self._topic, self._queue_id, self.first + slot, stop - slot)
        return data[skipped : skipped + length]

    def pin(self, path: Path) -> bool:
        """Nothing is to be kept open."""
        return True

    def unpin(self, path: Path) -> None:
        """Nothing was kept open."""


class StoredQueues(NamedTuple):
    """Queues in a RocksDB before a start, empty without one. `ends`: queue offsets after the last units, by topic and
    queue; `reached`: where the last message with a unit ends, 0 without."""

    database: RocksdbQueues | None = None
    ends: Mapping[tuple[str, int], int] = {}
    reached: int = 0


def stored_queues(folder: Path) -> StoredQueues:
    """Return the queues in the RocksDB of a folder. CorruptError for a damaged one."""
    if not is_database(folder):
        return StoredQueues()
    queues = RocksdbQueues(folder, None)
    ends = {(one.topic, one.queue_id): one.end for one in queues.ends()}
    return StoredQueues(queues, ends, max(queues.dispatched_to(), 0))
