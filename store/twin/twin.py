"""Make the twin of a store: of the same shape and with the same faults, and with no name and no body of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import java_hash, key_hash, tags_code
from rmqctl.formats.errors import RefusedError, UnsupportedError
from rmqctl.formats.layout import Layout
from rmqctl.formats.layouts import (
    BATCH_CONSUMEQUEUE_UNIT,
    CONSUMEQUEUE_EXT_UNIT_HEAD,
    CONSUMEQUEUE_UNIT,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    TIMER_LOG_UNIT,
)
from rmqctl.formats.message import FrameDamage, StoredMessage, decode_message
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, is_database, is_file_name, is_queue_name
from rmqctl.store.files.lock import is_in_use
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.outputs import publish, staged_directory
from rmqctl.store.files.reading import (
    Descriptors,
    data_extents,
    exists,
    is_directory,
    is_link,
    is_real_directory,
    is_real_file,
    named,
)
from rmqctl.store.index.index_file import Geometry, IndexHeader, infer_geometry
from rmqctl.store.log.walk import is_left_over
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import ext_offset
from rmqctl.store.queues.dispatch import index_keys
from rmqctl.store.salvage.sources import check_target
from rmqctl.store.store_files import StoreFiles, refuse_dledger
from rmqctl.store.twin.config import is_config_name, rewrite_config, rewrite_identity, rewrite_name
from rmqctl.store.twin.frames import Words, is_whole_frame, keeps_tags, rewrite_frame, rewrite_properties, rewrite_span

# Rewrite what is derived from the log: hashes of tags, keys and topics in queues, ext units, index and timer log.
#
# A hash that is the one of the message becomes the one of its twin. One that is not becomes another number, so that it
# stays wrong, or unknown where the message is gone.

_INT = 1 << 31
_REMEMBERED = 4096


class Hashes:
    """Replaces hashes by what the messages of a log are and become."""

    def __init__(self, words: Words, log: MappedFileQueue) -> None:
        self._words = words
        self._log = log
        self._keys = lru_cache(maxsize=_REMEMBERED)(self._keys_at)

    def _message_at(self, offset: int) -> StoredMessage | None:
        """Return the message at a physical offset; None where nothing can be read."""
        size = int.from_bytes(self._log.read(offset, 4), "big", signed=True) if offset >= 0 else 0
        frame = self._log.read(offset, size) if size > 0 else b""
        try:
            return decode_message(frame, 0, len(frame), None, check_crc=False, unsigned=True)
        except FrameDamage:
            return None

    def _keys_at(self, offset: int) -> dict[int, int]:
        """Return the hashes under which the message at a physical offset is indexed, with those of its twin."""
        message = self._message_at(offset)
        if message is None:
            return {}
        stored = rewrite_properties(self._words, message.property_bytes, message.topic.encode())
        twin = message._replace(topic=self._words.name(message.topic), property_bytes=stored)
        keys = zip(*(index_keys(one, with_tags=True) for one in (message, twin)), strict=True)
        # of two keys with one hash the first counts
        hashes = [(key_hash(message.topic, old), key_hash(twin.topic, new)) for old, new in keys]
        return dict(reversed(hashes))

    def tags_code(self, offset: int, code: int) -> int:
        """Return what replaces the tags code of a unit that points to a physical offset; times and addresses stay."""
        if code == 0 or not -_INT <= code < _INT:
            return code
        message = self._message_at(offset)
        tags = message.properties().get(names.TAGS) if message is not None else None
        if message is None or tags_code(tags) != code:
            return self._unknown(code)
        kept = keeps_tags(message.topic.encode(), message.property_bytes)
        return code if kept else tags_code(self._words.name(tags or ""))

    def topic_hash(self, offset: int, code: int) -> int:
        """Return what replaces the hash of the real topic of a timed message."""
        message = self._message_at(offset)
        topic = message.properties().get(names.REAL_TOPIC, "") if message is not None else None
        if topic is not None and java_hash(topic) == code:
            return java_hash(self._words.name(topic))
        return self._unknown(code) if code else code

    def key_hash(self, offset: int, code: int) -> int:
        """Return what replaces the hash of an index entry for the message at a physical offset."""
        new = self._keys(offset).get(code)
        if new is not None:
            return new
        return abs(self._unknown(code)) & _INT - 1 if code > 0 else code

    def _unknown(self, code: int) -> int:
        other = self._words.number(code & 0xFFFFFFFF, 32)
        return other - 2 * _INT if other >= _INT else other


def rewrite_units(hashes: Hashes, layout: Layout, field: str, data: bytes, extents: dict[int, int]) -> bytes:
    """Return the twin of queue units or of units of the timer log; `extents` gets the physical offset of each ext unit.

    What is left after the last whole unit is no unit, and stays.
    """
    out = bytearray(data)
    fields = [name for name, _, _, _ in layout.fields]
    physical, replaced = fields.index("physical_offset"), fields.index(field)
    at_field, width = layout.offset(field), next(size for name, _, _, size in layout.fields if name == field)
    for at in range(0, len(data) - layout.size + 1, layout.size):
        if not any(data[at : at + layout.size]):
            continue
        unit = layout.unpack_from(data, at)
        offset, value = unit[physical], unit[replaced]
        if field == "topic_hash":
            value = hashes.topic_hash(offset, value)
        else:
            ext = ext_offset(value)
            if ext is not None:
                extents[ext] = offset
            value = hashes.tags_code(offset, value)
        out[at + at_field : at + at_field + width] = value.to_bytes(width, "big", signed=True)
    return bytes(out)


def rewrite_ext(words: Words, hashes: Hashes, data: bytes, start: int, extents: dict[int, int]) -> bytes:
    """Return the twin of a file of ext units that begins at byte `start` of its queue. Filter bits become others."""
    out = bytearray(data)
    at, head = 0, CONSUMEQUEUE_EXT_UNIT_HEAD
    while at + head.size <= len(data):
        size, code, _, bits = head.unpack_from(data, at)
        if size < head.size or at + size > len(data) or bits < 0 or head.size + bits > size:
            break
        code = hashes.tags_code(extents.get(start + at, -1), code)
        out[at + 2 : at + 10] = code.to_bytes(8, "big", signed=True)
        out[at + head.size : at + size] = words.noise(data[at + head.size : at + size])
        at += size
    kept = at + 2  # a size that says that the file ends here
    out[kept:] = words.noise(data[kept:])
    return bytes(out)


def rewrite_index(words: Words, hashes: Hashes, data: bytes, geometry: Geometry | None) -> bytes:
    """Return the twin of an index file: its chains lead as they did, through other slots.

    A link or a slot that was wrong stays as it is. Where the geometry is not known, the header stays.
    """
    if geometry is None:
        return data[: INDEX_HEADER.size] + words.noise(data[INDEX_HEADER.size :])
    out = bytearray(data)
    header = IndexHeader(*INDEX_HEADER.unpack_from(data, 0))
    slots_at, slots_end = INDEX_HEADER.size, geometry.entry_position(0)
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    used = 0
    for number, at in _entries(geometry, header.index_count, len(data)):
        code, offset, seconds, previous = INDEX_ENTRY.unpack_from(data, at)
        if not any(data[at : at + INDEX_ENTRY.size]):
            continue
        new = hashes.key_hash(offset, code)
        old_slot, new_slot = abs(code) % geometry.slots, abs(new) % geometry.slots
        used += new_slot not in after
        link = after.get(new_slot, 0) if previous == before.get(old_slot, 0) else previous
        INDEX_ENTRY.struct.pack_into(out, at, new, offset, seconds, link)
        before[old_slot], after[new_slot] = number, number
    stored = data[slots_at:slots_end]
    out[slots_at:slots_end] = bytes(slots_end - slots_at)
    for slot, number in after.items():
        INDEX_SLOT.struct.pack_into(out, slots_at + slot * INDEX_SLOT.size, number)
    _spoil_slots(memoryview(out)[slots_at:slots_end], stored, before, after)
    slots = header.hash_slot_count - len(before) + used
    INDEX_HEADER.struct.pack_into(out, 0, *header._replace(hash_slot_count=max(slots, 0)))
    rest = geometry.entry_position(max(header.index_count, 1))
    out[rest:] = words.noise(bytes(out[rest:])) if rest < len(out) else b""
    return bytes(out)


def _spoil_slots(slots: memoryview, stored: bytes, before: dict[int, int], after: dict[int, int]) -> None:
    """Make as many slots wrong as are in the `stored` ones, by the numbers that these have."""
    found = [number for (number,) in INDEX_SLOT.struct.iter_unpack(stored)]
    wrong = [slot for slot, number in enumerate(found) if number != before.get(slot, 0)]
    if not wrong:
        return
    empty = iter([slot for slot in range(len(found)) if slot not in after])
    used = iter(list(after))
    for slot in sorted(wrong, key=lambda one: one not in before):
        place = next(used if slot in before else empty, None)
        place = next(empty, None) if place is None else place
        place = next(used, None) if place is None else place
        if place is not None:
            number = found[slot] if found[slot] != after.get(place, 0) else found[slot] + 1
            INDEX_SLOT.struct.pack_into(slots, place * INDEX_SLOT.size, number)


def _entries(geometry: Geometry, count: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield number and position of the entries that the header counts, as far as the file has them."""
    for number in range(1, count):
        at = geometry.entry_position(number)
        if at + INDEX_ENTRY.size > size:
            return
        yield number, at


_UNITS = {
    "consumequeue": (CONSUMEQUEUE_UNIT, "tags_code"),
    "batchconsumequeue": (BATCH_CONSUMEQUEUE_UNIT, "tags_code"),
    "timerlog": (TIMER_LOG_UNIT, "topic_hash"),
}
_FOLDERS = frozenset(
    ("commitlog", "index", "config", "compaction", "consumequeue_ext", "compactionLog", "compactionCq")
)
# nothing but numbers
_NUMBERS = frozenset("checkpoint timercheck timerwheel".split())
_IDENTITIES = frozenset("brokerIdentity brokerIdentity.bak brokerIdentity-temp".split())
_TEXTS = _IDENTITIES | frozenset(
    "abort abort.bak lock epochFileCheckpoint epochFileCheckpoint.bak position-checkpoint "
    "position-checkpoint.bak".split()
)
# where in a path the name of a topic is, which may be that of any folder or number
_TOPIC_AT = {"consumequeue": 1, "batchconsumequeue": 1, "consumequeue_ext": 1, "compaction": 2}
_STORAGE = "rocksdbstore"
_SNAPSHOT = re.compile(r"timerwheel\.\d+(?:\.tmp)?")
_INDEX_NAME = re.compile(r"\d{17}")
_CHUNK = 16 << 20
_WINDOW = 1 << 16
_PAGE, _PIECE = 4096, 12
_MAGICS = tuple(one.to_bytes(4, "big") for one in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2))


@dataclass(slots=True)
class TwinReport:
    """Numbers of a twin: files, and bytes of them."""

    twin: str
    source: str
    files: int = 0
    bytes: int = 0


def make_twin(files: StoreFiles, target: Path, events: Events = Events()) -> TwinReport:
    """Make the twin of a store at rest in the new directory `target`, which appears when it is complete and on disk.

    Raises:
        UnsupportedError: the store has a RocksDB with entries, a DLedger log, or a folder that is not known.
        RefusedError: `target` exists or is in the store, or a broker has the store open. WriteFailedError,
        UnreadableError: nothing is left behind.
    """
    layout = files.layout
    check_target(target, [files.root, *layout.commitlog], [])
    if exists(target):
        raise RefusedError("exists already", file=target, hint="name a new directory")
    _refuse_unknown(layout)
    if is_in_use(layout):
        raise RefusedError(
            "a broker has the store open",
            file=files.root,
            hint="`rmqctl snapshot DIR` copies it: make the twin of that",
        )
    with named(files.root), staged_directory(target) as staging:
        report = _Twin(files, staging, events).run()
        publish(staging, target)
    report.twin = str(target)
    return report


def _refuse_unknown(layout: StoreLayout) -> None:
    refuse_dledger(layout)
    hint = "`rmqctl report --anonymise` writes its numbers without names"
    for folder in (*layout.rocksdb, *_databases(layout.config)):
        if any(_has_entries(path) for path in folder.iterdir()):
            raise UnsupportedError("a RocksDB with entries cannot be rewritten yet", file=folder, hint=hint)
    logs = {os.path.realpath(path) for path in layout.commitlog}
    if any(not Path(path).is_relative_to(os.path.realpath(layout.root)) for path in logs):
        raise UnsupportedError("a commitlog outside of its store cannot be rewritten yet", file=layout.root, hint=hint)
    known = {*_UNITS, *_FOLDERS, _STORAGE}
    for path in sorted(layout.root.iterdir()):
        is_log = any(Path(log).is_relative_to(os.path.realpath(path)) for log in logs)
        is_empty = is_database(path) and not any(map(_has_entries, path.iterdir()))
        if is_link(path) or (is_directory(path) and path.name not in known and not is_log and not is_empty):
            raise UnsupportedError("it is not known how to replace what is in this folder", file=path, hint=hint)


def _databases(config: Path) -> list[Path]:
    return [path for path in sorted(config.iterdir()) if is_directory(path)] if is_directory(config) else []


def _has_entries(path: Path) -> bool:
    return path.suffix in (".sst", ".log", ".blob") and path.stat().st_size > 0


class _Twin:
    """One twin on its way."""

    def __init__(self, files: StoreFiles, target: Path, events: Events) -> None:
        self._root, self._target = files.root, target
        self._events = events
        self._words = Words()
        self._hashes = Hashes(self._words, files.log)
        self._extents: dict[tuple[str, ...], dict[int, int]] = {}
        self._descriptors = Descriptors()
        # below the store, whose own path may be relative or lead over a link
        root = os.path.realpath(files.root)
        self._logs = [Path(os.path.realpath(path)).relative_to(root) for path in files.layout.commitlog]
        self._report = TwinReport(str(target), str(files.root))

    def run(self) -> TwinReport:
        """Write all files, then the times of the folders."""
        folders = [(self._root, self._target)]
        with self._descriptors:
            for path in _tree(self._root):
                if self._is_left_out(path):
                    continue
                target = self._target / self._name_of(path)
                if is_directory(path):
                    io.make_directories(target)
                    folders.append((path, target))
                else:
                    self._write(path, target)
        for path, target in reversed(folders):
            status = path.stat()
            io.set_modified(target, status.st_mtime_ns)
            io.flush_directory(target)
        return self._report

    def _is_left_out(self, path: Path) -> bool:
        """Return whether a file holds nothing but how and where a RocksDB was opened."""
        is_other = not (is_real_file(path) or is_real_directory(path))
        return is_other or path.name == "LOG" or path.name.startswith(("OPTIONS-", "LOG.old."))

    def _name_of(self, path: Path) -> Path:
        """Return the path in the twin: folders and files of every store keep their names."""
        below = path.relative_to(self._root)
        parts = list(below.parts)
        is_log = any(below.is_relative_to(log) or log.is_relative_to(below) for log in self._logs)
        for at, part in enumerate(parts):
            if is_log and (is_directory(path) or (is_file_name(parts[-1]) and at < len(parts) - 1)):
                continue
            if self._is_of_database(below.parts[: at + 1]):
                continue
            if parts[0] == "config" and at > 0:
                parts[at] = rewrite_name(self._words, part)
            elif not _is_kept(below.parts, at):
                parts[at] = self._words.name(part)
        return Path(*parts)

    def _is_of_database(self, parts: Sequence[str]) -> bool:
        """Return whether a path below the store is a RocksDB's, of which there are none with entries, or in one."""
        folders = (self._root.joinpath(*parts[: depth + 1]) for depth in range(len(parts)))
        return any(is_database(folder) for folder in folders if is_directory(folder))

    def _write(self, path: Path, target: Path) -> None:
        status = path.stat()
        io.create_file(target, status.st_size)
        descriptor = io.open_for_writing(target)
        try:
            for at, data in self._content(path, target, status.st_size):
                if any(data):
                    io.write_at(descriptor, target, at, data)
                self._events.passed(len(data))
            io.set_modified(target, status.st_mtime_ns)
            io.flush_descriptor(descriptor, target)
        finally:
            os.close(descriptor)
        self._report.files += 1
        self._report.bytes += status.st_size

    def _content(self, path: Path, target: Path, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield the pieces of the twin of a file that are not holes, with their positions."""
        below = path.relative_to(self._root)
        parts = below.parts
        is_offset = is_file_name(path.name)
        if is_offset and (any(below.is_relative_to(log) for log in self._logs) or "compactionLog" in parts):
            yield from self._log(path, target, size)
        elif parts[0] == "index" and size >= INDEX_ENTRY.size * 2:
            data = self._descriptors.read(path, 0, size)
            yield 0, rewrite_index(self._words, self._hashes, data, infer_geometry(path, size, self._descriptors))
        elif is_offset and parts[0] == "consumequeue_ext":
            extents = self._extents.get(parts[1:-1], {})
            data = self._descriptors.read(path, 0, size)
            yield 0, rewrite_ext(self._words, self._hashes, data, int(path.name), extents)
        elif is_offset and (parts[0] in _UNITS or "compactionCq" in parts):
            layout, field = _UNITS.get(parts[0], _UNITS["batchconsumequeue"])
            hashes = self._hashes if parts[0] in _UNITS else self._of_compacted(path.parent)
            extents = self._extents.setdefault(parts[1:-1], {})
            step = _CHUNK // layout.size * layout.size
            for begin, end in _whole_units(path, size, layout.size):
                for at in range(begin, end, step):
                    data = self._descriptors.read(path, at, min(step, end - at))
                    yield at, rewrite_units(hashes, layout, field, data, extents)
        else:
            for begin, end in data_extents(path, 0, size):
                for at in range(begin, end, _CHUNK):
                    yield at, self._other(path, parts, self._descriptors.read(path, at, min(_CHUNK, end - at)))

    def _of_compacted(self, queue: Path) -> Hashes:
        """Return the hashes of a queue of compacted messages: its units lead into the log of the queue alone."""
        folder = queue.parents[2] / "compactionLog" / queue.parent.name / queue.name
        log = MappedFileQueue([folder], None, self._descriptors)
        log.load()
        return Hashes(self._words, log)

    def _other(self, path: Path, parts: tuple[str, ...], data: bytes) -> bytes:
        if _is_of_numbers(path.name):
            return data
        if self._is_of_database(parts):
            return data
        if path.name in _IDENTITIES:
            return rewrite_identity(self._words, data)
        if (parts[0] == "config" and is_config_name(path.name)) or path.name in _TEXTS:
            return rewrite_config(self._words, data)
        return self._words.text(data) if parts[0] == "config" else self._words.noise(data)

    def _log(self, path: Path, target: Path, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield the frames of a file of the log, and what is between them."""
        done, is_after_frame = 0, False
        for begin, end in data_extents(path, 0, size):
            at = max(begin, done)
            while at < end:
                head = self._descriptors.read(path, at, 8)
                length = int.from_bytes(head[:4], "big") if head[4:] in _MAGICS else 0
                data = self._descriptors.read(path, at, length) if 0 < length <= size - at else b""
                if is_whole_frame(data):
                    yield at, rewrite_frame(self._words, data)
                    is_after_frame = True
                    at += length
                    continue
                window = min(size - at, length if _WINDOW < length <= size - at else _WINDOW)
                data = self._descriptors.read(path, at, window)
                is_last = at + window == size
                twin = rewrite_span(self._words, data, is_last=is_last)
                stop = at + len(data[: -at % _PAGE].rstrip(b"\0"))
                if is_after_frame and head[4:] not in _MAGICS and not any(data[stop - at :]):
                    file = MappedFile(path, int(path.name), size, self._descriptors)
                    if is_left_over(file, at, stop):
                        twin = self._left_over(self._descriptors.read(path, 0, at), data[: stop - at], target)
                is_after_frame = head[4:] in _MAGICS
                yield at, twin
                at += len(twin)
            done = at

    def _left_over(self, before: bytes, data: bytes, target: Path) -> bytes:
        """Return the twin of pieces of earlier messages of the file: the same pieces of their twins."""
        new = self._descriptors.read(target, 0, len(before))
        out = bytearray()
        while len(out) < len(data):
            begin = len(out)
            found = before.rfind(data[begin : begin + _PIECE])
            ends = range(_PIECE, len(data) - begin)
            differs = (at for at in ends if before[found + at : found + at + 1] != data[begin + at : begin + at + 1])
            length = next(differs, len(data) - begin) if found >= 0 else 1
            out += self._words.noise(data[begin : begin + 1]) if found < 0 else new[found : found + length]
        return bytes(out)


def _is_of_numbers(name: str) -> bool:
    return name.removesuffix(".bak") in _NUMBERS or _SNAPSHOT.fullmatch(name) is not None


def _is_kept(parts: tuple[str, ...], at: int) -> bool:
    """Return whether a part of a path is the name that every store has there."""
    part, topic_at = parts[at], _TOPIC_AT.get(parts[0])
    if at == 0:
        return part in _UNITS or part in _FOLDERS or part in _TEXTS or part == _STORAGE or _is_of_numbers(part)
    if at == topic_at:
        return False
    if parts[0] == _STORAGE or (parts[0] == "index" and _INDEX_NAME.fullmatch(part)):
        return True
    is_queue = topic_at is not None and at == topic_at + 1 and is_queue_name(part)
    return is_queue or is_file_name(part) or part in _FOLDERS or part in _TEXTS


def _whole_units(path: Path, size: int, unit: int) -> Iterator[tuple[int, int]]:
    """Yield ranges that hold data, from the start of a unit on, each once."""
    done = 0
    for start, end in data_extents(path, 0, size):
        begin = max(done, start // unit * unit)
        done = min(size, -(-end // unit) * unit)
        if begin < done:
            yield begin, done


def _tree(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder, folders first, queues before their ext units."""
    for path in sorted(folder.iterdir()):
        yield path
        if is_real_directory(path):
            yield from _tree(path)
