"""All consume queues of a store: finding, loading and creating them by topic and queue id."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats.errors import (
    CorruptError,
    ExhaustedError,
    UnreadableError,
    UnsupportedError,
    WriteFailedError,
    unreadable,
)
from rmqctl.formats.message import StoredMessage
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.background import patiently
from rmqctl.store.files.layout import (
    CURRENT,
    StoreLayout,
    file_name,
    is_database,
    is_file_name,
    is_queue_name,
    is_safe_topic,
    topic_directory,
)
from rmqctl.store.files.reading import Descriptors, exists, is_directory, status_of
from rmqctl.store.queues.consumequeue import (
    DEFAULT_BATCH_FILE_SIZE,
    DEFAULT_FILE_SIZE,
    UNIT_SIZE,
    BatchConsumeQueue,
    ConsumeQueue,
    QueueUnit,
)
from rmqctl.store.queues.consumequeue_ext import DEFAULT_EXT_FILE_SIZE
from rmqctl.store.queues.dispatch import LMQ_PREFIX, places_in

if TYPE_CHECKING:
    from rmqctl.store.queues.rocksdb_queues import RocksdbQueues

# Queues as one listing found them, for others that read the same store: they need not look for these again.

PlainFiles = tuple[int, int]
"""The start offset of a queue's first file, and how many files it has, one behind the other."""


class ListedQueues(NamedTuple):
    """Queues of 20-byte units with nothing but files of `file_size` bytes, of which each begins where the one before it
    ends. The caller reads all other queues itself. Picklable; columns, as there may be many thousand."""

    file_size: int
    topics: list[str]
    queue_ids: array[int]
    first_offsets: array[int]
    file_counts: array[int]

    @staticmethod
    def of(queues: Iterable[ConsumeQueue | BatchConsumeQueue], file_size: int) -> ListedQueues:
        """Those of the queues that are that plain, of files of this size."""
        listed = ListedQueues(file_size, [], array("q"), array("q"), array("q"))
        for queue in queues:
            files = queue.files
            if not files.files or files.problems or type(queue) is not ConsumeQueue:
                continue
            listed.topics.append(queue.topic)
            listed.queue_ids.append(queue.queue_id)
            listed.first_offsets.append(files.files[0].start_offset)
            listed.file_counts.append(len(files.files))
        return listed

    def by_key(self) -> dict[tuple[str, int], PlainFiles]:
        """The files of each queue, by topic and queue id."""
        files = zip(self.first_offsets, self.file_counts, strict=True)
        return dict(zip(zip(self.topics, self.queue_ids, strict=True), files, strict=True))

    def paths(self, directory: Path, files: PlainFiles) -> list[tuple[Path, int]]:
        """The files of a queue with their sizes, in its directory."""
        first, count = files
        names = [file_name(first + number * self.file_size) for number in range(count)]
        return [(directory / name, self.file_size) for name in names]


_SAMPLED_QUEUES = 64

AnyConsumeQueue = ConsumeQueue | BatchConsumeQueue  # of a RocksDB: RocksdbConsumeQueue, a ConsumeQueue


def list_queues(directory: Path) -> list[tuple[str, int, Path]]:
    """(topic, queue id, directory) below `consumequeue`, in order; names that are no queue ids are skipped."""
    return list(_queues_below(directory))


def _queues_below(
    directory: Path, is_wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[tuple[str, int, Path]]:
    """Lazy variant: lists a topic's directory only when the caller reaches it."""
    for topic in filter(is_wanted, _directories(directory)):
        below = directory / topic
        names = [name for name in _directories(below) if is_queue_name(name)]
        yield from sorted((topic, int(name), below / name) for name in names)


def _directories(directory: Path) -> list[str]:
    try:
        with patiently(lambda: os.scandir(directory)) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(error, directory, "listed") from error


def sampled_queues(root: Path) -> list[Path]:
    """Directories of the first queues below `root`; none where it is no folder, which is said where all are
    listed."""
    try:
        return [directory for _, _, directory in itertools.islice(_queues_below(root), _SAMPLED_QUEUES)]
    except UnreadableError as error:
        if isinstance(error.__cause__, NotADirectoryError):
            return []
        raise


def _usual_size(root: Path) -> int:
    """Size of most files among the first queues below `root`; 0 if there are no files."""
    sizes: Counter[int] = Counter()
    for directory in sampled_queues(root):
        # a file that was removed since it was listed does not count
        with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
            for entry in entries:
                if is_file_name(entry.name) and entry.is_file():
                    sizes[entry.stat().st_size] += 1
    sizes.pop(0, None)
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def has_rocksdb_queues(layout: StoreLayout) -> bool:
    """Return whether the queues that count are in a RocksDB (storeType=defaultRocksDB), in the folder of queue files or
    in one of its own.

    Where there are queue files, too, those count that have the log as far as the other kind has: a broker that is
    switched from one kind to the other leaves the old ones as they are. UnreadableError where that cannot be known.
    """
    folder = rocksdb_folder(layout)
    if not is_database(folder):
        return False
    if not _directories(layout.consumequeue):
        return True
    return _is_ahead_of_files(layout.consumequeue, folder, _modified(layout.consumequeue), _modified(folder / CURRENT))


def _modified(path: Path) -> int:
    status = status_of(path)
    return 0 if status is None else status.st_mtime_ns


@functools.lru_cache(maxsize=64)
def _is_ahead_of_files(root: Path, folder: Path, *_modified: int) -> bool:
    """Return whether the RocksDB in `folder` has messages of the log after those of any queue file below `root`."""
    from rmqctl.store.queues.rocksdb_queues import RocksdbQueues

    try:
        reached = max((end.physical_offset for end in RocksdbQueues(folder, None).ends()), default=-1)
    except CorruptError:
        return False
    with Descriptors() as descriptors:
        for topic, queue_id, directory in _queues_below(root):
            queue = ConsumeQueue(topic, queue_id, directory, None, descriptors)
            queue.load()
            last = queue.unit(queue.max_offset - 1) if queue.max_offset else None
            if last is not None and last.is_written and last.physical_offset >= reached:
                return False
    return reached >= 0


def has_rocksdb_beside_files(layout: StoreLayout) -> bool:
    """Return whether the queues that count are in files, and others in a RocksDB (rocksdbCQDoubleWriteEnable, or what a
    broker left that was switched to files)."""
    return is_database(rocksdb_folder(layout)) and not has_rocksdb_queues(layout)


def is_in_rocksdb_alone(layout: StoreLayout, topic: str) -> bool:
    """Return whether a topic without queue files may have its queues in RocksDB: those of light messages can be there
    alone (combineCQUseRocksdbForLmq)."""
    return (
        topic.startswith(LMQ_PREFIX)
        and has_rocksdb_beside_files(layout)
        and not is_directory(topic_directory(layout.consumequeue, topic))
    )


def rocksdb_folder(layout: StoreLayout) -> Path:
    """Return the folder of the RocksDB that holds the queues. UnreadableError."""
    return layout.consumequeue if is_database(layout.consumequeue) else layout.consumequeue_rocksdb


def rocksdb_error(layout: StoreLayout) -> UnsupportedError:
    """Return what to say where queues are to be changed that are in a RocksDB."""
    return UnsupportedError(
        "the consume queues are kept in a RocksDB, which is never written here",
        file=rocksdb_folder(layout),
        hint="stop the broker and move this folder away: its next start rebuilds the queues from the commitlog; "
        "`rmqctl rebuild --queues files` makes queue files for a broker with storeType=default",
    )


class QueueTable:
    """Queues by (topic, queue id), loaded on first use."""

    def __init__(
        self, layout: StoreLayout, config: StoreConfig, descriptors: Descriptors, *, of_files: bool = False
    ) -> None:
        """`of_files`: those in files, not those of a RocksDB."""
        self.layout = layout
        self.of_files = of_files
        self._roots = (layout.consumequeue, False), (layout.batchconsumequeue, True)
        self._config = config
        self.descriptors = descriptors
        self._queues: dict[tuple[str, int], AnyConsumeQueue] = {}
        self._listed = False
        self._is_settled = False
        self._file_size: int | None = None
        self._taken: ListedQueues | None = None
        self._not_loaded: dict[tuple[str, int], PlainFiles] = {}
        self._rocksdb: RocksdbQueues | None = None
        self._beside: RocksdbQueues | None = None
        # readers and the follower that appends must agree on one object per queue
        self._lock = threading.RLock()

    def all(self) -> list[AnyConsumeQueue]:
        """Every queue that has a directory, or an end in the RocksDB, by topic and id. CorruptError for a damaged
        RocksDB."""
        with self._lock:
            if not self._listed:
                self._take_listed(lambda _: True)
                self._listed = True
            return [self._queues[key] for key in sorted(self._queues)]

    def _take_listed(self, is_wanted: Callable[[str], bool]) -> None:
        """Load the queues of wanted topics that are not loaded yet: one listing, no look at each."""
        database = self.database()
        if database is not None:
            for end in database.ends():
                if (end.topic, end.queue_id) not in self._queues and is_wanted(end.topic):
                    self._queues[end.topic, end.queue_id] = database.queue(end)
            return
        for root, is_batch in self._roots:
            for topic, queue_id, directory in _queues_below(root, is_wanted):
                if (topic, queue_id) not in self._queues:
                    if not is_safe_topic(topic):
                        topic_directory(root, topic)  # says why
                    self._queues[topic, queue_id] = self._load(topic, queue_id, directory, is_batch)

    def database(self) -> RocksdbQueues | None:
        """Return the RocksDB that has the queues; None where they are in files. CorruptError, UnreadableError."""
        with self._lock:
            if self._rocksdb is None and not self.of_files and has_rocksdb_queues(self.layout):
                from rmqctl.store.queues.rocksdb_queues import RocksdbQueues

                self._rocksdb = RocksdbQueues(rocksdb_folder(self.layout), self._config.mapped_file_size_consume_queue)
            return self._rocksdb

    def light(self) -> list[AnyConsumeQueue]:
        """Return the queues of light messages that are in a RocksDB beside the files alone (combineCQUseRocksdbForLmq):
        others are in both. They are read and never written. CorruptError, UnreadableError."""
        with self._lock:
            if self.of_files or not has_rocksdb_beside_files(self.layout):
                return []
            if self._beside is None:
                from rmqctl.store.queues.rocksdb_queues import RocksdbQueues

                self._beside = RocksdbQueues(rocksdb_folder(self.layout), self._config.mapped_file_size_consume_queue)
            light = [end for end in self._beside.ends() if is_in_rocksdb_alone(self.layout, end.topic)]
            return [self._beside.queue(end) for end in light]

    def find_any(self, topic: str, queue_id: int) -> AnyConsumeQueue | None:
        """The same as `find`, with those that `light` gives."""
        found = self.find(topic, queue_id)
        if found is None and topic.startswith(LMQ_PREFIX):
            wanted = (topic, queue_id)
            found = next((one for one in self.light() if (one.topic, one.queue_id) == wanted), None)
        return found

    def listed(self) -> ListedQueues:
        """What a table of another process can `take`. CorruptError for a damaged RocksDB."""
        return ListedQueues.of(self.all(), self.consumequeue_file_size())

    def take(self, listed: ListedQueues) -> None:
        """Have these queues as they were listed, without a look at the disk. Others are looked for as ever."""
        self._taken, self._not_loaded = listed, listed.by_key()
        self._file_size = listed.file_size

    @property
    def count(self) -> int:
        """Number of queues that were loaded or created so far."""
        return len(self._queues)

    def settle(self) -> None:
        """From now on a queue that this table lacks is absent, without a system call each time: no other process makes
        queues, or they are to be ignored. Until `look_again`. CorruptError for a damaged RocksDB."""
        self.all()
        self._is_settled = True

    def of_topics(self, is_wanted: Callable[[str], bool]) -> list[AnyConsumeQueue]:
        """The queues with a directory whose topics are wanted, by topic and id; those of others are not looked for.
        CorruptError for a damaged RocksDB."""
        with self._lock:
            self._take_listed(is_wanted)
            return [self._queues[key] for key in sorted(self._queues) if is_wanted(key[0])]

    def find(self, topic: str, queue_id: int) -> AnyConsumeQueue | None:
        """The queue, None if it has no directory. UsageError for a topic that cannot be a directory name."""
        key = (topic, queue_id)
        found = self._queues.get(key)
        if found is not None:
            return found
        if self._is_settled and is_safe_topic(topic):
            return None
        with self._lock:
            if key in self._not_loaded:
                self._queues[key] = self._load_taken(key)
            if key not in self._queues:
                # a table that has a queue was asked before, and of some ten thousand each look counts
                if self._rocksdb is not None or not self._queues:
                    database = self.database()
                    if database is not None:
                        self.all()
                        return self._queues.get(key)
                for root, is_batch in self._roots:
                    directory = topic_directory(root, topic) / str(queue_id)
                    if is_directory(directory):
                        self._queues[key] = self._load(topic, queue_id, directory, is_batch)
                        break
            return self._queues.get(key)

    def _load_taken(self, key: tuple[str, int]) -> ConsumeQueue:
        assert self._taken is not None
        directory = topic_directory(self.layout.consumequeue, key[0]) / str(key[1])
        queue = ConsumeQueue(*key, directory, self._taken.file_size, self.descriptors)
        queue.files.take(self._taken.paths(directory, self._not_loaded.pop(key)))
        return queue

    def find_or_create(self, topic: str, queue_id: int, is_batch: bool = False) -> AnyConsumeQueue:
        """The queue; its directory is created with its first unit."""
        queue = self.find(topic, queue_id)
        if queue is not None:
            return queue
        with self._lock:
            queue = self.find(topic, queue_id)
            if queue is None:
                root = self.layout.batchconsumequeue if is_batch else self.layout.consumequeue
                directory = topic_directory(root, topic) / str(queue_id)
                io.make_directories(directory)
                queue = self._load(topic, queue_id, directory, is_batch)
                _ = queue.max_offset  # found out before others see the queue, so that no reader keeps an older end
                self._queues[(topic, queue_id)] = queue
            return queue

    def absent(self, topic: str, queue_id: int, is_batch: bool = False) -> AnyConsumeQueue:
        """A queue without directory or files, to plan with; it is not added to the table."""
        root = self.layout.batchconsumequeue if is_batch else self.layout.consumequeue
        return self._load(topic, queue_id, topic_directory(root, topic) / str(queue_id), is_batch)

    def _load(self, topic: str, queue_id: int, directory: Path, is_batch: bool) -> AnyConsumeQueue:
        queue: AnyConsumeQueue
        if is_batch:
            queue = BatchConsumeQueue(topic, queue_id, directory, self.batch_file_size(), self.descriptors)
        else:
            queue = ConsumeQueue(topic, queue_id, directory, self.consumequeue_file_size(), self.descriptors)
        queue.load()
        return queue

    def consumequeue_file_size(self) -> int:
        """Bytes of a consumequeue file: configured (rounded up to whole units, as RocketMQ does), else what most
        files of the store have, else RocketMQ's default."""
        if self._file_size is None:
            size = self._config.mapped_file_size_consume_queue
            if size is None:
                size = _usual_size(self.layout.consumequeue) or DEFAULT_FILE_SIZE
            self._file_size = -(-size // UNIT_SIZE) * UNIT_SIZE
        return self._file_size

    @property
    def is_size_assumed(self) -> bool:
        """Whether neither a configuration nor a file says how large a consumequeue file is to be."""
        return self._config.mapped_file_size_consume_queue is None and not _usual_size(self.layout.consumequeue)

    def batch_file_size(self) -> int:
        """Bytes of a batch consumequeue file, found in the same way; never rounded."""
        size = self._config.mapper_file_size_batch_consume_queue
        return size or _usual_size(self.layout.batchconsumequeue) or DEFAULT_BATCH_FILE_SIZE

    def ext_file_size(self) -> int:
        """Bytes of a consumequeue_ext file, found in the same way; never rounded."""
        size = self._config.mapped_file_size_consume_queue_ext
        return size or _usual_size(self.layout.consumequeue_ext) or DEFAULT_EXT_FILE_SIZE

    def look_again(self) -> None:
        """Take in queues, files and units that another process added, and forget what it removed."""
        with self._lock:
            self._listed = self._is_settled = False
            self._not_loaded.clear()
            self._beside = None
            if self._rocksdb is not None:
                self._rocksdb.look_again()
            for queue in self._queues.values():
                queue.look_again()

    def topics(self) -> list[str]:
        """Topics with at least one queue; none of the queues is loaded. CorruptError for a damaged RocksDB."""
        database = self.database()
        if database is not None:
            return sorted({end.topic for end in database.ends()})
        with self._lock:
            is_known = self._listed
            found = {topic for topic, _ in self._queues} if is_known else set[str]()
        for root in () if is_known else (self.layout.consumequeue, self.layout.batchconsumequeue):
            for topic, _, _ in _queues_below(root):
                if topic not in found and not is_safe_topic(topic):
                    topic_directory(root, topic)  # says why
                found.add(topic)
        with contextlib.suppress(CorruptError):  # the queues in files are good all the same
            found.update(queue.topic for queue in self.light())
        return sorted(found)

    def close(self) -> None:
        """Flush and close what was appended to."""
        for queue in self._queues.values():
            queue.close()


# Bringing consume queues to disk: which of their files were written to, and when they are flushed.

# FlushConsumeQueueService: files with fewer than two dirty pages wait for the thorough round ...
_UNITS_OF_A_PAGE = io.PAGE_SIZE // 20
# ... unless there are so few of them that flushing costs nothing
_FEW_FILES = 64


class QueueFlusher:
    """Remembers the files that units were written to, and fsyncs them by name: the follower is never held up."""

    def __init__(self, least_pages: int = 2) -> None:
        """`least_pages`: pages of units that are worth a flush."""
        self._least_units = least_pages * _UNITS_OF_A_PAGE
        self._lock = threading.Lock()
        self._dirty: dict[Path, int] = {}
        # files, queues, topics and their root, of which the entry in the directory above is on disk
        self._known: set[Path] = set()

    def wrote(self, path: Path, units: int = 1) -> None:
        """Units were written to `path`."""
        with self._lock:
            self._dirty[path] = self._dirty.get(path, 0) + units

    def flush(self, is_thorough: bool) -> bool:
        """fsync the dirty files; without `is_thorough` only those worth it. Whether nothing of what was written before
        the call is left unflushed."""
        with self._lock:
            taken = self._dirty
            if not is_thorough and len(taken) > _FEW_FILES:
                taken = {path: units for path, units in taken.items() if units >= self._least_units}
            self._dirty = {path: units for path, units in self._dirty.items() if path not in taken}
            is_all = not self._dirty
        left = dict(taken)
        for path in taken:
            try:
                self._flush_entries(path)
                io.flush_file(path)
                del left[path]
            except ExhaustedError:
                # what could not be opened is dirty as before
                with self._lock:
                    for one, units in left.items():
                        self._dirty[one] = self._dirty.get(one, 0) + units
                raise
            except WriteFailedError:
                if exists(path):  # else the cleaner was faster
                    raise
        return is_all

    def _flush_entries(self, file: Path) -> None:
        """A new file is on disk only when the directories that lead to it are: once for each file."""
        for path in (file, *file.parents[:3]):
            if path in self._known:
                return
            io.flush_directory(path.parent)
            self._known.add(path)


def has_units(queue: AnyConsumeQueue) -> bool:
    """Return whether the files of a queue hold a unit."""
    if isinstance(queue, BatchConsumeQueue):
        return queue.max_offset > 0
    return queue.max_offset > queue.first_slot


# Whether a message belongs to an earlier life of its queue: the topic was deleted and created again since.
#
# Units of a queue lead to places that rise along the log. So a message before the one that a lower slot of its queue
# leads to has no slot any more, as long as that slot is right.

ReadMessage = Callable[[int], StoredMessage | None]
"""Return the message at a physical offset, None where none begins."""


def is_of_deleted(deleted: Mapping[str, int], queue: AnyConsumeQueue) -> bool:
    """Return whether nothing was sent to a queue since its topic was deleted. `deleted`: topics with the log's end at
    that time."""
    last = queue.unit(queue.max_offset - 1) if queue.topic in deleted and queue.max_offset else None
    return queue.topic in deleted and (last is None or last.physical_offset < deleted[queue.topic])


def beginning(queue: AnyConsumeQueue, read: ReadMessage) -> QueueUnit | None:
    """Return the first unit of a queue: messages before its place that have this slot or a later one belong to an
    earlier life of the queue. None if it is missing or damaged."""
    first = next((unit for unit in queue.units(0) if unit.is_written), None)
    return first if first is not None and leads_to_its_message(queue, first, read) else None


def superseding(queue: AnyConsumeQueue, queue_offset: int, physical_offset: int, read: ReadMessage) -> int | None:
    """Return the physical offset of the later message because of which the message at `physical_offset` has no slot:
    that of the same slot, or the last one of a queue that ends before it. None if that unit is missing or damaged."""
    slot = min(queue_offset, queue.max_offset - 1)
    unit = queue.unit(slot) if slot >= 0 else None
    if unit is None or unit.physical_offset <= physical_offset or not leads_to_its_message(queue, unit, read):
        return None
    return unit.physical_offset


def leads_to_its_message(queue: AnyConsumeQueue, unit: QueueUnit, read: ReadMessage) -> bool:
    """Return whether the message that a unit leads to has the unit's queue and slot."""
    if not unit.is_written:
        return False
    message = read(unit.physical_offset)
    if message is None:
        return False
    return unit.queue_offset in places_in(queue, message, ())
