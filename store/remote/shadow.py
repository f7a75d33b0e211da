"""A store on a server as a folder of this machine: files of the right names and sizes with nothing in them.

Listings and sizes are those of the folder, which is made of one listing of the server. Bytes are asked for by ranges:
`store/files/reading.py` has them from here. Whatever else opens one of the files, by a way that nobody thought of, gets
it whole, because Python says so beforehand (an audit hook): a hole is never taken for zeros of the store.
"""

from __future__ import annotations

import atexit
import os
import secrets
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import NotAStoreError, RemovedError, UnreadableError
from rmqctl.formats.wording import forget_place, stand_for
from rmqctl.store.files import io, presence, reading
from rmqctl.store.files.layout import KEPT, is_safe_topic
from rmqctl.store.files.presence import exists
from rmqctl.store.outputs.temporary import make_temporary, remove_forgotten
from rmqctl.store.remote.blocks import Blocks
from rmqctl.store.remote.emptiness import digest_of, end_of_data
from rmqctl.store.remote.file_system import FsspecFiles, Listed, RemoteFiles
from rmqctl.store.remote.names import refuse_names

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
    """The folder that stands for an address, made when it is first asked for. Errors as `address.reachable`."""
    with _lock:
        known = _by_address.get(address)
        return (known or shadow_of(FsspecFiles(address))).folder


def shadow_of(files: RemoteFiles) -> Shadow:
    """A folder that stands for these files until the process ends, or it is closed."""
    with _lock:
        if not _shadows:
            _set_up()
        shadow = Shadow(files)
        _shadows[str(shadow.top)] = shadow
        _by_address[files.address] = shadow
        return shadow


def look_again(address: str, *, log_only: bool = False) -> None:
    """List an address anew; with `log_only` the files of the commitlog, and the others when they are asked for."""
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
    """Know of an address what somebody else has seen in `listing`: these files; all is listed when somebody asks for
    others. What is known of it by another listing is forgotten."""
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
    """Which listing a folder that stands for an address is made of."""
    with _lock:
        return next((one.listing for one in _shadows.values() if one.folder == folder), "")


@contextmanager
def as_far_as_known() -> Iterator[None]:
    """While the block lasts, whoever lists a folder gets what is known of it and nothing is listed on the server."""
    before, _state.is_fetching = getattr(_state, "is_fetching", False), True
    try:
        yield
    finally:
        _state.is_fetching = before


class _Planned:
    """Files of a server that somebody else has listed."""

    def __init__(self, files: RemoteFiles, planned: list[Listed]) -> None:
        self.address = files.address
        self.below, self.beside = files.below, files.beside
        self.read = files.read
        self._planned = planned

    def listed(self) -> tuple[list[Listed], list[str]]:
        """What is known."""
        return self._planned, []


class Shadow:
    """A folder that stands for files on a server. `folder` is the store; `top` holds it and nothing else."""

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
        """Have further files and folders, as somebody has listed and looked through them; not those that are known."""
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
        """A file of the folder; None for what is none."""
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
        """Bring all of a file here: whoever opens it now reads what the server has."""
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
    """Before somebody asks for a name that is not known, or for all names in a folder: the server is listed, where that
    was put off."""
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
