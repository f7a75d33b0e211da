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

from collections.abc import Iterable, Iterator, Sequence

from rmqctl.formats.layouts import FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.pipeline.source.wanted import Range, Wanted
from rmqctl.pipeline.splits.splits import Split
from rmqctl.store.commitlog.resync import LOOK_BACK
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.read.frames import store_time_at

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

    `clock_tolerance` in ms; None: store times leave nothing out. Without `clips` splits are kept whole: somebody wants
    no task to begin in the middle of a file.
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
    times = [first_store_time(log, split) for split in kept]
    return [
        split for split, is_kept in zip(kept, _kept(times, wanted.store_times, clock_tolerance), strict=True) if is_kept
    ]


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
    """For each place the last time up to it, itself included; None where there is none."""
    found: list[int | None] = []
    for time in times:
        found.append(time if time is not None or not found else found[-1])
    return found


def first_store_time(log: MappedFileQueue, split: Split, most: int = _LARGEST_WINDOW) -> int | None:
    """Store time in ms of the first place in the split that looks like a message; None if there is none within about
    `most` bytes."""
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
                return store_time_at(log, split.begin + start)
            at = start + _MAGIC_AT + 1
        if len(data) < window or window >= most:
            return None
        window *= 8
