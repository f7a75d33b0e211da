"""Any store file, structure by structure and field by field, with byte offsets: damaged files as far as they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from construct import Struct

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import CorruptError, UnreadableError, UnsupportedError, refuse_exhausted
from rmqctl.formats.layouts import (
    BATCH_CONSUMEQUEUE_UNIT,
    CHECKPOINT,
    CONSUMEQUEUE_EXT_UNIT_HEAD,
    CONSUMEQUEUE_UNIT,
    FRAME_HEADS,
)
from rmqctl.formats.message import Reason, StoredMessage
from rmqctl.formats.schemas import checkpoint, consumequeue, message
from rmqctl.store.commitlog.walk import Blank, Damage, Empty, Record, walk
from rmqctl.store.config.client_offsets import is_client_text
from rmqctl.store.dump.client_offsets import client_items
from rmqctl.store.dump.index import index_items
from rmqctl.store.dump.items import DumpField, DumpItem, Opened, empty_items, explained
from rmqctl.store.dump.recognise import FileKind, recognise
from rmqctl.store.files.layout import is_file_name
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.presence import is_file
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.files.zeros import end_of_nonzero
from rmqctl.store.queues.unit import PLACEHOLDER_SIZE, ext_offset
from rmqctl.store.read.frames import span_of

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
        refuse_exhausted(error, path)
        raise UnreadableError(f"cannot be read: {error.strerror}", file=path, hint="check the path") from error
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
    for record in walk(log, file.start_offset + at):
        yield _record_item(opened, file, record)


def _log_of(opened: Opened) -> tuple[MappedFileQueue, MappedFile]:
    """The file alone in a queue, with the file size of its neighbours where it lies among them."""
    path = opened.path
    log = MappedFileQueue([path.parent], None, opened.descriptors)
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
    item.position = begin
    return item


def _damage_item(opened: Opened, damage: Damage, offset: int, size: int) -> DumpItem:
    overflows = damage.reason is Reason.OVERFLOW
    data = opened.read(offset, size if overflows else min(size, _SHOWN_BYTES))
    schema = message.overflowed_frame if overflows else message.message_frame
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


_READERS: dict[FileKind, Callable[[Opened, int], Iterator[DumpItem]]] = {
    FileKind.COMMITLOG: _commitlog_items,
    FileKind.CONSUMEQUEUE: _unit_items(CONSUMEQUEUE_UNIT.size, consumequeue.consumequeue_unit, "unit"),
    FileKind.BATCH_CONSUMEQUEUE: _unit_items(
        BATCH_CONSUMEQUEUE_UNIT.size, consumequeue.batch_consumequeue_unit, "batch unit"
    ),
    FileKind.CONSUMEQUEUE_EXT: _ext_items,
    FileKind.INDEX: index_items,
    FileKind.CHECKPOINT: _checkpoint_items,
    FileKind.ABORT: _text_items,
    FileKind.LOCK: _text_items,
    FileKind.EPOCH: _text_items,
    FileKind.BROKER_IDENTITY: _text_items,
    FileKind.CONFIG: _config_items,
    FileKind.CLIENT_OFFSETS: client_items,
}
