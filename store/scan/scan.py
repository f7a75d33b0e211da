"""The scan: messages of the commitlog as record batches, in the order they were stored, past damage."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from rmqctl.formats.compression import decompress
from rmqctl.formats.errors import CorruptError, UnsupportedError
from rmqctl.formats.layouts import COMPRESSION_MASK, COMPRESSION_SHIFT, SYS_FLAG_COMPRESSED, TRANSACTION_MASK
from rmqctl.formats.properties import TRANSACTION_NAMES, compression_name, compression_type
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import Bytes, ColumnRecord, Flags, Int32s, Int64s, MessageColumns, TopicIds, start_of
from rmqctl.store.log.parallel import walk_parallel
from rmqctl.store.log.plain_walk import OnRemoved, RemovedMeanwhile, SayRemoved, in_sentences
from rmqctl.store.log.walk import Damage, Progress
from rmqctl.store.native.tables import Columns
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.query import damage_error
from rmqctl.store.read.row_filter import RowChooser
from rmqctl.store.read.select import OnDamage
from rmqctl.store.scan import schema as hosts
from rmqctl.store.scan.property_engine import property_columns
from rmqctl.store.scan.schema import (
    COLUMNS,
    PropertyColumns,
    PropertyParts,
    Texts,
    arrow_schema,
    bitmap,
    column_names,
    needed,
    number_array,
    require_pyarrow,
    texts,
    words_at,
)

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
        self._maker: BatchMaker = BatchMaker(names, views)

    @property
    def schema(self) -> pa.Schema:
        """That of the batches."""
        return self._maker.schema

    def batches(
        self, on_damage: OnDamage | None = None, progress: Progress | None = None, tell: SayRemoved | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
        """The batches, none of them empty. Damaged spans are told to `on_damage` and passed; without it the first of
        them is raised in its place. `progress` is told the bytes passed. `tell` gets a sentence for what is removed
        before it was read (removed_meanwhile.py)."""
        file = self._log.find(self._begin)
        start = file.start_offset if file is not None else self._begin
        span = LogRange(self._begin, self._end, start)
        yield from scanned(
            self._log,
            span,
            self._groups,
            self._chooser,
            self._maker,
            on_damage,
            progress,
            in_sentences(tell),
            threads=self._threads,
        )


def scanned(
    log: MappedFileQueue,
    span: LogRange,
    groups: Columns,
    chooser: Chooser,
    maker: Maker,
    on_damage: OnDamage | None = None,
    progress: Progress | None = None,
    on_removed: OnRemoved | None = None,
    *,
    threads: int = _THREADS,
) -> Generator[pa.RecordBatch, None, None]:
    """What `maker` makes of the messages of a range that `chooser` means, some pieces at a time. `groups`: what both
    need of the walk. The rest is as in `Scan.batches`."""

    def made(records: Iterator[ColumnRecord]) -> _Piece:
        return _made(records, span.begin, chooser, maker)

    removed = RemovedMeanwhile(log, max(span.start, span.begin), span.end, on_removed or in_sentences(None))
    pieces = walk_parallel(
        log,
        made,
        span.start,
        span.end,
        threads=threads,
        columns=groups or Columns.HEAD,  # a walk without any columns has no row numbers to choose by
        topics=TopicIds(),
        progress=progress,
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
                    if on_damage is None:
                        raise one
                    on_damage(one)
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


# Body columns: views of the bodies in the batch's own memory; what producers compressed is unpacked.

# what a view holds itself: its length, then either all of a short text, or four bytes of it, a buffer and an offset
_INLINE = 12
_PREFIX = 4
_VIEW = 16


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


def body_array(bodies: Bodies, views: bool) -> pa.Array:
    """The bodies as `binary_view`, or copied as `binary`."""
    rows = len(bodies.lengths)
    held = np.zeros((rows, _VIEW), np.uint8)
    words = held.view(np.int32)
    words[:, 0] = bodies.lengths
    words[:, 2] = bodies.is_unpacked
    words[:, 3] = bodies.positions
    if not bodies.is_unpacked.any() and rows and bodies.lengths.min() > _INLINE:
        words[:, 1] = words_at(bodies.window, bodies.positions).view(np.int32)
        return _held(bodies, held, views)
    for data, of in ((bodies.window, ~bodies.is_unpacked), (bodies.unpacked, bodies.is_unpacked)):
        long = np.flatnonzero(of & (bodies.lengths > _INLINE))
        words[long, 1] = words_at(data, bodies.positions[long]).view(np.int32)
        short = np.flatnonzero(of & (bodies.lengths <= _INLINE))
        held[short, _PREFIX:] = _inlined(data, bodies.positions[short], bodies.lengths[short])
    return _held(bodies, held, views)


def _held(bodies: Bodies, held: Bytes, views: bool) -> pa.Array:
    buffers = [None, *map(pa.py_buffer, (held, np.ascontiguousarray(bodies.window), bodies.unpacked))]
    array = pa.Array.from_buffers(pa.binary_view(), len(held), buffers)
    return array if views else array.cast(pa.binary())


def _inlined(data: Bytes, positions: Int32s, lengths: Int32s) -> Bytes:
    """Texts of at most _INLINE bytes, a row of as many each, filled with zeros."""
    places = np.arange(_INLINE)
    there = places < lengths[:, np.newaxis]
    # what is not there may lie behind the end of the data
    found = np.where(there, positions[:, np.newaxis] + places, 0)
    return np.where(there, data[found], 0).astype(np.uint8) if len(data) else np.zeros(there.shape, np.uint8)


def error_array(bodies: Bodies) -> pa.Array:
    """Why bodies are as stored, null for those that are not."""
    if not bodies.errors:
        return pa.nulls(len(bodies.lengths), pa.string())
    return pa.array([bodies.errors.get(place) for place in range(len(bodies.lengths))], pa.string())


def stored_bodies(batch: MessageColumns) -> pa.Array:
    """Compressed bodies as stored, null for plain ones."""
    compressed = is_compressed(batch)
    if not compressed.any():
        return pa.nulls(batch.rows, pa.binary())
    ends = np.cumsum(np.where(compressed, batch.body_length, 0), dtype=np.int32)
    parts = b"".join(map(batch.body, np.flatnonzero(compressed).tolist()))
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    return texts(Texts(offsets, np.frombuffer(parts or b"\0", np.uint8), compressed), pa.binary())


def unread_bodies(batch: MessageColumns, made: Bodies) -> Iterator[CorruptError]:
    """Yield what to report of bodies that could not be unpacked; clients unpack no empty body."""
    for row, why in sorted(made.errors.items()):
        if batch.body_length[row]:
            yield _not_unpacked(why, int(batch.physical_offset[row]))


def _not_unpacked(why: str, place: int | None) -> CorruptError:
    return CorruptError(f"the body does not unpack: {why}", physical_offset=place)


def bodies_not_unpacked(batch: pa.RecordBatch) -> Iterator[CorruptError]:
    """Yield what to report of the rows of a batch whose bodies could not be unpacked; clients unpack no empty body."""
    if "body_error" not in batch.schema.names:
        return
    errors = batch.column("body_error")
    if errors.null_count == len(errors):
        return
    places = batch.column("physical_offset") if "physical_offset" in batch.schema.names else None
    stored = batch.column("body") if "body" in batch.schema.names else None
    for row in np.flatnonzero(errors.is_valid()).tolist():
        if stored is None or len(stored[row].as_py()):
            place = None if places is None else places[row].as_py()
            yield _not_unpacked(errors[row].as_py(), place)


# A run of messages as Arrow record batches: each column asked for, and no other, is made from the walk's columns.

# Bodies are unpacked until they are this many bytes, then another batch begins: a bomb fills no memory.
UNPACKED_BYTES = 32 * 1024 * 1024
_BODY_COLUMNS = frozenset(("body", "body_size", "body_error"))
_TRANSACTION_SHIFT = 2
_KINDS = (COMPRESSION_MASK >> COMPRESSION_SHIFT) + 1
_OF_PROPERTIES = {
    "unique_key": PropertyParts.UNIQUE_KEY,
    "tags": PropertyParts.TAGS,
    "keys": PropertyParts.KEYS,
    "properties": PropertyParts.MAP,
    "stored_properties": PropertyParts.STORED,
}


class BatchMaker:
    """Makes batches of one schema. `views`: bodies stay where they are, in memory that the batch keeps."""

    def __init__(self, names: Sequence[str], views: bool, on_damage: OnDamage | None = None) -> None:
        """`names` as of `schema.column_names`; `on_damage` gets bodies in the column `body` that do not unpack."""
        self._on_damage = on_damage if "body" in names else None
        self.names = tuple(names)
        self.views = views
        self.schema = arrow_schema(names, views)
        self.needs_bodies = not _BODY_COLUMNS.isdisjoint(names)
        self.wanted = PropertyParts(sum(flag for name, flag in _OF_PROPERTIES.items() if name in names))
        self._topic_names: tuple[TopicIds | None, pa.Array] = (None, pa.array([], pa.string()))

    def batches(self, batch: MessageColumns) -> Iterator[pa.RecordBatch]:
        """The messages as record batches, in order. Nearly always one batch."""
        left = batch
        while left.rows:
            part, unpacked = left, None
            if self.needs_bodies:
                unpacked, taken = plain_bodies(left, UNPACKED_BYTES)
                part = left if taken == left.rows else left.take(slice(taken))
                if self._on_damage is not None and unpacked is not None:
                    for error in unread_bodies(part, unpacked):
                        self._on_damage(error)
            made = _Rows(self, part, unpacked)
            arrays = [made.column(name) for name in self.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            left = left.take(slice(part.rows, None))

    def topic_names(self, topics: TopicIds) -> pa.Array:
        """The topics met so far, as a dictionary; one array for many batches."""
        of, names = self._topic_names
        if of is not topics or len(names) != len(topics.names):
            names = pa.array(topics.names[: len(topics.names)], pa.string())
            self._topic_names = topics, names
        return names


class _Rows:
    """The rows of one record batch, column by column."""

    def __init__(self, maker: BatchMaker, batch: MessageColumns, unpacked: Bodies | None) -> None:
        self._maker = maker
        self.batch = batch
        self._unpacked = unpacked

    def column(self, name: str) -> pa.Array:
        """A column by name."""
        make = _MAKERS.get(name)
        if make is not None:
            return make(self)
        return number_array(getattr(self.batch, name), self._maker.schema.field(name).type)

    @property
    def bodies(self) -> Bodies:
        assert self._unpacked is not None
        return self._unpacked

    @cached_property
    def properties(self) -> PropertyColumns:
        return property_columns(
            self.batch, self.batch.property_position, self.batch.property_length, self._maker.wanted
        )

    def topic(self) -> pa.Array:
        names = self._maker.topic_names(self.batch.topics)
        return pa.DictionaryArray.from_arrays(number_array(self.batch.topic_id, pa.int32()), names)

    def transaction(self) -> pa.Array:
        codes = (self.batch.sys_flag & TRANSACTION_MASK) >> _TRANSACTION_SHIFT
        return pa.DictionaryArray.from_arrays(number_array(codes.astype(np.int8), pa.int8()), _TRANSACTIONS)

    def compression(self) -> pa.Array:
        flags = self.batch.sys_flag
        codes = _COMPRESSION_OF_KIND[(flags & COMPRESSION_MASK) >> COMPRESSION_SHIFT]
        present = bitmap((flags & SYS_FLAG_COMPRESSED) != 0)
        indices = pa.Array.from_buffers(pa.int8(), len(codes), [present, pa.py_buffer(codes)])
        return pa.DictionaryArray.from_arrays(indices, _COMPRESSIONS)

    def crc_ok(self) -> pa.Array:
        # the walk yields no message whose CRC does not hold
        return numbers_of_true(self.batch.rows)

    def keys(self) -> pa.Array:
        made = self.properties
        return pa.ListArray.from_arrays(number_array(made.key_offsets, pa.int32()), texts(made.keys))

    def map(self) -> pa.Array:
        made = self.properties
        offsets = number_array(made.map_offsets, pa.int32())
        return pa.MapArray.from_arrays(offsets, texts(made.map_names), texts(made.map_values))

    @property
    def views(self) -> bool:
        return self._maker.views


def numbers_of_true(count: int) -> pa.Array:
    """`count` times true."""
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(b"\xff" * (-(-count // 8)))])


_TRANSACTIONS = pa.array([TRANSACTION_NAMES[number << _TRANSACTION_SHIFT] for number in range(4)], pa.string())
_KIND_NAMES = [str(compression_name(SYS_FLAG_COMPRESSED | number << COMPRESSION_SHIFT)) for number in range(_KINDS)]
_DISTINCT = list(dict.fromkeys(_KIND_NAMES))
_COMPRESSIONS = pa.array(_DISTINCT, pa.string())
_COMPRESSION_OF_KIND = np.array([_DISTINCT.index(name) for name in _KIND_NAMES], np.int8)

_MAKERS: dict[str, Callable[[_Rows], pa.Array]] = {
    "msg_id": lambda of: hosts.message_ids(of.batch),
    "store_host": lambda of: hosts.host_texts(of.batch, "store"),
    "born_host": lambda of: hosts.host_texts(of.batch, "born"),
    "topic": _Rows.topic,
    "transaction": _Rows.transaction,
    "compression": _Rows.compression,
    "crc_ok": _Rows.crc_ok,
    "unique_key": lambda of: texts(of.properties.unique_key),
    "tags": lambda of: texts(of.properties.tags),
    "keys": _Rows.keys,
    "properties": _Rows.map,
    "stored_properties": lambda of: texts(of.properties.stored, pa.binary()),
    "body": lambda of: body_array(of.bodies, of.views),
    "body_size": lambda of: number_array(of.bodies.lengths, pa.int32()),
    "body_error": lambda of: error_array(of.bodies),
    "stored_body": lambda of: stored_bodies(of.batch),
}
assert _MAKERS.keys() <= COLUMNS.keys()
