"""Map of the commitlog: which bytes hold messages, damage, blank frames or nothing, in cells of equal width."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.log.walk import Blank, Damage
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.store_files import StoreFiles

VALID, DAMAGED, BLANK, PREALLOCATED = KINDS = ("valid", "damaged", "blank", "preallocated")
"""Good messages; bytes that are none; frames that fill a file to its end; zeros where nothing is written yet."""
SIGNS = {DAMAGED: "!", VALID: "#", BLANK: "-", PREALLOCATED: "."}
"""A cell is shown by the first of these that it holds."""
CELLS = 128
_BAR_WIDTH = 64


class LogSpan(NamedTuple):
    """Bytes [begin, end) of the commitlog, of one of KINDS. Offsets physical."""

    kind: str
    begin: int
    end: int


def span_of(record: object, begin: int, end: int) -> LogSpan:
    """Return the span of a record of a walk, of whole columns of messages too."""
    if isinstance(record, Damage):
        return LogSpan(DAMAGED, begin, end)
    if isinstance(record, Blank):
        return LogSpan(BLANK, begin, end)
    is_message = isinstance(record, StoredMessage) or hasattr(record, "rows")
    return LogSpan(VALID if is_message else PREALLOCATED, begin, end)


@dataclass(slots=True)
class MapCell:
    """The stretch [begin, end) of the commitlog, and how many of its bytes are of each kind."""

    begin: int
    end: int
    valid: int = 0
    damaged: int = 0
    blank: int = 0
    preallocated: int = 0


class Coverage(NamedTuple):
    """The physical offsets of the first and the last message that the queues, or the index, lead to; None for none.
    `problem`: why that is not known."""

    part: str
    first_offset: int | None
    last_offset: int | None
    problem: str | None = None


@dataclass(slots=True)
class LogCells:
    """`cells`: CELLS of equal width over the files that are there, fewer for a tiny log; the other numbers are their
    sums. `expired_bytes`: before the first file, removed by a cleaning."""

    begin: int
    end: int
    expired_bytes: int
    valid: int = 0
    damaged: int = 0
    blank: int = 0
    preallocated: int = 0
    cells: list[MapCell] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Return it as an object of `rmqctl du --map --json`."""
        return asdict(self) | {"coverage": [one._asdict() for one in self.coverage]}

    def bar(self) -> list[str]:
        """Return a heading and the cells as lines of text, a sign for each."""
        signs = [next((sign for kind, sign in SIGNS.items() if getattr(cell, kind)), " ") for cell in self.cells]
        rows = ("".join(signs[begin : begin + _BAR_WIDTH]) for begin in range(0, len(signs), _BAR_WIDTH))
        return [f"commitlog, bytes {self.begin} to {self.end}:", *(f"  {row}" for row in rows)]

    def add(self, span: LogSpan) -> None:
        """Count a span."""
        setattr(self, span.kind, getattr(self, span.kind) + span.end - span.begin)
        begin, end = max(span.begin, self.begin), min(span.end, self.end)
        if begin >= end:
            return
        width = self.cells[0].end - self.cells[0].begin
        for cell in self.cells[(begin - self.begin) // width : (end - 1 - self.begin) // width + 1]:
            inside = min(end, cell.end) - max(begin, cell.begin)
            setattr(cell, span.kind, getattr(cell, span.kind) + inside)


def new_map(files: StoreFiles) -> LogCells:
    """Return the map of a log of which nothing is counted yet."""
    log = files.log
    begin = max(log.min_offset, 0)
    end = max((file.end_offset for file in log.files), default=begin)
    found = LogCells(begin, end, begin, coverage=[_of_queues(files), _of_index(files)])
    width = max(1, -(-(end - begin) // CELLS))
    found.cells = [MapCell(at, min(at + width, end)) for at in range(begin, end, width)]
    return found


def _of_queues(files: StoreFiles) -> Coverage:
    first: list[int] = []
    last: list[int] = []
    try:
        for queue in files.queues.all():
            begin, end = queue.min_offset(files.log.min_offset), queue.max_offset
            ends = (begin, end - 1) if isinstance(queue, ConsumeQueue) else ()
            units = [queue.unit(place) for place in ends if begin < end]
            offsets = [unit.physical_offset for unit in units if unit is not None and unit.is_written]
            first += offsets[:1]
            last += offsets[-1:]
    except CorruptError as error:
        return Coverage("consumequeue", None, None, error.message)
    return Coverage("consumequeue", min(first, default=None), max(last, default=None))


def _of_index(files: StoreFiles) -> Coverage:
    headers = [file.header for file in files.index.files if file.header.index_count > 1]
    first = min((header.begin_physical_offset for header in headers), default=None)
    last = max((header.end_physical_offset for header in headers), default=None)
    return Coverage("index", first, last, "; ".join(problem for _, problem in files.index.problems) or None)
