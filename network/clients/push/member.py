"""One member of a group: what it subscribes, the queues assigned to it and its offsets, with where they are kept."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from rmqctl.formats.errors import CorruptError, RemoteError, RmqctlError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.channel import messages_of
from rmqctl.network.clients.client import Client, Warn, Where, without_namespace
from rmqctl.network.clients.hooks import ConsumeHook, ConsumeHookContext, ConsumeReturn, begin_consumption, run_after
from rmqctl.network.clients.membership import (
    BROADCASTING,
    CLUSTERING,
    Allocate,
    check_filters,
    consumer_heartbeat,
    not_a_member,
    not_committed,
    offsets_to_set,
    running_info_answer,
    status_answer,
)
from rmqctl.network.clients.push.process_queue import ProcessQueue
from rmqctl.network.clients.push.settings import ConsumeFigures, PushSettings
from rmqctl.network.remoting.codec import (
    MessageQueue,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    bean,
    json_answer,
    parse_body,
    queue_of_key,
)
from rmqctl.network.topic_config import retry_topic
from rmqctl.store.answers.dead_letters import ORIGIN_TOPIC
from rmqctl.store.files import io
from rmqctl.store.files.reading import is_there, read_small_file

# Progress of a consumer: at the brokers for a group, in a local file for a broadcast (OffsetStore).

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


SUCCESSES = ("CONSUME_SUCCESS", "SUCCESS", "COMMIT")
# ConsumeMessageOrderlyService counts a ROLLBACK as no failure
_FAILURES = ("RECONSUME_LATER", "SUSPEND_CURRENT_QUEUE_A_MOMENT")


@dataclass
class PushMember:
    """A member that pulls. `subscriptions`: tag expressions by topic; `queues`: what is assigned, changed by the
    thread that rebalances only."""

    client: Client
    group: str
    subscriptions: Mapping[str, str]
    settings: PushSettings
    warn: Warn
    begin: Where
    allocate: Allocate
    is_orderly: bool
    is_broadcast: bool
    offsets: ProgressStore
    commits: bool = True
    queues: dict[MessageQueue, ProcessQueue] = field(default_factory=dict)
    hooks: list[ConsumeHook] = field(default_factory=list)
    namespace: str = ""
    unit_name: str = ""
    unit_mode: bool = False
    client_rebalance: bool = True
    joins: bool = True
    announced: list[Any] = field(default_factory=list)
    figures: ConsumeFigures = field(default_factory=ConsumeFigures)

    @property
    def is_locking(self) -> bool:
        """Return whether queues are locked at their brokers: in order, within a group."""
        return self.is_orderly and not self.is_broadcast

    def is_retry(self, topic: str) -> bool:
        """Return whether a topic is the group's retry topic."""
        return topic == retry_topic(self.group)

    def announce(self, address: str | None = None) -> None:
        """Send a heartbeat with the subscriptions to every broker, now and every 30 s; an onlooker sends none.
        BrokerError where the broker at `address` does not accept them."""
        if not self.joins:
            return
        model = BROADCASTING if self.is_broadcast else CLUSTERING
        content = consumer_heartbeat(self.group, self.subscriptions, self.begin, model, unit_mode=self.unit_mode)
        self.announced = content["consumerDataSet"][0]["subscriptionDataSet"]
        if address is not None:
            check_filters(self.client, address, self.group, self.announced)
        self.client.start_heartbeats(content)

    def commit(self, queue: MessageQueue, held: ProcessQueue, offset: int) -> None:
        """Note in memory that a queue is consumed up to `offset`; -1 is nothing."""
        if offset >= 0 and not held.is_dropped:
            self.offsets.update(queue, offset, increase_only=not self.is_orderly)

    def original(self, message: StoredMessage) -> StoredMessage:
        """Return a message with the topic that it was sent to, as brokers know it."""
        origin = message.properties().get(ORIGIN_TOPIC[0]) if self.is_retry(message.topic) else None
        return message._replace(topic=origin) if origin else message

    def presented(self, message: StoredMessage) -> StoredMessage:
        """Return a message as the callback sees it: a retried one has its original topic, and none its namespace."""
        message = self.original(message)
        return message._replace(topic=without_namespace(self.namespace, message.topic))

    def begin_hooks(self, messages: Sequence[StoredMessage], queue: MessageQueue) -> ConsumeHookContext | None:
        """Call the hooks before a consumption. Return its context, None without hooks."""
        if not self.hooks:
            return None
        return begin_consumption(self.hooks, self.group, self.namespace, queue, messages, self.warn)

    def end_hooks(
        self, context: ConsumeHookContext | None, status: Enum, seconds: float, failure: ConsumeReturn | None
    ) -> None:
        """Call the hooks after a callback that took `seconds`; `failure`: how it failed to give a verdict."""
        if context is None:
            return
        context.status = status.name
        context.is_success = status.name in SUCCESSES
        if failure is not None:
            context.returned = failure
        elif seconds >= self.settings.consume_timeout:
            context.returned = ConsumeReturn.TIME_OUT
        elif status.name in _FAILURES:
            context.returned = ConsumeReturn.FAILED
        run_after(self.hooks, context, self.warn)

    def start_of(self, queue: MessageQueue) -> tuple[int, int | None]:
        """Return the offset at which to begin in a queue, and the store time (ms) before which messages are left out.

        That is the offset that is kept, else what `begin` says (RebalancePushImpl#computePullFromWhereWithException).
        A retry topic begins at its first message: none that is to come again is left out.
        """
        stored = self.offsets.stored(queue)
        if stored is not None:
            return stored, None
        begin = "first" if self.is_retry(queue.topic) else self.begin
        return self.client.first_offset(queue, begin), begin if isinstance(begin, int) else None

    def end_of(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that a queue will get."""
        return self.client.bound_of(queue, RequestCode.GET_MAX_OFFSET)


# Requests that brokers send to a push consumer: state, offsets, one message, a reset (ClientRemotingProcessor).

# a callback may take long, and states are asked for meanwhile
_THREADS = 2
# CMResult by the name of a verdict
_RESULTS = {
    "CONSUME_SUCCESS": "CR_SUCCESS",
    "RECONSUME_LATER": "CR_LATER",
    "SUCCESS": "CR_SUCCESS",
    "SUSPEND_CURRENT_QUEUE_A_MOMENT": "CR_LATER",
    "COMMIT": "CR_COMMIT",
    "ROLLBACK": "CR_ROLLBACK",
}


Directly = Callable[[StoredMessage, MessageQueue], tuple[Enum | None, bool]]
"""Calls a callback with one message, and returns its verdict and whether it commits."""


class AskedMember:
    """Answers of one member. Requests are carried out in threads of their own: a connection waits for none of them.

    `consume` is None without a callback, as of RocketMQ's lite pull consumers; `reset` begins a held queue elsewhere.
    """

    def __init__(
        self, member: PushMember, consume: Directly | None, reset: Callable[[MessageQueue, ProcessQueue, int], None]
    ) -> None:
        self._member = member
        self._consume = consume
        self._reset = reset
        self._started = time.time_ns() // 1_000_000
        self._threads = ThreadPoolExecutor(_THREADS, f"asked-{member.group}")

    def answer(self, command: RemotingCommand) -> Future[RemotingCommand] | None:
        """Return the future of the answer; None for a request that is not answered here."""
        services: dict[int, Callable[[RemotingCommand], RemotingCommand]] = {
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._offsets,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._directly,
        }
        service = services.get(command.code)
        return None if service is None else self._threads.submit(self._served, service, command)

    def _served(
        self, service: Callable[[RemotingCommand], RemotingCommand], command: RemotingCommand
    ) -> RemotingCommand:
        try:
            return service(command)
        except (RmqctlError, ValueError) as error:
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=getattr(error, "message", str(error)))

    def close(self) -> None:
        """Answer nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ---- offsets

    def _reset_offsets(self, command: RemotingCommand) -> RemotingCommand:
        """Begin queues of a topic at the offsets in the body: what is held of them is dropped (220)."""
        for queue, offset in offsets_to_set(command, self._member.group).items():
            held = self._member.queues.get(queue)
            if held is not None:
                self._reset(queue, held, offset)
        return RemotingCommand(ResponseCode.SUCCESS)

    def _offsets(self, command: RemotingCommand) -> RemotingCommand:
        """Return how far the member is in a topic (221)."""
        offsets = {queue: self._member.offsets.in_memory(queue) for queue in list(self._member.queues)}
        known = {queue: offset for queue, offset in offsets.items() if offset is not None}
        return status_answer(command, self._member.group, known)

    # ---- state

    def _missing(self, command: RemotingCommand) -> RemotingCommand | None:
        is_own = command.fields.get("consumerGroup") == self._member.group
        return None if is_own else not_a_member(command, self._member.group)

    def _running_info(self, command: RemotingCommand) -> RemotingCommand:
        """Return settings, subscriptions, queues and figures (307)."""
        missing = self._missing(command)
        if missing is not None:
            return missing
        member = self._member
        queues = {queue: self._queue_info(queue, held) for queue, held in list(member.queues.items())}
        statuses = {topic: member.figures.status(topic) for topic in sorted(member.subscriptions)}
        return running_info_answer(command, member.client, self._properties(), queues, statuses, member.announced)

    def _properties(self) -> dict[str, str]:
        member, settings = self._member, self._member.settings
        return {
            "PROP_CONSUMEORDERLY": str(member.is_orderly).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started),
            "PROP_THREADPOOL_CORE_SIZE": str(settings.threads),
            "consumeConcurrentlyMaxSpan": str(settings.concurrent_max_span),
            "consumeMessageBatchMaxSize": str(settings.batch_size),
            "consumeThreadMax": str(settings.threads),
            "consumerGroup": member.group,
            "maxReconsumeTimes": str(settings.max_reconsume_times),
            "messageModel": "BROADCASTING" if member.is_broadcast else "CLUSTERING",
            "namespace": member.namespace,
            "pullBatchSize": str(settings.pull_batch_size),
            "pullThresholdForQueue": str(settings.pull_threshold_for_queue),
            "pullThresholdSizeForQueue": str(settings.pull_threshold_size_for_queue),
        }

    def _queue_info(self, queue: MessageQueue, held: ProcessQueue) -> dict[str, Any]:
        offset = self._member.offsets.in_memory(queue)
        info = held.info() | {"locked": held.is_locked and self._member.is_locking}
        return bean(commitOffset=-1 if offset is None else offset, tryUnlockTimes=0, **info)

    # ---- one message

    def _directly(self, command: RemotingCommand) -> RemotingCommand:
        """Consume the message in the body independent of offsets, and return the verdict (309)."""
        consume, missing = self._consume, self._missing(command)
        if consume is None or missing is not None:
            return missing or not_a_member(command, self._member.group)
        (message,) = messages_of(command.body)
        message = self._member.presented(message)
        queue = MessageQueue(command.fields.get("brokerName", ""), message.queue_id, message.topic)
        began = time.monotonic()
        remark = None
        commits = True
        try:
            status, commits = consume(message, queue)
            result = "CR_RETURN_NULL" if not isinstance(status, Enum) else _RESULTS[status.name]
        except Exception as error:  # noqa: BLE001 - the operator is to see it
            result, remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
        spent = int((time.monotonic() - began) * 1000)
        body = bean(
            autoCommit=commits, consumeResult=result, order=self._member.is_orderly, remark=remark, spentTimeMills=spent
        )
        return json_answer(body)
