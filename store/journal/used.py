"""Detect writes by other programs since a change began.

Another program may use the store between any two steps, of a change or of its undo, complete or interrupted. So every
file is held against all that our own steps can have left: untouched ones against their marks, those changed in place
against the bytes before and after, those that were moved against where they are.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

from rmqctl.formats.errors import RefusedError, RmqctlError, UnreadableError, unreadable
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.reading import (
    Descriptors,
    data_extents,
    end_of_nonzero,
    exists,
    is_directory,
    is_file,
    is_same_time,
    is_there,
    status_of,
)
from rmqctl.store.journal.entry import to_text
from rmqctl.store.journal.folder import APPLIED, Journalled
from rmqctl.store.journal.kept import AFTER, BEFORE, CHUNK, TreeItem, first_changed, is_leftover, is_same, tree_items
from rmqctl.store.journal.plan import CREATE, INSTALL, MOVE, RESIZE, WRITE, Entry

# What a file changed in place holds: the bytes that the change leaves alone, and those it writes, before and after.

_BLOCK = 1 << 16
_SECTOR = 512
_Range = tuple[int, int]


def ranges_of(entries: list[Entry]) -> list[_Range]:
    """The ranges [begin, end) of one file that these operations may change, in order, none touching another."""
    return [(begin, end) for begin, end, _ in _groups(entries)]


def _groups(entries: list[Entry]) -> list[tuple[int, int, list[Entry]]]:
    """The ranges, each with the operations that change it, in the order in which they do."""
    found: list[tuple[int, int, list[int]]] = []
    for (begin, end), number in sorted((_range(entry), n) for n, entry in enumerate(entries) if entry.is_in_place):
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
        elif entry.is_in_place and entry.offset + entry.length > size:
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
        raise unreadable(error, path) from error


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise unreadable(error, path, "opened") from error


def _read(descriptor: int, path: Path, position: int, length: int) -> bytes:
    try:
        return os.pread(descriptor, length, position)
    except OSError as error:
        raise unreadable(error, path, hint="look at the disk (dmesg), or copy the store elsewhere") from error


# What shows that somebody used a store: sizes, times and last bytes of the files that every writer touches.

_TAIL = 1 << 16
# where a mark has the file's time
_TIME = 1

Marks = dict[str, list[int]]
"""Path (as in journal.json) to [size, mtime in ns, position behind the last byte that is not zero, CRC-32 of the 64 KiB
before it]. The bytes are there because a map that is written to need not change a file's time (tmpfs)."""


def marks_of(layout: StoreLayout) -> Marks:
    """The files that change whenever messages are added or a broker runs: the commitlog's, checkpoint and abort."""
    with Descriptors() as descriptors:
        found = ((path, _mark(path, descriptors)) for path in _marked(layout))
        return {name_of(path, layout): mark for path, mark in found if mark is not None}


def marks_with_lock(layout: StoreLayout) -> Marks:
    """The same with `lock`, into which a broker writes whenever it starts (DefaultMessageStore#start). rmqctl only
    creates it if it is missing, so under the lock it stays unchanged until a broker runs."""
    with Descriptors() as descriptors:
        mark = _mark(layout.lock, descriptors)
    return marks_of(layout) | ({} if mark is None else {name_of(layout.lock, layout): mark})


def flush_marked(layout: StoreLayout) -> None:
    """Flush what the marks describe: after a power cut an untouched file must not look changed."""
    directories = [directory for directory in (layout.root, *layout.commitlog) if is_directory(directory)]
    for path in (*_marked(layout), layout.lock):
        if is_file(path):
            io.flush_file(path)
    for directory in directories:
        io.flush_directory(directory)


def name_of(path: Path, layout: StoreLayout) -> str:
    """A marked file's name: relative to the store if it is in there."""
    return path.relative_to(layout.root).as_posix() if path.is_relative_to(layout.root) else os.path.abspath(path)


def agree(now: list[int], before: list[int]) -> bool:
    """Return whether two marks of one file agree in everything that both of them have."""
    if not is_same_time(now[_TIME], before[_TIME]):
        return False
    return all(one == other for at, (one, other) in enumerate(zip(now, before, strict=False)) if at != _TIME)


def _marked(layout: StoreLayout) -> list[Path]:
    directories = [directory for directory in layout.commitlog if is_directory(directory)]
    paths = [path for directory in directories for path in directory.iterdir()]
    return sorted([*paths, layout.checkpoint, layout.abort])


def _mark(path: Path, descriptors: Descriptors) -> list[int] | None:
    status = status_of(path)
    if status is None:
        return None
    mark = [status.st_size, status.st_mtime_ns]
    if not stat.S_ISREG(status.st_mode):
        return mark
    try:
        end = end_of_nonzero(descriptors, path, 0, status.st_size)
        begin = max(0, end - _TAIL)
        return [*mark, end, zlib.crc32(descriptors.read(path, begin, end - begin))]
    except RmqctlError:  # it cannot be read: size and time are all there is
        return mark


_NOTHING = hashlib.sha256().hexdigest()
LATER = "newer changes of the store would be lost"


def refuse_used(journal: Journalled, state: dict[str, object]) -> None:
    """RefusedError that names the first file that is not as the change left it; UnreadableError."""
    is_complete = state["state"] == APPLIED
    marks = (state if is_complete else journal.head).get("marks")
    in_place: dict[Path, list[Entry]] = {}
    for entry in journal.entries:
        if entry.is_in_place or entry.kind == CREATE:
            in_place.setdefault(entry.path, []).append(entry)
    _refuse_marks(journal, marks if isinstance(marks, dict) else {}, is_all=is_complete)
    if is_complete:
        _refuse_changed(journal)
    else:
        _refuse_moved(journal, in_place)
    for path, entries in in_place.items():
        _refuse_bytes(journal, path, entries, is_complete)


def _refuse_marks(journal: Journalled, marks: Marks, *, is_all: bool) -> None:
    """The files that every writer touches; unless `is_all` but for those that the change itself touches."""
    changed = [entry.path for entry in journal.entries]
    found = marks_with_lock(journal.layout)
    lock = journal.layout.lock.name
    if lock not in marks:
        found.pop(lock, None)
    for name in sorted(found.keys() | marks.keys()):
        path = journal.layout.root / name
        now, before = found.get(name), marks.get(name)
        alike = now is not None and before is not None and agree(now, before)
        # of what could not be read at that time, size and time have to do
        if now == before or (alike and len(now or ()) >= len(before or ())):
            continue
        if is_all or not any(path.is_relative_to(top) for top in changed):
            if not is_all and is_leftover(path):
                continue
            if alike:
                # nobody is known to have written to it: what it ends with cannot be told
                raise UnreadableError("cannot be read", file=path, hint="check the disk (dmesg), then try again")
            raise _changed(journal, path)


def _refuse_changed(journal: Journalled) -> None:
    """Sizes, times and folders of everything that a complete change touched."""
    for path, expected in _after(journal).items():
        if isinstance(expected, list):
            found = list(tree_items(path)) if is_there(path) else []
            wrong = first_changed(found, expected)
            if wrong is not None:
                raise _changed(journal, path / wrong)
        elif expected is None:
            if is_there(path):
                raise _changed(journal, path)
        else:
            status = status_of(path)
            time_ns = journal.times.get(path, journal.moment_ns)
            if status is None or status.st_size != expected or not is_same_time(status.st_mtime_ns, time_ns):
                raise _changed(journal, path)


def _after(journal: Journalled) -> dict[Path, int | list[TreeItem] | None]:
    """What every changed path is when the change is complete: a size, a tree, or nothing."""
    after: dict[Path, int | list[TreeItem] | None] = {}
    for entry in journal.entries:
        path = entry.path
        if entry.kind in (MOVE, INSTALL):  # nothing at or below it was changed before
            after[path] = entry.staged_items if entry.kind == INSTALL else None
        elif entry.kind in (CREATE, RESIZE):
            after[path] = entry.new_size
        else:
            known = after.get(path, entry.size)
            after[path] = max(known if isinstance(known, int) else 0, entry.offset + entry.length)
        for above in path.parents:
            if after.get(above, 0) is None:  # taken out, and made anew for this one
                del after[above]
    return after


def _refuse_bytes(journal: Journalled, path: Path, entries: list[Entry], is_complete: bool) -> None:
    """Size and bytes of a file that is changed in place, or made."""
    if not exists(path):
        if entries[0].kind == CREATE and not is_complete:
            return
        raise _changed(journal, path)
    if not is_file(path):
        raise _changed(journal, path)
    size = path.stat().st_size
    outside = journal.head.get("outside", {}).get(to_text(path, journal.layout.root), _NOTHING)
    before, after = journal.folder / BEFORE, journal.folder / AFTER
    if (
        not any(least <= size <= largest for least, largest in sizes_of(entries))
        or digest_outside(path, ranges_of(entries)) != outside
        or not is_as_left(path, entries, before, after, complete=is_complete)
    ):
        raise _changed(journal, path)


def _up(path: Path) -> tuple[Path, ...]:
    return (path, *path.parents)


def _refuse_moved(journal: Journalled, in_place: Collection[Path]) -> None:
    """Files and folders that are moved or put in place, wherever an interruption left them."""
    paths = {entry.path for entry in journal.entries}
    for entry in journal.entries:
        if entry.kind in (MOVE, INSTALL) and not _is_somewhere(journal.folder, entry, paths, in_place):
            raise _changed(journal, entry.path)
    above = {parent for path in paths for parent in path.parents}
    for directory in sorted({made for entry in journal.entries for made in entry.made}):
        for found in sorted(directory.rglob("*")) if is_directory(directory) else ():
            if found not in above and paths.isdisjoint(_up(found)) and not any(map(is_leftover, _up(found))):
                raise _changed(journal, found)


def _is_somewhere(folder: Path, entry: Entry, paths: set[Path], in_place: Collection[Path]) -> bool:
    """Whether what was at a path, and what is to come there, are each where one of our steps put them. What other
    operations change below it, `paths` and `in_place`, is theirs."""
    is_kept = entry.moved is None or is_there(folder / entry.moved)
    is_staged = entry.staged is None or is_there(folder / entry.staged)
    path = entry.path
    if not is_there(path):
        return is_kept and is_staged
    found = [(path / item.name, item) for item in tree_items(path) if item.size is not None]
    here = [item for at, item in found if at not in in_place and (at == path or at not in paths)]
    # a move to another file system leaves, for a moment, the same in both places
    if entry.moved is not None and is_staged and is_same(path, here, entry.moved_items):
        return True
    if entry.staged is not None and is_kept and is_same(path, here, entry.staged_items):
        return True
    # a folder that was taken out may be there again, made for what a later operation puts into it, and empty as yet
    is_theirs = len(here) < len(found) or (is_directory(path) and any(path in one.parents for one in paths))
    return is_theirs and is_kept and is_staged and not here


def _changed(journal: Journalled, path: Path) -> RmqctlError:
    return RefusedError(
        f"is not as the change {journal.head.get('id')} left it: a broker or another program has written to the store",
        file=path,
        hint=f"{LATER}; what the change took out is kept in {journal.folder}",
    )
