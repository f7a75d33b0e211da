"""One consume queue as a broker has it in memory while it starts: what it keeps, cuts off and adds to the files.

(ConsumeQueue and BatchConsumeQueue: #recover, #truncateDirtyLogicFiles, #putMessagePositionInfo, #correctMinOffset)
Places in a queue are counted in units from byte 0 of its first possible file, so that for units of 20 bytes the place
is the queue offset. Nothing is written: what would be added stays in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.checksums import parse_int
from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.formats.layouts import BATCH_CONSUMEQUEUE_UNIT, CONSUMEQUEUE_UNIT
from rmqctl.formats.message import StoredMessage
from rmqctl.store.config.config_files import load_config, topic_type
from rmqctl.store.config.releases import Release
from rmqctl.store.files.layout import StoreLayout, file_name, topic_directory
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors, data_extents
from rmqctl.store.log.columns import Flags, Int64s
from rmqctl.store.log.implied import QueueRun, Run, columns_of, consecutive, route
from rmqctl.store.predict.broker_log import ListedFile, list_in_order, listed_files, loaded_of
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, QueueUnit
from rmqctl.store.queues.dispatch import LMQ_PREFIX, FurtherSlots, QueueSlot, queue_slots
from rmqctl.store.store_files import StoreFiles

UnitArray = NDArray[np.void]
_RECOVERED_FILES = 3
_SMALL = 8192
"""Bytes of a file that is read once: a start asks each of many queues five times."""


class _Added(NamedTuple):
    """Units put at places from `first` on; they belong at `places`."""

    first: int
    units: UnitArray
    places: Int64s

    @property
    def end(self) -> int:
        return self.first + len(self.units)


class SimulatedQueue:
    """A queue while a broker starts. `is_batch`: its units have 46 bytes. `max_physical`: what the broker compares new
    messages with. `wrote`: units in the last file. `deleted`: files that were there and are not any more."""

    def __init__(
        self,
        topic: str,
        queue_id: int,
        directory: Path,
        file_size: int,
        descriptors: Descriptors,
        *,
        is_batch: bool = False,
        files: list[tuple[int, Path]] | None = None,
        small: dict[Path, UnitArray] | None = None,
    ) -> None:
        """`files`: those on disk, by start in bytes. `small`: units of small files that are known."""
        layout = BATCH_CONSUMEQUEUE_UNIT if is_batch else CONSUMEQUEUE_UNIT
        self.topic, self.queue_id, self.directory, self.is_batch = topic, queue_id, directory, is_batch
        self.dtype = layout.dtype()
        self.per_file = max(1, file_size // layout.size)
        self.files: list[tuple[int, Path | None]] = [(start // layout.size, path) for start, path in files or []]
        self.on_disk = bool(files)
        self.deleted: list[Path] = []
        self.wrote = self.per_file
        self.max_physical = -1
        self.min_place = self.min_of_batches = 0
        self.added: list[_Added] = []
        self.filler = (0, 0)
        self.lowest_end: int | None = None
        self._descriptors = descriptors
        self._small: dict[Path, UnitArray] = {} if small is None else small

    def path_of(self, place: int) -> Path:
        """Where the file that begins at this place is made."""
        return self.directory / file_name(place * self.dtype.itemsize)

    # ---- what stands in the files

    def units_of(self, number: int) -> UnitArray:
        """Units of a file up to its first hole on disk, with what was added over them; never less than one."""
        start, path = self.files[number]
        known = self._on_disk(path)
        if len(known) and not self.added and not self.filler[1]:
            return known
        top = max([len(known), 1, *(min(one.end - start, self.per_file) for one in self.added)])
        units = np.zeros(max(top, min(self.filler[1] - start, self.per_file)), self.dtype)
        units[: len(known)] = known
        return self._with_added(start, units)

    def _part_of(self, number: int, low: int, high: int) -> UnitArray:
        """Units [low, high) of a file: for questions about a few of them."""
        start, path = self.files[number]
        units = np.zeros(high - low, self.dtype)
        if path is not None and path in self._small:
            known = self._small[path][low:high]
            units[: len(known)] = known
        elif path is not None:
            data = self._descriptors.read(path, low * self.dtype.itemsize, (high - low) * self.dtype.itemsize)
            known = np.frombuffer(data, self.dtype, len(data) // self.dtype.itemsize)
            units[: len(known)] = known
        return self._with_added(start + low, units)

    def _with_added(self, place: int, units: UnitArray) -> UnitArray:
        """`units`, which begin at `place`, with filler and added units in them."""
        low, high = max(0, self.filler[0] - place), min(len(units), self.filler[1] - place)
        if low < high:
            units[low:high] = np.zeros(1, self.dtype)
            units["size"][low:high] = PLACEHOLDER_SIZE
        for one in self.added:
            low, high = max(0, one.first - place), min(len(units), one.end - place)
            if low < high:
                units[low:high] = one.units[low + place - one.first : high + place - one.first]
        return units

    def _on_disk(self, path: Path | None) -> UnitArray:
        if path is None:
            return np.zeros(0, self.dtype)
        if path in self._small:
            return self._small[path]
        size = self.per_file * self.dtype.itemsize
        end, has_hole = 0, False
        for begin, stop in data_extents(path, 0, size, self._descriptors):
            if begin > end:
                has_hole = True
                break
            end = stop
        data = self._descriptors.read(path, 0, end)
        units = np.frombuffer(data, self.dtype, len(data) // self.dtype.itemsize)
        if len(data) <= _SMALL and not has_hole:
            # zeros at its end tell no more than what was never written
            used = -(-len(data.rstrip(b"\0")) // self.dtype.itemsize)
            units = self._small[path] = units[:used].copy()
        return units

    def _valid(self, units: UnitArray) -> Flags:
        valid: Flags = (units["physical_offset"] >= 0) & (units["size"] > 0)
        if self.is_batch:
            valid &= (units["base_queue_offset"] >= 0) & (units["batch_size"] > 0)
        return valid

    def _reached(self, unit: np.void) -> int:
        """What a unit makes the queue's maximum: the end of its message, of a batch its start."""
        return int(unit["physical_offset"]) + (0 if self.is_batch else int(unit["size"]))

    @property
    def end(self) -> int:
        """Place behind the last unit; 0 without files."""
        return self.files[-1][0] + self.wrote if self.files else 0

    def offsets_at(self, places: Int64s) -> Int64s:
        """Return physical offsets of the units at `places`, -1 past the end, without a file, and for filler."""
        found = np.full(len(places), -1, np.int64)
        for number, (start, _) in enumerate(self.files):
            inside = (places >= start) & (places < min(self.end, start + self.per_file))
            if inside.any():
                wanted = places[inside] - start
                low = int(wanted.min())
                units = self._part_of(number, low, int(wanted.max()) + 1)[wanted - low]
                found[inside] = np.where(units["size"] == PLACEHOLDER_SIZE, -1, units["physical_offset"])
        return found

    def holds(self, slot: int, units: UnitArray) -> bool:
        """Whether the queue has these units from `slot` on, all in one file; no filler is among them."""
        for number, (start, _) in enumerate(self.files):
            low = slot - start
            if low >= 0 and slot + len(units) <= min(self.end, start + self.per_file):
                return self._part_of(number, low, low + len(units)).tobytes() == units.tobytes()
        return False

    def all_offsets(self) -> Int64s:
        """Physical offsets of all units, in order."""
        parts = [self.units_of(number)["physical_offset"] for number in range(len(self.files))]
        parts[-1:] = [part[: self.wrote] for part in parts[-1:]]
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)

    # ---- what the broker does

    def recover(self) -> None:
        """Find the end: the first invalid unit of the last three files."""
        if not self.files:
            return
        number = max(0, len(self.files) - _RECOVERED_FILES)
        while True:
            units = self.units_of(number)
            valid = self._valid(units)
            count = len(units) if valid.all() else int(np.argmin(valid))
            if count:
                self.max_physical = self._reached(units[count - 1])
            if count < self.per_file or number + 1 == len(self.files):
                break
            number += 1
        place = self.files[number][0] + count
        kept = [file for file in self.files if file[0] <= place or file[0] + self.per_file <= place]
        self._delete(self.files[len(kept) :])
        self.files = kept
        last = kept[-1][0]
        # a file that ends exactly there is full, and a broker sets no position in it
        self.wrote = place - last if last + self.per_file > place else self.per_file
        self._note_end()

    def truncate(self, physical_offset: int) -> None:
        """Drop units of messages that begin at `physical_offset` or behind it. The first unit of a file always counts
        as one, and stale units past the queue's end count again."""
        self.max_physical = physical_offset - 1 if self.is_batch else physical_offset
        while self.files:
            units = self.units_of(len(self.files) - 1)
            if int(units[0]["physical_offset"]) >= physical_offset:
                self._delete(self.files[-1:])
                del self.files[-1]
                self.wrote = self.per_file
                continue
            good = self._valid(units) & (units["physical_offset"] < physical_offset)
            good[0] = True
            self.wrote = len(units) if good.all() else int(np.argmin(good))
            self.max_physical = self._reached(units[self.wrote - 1])
            break
        self.added = [
            one._replace(units=one.units[: self.end - one.first], places=one.places[: self.end - one.first])
            for one in self.added
            if one.first < self.end
        ]
        self._note_end()

    def destroy(self) -> None:
        """The commitlog is gone: all files go."""
        self._delete(self.files)
        self.files, self.max_physical, self.wrote, self.min_place = [], -1, self.per_file, 0
        self._note_end()

    def _delete(self, files: list[tuple[int, Path | None]]) -> None:
        self.deleted += [path for _, path in files if path is not None]

    def _note_end(self) -> None:
        self.lowest_end = self.end if self.lowest_end is None else min(self.lowest_end, self.end)

    def put(self, slots: Int64s, units: UnitArray, places: Int64s | None = None) -> None:
        """Dispatch units, in the order of the log, with the queue offsets `slots`; they belong at `places`, if these
        are others."""
        places = slots if places is None else places
        if self.is_batch:
            begin = int(np.searchsorted(units["physical_offset"], self.max_physical, "right"))
            if begin < len(units):
                self._append(self.end, units[begin:], np.arange(self.end, self.end + len(units) - begin))
            return
        ends = units["physical_offset"].astype(np.int64) + units["size"]
        in_order = bool((ends[1:] > ends[:-1]).all())
        stretches = consecutive(slots) if in_order else [(row, row + 1) for row in range(len(slots))]
        for first, stop in stretches:
            begin = first + int(np.searchsorted(ends[first:stop], self.max_physical, "right"))
            # slot 0 is not compared with the end
            if begin < stop and slots[begin] == 0:
                self._append(0, units[begin : begin + 1], places[begin : begin + 1])
                begin += 1
            if begin < stop and self.files:
                begin += max(0, self.end - int(slots[begin]))
            if begin < stop:
                self._append(int(slots[begin]), units[begin:stop], places[begin:stop])

    def _append(self, slot: int, units: UnitArray, places: Int64s) -> None:
        """Append at the end of the queue, ignoring `slot`; only a queue without files begins at `slot`."""
        if not self.files:
            start = slot - slot % self.per_file
            self.files, self.wrote = [(start, None)], slot - start
            if slot and not self.is_batch:
                self.filler, self.min_place = (start, slot), slot
        first = self.end
        self.added.append(_Added(first, units, places))
        while self.files[-1][0] + self.per_file < first + len(units):
            self.files.append((self.files[-1][0] + self.per_file, None))
        self.wrote = first + len(units) - self.files[-1][0]
        self.max_physical = self._reached(units[-1])

    def correct_min(self, log_min_offset: int, from_known: bool) -> None:
        """Find the first unit whose message the log still has. `from_known`: as 5.x does it, from the minimum known."""
        if self.is_batch:
            self.min_of_batches = self._first_of_batches(log_min_offset)
            return
        if not self.files or (from_known and self.min_place >= self.end):
            return
        start = self.files[0][0]
        read = self.wrote if len(self.files) == 1 else self.per_file
        if from_known and self.wrote:
            last = self.units_of(len(self.files) - 1)
            if self.wrote <= len(last) and int(last[self.wrote - 1]["physical_offset"]) < log_min_offset:
                self.min_place = self.end
                return
        skipped = max(0, self.min_place - start) if from_known else 0
        if skipped >= read:
            return
        units = np.zeros(read, self.dtype)
        known = self.units_of(0)[:read]
        units[: len(known)] = known
        offsets = units["physical_offset"][skipped:].astype(np.int64)
        if not from_known:
            found = np.flatnonzero(offsets >= log_min_offset)
            self.min_place = start + int(found[0]) if len(found) else self.min_place
        elif self.min_place < start or offsets[0] < log_min_offset:
            low, high = narrowed(offsets, log_min_offset)
            found = np.flatnonzero(offsets[low : high + 1] >= log_min_offset)
            self.min_place = start + skipped + low + int(found[0]) if len(found) else self.min_place

    def _first_of_batches(self, log_min_offset: int) -> int:
        """Return the first queue offset of the first batch that the log still has, of the first file alone; where that
        file ends without one."""
        if not self.files:
            return 0
        units = self.units_of(0)
        units = units[: self.wrote] if len(self.files) == 1 else units
        units = units[self._valid(units)]
        found = np.flatnonzero(units["physical_offset"] >= log_min_offset)
        if len(found):
            return int(units[found[0]]["base_queue_offset"])
        return int(units[-1]["base_queue_offset"]) + int(units[-1]["batch_size"]) if len(units) else 0

    # ---- what came of it

    @property
    def max_offset(self) -> int:
        """Queue offset behind the last message."""
        if not self.is_batch or not self.files or not self.wrote:
            return self.end
        unit = self.units_of(len(self.files) - 1)[self.wrote - 1]
        return int(unit["base_queue_offset"]) + int(unit["batch_size"])

    @property
    def min_offset(self) -> int:
        """Queue offset of the first message that is served."""
        return self.min_of_batches if self.is_batch else self.min_place

    @property
    def units_added(self) -> int:
        """Units that were put, filler aside."""
        return sum(len(one.units) for one in self.added)

    @property
    def units_misplaced(self) -> int:
        """Those of them that do not stand where they belong."""
        return sum(
            int(np.count_nonzero(one.places != np.arange(one.first, one.end)))
            for one in self.added
            if not self.is_batch
        )


def narrowed(offsets: Int64s, wanted: int) -> tuple[int, int]:
    """The binary search of ConsumeQueue#correctMinOffset: the last two candidates, which need not hold the answer."""
    low, high = 0, len(offsets) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if offsets[middle] > wanted:
            high = middle
        elif offsets[middle] == wanted:
            return middle, middle
        else:
            low = middle
    return low, high


# The broker's dispatch while it starts: which units it puts into which queues, in memory only.

_Key = tuple[str, int, bool]


class SimulatedQueues:
    """The queues of a store by topic, queue id and whether they are batch queues. `sizes`: bytes of a file of each
    kind, batch queues second."""

    def __init__(
        self, layout: StoreLayout, sizes: tuple[int, int], descriptors: Descriptors, small: dict[Path, UnitArray]
    ) -> None:
        self._small = small
        self._layout = layout
        self._sizes = sizes
        self._descriptors = descriptors
        self.by_key: dict[_Key, SimulatedQueue] = {}

    def add(
        self, topic: str, queue_id: int, is_batch: bool, directory: Path, files: list[tuple[int, Path]] | None
    ) -> SimulatedQueue:
        """A queue with these files, or without any."""
        queue = SimulatedQueue(
            topic,
            queue_id,
            directory,
            self._sizes[is_batch],
            self._descriptors,
            is_batch=is_batch,
            files=files,
            small=self._small,
        )
        self.by_key[topic, queue_id, is_batch] = queue
        return queue

    def find_or_add(self, topic: str, queue_id: int, is_batch: bool) -> SimulatedQueue:
        """Return the queue, creating it if necessary."""
        known = self.by_key.get((topic, queue_id, is_batch))
        if known is not None:
            return known
        root = self._layout.batchconsumequeue if is_batch else self._layout.consumequeue
        return self.add(topic, queue_id, is_batch, topic_directory(root, topic) / str(queue_id), None)

    def max_physical(self) -> int:
        """The end of the log by the queues; -1 without units (ConsumeQueueStore#getMaxPhyOffsetInConsumeQueue)."""
        return max((queue.max_physical for queue in self.by_key.values()), default=-1)


class SimulatedDispatch:
    """Puts what it takes into the queues; with a `floor` only messages that begin behind it. `unplaceable`: messages
    of topics that cannot be directory names."""

    def __init__(
        self,
        queues: SimulatedQueues,
        log: MappedFileQueue,
        release: Release,
        levels: tuple[int, ...],
        batch_topics: set[str],
        further: FurtherSlots,
        *,
        has_light_queues: bool = True,
    ) -> None:
        """`further`: where messages belong in further queues. `has_light_queues`: the broker gives messages their slots
        in light queues."""
        self._further = further
        self._has_light_queues = has_light_queues
        self._queues = queues
        self._log = log
        self._release = release
        self._levels = levels
        self._batch_topics = batch_topics if release.knows_batches else set()
        self.floor: int | None = None
        self.unplaceable = 0

    def take_run(self, run: Run) -> None:
        """Messages that pass law 3."""
        floor = self.floor
        if floor is not None and run.last_message_offset <= floor:
            return
        if floor is not None and run.physical_offset <= floor:
            run = _behind(run, floor)
        self.unplaceable += run.unplaceable
        route(run, self._log, self._levels, self)

    def take_message(self, message: StoredMessage) -> None:
        """One that only the broker takes. It goes by the offset that the frame claims."""
        if self.floor is None or message.physical_offset > self.floor:
            for slot in queue_slots(message, self._levels, self.is_batch_topic(message.topic, message.queue_id)):
                self.add(slot)

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether the topic's queues have 46-byte units."""
        return topic in self._batch_topics

    def add(self, slot: QueueSlot) -> None:
        """One unit."""
        if not self._has_light_queues and slot.topic.startswith(LMQ_PREFIX):
            return
        is_batch = slot.is_batch and self._release.knows_batches
        queue = self._queues.find_or_add(slot.topic, slot.queue_id, is_batch)
        offset, place = slot.unit.queue_offset, self._further.placed(slot).unit.queue_offset
        places = None if place == offset else np.array([place], np.int64)
        queue.put(np.array([offset], np.int64), _packed(slot.unit, is_batch), places)

    def add_units(self, run: QueueRun) -> None:
        """Units of one queue."""
        if not self._has_light_queues and run.topic.startswith(LMQ_PREFIX):
            return
        self._queues.find_or_add(run.topic, run.queue_id, False).put(run.slots, run.units)


def _behind(run: Run, floor: int) -> Run:
    """The messages of a run that begin behind `floor`."""
    queues = columns_of(run.queues)
    special = [(row, message) for row, message in run.special if message.physical_offset > floor]
    return Run(
        run.physical_offset,
        run.end,
        run.messages,
        run.last_message_offset,
        run.last_store_timestamp,
        queues=queues.chosen(queues.units["physical_offset"] > floor),
        special=special,
    )


def _packed(unit: QueueUnit, is_batch: bool) -> UnitArray:
    if not is_batch:
        packed = CONSUMEQUEUE_UNIT.struct.pack(unit.physical_offset, unit.size, unit.tags_code)
        return np.frombuffer(packed, CONSUMEQUEUE_UNIT.dtype())
    packed = BATCH_CONSUMEQUEUE_UNIT.struct.pack(
        unit.physical_offset, unit.size, unit.tags_code, unit.store_timestamp, unit.queue_offset, unit.batch_size, -1, 0
    )
    return np.frombuffer(packed, BATCH_CONSUMEQUEUE_UNIT.dtype())


# Loading the consume queues as a broker does (ConsumeQueueStore#load): which there are, and what stops the start.

_BATCH = "BatchCQ"
_SIMPLE = "SimpleCQ"


_ListedQueues = list[tuple[str, int, Path, list[ListedFile]]]


class QueueLoading:
    """Loads the queues of a store. `batch_topics`: those given; else what config/topics.json says, and without such a
    file those that have batch queues on disk."""

    def __init__(
        self, files: StoreFiles, release: Release, batch_topics: Iterable[str] | None, listed: dict[Path, _ListedQueues]
    ) -> None:
        """`listed`: folders of queues by their root, as far as they were listed."""
        self._listed = listed
        self._files = files
        self._release = release
        known = set(batch_topics) if batch_topics is not None else _configured(files)
        self._is_configured = known is not None
        self.batch_topics = known if known is not None else set(list_in_order(files.layout.batchconsumequeue))

    def load(self, queues: SimulatedQueues, deleted: list[Path]) -> str | None:
        """Add every queue to `queues` and what goes to `deleted`; returns why the broker does not start, if so."""
        layout = self._files.layout
        roots = [(layout.consumequeue, False)]
        if self._release.knows_batches:
            roots.append((layout.batchconsumequeue, True))
        return next((error for root, batch in roots if (error := self._load(root, batch, queues, deleted))), None)

    def _load(self, root: Path, is_batch: bool, queues: SimulatedQueues, deleted: list[Path]) -> str | None:
        table = self._files.queues
        size = table.batch_file_size() if is_batch else table.consumequeue_file_size()
        if root not in self._listed:
            self._listed[root] = list(_listed_queues(root))
        for topic, queue_id, directory, found in self._listed[root]:
            error = self._wrong_type(topic, is_batch)
            if error is not None:
                return error
            loaded = loaded_of(found, size, self._release)
            deleted += loaded.deleted
            if loaded.error is not None:
                return loaded.error
            queues.add(topic, queue_id, is_batch, directory, loaded.files)
        return None

    def _wrong_type(self, topic: str, is_batch: bool) -> str | None:
        if not self._release.knows_batches or not self._is_configured or is_batch == (topic in self.batch_topics):
            return None
        should, found = (_BATCH, _SIMPLE) if is_batch else (_SIMPLE, _BATCH)
        what = f"The queue type of topic: {topic} should be {should}, but is {found}"
        return f"load exception: java.lang.RuntimeException: {what}"


def _listed_queues(root: Path) -> Iterator[tuple[str, int, Path, list[ListedFile]]]:
    for topic in list_in_order(root):
        of_topic = root / topic
        for name in list_in_order(of_topic):
            queue_id = parse_int(name)
            if queue_id is not None:
                directory = of_topic / name
                yield topic, queue_id, directory, listed_files(directory)


def _configured(files: StoreFiles) -> set[str] | None:
    """Topics of type BatchCQ in topics.json or its backup; None without a file that can be read."""
    try:
        loaded = load_config(files.layout.config / "topics.json")
        table = {} if loaded is None else loaded.content["topicConfigTable"]
        return None if loaded is None else {topic for topic, entry in table.items() if topic_type(entry) == _BATCH}
    except (CorruptError, UnreadableError, AttributeError, KeyError, TypeError):
        return None
