"""A store on a server as a folder of this machine: files of the right names and sizes with nothing in them.

Listings and sizes are those of the folder, which is made of one listing of the server. Bytes are asked for by ranges:
`store/files/reading.py` has them from here. Python announces every other opening of these files by an audit hook; the
file is then fetched whole, so a hole is never taken for zeros of the store.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import secrets
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import NotAStoreError, RemovedError, UnreadableError, forget_place, stand_for
from rmqctl.store.files import io, reading
from rmqctl.store.files import reading as presence
from rmqctl.store.files.layout import KEPT, is_safe_topic
from rmqctl.store.files.outputs import make_temporary, remove_forgotten
from rmqctl.store.files.reading import exists
from rmqctl.store.files.remote_file_system import FsspecFiles, Listed, RemoteFiles

# What was read from a server: blocks of its files, as many as a bound allows, and further ones fetched ahead.

BLOCK = 64 * 1024
"""The least that is fetched; a file is fetched in blocks from its beginning."""

KEPT_BLOCKS = 64 * 1024 * 1024 // BLOCK
"""How many blocks are kept, those that were asked for last."""

# whoever goes along a file gets twice as much with every request, up to this
_FARTHEST_AHEAD = 64
# of what is fetched at once, each request brings this much, several at the same time
_PART = 16
_AT_THE_SAME_TIME = 4

# name and version of a file, number of the block
_Key = tuple[str, str, int]


class Blocks:
    """Reads files of a server. Can be used by several threads."""

    def __init__(self, files: RemoteFiles) -> None:
        self._files = files
        self._kept: OrderedDict[_Key, bytes] = OrderedDict()
        self._coming: dict[_Key, Future[tuple[int, bytes]]] = {}
        # where the last fetch of a file ended, and how many blocks it had
        self._ends: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_AT_THE_SAME_TIME, "remote")

    def read(self, file: Listed, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file. UnreadableError, RemovedError."""
        end = min(position + length, file.size)
        if position >= end:
            return b""
        first, last = position // BLOCK, (end - 1) // BLOCK
        found: list[bytes] = []
        # by and by: what is asked for may be more than is kept
        for begin in range(first, last + 1, _FARTHEST_AHEAD):
            found += self._blocks(file, begin, min(begin + _FARTHEST_AHEAD, last + 1))
        data = found[0] if len(found) == 1 else b"".join(found)
        return data[position - first * BLOCK : end - first * BLOCK]

    def close(self) -> None:
        """Let go of all blocks; what is on its way is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._kept.clear()

    def _blocks(self, file: Listed, begin: int, end: int) -> list[bytes]:
        with self._lock:
            coming = {number: self._coming.get(_key(file, number)) for number in range(begin, end)}
            kept = {number: self._kept_block(_key(file, number)) for number in range(begin, end)}
            missing = [number for number in range(begin, end) if kept[number] is None and coming[number] is None]
            if missing:
                for part in _parts(missing[0], self._ahead(file, missing)):
                    wanted = [number for number in part if _key(file, number) not in self._coming]
                    wanted = [number for number in wanted if _key(file, number) not in self._kept]
                    for first, count in _runs(wanted):
                        future = self._pool.submit(self._fetch, file, first, count)
                        for number in range(first, first + count):
                            self._coming[_key(file, number)] = future
                            coming[number] = future
        return [self._taken(file, number, kept[number], coming[number]) for number in range(begin, end)]

    def _kept_block(self, key: _Key) -> bytes | None:
        block = self._kept.get(key)
        if block is not None:
            self._kept.move_to_end(key)
        return block

    def _ahead(self, file: Listed, missing: list[int]) -> int:
        """Return the block at which a fetch of missing blocks stops: farther on the longer the reader goes along."""
        end, size = self._ends.get(file.name, (-1, 1))
        size = min(2 * size, _FARTHEST_AHEAD) if missing[0] == end else 1
        stop = min(max(missing[-1] + 1, missing[0] + size), -(-file.size // BLOCK))
        self._ends[file.name] = stop, stop - missing[0]
        return stop

    def _taken(self, file: Listed, number: int, kept: bytes | None, coming: Future[tuple[int, bytes]] | None) -> bytes:
        if kept is not None:
            return kept
        assert coming is not None
        first, data = coming.result()
        return data[(number - first) * BLOCK : (number - first + 1) * BLOCK]

    def _fetch(self, file: Listed, first: int, count: int) -> tuple[int, bytes]:
        numbers = range(first, first + count)
        try:
            data = self._files.read(file, first * BLOCK, min((first + count) * BLOCK, file.size))
        except BaseException:
            with self._lock:
                for number in numbers:
                    self._coming.pop(_key(file, number), None)
            raise
        with self._lock:
            for number in numbers:
                at = (number - first) * BLOCK
                self._kept[_key(file, number)] = data[at : at + BLOCK]
                self._coming.pop(_key(file, number), None)
            while len(self._kept) > KEPT_BLOCKS:
                self._kept.popitem(last=False)
        return first, data


def _key(file: Listed, number: int) -> _Key:
    return file.name, file.version, number


def _parts(begin: int, end: int) -> Iterator[range]:
    return (range(at, min(at + _PART, end)) for at in range(begin, end, _PART))


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Beginning and length of each run of neighbours."""
    at = 0
    while at < len(numbers):
        length = 1
        while at + length < len(numbers) and numbers[at + length] == numbers[at] + length:
            length += 1
        yield numbers[at], length
        at += length


# Where the empty end of a file on a server begins, without reading it: a server has no holes, and store files are
# made in their full size.
#
# The version that S3 gives a file which came in one piece is the MD5 of its bytes (ETag). So what was read from the
# beginning, and zeros behind it, are the file if they have that digest. Nothing is guessed: a file with anything
# behind a gap of zeros has another one, and so has one whose version is no digest.

_ZEROS = bytes(1 << 20)
_DIGEST = re.compile(r'"?([0-9a-f]{32})"?')


def digest_of(version: str) -> str | None:
    """Return the MD5 that a version contains, in hex; None if it contains none."""
    match = _DIGEST.fullmatch(version)
    return match[1] if match else None


def end_of_data(read: Callable[[int, int], bytes], size: int, digest: str) -> int | None:
    """Position behind the last byte that is not zero, in a file of this size and MD5 with more zeros than data; None
    where that is not so. `read(position, length)` is asked for what is before it and for the block behind."""
    if any(read(size // 2 // BLOCK * BLOCK, BLOCK)):
        return None
    found = hashlib.md5(usedforsecurity=False)
    end = position = 0
    while position < size // 2:
        block = read(position, BLOCK)
        filled = len(block.rstrip(b"\0"))
        if not filled:
            break
        found.update(block)
        position += len(block)
        end = position - len(block) + filled
    left = size - position
    while left > 0:
        found.update(_ZEROS[:left])
        left -= len(_ZEROS)
    return end if found.hexdigest() == digest else None


# Which names, sizes and times of a server's files a folder of this machine can stand for.

# of what the file systems of this machine count, bytes and ns
_LARGEST = 2**63 - 1


def refuse_names(address: str, listed: list[Listed], folders: list[str]) -> None:
    """UnreadableError for a name that would lead out of the folder, for one that a file has and a folder, too, and for
    sizes and times that no file has: a server may say anything."""
    hint = "give it another name there, or copy the store here without it"
    names = [file.name for file in listed]
    for name in (*names, *folders):
        if not all(is_safe_topic(part) for part in name.split("/")):
            raise UnreadableError("this name cannot be that of a file here", file=f"{address}/{name!r}", hint=hint)
    above = {path.as_posix() for name in (*names, *folders) for path in Path(name).parents} | set(folders)
    for name, count in Counter(names).items():
        if count > 1 or name in above:
            raise UnreadableError("there are two of this name", file=f"{address}/{name}", hint=hint)
    for file in listed:
        if not (0 <= file.size <= _LARGEST and 0 <= (file.modified_ns or 0) <= _LARGEST):
            said = f"{file.size} bytes, changed {file.modified_ns} ns after 1970: no file has that"
            raise UnreadableError(said, file=f"{address}/{file.name}", hint=hint)


LOG = "commitlog"
"""The folder of the log below a store, unless a broker.conf says otherwise."""

_PIECE = 4 * 1024 * 1024
# how their names begin, below the system's folder for temporary files
_PREFIX = reading.STAND_IN[1:]
_shadows: dict[str, Shadow] = {}
_by_address: dict[str, Shadow] = {}
_lock = threading.RLock()
_state = threading.local()


def folder_for(address: str) -> Path:
    """Return the folder that represents an address, created at the first request. Errors as `address.reachable`."""
    with _lock:
        known = _by_address.get(address)
        return (known or shadow_of(FsspecFiles(address))).folder


def shadow_of(files: RemoteFiles) -> Shadow:
    """Return a folder that represents these files until the process ends, or it is closed."""
    with _lock:
        if not _shadows:
            _set_up()
        shadow = Shadow(files)
        _shadows[str(shadow.top)] = shadow
        _by_address[files.address] = shadow
        return shadow


def look_again(address: str, *, log_only: bool = False) -> None:
    """List an address again; with `log_only` the files of the commitlog, and the others on demand."""
    with _lock:
        known = _by_address.get(address)
        files = FsspecFiles(address) if known is None else known.files
        if not log_only:
            shadow_of(files)
        else:
            listed, _ = files.below(LOG).listed()
            planned = [file._replace(name=f"{LOG}/{file.name}") for file in listed]
            _planned(files, planned, secrets.token_hex(8), (LOG,))
        if known is not None:
            known.close()


def take_plan(address: str, listing: str, planned: Iterable[Listed]) -> None:
    """Take the files of an address from the `listing` of another process; all is listed when other files are requested.
    What is known of it by another listing is forgotten."""
    with _lock:
        known = _by_address.get(address)
        if known is not None and known.listing == listing:
            known.take(planned)
            return
        files = FsspecFiles(address) if known is None else known.files
        _planned(files, planned, listing, ())
        if known is not None:
            known.close()


def _planned(files: RemoteFiles, planned: Iterable[Listed], listing: str, folders: Iterable[str]) -> None:
    shadow = shadow_of(_Planned(files, list(planned)))
    shadow.files, shadow.listing = files, listing
    shadow.known_folders = {str(shadow.folder / folder) for folder in folders}


def listing_of(folder: Path) -> str:
    """Return the listing of a folder that represents an address."""
    with _lock:
        return next((one.listing for one in _shadows.values() if one.folder == folder), "")


@contextmanager
def as_far_as_known() -> Iterator[None]:
    """Within the block, folders list what is known, without requests to the server."""
    before, _state.is_fetching = getattr(_state, "is_fetching", False), True
    try:
        yield
    finally:
        _state.is_fetching = before


class _Planned:
    """Files of a server that another process listed."""

    def __init__(self, files: RemoteFiles, planned: list[Listed]) -> None:
        self.address = files.address
        self.below, self.beside = files.below, files.beside
        self.read = files.read
        self._planned = planned

    def listed(self) -> tuple[list[Listed], list[str]]:
        """What is known."""
        return self._planned, []


class Shadow:
    """A folder that represents files on a server. `folder` is the store; `top` holds it and nothing else."""

    def __init__(self, files: RemoteFiles, folder: Path | None = None) -> None:
        """`folder`: where to make it; a temporary one if it is not given. UnreadableError where a name on the server is
        none for a file of this machine."""
        listed, folders = files.listed()
        refuse_names(files.address, listed, folders)
        self.files = files
        self.blocks = Blocks(files)
        self._whole: set[str] = set()
        if folder is None:
            name = files.address.rpartition("/")[2]
            top = Path(os.path.realpath(make_temporary(_PREFIX)))
            folder = top / (name if is_safe_topic(name) else "store")
        self.top, self.folder = folder.parent, folder
        self.kept: Shadow | None = None
        self._has_looked_beside = False
        self._listed = {file.name: file for file in listed}
        stand_for(str(self.folder), files.address)
        self._ends: dict[Listed, int | None] = {}
        self.listing = secrets.token_hex(8)
        self.known_folders: set[str] | None = None
        """Folders of which all is known, as absolute paths; None: all of them."""
        io.make_directories(self.folder)
        self._make(listed, folders)

    def take(self, listed: Iterable[Listed], folders: Iterable[str] = ()) -> None:
        """Add further files and folders from a listing; known ones stay."""
        added = [file for file in listed if file.name not in self._listed]
        self._listed |= {file.name: file for file in added}
        with as_far_as_known():
            self._make(added, folders)

    def complete(self) -> None:
        """List the server, where that was put off. What was known of a file goes on to hold: it was planned so."""
        with _lock:
            if self.known_folders is not None:
                listed, folders = self.files.listed()
                refuse_names(self.files.address, listed, folders)
                self.take(listed, folders)
                self.known_folders = None

    def _make(self, listed: Iterable[Listed], folders: Iterable[str]) -> None:
        made: set[Path] = set()
        for name in folders:
            io.make_directories(self.folder / name)
        for file in listed:
            path = self.folder / file.name
            if path.parent not in made:
                io.make_directories(path.parent)
                made.add(path.parent)
            io.create_file(path, file.size)
            if file.modified_ns is not None:
                io.set_modified(path, file.modified_ns)

    def look_beside(self) -> None:
        """List the folder beside the store that holds what `rmqctl` took out of it, if that was not done yet.
        UnreadableError where the server does not say whether there is one."""
        with _lock:
            if self._has_looked_beside:
                return
            with as_far_as_known(), suppress(NotAStoreError):
                self.kept = Shadow(self.files.beside(KEPT), Path(f"{self.folder}{KEPT}"))
            self._has_looked_beside = True

    def of(self, path: str) -> _ShadowFile | None:
        """Return a file of the folder; None for other paths."""
        file = self._listed.get(path[len(str(self.folder)) + 1 :])
        if file is None:
            # another way of writing the name
            file = self._listed.get(os.path.relpath(os.path.realpath(path), self.folder))
        return None if file is None else _ShadowFile(self, file)

    def read(self, file: Listed, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end. UnreadableError; RemovedError, and then the folder has no such
        file any more, as that of the server."""
        try:
            return self.blocks.read(file, position, length)
        except RemovedError:
            with _lock:
                self._listed.pop(file.name, None)
                if exists(self.folder / file.name):
                    io.remove(self.folder / file.name)
            raise

    def end_of_data(self, file: Listed) -> int | None:
        """Position behind the last byte that is not zero; None where only reading it all tells."""
        digest = digest_of(file.version)
        if digest is not None and file not in self._ends:
            self._ends[file] = end_of_data(partial(self.read, file), file.size, digest)
        return self._ends.get(file)

    def make_whole(self, file: Listed) -> None:
        """Fetch the whole file, so that any reader that opens it now gets the server's bytes."""
        with _lock:
            if file.name in self._whole:
                return
            path = self.folder / file.name
            was_fetching, _state.is_fetching = getattr(_state, "is_fetching", False), True
            try:
                for at in range(0, file.size, _PIECE):
                    io.write_range(path, at, self.read(file, at, _PIECE))
                if file.modified_ns is not None:
                    io.set_modified(path, file.modified_ns)
            finally:
                _state.is_fetching = was_fetching
            self._whole.add(file.name)

    def close(self) -> None:
        """Remove the folder."""
        with _lock:
            self.blocks.close()
            if self.kept is not None:
                self.kept.blocks.close()
                forget_place(str(self.kept.folder))
            _shadows.pop(str(self.top), None)
            if _by_address.get(self.files.address) is self:
                del _by_address[self.files.address]
            forget_place(str(self.folder))
            io.remove_tree(self.top)


class _ShadowFile:
    """One file of a shadow, as `reading` asks for its bytes."""

    def __init__(self, shadow: Shadow, file: Listed) -> None:
        self._shadow = shadow
        self._file = file
        self.size = file.size
        self.modified_ns = file.modified_ns
        self.version = file.version

    def read(self, position: int, length: int) -> bytes:
        """As Shadow.read."""
        return self._shadow.read(self._file, position, length)

    @property
    def end_of_data(self) -> int | None:
        """As FileElsewhere."""
        return self._shadow.end_of_data(self._file)

    def make_whole(self) -> None:
        """As Shadow.make_whole."""
        self._shadow.make_whole(self._file)


def _found(path: str) -> _ShadowFile | None:
    for top, shadow in tuple(_shadows.items()):
        if path.startswith(top):
            if path.startswith(f"{shadow.folder}{KEPT}{os.sep}"):
                return None if shadow.kept is None else shadow.kept.of(path)
            return shadow.of(path)
    return None


def _set_up() -> None:
    reading.elsewhere = _found
    presence.before_look = _complete_for
    if not _Hook.is_there:
        _Hook.is_there = True
        sys.addaudithook(_before)
        atexit.register(_close_all)


class _Hook:
    is_there = False


_LISTING = ("os.listdir", "os.scandir")
_OPENING = ("open", "os.link", "os.rename", "shutil.copyfile", "os.truncate")


def _before(event: str, arguments: tuple[Any, ...]) -> None:
    """Before something is opened or given another name: all of it is fetched, unless that is what is being done."""
    if not _shadows:  # or the interpreter ends, and this module has lost its names
        return
    if event in _LISTING:
        _complete_for(arguments[0])
    if event not in _OPENING:
        return
    name = arguments[0]
    if isinstance(name, int) or getattr(_state, "is_fetching", False):
        return
    try:
        path = os.path.abspath(os.fsdecode(name))
    except (TypeError, ValueError):
        return
    if not any(path.startswith(top) for top in tuple(_shadows)):
        return
    _complete_for(path)
    file = _found(path)
    if file is not None:
        file.make_whole()


def _complete_for(name: Any) -> None:
    """Complete a postponed listing of the server before an unknown name, or all names of a folder, are requested."""
    if getattr(_state, "is_fetching", False) or not isinstance(name, str | bytes | os.PathLike):
        return
    path = os.path.abspath(os.fsdecode(name))
    shadow = next((shadow for top, shadow in tuple(_shadows.items()) if path.startswith(top + os.sep)), None)
    if shadow is not None and (path + os.sep).startswith(f"{shadow.folder}{KEPT}{os.sep}"):
        shadow.look_beside()
        return
    if shadow is None or shadow.known_folders is None or path in shadow.known_folders:
        return
    if path[len(str(shadow.folder)) + 1 :] not in shadow._listed:
        shadow.complete()


def _close_all() -> None:
    beside = {shadow.top.parent for shadow in _shadows.values()}
    for shadow in tuple(_shadows.values()):
        try:
            shadow.close()
        except UnreadableError:
            continue
    for folder in beside:
        # those of processes that this one started, and ended
        remove_forgotten(_PREFIX, folder)
