"""The scan: messages of the commitlog as record batches, in the order they were stored, past damage."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rmqctl.formats.errors import CorruptError
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import ColumnRecord, Int64s, MessageColumns, TopicIds, start_of
from rmqctl.store.log.parallel import walk_parallel
from rmqctl.store.log.removed_meanwhile import RemovedMeanwhile, in_sentences
from rmqctl.store.log.walk import Damage
from rmqctl.store.native.tables import Columns
from rmqctl.store.options import Events
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.query import damage_error
from rmqctl.store.read.row_filter import RowChooser
from rmqctl.store.scan.schema import column_names, needed, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.store.scan.batches import BatchMaker

# Bytes of the log in a batch, and in what one thread works on: some of these are in memory at a time. Bodies stay in
# the window that they were read into until a batch is made of them.
SCAN_WINDOW = 4 * 1024 * 1024
_PIECE = 8 * 1024 * 1024
SCAN_ROWS = 16384
_THREADS = 2
# criteria that need these are held against the properties themselves in the end
_CONTENT = Columns.TAGS | Columns.KEYS


class Chooser(Protocol):
    """Says which messages are meant. `needs`: what the walk has to give for that."""

    @property
    def needs(self) -> Columns: ...

    def rows(self, batch: MessageColumns) -> Int64s | None:
        """The rows that are meant, ascending; None for all of them. FrameDamage where one was changed meanwhile."""


class Maker(Protocol):
    """Makes record batches of messages. `needs_bodies`: unpacked ones, which can be a thousand times as large."""

    @property
    def needs_bodies(self) -> bool: ...

    def batches(self, batch: MessageColumns) -> Iterator[pa.RecordBatch]:
        """The messages as record batches, in order."""


class LogRange(NamedTuple):
    """The records that start in [begin, end), physical offsets; `start`: where the walk begins, a record's start.

    `end` None: up to the end of the log.
    """

    begin: int
    end: int | None
    start: int


class Scan:
    """What to scan for; `batches` does it. UnsupportedError without pyarrow, UsageError for a name of no column."""

    def __init__(
        self,
        log: MappedFileQueue,
        columns: Sequence[str] | None = None,
        begin: int = 0,
        end: int | None = None,
        *,
        criteria: Criteria | None = None,
        views: bool = True,
        threads: int = _THREADS,
    ) -> None:
        """Messages of `criteria` whose physical offset is in [begin, end), with these columns; None: all.

        A `begin` that is no frame's start is taken as: from the next message on. `views`: bodies as `binary_view`
        over the memory they were read into, which is not copied; else as `binary`. Such batches must not be written
        to Arrow IPC: each would take its whole memory along.
        """
        require_pyarrow()

        names = column_names(columns)
        self._log = log
        self._begin = begin
        self._end = end
        self._threads = threads
        self._chooser = RowChooser(criteria or Criteria(), begin)
        self._groups = needed(names) | self._chooser.needs
        if self._chooser.needs & _CONTENT:
            # what was read and checked is looked at, not what the file holds a moment later
            self._groups |= Columns.BYTES
        from rmqctl.store.scan.batches import BatchMaker

        self._maker: BatchMaker = BatchMaker(names, views)

    @property
    def schema(self) -> pa.Schema:
        """That of the batches."""
        return self._maker.schema

    def batches(self, events: Events = Events()) -> Generator[pa.RecordBatch, None, None]:
        """The batches, none of them empty. Damage is reported and skipped; where nothing takes it the first is raised
        in its place. A note is a sentence about what is removed before it was read (removed_meanwhile.py)."""
        file = self._log.find(self._begin)
        start = file.start_offset if file is not None else self._begin
        span = LogRange(self._begin, self._end, start)
        yield from scanned(self._log, span, self._groups, self._chooser, self._maker, events, threads=self._threads)


def scanned(
    log: MappedFileQueue,
    span: LogRange,
    groups: Columns,
    chooser: Chooser,
    maker: Maker,
    events: Events = Events(),
    *,
    threads: int = _THREADS,
) -> Generator[pa.RecordBatch, None, None]:
    """What `maker` makes of the messages of a range that `chooser` means, some pieces at a time. `groups`: what both
    need of the walk. The rest is as in `Scan.batches`."""

    def made(records: Iterator[ColumnRecord]) -> _Piece:
        return _made(records, span.begin, chooser, maker)

    removed = RemovedMeanwhile(log, max(span.start, span.begin), span.end, in_sentences(events))
    pieces = walk_parallel(
        log,
        made,
        span.start,
        span.end,
        threads=threads,
        columns=groups or Columns.HEAD,  # a walk without any columns has no row numbers to choose by
        topics=TopicIds(),
        progress=events.progress,
        window=SCAN_WINDOW,
        rows=SCAN_ROWS,
        piece=_PIECE,
    )
    with log.descriptors.exact_about_removed():
        for piece in pieces:
            if piece.end > piece.begin:
                removed.pass_over(piece.begin, piece.end)
            for one in piece.found:
                if isinstance(one, CorruptError):
                    events.damaged(one)
                elif isinstance(one, MessageColumns):
                    yield from maker.batches(one)
                else:
                    yield one
        removed.finish()


class _Piece(NamedTuple):
    """What was made of the bytes [begin, end) of the log."""

    begin: int
    end: int
    found: list[pa.RecordBatch | MessageColumns | CorruptError]


def _made(records: Iterator[ColumnRecord], begin: int, chooser: Chooser, maker: Maker) -> _Piece:
    """What one thread makes of a piece of the log: batches, and columns where bodies are to be unpacked.

    What unpacks can be a thousand times as large as what is read: that is left to whoever takes the batches.
    """
    from rmqctl.store.scan.batches import is_compressed

    found: list[pa.RecordBatch | MessageColumns | CorruptError] = []
    first, last = -1, -1
    for record in records:
        first, last = start_of(record) if first < 0 else first, record.end
        if isinstance(record, Damage) and record.end > begin:
            found.append(damage_error(record))
        if not isinstance(record, MessageColumns):
            continue
        chosen = record.take(chooser.rows(record))
        if maker.needs_bodies and bool(is_compressed(chosen).any()):
            found.append(chosen)
        else:
            found += maker.batches(chosen)
    return _Piece(first, last, found)
