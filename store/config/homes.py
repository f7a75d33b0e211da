"""Where a broker keeps topics, groups and offsets: the usual JSON file, a RocksDB, or the file of light queues."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import UncertainError, UnsupportedError
from rmqctl.formats.wording import format_time
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.presence import is_file, status_of

TOPICS = "topics.json"
GROUPS = "subscriptionGroup.json"
OFFSETS = "consumerOffset.json"
LMQ_OFFSETS = "lmqConsumerOffset.json"
"""Where a broker with enableLmq keeps the offsets of all groups (LmqConsumerOffsetManager)."""
OWN_TABLES = (TOPICS, OFFSETS, GROUPS)
"""The tables that a broker keeps from its first start on."""

# of each table: its own database (storeType=defaultRocksDB, configManagerVersion=v1)
_OWN_DATABASE = {
    TOPICS: "topics",
    GROUPS: "subscriptionGroups",
    OFFSETS: "consumerOffsets",
    LMQ_OFFSETS: "consumerOffsets",
}
# databases of all three tables: configManagerVersion=v2, useSingleRocksDBForAllConfigs, and that of 5.1
_SHARED_DATABASES = ("rdb", "metadata", "rocksdb")
_CURRENT = "CURRENT"  # names the manifest; no RocksDB is without it
_WHAT = {TOPICS: "topics", GROUPS: "consumer groups", OFFSETS: "consumer offsets", LMQ_OFFSETS: "consumer offsets"}


def database_of(config: Path, name: str) -> Path | None:
    """Return the RocksDB in the folder `config` that holds the table of the file `name`; None if there is none.

    UnreadableError.
    """
    if name not in _OWN_DATABASE:
        return None
    for folder in (*_SHARED_DATABASES, _OWN_DATABASE[name]):
        if is_file(config / folder / _CURRENT):
            return config / folder
    return None


def databases(config: Path) -> dict[Path, list[str]]:
    """Return the RocksDBs of the folder `config`, each with the files whose tables it holds. UnreadableError."""
    found: dict[Path, list[str]] = {}
    for name in (TOPICS, GROUPS, OFFSETS):
        database = database_of(config, name)
        if database is not None:
            found.setdefault(database, []).append(name)
    return found


def in_database(path: Path) -> str | None:
    """Return why the table of the config file `path` is not read: a RocksDB has it; None if none does."""
    database = database_of(path.parent, path.name)
    if database is None:
        return None
    status = status_of(path)
    stale = ""
    if status is not None:
        written = format_time(status.st_mtime_ns // 1_000_000)
        stale = f"; {path.name}, written {written}, is not what the broker uses"
    return f"the broker keeps its {_WHAT[path.name]} in this RocksDB, which is not read yet{stale}"


def uncertain_in(path: Path) -> UncertainError | None:
    """Return what to report where the table of the config file `path` is asked for and a RocksDB has it."""
    why = in_database(path)
    if why is None:
        return None
    return UncertainError(why, file=database_of(path.parent, path.name), hint=_hint(path))


def refuse_database(path: Path) -> None:
    """Raise UnsupportedError where a change of the config file `path` would have no effect: a RocksDB has its table."""
    why = in_database(path)
    if why is not None:
        raise UnsupportedError(why, file=database_of(path.parent, path.name), hint=_hint(path))


def _hint(path: Path) -> str:
    export = "`mqadmin rocksDBConfigToJson` prints it"
    return f"{export}; if the broker no longer uses it, move the folder away"


class OffsetsHome(NamedTuple):
    """The file that holds the offsets of consumer groups; `note`: which one was taken and why, "" for the usual one."""

    path: Path
    note: str = ""

    @property
    def is_lmq(self) -> bool:
        """Return whether it is the file of a broker with enableLmq."""
        return self.path.name == LMQ_OFFSETS


def offsets_home(config: Path, settings: StoreConfig) -> OffsetsHome:
    """Return the file of the folder `config` that a broker with these `settings` keeps consumer offsets in.

    Where nothing is configured the only file is taken, or the newer one of both. UnreadableError.
    """
    usual, lmq = config / OFFSETS, config / LMQ_OFFSETS
    if settings.enable_lmq:
        return OffsetsHome(lmq, f"offsets are those of {lmq} (enableLmq)")
    written, lmq_written = _written(usual), _written(lmq)
    if lmq_written is None:
        return OffsetsHome(usual)
    if written is None:
        return OffsetsHome(lmq, f"offsets are those of {lmq}: there is no {OFFSETS}")
    newer, older = (lmq, usual) if lmq_written > written else (usual, lmq)
    both = f"there are {OFFSETS} and {LMQ_OFFSETS}: offsets are those of the newer one, {newer}, not of {older.name}"
    return OffsetsHome(newer, f"{both}; -c with the broker.conf (enableLmq) decides")


def _written(path: Path) -> int | None:
    """Return when a file or its backup was written, ns; None if there is neither, or nothing in them."""
    for one in (path, path.with_name(path.name + ".bak")):
        status = status_of(one)
        if status is not None and status.st_size:
            return status.st_mtime_ns
    return None
