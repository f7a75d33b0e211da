"""What a file changed in place holds: the bytes that the change leaves alone, and those it writes, before and after."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import UnreadableError, refuse_exhausted
from rmqctl.store.files.zeros import data_extents
from rmqctl.store.journal.kept.entry import CHUNK, CREATE, IN_PLACE, RESIZE, WRITE, Entry

_BLOCK = 1 << 16
_SECTOR = 512
_Range = tuple[int, int]


def ranges_of(entries: list[Entry]) -> list[_Range]:
    """The ranges [begin, end) of one file that these operations may change, in order, none touching another."""
    return [(begin, end) for begin, end, _ in _groups(entries)]


def _groups(entries: list[Entry]) -> list[tuple[int, int, list[Entry]]]:
    """The ranges, each with the operations that change it, in the order in which they do."""
    found: list[tuple[int, int, list[int]]] = []
    for (begin, end), number in sorted((_range(entry), n) for n, entry in enumerate(entries) if entry.kind in IN_PLACE):
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            first, last, numbers = found[-1]
            numbers.append(number)
            found[-1] = (first, max(end, last), numbers)
        else:
            found.append((begin, end, [number]))
    return [(begin, end, [entries[number] for number in sorted(numbers)]) for begin, end, numbers in found]


def _range(entry: Entry) -> _Range:
    if entry.kind == RESIZE:  # what is cut off; what a file gains are zeros, as behind its end
        return entry.new_size, max(entry.size or 0, entry.new_size)
    return entry.offset, entry.offset + entry.length


def digest_outside(path: Path, ranges: list[_Range]) -> str:
    """SHA-256, in hex, of all of a file but `ranges` and zeros, each block with its position: holes and the file's
    length play no part. UnreadableError."""
    digest = hashlib.sha256()
    size, passed, first = _size(path), 0, 0
    descriptor = _opened(path)
    try:
        for start, stop in data_extents(path, 0, size):
            for position in range(max(passed, start - start % _BLOCK), stop, _BLOCK):
                passed = position + _BLOCK
                while first < len(ranges) and ranges[first][1] <= position:
                    first += 1
                data = _masked(_read(descriptor, path, position, _BLOCK), position, ranges, first).rstrip(b"\0")
                if data:
                    digest.update(position.to_bytes(8, "big"))
                    digest.update(data)
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def _masked(data: bytes, position: int, ranges: list[_Range], first: int) -> bytes:
    masked = None
    for begin, end in ranges[first:]:
        if begin >= position + len(data):
            break
        masked = masked if masked is not None else bytearray(data)
        first_byte, last_byte = max(0, begin - position), min(len(data), end - position)
        masked[first_byte:last_byte] = bytes(last_byte - first_byte)
    return data if masked is None else bytes(masked)


def sizes_of(entries: list[Entry]) -> list[_Range]:
    """The sizes, as [least, largest], that one file may have while these operations are done or taken back."""
    size = entries[0].size or 0
    found = [(size, size)]
    for entry in entries:
        if entry.kind in (RESIZE, CREATE):
            size = entry.new_size
            found.append((size, size))
        elif entry.kind in IN_PLACE and entry.offset + entry.length > size:
            found.append((size, entry.offset + entry.length))
            size = entry.offset + entry.length
    return found


def is_as_left(path: Path, entries: list[Entry], before: Path, after: Path, *, complete: bool) -> bool:
    """Whether the ranges of a file hold what was there before or what these operations write; with `complete` only the
    latter, else any mixture, as a kill or a power cut leaves it. `before`, `after`: the journal's files."""
    size = _size(path)
    descriptor, old, new = _opened(path), _opened(before), _opened(after)
    try:
        for begin, end, changing in _groups(entries):
            for position in range(begin, min(end, size), CHUNK):
                found = _read(descriptor, path, position, min(CHUNK, end - position, size - position))
                layers = list(_layers(changing, position, len(found), old, new))
                if found == _complete(layers) or (not complete and found == layers[0][1]):
                    continue
                if complete or not _is_mixture(found, layers):
                    return False
    finally:
        for one in (descriptor, old, new):
            os.close(one)
    return True


Layer = tuple[int, bytes]
"""Bytes from a position of the piece on that is looked at."""


def _layers(entries: list[Entry], position: int, length: int, old: int, new: int) -> Iterator[Layer]:
    """What stood in this range before, from its beginning to its end; then what each operation puts where."""
    first = bytearray(length)
    for entry in entries:
        for piece in entry.before:
            begin, end = max(position, piece.offset), min(position + length, piece.offset + piece.length)
            if begin < end:
                first[begin - position : end - position] = os.pread(old, end - begin, piece.at + begin - piece.offset)
    yield 0, bytes(first)
    for entry in entries:
        begin, end = _range(entry)
        begin, end = max(position, begin), min(position + length, end)
        if begin < end:
            is_write = entry.kind == WRITE
            data = os.pread(new, end - begin, entry.after_at + begin - entry.offset) if is_write else bytes(end - begin)
            yield begin - position, data


def _complete(layers: list[Layer]) -> bytes:
    data = bytearray(layers[0][1])
    for begin, layer in layers[1:]:
        data[begin : begin + len(layer)] = layer
    return bytes(data)


def _is_mixture(found: bytes, layers: list[Layer]) -> bool:
    """Whether each byte is one of those that stood or is to stand in its place. A disk writes sectors."""
    before, after = layers[0][1], _complete(layers)
    for begin in range(0, len(found), _SECTOR):
        end = min(begin + _SECTOR, len(found))
        if found[begin:end] in (before[begin:end], after[begin:end]):
            continue
        for place in range(begin, end):
            if not any(
                first <= place < first + len(layer) and layer[place - first] == found[place] for first, layer in layers
            ):
                return False
    return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        refuse_exhausted(error, path)
        raise UnreadableError(f"cannot be read: {error.strerror}", file=path) from error


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        refuse_exhausted(error, path)
        raise UnreadableError(f"cannot be opened: {error.strerror}", file=path) from error


def _read(descriptor: int, path: Path, position: int, length: int) -> bytes:
    try:
        return os.pread(descriptor, length, position)
    except OSError as error:
        refuse_exhausted(error, path)
        raise UnreadableError(
            f"cannot be read: {error.strerror}", file=path, hint="look at the disk (dmesg), or copy the store elsewhere"
        ) from error
