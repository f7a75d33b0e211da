"""Which stretches of the log a check walks: all of it, a share of its files, or from where the last one stopped."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.store.files.mapped_file_queue import MappedFileQueue


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
    """The stretch of the log that a file stands for: [begin, end), the gap before it included. `start`: its first
    byte, where the walk begins."""

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
