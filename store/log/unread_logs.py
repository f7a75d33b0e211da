"""Logs of a store that are recognised and not read yet: DLedger, compacted topics, tiered storage."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, UnsupportedError
from rmqctl.formats.layouts import BATCH_CONSUMEQUEUE_UNIT, CONSUMEQUEUE_UNIT
from rmqctl.store.config.config_files import read_config
from rmqctl.store.files.layout import StoreLayout, is_file_name, is_safe_topic
from rmqctl.store.files.reading import is_directory, named

_DLEDGER = "dledger-"
_TIERED = "tieredStoreMetadata.json"


class DledgerLog(NamedTuple):
    """The data folder of a DLedger log, the number and bytes of its files, and the offset that it begins at."""

    folder: Path
    files: int
    bytes: int
    begin: int

    @property
    def said(self) -> str:
        """Return what there is, in words."""
        return f"the commitlog is a DLedger log ({self.folder.parent.name}/data), which is not read yet"

    @property
    def hint(self) -> str:
        """Return the way out."""
        return f"`rmqctl salvage {self.folder} --to NEW` brings its messages into a new store"

    def error(self) -> UnsupportedError:
        """Return what to raise where its messages are asked for, or a change of the store."""
        return UnsupportedError(self.said, file=self.folder.parent.parent, hint=self.hint)


def dledger_log(layout: StoreLayout) -> DledgerLog | None:
    """Return the DLedger log that goes on where the commitlog ends, or is all of it; None if there is none.

    One that begins before the commitlog's end is left over from an earlier configuration. UnreadableError.
    """
    found = max(_dledger_logs(layout.root), key=lambda log: log.begin + log.bytes, default=None)
    if found is None:
        return None
    end = max((end for directory in layout.commitlog for end in _ends(directory)), default=0)
    return found if found.begin >= end else None


def _dledger_logs(root: Path) -> Iterator[DledgerLog]:
    for name in _names(root):
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
    for name in _names(directory):
        if is_file_name(name):
            with named(directory / name):
                size = os.stat(directory / name).st_size
            yield int(name), size


def _names(directory: Path) -> list[str]:
    with named(directory):
        try:
            return sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []


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
    found = [*_compacted(layout.root / "compaction", topic), *_tiered(layout.config / _TIERED, topic)]
    return sorted(found, key=lambda copy: (copy.topic, copy.queue_id, copy.kind))


def _compacted(folder: Path, topic: str | None) -> Iterator[UnreadCopy]:
    """Yield the queues of compactionCq that lead to messages."""
    queues = folder / "compactionCq"
    for name in _names(queues) if topic is None else [topic] if is_safe_topic(topic) else []:
        for queue_id in _names(queues / name):
            if queue_id.isascii() and queue_id.isdigit():
                offsets = [*_unit_offsets(queues / name / queue_id)]
                if offsets:
                    first, last = min(offsets), max(offsets)
                    yield UnreadCopy("compaction", name, int(queue_id), len(offsets), first, last + 1, folder)


def _unit_offsets(directory: Path) -> Iterator[int]:
    """Yield the queue offsets of the units in the files of a sparse queue; an invalid unit ends a file."""
    for name in _names(directory):
        if not is_file_name(name):
            continue
        with named(directory / name):
            data = (directory / name).read_bytes()
        whole = len(data) - len(data) % BATCH_CONSUMEQUEUE_UNIT.size
        for physical_offset, size, _, _, base, count, *_ in BATCH_CONSUMEQUEUE_UNIT.struct.iter_unpack(data[:whole]):
            if physical_offset < 0 or size <= 0 or base < 0 or count <= 0:
                break
            yield base


def _tiered(path: Path, topic: str | None) -> Iterator[UnreadCopy]:
    """Yield the queues that the table of tiered storage names. A damaged table names none: `check` reports it."""
    try:
        content = read_config(path)
    except CorruptError:
        return
    table = content.get("consumeQueueFileSegmentTable") if isinstance(content, dict) else None
    for place, segments in (table if isinstance(table, dict) else {}).items():
        _, name, queue_id = ["", "", *str(place).rsplit("/", 2)][-3:]
        if topic in (None, name) and queue_id.isascii() and queue_id.isdigit() and isinstance(segments, dict):
            begin, end = _bounds(segments)
            if end > begin:
                yield UnreadCopy("tiered", name, int(queue_id), end - begin, begin, end, path)


def _bounds(segments: Mapping[Any, Any]) -> tuple[int, int]:
    """Return the first queue offset of the segments of a queue, and the one after the last."""
    bounds = []
    for base, segment in segments.items():
        size = segment.get("size") if isinstance(segment, dict) else None
        if str(base).isdigit() and isinstance(size, int) and size > 0:
            bounds += [int(base) // CONSUMEQUEUE_UNIT.size, (int(base) + size) // CONSUMEQUEUE_UNIT.size]
    return min(bounds, default=0), max(bounds, default=0)
