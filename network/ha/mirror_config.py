"""The tables of a mirror's config folder: those of its master, fetched from time to time while it lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import CorruptError, RemoteError, RmqctlError
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode
from rmqctl.network.remoting.requests import Tell
from rmqctl.store.answers.config_offsets import CONSUMER_FILE, DELAY_FILE, OFFSET_TABLE, is_queue_id, offset_key
from rmqctl.store.config.config import StoreConfig, config_from_properties
from rmqctl.store.config.config_files import read_config, write_config
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.store_files import StoreFiles

# What a master's broker tells of itself over remoting: where its log begins and ends, how it is configured, and the
# tables that a slave asks for (SlaveSynchronize).

SYNC_MASTER = "SYNC_MASTER"
# what the files of a mirror have to be like, and what its queues are made by; never where the master keeps its own
_TAKEN_OVER = (
    "mappedFileSizeCommitLog mappedFileSizeConsumeQueue mapperFileSizeBatchConsumeQueue maxHashSlotNum maxIndexNum "
    "messageIndexEnable messageIndexSafe messageDelayLevel enableConsumeQueueExt mappedFileSizeConsumeQueueExt"
).split()
_TABLES = {
    "consumerOffset.json": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "delayOffset.json": RequestCode.GET_ALL_DELAY_OFFSET,
    "topics.json": RequestCode.GET_ALL_TOPIC_CONFIG,
    "subscriptionGroup.json": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
}
_OF_TOPICS = ("dataVersion", "topicConfigTable")


class MasterFacts(NamedTuple):
    """The commitlog's current bounds, and the broker's configuration as reported by it."""

    min_offset: int
    max_offset: int
    properties: dict[str, str]

    @property
    def is_sync(self) -> bool:
        """Whether it has producers wait for slaves."""
        return self.properties.get("brokerRole") == SYNC_MASTER

    def onto(self, config: StoreConfig) -> StoreConfig:
        """`config` with the sizes of its files, and the rules by which its queues are made. UsageError."""
        told = {key: self.properties[key] for key in _TAKEN_OVER if key in self.properties}
        given = config_from_properties(told, "the master's configuration")
        changed = {name: value for name, value in given._asdict().items() if value != getattr(StoreConfig(), name)}
        return config._replace(**changed)


class MasterBrokerClient:
    """A client that asks a master's broker what its slaves ask."""

    def __init__(self, address: str) -> None:
        """`address`: `host:port` of its remoting port."""
        self._address = address
        self._client = Client("")

    def facts(self) -> MasterFacts:
        """What it is. RemoteError; also for a broker that keeps its log in another way than masters and slaves do."""
        runtime = self._content(RequestCode.GET_BROKER_RUNTIME_INFO, self._client.ask_runtime_info(self._address)).get(
            "table"
        )
        table = runtime if isinstance(runtime, dict) else {}
        answer = self._client.ask(self._address, RequestCode.GET_BROKER_CONFIG)
        properties = {}
        for line in answer.body.decode("utf-8", "replace").splitlines():
            key, _, value = line.partition("=")
            properties[key.strip()] = value.strip()
        for key, what in (("enableControllerMode", "a controller"), ("enableDLegerCommitLog", "DLedger")):
            if properties.get(key, "").lower() == "true":
                raise RemoteError(
                    f"{self._address}: its log is replicated by {what} ({key}=true), which is not followed",
                    hint="take a snapshot of its store instead: `rmqctl snapshot`",
                )
        return MasterFacts(
            max(0, self._number(table, "commitLogMinOffset")), self._number(table, "commitLogMaxOffset"), properties
        )

    def _number(self, table: dict[Any, Any], name: str) -> int:
        try:
            return int(table[name])
        except (KeyError, ValueError, TypeError):
            raise RemoteError(f"{self._address} does not tell its {name}") from None

    def tables(self) -> dict[str, dict[Any, Any]]:
        """Content of the files of a broker's config folder by name, offsets first: what is asked for later is younger,
        so no offset counts a message of a topic that is not there. RemoteError where one cannot be had."""
        found = {name: self._content(code, self._client.ask(self._address, code)) for name, code in _TABLES.items()}
        topics = found["topics.json"]
        found["topics.json"] = {name: topics[name] for name in _OF_TOPICS if name in topics}
        return found

    def _content(self, code: RequestCode, answer: RemotingCommand) -> dict[Any, Any]:
        try:
            content = parse_config_json(answer.body.decode("utf-8"))
        except (CorruptError, UnicodeDecodeError) as error:
            raise RemoteError(f"{self._address}: the answer to {code.name} does not parse: {error}") from error
        if not isinstance(content, dict):
            raise RemoteError(f"{self._address}: the answer to {code.name} is no object")
        return content

    def close(self) -> None:
        """End the connection."""
        self._client.close()


SECONDS = 10.0
"""Between two times: a master that is about to die is not asked once too late."""
_LOOK_SECONDS = 0.5


class ConfigFollower:
    """Fetches the tables now and then, in a thread of its own, and writes them once the mirror is known to be this
    master's."""

    def __init__(self, broker: MasterBrokerClient, directory: Path, tell: Tell, may_write: Callable[[], bool]) -> None:
        self._broker = broker
        self._directory = directory
        self._tell = tell
        self._may_write = may_write
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
        while not self._ended.wait(_LOOK_SECONDS):
            if time.monotonic() - fetched_at >= SECONDS:
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
