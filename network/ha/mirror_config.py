"""The tables of a mirror's config folder: those of its master, fetched from time to time while it lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import RemoteError, RmqctlError
from rmqctl.network.ha.master_facts import MasterBrokerClient
from rmqctl.network.remoting.services import Tell
from rmqctl.store.answers.config_offsets import CONSUMER_FILE, DELAY_FILE, OFFSET_TABLE, is_queue_id, offset_key
from rmqctl.store.config.config_files import read_config, write_config
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.store_files import StoreFiles

SECONDS = 10.0
"""Between two times: a master that is about to die is not asked once too late."""
_LOOK_SECONDS = 0.5


class ConfigFollower:
    """Fetches the tables now and then, in a thread of its own, and writes them once the mirror is known to be this
    master's."""

    def __init__(
        self,
        broker: MasterBrokerClient,
        directory: Path,
        tell: Tell,
        may_write: Callable[[], bool],
        seconds: float = SECONDS,
    ) -> None:
        self._broker = broker
        self._directory = directory
        self._tell = tell
        self._may_write = may_write
        self._seconds = seconds
        self._fetched: dict[str, dict[Any, Any]] = {}
        self._written: dict[str, dict[Any, Any]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rmqctl-mirror-config", daemon=True)
        self._has_failed = False
        self._failure: RmqctlError | None = None

    def start(self) -> None:
        """Fetch them now, and from now on. RemoteError where they cannot be had now."""
        self._fetched = self._broker.tables()
        self._thread.start()

    def _run(self) -> None:
        fetched_at = time.monotonic()
        while not self._ended.wait(min(_LOOK_SECONDS, self._seconds)):
            if time.monotonic() - fetched_at >= self._seconds:
                fetched_at = time.monotonic()
                self._fetch()
            try:
                self._write()
            except RmqctlError as error:
                # a disk that is full: whoever ends the mirror raises it
                self._failure = error
                return

    def _fetch(self) -> None:
        try:
            self._fetched = self._broker.tables()
            self._has_failed = False
        except RemoteError as error:
            if not self._has_failed:
                self._tell(f"topics, groups and offsets stay those of before: {error}")
            self._has_failed = True

    def _write(self) -> None:
        for name, content in self._fetched.items() if self._may_write() else ():
            if self._written.get(name) != content:
                write_config(self._directory / name, content)
                self._written[name] = content

    def stop(self) -> None:
        """Fetch them no more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def finish(self) -> None:
        """Fetch them once more, if the master is still there. Raises what went wrong with writing them."""
        self.stop()
        if self._failure is not None:
            raise self._failure
        self._fetch()
        self._write()


def set_back(files: StoreFiles) -> int:
    """Set offsets that count messages which the mirror has not got back to the ends of its queues; how many. Groups
    would skip as many messages of the next ones. CorruptError, UnreadableError, WriteFailedError."""

    def end_of(topic: str, queue_id: int) -> int:
        queue = files.queues.find(topic, queue_id) if is_safe_topic(topic) else None
        return 0 if queue is None else queue.max_offset

    def of_group(key: object, queue_id: int) -> int | None:
        owner = offset_key(key)
        return None if owner is None else end_of(owner.topic, queue_id)

    count = _set_back(files.layout.config / CONSUMER_FILE, of_group)
    delays = files.layout.config / DELAY_FILE
    content = read_config(delays)
    if isinstance(content, dict) and isinstance(content.get(OFFSET_TABLE), dict):
        beyond = _beyond(content[OFFSET_TABLE], lambda level: end_of(SCHEDULE_TOPIC, level - 1))
        if beyond:
            write_config(delays, {**content, OFFSET_TABLE: {**content[OFFSET_TABLE], **beyond}})
        count += len(beyond)
    return count


def _set_back(path: Path, end: Callable[[object, int], int | None]) -> int:
    content = read_config(path)
    table = content.get(OFFSET_TABLE) if isinstance(content, dict) else None
    if not isinstance(table, dict):
        return 0
    changed: dict[Any, Any] = {}
    count = 0
    for key, queues in table.items():
        if isinstance(queues, dict) and (beyond := _beyond(queues, lambda number, key=key: end(key, number))):  # type: ignore[misc]
            changed[key] = {**queues, **beyond}
            count += len(beyond)
    if changed:
        write_config(path, {**content, OFFSET_TABLE: {**table, **changed}})
    return count


def _beyond(offsets: dict[Any, Any], end: Callable[[int], int | None]) -> dict[Any, int]:
    """The entries that lie beyond their ends, with these ends."""
    found: dict[Any, int] = {}
    for key, offset in offsets.items():
        if not is_queue_id(str(key)) or not isinstance(offset, int):
            continue
        last = end(int(key))
        if last is not None and offset > last:
            found[key] = last
    return found
