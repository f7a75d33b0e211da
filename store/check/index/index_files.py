"""Index files by themselves: header, slots and chains, and where the entries of a part of the log stand in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import INDEX_ENTRY
from rmqctl.store.columns.batch import Int32s, Int64s
from rmqctl.store.files.presence import is_file
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.geometry import LARGEST_FILE, infer_geometry
from rmqctl.store.index.index_file import DEFAULT_ENTRIES, DEFAULT_SLOTS, Geometry, IndexFile, IndexHeader
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.survey.index_entries import ENTRY, index_kernels

_WINDOW = 1 << 18
# a file with more stretches of rising offsets than this holds no entries but noise
_MOST_STRETCHES = 10_000


class EntryStretch(NamedTuple):
    """Entries [begin, end) of a file, whose physical offsets rise from `first_offset` to `last_offset`."""

    begin: int
    end: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class FileSurvey:
    """One index file. `entries`: how many can be read of those that the header counts.

    `wrong_slots`: slots that do not hold their newest entry; `wrong_links`: entries that lead on to another one than
    they should, `looping` of them to themselves or to a later one. `first_wrong`: place in the file of the first.
    `used_slots`: slots that have entries. `is_noise`: its entries cannot be compared with anything.
    """

    path: Path
    geometry: Geometry
    header: IndexHeader
    entries: int = 0
    wrong_slots: int = 0
    wrong_links: int = 0
    looping: int = 0
    first_wrong: int | None = None
    used_slots: int = 0
    stretches: list[EntryStretch] = field(default_factory=list)
    is_noise: bool = False
    last_time_difference: int = 0

    @property
    def counted(self) -> int:
        """Entries that the header counts."""
        return self.header.index_count - 1


@dataclass(slots=True)
class IndexSurvey:
    """All files, oldest first. `strangers`: paths that cannot be read as an index, and why."""

    files: list[FileSurvey] = field(default_factory=list)
    strangers: list[tuple[Path, str]] = field(default_factory=list)

    @property
    def last_offset(self) -> int:
        """The highest physical offset of any entry; -1 without entries."""
        return max((one.last_offset for file in self.files for one in file.stretches), default=-1)


def survey_index(
    service: IndexService, descriptors: Descriptors, *, is_live: bool = False, is_quick: bool = False
) -> IndexSurvey:
    """Look through all index files. `is_live`: the last one may grow meanwhile. `is_quick`: only at their ends."""
    survey = IndexSurvey()
    files, survey.strangers = readable_files(service, descriptors)
    for file in files:
        survey.files.append(survey_ends(file) if is_quick else survey_file(file, descriptors, is_live=is_live))
    return survey


def readable_files(service: IndexService, descriptors: Descriptors) -> tuple[list[IndexFile], list[tuple[Path, str]]]:
    """Files that can be looked into, oldest first, also where their header is damaged; and the others, with why."""
    files = {file.path: file for file in service.files if file.geometry.file_size <= LARGEST_FILE}
    too_large = [file.path for file in service.files if file.path not in files]
    strangers = [(path, "larger than any index file can be") for path in too_large]
    for path, problem in service.problems:
        file = _of_known_geometry(path, service, descriptors)
        if file is None or file.geometry.file_size > LARGEST_FILE:
            strangers.append((path, problem))
        else:
            files[path] = file
    return [files[path] for path in sorted(files, key=lambda path: path.name)], strangers


def _of_known_geometry(path: Path, service: IndexService, descriptors: Descriptors) -> IndexFile | None:
    """A file whose header or entries are too damaged to say its geometry: that of another file of its size."""
    if not (path.name.isdigit() and is_file(path)):
        return None
    size = path.stat().st_size
    known = [service.configured_geometry, *(file.geometry for file in service.files)]
    known.append(Geometry(DEFAULT_SLOTS, DEFAULT_ENTRIES))
    geometry = next((one for one in known if one is not None and one.file_size == size), None)
    geometry = geometry or infer_geometry(path, size, descriptors)
    if geometry is None:
        return None
    try:
        return IndexFile(path, geometry, descriptors)
    except CorruptError:
        return None


def survey_ends(file: IndexFile) -> FileSurvey:
    """The header, the first and the last entry; all between is taken on trust."""
    survey = FileSurvey(file.path, file.geometry, file.header)
    last = min(survey.counted, file.geometry.entries - 1)
    if last < 1:
        return survey
    data = file.read_entries(1, 1) + file.read_entries(last, 1)
    if len(data) == 2 * INDEX_ENTRY.size:
        ends = np.frombuffer(data, ENTRY)
        offsets = ends["physical_offset"].tolist()
        survey.stretches = [EntryStretch(1, last + 1, offsets[0], offsets[1])]
        survey.last_time_difference = int(ends["time_difference"][1])
        survey.entries = last
    return survey


def survey_file(file: IndexFile, descriptors: Descriptors, *, is_live: bool = False) -> FileSurvey:
    """Look through one file."""
    survey = FileSurvey(file.path, file.geometry, file.header)
    link_entries = index_kernels().link
    table: Int32s = np.zeros(file.geometry.slots, np.int32)
    last = min(survey.counted, file.geometry.entries - 1)
    for number in range(1, last + 1, _WINDOW):
        data = file.read_entries(number, min(_WINDOW, last + 1 - number))
        entries = np.frombuffer(data[: len(data) - len(data) % INDEX_ENTRY.size], ENTRY)
        if not len(entries):
            break
        hashes = entries["key_hash"].astype(np.int32)
        previous: Int32s = np.empty(len(entries), np.int32)
        survey.used_slots += link_entries(hashes, file.geometry.slots, table, number, previous)
        _note_links(survey, number, entries["previous_entry"].astype(np.int64), previous)
        _note_stretches(survey, number, entries["physical_offset"].astype(np.int64))
        survey.last_time_difference = int(entries["time_difference"][-1])
        survey.entries += len(entries)
        if number + len(entries) <= last and len(entries) < _WINDOW:
            break
    _note_slots(survey, file, table, descriptors, is_live)
    return survey


def _note_links(survey: FileSurvey, number: int, there: Int64s, expected: Int32s) -> None:
    wrong = there != expected
    if not wrong.any():
        return
    survey.wrong_links += int(np.count_nonzero(wrong))
    numbers = np.arange(number, number + len(there))
    survey.looping += int(np.count_nonzero(wrong & (there >= numbers)))
    if survey.first_wrong is None:
        survey.first_wrong = survey.geometry.entry_position(number + int(np.argmax(wrong)))


def _note_stretches(survey: FileSurvey, number: int, offsets: Int64s) -> None:
    falls = np.flatnonzero(offsets[1:] < offsets[:-1]) + 1
    if len(survey.stretches) + len(falls) > _MOST_STRETCHES:
        survey.is_noise = True
    if survey.is_noise:
        survey.stretches = []
        return
    edges = [0, *falls.tolist(), len(offsets)]
    for begin, end in itertools.pairwise(edges):
        made = EntryStretch(number + begin, number + end, int(offsets[begin]), int(offsets[end - 1]))
        before = survey.stretches[-1] if survey.stretches else None
        if before is not None and before.last_offset <= made.first_offset:
            survey.stretches[-1] = before._replace(end=made.end, last_offset=made.last_offset)
        else:
            survey.stretches.append(made)


def _note_slots(survey: FileSurvey, file: IndexFile, table: Int32s, descriptors: Descriptors, is_live: bool) -> None:
    for slot in range(0, len(table), _WINDOW):
        expected = table[slot : slot + _WINDOW]
        data = descriptors.read(file.path, file.geometry.slot_position(slot), 4 * len(expected))
        there = np.frombuffer(data.ljust(4 * len(expected), b"\0"), ">i4")
        wrong = there != expected
        if is_live and wrong.any():
            # entries that came since the header was read; the last one may stand there before it is counted
            ahead = file.read_header().index_count
            wrong &= ~((there > expected) & (there >= survey.header.index_count) & (there <= ahead))
        count = int(np.count_nonzero(wrong))
        if count and survey.first_wrong is None:
            survey.first_wrong = file.geometry.slot_position(slot + int(np.argmax(wrong)))
        survey.wrong_slots += count


class FoundEntries(NamedTuple):
    """Some entries: `files` and `numbers` say where they stand."""

    hashes: Int64s
    offsets: Int64s
    time_differences: Int64s
    files: Int64s
    numbers: Int64s


class EntryReader:
    """Finds the entries of a part of the log in the files of a survey."""

    def __init__(self, survey: IndexSurvey, descriptors: Descriptors) -> None:
        self._survey = survey
        self._descriptors = descriptors

    def read(self, begin: int, end: int) -> FoundEntries:
        """All entries of messages at physical offsets [begin, end), by offset and then as they stand in the files."""
        pieces: list[FoundEntries] = []
        for at, low, high in self._places(begin, end):
            file = self._survey.files[at]
            position = file.geometry.entry_position(low)
            data = self._descriptors.read(file.path, position, (high - low) * INDEX_ENTRY.size)
            found: NDArray[np.void] = np.frombuffer(data[: len(data) - len(data) % INDEX_ENTRY.size], ENTRY)
            pieces.append(
                FoundEntries(
                    found["key_hash"].astype(np.int64),
                    found["physical_offset"].astype(np.int64),
                    found["time_difference"].astype(np.int64),
                    np.full(len(found), at, np.int64),
                    np.arange(low, low + len(found), dtype=np.int64),
                )
            )
        if len(pieces) == 1:
            return pieces[0]
        if not pieces:
            return FoundEntries(*(np.empty(0, np.int64) for _ in FoundEntries._fields))
        joined = FoundEntries(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))
        order = np.argsort(joined.offsets, kind="stable")
        return FoundEntries(*(column[order] for column in joined))

    def count(self, begin: int, end: int) -> int:
        """How many there are."""
        return sum(high - low for _, low, high in self._places(begin, end))

    def first(self, begin: int, end: int) -> tuple[int, int]:
        """Physical offset and number of the file of the one with the lowest offset; there must be one."""
        lowest: list[tuple[int, int]] = []
        for at, low, _ in self._places(begin, end):
            file = self._survey.files[at]
            position = file.geometry.entry_position(low) + INDEX_ENTRY.offset("physical_offset")
            lowest.append((int.from_bytes(self._descriptors.read(file.path, position, 8), "big", signed=True), at))
        return min(lowest)

    def _places(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """File and [low, high) of the entries, stretch by stretch."""
        for at, file in enumerate(self._survey.files):
            for stretch in file.stretches:
                if stretch.first_offset >= end or stretch.last_offset < begin:
                    continue
                low, high = self._find(file, stretch, begin), self._find(file, stretch, end)
                if low < high:
                    yield at, low, high

    def _find(self, file: FileSurvey, stretch: EntryStretch, offset: int) -> int:
        """The first entry of the stretch at or behind a physical offset."""
        if offset <= stretch.first_offset:
            return stretch.begin
        if offset > stretch.last_offset:
            return stretch.end
        low, high = stretch.begin, stretch.end
        while low < high:
            middle = (low + high) // 2
            position = file.geometry.entry_position(middle) + INDEX_ENTRY.offset("physical_offset")
            found = int.from_bytes(self._descriptors.read(file.path, position, 8), "big", signed=True)
            if found < offset:
                low = middle + 1
            else:
                high = middle
        return low
