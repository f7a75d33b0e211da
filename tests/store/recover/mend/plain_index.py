"""The key index against what the log implies, said plainly: what `IndexRecovery` must agree with."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.formats.checksums import key_hash
from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import INDEX_ENTRY, INDEX_HEADER
from rmqctl.formats.message import StoredMessage
from rmqctl.store.files import io
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import Geometry, IndexFile
from rmqctl.store.index.index_service import IndexService, index_file_name_after
from rmqctl.store.queues.dispatch import index_keys

if TYPE_CHECKING:
    import numpy

_SLOT_TYPE = ">i4"


class IndexMend:
    """Collects the keys that messages imply. Memory: 20 bytes a key."""

    def __init__(self, service: IndexService, descriptors: Descriptors) -> None:
        self._service = service
        self._descriptors = descriptors
        self._hashes = array("i")
        self._offsets = array("q")
        self._timestamps = array("q")

    def add(self, message: StoredMessage) -> None:
        """The log holds `message`."""
        for key in index_keys(message):
            self._hashes.append(key_hash(message.topic, key))
            self._offsets.append(message.physical_offset)
            self._timestamps.append(message.store_timestamp)

    def is_intact(self, is_gone: Callable[[int], bool]) -> bool:
        """Whether the files hold exactly the implied entries, reachable by their slots.

        A repeated entry is no fault (RocketMQ repeats keys), nor is one of a message that is gone.
        """
        import numpy

        if self._service.problems:
            return False
        pieces = []
        try:
            for file in self._service.files:
                entries = _entries(file)
                if not _is_sound(file, entries, self._descriptors):
                    return False
                if not self._has_times(file, entries.tolist(), is_gone):
                    return False
                pieces.append(entries)
        except CorruptError:
            return False
        found = [(int(offset), int(hashed)) for piece in pieces for hashed, offset, *_ in piece.tolist()]
        kept = numpy.array([entry for entry in found if not is_gone(entry[0])], dtype=numpy.int64).reshape(-1, 2)
        wanted = numpy.column_stack(
            [numpy.array(self._offsets, dtype=numpy.int64), numpy.array(self._hashes, dtype=numpy.int64)]
        )
        return bool(numpy.array_equal(_distinct(kept), _distinct(wanted)))

    def _has_times(self, file: IndexFile, entries: list[Any], is_gone: Callable[[int], bool]) -> bool:
        """Whether entries of messages that are there say how many seconds those came after the file's begin; the first
        one of a further file counts from the end of the file before."""
        times = dict(zip(self._offsets, self._timestamps, strict=True))
        begin = file.header.begin_timestamp
        counted = entries if file is self._service.files[0] else entries[1:]
        for _, offset, difference, *_ in counted:
            if is_gone(offset) or offset not in times:
                continue
            expected = max(times[offset] - begin, 0) // 1000 if begin > 0 else 0
            if difference != min(expected, 0x7FFFFFFF):
                return False
        return True

    def stage(self, directory: Path, geometry: Geometry) -> list[Path]:
        """Write complete index files to `directory`; returns them in order."""
        made: list[Path] = []
        name = ""
        for begin in range(0, len(self._hashes), geometry.entries - 1):
            end = min(len(self._hashes), begin + geometry.entries - 1)
            name = index_file_name_after(self._timestamps[begin], name)
            self._write_file(directory / name, geometry, begin, end)
            made.append(directory / name)
        return made

    def file_count(self, geometry: Geometry) -> int:
        """Index files that the implied entries fill."""
        return -(-len(self._hashes) // (geometry.entries - 1))

    def full_file_end_timestamp(self, geometry: Geometry) -> int:
        """Store time of the last entry of the last full file, 0 if none is full (checkpoint index_msg_timestamp)."""
        full = len(self._hashes) // (geometry.entries - 1)
        return self._timestamps[full * (geometry.entries - 1) - 1] if full else 0

    def _write_file(self, path: Path, geometry: Geometry, begin: int, end: int) -> None:
        """One file with the entries [begin, end), byte for byte as RocketMQ would put them one by one."""
        io.create_file(path, geometry.file_size)
        slots: dict[int, int] = {}
        first = self._timestamps[begin]
        entries = bytearray()
        for number, place in enumerate(range(begin, end), start=1):
            slot = self._hashes[place] % geometry.slots
            difference = min(max(0, (self._timestamps[place] - first) // 1000), 0x7FFFFFFF) if first > 0 else 0
            entries += INDEX_ENTRY.struct.pack(
                self._hashes[place], self._offsets[place], difference, slots.get(slot, 0)
            )
            slots[slot] = number
        header = INDEX_HEADER.struct.pack(
            first, self._timestamps[end - 1], self._offsets[begin], self._offsets[end - 1], len(slots), end - begin + 1
        )
        io.write_range(path, geometry.entry_position(1), entries)
        io.write_range(path, geometry.slot_position(0), _slot_table(slots, geometry))
        io.write_range(path, 0, header)


def _slot_table(slots: dict[int, int], geometry: Geometry) -> bytes:
    import numpy

    table = numpy.zeros(geometry.slots, dtype=_SLOT_TYPE)
    if slots:
        table[numpy.fromiter(slots.keys(), dtype=numpy.int64)] = numpy.fromiter(slots.values(), dtype=numpy.int64)
    return table.tobytes()


def _entries(file: IndexFile) -> numpy.ndarray[tuple[int], numpy.dtype[numpy.void]]:
    import numpy

    count = file.header.index_count - 1
    data = file.read_entries(1, count)
    if len(data) < count * INDEX_ENTRY.size:
        raise CorruptError("index entries lie behind the end of the file", file=file.path)
    return numpy.frombuffer(data, dtype=INDEX_ENTRY.dtype())


class _Expected(NamedTuple):
    """Slot table and previous numbers that follow from the entries alone."""

    table: bytes
    previous: list[int]
    used: int


def _expected(file: IndexFile, hashes: list[int]) -> _Expected:
    slots: dict[int, int] = {}
    previous: list[int] = []
    for number, hashed in enumerate(hashes, start=1):
        slot = hashed % file.geometry.slots
        previous.append(slots.get(slot, 0))
        slots[slot] = number
    return _Expected(_slot_table(slots, file.geometry), previous, len(slots))


def _is_sound(
    file: IndexFile, entries: numpy.ndarray[tuple[int], numpy.dtype[numpy.void]], descriptors: Descriptors
) -> bool:
    """Whether slots and chains are exactly those that the entries imply."""
    expected = _expected(file, entries["key_hash"].tolist())
    table = descriptors.read(file.path, file.geometry.slot_position(0), len(expected.table))
    return table == expected.table and entries["previous_entry"].tolist() == expected.previous


def _distinct(
    pairs: numpy.ndarray[tuple[int, int], numpy.dtype[numpy.int64]],
) -> numpy.ndarray[tuple[int, int], numpy.dtype[numpy.int64]]:
    """Rows sorted, each once."""
    import numpy

    if not len(pairs):
        return pairs
    ordered = pairs[numpy.lexsort((pairs[:, 1], pairs[:, 0]))]
    keep = numpy.ones(len(ordered), dtype=bool)
    keep[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    result: numpy.ndarray[tuple[int, int], numpy.dtype[numpy.int64]] = ordered[keep]
    return result
