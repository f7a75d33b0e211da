"""The broker of a store that is open for writing: what its services share beside what every broker has."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from rmqctl.formats.message import Message
from rmqctl.network.broker.broker import Broker, wall_clock
from rmqctl.network.broker.tables.identity import BrokerIdentity
from rmqctl.network.broker.tables.saver import ConfigSaver
from rmqctl.network.broker.tables.system import system_groups, system_topics
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import Promised, Reply, Tell
from rmqctl.network.topic_config import TopicConfig, retry_topic
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.message_store import MessageStore
from rmqctl.store.write.result import PendingPut


class FlushWait:
    """An answer that waits for the disk, until `deadline` (ms)."""

    def __init__(self, deadline: int) -> None:
        self.deadline = deadline
        self.done: Future[None] = Future()
        self.in_time = False

    def end(self, in_time: bool) -> None:
        """It is on disk, or it waited for too long: whatever comes first counts."""
        with contextlib.suppress(InvalidStateError):
            self.in_time = in_time
            self.done.set_result(None)


class WritableBroker(Broker):
    """A store that messages are put to. Its tables belong to the thread that serves; whatever takes long runs beside.

    `steps`: what goes on by itself, each called by `step` with the time in ms.
    """

    is_writable = True

    def __init__(
        self,
        store: MessageStore,
        identity: BrokerIdentity,
        tell: Tell,
        clock: Callable[[], int] = wall_clock,
        properties: dict[str, str] | None = None,
    ) -> None:
        """CorruptError and UnreadableError for a damaged table of config/, which would be lost otherwise; else as for
        every broker."""
        super().__init__(store.files, identity, tell, clock, properties)
        self.store = store
        self.saver = ConfigSaver(store.files.layout.config, tell)
        self.steps: list[Callable[[int], None]] = []
        self._flush_waits: dict[FlushWait, None] = {}
        self._saved_at = clock()
        for topic in system_topics(identity, self.settings, has_timer=store.files.config.timer_wheel_enable):
            if self.topics.find(topic.name) is None:
                self.topics.put(topic)
        for name in system_groups():
            if self.groups.find(name) is None:
                self.groups.put(name, {})
        for line in self.offsets.clamp(self.end_of):
            tell(line)
        self.steps.append(self._save_offsets)

    @property
    def log_end(self) -> int:
        """Physical offset behind the last message."""
        return self.files.log.max_offset

    def end_of(self, topic: str, queue_id: int) -> int:
        """The offset of a queue's next message; 0 for a queue without files, whether its topic is known or not."""
        queue = self.files.queues.find(topic, queue_id) if is_safe_topic(topic) else None
        return 0 if queue is None else queue.max_offset

    # ---- messages

    def put(self, messages: Sequence[Message], *, batch: bool = False) -> PendingPut:
        """Put one message, or a classic batch; errors of the store are raised."""
        return self.store.put_at_once(messages, batch=batch)

    def when_durable(self, put: PendingPut, answer: Callable[[bool], RemotingCommand]) -> Reply:
        """What `answer` gives when the put is as durable as it asked to be; its argument says whether that was in time
        (syncFlushTimeout)."""
        if not put.durable_at:
            return answer(True)
        wait = FlushWait(self.clock() + self.files.config.sync_flush_timeout)
        self._flush_waits[wait] = None
        self.store.tell_when_on_disk(put.durable_at, lambda: wait.end(True))

        def answered() -> RemotingCommand:
            self._flush_waits.pop(wait, None)
            return answer(wait.in_time)

        return Promised(wait.done, answered)

    # ---- what is configured

    def group(self, name: str) -> dict[str, Any]:
        """As for every broker; a group that is new is written."""
        is_new = self.groups.find(name) is None
        settings = super().group(name)
        if is_new:
            self.save_groups()
        return settings

    def join(self, group: str) -> None:
        """As for every broker; what is new is written."""
        settings = self.group(group)
        self.create_topic(retry_topic(group), max(0, int(settings["retryQueueNums"])))

    def create_topic(self, name: str, queues: int, sys_flag: int = 0) -> TopicConfig:
        """A topic of the broker's own making, unless it is there (createTopicInSendMessageBackMethod)."""
        found = self.topics.find(name)
        if found is None:
            found = self.topics.put(TopicConfig(name, queues, queues, sys_flag=sys_flag))
            self.save_topics()
        return found

    def save_topics(self) -> Future[None]:
        """Have the topics written."""
        return self.saver.save(self.topics.FILE, lambda: self.topics.content(self.clock()))

    def save_groups(self) -> Future[None]:
        """Have the groups written."""
        return self.saver.save(self.groups.FILE, lambda: self.groups.content(self.clock()))

    def save_offsets(self) -> Future[None]:
        """Have the offsets written: only once all that they count is on disk, so that none is ever beyond the log."""
        return self.saver.save(
            self.offsets.FILE, lambda: self.offsets.content(self.clock(), self.end_of), self.store.flush
        )

    # ---- what goes on

    def _save_offsets(self, now: int) -> None:
        if self.offsets.has_changed and now - self._saved_at >= self.settings.flush_consumer_offset_interval:
            self._saved_at = now
            self.save_offsets()

    def step(self) -> None:
        """To be called some ten times a second: a little of all that goes on by itself."""
        now = self.clock()
        for wait in list(self._flush_waits):
            if wait.deadline <= now:
                wait.end(False)
            if wait.done.done():
                # nobody asks for the answer to a oneway request
                self._flush_waits.pop(wait, None)
        for step in self.steps:
            step(now)

    def close(self) -> None:
        """Write what is not written yet. The store is closed by whoever opened it."""
        self.save_topics()
        self.save_groups()
        self.save_offsets()
        self.saver.close()
