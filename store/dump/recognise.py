"""The kind of a file: by its place in a store, and outside of one by its content.

What is recognised but not read yet is named as such: nothing of it is ever decoded as something else.
"""

from __future__ import annotations

import enum
import itertools
import os
import re
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import unreadable
from rmqctl.formats.layouts import (
    BATCH_CONSUMEQUEUE_UNIT,
    BLANK_MAGIC,
    CHECKPOINT,
    CHECKPOINT_SIZE,
    CONSUMEQUEUE_EXT_UNIT_HEAD,
    CONSUMEQUEUE_UNIT,
    FRAME_HEADS,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
)
from rmqctl.store.config.client_offsets import is_client_file, is_client_text
from rmqctl.store.files.layout import is_file_name
from rmqctl.store.files.reading import Descriptors, exists, first_nonzero, is_file
from rmqctl.store.index.index_file import infer_geometry
from rmqctl.store.log.walk import MAXIMUM_FRAME_SIZE
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE

_HEAD = 256
_INDEX_NAME_DIGITS = 17
TIMER_WHEEL_SIZE = 2 * 7 * 86_400 * 32
_YEAR_2000 = 946_684_800_000
_YEAR_2200 = 7_258_118_400_000
_LARGEST_OFFSET = 1 << 50


class FileKind(enum.StrEnum):
    """Kinds of files in a store directory."""

    COMMITLOG = "commitlog"
    CONSUMEQUEUE = "consumequeue"
    CONSUMEQUEUE_EXT = "consumequeue_ext"
    BATCH_CONSUMEQUEUE = "batchconsumequeue"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    ABORT = "abort"
    LOCK = "lock"
    CONFIG = "config"
    CLIENT_OFFSETS = "client offsets"
    ROCKSDB = "rocksdb"
    TIMER_WHEEL = "timerwheel"
    TIMER_LOG = "timerlog"
    TIMER_CHECK = "timercheck"
    COMPACTION_LOG = "compactionlog"
    COMPACTION_QUEUE = "compactioncq"
    TIERED_INDEX = "tieredindex"
    LOCAL_TIERED_INDEX = "localtieredindex"
    DLEDGER = "dledger"
    EPOCH = "epoch"
    BROKER_IDENTITY = "brokeridentity"
    TRANSACTION = "transaction"
    UNKNOWN = "unknown"


READABLE = frozenset(
    {
        FileKind.COMMITLOG,
        FileKind.CONSUMEQUEUE,
        FileKind.CONSUMEQUEUE_EXT,
        FileKind.BATCH_CONSUMEQUEUE,
        FileKind.INDEX,
        FileKind.CHECKPOINT,
        FileKind.ABORT,
        FileKind.LOCK,
        FileKind.CONFIG,
        FileKind.CLIENT_OFFSETS,
        FileKind.TIMER_WHEEL,
        FileKind.TIMER_LOG,
        FileKind.TIMER_CHECK,
        FileKind.ROCKSDB,
        FileKind.DLEDGER,
        FileKind.COMPACTION_LOG,
        FileKind.COMPACTION_QUEUE,
        FileKind.TIERED_INDEX,
        FileKind.LOCAL_TIERED_INDEX,
        FileKind.EPOCH,
        FileKind.BROKER_IDENTITY,
    }
)
_DESCRIPTIONS = {
    FileKind.ROCKSDB: "a file of a RocksDB",
    FileKind.TIMER_WHEEL: "the timer wheel",
    FileKind.TIMER_LOG: "a timer log",
    FileKind.TIMER_CHECK: "the timer's checkpoint",
    FileKind.COMPACTION_LOG: "a log of a compacted topic",
    FileKind.COMPACTION_QUEUE: "a queue of a compacted topic",
    FileKind.TIERED_INDEX: "a key index of tiered storage",
    FileKind.LOCAL_TIERED_INDEX: "a key index of tiered storage that is not uploaded",
    FileKind.DLEDGER: "a file of a DLedger log",
    FileKind.TRANSACTION: "a transaction file of old brokers",
    FileKind.UNKNOWN: "no file of a store by its name or its content",
}


class Recognised(NamedTuple):
    """`kind` of a file; `by` is its place or its content, whichever decided."""

    kind: FileKind
    by: str

    @property
    def is_readable(self) -> bool:
        """Whether its content is understood; else it is only named."""
        return self.kind in READABLE

    @property
    def description(self) -> str:
        """For people."""
        return _DESCRIPTIONS.get(self.kind, f"{self.kind} file")


_BY_NAME = {
    "checkpoint": FileKind.CHECKPOINT,
    "abort": FileKind.ABORT,
    "abort.bak": FileKind.ABORT,
    "lock": FileKind.LOCK,
    "timerwheel": FileKind.TIMER_WHEEL,
    "timercheck": FileKind.TIMER_CHECK,
    "epochFileCheckpoint": FileKind.EPOCH,
    "epochFileCheckpoint.bak": FileKind.EPOCH,
    "brokerIdentity": FileKind.BROKER_IDENTITY,
    "brokerIdentity-temp": FileKind.BROKER_IDENTITY,
    "position-checkpoint": FileKind.CONFIG,
    "position-checkpoint.bak": FileKind.CONFIG,
}
_JSON_NAMES = ("timermetrics", "transactionMetrics")
_ROCKSDB_NAMES = ("CURRENT", "IDENTITY", "LOCK", "LOG")
_ROCKSDB_PREFIXES = ("MANIFEST-", "OPTIONS-", "LOG.old")
_ROCKSDB_SUFFIXES = (".sst", ".ldb", ".dbtmp")


def recognise(path: Path, *, commitlog: tuple[Path, ...] = ()) -> Recognised:
    """What the file at `path` is. `commitlog`: directories of the store's commitlog, if they are not called that.

    UnreadableError if its content is needed and cannot be read.
    """
    kind = _by_place(path, commitlog)
    return Recognised(kind, "place") if kind is not None else Recognised(_by_content(path), "content")


def _by_place(path: Path, commitlog: tuple[Path, ...]) -> FileKind | None:
    name = path.name
    # the absolute path is made without resolving links: a link's name says more than its target's
    parts = Path(os.path.abspath(path)).parts[:-1]
    is_offset = is_file_name(name)
    near = parts[-1] if parts else ""
    if _is_rocksdb_name(name, path):
        return FileKind.ROCKSDB
    if is_offset and (near == "commitlog" or path.parent in commitlog):
        return FileKind.COMMITLOG
    if is_offset and len(parts) >= 3 and parts[-1].isdigit():
        kind = _QUEUE_ROOTS.get(parts[-3])
        if kind is not None:
            return kind
    if (tiered := _of_tiered(name, parts)) is not None:
        return tiered
    if is_offset and near in ("timerlog", "data"):
        in_dledger = len(parts) >= 2 and parts[-2].startswith("dledger")
        return FileKind.TIMER_LOG if near == "timerlog" else FileKind.DLEDGER if in_dledger else None
    if near.startswith("dledger") and name.removesuffix(".bak") in ("checkpoint", "currterm"):
        return FileKind.DLEDGER
    if near == "index":
        if len(parts) >= 2 and parts[-2].startswith("dledger"):
            return FileKind.DLEDGER
        if len(name) == _INDEX_NAME_DIGITS and name.isdigit():
            return FileKind.INDEX
    if near == "transaction" and name in ("statetable", "redolog"):
        return FileKind.TRANSACTION
    if is_client_file(path):
        return FileKind.CLIENT_OFFSETS
    if name.removesuffix(".bak").endswith(".json") or name.removesuffix(".bak") in _JSON_NAMES:
        return FileKind.CONFIG
    # a snapshot of the wheel, or one that was being written
    if name.startswith("timerwheel.") and name.removeprefix("timerwheel.").removesuffix(".tmp").isdecimal():
        return FileKind.TIMER_WHEEL
    return _BY_NAME.get(name)


def _of_tiered(name: str, parts: tuple[str, ...]) -> FileKind | None:
    """Return the kind of a segment in tiered storage, or of a key index on its way there."""
    if parts and parts[-1] in _TIERED and _SEGMENT.fullmatch(name):
        return _TIERED[parts[-1]]
    place = parts[-2:] if parts[-1:] == ("compacting",) else parts[-1:]
    if place[:1] != ("tiered_index_file",) or not name.isdecimal():
        return None
    return FileKind.LOCAL_TIERED_INDEX if len(place) == 1 else FileKind.TIERED_INDEX


_SEGMENT = re.compile(r"[0-9a-f]{8}[0-9]{20}")
_TIERED = {"COMMIT_LOG": FileKind.COMMITLOG, "CONSUME_QUEUE": FileKind.CONSUMEQUEUE, "INDEX": FileKind.TIERED_INDEX}
_QUEUE_ROOTS = {
    "consumequeue": FileKind.CONSUMEQUEUE,
    "consumequeue_ext": FileKind.CONSUMEQUEUE_EXT,
    "batchconsumequeue": FileKind.BATCH_CONSUMEQUEUE,
    "compactionLog": FileKind.COMPACTION_LOG,
    "compactionCq": FileKind.COMPACTION_QUEUE,
}


def _is_rocksdb_name(name: str, path: Path) -> bool:
    if name.startswith(_ROCKSDB_PREFIXES) or name.endswith(_ROCKSDB_SUFFIXES):
        return True
    is_log = name.endswith(".log") and name.removesuffix(".log").isdigit()
    return (name in _ROCKSDB_NAMES or is_log) and exists(path.parent / "CURRENT")


def _by_content(path: Path) -> FileKind:
    descriptors = Descriptors()
    try:
        size = path.stat().st_size
        if not is_file(path):
            return FileKind.UNKNOWN
        start = first_nonzero(descriptors, path, 0, min(size, 1 << 20))
        if start is None:
            return FileKind.UNKNOWN
        head = descriptors.read(path, 0, _HEAD)
        return _kind_of_bytes(path, head, size, descriptors)
    except OSError as error:
        raise unreadable(error, path) from error
    finally:
        descriptors.close()


def _kind_of_bytes(path: Path, head: bytes, size: int, descriptors: Descriptors) -> FileKind:
    if _is_frame(head, size):
        return FileKind.COMMITLOG
    if is_client_text(head):
        return FileKind.CLIENT_OFFSETS
    if head.lstrip()[:1] == b"{":
        return FileKind.CONFIG
    if head.startswith(b"MANIFEST-"):
        return FileKind.ROCKSDB
    if size == TIMER_WHEEL_SIZE:
        return FileKind.TIMER_WHEEL
    if size == CHECKPOINT_SIZE and _is_checkpoint(head):
        return FileKind.CHECKPOINT
    if _are_batch_units(head):
        return FileKind.BATCH_CONSUMEQUEUE
    if _are_units(head):
        return FileKind.CONSUMEQUEUE
    if _is_ext(head):
        return FileKind.CONSUMEQUEUE_EXT
    if infer_geometry(path, size, descriptors) is not None:
        return FileKind.INDEX
    return FileKind.UNKNOWN


def _is_frame(head: bytes, size: int) -> bool:
    if len(head) < FRAME_HEADS[0].size:
        return False
    fields = FRAME_HEADS[0].unpack_from(head, 0)
    if fields[1] == BLANK_MAGIC:
        return bool(fields[0] == size)
    return fields[1] in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2)


def _is_time(milliseconds: int) -> bool:
    return _YEAR_2000 < milliseconds < _YEAR_2200


def _is_checkpoint(head: bytes) -> bool:
    times = CHECKPOINT.unpack_from(head, 0)[:3]
    return any(times) and all(time == 0 or _is_time(time) for time in times)


def _are_units(head: bytes) -> bool:
    found = [CONSUMEQUEUE_UNIT.unpack_from(head, at) for at in range(0, len(head) - CONSUMEQUEUE_UNIT.size + 1, 20)]
    return _grow([(offset, size) for offset, size, _ in found])


def _are_batch_units(head: bytes) -> bool:
    size = BATCH_CONSUMEQUEUE_UNIT.size
    found = [BATCH_CONSUMEQUEUE_UNIT.unpack_from(head, at) for at in range(0, len(head) - size + 1, size)]
    written = [unit for unit in found if any(unit)]
    return _grow([unit[:2] for unit in found]) and all(_is_time(unit[3]) and unit[5] > 0 for unit in written)


def _grow(units: list[tuple[int, int]]) -> bool:
    """Whether units follow each other as those of a queue: ever further offsets, sane sizes, zeros only behind."""
    written = [unit for unit in units if any(unit)]
    if not written or units[: len(written)] != written:
        return False
    real = [unit for unit in written if unit[1] != PLACEHOLDER_SIZE]
    sane = bool(real) and all(
        0 <= offset < _LARGEST_OFFSET and FRAME_HEADS[0].size < size <= MAXIMUM_FRAME_SIZE for offset, size in real
    )
    return sane and all(before[0] + before[1] <= after[0] for before, after in itertools.pairwise(real))


def _is_ext(head: bytes) -> bool:
    if len(head) < CONSUMEQUEUE_EXT_UNIT_HEAD.size:
        return False
    size, _, store_timestamp, bit_map_size = CONSUMEQUEUE_EXT_UNIT_HEAD.unpack_from(head, 0)
    return bool(size == CONSUMEQUEUE_EXT_UNIT_HEAD.size + bit_map_size and bit_map_size >= 0) and _is_time(
        store_timestamp
    )
