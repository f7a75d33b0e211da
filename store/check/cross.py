"""What a cross check is: it sees every good message of the walk over the log once, and says in the end what differs."""

from __future__ import annotations

import enum
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from rmqctl.formats.errors import UnreadableError, UsageError
from rmqctl.formats.message import Reason
from rmqctl.formats.notebook import as_html
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.compare.index import IndexTally
from rmqctl.store.compare.queues import QueuesTally
from rmqctl.store.files import io
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import Int64s
from rmqctl.store.log.implied import QueueRun, Run, Units, joined_units
from rmqctl.store.log.walk import Damage
from rmqctl.store.timer.pending import PendingTimer

WHOLE = frozenset({Reason.OVERFLOW, Reason.NUMBER})
"""Why spans count as damage whose messages are whole: only brokers cannot read them."""


class Level(enum.StrEnum):
    """How much is looked at."""

    QUICK = "quick"
    """Names, sizes, heads and tails: seconds on any store. Cross checks get no runs."""
    DEFAULT = "default"
    """Every message with its checksums, queues and index both ways."""
    FULL = "full"
    """Also data past every end, and decompression of bodies."""


@dataclass(slots=True)
class LogSeen:
    """What of the log was walked: cross checks answer for that and nothing else. Offsets physical.

    `ranges`: [begin, end) of what was walked, ascending and apart; one for the whole log as a rule, several for a
    subset of its files. `log_begin` and `log_end`: of the valid log, known even where only a part was walked; the end
    is where the next message would go. `damaged`: spans inside the ranges that held no good message: what pointed there
    points at damage, not at nothing. `is_live`: another process writes to the store meanwhile, so that messages from
    `log_end` on exist by now and the last ones before it may not be dispatched yet. `begun_again`: queues of topics
    that were deleted and created again. `timer`: what waits in it, where all of it could be read.
    """

    log_begin: int = 0
    log_end: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    is_live: bool = False
    level: Level = Level.DEFAULT
    begun_again: set[tuple[str, int]] = field(default_factory=set)
    timer: PendingTimer | None = None

    def take_timer(self) -> PendingTimer | None:
        """Return `timer`, which is let go of."""
        timer, self.timer = self.timer, None
        return timer

    def covers(self, physical_offset: int) -> bool:
        """Whether the walk passed an offset."""
        return any(begin <= physical_offset < end for begin, end in self.ranges)

    @property
    def is_whole(self) -> bool:
        """Whether the whole valid log was walked."""
        return any(begin <= self.log_begin and self.log_end <= end for begin, end in self.ranges)


class CrossCheck(Protocol):
    """`add` every run of the walk in the log's order, then `finish` once. Reads the store's files, changes nothing."""

    def add(self, run: Run) -> None:
        """The log holds these messages."""

    def finish(self, seen: LogSeen) -> Iterator[Finding]:
        """What differs, for the parts of the log that were walked."""


# A run of messages that a task of a check has compared, as it travels to the driver.


@dataclass(slots=True)
class TalliedRun(Run):
    """A run that was compared already. Of its queues only the rows are kept that judge what follows (see
    `pipeline.jobs.check.kept`).

    If a file of the queues or of the index could not be read, the error accompanies a tally without meaning.
    """

    queues: list[QueueRun] = field(default_factory=list)
    queues_tally: QueuesTally = field(default_factory=QueuesTally)
    index_tally: IndexTally = field(default_factory=IndexTally)
    queues_error: UnreadableError | None = None
    index_error: UnreadableError | None = None

    def __getstate__(self) -> tuple[object, ...]:
        """Rows of queues as columns: there are two of each, and pickled apart they take longer than the comparison."""
        state = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "queues"}
        names = [(queue.topic, queue.queue_id, len(queue.slots)) for queue in self.queues]
        if not names:
            return state, names, None, None
        units = joined_units([queue.units for queue in self.queues])
        return state, names, np.concatenate([queue.slots for queue in self.queues]), units

    def __setstate__(self, packed: tuple[dict[str, Any], list[tuple[str, int, int]], Int64s, Units]) -> None:
        """What `__getstate__` gave."""
        state, names, slots, units = packed
        for name, value in state.items():
            setattr(self, name, value)
        self.queues = []
        begin = 0
        for topic, queue_id, count in names:
            end = begin + count
            self.queues.append(QueueRun(topic, queue_id, slots[begin:end], units[begin:end], None))
            begin = end

    def join(self, later: TalliedRun) -> None:
        """Add the run that begins where this one ends; it is used up."""
        self.end = later.end
        self.messages += later.messages
        self.last_message_offset = later.last_message_offset
        self.last_store_timestamp = later.last_store_timestamp
        self.unplaceable += later.unplaceable
        self.queues_tally.merge(later.queues_tally)
        self.index_tally.merge(later.index_tally)
        self.queues_error = self.queues_error or later.queues_error
        self.index_error = self.index_error or later.index_error
        known = {(queue.topic, queue.queue_id): place for place, queue in enumerate(self.queues)}
        for queue in later.queues:
            place = known.get((queue.topic, queue.queue_id))
            if place is None:
                self.queues.append(queue)
                continue
            before = self.queues[place]
            slots, units = np.concatenate([before.slots, queue.slots]), np.concatenate([before.units, queue.units])
            self.queues[place] = before._replace(slots=slots, units=units)


# What a check covered and counted.


@dataclass(slots=True)
class CheckSummary:
    """What was looked at. Offsets physical, times in ms, sizes in bytes.

    `complete`: everything that was asked for was looked at; else `stopped_by` says why not ("max_duration",
    "fail_fast", "unreadable") and `next_offset` where the next check goes on. `ranges`: what of the log was walked.
    `lost`: what is gone for good ("messages", "consumer offsets", …), [] where nothing is known to be;
    `perhaps_lost`: of some damage it is not known; `perhaps` names what it would be.
    `uncovered_messages`: without a checksum over head, topic and properties; counted at the full level only.
    `bodies_not_unpacked`: compressed bodies of which no more than the checksum was checked; at the full level none.
    """

    _repr_html_ = as_html

    level: str
    path: str
    complete: bool = True
    stopped_by: str | None = None
    next_offset: int | None = None
    files: int = 0
    log_begin: int = 0
    log_end: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    messages: int = 0
    bytes: int = 0
    uncovered_messages: int | None = None
    bodies_not_unpacked: int = 0
    queues_checked: bool = False
    index_checked: bool = False
    live: bool = False
    subset: str | None = None
    errors: int = 0
    warnings: int = 0
    notices: int = 0
    data_lost: bool = False
    lost: list[str] = field(default_factory=list)
    perhaps_lost: bool = False
    perhaps: list[str] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    duration_ms: int = 0

    @property
    def alarms(self) -> int:
        """Findings that count as damage."""
        return self.errors + self.warnings

    def row(self) -> dict[str, Any]:
        """As one object with stable names."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values["ranges"] = [{"begin": begin, "end": end} for begin, end in self.ranges]
        return values


# Which stretches of the log a check walks: all of it, a share of its files, or from where the last one stopped.


class Subset(NamedTuple):
    """Share `number` of `shares`, counted from 1. A file is always in the same share, however the log grows."""

    number: int
    shares: int

    def has(self, start_offset: int, file_size: int) -> bool:
        """Whether the file is in it."""
        return start_offset // max(file_size, 1) % self.shares == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.shares}"


def parse_subset(text: str) -> Subset:
    """`n/t` with 1 <= n <= t; UsageError."""
    number, _, shares = text.partition("/")
    if number.isascii() and number.isdigit() and shares.isascii() and shares.isdigit():
        subset = Subset(int(number), int(shares))
        if 1 <= subset.number <= subset.shares:
            return subset
    raise UsageError(f"{text!r} is no share of the files", hint="write it as n/t, for example 1/7")


class FileRange(NamedTuple):
    """The range of the log that a file represents: [begin, end), the gap before it included. `start`: its first byte,
    where the walk begins."""

    begin: int
    start: int
    end: int


def file_ranges(log: MappedFileQueue, subset: Subset | None, begin: int | None) -> list[FileRange]:
    """One for each file that is wanted, in order. `begin`: files that end before it are left out. What sticks out of a
    file into the next one belongs to that."""
    ranges: list[FileRange] = []
    reached: int | None = None
    for file, following in itertools.zip_longest(log.files, log.files[1:]):
        start = file.start_offset
        end = max(start + log.file_size, file.end_offset)
        if following is not None and following.start_offset > start:
            end = min(end, following.start_offset)
        stretch = FileRange(min(start, reached) if reached is not None else start, start, end)
        reached = end
        if subset is not None and not subset.has(start, log.file_size):
            continue
        if begin is None or end > begin:
            ranges.append(stretch)
    return ranges


def joined_ranges(ranges: list[FileRange]) -> list[FileRange]:
    """Neighbours as one: a walk over both cores is faster in one go."""
    made: list[FileRange] = []
    for stretch in ranges:
        if made and made[-1].end == stretch.begin:
            made[-1] = made[-1]._replace(end=stretch.end)
        else:
            made.append(stretch)
    return made


# How far a check of a store came that is done bit by bit: kept in a file beside the store, never inside it.

VERSION = 1
SAVED_EVERY_S = 60.0
"""How much time of a check an interruption may cost."""


class ScrubState(NamedTuple):
    """`next_offset`: physical offset of the file to begin with, None where a pass is complete. Times in ms.

    `passes`: how often the whole was checked since the file was made; `alarms` of the pass that is under way.
    """

    level: str
    subset: str | None = None
    next_offset: int | None = None
    pass_started: int = 0
    passes: int = 0
    alarms: int = 0
    updated: int = 0


def default_path(root: Path) -> Path:
    """Return the default place of the state: beside the store."""
    return root.with_name(root.name + ".check.json")


def load_state(path: Path, level: str, subset: str | None) -> ScrubState:
    """Return the state in `path`, or a new one if it is missing or of another level or subset.

    UsageError for a file that is something else: it is not overwritten.
    """
    now = time.time_ns() // 1_000_000
    new = ScrubState(level, subset, None, now)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("version") != VERSION:
            raise ValueError
        state = ScrubState(**content)
        if not _is_possible(state):
            raise ValueError
    except FileNotFoundError:
        return new
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(
            "is not a progress file of `check`",
            file=path,
            hint="name another file, or remove it to start from the beginning",
        ) from error
    return state if (state.level, state.subset) == (level, subset) else new


def _is_possible(state: ScrubState) -> bool:
    """Whether every number is one that a check writes; JSON of Python's may say Infinity."""
    numbers = [state.pass_started, state.passes, state.alarms, state.updated]
    if state.next_offset is not None:
        numbers.append(state.next_offset)
    return all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)


def save_state(path: Path, state: ScrubState) -> None:
    """Replace the file: the old or the new state, never half."""
    now = time.time_ns() // 1_000_000
    text = json.dumps({"version": VERSION, **state._replace(updated=now)._asdict()}, indent=1)
    io.write_whole(path, text.encode("utf-8"))
