"""What the real RocketMQ saw in a store, as plain values, and the store's files around it."""

from __future__ import annotations

import fnmatch
import hashlib
import ipaddress
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BOOKKEEPING = ("checkpoint", "abort", "abort.bak", "lock", "rocksdbstore", "rocksdbstore/*")
"""What a broker rewrites in every store it opens and closes, however whole that store is; the last ones 5.5.0 alone."""

Unit = tuple[int, int, int, int]
"""Queue offset, physical offset, size, tagsCode; for a queue with ext file the tagsCode found there."""


@dataclass(frozen=True)
class FileState:
    """Length in bytes and SHA-256 of one file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class MessageView:
    """One message as a consumer of a queue got it.

    `asked_*` is the queue and offset asked for, `next_offset` where RocketMQ said to go on; `topic`, `queue_id` and
    `queue_offset` are the message's own (they differ for multi-dispatch). Times in ms, `body_*` after decompression,
    hosts as "10.1.2.3:80" or "[2001:db8::1]:80".
    """

    asked_topic: str
    asked_queue_id: int
    asked_offset: int
    next_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    body_length: int
    body_sha256: str
    keys: str | None
    tags: str | None
    properties: dict[str, str]
    store_timestamp: int
    born_timestamp: int
    born_host: str
    store_host: str
    sys_flag: int
    flag: int
    reconsume_times: int
    prepared_transaction_offset: int
    message_id: str


@dataclass(frozen=True)
class QueueView:
    """One queue: its ends, its units, and where getMessage did not find: [offset, status, next offset]."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    units: list[Unit]
    anomalies: list[tuple[int, str, int]]


@dataclass(frozen=True)
class QueryView:
    """Answer to a key query: physical offsets in RocketMQ's order."""

    topic: str
    key: str
    physical_offsets: list[int]


@dataclass(frozen=True)
class StoreState:
    """A store's files at one moment; directories by their relative path."""

    files: dict[str, FileState]
    directories: frozenset[str]
    checkpoint: tuple[int, ...] | None

    @classmethod
    def of(cls, store: Path) -> StoreState:
        """Read the whole tree below `store`; links are not followed."""
        files: dict[str, FileState] = {}
        directories: set[str] = set()
        for path in sorted(store.rglob("*")):
            name = path.relative_to(store).as_posix()
            if path.is_dir():
                directories.add(name)
            elif path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                files[name] = FileState(path.stat().st_size, digest)
        return cls(files, frozenset(directories), _checkpoint(store / "checkpoint"))


@dataclass
class BrokerView:
    """What one start of a broker's store saw and did.

    `load_ok` is load()'s answer, None if it threw; `exception` the stack trace of whatever ended the run early, also
    after a good load. Offsets are -1 where the store did not start. `log`: warnings and errors of the whole JVM.
    """

    version: str
    load_ok: bool | None
    exception: str | None
    drained: bool
    min_offset: int
    max_offset: int
    load_milliseconds: int
    before: StoreState
    after: StoreState
    messages: list[MessageView] = field(default_factory=list)
    queues: list[QueueView] = field(default_factory=list)
    queries: list[QueryView] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    log: str = ""

    @property
    def files_before(self) -> dict[str, FileState]:
        """Relative path -> state of every file before the start."""
        return self.before.files

    @property
    def files_after(self) -> dict[str, FileState]:
        """Relative path -> state of every file after the JVM ended."""
        return self.after.files

    @property
    def abort_before(self) -> bool:
        """Whether the store looked crashed before the start."""
        return "abort" in self.before.files

    @property
    def abort_after(self) -> bool:
        """Whether it looks crashed now."""
        return "abort" in self.after.files

    @property
    def changed_files(self) -> list[str]:
        """Files whose bytes changed, that appeared or that vanished."""
        names = self.before.files.keys() | self.after.files.keys()
        return sorted(name for name in names if self.before.files.get(name) != self.after.files.get(name))

    @property
    def changed_directories(self) -> list[str]:
        """Directories that appeared or vanished."""
        return sorted(self.before.directories ^ self.after.directories)

    @property
    def unexpected_changes(self) -> list[str]:
        """Changed files and directories but checkpoint, abort*, lock: empty if the broker found nothing to mend."""
        changed = [*self.changed_files, *self.changed_directories]
        return [name for name in changed if not any(fnmatch.fnmatchcase(name, known) for known in BOOKKEEPING)]

    @property
    def anomalies(self) -> list[tuple[str, int, int, str, int]]:
        """Whatever a consumer would stumble over: topic, queue id, offset asked for, status, next offset."""
        return [(queue.topic, queue.queue_id, *anomaly) for queue in self.queues for anomaly in queue.anomalies]

    def complaints(self) -> list[str]:
        """What a whole store would not bring about; empty if the broker found nothing to mend or to stumble over."""
        found = [] if self.load_ok else [f"load: {self.load_ok}"]
        if self.exception is not None:
            found.append(self.exception)
        if self.load_ok and not self.drained:
            found.append("queues and index did not catch up with the commitlog")
        if self.abort_after:
            found.append("abort stayed")
        found += [f"not found by a consumer: {anomaly}" for anomaly in self.anomalies]
        found += [f"changed: {name}" for name in self.unexpected_changes]
        return found

    def by_physical_offset(self) -> dict[int, MessageView]:
        """The messages once each (several queues may hold one), by place in the commitlog."""
        return {message.physical_offset: message for message in self.messages}


@dataclass(frozen=True)
class Written:
    """One put by the real store: `messages` > 1 for a batch; `body_sha256` of the plain body, None for a batch."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    messages: int
    status: str
    body_sha256: str | None


def broker_view(rows: Iterable[dict[str, Any]], before: StoreState, after: StoreState, log: str) -> BrokerView:
    """Build the view from the driver's lines."""
    lines = iter(rows)
    summary = next(lines)
    view = BrokerView(
        version=summary["version"],
        load_ok=summary["load"],
        exception=summary.get("exception"),
        drained=summary.get("drained", False),
        min_offset=summary.get("minPhysicalOffset", -1),
        max_offset=summary.get("maxPhysicalOffset", -1),
        load_milliseconds=summary.get("loadMilliseconds", -1),
        before=before,
        after=after,
        log=log,
    )
    for row in lines:
        if row["kind"] == "queue":
            view.queues.append(_queue(row))
        elif row["kind"] == "query":
            view.queries.append(QueryView(row["topic"], row["key"], row["physicalOffsets"]))
        elif row["kind"] == "written":
            view.written.append(written(row))
        else:
            view.messages.append(_message(row))
    return view


def written(row: dict[str, Any]) -> Written:
    """One line of the driver's `write`."""
    return Written(
        topic=row["topic"],
        queue_id=row["queueId"],
        queue_offset=row["queueOffset"],
        physical_offset=row["physicalOffset"],
        size=row["size"],
        messages=row["messages"],
        status=row["status"],
        body_sha256=row["bodySha256"],
    )


def _queue(row: dict[str, Any]) -> QueueView:
    units: list[Unit] = [(unit[0], unit[1], unit[2], unit[3]) for unit in row["units"]]
    anomalies = [(anomaly[0], anomaly[1], anomaly[2]) for anomaly in row["anomalies"]]
    return QueueView(row["topic"], row["queueId"], row["min"], row["max"], units, anomalies)


def _message(row: dict[str, Any]) -> MessageView:
    return MessageView(
        asked_topic=row["askedTopic"],
        asked_queue_id=row["askedQueueId"],
        asked_offset=row["askedOffset"],
        next_offset=row["nextOffset"],
        topic=row["topic"],
        queue_id=row["queueId"],
        queue_offset=row["queueOffset"],
        physical_offset=row["physicalOffset"],
        size=row["size"],
        body_length=row["bodyLength"],
        body_sha256=row["bodySha256"],
        keys=row["keys"],
        tags=row["tags"],
        properties=row["properties"],
        store_timestamp=row["storeTimestamp"],
        born_timestamp=row["bornTimestamp"],
        born_host=_host(row["bornHost"]),
        store_host=_host(row["storeHost"]),
        sys_flag=row["sysFlag"],
        flag=row["flag"],
        reconsume_times=row["reconsumeTimes"],
        prepared_transaction_offset=row["preparedTransactionOffset"],
        message_id=row["messageId"],
    )


def _host(pair: list[Any]) -> str:
    """Java writes IPv6 addresses in full and with the zone it guessed; here they are in the usual short form."""
    address = ipaddress.ip_address(str(pair[0]).partition("%")[0])
    return f"[{address}]:{pair[1]}" if address.version == 6 else f"{address}:{pair[1]}"


def _checkpoint(path: Path) -> tuple[int, ...] | None:
    """The six longs at the head of the checkpoint; None if there is no such file or it is shorter."""
    head = path.read_bytes()[: 6 * 8] if path.is_file() else b""
    return struct.unpack(">6q", head) if len(head) == 6 * 8 else None
