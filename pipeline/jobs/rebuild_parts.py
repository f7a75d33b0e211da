"""A rebuild's workers: what a split implies is put aside, sorted by queue; then queues and index files are written.

What decides about slots, keys and conflicts is the store's own code (`log_runs.route`, `QueueWriter`, `IndexBuilder`),
fed in the order of the log, so that the files are those of `rmqctl.store.recover.rebuild`, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats.errors import UnreadableError
from rmqctl.pipeline.engine.scratch import attempt
from rmqctl.pipeline.engine.shuffle import ShuffleReader, ShuffleWriter, bucket_of
from rmqctl.pipeline.splits.splits import Split, open_in_task, split_runs
from rmqctl.store.commitlog.walk import Blank, Damage, Empty
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.layout import topic_directory
from rmqctl.store.files.presence import is_directory
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.files.trees import flush_tree
from rmqctl.store.index.index_file import Geometry
from rmqctl.store.queues.dispatch import QueueSlot
from rmqctl.store.queues.unit import QueueUnit
from rmqctl.store.recover.mend.index_build import IndexBuilder
from rmqctl.store.recover.mend.queue_writer import QueueWriter
from rmqctl.store.recover.rebuild import queue_root
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.lives import Lives, LiveSlots, goes_back, held_by, superseded
from rmqctl.store.survey.log_runs import Digest, QueueRun, Run, SlotTarget, route
from rmqctl.store.survey.run_units import UNIT

_Queue = tuple[str, int]

# single units that are held before they are put aside, and index keys that are read at once
_HELD = 1 << 16
_KEYS_AT_ONCE = 1 << 20
_HASH, _NUMBER = np.dtype("<i4"), np.dtype("<i8")
_UNIT_FIELDS = len(QueueUnit._fields)


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


class MadeQueue(NamedTuple):
    """A written queue. `units`: those implied, `conflicts` of which had no place. `twice` and `deleted`: messages that
    later ones have superseded, see `LiveSlots`. `directory` is relative to the scratch folder, None where no unit had a
    place."""

    topic: str
    queue_id: int
    is_batch: bool
    units: int
    conflicts: int
    twice: int
    deleted: int
    directory: str | None


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
        self._single: dict[_Queue, list[tuple[QueueUnit, bool]]] = {}
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
        self._single.setdefault(queue, []).append((slot.unit, slot.is_batch))
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
        units = self._single.pop(queue, [])
        if units:
            self._held -= len(units)
            fields = np.array([unit for unit, _ in units], _NUMBER)
            # whether a queue is one of batches its first unit decides
            self._put(queue, [units[0][1], 0], fields)

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
    with Descriptors() as descriptors:
        for name in asides:
            reader = ShuffleReader(scratch / name, order.buckets + 1, descriptors)
            for (topic, queue_id, *rest), position, length in reader.entries(bucket):
                found.setdefault((topic, queue_id), []).append((reader, rest, position, length))
        for queue in sorted(found):
            made.append(_written(order, folder, queue, found.pop(queue)))
    if is_directory(folder):
        flush_tree(folder)
    return made


_Entries = Sequence[tuple[ShuffleReader, list[Any], int, int]]


def _written(order: RebuildOrder, folder: Path, queue: _Queue, entries: _Entries) -> MadeQueue:
    """Write one queue, and once more where its queue offsets go back: that shows only at its end."""
    writing = _Writing(order, folder, queue)
    _pass_on(queue, entries, writing)
    writer = writing.finish()
    twice = deleted = 0
    if writer.conflicts:
        lives = _lives(order, queue, writer)
        if lives:
            if is_directory(writer.directory):
                io.remove_tree(writer.directory)
            writing = _Writing(order, folder, queue)
            slots = LiveSlots(writing, {queue: lives})
            _pass_on(queue, entries, slots)
            writer, twice, deleted = writing.finish(), slots.twice, slots.deleted
    path = str(writer.directory.relative_to(folder.parent)) if is_directory(writer.directory) else None
    return MadeQueue(*queue, writer.is_batch, writing.units, writer.conflicts, twice, deleted, path)


def _lives(order: RebuildOrder, queue: _Queue, writer: QueueWriter) -> Lives:
    """Return what later messages of a queue have superseded, judged by what the store's queue holds now, too."""
    if not goes_back(writer.rows):
        return Lives(())
    with open_in_task(order.store, order.config) as files:
        return superseded(writer.rows, held_by(files.queues.find(*queue)))


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


def _pass_on(queue: _Queue, entries: _Entries, target: SlotTarget) -> None:
    """Give `target` what all splits have put aside of a queue, in the order of the log."""
    for reader, (is_batch, count), position, length in entries:
        data = reader.read(position, length)
        if count:
            slots = np.frombuffer(data, _NUMBER, count)
            target.add_units(QueueRun(*queue, slots, np.frombuffer(data, UNIT, count, offset=slots.nbytes), None))
            continue
        for fields in np.frombuffer(data, _NUMBER).reshape(-1, _UNIT_FIELDS).tolist():
            target.add(QueueSlot(*queue, QueueUnit(*fields), bool(is_batch)))


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
