"""A server for tests: a folder of this machine under an address, which counts, is slow and fails as it is told."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from rmqctl.formats.errors import NotAStoreError, RemovedError
from rmqctl.store.files.remote_file_system import Listed
from rmqctl.store.files.remote_files import Shadow, _shadows, shadow_of


class FolderFiles:
    """RemoteFiles over a folder. `before_read` is called with each file before it is read, and may raise."""

    def __init__(self, address: str, folder: Path, delay_s: float = 0.0) -> None:
        self.address = address
        self.folder = folder
        self.delay_s = delay_s
        self.listings: list[str] = []
        self.has_digests = False
        self.reads: list[tuple[str, int, int]] = []
        self.before_read: Callable[[Listed], None] = lambda _: None
        self._lock = Lock()

    @property
    def bytes_read(self) -> int:
        """How many bytes came."""
        return sum(end - begin for _, begin, end in self.reads)

    def below(self, folder: str) -> FolderFiles:
        """A folder in it, for which the same counts."""
        found = FolderFiles(f"{self.address}/{folder}", self.folder / folder, self.delay_s)
        found.listings, found.has_digests = self.listings, self.has_digests
        return found

    def beside(self, ending: str) -> FolderFiles:
        """The folder with this ending, for which the same counts."""
        found = FolderFiles(self.address + ending, self.folder.with_name(self.folder.name + ending), self.delay_s)
        found.listings, found.has_digests = self.listings, self.has_digests
        return found

    def listed(self) -> tuple[list[Listed], list[str]]:
        """The files and the folders."""
        self.listings.append(self.address)
        found = [(path, path.relative_to(self.folder).as_posix()) for path in sorted(self.folder.rglob("*"))]
        if not found:
            raise NotAStoreError("there is nothing at this address", file=self.address)
        files = [
            Listed(name, path.stat().st_size, path.stat().st_mtime_ns, self._version(path))
            for path, name in found
            if path.is_file()
        ]
        return files, [name for path, name in found if path.is_dir()]

    def _version(self, path: Path) -> str:
        if self.has_digests:
            return f'"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}"'
        return str(path.stat().st_mtime_ns)

    def read(self, file: Listed, begin: int, end: int) -> bytes:
        """The bytes."""
        time.sleep(self.delay_s)
        self.before_read(file)
        with self._lock:
            self.reads.append((file.name, begin, end))
        try:
            with (self.folder / file.name).open("rb") as opened:
                opened.seek(begin)
                return opened.read(end - begin)
        except FileNotFoundError as error:
            raise RemovedError("was removed while the store was read", file=f"{self.address}/{file.name}") from error


@contextmanager
def served(
    folder: Path, address: str = "s3://bucket/store", delay_s: float = 0.0, *, has_digests: bool = False
) -> Iterator[tuple[FolderFiles, Shadow]]:
    """The folder as a store of a server, while the block lasts; with the versions of S3 if it `has_digests`."""
    files = FolderFiles(address, folder, delay_s)
    files.has_digests = has_digests
    shadow = shadow_of(files)
    try:
        yield files, shadow
    finally:
        # others may have been made since for the same address
        for one in [one for one in _shadows.values() if one.files.address == address]:
            one.close()
