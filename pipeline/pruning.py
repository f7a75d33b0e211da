"""Leaves out splits of the log that a query cannot want: by physical offset always, by store time where that is safe.

A split says nothing about the times in it but by its messages, and reading all of them is what is to be saved. The
broker stamps messages with its clock while it holds the lock that orders them, so times rise, except where that clock
was set back. What is relied on is this alone: that it was never set back by more than the `clock_tolerance`. Then a
message is no older than the first one of its split less the tolerance, and no younger than the first one of the next
split plus the tolerance. Where the first messages of the splits show that it was set back further, nothing is left out
by time, and neither where no split would be left: who asks for times that the log does not seem to have looks for odd
ones. Only a clock that went wrong by more than the tolerance and was put right again inside of one split is missed;
`clock_tolerance` none reads everything.

Of what is left, the key index says for most messages when they were stored (`splits.indexed`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rmqctl.formats.checksums import key_hash
from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.layouts import FRAME_HEADS, INDEX_ENTRY, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.formats.message import is_possible_time
from rmqctl.pipeline.splits import Split
from rmqctl.pipeline.wanted import Range, Wanted
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.index.index_file import IndexFile
from rmqctl.store.log.columns import Flags, Int32s, Int64s
from rmqctl.store.log.resync import LOOK_BACK
from rmqctl.store.queues.dispatch import index_keys
from rmqctl.store.read.filter import known_topics
from rmqctl.store.read.frames import message_at, store_time_at
from rmqctl.store.read.query import QueryResult, chain_entries, entry_message
from rmqctl.store.store_files import StoreFiles

_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2))
_MAGIC_AT = FRAME_HEADS[0].offset("magic_code")
_OFFSET_AT = FRAME_HEADS[0].offset("physical_offset")
_HEAD = FRAME_HEADS[3].size
_FIRST_WINDOW = 4096
_SHARE_STEP = 1024 * 1024
_SHARE_WINDOW = 32 * 1024
_MOST_SHARES = 1000
_LARGEST_WINDOW = 8 * 1024 * 1024


def kept_splits(
    log: MappedFileQueue, splits: Sequence[Split], wanted: Wanted, clock_tolerance: int | None, *, clips: bool = True
) -> list[Split]:
    """The parts of splits that may hold wanted messages. Reads a few KB a split, and only if store times are asked for.

    `clock_tolerance` in ms; None: store times leave nothing out. Without `clips` splits are kept whole: the caller
    wants no task to begin in the middle of a file.
    """
    offsets = wanted.physical_offsets
    kept = [split for split in splits if split.begin <= offsets.high and split.end > offsets.low]
    if not wanted.store_times.is_all and clock_tolerance is not None:
        kept = _in_time(log, kept, wanted, clock_tolerance)
    return _clipped(kept, wanted) if clips else kept


def _clipped(splits: Sequence[Split], wanted: Wanted) -> list[Split]:
    """What of splits has the offsets: a task walks no further, and goes back only to be certain where to begin."""
    spans = [wanted.physical_offsets] if wanted.places is None else list(_spans(wanted.places))
    return [
        split._replace(begin=max(split.begin, span.low), end=min(split.end, span.high + 1))
        for split in splits
        for span in spans
        if split.begin <= span.high and split.end > span.low
    ]


def _spans(places: Iterable[int]) -> Iterator[Range]:
    """Ranges that hold all of the places; near ones together, as each range costs a look back."""
    span: Range | None = None
    for place in sorted(places):
        if span is not None and place - span.high > LOOK_BACK:
            yield span
            span = None
        span = Range(place if span is None else span.low, place)
    if span is not None:
        yield span


def _in_time(log: MappedFileQueue, kept: list[Split], wanted: Wanted, clock_tolerance: int) -> list[Split]:
    if not any(map(is_possible_time, (wanted.store_times.low, wanted.store_times.high))):
        return kept  # only impossible times are meant, which may be anywhere
    times = [first_store_time(log, split) for split in kept]
    times[-1] = _of_last_split(log, kept[-1], times[-1])
    return [
        split for split, is_kept in zip(kept, _kept(times, wanted.store_times, clock_tolerance), strict=True) if is_kept
    ]


def _of_last_split(log: MappedFileQueue, split: Split, first: int | None) -> int | None:
    """`first`, the time of a split's first message; None where that of the next message is earlier: after the last
    split no other shows that the first message's time is wrong."""
    place = _first_place(log, split)
    second = None if place is None else first_store_time(log, split._replace(begin=place + 1))
    return None if first is not None and second is not None and second < first else first


def share_in_time(log: MappedFileQueue, splits: Sequence[Split], wanted: Range) -> float:
    """About how much of splits was stored at these times, going by the first message of a thousand parts at most."""
    step = max(_SHARE_STEP, sum(split.end - split.begin for split in splits) // _MOST_SHARES)
    parts = [
        split._replace(begin=begin, end=min(split.end, begin + step))
        for split in splits
        for begin in range(split.begin, split.end, step)
    ]
    times = _last_known([first_store_time(log, part, _SHARE_WINDOW) for part in parts])
    inside = [
        lower is None or upper is None or (lower <= wanted.high and upper >= wanted.low)
        for lower, upper in zip(times, [*times[1:], None], strict=True)
    ]
    return sum(inside) / len(parts)


def _kept(times: Sequence[int | None], wanted: Range, tolerance: int) -> list[bool]:
    """Which splits to keep, by the time of each one's first message; None where it has none that can be read."""
    everything = [True] * len(times)
    latest = None
    for time in times:
        if time is None:
            continue
        if latest is not None and time < latest - tolerance:
            return everything
        latest = time if latest is None else max(latest, time)
    # a split without a first message goes by those around it; None: anything may be there
    before = _last_known(times)
    behind = [*reversed(_last_known(times[:0:-1])), None]
    kept = [
        (upper is None or upper + tolerance >= wanted.low) and (lower is None or lower - tolerance <= wanted.high)
        for lower, upper in zip(before, behind, strict=True)
    ]
    return kept if any(kept) else everything


def _last_known(times: Sequence[int | None]) -> list[int | None]:
    """Return for each place the last time up to it, itself included; None without one."""
    found: list[int | None] = []
    for time in times:
        found.append(time if time is not None or not found else found[-1])
    return found


def first_store_time(log: MappedFileQueue, split: Split, most: int = _LARGEST_WINDOW) -> int | None:
    """Return the store time in ms of the first place in the split that looks like a message; None without one within
    about `most` bytes, or for a time that no broker writes."""
    place = _first_place(log, split, most)
    time = None if place is None else store_time_at(log, place)
    return time if time is not None and is_possible_time(time) else None


def _first_place(log: MappedFileQueue, split: Split, most: int = _LARGEST_WINDOW) -> int | None:
    window = _FIRST_WINDOW
    while True:
        data = log.read(split.begin, min(window, split.end - split.begin + _HEAD))
        at = _MAGIC_AT
        while True:
            places = [place for place in (data.find(magic, at) for magic in _MAGICS) if place >= 0]
            if not places:
                break
            start = min(places) - _MAGIC_AT
            stored = data[start + _OFFSET_AT : start + _OFFSET_AT + 8]
            if split.begin + start < split.end and int.from_bytes(stored, "big") == split.begin + start:
                return split.begin + start
            at = start + _MAGIC_AT + 1
        if len(data) < window or window >= most:
            return None
        window *= 8


# What the key index says about the messages of a part of the log: which may have some keys, or were stored at some
# time, and of which it is known that they have none of these, or were not.
#
# No index is believed to be whole: messages are missing from it that were stored while it was switched off, that a
# crash took from it, that were rolled back, or whose topic nobody knows any more. So an entry says two things here:
# what its message is like, and that its message is one that the index knows. What the index does not know is read.
#
# The entries of a file count for a part of the log if they rise with it, and if some of them, those before the
# longest pauses among them, are what the messages say. For keys the chains of all that are asked for have to be in
# order and lead to nothing but messages with these keys: then a wrong hash is noticed, because its chain still leads
# to it, and a wrong chain does no harm, because hashes are looked through. The first and the last message of a file
# may have more keys than the file holds. For times an entry does not count that is of its file's first second, where
# Java puts what is older than the file as well, and each is taken together with the entries on both sides of it: then
# a wrong time does no harm.

_ENTRY = INDEX_ENTRY.dtype()
_SECOND = 1000
_NONE: Int64s = np.empty(0, np.int64)
_CHUNK_ENTRIES = 4096
# chains that are followed while a query is planned, each by a few reads, and messages that they lead to
_MOST_CHAINS = 20_000
_MOST_PLACES = 1000
# before so many of the longest pauses between two entries it is looked whether the message has such a key
_LOOKED_AT = 4


class KeyLookup(NamedTuple):
    """What chains say of some keys: where messages with them begin, and the files of which this is all.

    `hashes`: of the keys with every topic that is known. `places`: physical offsets, ascending; `files`: names of the
    index files whose entries count; `entries`: how many these have.
    """

    hashes: tuple[int, ...]
    places: tuple[int, ...]
    files: tuple[str, ...]
    entries: int


def look_up(
    files: StoreFiles, keys: Collection[str], topics: Collection[str] | None, has_topic: Callable[[str], bool]
) -> KeyLookup | None:
    """What the index has for keys of `topics`, None for all that are known, as far as `has_topic` wants them.

    None where it cannot be asked, or has too much.
    """
    try:
        index = files.index
        names = known_topics(files) if topics is None else topics
    except RmqctlError:
        return None
    hashes = sorted({key_hash(topic, key) for topic in filter(has_topic, names) for key in keys})
    if not index.files or not hashes or len(hashes) * len(index.files) > _MOST_CHAINS:
        return None
    places: set[int] = set()
    believed = []
    for file in index.files:
        try:
            found = _led_to(file, files.log, hashes)
        except RmqctlError:
            found = None
        if found is None:
            continue
        believed.append(file)
        places |= found
        if len(places) > _MOST_PLACES:
            return None
    entries = sum(file.header.index_count - 1 for file in believed)
    return KeyLookup(tuple(hashes), tuple(sorted(places)), tuple(file.path.name for file in believed), entries)


def _led_to(file: IndexFile, log: MappedFileQueue, hashes: Collection[int]) -> set[int] | None:
    """Return the messages of the chains of hashes; None if one is not in order, or leads to something other than a
    message with this hash."""
    seen: dict[int, bool] = {}
    result = QueryResult()
    for wanted in hashes:
        for entry in chain_entries(file, wanted, result.damaged):
            at = entry.physical_offset
            if at not in seen:
                seen[at] = entry_message(entry, file, log, wanted, result) is not None
            if len(seen) > _MOST_PLACES:
                break
        if result.damaged:
            return None
    return {at for at, is_there in seen.items() if is_there}


def is_in_order(files: StoreFiles, lookup: KeyLookup) -> bool:
    """Whether all files of the index count."""
    index = files.index
    unusable = [path for path, _ in index.problems if path.name.isdigit()]
    return len(lookup.files) == len(index.files) and not unusable


class Indexed(NamedTuple):
    """Where messages begin that index files know, and where those that may be meant."""

    known: Int64s
    found: Int64s

    def may_be_meant(self, begins: Int64s) -> Flags:
        """Which of the messages that begin there may be meant: the others are known, and are not."""
        flags: Flags = np.isin(begins, self.found) | ~np.isin(begins, self.known)
        return flags


def by_keys(files: StoreFiles, lookup: KeyLookup, begin: int, end: int) -> Indexed:
    """What index files that count say about the keys of messages in [begin, end) of the log."""
    known, found = [_NONE], [np.array(lookup.places, np.int64)]
    for run in _runs(files, begin, end):
        if run.file.path.name in lookup.files:
            found.append(run.offsets[np.isin(run.hashes, lookup.hashes)])
            header = run.file.header
            edges = (header.begin_physical_offset, header.end_physical_offset)
            known.append(np.setdiff1d(run.offsets, edges))
    return Indexed(np.concatenate(known), np.concatenate(found))


def by_time(files: StoreFiles, times: tuple[int, int], first: int, end: int) -> Indexed:
    """What the index says about the store times of messages in [first, end) of the log: which lie between `times`, in
    ms, both included."""
    known, found = [_NONE], [_NONE]
    for run in _runs(files, first, end):
        begin = run.file.header.begin_timestamp
        # seconds are whole ones, the rest is cut off
        least, most = (begin + seconds * _SECOND for seconds in _with_neighbours(run.seconds))
        is_sure = run.seconds > 0
        known.append(run.offsets[is_sure])
        found.append(run.offsets[~is_sure | ((most + _SECOND > times[0]) & (least <= times[1]))])
    return Indexed(np.concatenate(known), np.concatenate(found))


def _with_neighbours(seconds: Int64s) -> tuple[Int64s, Int64s]:
    """Return the least and the most of each three successive times: outside of these a time is wrong."""
    least, most = seconds.copy(), seconds.copy()
    for to, other in ((slice(1, None), seconds[:-1]), (slice(None, -1), seconds[1:])):
        least[to] = np.minimum(least[to], other)
        most[to] = np.maximum(most[to], other)
    return least, most


def entries_between(files: StoreFiles, begin: int, end: int) -> int:
    """How many entries the index files have that reach into [begin, end) of the log."""
    try:
        return sum(file.header.index_count - 1 for file in _reaching_into(files, begin, end))
    except RmqctlError:
        return 0


class _Run(NamedTuple):
    """Entries of a file one after the other: key hashes, physical offsets, seconds since the file's begin."""

    file: IndexFile
    hashes: Int32s
    offsets: Int64s
    seconds: Int64s


def _reaching_into(files: StoreFiles, begin: int, end: int) -> list[IndexFile]:
    headers = [(file, file.header) for file in files.index.files]
    return [
        file
        for file, header in headers
        if header.end_physical_offset >= begin and header.begin_physical_offset < end and header.index_count > 1
    ]


def _runs(files: StoreFiles, begin: int, end: int) -> Iterator[_Run]:
    """The entries that lead into [begin, end) of the log, of each file where they count."""
    try:
        reaching = _reaching_into(files, begin, end)
    except RmqctlError:
        return
    for file in reaching:
        try:
            run = _entries_between(file, begin, end)
            is_true = _rises(run.offsets) and all(_is_true(files.log, run, at) for at in _looked_at(run.seconds))
        except RmqctlError:
            continue
        if is_true:
            yield run


def _entries_between(file: IndexFile, begin: int, end: int) -> _Run:
    number, count = _first_entry(file, begin), file.header.index_count
    parts = [np.empty(0, _ENTRY)]
    while number < count:
        data = file.read_entries(number, min(_CHUNK_ENTRIES, count - number))
        entries = np.frombuffer(data[: len(data) - len(data) % INDEX_ENTRY.size], _ENTRY)
        inside = entries[entries["physical_offset"] < end]
        parts.append(inside)
        number += len(entries)
        if len(inside) < len(entries) or not len(entries):
            break
    run = np.concatenate(parts)
    return _Run(
        file,
        run["key_hash"].astype(np.int32),
        run["physical_offset"].astype(np.int64),
        run["time_difference"].astype(np.int64),
    )


def _rises(offsets: Int64s) -> bool:
    return len(offsets) > 0 and bool((np.diff(offsets) >= 0).all())


def _first_entry(file: IndexFile, offset: int) -> int:
    """The first entry that leads to physical offset `offset` or behind it, if entries rise."""
    numbers = range(file.header.index_count)
    return bisect_left(numbers, offset, 1, key=lambda number: file.entry(number).physical_offset)


def _looked_at(seconds: Int64s) -> set[int]:
    """The first and the last entry, and those before the longest pauses: who puts messages in the place of others,
    after a log was cut back, does so later."""
    pauses = np.argsort(np.diff(seconds), kind="stable")[::-1][:_LOOKED_AT]
    return {0, len(seconds) - 1, *pauses.tolist()}


def _is_true(log: MappedFileQueue, run: _Run, at: int) -> bool:
    """Whether a good message begins where an entry leads that has such a key, and was stored in that second."""
    message = message_at(log, int(run.offsets[at]))
    begin, seconds = run.file.header.begin_timestamp, int(run.seconds[at])
    is_in_time = seconds <= 0 or 0 <= message.store_timestamp - begin - seconds * _SECOND < _SECOND
    keys = index_keys(message, with_tags=True)
    return is_in_time and any(key_hash(message.topic, key) == run.hashes[at] for key in keys)
