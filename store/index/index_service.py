"""All index files of a store: loading them, finding offsets by key, and adding keys of new messages."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from rmqctl.formats.checksums import key_hash
from rmqctl.formats.errors import CorruptError, RemovedError, RmqctlError, UnreadableError, unreadable
from rmqctl.formats.layouts import INDEX_ENTRY
from rmqctl.formats.message import StoredMessage
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.releases import Release, release_shown
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, is_database
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors, is_file, removed_error, status_of
from rmqctl.store.index.index_file import DEFAULT_ENTRIES, DEFAULT_SLOTS, Geometry, IndexFile, fits, infer_geometry
from rmqctl.store.log.walk import message_if_any
from rmqctl.store.queues.dispatch import index_keys

_NAME_DIGITS = 17
# some day of the last year with four digits
_LATEST_MS = 253_370_764_800_000
_TRIED_NAMES = 10_000


def index_file_name(now_ms: int) -> str:
    """Name of an index file created at `now_ms`: local time as yyyyMMddHHmmssSSS."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"


def index_file_name_after(now_ms: int, before: str) -> str:
    """The same, later than the name `before` (empty for none). A damaged time may be anything: it is brought into
    the years that the name can say."""
    moment = min(max(now_ms, 0), _LATEST_MS)
    for later in range(_TRIED_NAMES):
        name = index_file_name(moment + later)
        if name > before:
            return name
    return f"{int(before) + 1:0{_NAME_DIGITS}d}"


class IndexService:
    """Index files, oldest first. Files that cannot be an index are in `problems` as (path, what is wrong)."""

    def __init__(self, directory: Path, config: StoreConfig, descriptors: Descriptors) -> None:
        self.directory = directory
        self._config = config
        self._descriptors = descriptors
        self.files: list[IndexFile] = []
        self.problems: list[tuple[Path, str]] = []
        self._changing = threading.Lock()

    @property
    def configured_geometry(self) -> Geometry | None:
        """Geometry of the configuration, if it names it."""
        if self._config.max_hash_slot_num is None and self._config.max_index_num is None:
            return None
        return Geometry(self._config.max_hash_slot_num or DEFAULT_SLOTS, self._config.max_index_num or DEFAULT_ENTRIES)

    def load(self, *, is_to_be_mended: bool = False) -> None:
        """List and open the files. A file whose geometry is neither the configured one nor found is a problem; one that
        cannot be read is only if the index `is_to_be_mended`, else an UnreadableError."""
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return
        except OSError as error:
            raise unreadable(error, self.directory, "listed") from error
        for name in names:
            path = self.directory / name
            if not (name.isascii() and name.isdigit() and len(name) == _NAME_DIGITS and is_file(path)):
                self.problems.append((path, "not an index file by its name"))
                continue
            try:
                geometry = self._geometry_of(path)
                if geometry is None:
                    self.problems.append((path, "its length and its entries fit no number of slots"))
                    continue
                self.files.append(IndexFile(path, geometry, self._descriptors))
            except CorruptError as error:
                self.problems.append((path, error.message))
            except RemovedError:  # since it was listed, as a cleaner removes the oldest
                continue
            except UnreadableError as error:
                if not is_to_be_mended:
                    raise
                self.problems.append((path, error.message))

    def _geometry_of(self, path: Path) -> Geometry | None:
        status = status_of(path)
        if status is None:
            raise removed_error(path)
        size = status.st_size
        configured = self.configured_geometry
        if configured is not None and configured.file_size == size and fits(path, configured, self._descriptors):
            return configured
        for known in dict.fromkeys(file.geometry for file in reversed(self.files)):
            if known.file_size == size and fits(path, known, self._descriptors):
                return known
        return infer_geometry(path, size, self._descriptors)

    @property
    def geometry(self) -> Geometry:
        """Geometry for new files: the configured one, else that of most files, else RocketMQ's default."""
        if self.configured_geometry is not None:
            return self.configured_geometry
        counted = Counter(file.geometry for file in self.files)
        return counted.most_common(1)[0][0] if counted else Geometry(DEFAULT_SLOTS, DEFAULT_ENTRIES)

    @property
    def is_geometry_assumed(self) -> bool:
        """Whether neither a configuration nor a file says how large an index file is to be."""
        return self.configured_geometry is None and not self.files

    def put(self, topic: str, key: str, physical_offset: int, store_timestamp: int) -> bool:
        """Add one key of a message; True if a file became full with it (its times may go to the checkpoint)."""
        file = self.open_file(store_timestamp)
        file.put(key_hash(topic, key), physical_offset, store_timestamp)
        return file.is_full

    def open_file(self, store_timestamp: int) -> IndexFile:
        """The file that takes the next key, a new one if need be. (IndexService#retryGetAndCreateIndexFile)"""
        if not self.files or self.files[-1].is_full:
            self.create_file(store_timestamp)
        return self.files[-1]

    def create_file(self, now_ms: int | None = None) -> IndexFile:
        """A new last file, named by the time given or now, later than every other name."""
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        name = index_file_name_after(now, self.files[-1].path.name if self.files else "")
        io.make_directories(self.directory, flushed=True)
        path = self.directory / name
        io.create_file(path, self.geometry.file_size)
        # now, because whoever flushes the file later does not know that it is new
        io.flush_directory(self.directory)
        file = IndexFile(path, self.geometry, self._descriptors)
        with self._changing:
            self.files = [*self.files, file]
        return file

    def forget(self, gone: Collection[Path]) -> None:
        """Take removed files out of the list, which is replaced: a reader may iterate over it."""
        with self._changing:
            self.files = [file for file in self.files if file.path not in gone]

    def look_again(self) -> None:
        """Take in what another process changed. Files that were known stay the same objects."""
        anew = IndexService(self.directory, self._config, self._descriptors)
        anew.load()
        known = {file.path: file for file in self.files}
        for file in anew.files:
            if file.path in known:
                known[file.path].header = file.header
        self.files = [known.get(file.path, file) for file in anew.files]
        self.problems = anew.problems

    def flush(self) -> None:
        """fsync the files that were put to."""
        for file in self.files:
            file.flush()

    def close(self) -> None:
        """Flush and close."""
        for file in self.files:
            file.close()

    def release(self) -> None:
        """Close without flushing; for a store that failed."""
        for file in self.files:
            file.release()


# Decide whether a store's key index has entries of tags (`topic#T#tag`), which RocketMQ 5.4 and later write.
#
# The rule, asked by everything that writes an index (append, serve, recover, rebuild, repair, salvage, Spark):
# 1. `indexTags=true|false` of the configuration decides.
# 2. Else the newest message with a tag that is in the index does: its entry of the tag is there or not.
# 3. Where it is not there, or no such message is found, `rocksdbstore/` decides, which 5.4 and later make in every
#    store; but an index whose older messages have entries of tags and whose newest does not is written by an older
#    broker again.
# A wrong guess damages nothing: no older broker asks for these entries, and without them only queries by tag find less.

_ENTRIES = 512
_MESSAGES = 64


def has_tag_entries(index: IndexService, log: MappedFileQueue, layout: StoreLayout, configured: bool | None) -> bool:
    """Return whether index entries of tags are to be written; `configured`: what indexTags says, None for nothing."""
    if configured is not None:
        return configured
    newest = newest_has_tag_entry(index, log)
    if newest:
        return True
    if not release_of(layout).has_tag_queries:
        return False
    return newest is None or not any(_has(file, log, from_end=False) for file in index.files)


def release_of(layout: StoreLayout) -> Release:
    """Return the version by whose rules the store is written, as far as its folders show it."""
    return release_shown(has_rocksdb_store=is_database(layout.message_storage))


def holds_rocksdb_data(layout: StoreLayout) -> bool:
    """Return whether `rocksdbstore/` has any table or log with data: it may be the key index (indexRocksDBEnable)."""
    folder = layout.message_storage
    if not is_database(folder):
        return False
    paths = [path for path in folder.iterdir() if path.suffix in (".sst", ".log")]
    # a broker may remove a log meanwhile, and a link may lead nowhere
    return any(path.suffix == ".sst" or ((found := status_of(path)) and found.st_size > 0) for path in paths)


def newest_has_tag_entry(index: IndexService, log: MappedFileQueue) -> bool | None:
    """Return whether the newest message with a tag in the index has its entry; None if no such message is found."""
    for file in reversed(index.files):
        said = _has(file, log, from_end=True)
        if said is not None:
            return said
    return None


def _has(file: IndexFile, log: MappedFileQueue, *, from_end: bool) -> bool | None:
    """Return whether the first message with a tag, from an end of `file`, has its entry; None if none has a tag."""
    try:
        found = _by_message(file, from_end=from_end)
        for place, (offset, hashes) in enumerate(found):
            if place == _MESSAGES:
                return None
            message = message_if_any(log, offset)
            wanted = None if message is None else _hash_of_tag(message)
            if wanted is None:
                continue
            if wanted in hashes:
                return True
            # the entries of the first and the last message of a file may be in two files, or not all written
            if offset not in (file.header.begin_physical_offset, file.header.end_physical_offset):
                return False
    except RmqctlError:
        pass
    return None


def _hash_of_tag(message: StoredMessage) -> int | None:
    """Return the hash of the entry of a message's tag; None without a tag, or where a key reads the same."""
    keys = index_keys(message)
    tags = index_keys(message, with_tags=True)[len(keys) :]
    return key_hash(message.topic, tags[0]) if tags else None


def _by_message(file: IndexFile, *, from_end: bool) -> Iterator[tuple[int, set[int]]]:
    """Yield physical offset and hashes of the messages at one end of a file, from that end on."""
    count = file.header.index_count - 1
    first = max(1, count + 1 - _ENTRIES) if from_end else 1
    data = file.read_entries(first, min(count + 1 - first, _ENTRIES)) if count > 0 else b""
    hashes: dict[int, set[int]] = {}
    for fields in INDEX_ENTRY.struct.iter_unpack(data[: len(data) - len(data) % INDEX_ENTRY.size]):
        hashes.setdefault(fields[1], set()).add(fields[0])
    found = list(hashes.items())
    if first > 1:
        del found[0]  # entries before these may be its
    elif len(found) > 1 and not from_end and count > _ENTRIES:
        del found[-1]
    yield from reversed(found) if from_end else found
