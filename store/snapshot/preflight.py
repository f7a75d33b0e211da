"""Find obstacles to a copy or a move of a store to another place. Nothing is written."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import UnreadableError, refuse_exhausted
from rmqctl.formats.notebook import as_html
from rmqctl.store.files.io import on_disk_bytes
from rmqctl.store.files.lock import is_in_use
from rmqctl.store.files.reading import exists
from rmqctl.store.salvage.sources import check_target
from rmqctl.store.store_files import StoreFiles

_MOUNTS = Path("/proc/self/mountinfo")
_WINDOWS = frozenset(("vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuseblk", "cifs", "smb3"))
_REFUSED_THERE = frozenset('|<>:"*?\\')
_WITHOUT_OWNERS = frozenset(("vfat", "msdos", "exfat"))
# file systems whose file times are not exact to the nanosecond, and to what they are
_COARSE = {"vfat": "2 s", "msdos": "2 s", "exfat": "10 ms", "ext3": "1 s", "ext2": "1 s", "ntfs": "100 ns"}
_LARGEST_OF_FAT = (1 << 32) - 1


class MoveProblem(NamedTuple):
    """`weight`: `error` where the copy fails, `warning` where the copy or its broker is not as expected, `notice`."""

    weight: str
    problem: str
    path: str
    detail: str


@dataclass(slots=True)
class Preflight:
    """What a copy of a store takes. `free_bytes` and `file_system`: of the target, None where they are unknown."""

    _repr_html_ = as_html

    source: str
    target: str
    files: int = 0
    bytes: int = 0
    on_disk_bytes: int = 0
    free_bytes: int | None = None
    file_system: str | None = None
    problems: list[MoveProblem] = field(default_factory=list)

    @property
    def is_refused(self) -> bool:
        """Return whether the copy would fail."""
        return any(one.weight == "error" for one in self.problems)


class _File(NamedTuple):
    path: Path
    status: os.stat_result


def preflight(
    files: StoreFiles, target: Path, properties: Mapping[str, str] | None = None, file_system: str | None = None
) -> Preflight:
    """Return what a copy to the new directory `target` takes, and its obstacles. `properties`: of the broker.conf.
    `file_system`: the target's type, by the list of mounts if None.

    Raises: RefusedError for a target that exists or is in a store; UnreadableError.
    """
    check_target(target, [files.root, *files.layout.commitlog], [])
    found = Preflight(str(files.root), str(target))
    everything = list(_files_of(files))
    regular = [one for one in everything if stat.S_ISREG(one.status.st_mode)]
    found.files, found.bytes = len(regular), sum(one.status.st_size for one in regular)
    found.on_disk_bytes = sum(on_disk_bytes(one.status, one.path) for one in regular)
    parent = next(path for path in target.absolute().parents if exists(path))
    found.file_system = file_system or _file_system_of(parent)
    found.problems += _room(found, parent)
    found.problems += _names(found.file_system, everything, _longest_name(parent))
    found.problems += _limits(found.file_system, regular)
    found.problems += _state(files, everything)
    found.problems += _paths(files, properties or {})
    order = ("error", "warning", "notice")
    found.problems.sort(key=lambda one: order.index(one.weight))
    return found


def _files_of(files: StoreFiles) -> Iterator[_File]:
    """Yield files and folders of the store, links unfollowed."""

    def failed(error: OSError) -> None:
        refuse_exhausted(error, files.root)
        if not isinstance(error, FileNotFoundError):
            raise UnreadableError(f"cannot be listed: {error.strerror}", file=error.filename)

    outside = [path for path in files.layout.commitlog if not path.is_relative_to(files.root)]
    for root in (files.root, *outside):
        for directory, folders, names in os.walk(root, onerror=failed):
            for name in (*folders, *names):
                path = Path(directory, name)
                try:
                    yield _File(path, path.lstat())
                except FileNotFoundError:
                    continue


def _room(found: Preflight, parent: Path) -> Iterator[MoveProblem]:
    try:
        space = os.statvfs(parent)
    except OSError as error:
        refuse_exhausted(error, parent)
        return
    found.free_bytes = space.f_bavail * space.f_frsize
    place = str(parent)
    if found.free_bytes < found.on_disk_bytes:
        text = f"{found.free_bytes} bytes are free, the copy takes {found.on_disk_bytes}"
        yield MoveProblem("error", "space", place, text)
    elif found.free_bytes < found.bytes:
        text = f"{found.free_bytes} bytes are free: enough with holes kept, as snapshot does, else {found.bytes}"
        yield MoveProblem("warning", "space", place, text)
    if space.f_files and space.f_favail < found.files:
        yield MoveProblem("error", "inodes", place, f"{space.f_favail} are free, the copy takes {found.files}")
    if space.f_flag & os.ST_RDONLY:
        yield MoveProblem("error", "read-only", place, "the file system is mounted read-only")


def _longest_name(parent: Path) -> int:
    try:
        return os.statvfs(parent).f_namemax
    except OSError as error:
        refuse_exhausted(error, parent)
        return 255


def _file_system_of(path: Path) -> str | None:
    """Return the type of the file system of `path`, None where the kernel does not say."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        refuse_exhausted(error, _MOUNTS)
        return None
    real, best = os.path.realpath(path), ("", "")
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = before.split(" ")[4].replace("\\040", " ")
        if (real == mount or real.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best[0]):
            best = mount, after.split(" ")[0]
    return best[1] or None


def _names(system: str | None, everything: list[_File], longest: int) -> Iterator[MoveProblem]:
    folded: dict[tuple[Path, str], Path] = {}
    for path, _ in everything:
        name = path.name
        if len(os.fsencode(name)) > longest:
            yield MoveProblem("error", "name", str(path), f"longer than the {longest} bytes that the target takes")
        if system not in _WINDOWS:
            continue
        refused = sorted(_REFUSED_THERE.intersection(name))
        if refused or name.endswith((" ", ".")):
            what = f"{' '.join(refused)} in its name" if refused else "the last character of its name"
            yield MoveProblem("error", "name", str(path), f"{system} refuses {what}")
        other = folded.setdefault((path.parent, name.casefold()), path)
        if other != path:
            text = f"{system} takes it for {other.name}: names differ in case alone"
            yield MoveProblem("error", "case", str(path), text)


def _limits(system: str | None, regular: list[_File]) -> Iterator[MoveProblem]:
    if system in ("vfat", "msdos"):
        for path, status in regular:
            if status.st_size > _LARGEST_OF_FAT:
                yield MoveProblem("error", "file size", str(path), f"{system} takes less than 4 GiB")
    if system in _COARSE:
        text = f"{system} keeps file times to {_COARSE[system]}; a broker deletes commitlog files by their times"
        yield MoveProblem("notice", "times", "", text)
    if system in _WITHOUT_OWNERS:
        yield MoveProblem("warning", "owner", "", f"{system} keeps neither owners nor permissions")


def _state(files: StoreFiles, everything: list[_File]) -> Iterator[MoveProblem]:
    if is_in_use(files.layout):
        text = "a broker or another writer has the store open: stop it before a move, or it writes on in the old place"
        yield MoveProblem("warning", "in use", str(files.layout.lock), text)
    elif files.has_abort():
        text = "the store was not closed cleanly: run `rmqctl recover` before a move, or after it"
        yield MoveProblem("notice", "abort", str(files.layout.abort), text)
    for path, status in everything:
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            what = "a link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
            yield MoveProblem("warning", "not copied", str(path), f"{what}, which snapshot leaves out")
    user = os.geteuid()
    others = {status.st_uid for _, status in everything} - {user}
    if others and user != 0:
        owners = ", ".join(map(str, sorted(others)))
        text = f"files belong to user {owners}; a copy by user {user} belongs to {user}"
        yield MoveProblem("warning", "owner", str(files.root), text)


def _paths(files: StoreFiles, properties: Mapping[str, str]) -> Iterator[MoveProblem]:
    for directory in files.layout.commitlog:
        if not directory.is_relative_to(files.root):
            text = "outside of the store: its files go to DIR/commitlog, so storePathCommitLog has to name that"
            yield MoveProblem("warning", "path", str(directory), text)
    old = {str(files.root), os.path.realpath(files.root)}
    for name, value in sorted(properties.items()):
        if any(value == root or f"{root}/" in value or value.endswith(root) for root in old):
            text = f"broker.conf has {name}={value}, which is in the old place"
            yield MoveProblem("warning", "path", name, text)
