"""Plan new messages at the end of a store at rest: their frames, units and index entries. Undo takes them back."""

from __future__ import annotations

from collections.abc import Iterable

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import key_hash, tag_key, tags_code
from rmqctl.formats.layouts import BLANK_FRAME, CONSUMEQUEUE_UNIT, INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from rmqctl.formats.message import LOCAL_HOST, Message, frame_bytes, prepare_frame
from rmqctl.store.index.index_file import IndexHeader, next_entry
from rmqctl.store.index.index_service import IndexService, index_file_name_after
from rmqctl.store.journal.journal import PlannedChange
from rmqctl.store.journal.plan import CreateFile, Plan, WriteRange
from rmqctl.store.queues.consumequeue import UNIT_SIZE, QueueKey
from rmqctl.store.recover.bridge import blank_head
from rmqctl.store.recover.ext_units import QueueFiles
from rmqctl.store.write.opening import check_store

# how much is put into the journal at once
_WRITE = 1 << 20


class _Target:
    """Collects what comes next at a place of some files, and plans it in large pieces, each of one file."""

    def __init__(self, files: QueueFiles, offset: int) -> None:
        self._files, self._begin, self._data = files, offset, bytearray()

    @property
    def left(self) -> int:
        """Bytes up to the end of the file."""
        return self._files.file_size - self.offset % self._files.file_size

    @property
    def offset(self) -> int:
        return self._begin + len(self._data)

    def put(self, data: bytes, *, skip: int = 0) -> None:
        """Add bytes of one file, and `skip` bytes after them that stay as they are."""
        self._data += data
        if skip or len(self._data) >= _WRITE or not self.offset % self._files.file_size:
            self.flush(skip)

    def flush(self, skip: int = 0) -> None:
        if self._data:
            self._files.write(self._begin, bytes(self._data))
        self._begin, self._data = self.offset + skip, bytearray()


def plan_messages(change: PlannedChange, messages: Iterable[Message], now: int) -> None:
    """Plan that the log goes on with `messages`, each in a queue of 20-byte units, with a tag and without keys.

    RefusedError or UnsupportedError for a store that could not be opened for writing.
    """
    files, plan, spill = change.files, change.plan, change.spill
    end = check_store(files)
    log, config = files.log, files.config
    host = (end.last_store_host or LOCAL_HOST).as_written
    now = max(now, end.last_timestamp)
    frames = _Target(QueueFiles(log, log.file_size, plan, spill), end.end_offset)
    queues: dict[QueueKey, _Target] = {}
    entries = _EntriesAtEnd(files.index, plan) if files.makes_index_files and files.has_tag_entries else None
    for message in messages:
        parts = prepare_frame(
            message, host, now, with_property_crc=config.enabled_append_prop_crc,
            allow_v2=config.auto_message_version_on_topic_len,
        )  # fmt: skip
        if parts.total_size > frames.left - BLANK_FRAME.size:
            frames.put(blank_head(frames.left), skip=frames.left - BLANK_FRAME.size)
        key, tag, place = (message.topic, message.queue_id), message.properties[names.TAGS], frames.offset
        units = queues.get(key)
        if units is None:
            queue = files.queues.find(*key) or files.queues.absent(*key)
            stored = QueueFiles(queue.files, files.queues.consumequeue_file_size(), plan, spill)
            units = queues[key] = _Target(stored, queue.max_offset * UNIT_SIZE)
        frames.put(frame_bytes(parts, units.offset // UNIT_SIZE, place, now))
        units.put(CONSUMEQUEUE_UNIT.struct.pack(place, parts.total_size, tags_code(tag)))
        if entries is not None:
            entries.put(key_hash(message.topic, tag_key(tag)), place, now)
    for target in (frames, *queues.values()):
        target.flush()
    if entries is not None:
        entries.finish()
    last = log.find(end.end_offset)
    if last is not None:
        plan.times.pop(last.path, None)


class _EntriesAtEnd:
    """Plans entries behind the last ones of an index, as IndexFile.put writes them."""

    def __init__(self, index: IndexService, plan: Plan) -> None:
        self._index, self._plan = index, plan
        self._file = index.files[-1] if index.files else None
        self._path = index.directory / "" if self._file is None else self._file.path
        self._geometry = index.geometry if self._file is None else self._file.geometry
        self._header = None if self._file is None else self._file.header
        self._slots: dict[int, int] = {}
        self._entries = bytearray()

    def put(self, hashed: int, physical_offset: int, timestamp: int) -> None:
        """Plan the next entry."""
        if self._header is None or self._header.index_count >= self._geometry.entries:
            self.finish()
            name = index_file_name_after(timestamp, self._path.name if self._header is not None else "")
            self._file, self._path, self._geometry = None, self._index.directory / name, self._index.geometry
            self._plan.add(CreateFile(self._path, self._geometry.file_size))
            self._header = IndexHeader(0, 0, 0, 0, 0, 1)
        place = self._geometry.slot_position(hashed)
        previous = self._slots.get(place)
        if previous is None:
            previous = 0 if self._file is None else self._file.slot(hashed)
        self._slots[place] = self._header.index_count
        entry, self._header = next_entry(self._header, hashed, physical_offset, timestamp, previous)
        self._entries += entry

    def finish(self) -> None:
        """Plan the entries of the file, their slots and its header."""
        if self._header is None or not self._entries:
            return
        first = self._header.index_count - len(self._entries) // INDEX_ENTRY.size
        self._plan.add(WriteRange(self._path, self._geometry.entry_position(first), bytes(self._entries)))
        for place, number in self._slots.items():
            self._plan.add(WriteRange(self._path, place, INDEX_SLOT.struct.pack(number)))
        self._plan.add(WriteRange(self._path, 0, INDEX_HEADER.struct.pack(*self._header)))
        self._slots, self._entries = {}, bytearray()
