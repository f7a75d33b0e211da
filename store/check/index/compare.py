"""The keys of the log against the entries of the index files, both ways: a part of the log at a time, mergeable."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rmqctl.formats.hashing import key_hash, tag_key
from rmqctl.formats.properties import KEYS, TAGS, UNIQUE_KEY, split_keys
from rmqctl.store.check.index.index_files import EntryReader, FoundEntries, IndexSurvey
from rmqctl.store.columns.batch import Flags, Int32s, Int64s
from rmqctl.store.commitlog.one_message import message_if_any
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.survey.index_entries import time_differences
from rmqctl.store.survey.log_runs import Run

_SAMPLES = 8
_SECOND = 1000


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

    `missing`: keys without an entry that keys with an entry follow; `tail`: those that no such key follows.
    `foreign`: entries of places where a message stands that does not have the key. `repeated`: entries that are there
    once more, of messages all of whose entries are. `late`: entries with a wrong time; `first_late`: the same for the
    first entry of a file, where RocketMQ is known to count from the file before. `compared`: [begin, end) of the runs.
    `tags`: entries of tags that are there; `tagless`: messages that have a tag and all their other entries, but none of
    the tag, before the end of the index. No version before 5.4 writes these, so they may be missing.
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

    def passed(self, begin: int, end: int) -> None:
        """The messages of [begin, end) were compared."""
        if self.compared and self.compared[-1][1] == begin:
            self.compared[-1] = (self.compared[-1][0], end)
        else:
            self.compared.append((begin, end))


class IndexComparison:
    """Compares runs, in the log's order, with the files of a survey."""

    def __init__(self, survey: IndexSurvey, reader: EntryReader, log: MappedFileQueue) -> None:
        self.tally = IndexTally()
        self._reader = reader
        self._log = log
        self._last_offset = survey.last_offset
        self._begins = np.array([file.header.begin_timestamp for file in survey.files] or [0], np.int64)

    def take(self, run: Run) -> None:
        """The next run of the log."""
        tags = int(np.count_nonzero(run.key_is_tag))
        made = IndexTally(keys=len(run.key_hashes) - tags)
        made.passed(run.physical_offset, run.end)
        entries = self._reader.read(run.physical_offset, run.end)
        for with_tags in (True, False):
            hashes, offsets, timestamps = run.keys(with_tags=with_tags)
            if np.array_equal(entries.offsets, offsets) and np.array_equal(entries.hashes, hashes):
                if len(offsets):
                    made.last_matched = int(offsets[-1])
                self._compare_times(made, entries, timestamps)
                if with_tags:
                    made.tags = tags
                else:
                    self._note_tagless(made, run.key_offsets[run.key_is_tag], run.key_hashes[run.key_is_tag])
                break
        else:
            self._compare_sets(made, run, entries)
        self.tally.merge(made)

    def _note_tagless(self, made: IndexTally, offsets: Int64s, hashes: Int32s | Int64s) -> None:
        inside = offsets < self._last_offset
        made.tagless.note(offsets[inside], hashes[inside].astype(np.int64))

    def _compare_times(self, made: IndexTally, entries: FoundEntries, timestamps: Int64s) -> None:
        """`timestamps`: store times of the messages of the entries, ms."""
        expected = np.empty(len(timestamps), np.int64)
        for file in np.unique(entries.files).tolist():
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

    def _compare_sets(self, made: IndexTally, run: Run, entries: FoundEntries) -> None:
        base = run.physical_offset
        implied, places, which, written = np.unique(
            _codes(run.key_hashes, run.key_offsets, base), return_index=True, return_inverse=True, return_counts=True
        )
        # without those that only a tag gives
        needed = np.bincount(which[~run.key_is_tag], minlength=len(implied))
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
        if not (times > 1).any():
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
        message = message_if_any(self._log, offset)
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
