"""The keys of the log against the entries of the index files, both ways: a part of the log at a time, mergeable."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.checksums import key_hash, tag_key
from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import INDEX_ENTRY
from rmqctl.formats.properties import KEYS, TAGS, UNIQUE_KEY, split_keys
from rmqctl.store.compare.lives import slots_of
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors, is_file
from rmqctl.store.index.index_file import (
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    LARGEST_FILE,
    Geometry,
    IndexFile,
    IndexHeader,
    infer_geometry,
)
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.log.columns import Flags, Int32s, Int64s, distinct
from rmqctl.store.log.implied import ENTRY, Run, time_differences
from rmqctl.store.log.walk import message_if_any
from rmqctl.store.native.units import link_entries

# Index files by themselves: header, slots and chains, and where the entries of a part of the log stand in them.

_WINDOW = 1 << 18
_NEAR = 512
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

    @property
    def is_sound(self) -> bool:
        """Whether all entries are there, and slots and chains are those that they imply."""
        return not (self.wrong_slots or self.wrong_links or self.is_noise) and self.entries == self.counted


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
        self._last: dict[tuple[int, int], tuple[int, int]] = {}

    def read(self, begin: int, end: int) -> FoundEntries:
        """All entries of messages at physical offsets [begin, end), by offset and then as they stand in the files."""
        pieces = [self._entries(*place) for place in self._places(begin, end)]
        if len(pieces) == 1:
            return pieces[0]
        if not pieces:
            return FoundEntries(*(np.empty(0, np.int64) for _ in FoundEntries._fields))
        joined = FoundEntries(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))
        order = np.argsort(joined.offsets, kind="stable")
        return FoundEntries(*(column[order] for column in joined))

    def offsets(self, begin: int, end: int) -> Iterator[Int64s]:
        """The physical offsets of the same entries, some at a time."""
        for at, low, high in self._places(begin, end):
            for first in range(low, high, _WINDOW):
                yield self._entries(at, first, min(high, first + _WINDOW)).offsets

    def _entries(self, at: int, low: int, high: int) -> FoundEntries:
        found = self._stored(at, low, high)
        return FoundEntries(
            found["key_hash"].astype(np.int64),
            found["physical_offset"].astype(np.int64),
            found["time_difference"].astype(np.int64),
            np.full(len(found), at, np.int64),
            np.arange(low, low + len(found), dtype=np.int64),
        )

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
                low, high = self._find(at, stretch, begin), self._find(at, stretch, end)
                if low < high:
                    yield at, low, high

    def _find(self, at: int, stretch: EntryStretch, offset: int) -> int:
        """The first entry of the stretch at or behind a physical offset."""
        if offset <= stretch.first_offset:
            return stretch.begin
        if offset > stretch.last_offset:
            return stretch.end
        before, low = self._last.get((at, stretch.begin), (stretch.first_offset, stretch.begin))
        high = stretch.end
        if before == offset:
            return low
        if before > offset:
            low = stretch.begin
        else:
            # parts of the log are asked for in order: the next one begins where the last one ended
            near = self._stored(at, low, min(high, low + _NEAR))["physical_offset"].astype(np.int64)
            low += int(np.searchsorted(near, offset))
            if len(near) and near[-1] >= offset:
                high = low
        while low < high:
            middle = (low + high) // 2
            found = self._stored(at, middle, middle + 1)["physical_offset"]
            if not len(found) or found[0] < offset:
                low = middle + 1
            else:
                high = middle
        self._last[at, stretch.begin] = offset, low
        return low

    def _stored(self, at: int, low: int, high: int) -> NDArray[np.void]:
        """Entries [low, high) of a file; fewer where it is cut short."""
        file = self._survey.files[at]
        data = self._descriptors.read(file.path, file.geometry.entry_position(low), (high - low) * INDEX_ENTRY.size)
        return np.frombuffer(data, ENTRY, len(data) // INDEX_ENTRY.size)


_SAMPLES = 8
NEVER = 1 << 62
"""A physical offset behind every log."""


@dataclass(slots=True)
class Misses:
    """Keys or entries of one kind in the order of the log.

    `samples`: the first few as (physical offset, key hash, file, number of the entry, expected, found), -1 for what
    does not apply.
    """

    count: int = 0
    first_offset: int = -1
    last_offset: int = -1
    messages: int = 0
    samples: list[tuple[int, ...]] = field(default_factory=list)

    def note(self, offsets: Int64s, *columns: Int64s) -> None:
        """The next ones; `columns`: what a sample has besides the offset."""
        if not len(offsets):
            return
        # keys of one message follow one another
        is_new = np.ones(len(offsets), np.bool_)
        is_new[1:] = offsets[1:] != offsets[:-1]
        is_new[0] = int(offsets[0]) != self.last_offset
        self.messages += int(np.count_nonzero(is_new))
        if not self.count:
            self.first_offset = int(offsets[0])
        self.count += len(offsets)
        self.last_offset = int(offsets[-1])
        for number in range(min(_SAMPLES - len(self.samples), len(offsets))):
            self.samples.append((int(offsets[number]), *(int(column[number]) for column in columns)))

    def merge(self, later: Misses) -> None:
        """Those of the part of the log that follows."""
        if not later.count:
            return
        self.messages += later.messages - (self.count > 0 and later.first_offset == self.last_offset)
        if not self.count:
            self.first_offset = later.first_offset
        self.count += later.count
        self.last_offset = later.last_offset
        self.samples = [*self.samples, *later.samples][:_SAMPLES]


@dataclass(slots=True)
class IndexTally:
    """What the comparison of a part of the log has found.

    `missing`: keys without an entry that keys with an entry follow; `tail`: those that no such key follows. `foreign`:
    entries that point at a message without the key. `repeated`: entries that are there once more, of messages all of
    whose entries are. `late`: entries with a wrong time; `first_late`: the same for the first entry of a file, where
    RocketMQ is known to count from the file before. `compared`: [begin, end) of the runs. `tags`: entries of tags that
    are there; `tagless`: messages that have a tag and all their other entries, but none of the tag, before the end of
    the index. No version before 5.4 writes these, so they may be missing.
    """

    keys: int = 0
    last_matched: int = -1
    missing: Misses = field(default_factory=Misses)
    tail: Misses = field(default_factory=Misses)
    foreign: Misses = field(default_factory=Misses)
    repeated: Misses = field(default_factory=Misses)
    late: Misses = field(default_factory=Misses)
    first_late: Misses = field(default_factory=Misses)
    tags: int = 0
    tagless: Misses = field(default_factory=Misses)
    compared: list[tuple[int, int]] = field(default_factory=list)

    def merge(self, later: IndexTally) -> None:
        """Add the part of the log that follows."""
        self.keys += later.keys
        self.tags += later.tags
        if later.last_matched >= 0:
            self.missing.merge(self.tail)
            self.missing.merge(later.missing)
            self.tail = later.tail
            self.last_matched = later.last_matched
        else:
            self.tail.merge(later.tail)
        for name in ("foreign", "repeated", "late", "first_late", "tagless"):
            getattr(self, name).merge(getattr(later, name))
        for begin, end in later.compared:
            self.passed(begin, end)

    @property
    def is_same(self) -> bool:
        """Whether every key has its entry, and every entry its message and the time of that. Entries that are there
        more than once are no fault: RocketMQ repeats them."""
        return not (self.missing.count or self.tail.count or self.foreign.count or self.late.count)

    def passed(self, begin: int, end: int) -> None:
        """The messages of [begin, end) were compared."""
        if self.compared and self.compared[-1][1] == begin:
            self.compared[-1] = (self.compared[-1][0], end)
        else:
            self.compared.append((begin, end))


class IndexComparison:
    """Compares runs, in the log's order, with the files of a survey.

    `log`: to look closely at repeated entries; None where these do not matter. `tags_from`: messages from this physical
    offset on must have the entries of their tags; those before may be without.
    """

    def __init__(
        self, survey: IndexSurvey, reader: EntryReader, log: MappedFileQueue | None, tags_from: int = NEVER
    ) -> None:
        self.tally = IndexTally()
        self._reader = reader
        self._log = log
        self._tags_from = tags_from
        self._last_offset = survey.last_offset
        self._begins = np.array([file.header.begin_timestamp for file in survey.files] or [0], np.int64)

    def take(self, run: Run) -> None:
        """The next run of the log."""
        may_lack: Flags = run.key_is_tag & (run.key_offsets < self._tags_from)
        tags = int(np.count_nonzero(may_lack))
        made = IndexTally(keys=len(run.key_hashes) - tags)
        made.passed(run.physical_offset, run.end)
        entries = self._reader.read(run.physical_offset, run.end)
        for chosen in (slice(None), ~may_lack) if tags else (slice(None),):
            offsets = run.key_offsets[chosen]
            if np.array_equal(entries.offsets, offsets) and np.array_equal(entries.hashes, run.key_hashes[chosen]):
                if len(offsets):
                    made.last_matched = int(offsets[-1])
                self._compare_times(made, entries, run.key_timestamps[chosen])
                if len(offsets) == len(run.key_offsets):
                    made.tags = tags
                else:
                    self._note_tagless(made, run.key_offsets[may_lack], run.key_hashes[may_lack])
                break
        else:
            self._compare_sets(made, run, entries, may_lack)
        self.tally.merge(made)

    def elsewhere(self) -> Iterator[Int64s]:
        """Physical offsets of the entries that lead to none of the messages that were compared, some at a time."""
        for begin, end in slots_of(self.tally.compared).gaps(-1 << 63, 1 << 63):
            yield from self._reader.offsets(begin, end)

    def _note_tagless(self, made: IndexTally, offsets: Int64s, hashes: Int32s | Int64s) -> None:
        inside = offsets < self._last_offset
        made.tagless.note(offsets[inside], hashes[inside].astype(np.int64))

    def _compare_times(self, made: IndexTally, entries: FoundEntries, timestamps: Int64s) -> None:
        """`timestamps`: store times of the messages of the entries, ms."""
        expected = np.empty(len(timestamps), np.int64)
        for file in distinct(entries.files).tolist():
            chosen = entries.files == file
            expected[chosen] = time_differences(timestamps[chosen], int(self._begins[file]))
        wrong = expected != entries.time_differences
        if not wrong.any():
            return
        is_first = (entries.numbers == 1) & (entries.files > 0)
        for misses, chosen in ((made.late, wrong & ~is_first), (made.first_late, wrong & is_first)):
            picked = FoundEntries(*(column[chosen] for column in entries))
            misses.note(
                picked.offsets, picked.hashes, picked.files, picked.numbers, expected[chosen], picked.time_differences
            )

    def _compare_sets(self, made: IndexTally, run: Run, entries: FoundEntries, may_lack: Flags) -> None:
        base = run.physical_offset
        implied, places, which, written = np.unique(
            _codes(run.key_hashes, run.key_offsets, base), return_index=True, return_inverse=True, return_counts=True
        )
        # without those that only a tag gives
        needed = np.bincount(which[~may_lack], minlength=len(implied))
        there = _codes(entries.hashes, entries.offsets, base)
        found, counts = np.unique(there, return_counts=True)
        have = np.zeros(len(implied), np.int64)
        at = np.searchsorted(implied, found)
        known = at < len(implied)
        known[known] = implied[at[known]] == found[known]
        have[at[known]] = counts[known]
        offsets = run.key_offsets[places]
        hashes = run.key_hashes[places].astype(np.int64)
        lacks = have < needed
        self._note_missing(made, offsets, hashes, lacks, have > 0)
        is_tag = needed == 0
        made.tags = int(np.count_nonzero(is_tag & (have > 0)))
        is_tagless = is_tag & (have == 0)
        reported = np.isin(offsets, offsets[lacks])
        self._note_tagless(made, offsets[is_tagless & ~reported], hashes[is_tagless & ~reported])
        # an older broker that dispatched a message again did so without its tag
        times = have // written
        counts = ~is_tag | (times > 1)
        self._note_repeated(made, offsets[counts], hashes[counts], times[counts])
        position = np.searchsorted(implied, there)
        is_known = position < len(implied)
        is_known[is_known] = implied[position[is_known]] == there[is_known]
        foreign = ~is_known
        made.foreign.note(
            *(column[foreign] for column in (entries.offsets, entries.hashes, entries.files, entries.numbers))
        )
        matching = FoundEntries(*(column[is_known] for column in entries))
        self._compare_times(made, matching, run.key_timestamps[places[position[is_known]]])

    @staticmethod
    def _note_missing(made: IndexTally, offsets: Int64s, hashes: Int64s, lacks: Flags, has: Flags) -> None:
        made.last_matched = int(offsets[has][-1]) if has.any() else -1
        # the last message that dispatch came to may have some of its keys only
        inside = offsets < made.last_matched
        made.missing.note(offsets[lacks & inside], hashes[lacks & inside])
        made.tail.note(offsets[lacks & ~inside], hashes[lacks & ~inside])

    def _note_repeated(self, made: IndexTally, offsets: Int64s, hashes: Int64s, times: Int64s) -> None:
        """A message that was dispatched twice has all of its entries twice; one with the same key twice does not."""
        if self._log is None or not (times > 1).any():
            return
        edges = np.flatnonzero(np.append(True, offsets[1:] != offsets[:-1]))
        fewest = np.minimum.reduceat(times, edges)
        keys = np.diff(np.append(edges, len(offsets)))
        for place, least, count in zip(edges.tolist(), fewest.tolist(), keys.tolist(), strict=True):
            if least > 1 and (count > 1 or self._written(int(offsets[place]), int(hashes[place])) < least):
                chosen = slice(place, place + count)
                made.repeated.note(offsets[chosen], hashes[chosen])

    def _written(self, offset: int, wanted: int) -> int:
        """How often a message itself gives a key."""
        message = None if self._log is None else message_if_any(self._log, offset)
        if message is None:
            return 0
        properties = message.properties()
        keys = [properties[UNIQUE_KEY]] if UNIQUE_KEY in properties else []
        keys += split_keys(properties.get(KEYS))
        keys += [tag_key(properties[TAGS])] if TAGS in properties else []
        return sum(key_hash(message.topic, key) == wanted for key in keys)


def _codes(hashes: Int32s | Int64s, offsets: Int64s, base: int) -> Int64s:
    """Pairs of offset and hash as numbers in the order of the offsets. A run is of one file, so shorter than 2 GiB."""
    codes: Int64s = (offsets - base << 32) | hashes.astype(np.uint32).astype(np.int64)
    return codes
