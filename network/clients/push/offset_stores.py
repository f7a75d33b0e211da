"""Progress of a consumer: at the brokers for a group, in a local file for a broadcast (OffsetStore)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from rmqctl.formats.errors import CorruptError, RemoteError, RmqctlError
from rmqctl.network.clients.client import Client, Warn
from rmqctl.network.clients.membership import not_committed
from rmqctl.network.remoting.codec import MessageQueue, parse_body, queue_of_key
from rmqctl.store.files import io
from rmqctl.store.files.reading import is_there, read_small_file

_LARGEST_FILE = 64 << 20
_OFFSETS_FILE = "offsets.json"
_DEFAULT_DIRECTORY = "~/.rocketmq_offsets"


class ProgressStore(Protocol):
    """Offsets in memory and where they are kept. `uncommitted`: those that a broker did not take when asked last."""

    uncommitted: dict[MessageQueue, int]

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Set an offset in memory; with `increase_only` a smaller one is ignored."""

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset in memory that stays until it is forgotten: verdicts that come late do not count."""

    def in_memory(self, queue: MessageQueue) -> int | None:
        """Return an offset in memory."""

    def stored(self, queue: MessageQueue) -> int | None:
        """Return the offset that is kept, None without one. RemoteError or CorruptError where that is unknown."""

    def persist(self, queues: Collection[MessageQueue]) -> None:
        """Keep the offsets of these queues. A failure is reported, and the offsets stay in memory."""

    def forget(self, queue: MessageQueue) -> None:
        """Remove an offset from memory."""


class _InMemory:
    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._lock = threading.Lock()
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()
        self.uncommitted: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """See ProgressStore."""
        with self._lock:
            if queue not in self._frozen and not (increase_only and offset <= self._offsets.get(queue, -1)):
                self._offsets[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """See ProgressStore."""
        with self._lock:
            self._offsets[queue] = offset
            self._frozen.add(queue)

    def in_memory(self, queue: MessageQueue) -> int | None:
        """See ProgressStore."""
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        """See ProgressStore."""
        with self._lock:
            self._offsets.pop(queue, None)
            self._frozen.discard(queue)

    def _known(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        with self._lock:
            return {queue: self._offsets[queue] for queue in sorted(queues) if queue in self._offsets}


class BrokerOffsets(_InMemory):
    """Offsets of a group, committed to the brokers (RemoteBrokerOffsetStore)."""

    def __init__(self, client: Client, group: str, warn: Warn) -> None:
        super().__init__(warn)
        self._client = client
        self._group = group
        self._committed: dict[MessageQueue, int] = {}

    def stored(self, queue: MessageQueue) -> int | None:
        """See ProgressStore. Young queues have no offset 0 for a group without one: its own policy decides."""
        offset = self._client.group_offset(self._group, queue)
        if offset is not None:
            self.update(queue, offset, increase_only=False)
        return offset

    def persist(self, queues: Collection[MessageQueue]) -> None:
        """See ProgressStore."""
        wanted = {
            queue: offset for queue, offset in self._known(queues).items() if self._committed.get(queue) != offset
        }
        # a broker that fails is asked once
        away: dict[str, RemoteError] = {}
        for queue, offset in wanted.items():
            try:
                if queue.broker_name not in away:
                    self._client.commit_offset(self._group, queue, offset)
            except RemoteError as error:
                away[queue.broker_name] = error
            if queue.broker_name in away:
                self._missed(queue, offset, away[queue.broker_name])
            else:
                self._committed[queue] = offset
                self.uncommitted.pop(queue, None)

    def _missed(self, queue: MessageQueue, offset: int, error: RemoteError) -> None:
        if self.uncommitted.get(queue) != offset:
            self.uncommitted[queue] = offset
            self._warn(not_committed(queue, offset, error))

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """See ProgressStore."""
        super().freeze(queue, offset)
        # a pull commits too, and whoever reset the group has: the broker need not have what was committed last
        self._committed.pop(queue, None)

    def forget(self, queue: MessageQueue) -> None:
        """See ProgressStore."""
        super().forget(queue)
        self._committed.pop(queue, None)


class NoOffsets(_InMemory):
    """Offsets of a consumer that commits nothing; `offsets` are those of its group, if it has one."""

    def __init__(self, offsets: ProgressStore | None, warn: Warn) -> None:
        super().__init__(warn)
        self._offsets_of_group = offsets
        self._kept: dict[MessageQueue, int] = {}

    def stored(self, queue: MessageQueue) -> int | None:
        """See ProgressStore. A queue that this consumer had before goes on where it was."""
        if queue in self._kept or self._offsets_of_group is None:
            return self._kept.get(queue)
        return self._offsets_of_group.stored(queue)

    def persist(self, queues: Collection[MessageQueue]) -> None:
        """See ProgressStore."""
        self._kept |= self._known(queues)


class LocalOffsets(_InMemory):
    """Offsets of one member of a broadcast, in a file that RocketMQ's clients read and write (LocalFileOffsetStore)."""

    def __init__(self, path: Path, warn: Warn) -> None:
        """Load the file. CorruptError where neither it nor its backup can be read."""
        super().__init__(warn)
        self.path = path
        self._offsets.update(self._read())

    @property
    def _backup(self) -> Path:
        return self.path.with_name(self.path.name + ".bak")

    def _read(self) -> dict[MessageQueue, int]:
        """Return the offsets of the file, or of its backup where the file is missing, empty or damaged."""
        damage: CorruptError | None = None
        for path in (self.path, self._backup):
            data = read_small_file(path, _LARGEST_FILE) if is_there(path) else b""
            try:
                if data:
                    return _offsets_of(data, path)
            except CorruptError as error:
                damage = damage or error
        if damage is not None:
            raise damage
        return {}

    def stored(self, queue: MessageQueue) -> int | None:
        """See ProgressStore."""
        offset = self._read().get(queue)
        if offset is not None:
            self.update(queue, offset, increase_only=False)
        return offset

    def persist(self, queues: Collection[MessageQueue]) -> None:
        """See ProgressStore. Offsets of other queues in the file are kept."""
        known = self._known(queues)
        try:
            kept = self._read()
            if known and kept | known != kept:
                self._write(kept | known)
        except (RmqctlError, OSError) as error:
            self._warn(f"{self.path}: progress is not saved: {error}")

    def _write(self, offsets: dict[MessageQueue, int]) -> None:
        io.make_directories(self.path.parent)
        if is_there(self.path):
            io.write_whole(self._backup, read_small_file(self.path, _LARGEST_FILE))
        io.write_whole(self.path, local_offsets_text(offsets).encode())


def _offsets_of(data: bytes, path: Path) -> dict[MessageQueue, int]:
    try:
        table = parse_body(data).get("offsetTable")
    except CorruptError as error:
        raise CorruptError(f"{path}: {error.message}", hint="restore the file, or delete it to start afresh") from error
    found: dict[MessageQueue, int] = {}
    for key, offset in table.items() if isinstance(table, dict) else ():
        queue = queue_of_key(key)
        if queue is not None and isinstance(offset, int) and not isinstance(offset, bool):
            found[queue] = offset
    return found


def local_offsets_text(offsets: dict[MessageQueue, int]) -> str:
    """Return a local file's text as fastjson prints it: tabs, and queues as keys."""
    entries = [
        "{\n"
        f'\t\t\t"brokerName":{json.dumps(queue.broker_name, ensure_ascii=False)},\n'
        f'\t\t\t"queueId":{queue.queue_id},\n'
        f'\t\t\t"topic":{json.dumps(queue.topic, ensure_ascii=False)}\n'
        f"\t\t}}:{offset}"
        for queue, offset in sorted(offsets.items())
    ]
    return '{\n\t"offsetTable":{' + ",".join(entries) + "\n\t}\n}"


def local_offsets_path(client_id: str, group: str, directory: Path | None = None) -> Path:
    """Return the file in which a member keeps its progress; `directory` None: that of RocketMQ's clients."""
    home = directory or Path(os.path.expanduser(_DEFAULT_DIRECTORY))
    return home / client_id / group / _OFFSETS_FILE


__all__ = [
    "BrokerOffsets", "LocalOffsets", "NoOffsets", "ProgressStore", "local_offsets_path", "local_offsets_text",
]  # fmt: skip
