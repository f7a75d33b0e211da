"""Any store file, structure by structure and field by field, with byte offsets: damaged files as far as they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from construct import Struct

from rmqctl.formats import schemas as checkpoint
from rmqctl.formats import schemas as consumequeue
from rmqctl.formats import schemas as dledger
from rmqctl.formats import schemas as index
from rmqctl.formats import schemas as message
from rmqctl.formats import schemas as timer
from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import CorruptError, UnreadableError, UnsupportedError, unreadable
from rmqctl.formats.layouts import (
    BATCH_CONSUMEQUEUE_UNIT,
    BLANK_MAGIC,
    CHECKPOINT,
    CONSUMEQUEUE_EXT_UNIT_HEAD,
    CONSUMEQUEUE_UNIT,
    DLEDGER_ENTRY_HEAD,
    DLEDGER_INDEX_UNIT,
    FRAME_HEADS,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    LOCAL_TIERED_INDEX_ITEM,
    LOCAL_TIERED_INDEX_SLOT,
    TIERED_INDEX_HEADER,
    TIERED_INDEX_ITEM,
    TIERED_INDEX_SLOT,
    TIMER_CHECKPOINT,
    TIMER_LOG_UNIT,
    TIMER_WHEEL_SLOT,
    TIMER_WHEEL_SLOTS,
)
from rmqctl.formats.message import Reason, StoredMessage
from rmqctl.store.config.accounts import is_secret_folder, without_passwords
from rmqctl.store.config.client_offsets import (
    LARGEST,
    client_place,
    is_client_text,
    next_of_damaged,
    read_client_offsets,
)
from rmqctl.store.dump.items import DumpField, DumpItem, Opened, empty_items, explained, plain_value, time_text
from rmqctl.store.dump.recognise import FileKind, recognise
from rmqctl.store.files.layout import is_file_name
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors, data_extents, end_of_nonzero, is_file
from rmqctl.store.index.index_file import infer_geometry
from rmqctl.store.log.walk import Blank, Damage, Empty, Record, walk
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, ext_offset
from rmqctl.store.read.frames import span_of
from rmqctl.store.rocksdb.listing import is_listed, listed_file
from rmqctl.store.store_files import is_of_dledger

# The offsets of a broadcasting consumer in a dump: one item for each queue, then what is damaged.

CLIENT_OFFSET = "client offset"


def client_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    """Each queue's offset in an offsets.json, and its damage, from byte `at` on."""
    data = opened.read(0, min(opened.size, LARGEST))
    found = read_client_offsets(data)
    place = client_place(opened.path)
    if not found.offsets and found.damage is None:
        yield DumpItem("client offsets", 0, opened.size, note="no offsets are kept", raw=data)
    for one in found.offsets:
        if one.end <= at:
            continue
        size = one.end - one.begin
        values = {
            "client_id": place.client_id,
            "group": place.group,
            "topic": one.topic,
            "broker_name": one.broker_name,
            "queue_id": one.queue_id,
            "offset": one.offset,
        }
        fields = [DumpField(name, one.begin, size, value, str(value), "") for name, value in values.items()]
        yield DumpItem(CLIENT_OFFSET, one.begin, size, fields=fields, raw=data[one.begin : one.end])
    if found.damage is not None:
        begin = found.damaged_at
        item = DumpItem("client offsets", begin, opened.size - begin, raw=data[begin:])
        item.damage = found.damage
        item.note = next_of_damaged(opened.path)
        yield item
    elif found.why_not:
        yield DumpItem("client offsets", 0, opened.size, note=f"not loaded by clients of {found.why_not}")


# The structures of an index file for a dump: header, slots in use, entries.

_CHUNK = 1 << 16


def index_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    """Structures that end behind byte `at`. Slots and entries only if the file's geometry is known.

    CorruptError where it cannot: where the slots end and the entries begin is not written in the file.
    """
    head = opened.read(0, INDEX_HEADER.size)
    header = explained("index header", index.index_header, head, 0)
    if at < INDEX_HEADER.size:
        yield header
    if header.damage is not None:
        return
    geometry = infer_geometry(opened.path, opened.size, opened.descriptors)
    count = INDEX_HEADER.unpack_from(head, 0)[5]
    if geometry is None:
        if count <= 1:
            return
        raise CorruptError(
            "the file's length and its entries fit no number of slots",
            file=opened.path,
            hint="--hex shows its bytes; `rmqctl rebuild --index` rebuilds the index from the commitlog",
        )
    entries_at = geometry.entry_position(0)
    yield from _slots(opened, range(max(at, INDEX_HEADER.size), entries_at), count, _INDEX_SLOTS)
    first = max(1, (at - entries_at) // INDEX_ENTRY.size if at > entries_at else 1)
    for number in range(first, count):
        offset = geometry.entry_position(number)
        data = opened.read(offset, INDEX_ENTRY.size)
        item = explained("index entry", index.index_entry, data, offset)
        item.position = number
        if item.damage is None and not 0 <= item.fields[3].value < number:
            item.damage = "the chain leads on to an entry that is not older"
        yield item


class _Slots(NamedTuple):
    """Slots of a kind of index: `head`: bytes before them; `wrong`: what is said of one that leads nowhere."""

    kind: str
    schema: Struct
    size: int
    head: int
    wrong: str


_INDEX_SLOTS = _Slots(
    "index slot", index.index_slot, INDEX_SLOT.size, INDEX_HEADER.size, "the slot holds no entry's number"
)
_LOCAL_SLOTS = _Slots(
    "local tiered index slot",
    index.local_tiered_index_slot,
    LOCAL_TIERED_INDEX_SLOT.size,
    TIERED_INDEX_HEADER.size,
    "the slot holds no item's number",
)


def _slots(opened: Opened, places: range, count: int, slots: _Slots) -> Iterator[DumpItem]:
    """Slots in these places that are not zero. There are five million of them by default, most in holes of the file."""
    for start, stop in data_extents(opened.path, places.start, places.stop):
        aligned = start - (start - slots.head) % slots.size
        for offset in range(aligned, stop, _CHUNK):
            data = opened.read(offset, min(_CHUNK, stop - offset))
            for place in range(0, len(data) - slots.size + 1, slots.size):
                raw = data[place : place + slots.size]
                if not any(raw):
                    continue
                item = explained(slots.kind, slots.schema, raw, offset + place)
                item.position = (offset + place - slots.head) // slots.size
                if not 0 < item.fields[0].value <= count:
                    item.damage = slots.wrong
                yield item


def _tiered_index_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    """Header, slots in use and items of an index in tiered storage. CorruptError where its head does not fit."""
    from rmqctl.store.read.tiered_index import index_segment

    head = opened.read(0, TIERED_INDEX_HEADER.size)
    if at < TIERED_INDEX_HEADER.size:
        yield explained("tiered index header", index.tiered_index_header, head, 0)
    segment = index_segment(opened.path, opened.size, opened.descriptors)
    kinds = (
        ("tiered index slot", index.tiered_index_slot, TIERED_INDEX_SLOT.size, TIERED_INDEX_HEADER.size, segment.slots),
        ("tiered index item", index.tiered_index_item, TIERED_INDEX_ITEM.size, segment.items_at, segment.items),
    )
    for name, schema, size, begin, count in kinds:
        for number in range(max(0, (at - begin) // size), count):
            item = explained(name, schema, opened.read(begin + number * size, size), begin + number * size)
            item.position = number
            if item.fields[-1].value or name == "tiered index item":
                yield item


def _local_tiered_index_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    """Header, slots in use and items of an index that is not uploaded. CorruptError where its head does not fit."""
    from rmqctl.store.read.tiered_index import local_index

    head = opened.read(0, TIERED_INDEX_HEADER.size)
    if at < TIERED_INDEX_HEADER.size:
        yield explained("local tiered index header", index.tiered_index_header, head, 0)
    found = local_index(opened.path, opened.size, opened.descriptors)
    places = range(max(at, TIERED_INDEX_HEADER.size), found.item_at(0) if found.slots else 0)
    yield from _slots(opened, places, found.items, _LOCAL_SLOTS)
    width, begin = LOCAL_TIERED_INDEX_ITEM.size, found.item_at(0)
    for number in range(max(1, (at - begin) // width), found.items + 1):
        offset = found.item_at(number)
        item = explained("local tiered index item", index.local_tiered_index_item, opened.read(offset, width), offset)
        item.position = number
        if not 0 <= item.fields[-1].value < number:
            item.damage = "the chain leads on to an item that is not older"
        yield item


# of a structure whose size nothing tells, at most this much is read
_SHOWN_BYTES = 64 * 1024
_TEXT_LIMIT = 16 * 1024 * 1024


def dump_file(
    path: Path, *, at: int = 0, commitlog: tuple[Path, ...] = (), raw: bool = False
) -> tuple[FileKind, Iterator[DumpItem]]:
    """What kind of file it is, and its structures from byte `at` on.

    `raw` gives the bytes alone, 256 at a time, of a file of any kind. Otherwise UnsupportedError for what is only
    recognised, UnreadableError for what cannot be read.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(error, path, hint="check the path") from error
    if not is_file(path):
        raise UnreadableError("is not a regular file", file=path, hint="`rmqctl info -s DIR` looks at a whole store")
    opened = Opened(path, status.st_size, Descriptors())
    # a file that is removed from here on can be read to its end
    opened.descriptors.pin(path)
    what = recognise(path, commitlog=commitlog)
    if raw:
        return what.kind, _closing(opened, _raw_items(opened, at))
    reader = _READERS.get(what.kind)
    if reader is None:
        # nothing in an empty or zeroed file can be misread
        if end_of_nonzero(opened.descriptors, path, 0, status.st_size) == 0:
            return what.kind, _closing(opened, iter(empty_items(at, status.st_size)))
        raise UnsupportedError(
            f"is {what.description}" + ("" if what.kind is FileKind.UNKNOWN else ", which is not read yet"),
            file=path,
            hint="--hex shows its bytes",
        )
    return what.kind, _closing(opened, reader(opened, at))


def _closing(opened: Opened, items: Iterator[DumpItem]) -> Iterator[DumpItem]:
    try:
        yield from items
    finally:
        opened.descriptors.close()


# ---- commitlog


def _commitlog_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    log, file = _log_of(opened)
    reached = at
    for record in walk(log, file.start_offset + at):
        begin, end = (place - file.start_offset for place in span_of(record))
        # between two records are the heads of entries
        yield from (_entry_head_item(opened, place) for place in range(reached, begin, DLEDGER_ENTRY_HEAD.size))
        yield _record_item(opened, file, record)
        reached = end


def _entry_head_item(opened: Opened, offset: int) -> DumpItem:
    data = opened.read(offset, DLEDGER_ENTRY_HEAD.size)
    item = explained("entry head", dledger.dledger_entry_head, data, offset)
    item.position = DLEDGER_ENTRY_HEAD.unpack_from(data, 0)[2]
    return item


def _dledger_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    """Entries, or units of the index, by the folder, or the text of a small file."""
    if not is_file_name(opened.path.name):
        yield from _text_items(opened, at)
        return
    if is_of_dledger(opened.path):
        yield from _commitlog_items(opened, at)
        return
    start = int(opened.path.name)
    end = end_of_nonzero(opened.descriptors, opened.path, 0, opened.size)
    size = DLEDGER_INDEX_UNIT.size
    for offset in range(at - at % size, end, size):
        item = explained("index unit", dledger.dledger_index_unit, opened.read(offset, size), offset)
        item.position = (start + offset) // size
        values = {one.name: one.value for one in item.fields}
        if values.get("entry_index") != item.position:
            item.damage = item.damage or f"the unit of entry {item.position} gives entry {values.get('entry_index')}"
        yield item
    yield from empty_items(max(end, at), opened.size)


def _log_of(opened: Opened) -> tuple[MappedFileQueue, MappedFile]:
    """Return a queue of the file alone, with the file size of its neighbours if it has any."""
    path = opened.path
    log = MappedFileQueue([path.parent], None, opened.descriptors)
    log.entry_directories = frozenset([path.parent] if is_of_dledger(path) else [])
    if is_file_name(path.name):
        log.load()
    else:
        log.file_size = opened.size
        head = opened.read(0, FRAME_HEADS[0].size)
        start = FRAME_HEADS[0].unpack_from(head, 0)[6] if len(head) == FRAME_HEADS[0].size else 0
        log.files = [MappedFile(path, max(start, 0), opened.size, opened.descriptors)]
    log.is_shared = False
    log.files = [file for file in log.files if file.path == path]
    if not log.files:
        return log, MappedFile(path, 0, 0, opened.descriptors)
    return log, log.files[0]


def _record_item(opened: Opened, file: MappedFile, record: Record) -> DumpItem:
    begin, end = span_of(record)
    offset, size = begin - file.start_offset, end - begin
    if isinstance(record, StoredMessage):
        item = explained("message", message.message_frame, opened.read(offset, size), offset)
    elif isinstance(record, Blank):
        item = explained("blank", message.blank_frame, opened.read(offset, 8), offset, size)
    elif isinstance(record, Empty):
        item = DumpItem("empty", offset, size, note="never written, or cleared: zeros up to the end of the file")
    else:
        item = _damage_item(opened, record, offset, size)
    if isinstance(record, Blank) and file.holds_entries:
        item = DumpItem("blank", offset, size, note="end of the file's entries", raw=opened.read(offset, 8))
    item.position = begin
    return item


def _damage_item(opened: Opened, damage: Damage, offset: int, size: int) -> DumpItem:
    overflows = damage.reason is Reason.OVERFLOW
    data = opened.read(offset, size if overflows else min(size, _SHOWN_BYTES))
    schema = message.overflowed_frame if overflows else message.message_frame
    if damage.reason is Reason.ENTRY:
        data, schema = data[: DLEDGER_ENTRY_HEAD.size], dledger.dledger_entry_head
    item = explained("damage", schema, data, offset, size)
    broken_off = f"; parsing stops at {item.damage}" if item.damage else ""
    item.damage = f"{damage.reason.value}: {damage.detail}{broken_off}"
    return item


# ---- queues


def _unit_items(size: int, schema: Struct, kind: str) -> Callable[[Opened, int], Iterator[DumpItem]]:
    def items(opened: Opened, at: int) -> Iterator[DumpItem]:
        start = int(opened.path.name) if is_file_name(opened.path.name) else 0
        end = end_of_nonzero(opened.descriptors, opened.path, 0, opened.size)
        offset = at - at % size
        while offset < end:
            data = opened.read(offset, size)
            item = explained(kind, schema, data, offset)
            item.position = (start + offset) // size if kind == "unit" else None
            _judge_unit(item)
            yield item
            offset += size
        yield from empty_items(max(offset, at), opened.size)

    return items


def _judge_unit(item: DumpItem) -> None:
    values = {one.name: one.value for one in item.fields}
    if item.damage is None and "size" in values:
        if values["size"] == PLACEHOLDER_SIZE and values["physical_offset"] == 0:
            item.note = "placeholder: the queue began behind this slot"
        elif not any(item.raw):
            item.damage = "a hole: written units follow it"
        elif values["physical_offset"] < 0 or values["size"] <= 0:
            item.damage = "no unit: offset or size is impossible"
        elif (address := ext_offset(values["tags_code"])) is not None:
            item.note = f"the tags code is byte {address} of the ext queue"
        if "base_queue_offset" in values:
            item.position = values["base_queue_offset"]


def _ext_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    offset = 0
    while offset + CONSUMEQUEUE_EXT_UNIT_HEAD.size <= opened.size:
        size = int.from_bytes(opened.read(offset, 2), "big", signed=True)
        if size == 0:
            break
        if size == -1:
            yield DumpItem("end", offset, 2, note="end of the file's units", raw=opened.read(offset, 2))
            return
        data = opened.read(offset, max(size, CONSUMEQUEUE_EXT_UNIT_HEAD.size))
        item = explained("ext unit", consumequeue.consumequeue_ext_unit, data, offset)
        fits = size >= CONSUMEQUEUE_EXT_UNIT_HEAD.size and len(data) == size
        if item.damage is None and not (fits and item.fields[-1].offset + item.fields[-1].size - offset == size):
            item.damage = f"the unit's size {size} is not what its parts add up to"
        if offset + item.size > at:
            yield item
        if item.damage is not None:
            return
        offset += size
    yield from empty_items(max(offset, at), opened.size)


# ---- the timer


def _wheel_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    """Yield the slots that were ever used; nearly all of a wheel is zeros."""
    for start, stop in data_extents(opened.path, at, opened.size):
        for offset in range(start - start % TIMER_WHEEL_SLOT.size, stop, _CHUNK):
            data = opened.read(offset, min(_CHUNK, stop - offset))
            for place in range(0, len(data) - TIMER_WHEEL_SLOT.size + 1, TIMER_WHEEL_SLOT.size):
                raw = data[place : place + TIMER_WHEEL_SLOT.size]
                if any(raw):
                    item = explained("timer slot", timer.timer_wheel_slot, raw, offset + place)
                    item.position = (offset + place) // TIMER_WHEEL_SLOT.size
                    time = TIMER_WHEEL_SLOT.unpack_from(raw)[0]
                    if time % TIMER_WHEEL_SLOTS != item.position:
                        item.damage = f"the slot of second {time} is {time % TIMER_WHEEL_SLOTS}: no broker finds it"
                    yield item
    rest = opened.size % TIMER_WHEEL_SLOT.size
    if rest:
        yield explained("timer slot", timer.timer_wheel_slot, opened.read(opened.size - rest, rest), opened.size - rest)
    else:
        end = end_of_nonzero(opened.descriptors, opened.path, 0, opened.size)
        yield from empty_items(max(end + -end % TIMER_WHEEL_SLOT.size, at), opened.size)


def _timer_log_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    """Yield the units up to the place where a broker stops."""
    start = int(opened.path.name) if is_file_name(opened.path.name) else 0
    end = end_of_nonzero(opened.descriptors, opened.path, 0, opened.size)
    offset = at - at % TIMER_LOG_UNIT.size
    while offset < end:
        data = opened.read(offset, TIMER_LOG_UNIT.size)
        if int.from_bytes(data[12:16], "big") == BLANK_MAGIC:
            rest = opened.size - offset
            yield DumpItem("blank", offset, rest, note="the units go on in the next file", raw=data[:16])
            return
        item = explained("timer unit", timer.timer_log_unit, data, offset)
        item.position = start + offset
        if item.damage is None:
            size, previous, magic, written, delay = TIMER_LOG_UNIT.unpack_from(data)[:5]
            if size != TIMER_LOG_UNIT.size or magic & ~0xF:
                item.damage = "no unit: size or bits are impossible, and a broker cuts the log here"
            elif previous >= start + offset:
                item.damage = "the unit before in its slot is not before"
            else:
                item.note = f"due {written + delay} {time_text(written + delay)}".strip()
        yield item
        offset += TIMER_LOG_UNIT.size
    yield from empty_items(max(offset, at), opened.size)


def _timer_check_items(opened: Opened, _at: int) -> Iterator[DumpItem]:
    yield explained("timer checkpoint", timer.timer_checkpoint, opened.read(0, TIMER_CHECKPOINT.size), 0)
    yield from empty_items(TIMER_CHECKPOINT.size, opened.size)


# ---- small files


def _checkpoint_items(opened: Opened, _at: int) -> Iterator[DumpItem]:
    yield explained("checkpoint", checkpoint.checkpoint_values, opened.read(0, CHECKPOINT.size), 0)
    yield from empty_items(CHECKPOINT.size, opened.size)


def _text_items(opened: Opened, _at: int) -> Iterator[DumpItem]:
    data = opened.read(0, min(opened.size, _TEXT_LIMIT))
    text = data.decode("utf-8", "replace")
    item = DumpItem("text", 0, opened.size, raw=data[:_SHOWN_BYTES])
    if "\ufffd" in text:
        item.damage = "not UTF-8 text"
    item.fields = [DumpField("text", 0, len(data), text, text, "the whole file")]
    yield item


def _config_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    data = opened.read(0, min(opened.size, _TEXT_LIMIT))
    if is_client_text(data):
        yield from client_items(opened, at)
        return
    item = DumpItem("config", 0, opened.size, raw=data[:_SHOWN_BYTES])
    if not data.strip():
        item.note = "the file is empty: a broker reads its .bak instead"
    else:
        try:
            content = parse_config_json(data.decode("utf-8"))
        except (CorruptError, UnicodeDecodeError) as error:
            item.damage = str(error)
            content = data.decode("utf-8", "replace")
        item.fields = [DumpField("content", 0, len(data), content, data.decode("utf-8", "replace"), "")]
    yield item


def _raw_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    end = end_of_nonzero(opened.descriptors, opened.path, at, opened.size)
    for offset in range(at, end, 256):
        data = opened.read(offset, min(256, end - offset))
        yield DumpItem("bytes", offset, len(data), raw=data)
    yield from empty_items(max(at, end), opened.size)


# ---- RocksDB


def _rocksdb_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    if not is_listed(opened.path):
        yield from _text_items(opened, at)
        return
    is_secret = is_secret_folder(opened.path.absolute().parent)
    for one in listed_file(opened.path, opened.size, opened.descriptors):
        if one.offset + one.size >= at:
            shown = {name: without_passwords(value) if is_secret else value for name, value in one.fields.items()}
            fields = [
                DumpField(name, one.offset, one.size, plain_value(name, value), _text_or_hex(name, value), "")
                for name, value in shown.items()
            ]
            yield DumpItem("entry", one.offset, one.size, fields=fields, damage=one.damage)


def _text_or_hex(name: str, value: int | str | bytes) -> str:
    if isinstance(value, bytes) and value.isascii() and value.decode("ascii").isprintable():
        return value.decode("ascii")
    return str(plain_value(name, value))


_READERS: dict[FileKind, Callable[[Opened, int], Iterator[DumpItem]]] = {
    FileKind.COMMITLOG: _commitlog_items,
    FileKind.CONSUMEQUEUE: _unit_items(CONSUMEQUEUE_UNIT.size, consumequeue.consumequeue_unit, "unit"),
    FileKind.BATCH_CONSUMEQUEUE: _unit_items(
        BATCH_CONSUMEQUEUE_UNIT.size, consumequeue.batch_consumequeue_unit, "batch unit"
    ),
    FileKind.CONSUMEQUEUE_EXT: _ext_items,
    FileKind.INDEX: index_items,
    FileKind.CHECKPOINT: _checkpoint_items,
    FileKind.TIMER_WHEEL: _wheel_items,
    FileKind.TIMER_LOG: _timer_log_items,
    FileKind.TIMER_CHECK: _timer_check_items,
    FileKind.ABORT: _text_items,
    FileKind.LOCK: _text_items,
    FileKind.DLEDGER: _dledger_items,
    FileKind.COMPACTION_LOG: _commitlog_items,
    FileKind.COMPACTION_QUEUE: _unit_items(
        BATCH_CONSUMEQUEUE_UNIT.size, consumequeue.batch_consumequeue_unit, "compacted unit"
    ),
    FileKind.TIERED_INDEX: _tiered_index_items,
    FileKind.LOCAL_TIERED_INDEX: _local_tiered_index_items,
    FileKind.EPOCH: _text_items,
    FileKind.BROKER_IDENTITY: _text_items,
    FileKind.CONFIG: _config_items,
    FileKind.CLIENT_OFFSETS: client_items,
    FileKind.ROCKSDB: _rocksdb_items,
}
