"""The files of one store, opened for reading: what every look at it and every change of it starts from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats.errors import CorruptError, NotAStoreError, UnreadableError, UnsupportedError, told, unreadable
from rmqctl.formats.layouts import CHECKPOINT, CHECKPOINT_SIZE, CONSUMEQUEUE_UNIT
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, file_name, is_file_name, is_safe_topic
from rmqctl.store.files.lock import lock_holder
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import (
    STAND_IN,
    Descriptors,
    exists,
    is_directory,
    listed,
    named,
    read_small_file,
    refuse_broken_link,
)
from rmqctl.store.files.remote import address_of, is_address, reachable
from rmqctl.store.files.remote_file_system import ONE_STORE, is_wild
from rmqctl.store.index.index_service import IndexService, has_tag_entries, holds_rocksdb_data, release_of
from rmqctl.store.queues.consumequeue import sparse_units
from rmqctl.store.queues.queue_table import QueueTable, has_rocksdb_queues, list_queues

if TYPE_CHECKING:
    from rmqctl.store.rocksdb.message_storage import MessageStorage


# The checkpoint file: what was flushed up to which store time (docs/formats.md).

# StoreCheckpoint#getMinTimestamp keeps a margin for what was stored within the same moments
_MARGIN_MS = 3000
_SHORTEST = CHECKPOINT.offset("logics_physical_offset")


class Checkpoint(NamedTuple):
    """Timestamps in ms, offsets physical. `logics_physical_offset` is 0 before RocketMQ 5.5."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0
    logics_physical_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """Everything stored up to this time is on disk in commitlog and queues (StoreCheckpoint#getMinTimestamp)."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _MARGIN_MS)

    @property
    def min_timestamp_index(self) -> int:
        """The same of full index files, too (StoreCheckpoint#getMinTimestampIndex)."""
        return min(self.min_timestamp, self.index_msg_timestamp)


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Return the checkpoint, None if the file is missing or too short to hold one. Fields that only newer versions
    write may be missing.

    Raises: UnreadableError, also where the path is a directory, a fifo or a broken link.
    """
    try:
        data = read_small_file(path, CHECKPOINT.size)
    except FileNotFoundError:
        refuse_broken_link(path)
        return None
    if len(data) < _SHORTEST:
        return None
    return Checkpoint(*CHECKPOINT.unpack_from(data.ljust(CHECKPOINT.size, b"\0"), 0))


def checkpoint_bytes(checkpoint: Checkpoint) -> bytes:
    """The whole page as it is on disk."""
    return CHECKPOINT.struct.pack(*checkpoint).ljust(CHECKPOINT_SIZE, b"\0")


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the file, old or new but never half."""
    io.write_whole(path, checkpoint_bytes(checkpoint))


# any one of these makes a directory a store
_MARKS = ("commitlog", "consumequeue", "batchconsumequeue", "index", "checkpoint")


class StoreFiles:
    """A store as it is on disk. Opening reads directory listings only, creates nothing and repairs nothing.

    Parts are loaded on first use, so that a lookup by physical offset never opens a queue or an index.
    """

    def __init__(self, root: Path, config: StoreConfig | None = None) -> None:
        """NotAStoreError if `root`, a path or an address (s3://…), holds nothing of a store; UnreadableError if it
        cannot be listed."""
        root = reachable(root)
        self.root = root
        self.config = config or StoreConfig()
        self.layout: StoreLayout = self.config.layout(root)
        self.descriptors = Descriptors()
        self.is_taken = False
        """Whether this process holds the store's lock for a change, so that no other process writes meanwhile."""
        self.descriptors.on_removed = self._tell_removed
        _require_store(self.layout)

    @classmethod
    def of_log(cls, root: Path, config: StoreConfig) -> StoreFiles:
        """The same for repeated reads of the log: of an address only the log is listed, again each time, and the rest
        on demand. No other store may be open there in this process."""
        if not is_address(root):
            return cls(root, config)
        from rmqctl.store.files.remote_files import as_far_as_known, look_again

        look_again(address_of(root), log_only=True)
        with as_far_as_known():
            files = cls(root, config)
        if any(end for directory in files.layout.commitlog for end in _ends(directory)):
            # each look would list the whole store for a DLedger log beside the commitlog
            files.dledger = None
        return files

    def _tell_removed(self, _directory: Path) -> None:
        from rmqctl.store.options import notice

        notice(f"{self.root}: its oldest files were removed while it was read; reading goes on where it begins now")

    @cached_property
    def log(self) -> MappedFileQueue:
        """The commitlog's files."""
        entries = [] if self.dledger is None else [self.dledger.folder]
        log = self._new_log(self.config.mapped_file_size_commit_log, entries)
        log.load()
        return log

    def _new_log(self, file_size: int | None, entries: list[Path]) -> MappedFileQueue:
        """Return the commitlog with no file yet; `entries`: the folder of the DLedger log that goes on at its end."""
        log = MappedFileQueue([*self.layout.commitlog, *entries], file_size, self.descriptors)
        log.entry_directories = frozenset(entries)
        return log

    @cached_property
    def dledger(self) -> DledgerLog | None:
        """The DLedger log that holds the messages after the commitlog, or all of them; None without one."""
        return dledger_log(self.layout)

    @cached_property
    def place(self) -> str:
        """What the store is called on every machine that sees it: its absolute path, or its address on a server."""
        return told(str(self.root.resolve()))

    @property
    def listing(self) -> str:
        """In which listing of a server the store was seen; "" for one on this machine."""
        if STAND_IN not in str(self.root):
            return ""
        from rmqctl.store.files.remote_files import listing_of

        return listing_of(self.root)

    def path_of(self, name: str) -> Path:
        """Return the local path of a file with a known name, which begins with the `place` of its store."""
        place = self.place
        return self.root / name.removeprefix(place + "/") if name.startswith(place + "/") else Path(name)

    def take_log(self, listed: Iterable[tuple[Path, int]], file_size: int) -> None:
        """Have these files, of `file_size` bytes as a rule, for the commitlog instead of listing its directories."""
        listed = list(listed)
        log = self._new_log(file_size, sorted({path.parent for path, _ in listed if is_of_dledger(path)}))
        log.take(listed)
        self.log = log

    @cached_property
    def queues(self) -> QueueTable:
        """The consume queues."""
        return QueueTable(self.layout, self.config, self.descriptors)

    def use_queue_files(self) -> None:
        """Have the queues in files from now on, not those of a RocksDB."""
        self.__dict__["queues"] = QueueTable(self.layout, self.config, self.descriptors, of_files=True)

    @cached_property
    def index(self) -> IndexService:
        """The index files."""
        service = IndexService(self.layout.index, self.config, self.descriptors)
        service.load()
        return service

    @cached_property
    def has_tag_entries(self) -> bool:
        """Whether index entries of tags are written here; see store/index/index_service.py."""
        index = self.__dict__.get("index") or self.index_to_mend
        return has_tag_entries(index, self.log, self.layout, self.config.index_tags)

    @cached_property
    def message_storage(self) -> MessageStorage | None:
        """`rocksdbstore/` of RocketMQ 5.4 and later; None where it is not there or empty. CorruptError where nothing of
        it can be read, UnreadableError."""
        if not holds_rocksdb_data(self.layout):
            return None
        from rmqctl.store.rocksdb.message_storage import MessageStorage

        return MessageStorage(self.layout.message_storage, self.descriptors)

    @property
    def has_keys_in_rocksdb_alone(self) -> bool:
        """Whether no index file is there and `rocksdbstore/` has the keys (indexRocksDBEnable), or may have them where
        it is damaged."""
        index = self.__dict__.get("index") or self.index_to_mend
        if index.files or index.problems:
            return False
        try:
            return self.message_storage is not None and self.message_storage.has_index()
        except CorruptError:
            return True

    @property
    def makes_index_files(self) -> bool:
        """Whether a change that finds no index file makes one."""
        return self.config.writes_index_files and not self.has_keys_in_rocksdb_alone

    def sizes(self) -> dict[str, int]:
        """What new files of queues and index will be like, by the names of StoreConfig."""
        slots, entries = self.index_to_mend.geometry
        return {
            "max_hash_slot_num": slots,
            "max_index_num": entries,
            "mapped_file_size_consume_queue": self.queues.consumequeue_file_size(),
            "mapper_file_size_batch_consume_queue": self.queues.batch_file_size(),
        }

    def take_sizes(self, sizes: Mapping[str, int]) -> None:
        """Make new files of these sizes, by the names of StoreConfig, from now on."""
        self.config = self.config._replace(**sizes)  # type: ignore[arg-type]  # all of them are sizes
        for name in ("queues", "index", "index_to_mend", "has_tag_entries"):
            self.__dict__.pop(name, None)  # found with the sizes known before

    @cached_property
    def index_to_mend(self) -> IndexService:
        """The index for a change: a file that cannot be read is one of its problems, to be made again."""
        service = IndexService(self.layout.index, self.config, self.descriptors)
        service.load(is_to_be_mended=True)
        return service

    def look_again(self) -> None:
        """Take in what other processes added and removed since the store was opened. Files that are known stay the
        same objects, with the references that readers hold."""
        self.log.look_again()
        self.__dict__.pop("message_storage", None)
        if not has_rocksdb_queues(self.layout):
            self.queues.look_again()
        self.index.look_again()

    def missing_log(self) -> str | None:
        """What to say where there is no commitlog file although something of the store points into one; else None."""
        if self.log.files or self.log.problems or self.dledger is not None:
            return None
        # the folder of a topic alone points nowhere: a power cut may have taken the queue that it was made for
        if not list_queues(self.layout.consumequeue) and not self.index.files:
            return None
        return f"there is no commitlog file below {self.layout.commitlog[0]}, but queues or index point into one"

    def lost_log(self) -> CorruptError | None:
        """Return the same as damage that hides every message."""
        missing = self.missing_log()
        hint = "bring it back, or name its place: -c broker.conf with storePathCommitLog"
        return None if missing is None else CorruptError(missing, hint=hint)

    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint as it is on disk now."""
        return read_checkpoint(self.layout.checkpoint)

    def readable_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint; None also where it cannot be read, which `check` reports and `recover` replaces."""
        try:
            return self.checkpoint()
        except UnreadableError:
            return None

    def checkpoint_problem(self) -> str | None:
        """Return why the checkpoint cannot be read; None where it is readable or missing."""
        try:
            self.checkpoint()
        except UnreadableError as error:
            return error.message
        return None

    def keeps_logics_offset(self) -> bool:
        """Return whether the checkpoint's logics_physical_offset is kept: by the version, or as it was kept before."""
        checkpoint = self.readable_checkpoint()
        is_kept = checkpoint is not None and checkpoint.logics_physical_offset != 0
        return is_kept or release_of(self.layout).keeps_logics_offset or self.config.index_tags is True

    @property
    def leaves_queues(self) -> bool:
        """Whether recovery leaves the queues to the broker: those of a DLedger member in a RocksDB, which a start makes
        where it is missing."""
        is_rocksdb = has_rocksdb_queues(self.layout) or (self.config.store_type or "").startswith("defaultRocksDB")
        return self.dledger is not None and is_rocksdb

    def has_abort(self) -> bool:
        """Whether the store is open somewhere or was not closed cleanly."""
        return exists(self.layout.abort)

    def lock_holder(self) -> int | None:
        """Return the process id of the holder of the broker's lock."""
        return lock_holder(self.layout.lock)

    def close(self) -> None:
        """Close all descriptors."""
        self.descriptors.close()

    def __enter__(self) -> StoreFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_store(layout: StoreLayout) -> None:
    root = layout.root
    try:
        names = set(os.listdir(root))
    except FileNotFoundError:
        hint = ONE_STORE if is_wild(root) else "name the store with -s DIR or RMQCTL_STORE"
        raise NotAStoreError("there is no such directory", file=root, hint=hint) from None
    except NotADirectoryError:
        raise NotAStoreError(
            "is a file, not a store directory", file=root, hint="look into a single file with `rmqctl dump FILE`"
        ) from None
    except OSError as error:
        raise unreadable(error, root, "listed", hint="check its permissions") from error
    if not names:
        raise NotAStoreError("the directory is empty", file=root, hint="name the store with -s DIR or RMQCTL_STORE")
    is_one = not names.isdisjoint(_MARKS) or any(is_directory(directory) for directory in layout.commitlog)
    if not is_one and dledger_log(layout) is None:
        below = sorted(name for name in names if is_directory(root / name / "commitlog"))
        hint = f"did you mean {root / below[0]}?" if below else "a store holds commitlog/, consumequeue/, checkpoint"
        place = root.absolute()
        if place.name in (*_MARKS, "config"):
            hint = f"this folder is a part of a store: did you mean {place.parent}?"
        raise NotAStoreError("holds nothing of a RocketMQ store", file=root, hint=hint)


# Logs of a store that are recognised and not read yet: DLedger, compacted topics, tiered storage.

_DLEDGER = "dledger-"


class DledgerLog(NamedTuple):
    """The data folder of a DLedger log, the number and bytes of its files, and the offset that it begins at."""

    folder: Path
    files: int
    bytes: int
    begin: int

    @property
    def said(self) -> str:
        """Return what there is, in words."""
        return f"the commitlog is a DLedger log ({self.folder.parent.name}/data)"

    @property
    def hint(self) -> str:
        """Return the way out."""
        return (
            "`rmqctl recover` ends the log where DLedger does, and completes queues and index, `rmqctl rebuild` makes "
            f"these again; `rmqctl salvage {self.folder.parent.parent} --to NEW` makes a plain store of it"
        )

    def error(self) -> UnsupportedError:
        """Return what to raise where a change of the store is asked for."""
        text = f"{self.said}, which DLedger and `rmqctl recover` alone change"
        return UnsupportedError(text, file=self.folder.parent.parent, hint=self.hint)


def dledger_log(layout: StoreLayout) -> DledgerLog | None:
    """Return the DLedger log that goes on where the commitlog ends, or is all of it; None without one.

    One is left over from an earlier configuration where a commitlog file that begins with it or after it holds data.
    UnreadableError.
    """
    found = max(_dledger_logs(layout.root), key=lambda log: log.begin + log.bytes, default=None)
    if found is None or any(_begins_with_data(one, found.begin) for one in layout.commitlog):
        return None
    return found


def has_dledger_files(layout: StoreLayout) -> bool:
    """Return whether the store has a DLedger log, also one that was left. UnreadableError."""
    return any(_dledger_logs(layout.root))


def _begins_with_data(directory: Path, begin: int) -> bool:
    """Return whether a file from offset `begin` on is not preallocated only."""
    later = [start for start, size in _offset_files(directory) if size and start >= begin]
    return any(any(read_small_file(directory / file_name(start), 8)[:8]) for start in later)


def is_of_dledger(path: Path) -> bool:
    """Return whether a path is that of a file of a DLedger log, whose frames are the bodies of entries."""
    return path.parent.name == "data" and path.parent.parent.name.startswith(_DLEDGER)


def _dledger_logs(root: Path) -> Iterator[DledgerLog]:
    for name in listed(root):
        data = root / name / "data"
        if name.startswith(_DLEDGER) and is_directory(data):
            sizes = dict(_offset_files(data))
            if any(sizes.values()):
                yield DledgerLog(data, len(sizes), sum(sizes.values()), min(sizes))


def _ends(directory: Path) -> Iterator[int]:
    for start, size in _offset_files(directory):
        if size:
            yield start + size


def _offset_files(directory: Path) -> Iterator[tuple[int, int]]:
    """Yield start offset and size of the files in a folder of files named by their offsets."""
    for name in listed(directory):
        if is_file_name(name):
            with named(directory / name):
                size = os.stat(directory / name).st_size
            yield int(name), size


def refuse_dledger(layout: StoreLayout) -> None:
    """Raise UnsupportedError for a store whose commitlog is a DLedger log: no change of it can be planned."""
    log = dledger_log(layout)
    if log is not None:
        raise log.error()


class UnreadCopy(NamedTuple):
    """The copy that a queue has in another log. `kind`: compaction or tiered; offsets are queue offsets."""

    kind: str
    topic: str
    queue_id: int
    messages: int
    min_offset: int
    max_offset: int
    folder: Path

    def holds(self, queue_offset: int) -> bool:
        """Return whether the copy may have the message at a queue offset."""
        return self.min_offset <= queue_offset < self.max_offset


def unread_copies(layout: StoreLayout, topic: str | None = None) -> list[UnreadCopy]:
    """Return the copies of all queues, or of those of a topic. UnreadableError."""
    found = [*_compacted(layout.root / "compaction", topic), *_tiered(layout.config, topic)]
    return sorted(found, key=lambda copy: (copy.topic, copy.queue_id, copy.kind))


def _compacted(folder: Path, topic: str | None) -> Iterator[UnreadCopy]:
    """Yield the queues of compactionCq that lead to messages."""
    queues = folder / "compactionCq"
    for name in listed(queues) if topic is None else [topic] if is_safe_topic(topic) else []:
        for queue_id in listed(queues / name):
            if queue_id.isascii() and queue_id.isdigit():
                folder_of_queue = queues / name / queue_id
                files = [folder_of_queue / one for one in listed(folder_of_queue) if is_file_name(one)]
                offsets = [unit.queue_offset for path in files for unit in sparse_units(path)]
                if offsets:
                    first, last = min(offsets), max(offsets)
                    yield UnreadCopy("compaction", name, int(queue_id), len(offsets), first, last + 1, folder)


def _tiered(config: Path, topic: str | None) -> Iterator[UnreadCopy]:
    """Yield the queues that the table of tiered storage names, none where it cannot be read: `check` reports that."""
    from rmqctl.store.config.tiered_table import TABLE, UNITS, read_segment_table

    try:
        table = read_segment_table(config) or {}
    except (CorruptError, UnreadableError):
        return
    for (kind, name, queue_id), sizes in table.items():
        written = {base: size for base, size in sizes.items() if size}
        if kind == UNITS and topic in (None, name) and written:
            begin = min(written) // CONSUMEQUEUE_UNIT.size
            end = max((base + size) // CONSUMEQUEUE_UNIT.size for base, size in written.items())
            if end > begin:
                yield UnreadCopy("tiered", name, queue_id, end - begin, begin, end, config / TABLE)
