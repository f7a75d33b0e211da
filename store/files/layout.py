"""Where things are in a store directory, and the only way a topic name becomes a path."""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import RefusedError, UnreadableError, UsageError
from rmqctl.store.files.reading import exists, is_directory, is_file

FILE_NAME_DIGITS = 20
LARGEST_OFFSET = (1 << 63) - 1
_LARGEST_QUEUE_ID = (1 << 31) - 1
KEPT = ".rmqctl"
"""What the folder beside a store ends with that holds what changes took out of it."""


def file_name(start_offset: int) -> str:
    """Name of a commitlog or consumequeue file: its start offset in 20 digits (UtilAll#offset2FileName)."""
    return f"{start_offset:0{FILE_NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Whether `name` is a start offset as RocketMQ writes it."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit() and int(name) <= LARGEST_OFFSET


def is_queue_name(name: str) -> bool:
    """Return whether a directory below a topic is a queue: a broker opens the folder by the id, so of `007` it opens
    `7`, and ignores names that are no int (ConsumeQueue, Integer#parseInt)."""
    if not (name.isascii() and name.isdigit()):
        return False
    return int(name) <= _LARGEST_QUEUE_ID and str(int(name)) == name


def is_safe_topic(topic: str) -> bool:
    """Whether `topic` can be a directory name of its own: one path component, no NUL, at most 255 bytes."""
    return (
        topic not in ("", ".", "..")
        and "/" not in topic
        and "\0" not in topic
        and len(topic.encode("utf-8", "surrogatepass")) <= 255
    )


def topic_directory(parent: Path, topic: str) -> Path:
    """`parent`/`topic`; UsageError for a name that would lead elsewhere. Law 7: no other code joins topics to paths."""
    if not is_safe_topic(topic):
        raise UsageError(f"topic {topic!r} cannot be a directory name", hint="its messages stay readable by `cat`")
    return parent / topic


def looks_like_store(directory: Path) -> bool:
    """Return whether `directory` looks like a store: it has a commitlog, or queues with the files beside them."""
    if is_directory(directory / "commitlog"):
        return True
    return is_directory(directory / "consumequeue") and any(
        exists(directory / name) for name in ("index", "config", "checkpoint")
    )


def holds_log_files(directory: Path, among: int | None = None) -> bool:
    """Whether files of a commitlog or a consume queue lie directly in `directory`, wherever it is.

    `among`: how many names are looked at; all without it.
    """
    try:
        with os.scandir(directory) as entries:
            return any(is_file_name(entry.name) for entry in islice(entries, among))
    except OSError:
        return False


MESSAGE_STORAGE = "rocksdbstore"
CURRENT = "CURRENT"
"""The file that names a RocksDB's manifest; no database is without it."""


def is_database(folder: Path) -> bool:
    """Return whether the folder is a RocksDB. UnreadableError."""
    return is_file(folder / CURRENT)


class StoreLayout:
    """Paths of one store. `commitlog` has several directories for a multi-path store."""

    __slots__ = ("commitlog", "root")

    def __init__(self, root: Path, commitlog: tuple[Path, ...]) -> None:
        self.root = root
        self.commitlog = commitlog

    @property
    def consumequeue(self) -> Path:
        """Queues of 20-byte units, or a RocksDB."""
        return self.root / "consumequeue"

    @property
    def consumequeue_rocksdb(self) -> Path:
        """The RocksDB with queues where it is apart from files (useSeparateStorePathForRocksdbCQ, since 5.5)."""
        return self.root / "consumequeue_rocksdb"

    @property
    def message_storage(self) -> Path:
        """The RocksDB with index, timer and transactions, which RocketMQ 5.4 and later make in every store."""
        return self.root / MESSAGE_STORAGE

    @property
    def rocksdb(self) -> list[Path]:
        """The folders outside of config/ in which a RocksDB is."""
        names = (self.consumequeue, self.consumequeue_rocksdb, self.message_storage, self.root / "kvStore")
        return [path for path in names if is_database(path)]

    @property
    def consumequeue_ext(self) -> Path:
        """Ext units."""
        return self.root / "consumequeue_ext"

    @property
    def batchconsumequeue(self) -> Path:
        """Queues of 46-byte units."""
        return self.root / "batchconsumequeue"

    @property
    def index(self) -> Path:
        """Key index files."""
        return self.root / "index"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint file."""
        return self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        """Marker of a store that is open or was not closed cleanly."""
        return self.root / "abort"

    @property
    def lock(self) -> Path:
        """The file whose first byte a running broker locks."""
        return self.root / "lock"

    @property
    def config(self) -> Path:
        """Topics, subscriptions, consumer offsets."""
        return self.root / "config"

    @property
    def kept(self) -> Path:
        """The directory beside the store with what changes by rmqctl removed from it. Never inside: a broker refuses
        stray files.

        Links are followed, so a store's changes are found by every name of it.
        """
        root = Path(os.path.realpath(self.root))
        return root.with_name(root.name + KEPT)


# To whom new files of a store belong: to whom its commitlog does, or the broker could not write to them.

_KEPT = ".rmqctl"


class Ownership(NamedTuple):
    """User and group ids, and the permissions that files and directories have."""

    user: int
    group: int
    file_mode: int
    directory_mode: int


def ownership_of(directory: Path) -> Ownership:
    """That of a store, or of a directory with files of a log in it: its commitlog says it, its newest file first."""
    log = next(
        (path for path in (directory / "commitlog", directory / "consumequeue") if is_directory(path)), directory
    )
    status = owner = log.stat()
    file_mode = stat.S_IMODE(status.st_mode) & 0o666
    if log.name != "consumequeue":  # which has folders of topics alone, ten thousand perhaps
        with os.scandir(log) as entries:
            files = [
                entry.name for entry in entries if is_file_name(entry.name) and entry.is_file(follow_symlinks=False)
            ]
        if files:
            owner = (log / max(files)).stat()
            file_mode = stat.S_IMODE(owner.st_mode) & 0o666
    return Ownership(owner.st_uid, owner.st_gid, file_mode, stat.S_IMODE(status.st_mode))


def of_one(status: os.stat_result) -> Ownership:
    """That of a single file or directory."""
    mode = stat.S_IMODE(status.st_mode)
    return Ownership(status.st_uid, status.st_gid, mode, mode)


def inherited(path: Path) -> Ownership | None:
    """What a new file or directory at `path` gets from the store that it is made in or, as a journal, beside; None for
    places outside of every store, and for users who can give nothing away."""
    if os.geteuid() != 0:
        return None
    try:
        # a log's folder holds hardly anything else: a few names tell it from that of ten thousand topics
        if holds_log_files(path.parent, among=64):
            return ownership_of(path.parent)
        for above in path.absolute().parents:
            if looks_like_store(above):
                return ownership_of(above)
        for part in (path.absolute(), *path.absolute().parents):
            store = part.with_name(part.name.removesuffix(_KEPT)) if part.name.endswith(_KEPT) else None
            if store is not None and store.name and looks_like_store(store):
                return ownership_of(store)
    except OSError:  # the store is going away or may not be looked at: then its owner is not known
        return None
    return None


def refuse_other_user(layout: StoreLayout) -> None:
    """RefusedError where the store is another user's and this one is not root: what it made the broker could neither
    write to nor remove."""
    user = os.geteuid()
    if user == 0:
        return
    try:
        if is_directory(layout.commitlog[0]):
            place = layout.commitlog[0]
        elif looks_like_store(layout.root):
            place = layout.root
        else:  # about to become a store
            return
        owner = ownership_of(place).user
    except (OSError, UnreadableError):
        return
    if owner != user:
        raise RefusedError(
            f"the store belongs to the user with id {owner}, and new files would belong to {user}",
            file=layout.root,
            hint="run the command as the user that the broker runs as, or as root",
        )
