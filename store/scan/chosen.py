"""Selected messages of a range of the log: what a caller makes of their columns, piece by piece, past damage; and their
bodies, unpacked."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from rmqctl.formats.compression import decompress
from rmqctl.formats.errors import CorruptError, UnsupportedError
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.formats.properties import compression_type
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import Bytes, ColumnRecord, Flags, Int32s, Int64s, MessageColumns, TopicIds, start_of
from rmqctl.store.log.parallel import walk_parallel
from rmqctl.store.log.walk import Damage, RemovedMeanwhile, in_sentences
from rmqctl.store.native.tables import Columns
from rmqctl.store.options import Events
from rmqctl.store.read.query import damage_error
from rmqctl.store.read.row_filter import RowChooser
from rmqctl.store.read.select import Selection

# Bytes of the log in a batch, and in what one thread works on: some of these are in memory at a time. Bodies stay in
# the window that they were read into until something is made of them.
SCAN_WINDOW = 4 * 1024 * 1024
_PIECE = 8 * 1024 * 1024
SCAN_ROWS = 16384
SCAN_THREADS = 2
# criteria that need these are held against the properties themselves in the end
CONTENT = Columns.TAGS | Columns.KEYS

_Made = TypeVar("_Made")
_Made_co = TypeVar("_Made_co", covariant=True)


class Chooser(Protocol):
    """Says which messages are meant. `needs`: what the walk has to give for that."""

    @property
    def needs(self) -> Columns: ...

    def rows(self, batch: MessageColumns) -> Int64s | None:
        """The rows that are meant, ascending; None for all of them. FrameDamage where one was changed meanwhile."""


class Maker(Protocol[_Made_co]):
    """Makes something of messages: record batches, lines. `needs_bodies`: unpacked ones, which can be a thousand times
    as large."""

    @property
    def needs_bodies(self) -> bool: ...

    def batches(self, batch: MessageColumns) -> Iterator[_Made_co]:
        """What is made of the messages, in order."""


class LogRange(NamedTuple):
    """The records that start in [begin, end), physical offsets; `start`: where the walk begins, a record's start.

    `end` None: up to the end of the log.
    """

    begin: int
    end: int | None
    start: int


def scanned(
    log: MappedFileQueue,
    span: LogRange,
    groups: Columns,
    chooser: Chooser,
    maker: Maker[_Made],
    events: Events = Events(),
    *,
    threads: int = SCAN_THREADS,
) -> Generator[_Made, None, None]:
    """What `maker` makes of the messages of a range that `chooser` means, some pieces at a time. `groups`: what both
    need of the walk. The rest is as in `Scan.batches`."""

    def made(records: Iterator[ColumnRecord]) -> _Piece[_Made]:
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


def scan_made(
    log: MappedFileQueue, selection: Selection, needs: Columns, maker: Maker[_Made], events: Events = Events()
) -> Generator[_Made, None, None]:
    """What `maker`, which needs this of the walk, makes of the messages of a selection, past damage."""
    chooser = RowChooser(selection.criteria, selection.begin)
    file = log.find(selection.begin)
    start = file.start_offset if file is not None else selection.begin
    span = LogRange(selection.begin, selection.end, start)
    groups = needs | chooser.needs
    if chooser.needs & CONTENT:
        # what was read and checked is looked at, not what the file holds a moment later
        groups |= Columns.BYTES
    return scanned(log, span, groups, chooser, maker, events)


class _Piece(NamedTuple, Generic[_Made]):
    """What was made of the bytes [begin, end) of the log."""

    begin: int
    end: int
    found: list[_Made | MessageColumns | CorruptError]


def _made(records: Iterator[ColumnRecord], begin: int, chooser: Chooser, maker: Maker[_Made]) -> _Piece[_Made]:
    """What one thread makes of a piece of the log, and columns where bodies are to be unpacked.

    Unpacked bodies can be a thousand times as large as the log: they are left to the caller.
    """
    found: list[_Made | MessageColumns | CorruptError] = []
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


class Bodies(NamedTuple):
    """Plain bodies of some rows: body n is `lengths[n]` bytes from `positions[n]` on, of `unpacked` where
    `is_unpacked` says so and of the batch's window elsewhere. `errors`: why a body is as stored, by its place."""

    window: Bytes
    unpacked: Bytes
    positions: Int32s
    lengths: Int32s
    is_unpacked: Flags
    errors: dict[int, str]


def is_compressed(batch: MessageColumns) -> Flags:
    """Which bodies are stored compressed."""
    flags: Flags = (batch.sys_flag & SYS_FLAG_COMPRESSED) != 0
    return flags


def plain_bodies(batch: MessageColumns, limit: int) -> tuple[Bodies, int]:
    """The bodies of the first rows, and of how many: as many as unpack to less than about `limit` bytes together.

    (StoredMessage.plain_body, rmqctl's message_json: what cannot be unpacked is given as stored.)
    """
    assert batch.window is not None
    compressed = np.flatnonzero(is_compressed(batch))
    positions, lengths = batch.body_position, batch.body_length
    if len(compressed):
        positions, lengths = positions.copy(), lengths.copy()
    is_unpacked = np.zeros(batch.rows, np.bool_)
    errors: dict[int, str] = {}
    parts: list[bytes] = []
    total, taken = 0, batch.rows
    for place in compressed.tolist():
        if total >= limit:
            taken = place
            break
        kind = compression_type(int(batch.sys_flag[place]))
        assert kind is not None
        try:
            part = decompress(bytes(batch.body(place)), kind)
        except (CorruptError, UnsupportedError) as error:
            errors[place] = error.message
            continue
        positions[place], lengths[place], is_unpacked[place] = total, len(part), True
        parts.append(part)
        total += len(part)
    unpacked = np.frombuffer(b"".join(parts), np.uint8) if total else np.empty(0, np.uint8)
    made = Bodies(batch.window, unpacked, positions[:taken], lengths[:taken], is_unpacked[:taken], errors)
    return made, taken


def unpacked_parts(
    batch: MessageColumns, limit: int, *, needs_bodies: bool
) -> Iterator[tuple[MessageColumns, Bodies | None]]:
    """Yield the rows in parts whose bodies unpack to about `limit` bytes; all of them, without bodies, if none are
    needed."""
    left = batch
    while left.rows:
        part, plain = left, None
        if needs_bodies:
            plain, taken = plain_bodies(left, limit)
            part = left if taken == left.rows else left.take(slice(taken))
        yield part, plain
        left = left.take(slice(part.rows, None))


def unread_bodies(batch: MessageColumns, made: Bodies) -> Iterator[CorruptError]:
    """Yield what to report of bodies that could not be unpacked; clients unpack no empty body."""
    for row, why in sorted(made.errors.items()):
        if batch.body_length[row]:
            yield not_unpacked(why, int(batch.physical_offset[row]))


def not_unpacked(why: str, place: int | None) -> CorruptError:
    """What to report of a body, the message at physical offset `place`."""
    return CorruptError(f"the body does not unpack: {why}", physical_offset=place)
