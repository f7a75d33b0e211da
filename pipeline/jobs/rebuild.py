"""Rebuilds queues and index by tasks: one pass over the log, one over what it implies, then a swap."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats.errors import UnreadableError
from rmqctl.pipeline.engine import Engine, attempt, scratch_folder
from rmqctl.pipeline.exchange import ShuffleReader, ShuffleWriter, bucket_of
from rmqctl.pipeline.splits import SPLIT_SIZE, Split, open_in_task, run_over_splits, split_runs
from rmqctl.store.compare.lives import Lives, LiveSlots, goes_back, held_by, superseded
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.io import flush_tree
from rmqctl.store.files.layout import topic_directory
from rmqctl.store.files.reading import Descriptors, is_directory
from rmqctl.store.index.index_file import Geometry
from rmqctl.store.index.index_service import index_file_name_after
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.plan import Install, Plan
from rmqctl.store.log.implied import UNIT, Digest, QueueRun, Run, SlotTarget, route
from rmqctl.store.log.survey import new_survey
from rmqctl.store.log.walk import Blank, Damage, Empty
from rmqctl.store.options import ChangeOptions, Events
from rmqctl.store.queues.consumequeue import BatchConsumeQueue, QueueUnit
from rmqctl.store.queues.dispatch import FurtherSlots, QueueSlot
from rmqctl.store.queues.queue_table import AnyConsumeQueue, QueueTable
from rmqctl.store.recover.index import IndexBuilder
from rmqctl.store.recover.rebuild import MadeQueue, QueueWriter, RebuildReport, finish_queues, plan_index, queue_root
from rmqctl.store.recover.rebuild import rebuild as rebuild_in_process
from rmqctl.store.store_files import StoreFiles

# A rebuild's workers: what a split implies is put aside, sorted by queue; then queues and index files are written.
#
# What decides about slots, keys and conflicts is the store's own code (`log_runs.route`, `QueueWriter`,
# `IndexBuilder`), fed in the order of the log, so that the files are those of `rmqctl.store.recover.rebuild`, byte
# for byte.

_Queue = tuple[str, int]

# single units that are held before they are put aside, and index keys that are read at once
_HELD = 1 << 16
_KEYS_AT_ONCE = 1 << 20
_HASH, _NUMBER = np.dtype("<i4"), np.dtype("<i8")
_UNIT_FIELDS = len(QueueUnit._fields)
# behind the fields of a single unit: what `FurtherSlots` asks of its slot
_SLOT_FIELDS = _UNIT_FIELDS + 3


class RebuildOrder(NamedTuple):
    """What all tasks of a rebuild know. Picklable. Sizes of files in bytes, delays in ms.

    `store` and `config`: for tasks that have to see what the present queues hold.
    `with_tags`: the index gets entries of tags.

    `topics`: None for all. `batch_queues`: those that have 46-byte units. `scratch`: a folder that all machines see.
    """

    delay_levels: tuple[int, ...]
    with_queues: bool
    with_index: bool
    with_tags: bool
    topics: frozenset[str] | None
    batch_queues: frozenset[_Queue]
    queue_file_size: int
    batch_file_size: int
    geometry: Geometry
    scratch: str
    buckets: int
    store: str
    config: StoreConfig


class Passed(NamedTuple):
    """A run of messages, as the survey of the log wants to know of it."""

    physical_offset: int
    end: int
    messages: int
    last_message_offset: int
    last_store_timestamp: int


class Implied(NamedTuple):
    """What came of a split. `keys`: index entries. `aside`: what is put aside. Units are counted by queue when they are
    written, which is less for the driver to hear of."""

    records: list[Passed | Blank | Empty | Damage]
    unplaceable: int
    keys: int
    aside: str


class KeyRange(NamedTuple):
    """The keys [begin, end) of those that a split has put aside."""

    aside: str
    begin: int
    end: int


def imply(order: RebuildOrder, files: StoreFiles, split: Split) -> Implied:
    """Task: walk a split of a store and put aside what its messages imply."""
    digest = Digest(order.delay_levels, queues=order.with_queues, keys=order.with_index, tags=order.with_tags)
    records: list[Passed | Blank | Empty | Damage] = []
    unplaceable = keys = 0
    runs: list[Run] = []
    aside = _Aside(order)
    try:
        for record in split_runs(files, split, digest):
            if not isinstance(record, Run):
                records.append(record)
                continue
            records.append(Passed(*(getattr(record, name) for name in Passed._fields)))
            unplaceable += record.unplaceable
            keys += len(record.key_hashes)
            runs.append(record)
            if order.with_queues:
                route(record, files.log, order.delay_levels, aside)
        return Implied(records, unplaceable, keys, aside.finish(runs))
    finally:
        aside.close()


class _Aside:
    """Takes the units of a split and puts them aside by queue, in the order of the log."""

    def __init__(self, order: RebuildOrder) -> None:
        self._order = order
        self._single: dict[_Queue, list[QueueSlot]] = {}
        self._held = 0
        # one bucket more, for the keys of the index
        self._writer = ShuffleWriter(attempt(Path(order.scratch), "implied"), order.buckets + 1)

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether the store has this queue with 46-byte units."""
        return (topic, queue_id) in self._order.batch_queues

    def add(self, slot: QueueSlot) -> None:
        """The log implies this slot."""
        queue = slot.topic, slot.queue_id
        if not self._is_wanted(queue):
            return
        self._single.setdefault(queue, []).append(slot)
        self._held += 1
        if self._held >= _HELD:
            self._put_singles()

    def add_units(self, run: QueueRun) -> None:
        """The log implies these units of a queue with 20-byte units."""
        queue = run.topic, run.queue_id
        if not self._is_wanted(queue):
            return
        self._put_single(queue)
        slots = np.ascontiguousarray(run.slots, _NUMBER)
        self._put(queue, [False, len(slots)], slots, np.ascontiguousarray(run.units))

    def _is_wanted(self, queue: _Queue) -> bool:
        return self._order.topics is None or queue[0] in self._order.topics

    def _put_singles(self) -> None:
        for queue in list(self._single):
            self._put_single(queue)

    def _put_single(self, queue: _Queue) -> None:
        slots = self._single.pop(queue, [])
        if slots:
            self._held -= len(slots)
            rows = [(*slot.unit, slot.is_further, slot.listed, slot.is_copy) for slot in slots]
            # whether a queue is one of batches its first unit decides
            self._put(queue, [slots[0].is_batch, 0], np.array(rows, _NUMBER))

    def _put(self, queue: _Queue, rest: Sequence[object], *arrays: Any) -> None:
        topic, queue_id = queue
        bucket = bucket_of(f"{queue_id} {topic}", self._order.buckets)
        self._writer.put(bucket, [topic, queue_id, *rest], [array.tobytes() for array in arrays])

    def finish(self, runs: Sequence[Run]) -> str:
        """Everything is on the disk, the keys of `runs` too."""
        self._put_singles()
        if runs:
            hashes = np.concatenate([run.key_hashes for run in runs]).astype(_HASH)
            offsets = np.concatenate([run.key_offsets for run in runs]).astype(_NUMBER)
            timestamps = np.concatenate([run.key_timestamps for run in runs]).astype(_NUMBER)
            data = [array.tobytes() for array in (hashes, offsets, timestamps)]
            self._writer.put(self._order.buckets, len(hashes), data)
        self._writer.finish()
        return self._writer.path.name

    def close(self) -> None:
        """Let go of the file."""
        self._writer.close()


def write_queues(order: RebuildOrder, asides: Sequence[str], bucket: int) -> list[MadeQueue]:
    """Task: write the queues of a bucket from what all splits have put aside, in their order."""
    scratch = Path(order.scratch)
    folder = attempt(scratch, "queues")
    found: dict[_Queue, list[tuple[ShuffleReader, list[Any], int, int]]] = {}
    made = []
    with Descriptors() as descriptors, _StoreQueues(order) as queues:
        for name in asides:
            reader = ShuffleReader(scratch / name, order.buckets + 1, descriptors)
            for (topic, queue_id, *rest), position, length in reader.entries(bucket):
                found.setdefault((topic, queue_id), []).append((reader, rest, position, length))
        for queue in sorted(found):
            made.append(_written(order, folder, queue, found.pop(queue), queues))
    if is_directory(folder):
        flush_tree(folder)
    return made


_Entries = Sequence[tuple[ShuffleReader, list[Any], int, int]]


class _StoreQueues(contextlib.ExitStack):
    """The store's queues as they are, for a task: the store is opened where one of them is asked for."""

    def __init__(self, order: RebuildOrder) -> None:
        super().__init__()
        self._order = order
        self._queues: QueueTable | None = None

    def find(self, topic: str, queue_id: int) -> AnyConsumeQueue | None:
        """Return a queue; None where the store has no such queue."""
        if self._queues is None:
            self._queues = self.enter_context(open_in_task(self._order.store, self._order.config)).queues
        return self._queues.find(topic, queue_id)


def _written(order: RebuildOrder, folder: Path, queue: _Queue, entries: _Entries, queues: _StoreQueues) -> MadeQueue:
    """Write one queue, and once more where its queue offsets go back: that shows only at its end."""
    writing = _Writing(order, folder, queue)
    _pass_on(queue, entries, writing, FurtherSlots(queues.find))
    writer = writing.finish()
    twice = deleted = 0
    if writer.conflicts:
        lives = _lives(queue, writer, queues)
        if lives:
            writer.discard()
            writing = _Writing(order, folder, queue)
            slots = LiveSlots(writing, {queue: lives})
            _pass_on(queue, entries, slots, FurtherSlots(queues.find))
            writer, twice, deleted = writing.finish(), slots.twice, slots.deleted
    path = str(writer.directory.relative_to(folder.parent)) if is_directory(writer.directory) else None
    return MadeQueue(*queue, writer.is_batch, writing.units, writer.conflicts, twice, deleted, path)


def _lives(queue: _Queue, writer: QueueWriter, queues: _StoreQueues) -> Lives:
    """Return what later messages of a queue have superseded, judged by what the store's queue holds now, too."""
    if not goes_back(writer.rows):
        return Lives(())
    return superseded(writer.rows, held_by(queues.find(*queue)))


class _Writing:
    """Writes one queue; its first unit decides whether it is one of batches."""

    def __init__(self, order: RebuildOrder, folder: Path, queue: _Queue) -> None:
        self.units = 0
        self._order, self._folder, self._queue = order, folder, queue
        self._writer: QueueWriter | None = None

    def _writer_of(self, is_batch: bool) -> QueueWriter:
        if self._writer is None:
            order, (topic, queue_id) = self._order, self._queue
            directory = topic_directory(self._folder / queue_root(is_batch), topic) / str(queue_id)
            size = order.batch_file_size if is_batch else order.queue_file_size
            self._writer = QueueWriter(directory, is_batch, size, below=self._folder.parent)
        return self._writer

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether the store has this queue with 46-byte units."""
        return (topic, queue_id) in self._order.batch_queues

    def add(self, slot: QueueSlot) -> None:
        """The log implies this slot."""
        self.units += 1
        self._writer_of(slot.is_batch).add(slot.unit)

    def add_units(self, run: QueueRun) -> None:
        """The log implies these units."""
        self.units += len(run.slots)
        self._writer_of(False).add_units(run.slots, run.units)

    def finish(self) -> QueueWriter:
        """Return the writer, after all units are in its files."""
        writer = self._writer_of(False)
        writer.flush()
        return writer


def _pass_on(queue: _Queue, entries: _Entries, target: SlotTarget, further: FurtherSlots) -> None:
    """Give `target` what all splits have put aside of a queue, in the order of the log."""
    for reader, (is_batch, count), position, length in entries:
        data = reader.read(position, length)
        if count:
            slots = np.frombuffer(data, _NUMBER, count)
            target.add_units(QueueRun(*queue, slots, np.frombuffer(data, UNIT, count, offset=slots.nbytes), None))
            continue
        for fields in np.frombuffer(data, _NUMBER).reshape(-1, _SLOT_FIELDS).tolist():
            is_further, listed, is_copy = fields[_UNIT_FIELDS:]
            unit = QueueUnit(*fields[:_UNIT_FIELDS])
            slot = QueueSlot(*queue, unit, bool(is_batch), bool(is_further), listed, bool(is_copy))
            target.add(further.placed(slot))


def write_index(order: RebuildOrder, ranges: Sequence[KeyRange]) -> str:
    """Task: write one index file from ranges of keys, which fit into it; its path relative to the scratch folder."""
    scratch = Path(order.scratch)
    folder = attempt(scratch, "index")
    io.make_directories(folder, below=scratch)
    builder = IndexBuilder(order.geometry, lambda: folder)
    try:
        with Descriptors() as descriptors:
            for one in ranges:
                keys = Keys(ShuffleReader(scratch / one.aside, order.buckets + 1, descriptors), order.buckets)
                for begin in range(one.begin, one.end, _KEYS_AT_ONCE):
                    builder.add(*keys.read(begin, min(begin + _KEYS_AT_ONCE, one.end)))
        made = builder.finish()
    finally:
        builder.close()
    flush_tree(folder)
    return str(made[0].relative_to(scratch))


class Keys:
    """The index keys that a split has put aside: hashes, physical offsets and store times (ms)."""

    def __init__(self, reader: ShuffleReader, bucket: int) -> None:
        """`bucket`: that of the keys."""
        self._reader = reader
        self._count, self._position = 0, 0
        for count, position, _ in reader.entries(bucket):
            self._count, self._position = count, position

    def read(self, begin: int, end: int) -> Any:
        """The three arrays of the keys [begin, end)."""
        return tuple(self._arrays(begin, end))

    def _arrays(self, begin: int, end: int) -> Iterator[Any]:
        if not 0 <= begin <= end <= self._count:
            raise UnreadableError(f"has {self._count} keys, not {end}")
        position = self._position
        for kind in (_HASH, _NUMBER, _NUMBER):
            size = kind.itemsize
            yield np.frombuffer(self._reader.read(position + begin * size, (end - begin) * size), kind)
            position += self._count * size


# bytes of the log for each bucket of queues: what one task of the second pass writes
_BUCKET = 256 * 1024 * 1024
_MOST_BUCKETS = 1024


def rebuild_with(
    engine: Engine,
    files: StoreFiles,
    change: ChangeOptions = ChangeOptions(),
    *,
    queues: bool = True,
    index: bool = True,
    topics: Sequence[str] | None = None,
    split_size: int = SPLIT_SIZE,
) -> RebuildReport:
    """The `rebuild` of store/recover with the work done by tasks: the same arguments, errors, journal and bytes.

    Staged files are beside the store, in a folder that all machines have to see. A dry run is done in this process.
    """
    work = _Rebuild(engine, split_size)
    return rebuild_in_process(files, change, queues=queues, index=index, topics=topics, work=work)


class _Rebuild:
    """The work of a rebuild, see rmqctl.store.recover.rebuild.RebuildWork."""

    def __init__(self, engine: Engine, split_size: int) -> None:
        self._engine = engine
        self._split_size = split_size

    def __call__(
        self,
        files: StoreFiles,
        journal: Journal,
        plan: Plan,
        with_queues: bool,
        with_index: bool,
        topics: list[str] | None,
        events: Events,
    ) -> RebuildReport:
        report = RebuildReport()
        with scratch_folder(journal.folder / "scratch") as scratch:
            order = _order(files, with_queues, with_index, topics, scratch)
            results = self._imply(files, order, events)
            _survey(files, results, report)
            asides = [result.aside for result in results]
            if with_queues:
                made = self._write_queues(files, order, asides, journal.staging, plan)
                finish_queues(files, made, order.topics, plan, report)
            if with_index:
                report.index_files_rebuilt = self._write_index(files, order, results, journal.staging, plan)
        return report

    def _imply(self, files: StoreFiles, order: RebuildOrder, events: Events) -> list[Implied]:
        task = partial(imply, order)
        return run_over_splits(
            self._engine, "rebuild: reading the log", task, files, split_size=self._split_size, events=events
        )

    def _write_queues(
        self, files: StoreFiles, order: RebuildOrder, asides: Sequence[str], staging: Path, plan: Plan
    ) -> list[MadeQueue]:
        """Write the queues and plan their swaps."""
        task = partial(write_queues, order, asides)
        buckets = self._engine.run("rebuild: writing queues", task, range(order.buckets))
        made = sorted(one for bucket in buckets for one in bucket)
        for one in made:
            if one.directory is not None:
                relative = topic_directory(Path(queue_root(one.is_batch)), one.topic) / str(one.queue_id)
                io.make_directories((staging / relative).parent)
                io.rename(Path(order.scratch, one.directory), staging / relative)
                plan.add(Install(staging / relative, files.layout.root / relative))
        return made

    def _write_index(
        self, files: StoreFiles, order: RebuildOrder, results: Sequence[Implied], staging: Path, plan: Plan
    ) -> int:
        """Write the index files, each with the name that RocketMQ would have given it, and plan the swap; how many."""
        scratch, folder = Path(order.scratch), staging / "index"
        io.make_directories(folder)
        parts = list(key_ranges([(result.aside, result.keys) for result in results], order.geometry.entries - 1))
        written = self._engine.run("rebuild: writing the index", partial(write_index, order), parts)
        name = ""
        with Descriptors() as descriptors:
            for ranges, path in zip(parts, written, strict=True):
                reader = ShuffleReader(scratch / ranges[0].aside, order.buckets + 1, descriptors)
                _, _, timestamps = Keys(reader, order.buckets).read(ranges[0].begin, ranges[0].begin + 1)
                name = index_file_name_after(int(timestamps[0]), name)
                io.rename(scratch / path, folder / name)
        plan.add(plan_index(files, folder, len(written)))
        return len(written)


def key_ranges(asides: Sequence[tuple[str, int]], per_file: int) -> Iterator[list[KeyRange]]:
    """Return for each index file the keys that it gets, from the numbers of keys of the splits: prefix sums, cut."""
    ranges: list[KeyRange] = []
    room = per_file
    for aside, keys in asides:
        begin = 0
        while begin < keys:
            taken = min(room, keys - begin)
            ranges.append(KeyRange(aside, begin, begin + taken))
            begin, room = begin + taken, room - taken
            if not room:
                yield ranges
                ranges, room = [], per_file
    if ranges:
        yield ranges


def _order(
    files: StoreFiles, with_queues: bool, with_index: bool, topics: list[str] | None, scratch: Path
) -> RebuildOrder:
    length = max(0, files.log.max_offset - max(files.log.min_offset, 0))
    queues = files.queues
    batch_queues = frozenset(
        (queue.topic, queue.queue_id)
        for queue in (queues.all() if with_queues else ())
        if isinstance(queue, BatchConsumeQueue)
    )
    return RebuildOrder(
        files.config.delay_levels_to_write(),
        with_queues,
        with_index,
        with_index and files.has_tag_entries,
        frozenset(topics) if topics else None,
        batch_queues,
        queues.consumequeue_file_size() if with_queues else 0,
        queues.batch_file_size() if with_queues else 0,
        files.index_to_mend.geometry,
        str(scratch.absolute()),
        min(_MOST_BUCKETS, -(-length // _BUCKET) or 1),
        str(files.root.absolute()),
        files.config,
    )


def _survey(files: StoreFiles, results: Sequence[Implied], report: RebuildReport) -> None:
    """What the report says of the log."""
    survey = new_survey(files.log, 0, tolerant=True)
    for result in results:
        report.unplaceable_messages += result.unplaceable
        for record in result.records:
            if isinstance(record, Passed):
                survey.pass_messages(*record)
            else:
                survey.pass_other(record)
    survey.finish()
    report.messages = survey.messages
    report.damaged_spans = len(survey.tolerated)
