"""Decide whether a store's key index has entries of tags (`topic#T#tag`), which RocketMQ 5.4 and later write.

The rule, asked by everything that writes an index (append, serve, recover, rebuild, repair, salvage, Spark):
1. `indexTags=true|false` of the configuration decides.
2. Else the newest message with a tag that is in the index does: its entry of the tag is there or not.
3. Where it is not there, or no such message is found, `rocksdbstore/` decides, which 5.4 and later make in every store;
   but an index whose older messages have entries of tags and whose newest does not is written by an older broker again.
A wrong guess damages nothing: no older broker asks for these entries, and without them only queries by tag find less.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.hashing import key_hash
from rmqctl.formats.layouts import INDEX_ENTRY
from rmqctl.formats.message import StoredMessage
from rmqctl.store.commitlog.one_message import message_if_any
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.presence import exists
from rmqctl.store.index.index_file import IndexFile
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.queues.dispatch import index_keys

_ENTRIES = 512
_MESSAGES = 64


def has_tag_entries(index: IndexService, log: MappedFileQueue, layout: StoreLayout, configured: bool | None) -> bool:
    """Return whether index entries of tags are to be written; `configured`: what indexTags says, None for nothing."""
    if configured is not None:
        return configured
    newest = newest_has_tag_entry(index, log)
    if newest:
        return True
    if not is_of_5_4_or_later(layout):
        return False
    return newest is None or not any(_has(file, log, from_end=False) for file in index.files)


def is_of_5_4_or_later(layout: StoreLayout) -> bool:
    """Return whether RocketMQ 5.4 or later has opened the store: it makes `rocksdbstore/` whether it uses it or not."""
    return exists(layout.root / "rocksdbstore" / "CURRENT")


def holds_rocksdb_data(layout: StoreLayout) -> bool:
    """Return whether `rocksdbstore/` has any table or log with data: it may be the key index (indexRocksDBEnable)."""
    folder = layout.root / "rocksdbstore"
    if not is_of_5_4_or_later(layout):
        return False
    names = [path for path in folder.iterdir() if path.suffix in (".sst", ".log")]
    return any(path.suffix == ".sst" or path.stat().st_size > 0 for path in names)


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
