"""What a power cut may leave of what was recorded, and such a state put on disk.

The model. The power goes after any event. What an fsync that had returned by then covers is there: the bytes, size and
(unless it was an fdatasync) time of a file; the entries of a directory. Of everything else

* any sectors of 512 bytes of what was written to a file may be there, each as it was at any moment since its fsync;
  so may be its size and its time, each for itself;
* of the entries of directories either those up to some moment are there, in the order in which they were made, as a
  file system with a journal keeps them (ext4, XFS); or any of them, each for itself, which is all that POSIX promises.
  A renaming within one directory is atomic in both. Between two directories a file may be in both, and in neither only
  where the old directory was flushed before the new one: then the removal is on disk for certain and nothing else is.

Both are tried, because a store that only lives by the order of one file system's journal is not safe on another one.
Few events that are not covered are lost in every combination, if there are cases enough for this moment; of many the
seed draws some.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.proof.crash.recording import DONE, NEVER, SECTOR, TOP, Data, Event, Names, Note, Recording, Synced, Time

_ALL_COMBINATIONS_OF = 4


class Cut(NamedTuple):
    """Only the first `after` events have happened. `way`: how what is lost was chosen. `lost`: events that are, wholly.
    `torn`: of an event the sectors that are. `halves`: renamings of which the old name is still there."""

    after: int
    way: str
    lost: frozenset[int]
    torn: dict[int, frozenset[int]]
    halves: frozenset[int]


class History:
    """A recording, and for each of its events when it was safe (the number of the event, NEVER if not at all).
    `promises`: moments right after a note of the work. `moments`: after how many events a cut may come. None is before
    the event of a time: how many of these there are is the clock's whim, and may not count in what a seed draws."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        flushes: dict[int, list[tuple[int, int, bool]]] = {}
        for number, event in enumerate(recording.events):
            if isinstance(event, Synced):
                flushes.setdefault(event.node, []).append((number, event.begin, event.with_time))
        self._flushes = flushes
        told = [at + 1 for at, event in enumerate(recording.events) if isinstance(event, Note)]
        done = [at + 1 for at, event in enumerate(recording.events) if isinstance(event, Note) and event.said == DONE]
        # as often at the end of a step as anywhere else
        self.promises = told + done * (len(told) // len(done)) if done else told or [len(recording.events)]
        self.moments = [
            number
            for number in range(recording.begun, len(recording.events) + 1)
            if number == len(recording.events) or not isinstance(recording.events[number], Time)
        ]
        self.safe = [
            -1 if number < recording.begun else self._safe_of(number, event)
            for number, event in enumerate(recording.events)
        ]

    def _safe_of(self, number: int, event: Event) -> int:
        if isinstance(event, Names):
            return max(self.safe_in(number, entry.directory) for entry in event.entries)
        if isinstance(event, Data | Time):
            return self.safe_in(number, event.node, with_time=isinstance(event, Time))
        return number

    def safe_in(self, number: int, node: int, *, with_time: bool = False) -> int:
        """The end of the first flush of `node` that began after the event."""
        ends = (end for end, begin, has_time in self._flushes.get(node, ()) if begin > number and has_time >= with_time)
        return min(ends, default=NEVER)

    def pending(self, after: int) -> list[int]:
        """The events among the first `after` that a power cut then may take."""
        return [number for number in range(self.recording.begun, after) if self.safe[number] >= after]

    def notes(self, begin: int, after: int) -> list[object]:
        """What the work had said by then, from the event `begin` on."""
        return [event.said for event in self.recording.events[begin:after] if isinstance(event, Note)]


def cut_of(history: History, position: int, draws: int, random: Random) -> Cut:
    """The case of this number among `draws`: they are spread over all moments, and over the ways to lose something."""
    events = history.recording.events
    position, is_promise = _of_promises(position)
    draws, _ = _of_promises(draws)
    moments = len(history.moments)
    moment = position * moments // draws
    first = -(-moment * draws // moments)
    if is_promise:
        after, here = random.choice(history.promises), 0
    else:
        after, here = history.moments[moment], -(-(moment + 1) * draws // moments) - first
    pending = history.pending(after)
    changes = [number for number in pending if not isinstance(events[number], Time)]
    times = {number for number in pending if isinstance(events[number], Time)}
    each = Random(random.random())
    lost_times = frozenset(each.choice((set(), times, {number for number in times if each.random() < 0.5})))
    if len(changes) <= _ALL_COMBINATIONS_OF and position - first < 2 ** len(changes) <= here:
        lost = {number for bit, number in enumerate(changes) if (position - first) >> bit & 1}
        return Cut(after, "combination", lost_times | lost, {}, frozenset())
    return _drawn(history, after, changes, lost_times, random)


def _of_promises(position: int) -> tuple[int, bool]:
    """One case in five is a cut right after something was promised, where most is to be lost by what was forgotten:
    the position among the other ones, and whether this is one of those."""
    return position - position // 5, position % 5 == 4


def _drawn(history: History, after: int, changes: list[int], lost_times: frozenset[int], random: Random) -> Cut:
    events = history.recording.events
    way = random.choice(("nothing", "all", "one", "all but one", "ordered", "ordered", "torn", "any", "any", "any"))
    lost: set[int] = set()
    torn: dict[int, frozenset[int]] = {}
    if way == "nothing":
        return Cut(after, way, frozenset(), {}, frozenset())
    if way == "all":
        lost = set(changes)
    elif way == "one":
        lost = {random.choice(changes)} if changes else set()
    elif way == "all but one":
        lost = set(changes) - ({random.choice(changes)} if changes else set())
    elif way == "ordered":
        names = [number for number in changes if isinstance(events[number], Names)]
        lost = set(names[random.randint(0, len(names)) :])
    elif way == "any":
        share = random.choice((0.15, 0.5, 0.85))
        lost = {number for number in changes if random.random() < share}
    written = [number for number in changes if isinstance(events[number], Data) and number not in lost]
    if way == "torn":
        written = written[-1:]
    elif way == "ordered":
        written = [number for number in written if random.random() < 0.5]
    for number in written:
        event = events[number]
        assert isinstance(event, Data)
        # a text may say a longer name than in another run, and reach into one more sector
        torn[number] = _some(sorted(event.sectors), Random(random.random()))
    renamed = [number for number in changes if number not in lost and _is_across(events[number])]
    is_half = way in ("any", "one", "all but one")
    halves = frozenset(number for number in renamed if is_half and random.random() < 0.5)
    return Cut(after, way, lost_times | lost, torn, halves)


def _is_across(event: Event) -> bool:
    """Whether something is renamed from one directory to another."""
    return isinstance(event, Names) and len({entry.directory for entry in event.entries}) > 1


def _some(sectors: list[int], random: Random) -> frozenset[int]:
    """Sectors of one write that are lost: the last ones, the first ones, any."""
    where = random.randint(0, len(sectors))
    any_of_them = [sector for sector in sectors if random.random() < 0.5]
    return frozenset(random.choice((sectors[where:], sectors[:where], any_of_them)))


class Left(NamedTuple):
    """One thing that a cut leaves: its path below the folder, its number, its time in ns if one was recorded, and its
    bytes, None for a directory. What contains it comes first."""

    path: str
    node: int
    modified_ns: int | None
    content: bytes | None


_Written = list[tuple[Data, frozenset[int], bool]]


def left_by(history: History, cut: Cut) -> Iterator[Left]:
    """What the cut leaves."""
    names: dict[int, dict[str, int]] = {TOP: {}}
    written: dict[int, _Written] = {}
    times: dict[int, int] = {}
    for number, event in enumerate(history.recording.events[: cut.after]):
        is_lost = number in cut.lost
        if isinstance(event, Names):
            for place, entry in enumerate(event.entries):
                is_safe = number < history.recording.begun or history.safe_in(number, entry.directory) < cut.after
                # one half of a renaming may be on disk where all of it is not
                if not is_safe and (is_lost or (place and number in cut.halves)):
                    continue
                here = names.setdefault(entry.directory, {})
                if entry.node is not None:
                    here[entry.name] = entry.node
                else:
                    here.pop(entry.name, None)
        elif isinstance(event, Data) and not is_lost:
            written.setdefault(event.node, []).append((event, cut.torn.get(number, frozenset()), number in cut.torn))
        elif isinstance(event, Time) and not is_lost:
            times[event.node] = event.modified_ns
    found = [("", TOP)]
    seen: set[int] = set()
    for folder, number in found:
        for name, node in sorted(names.get(number, {}).items()):
            path = f"{folder}/{name}" if folder else name
            is_directory = node in history.recording.directories
            if is_directory:
                if node in seen:  # left in two places by a renaming that is half done
                    continue
                seen.add(node)
                found.append((path, node))
            yield Left(path, node, times.get(node), None if is_directory else _content(written.get(node, [])))


def put_on_disk(history: History, cut: Cut, folder: Path) -> None:
    """Make in `folder` what the cut leaves."""
    made: dict[int, Path] = {}
    times: dict[Path, int] = {}
    for left in left_by(history, cut):
        path = folder / left.path
        if left.content is None:
            path.mkdir()
        elif left.node in made:
            os.link(made[left.node], path)
        else:
            made[left.node] = path
            path.write_bytes(left.content)
        if left.modified_ns is not None:
            times[path] = left.modified_ns
    for path, modified_ns in reversed(times.items()):
        os.utime(path, ns=(modified_ns, modified_ns))


def files_at(history: History, after: int) -> dict[str, bytes | None]:
    """All that is there while the power stays on, after so many events: bytes, None for a directory, by path."""
    cut = Cut(after, "nothing", frozenset(), {}, frozenset())
    return {left.path: left.content for left in left_by(history, cut)}


def _content(written: _Written) -> bytes:
    sectors: dict[int, bytes] = {}
    size = 0
    for event, lost, is_torn in written:
        # a file that had grown may keep its size where its bytes are lost, and lose it with the last of them
        if not (is_torn and event.sectors and len(lost) == len(event.sectors)):
            size = event.size
        if lost:
            sectors.update({sector: data for sector, data in event.sectors.items() if sector not in lost})
        else:
            sectors.update(event.sectors)
    data = bytearray(size)
    for sector, content in sectors.items():
        if sector * SECTOR < size:
            end = min(size, (sector + 1) * SECTOR)
            data[sector * SECTOR : end] = content[: end - sector * SECTOR].ljust(end - sector * SECTOR, b"\0")
    return bytes(data)


def told(history: History, cut: Cut) -> str:
    """What was lost, for whoever looks for the cause."""
    recording = history.recording
    paths = _paths(recording)
    lines = [f"power cut after event {cut.after} of {len(recording.events)} ({recording.told[cut.after - 1]})"]
    for number in sorted({*cut.lost, *cut.torn, *cut.halves}):
        event = recording.events[number]
        if isinstance(event, Time):
            continue
        how = "lost" if number in cut.lost else "torn" if number in cut.torn else "half"
        lines.append(
            f"{how} {number} {_said(event, paths)} [{recording.told[number]}] {sorted(cut.torn.get(number, ()))}"
        )
    return "; ".join(lines)


def _said(event: Event, paths: dict[int, str]) -> str:
    if isinstance(event, Names):
        new = (f"{paths[entry.directory]}/{entry.name}={entry.node and paths[entry.node]}" for entry in event.entries)
        return "names " + " ".join(new)
    return f"data {paths[event.node]}" if isinstance(event, Data) else ""


def _paths(recording: Recording) -> dict[int, str]:
    paths = {TOP: ""}
    for event in recording.events:
        for entry in event.entries if isinstance(event, Names) else ():
            if entry.node is not None:
                paths[entry.node] = f"{paths[entry.directory]}/{entry.name}"
    return paths
