"""Leaves out parts of the log that a consume queue names as messages of no interest.

No queue is believed to be whole: a message may have no unit at all. So the units of all queues are put together, those
of the queues that are wanted as well as of all others. Each says where a frame begins and ends. What is read is the
rest: frames that wanted queues name, and every byte that no queue names, such as messages that are not dispatched yet,
that lost their units, or never had any (prepared and rolled back ones). A unit counts if no other one names any byte of
its frame, and if the first and the last unit of its queue in the range lead to messages of just this topic, queue and
queue offset: a copy of a queue's folder, what was left from before a truncation, and queues that several topics
share (LMQ) count for nothing. Neither does a unit whose frame touches no other one that a unit names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, INDEX_ENTRY, MESSAGE_MAGIC_V2, TOPIC_LENGTH_V1, TOPIC_LENGTH_V2
from rmqctl.formats.message import LARGEST_HEAD_SIZE, FrameDamage, frame_head
from rmqctl.pipeline.pruning import Indexed
from rmqctl.pipeline.splits import Split, log_parts, split_columns
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.column_walk import ROWS, WINDOW, ByteSpan, Request, span_records
from rmqctl.store.log.columns import ColumnRecord, Flags, Int64s, MessageColumns, TopicIds
from rmqctl.store.log.walk import Damage, walk_files
from rmqctl.store.native.tables import Columns
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, UNIT_SIZE, ConsumeQueue
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.frames import frame_at, store_time_at
from rmqctl.store.read.query import damage_error
from rmqctl.store.read.select import changed_error
from rmqctl.store.scan.batches import BatchMaker
from rmqctl.store.scan.chosen import SCAN_ROWS, SCAN_WINDOW, Chooser
from rmqctl.store.scan.schema import needed
from rmqctl.store.store_files import StoreFiles

SlotsOf = Callable[[str, int], ByteSpan | None]
"""The queue offsets [begin, end) that are wanted of a topic and queue; None for none."""

_UNIT = CONSUMEQUEUE_UNIT.dtype()
_CHUNK_UNITS = 65536
# a disk reads whole pages: less than one is not left out between two spans
_NEAR = 4096
# what it takes to find a place in a queue, and to see whether a unit leads to its own message
_BYTES_A_PLACE = 1024
# reading here and there has to save this much of a walk to be worth it
_WORTH = 0.5


class _Units(NamedTuple):
    """Frames as units name them: where they begin, their bytes, and whether they are wanted."""

    begins: Int64s
    sizes: Int64s
    wanted: Flags


def saves_reading(
    files: StoreFiles, slots_of: SlotsOf, begin: int, end: int, parts: int, entries: int = 0, share: float = 1
) -> bool:
    """Whether it takes much less to read units and what they leave over of [begin, end) than to walk it.

    By the sizes of the queues: nothing is read but a few units of each. `parts`: into how many the range is cut. With
    `entries` of the index, a `share` of the messages that it knows is wanted, and all others.
    """
    units = wanted = queues = 0
    for queue in _queues(files) or ():
        first, stop = _slots_between(queue, begin, end)
        queues += 1
        units += stop - first
        asked = slots_of(queue.topic, queue.queue_id)
        if asked is not None:
            wanted += max(0, min(stop, asked[1]) - max(first, asked[0]))
    if not units:
        return False
    frame = (end - begin) / units
    cost: float = units * UNIT_SIZE + queues * parts * 2 * _BYTES_A_PLACE
    if entries:
        cost += entries * INDEX_ENTRY.size
        wanted = min(wanted, max(0, units - entries) + int(wanted * share))
    cost += wanted * frame
    return cost < _WORTH * (end - begin)


def spans_to_read(
    files: StoreFiles, begin: int, end: int, slots_of: SlotsOf, indexed: Sequence[Indexed] = ()
) -> list[ByteSpan] | None:
    """What has to be read of [begin, end) of the log, which begins with a file, in order; None for all of it.

    Where a span begins, a file does, or a frame that a unit names ends. `indexed`: what the index knows besides.
    """
    queues = _queues(files)
    found = None if queues is None else _joined(_units_of(files.log, queues, begin, end, slots_of))
    if found is None:
        return None
    for known in indexed:
        found.wanted[:] &= known.may_be_meant(found.begins)
    passed = found.begins[~found.wanted]
    ends = found.begins + found.sizes
    passed_ends = ends[~found.wanted]
    spans: list[ByteSpan] = []
    parts = [part for part in log_parts(files) if part.file is not None]
    for part in parts:
        first, stop = max(part.begin, begin), min(part.end, end)
        inside = (passed >= first) & (passed_ends <= stop)
        # from the end of each frame that is passed over to the beginning of the next one
        lefts = np.concatenate([np.array([first], np.int64), passed_ends[inside]])
        rights = np.concatenate([passed[inside], np.array([stop], np.int64)])
        between = zip(lefts[lefts < rights].tolist(), rights[lefts < rights].tolist(), strict=True)
        of_file = list(_together(between))
        if of_file:
            of_file[-1:] = _tail_apart(of_file[-1], ends[(ends > first) & (ends < stop)])
        spans += of_file
    # what lies behind the last of these frames in its file, such as empty space, is walked in any case
    tails = {part.end for part in parts}
    read = sum(stop - first for first, stop in spans if stop not in tails)
    return spans if read < _WORTH * (read + int(found.sizes[~found.wanted].sum())) else None


def _tail_apart(span: ByteSpan, ends: Int64s) -> list[ByteSpan]:
    """Separate what follows the last frame that ends in a span: its reader sees at once that it is empty."""
    last = int(ends.max(initial=span[0]))
    return [(span[0], last), (last, span[1])] if span[0] < last < span[1] else [span]


def _together(spans: Iterator[ByteSpan]) -> Iterator[ByteSpan]:
    """Near ones as one."""
    joined: ByteSpan | None = None
    for begin, end in spans:
        if joined is not None and begin - joined[1] >= _NEAR:
            yield joined
            joined = None
        joined = (begin if joined is None else joined[0], end)
    if joined is not None:
        yield joined


def span_columns(
    files: StoreFiles,
    split: Split,
    spans: Sequence[ByteSpan],
    *,
    columns: Columns = Columns.DISPATCH,
    window: int = WINDOW,
    rows: int = ROWS,
) -> Iterator[ColumnRecord]:
    """The records of a split that start in `spans`, physical offsets, each of one file; see `spans.span_records`.

    Damage between files is passed over.
    """
    request = Request(files.log, TopicIds(), columns, 0, split.end, None, window, rows)

    def one_file(file: MappedFile, start: int, end: int) -> Iterator[ColumnRecord]:
        first = file.start_offset
        inside = [
            (begin - first, min(stop - first, end))
            for begin, stop in spans
            if first <= begin < first + end and begin < split.end and stop > split.begin
        ]
        return span_records(request, file, inside, end)

    if not spans:
        return
    for record in walk_files(files.log, spans[0][0], one_file):
        if isinstance(record, MessageColumns):
            # a span may reach over the split's edges
            record = _between(record, split.begin, split.end)  # noqa: PLW2901
            if not record.rows:
                continue
        elif record.physical_offset >= split.end:
            return
        elif isinstance(record, Damage) and record.end <= split.begin:
            continue
        yield record


def _between(batch: MessageColumns, begin: int, end: int) -> MessageColumns:
    first, stop = np.searchsorted(batch.physical_offset, np.array([begin, end], np.int64)).tolist()
    return batch if (first, stop) == (0, batch.rows) else batch.take(slice(first, stop))


def sure_places(files: StoreFiles, places: Sequence[int]) -> tuple[list[ByteSpan], list[int]]:
    """Frames at some of the physical offsets that a queue's unit names as well, and the places that are in doubt.

    Places without a good message are in neither result.
    """
    sure: list[ByteSpan] = []
    doubtful: list[int] = []
    for place in places:
        if store_time_at(files.log, place) is None:
            continue  # not even a head
        try:
            message = frame_at(files.log, place)[1]
        except (CorruptError, NotFoundError):
            continue
        unit = None
        try:
            queue = files.queues.find(message.topic, message.queue_id) if message.queue_id >= 0 else None
            unit = queue.unit(message.queue_offset) if queue is not None else None
        except RmqctlError:
            unit = None  # in a RocksDB, or not to be read
        if unit is not None and (unit.physical_offset, unit.size) == (place, message.total_size):
            sure.append((place, message.end))
        else:
            doubtful.append(place)
    return sure, doubtful


def _queues(files: StoreFiles) -> list[AnyConsumeQueue] | None:
    """Return all queues; None if any error prevents reading them: then they exclude nothing."""
    try:
        return files.queues.all()
    except RmqctlError:
        return None


def _units_of(
    log: MappedFileQueue, queues: Sequence[AnyConsumeQueue], begin: int, end: int, slots_of: SlotsOf
) -> Iterator[_Units]:
    """What each queue that counts names in [begin, end)."""
    for queue in queues:
        try:
            slots, begins, sizes = _written(queue, begin, end)
        except RmqctlError:
            continue  # what cannot be read names nothing
        if not len(slots):
            continue
        ends = {(int(slots[at]), int(begins[at]), int(sizes[at])) for at in (0, -1)}
        if not all(_is_own(log, queue, *one) for one in ends):
            continue
        asked = slots_of(queue.topic, queue.queue_id) or (0, 0)
        wanted: Flags = (slots < asked[1]) & (slots >= asked[0])
        is_in_place = isinstance(queue, ConsumeQueue) and bool(
            (np.diff(slots) == 1).all() and (np.diff(begins) > 0).all()
        )
        if asked[0] < asked[1] and not is_in_place:
            # a unit of a batch has several queue offsets, and next to a hole one may stand in the wrong slot
            wanted[:] = True
        yield _Units(begins, sizes, wanted)


def _written(queue: AnyConsumeQueue, begin: int, end: int) -> tuple[Int64s, Int64s, Int64s]:
    """Queue offsets of the units that lead into [begin, end), where they lead to, and their sizes."""
    if not isinstance(queue, ConsumeQueue):
        units = [unit for unit in queue.units(0) if begin <= unit.physical_offset < end]
        table = np.array([(one.queue_offset, one.physical_offset, one.size) for one in units], np.int64).reshape(-1, 3)
        return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()
    slot, stop = _slots_between(queue, begin, end)
    slots, begins, sizes = [], [], []
    while slot < stop:
        data = queue.files.read(slot * UNIT_SIZE, min(stop - slot, _CHUNK_UNITS) * UNIT_SIZE)
        units_here = np.frombuffer(data[: len(data) - len(data) % UNIT_SIZE], _UNIT)
        if not len(units_here):
            break
        offsets, lengths = units_here["physical_offset"].astype(np.int64), units_here["size"].astype(np.int64)
        rows = np.flatnonzero((offsets >= begin) & (offsets < end) & (lengths > 0) & (lengths < PLACEHOLDER_SIZE))
        slots.append(slot + rows)
        begins.append(offsets[rows])
        sizes.append(lengths[rows])
        slot += len(units_here)
    if not slots:
        return (none := np.empty(0, np.int64)), none, none
    return np.concatenate(slots), np.concatenate(begins), np.concatenate(sizes)


def _slots_between(queue: AnyConsumeQueue, begin: int, end: int) -> tuple[int, int]:
    """Queue offsets [first, stop) of units that lead into [begin, end), by a binary search: units rise. Where they do
    not, some are not found, and what they lead to is read."""
    if not isinstance(queue, ConsumeQueue):
        units = [unit for unit in queue.units(0) if begin <= unit.physical_offset < end]
        return (units[0].queue_offset, units[-1].next_queue_offset) if units else (0, 0)
    files = queue.files.files
    if not files:
        return 0, 0
    low, high = queue.first_slot, files[-1].end_offset // UNIT_SIZE
    first = _first_slot(queue, low, high, begin)
    return first, _first_slot(queue, first, high, end)


def _first_slot(queue: ConsumeQueue, low: int, high: int, offset: int) -> int:
    """The first slot in [low, high) whose unit leads to physical offset `offset` or behind it, or is not written."""
    middle = low  # nothing of most queues has expired, and a range that is asked for begins with the log
    while low < high:
        unit = queue.unit(middle)
        if unit is None or (unit.size == 0 and unit.physical_offset == 0) or unit.physical_offset >= offset:
            high = middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return low


def _is_own(log: MappedFileQueue, queue: AnyConsumeQueue, slot: int, begin: int, size: int) -> bool:
    """Whether a unit leads to a message of just the queue, place and size that it says. Its body is not read."""
    head = frame_head(log.read(begin, LARGEST_HEAD_SIZE))
    if head is None or not head.is_message or not 0 <= head.body_length < size:
        return False
    topic = queue.topic.encode("utf-8")
    length = TOPIC_LENGTH_V2 if head.magic_code == MESSAGE_MAGIC_V2 else TOPIC_LENGTH_V1
    there = head.total_size, head.physical_offset, head.queue_id, head.queue_offset
    said = log.read(begin + head.size + head.body_length, length.size + len(topic))
    return there == (size, begin, queue.queue_id, slot) and said == length.struct.pack(len(topic)) + topic


def _joined(parts: Iterator[_Units]) -> _Units | None:
    """All units in the order of the log, without those whose frames have bytes in common; None if there are none."""
    found = list(parts)
    if not found:
        return None
    begins, sizes, wanted = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = np.argsort(begins, kind="stable")
    begins, sizes, wanted = begins[order], sizes[order], wanted[order]
    reach = np.maximum.accumulate(begins + sizes)
    is_apart = np.ones(len(begins), np.bool_)
    is_apart[1:] = begins[1:] >= reach[:-1]
    # neither does it begin in others, nor the next one in it
    alone = is_apart.copy()
    alone[:-1] &= is_apart[1:]
    begins, sizes, wanted = begins[alone], sizes[alone], wanted[alone]
    meets = begins[1:] == begins[:-1] + sizes[:-1]
    # what neither follows another frame nor is followed by one may as well be a number that means nothing
    sure = np.zeros(len(begins), np.bool_)
    sure[1:] |= meets
    sure[:-1] |= meets
    return _Units(begins[sure], sizes[sure], wanted[sure])


# A split as record batches: what `rmqctl.store.scan` makes of a whole log, for one task.


def split_batches(
    files: StoreFiles,
    split: Split,
    names: Sequence[str],
    chooser: Chooser,
    events: Events = UNHEARD,
    on_body: Callable[[CorruptError], None] | None = None,
    *,
    views: bool = False,
    spans: Sequence[ByteSpan] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches of the split's messages that `chooser` means, none empty, in the log's order, with columns `names` of
    `rmqctl.store.scan.schema`.

    Damaged spans are reported to `on_damage` and skipped. Bodies that do not unpack are given as stored, and reported
    to `on_body`. `views`: see `rmqctl.store.scan.scan.Scan`. `spans`: the only ones to read, see
    `named.span_columns`; None: all is walked.
    """
    maker = BatchMaker(names, views, on_body)
    # a walk without any columns has no row numbers to choose by
    groups = needed(names) | chooser.needs or Columns.HEAD
    if spans is None:
        records = split_columns(files, split, columns=groups, window=SCAN_WINDOW, rows=SCAN_ROWS)
    else:
        records = span_columns(files, split, spans, columns=groups, window=SCAN_WINDOW, rows=SCAN_ROWS)
    for record in records:
        if isinstance(record, Damage):
            events.damaged(damage_error(record))
        if not isinstance(record, MessageColumns):
            continue
        try:
            rows = chooser.rows(record)
        except FrameDamage as damage:
            events.damaged(changed_error(record, 0, damage))
            continue
        yield from maker.batches(record.take(rows))
