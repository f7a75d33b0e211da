"""The golden stores for tests: private copies of the stores and what RocketMQ itself sees in them.

`golden(NAME, folder)` makes a copy to play with, `truth(NAME)` is RocketMQ's view after its own load and start. How the
stores were made and what each file in golden/ holds is told in golden/README.md.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.golden import delta

FOLDER = Path(__file__).parent / "golden"
TRUTH_SUFFIX = ".truth.jsonl.xz"

GOLDENS: tuple[str, ...] = tuple(
    sorted(path.name.removesuffix(TRUTH_SUFFIX) for path in FOLDER.glob("*" + TRUTH_SUFFIX))
)
"""Names of the golden stores of 5.3.3 and 4.9.8."""
OF_5_5: tuple[str, ...] = tuple(
    sorted(path.name.removesuffix(TRUTH_SUFFIX) for path in (FOLDER / "v55").glob("*" + TRUTH_SUFFIX))
)
"""Names of those that 5.5.0 wrote or opened. Their truths tell of a message only where it lies, mostly."""


def file_of(name: str, suffix: str) -> Path:
    """Where the file `suffix` of a golden lies."""
    return FOLDER / ("v55" if name.startswith(("v55-", "v533s-", "v498s-")) else "") / (name + suffix)


Row = dict[str, Any]
TreeState = dict[str, tuple[int, int, str]]

GoldenStore = Callable[[str], Path]
"""The fixture `golden_store`: takes a golden's name, returns the path of a fresh private copy of that store."""


@dataclass
class Truth:
    """What the real RocketMQ sees in a golden after load and start. Shared by all callers: do not change it.

    Each row is as the oracle wrote it, without "kind". `messages` is always the full list, in commitlog order: of a
    derived golden the file holds only what differs, the rest comes from its base. `cq` is None where no queue unit
    points at the message; for other messages taken from the base `cq` is the base's, while the queues' `unitsSha256`
    is of the store's own units.
    """

    summary: Row = field(default_factory=dict)
    queues: list[Row] = field(default_factory=list)
    messages: list[Row] = field(default_factory=list)
    blanks: list[Row] = field(default_factory=list)
    queries: list[Row] = field(default_factory=list)
    looks: list[Row] = field(default_factory=list)


class _Cache:
    """Where the base stores lie unpacked; a test session sets its own folder, else a temporary one is made."""

    folder: Path | None = None


def use_cache(folder: Path) -> None:
    """Unpack the base stores into `folder` from now on (once each)."""
    _Cache.folder = folder


def base_of(name: str) -> str | None:
    """The golden that `name` was derived from by breaking it; None for one that RocketMQ wrote as it is."""
    return None if file_of(name, ".tar.xz").exists() else _delta(name).base


def is_broken(name: str) -> bool:
    """Whether `name` was damaged on purpose: derived from another golden by changing or removing something."""
    return base_of(name) is not None


@functools.cache
def is_crashed(name: str) -> bool:
    """Whether the store still has its `abort` file, as after a kill: RocketMQ takes the abnormal recovery."""
    # of many goldens, while tests are collected: the truth begins with its summary, and has thousands of other lines
    with lzma.open(file_of(name, TRUTH_SUFFIX), "rt", encoding="utf-8") as file:
        summary: Row = json.loads(file.readline())
    return bool(summary["abortBefore"])


def golden(name: str, destination: Path) -> Path:
    """Make a private copy of the store `name` as `destination`/`name` and return that path.

    Bytes, mtimes (whole seconds) and holes are those of the archive. Fails if the copy is already there.
    """
    store = destination / name
    shutil.copytree(_unpacked(base_of(name) or name), store, copy_function=_copy_sparsely)
    if is_broken(name):
        delta.apply(_delta(name), store)
    return store


def properties(name: str) -> dict[str, str]:
    """All of NAME.props: `store.*`, `broker.*`, `topic.*` configure the broker, `load.*` the messages written."""
    own = file_of(name, ".props")
    path = own if own.exists() else file_of(str(base_of(name)), ".props")
    pairs = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines())
    return {key: value for key, _, value in pairs}


def broker_conf(name: str, destination: Path) -> Path:
    """Write `destination`/`name`.broker.conf for the copy that `golden(name, destination)` makes, and return its path.

    It holds storePathRootDir and the `store.*` keys without that prefix, @DIR@ being the store's path.
    """
    store = destination / name
    lines = [f"storePathRootDir={store}"]
    for key, value in properties(name).items():
        if key.startswith("store."):
            lines.append(f"{key.removeprefix('store.')}={value.replace('@DIR@', str(store))}")
    destination.mkdir(parents=True, exist_ok=True)
    path = destination / f"{name}.broker.conf"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@functools.cache
def truth(name: str) -> Truth:
    """RocketMQ's view of golden `name`, complete also for derived ones."""
    result = Truth()
    parts = {"queue": result.queues, "msg": result.messages, "blank": result.blanks}
    parts |= {"query": result.queries, "look": result.looks}
    same: Row | None = None
    with lzma.open(file_of(name, TRUTH_SUFFIX), "rt", encoding="utf-8") as file:
        for line in file:
            row: Row = json.loads(line)
            kind = row.pop("kind")
            if kind == "summary":
                result.summary = row
            elif kind == "sameAsBase":
                same = row
            else:
                parts[kind].append(row)
    if same is not None:
        known = {row["phyOffset"]: row for row in truth(same["base"]).messages}
        without = set(same["withoutCqUnit"])
        for offset in same["phyOffsets"]:
            row = known[offset]
            result.messages.append({**row, "cq": None} if offset in without else row)
        result.messages.sort(key=lambda row: int(row["phyOffset"]))
    return result


def admin(name: str) -> Row:
    """Topic and consume statistics as the running broker answered them (NAME.admin.json; broker stores only)."""
    answer: Row = json.loads(file_of(name, ".admin.json").read_text(encoding="utf-8"))
    return answer


def tree_state(path: Path) -> TreeState:
    """Everything below `path` that looking must not change: relative path -> (size, mtime in ns, sha256).

    Directories, "." among them, have size 0 and "directory" for the digest; links have their target; other special
    files "special". Reading moves only access times.
    """
    state: TreeState = {}
    for entry in (path, *sorted(path.rglob("*"))):
        info = entry.lstat()
        size, digest = info.st_size, "special"
        if stat.S_ISDIR(info.st_mode):
            size, digest = 0, "directory"
        elif stat.S_ISLNK(info.st_mode):
            digest = f"-> {entry.readlink()}"
        elif stat.S_ISREG(info.st_mode):
            with entry.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        state[entry.relative_to(path).as_posix()] = (size, info.st_mtime_ns, digest)
    return state


@functools.cache
def _delta(name: str) -> delta.Delta:
    return delta.Delta.from_json(file_of(name, ".delta.json").read_text(encoding="utf-8"))


def _cache_folder() -> Path:
    if _Cache.folder is None:
        _Cache.folder = Path(tempfile.mkdtemp(prefix="goldens-"))
        atexit.register(shutil.rmtree, _Cache.folder, ignore_errors=True)
    return _Cache.folder


def _unpacked(name: str) -> Path:
    """The base store `name`, unpacked by the first caller; never handed out, only copied from."""
    store = _cache_folder() / name
    if not store.exists():
        unpack(file_of(name, ".tar.xz"), _cache_folder() / "unpacking")
        (_cache_folder() / "unpacking" / name).rename(store)
    return store


def unpack(archive: Path, destination: Path) -> None:
    """Unpack a golden's archive into `destination`; mtimes and holes are kept."""
    with tarfile.open(archive) as tar:
        # Python 3.12 and later warn when no filter is chosen; the first 3.11 releases know none.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(destination)


def _copy_sparsely(source: str, target: str) -> None:
    """Copy one file with its holes and mtime (a timer wheel is 38 MB of hole around a few KB)."""
    with Path(source).open("rb") as reader, Path(target).open("wb") as writer:
        writer.truncate(os.fstat(reader.fileno()).st_size)
        for start, end in _data_extents(reader.fileno()):
            writer.seek(start)
            writer.write(os.pread(reader.fileno(), end - start, start))
    shutil.copystat(source, target)


def _data_extents(descriptor: int) -> Iterator[tuple[int, int]]:
    """Ranges of the file that hold data; the whole file where the file system knows no holes."""
    end = 0
    while True:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole up to the end
            return
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, end


def keys_of_servers(version: str) -> dict[str, list[str]]:
    """Return the configuration keys of RocketMQ's own `broker` and `namesrv` of a version."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / "servers" / f"config-keys-{version}.txt").read_text(encoding="ascii").splitlines():
        server, key = line.split(" ")
        found.setdefault(server, []).append(key)
    return found


@dataclass
class LogGolden:
    """A store of 5.5.0 with another log than a plain commitlog, and the lines of RocketMQ's truth of it."""

    store: Path
    lines: list[Row]

    def rows(self, kind: str) -> list[Row]:
        """The lines of a kind."""
        return [row for row in self.lines if row["kind"] == kind]

    def copied_to(self, target: Path) -> Path:
        """Make a private copy, holes as holes."""
        return Path(shutil.copytree(self.store, target, copy_function=_copy_sparsely))


def log_golden(name: str, destination: Path) -> LogGolden:
    """Unpack a store of golden/logs into `destination`."""
    folder = FOLDER / "logs"
    unpack(folder / f"{name}.tar.xz", destination)
    with lzma.open(folder / f"{name}{TRUTH_SUFFIX}", "rt", encoding="utf-8") as file:
        return LogGolden(destination / name, [json.loads(line) for line in file])
