"""The log cut into pieces that can be walked at the same time, and whether the walks of neighbours fit together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.layouts import FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.store.columns.batch import ColumnRecord
from rmqctl.store.columns.compiled_walk import Request
from rmqctl.store.columns.engine import WalkEngine
from rmqctl.store.columns.walk import file_records
from rmqctl.store.commitlog.walk import Damage, missing_file, walk_files
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.reading import removed_error
from rmqctl.store.files.zeros import data_extents

PIECE = 64 * 1024 * 1024
# where no frame begins within this many bytes of a wanted edge, there is no edge; most begin much sooner
_SEARCHED_FIRST = 16 * 1024
_SEARCHED = 1024 * 1024
_MAXIMUM_CANDIDATES = 1000
_MAGIC_AT = FRAME_HEADS[0].offset("magic_code")
_POSITION_AT = FRAME_HEADS[0].offset("physical_offset")


class _FilePart(NamedTuple):
    """The bytes [begin, end) of a file."""

    file: MappedFile
    begin: int
    end: int


@dataclass(slots=True)
class WalkPiece:
    """The records of a file that start in [begin, limit), positions in the file; `end` is that of the file.

    `begin` is a guess: it holds if the walk of the piece before ends exactly there. `before` and `after`: damage
    between files. `reached`: where the walk of this piece ended.
    """

    file: MappedFile
    begin: int
    limit: int
    end: int
    before: list[Damage] = field(default_factory=list)
    after: list[Damage] = field(default_factory=list)
    reached: int = -1

    def records(self, used: WalkEngine, request: Request) -> Iterator[ColumnRecord]:
        """The records of the piece and the damage around it."""
        yield from self.before
        start = self.file.start_offset
        self.reached = self.begin
        limit = start + self.limit if request.limit is None else min(start + self.limit, request.limit)
        with self.file.hold() as held:
            if not held:
                begin, self.reached = start + self.begin, self.limit
                yield from missing_file(request.log, self.file, begin, start + self.limit)
            else:
                for record in file_records(used, request._replace(limit=limit), self.file, self.begin, self.end):
                    self.reached = record.end - start
                    yield record
        yield from self.after

    def is_followed_by(self, other: WalkPiece) -> bool:
        """Whether the walk of `other` may begin where it does. Different files never depend on one another."""
        return self.file is not other.file or self.reached == other.begin


def pieces(request: Request, begin: int, size: int) -> list[WalkPiece]:
    """The log from physical offset `begin` on in pieces of about `size` bytes, in order."""
    found: list[WalkPiece] = []
    damages: list[Damage] = []

    def one_file(file: MappedFile, start: int, end: int) -> Iterator[_FilePart]:
        yield _FilePart(file, start, end)

    for item in walk_files(request.log, begin, one_file):
        start = item.physical_offset if isinstance(item, Damage) else item.file.start_offset + item.begin
        if request.limit is not None and start >= request.limit:
            break
        if isinstance(item, Damage):
            damages.append(item)
            continue
        made = _pieces_of(item, size)
        made[0].before = damages
        damages = []
        found += made
    if damages and not found:
        # the only files there were are gone, and not by a cleaner
        raise removed_error(Path(damages[0].file))
    if damages:
        found[-1].after = damages
    return found


def _pieces_of(part: _FilePart, size: int) -> list[WalkPiece]:
    made = [WalkPiece(part.file, part.begin, part.end, part.end)]
    for wanted in range(part.begin + size, part.end - size // 2, size):
        if _is_hole(part.file, wanted, min(wanted + _SEARCHED, part.end)):
            continue  # a sparse file may be larger than anybody can read
        edge = _frame_start(part.file, wanted, part.end)
        if edge is not None and edge > made[-1].begin:
            made[-1].limit = edge
            made.append(WalkPiece(part.file, edge, part.end, part.end))
    return made


def _is_hole(file: MappedFile, begin: int, end: int) -> bool:
    return next(data_extents(file.path, begin, end, file.descriptors), None) is None


def _frame_start(file: MappedFile, position: int, end: int) -> int | None:
    """The first place from `position` on that looks like the start of a message: a guess, and checked as one."""
    for length in (_SEARCHED_FIRST, _SEARCHED):
        window = file.read(position, min(length, end - position))
        start = _first_frame_of(window, file.start_offset + position)
        if start is not None:
            return position + start
    return None


def _first_frame_of(window: bytes, physical_offset: int) -> int | None:
    magics = [magic.to_bytes(4, "big") for magic in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2)]
    at = _MAGIC_AT
    for _ in range(_MAXIMUM_CANDIDATES):
        place = len(window)
        for magic in magics:
            found = window.find(magic, at, place + len(magic) - 1)
            place = found if found >= 0 else place
        if place == len(window):
            return None
        start = place - _MAGIC_AT
        stored = window[start + _POSITION_AT : start + _POSITION_AT + 8]
        if int.from_bytes(stored, "big") == physical_offset + start:
            return start
        at = place + 1
    return None
