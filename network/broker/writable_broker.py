"""The broker of a store that is open for writing: what its services share beside what every broker has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from rmqctl.formats.message import Message
from rmqctl.network.broker.broker import Broker, wall_clock
from rmqctl.network.broker.put_wait import PutWait
from rmqctl.network.broker.tables.identity import BrokerIdentity
from rmqctl.network.broker.tables.saver import ConfigSaver
from rmqctl.network.broker.tables.settings import changed
from rmqctl.network.broker.tables.system import system_groups, system_topics
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import Promised, Reply, Tell
from rmqctl.network.topic_config import TopicConfig, retry_topic
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.reference import monotonic_ms
from rmqctl.store.message_store import MessageStore
from rmqctl.store.write.delay import topic_in_log
from rmqctl.store.write.prepare import wants_durability
from rmqctl.store.write.result import PendingPut


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
        elapsed: Callable[[], int] = monotonic_ms,
    ) -> None:
        """CorruptError and UnreadableError for a damaged table of config/, which would be lost otherwise; else as for
        every broker."""
        super().__init__(store.files, identity, tell, clock, properties, elapsed)
        self.store = store
        self.saver = ConfigSaver(store.files.layout.config, tell)
        self.steps: list[Callable[[int], None]] = []
        self._put_waits: dict[PutWait, None] = {}
        self._saved_at = elapsed()
        self._add_system_topics()
        for name in system_groups():
            if self.groups.find(name) is None:
                self.groups.put(name, {})
        for line in self.offsets.clamp(self.end_of):
            tell(line)
        self.steps.append(self._save_offsets)

    @property
    def is_sync_master(self) -> bool:
        """Whether producers wait for slaves: where the configuration says so, and slaves can come."""
        return self.identity.ha_port is not None and self.files.config.broker_role == "SYNC_MASTER"

    @property
    def log_end(self) -> int:
        """Physical offset behind the last message."""
        return self.files.log.max_offset

    def end_of(self, topic: str, queue_id: int) -> int:
        """The offset of a queue's next message; 0 for a queue without files, whether its topic is known or not."""
        queue = self.files.queues.find(topic, queue_id) if is_safe_topic(topic) else None
        return 0 if queue is None else queue.max_offset

    def _add_system_topics(self) -> None:
        for topic in system_topics(self.identity, self.settings, has_timer=self.files.config.timer_wheel_enable):
            if self.topics.find(topic.name) is None:
                self.topics.put(topic)

    def change_settings(self, properties: Mapping[str, str]) -> None:
        """Go by other settings from now on, until the broker ends; keys as `is_changeable` has them. UsageError for a
        value that is none: then nothing changes."""
        self.settings, self.files.config = changed(self.settings, self.files.config, properties)
        known = {key.lower(): key for key in self.properties}
        self.properties |= {known.get(key.lower(), key): value for key, value in properties.items()}
        self.groups.may_create = self.settings.auto_create_subscription_group
        self._add_system_topics()

    # ---- messages

    def put(self, messages: Sequence[Message], *, batch: bool = False) -> PendingPut:
        """Put one message, or a classic batch; errors of the store are raised."""
        begun = self.elapsed()
        put = self.store.put_at_once(messages, batch=batch)
        first, message = put.results[0], messages[0]
        if first.physical_offset is None:
            self.counts.failed_puts += 1
            return put
        topic = topic_in_log(message)
        size, spent = self._written_end() - first.physical_offset, self.elapsed() - begun
        is_system = self.is_system_topic(topic)
        self.counts.put(topic, message.queue_id or 0, len(messages), size, spent, is_system=is_system)
        return put

    def is_waited_for(self, put: PendingPut) -> bool:
        """Whether `when_durable` may give anything but the answer at once."""
        return put.durable_at != 0 or self.is_sync_master

    def when_durable(
        self, messages: Sequence[Message], put: PendingPut, answer: Callable[[ResponseCode], RemotingCommand]
    ) -> Reply:
        """What `answer` gives when the put is as durable as it asked to be: on disk with SYNC_FLUSH, on slaves with
        SYNC_MASTER. Its argument says whether that was in time (syncFlushTimeout, slaveTimeout), and what was not."""
        wants_slaves = self.is_sync_master and wants_durability(messages[0].properties)
        is_alone = wants_slaves and self.slaves.keeping_up(self.log_end) < self.settings.slaves_to_wait_for
        if is_alone and not put.durable_at:
            return answer(ResponseCode.SLAVE_NOT_AVAILABLE)
        if not put.durable_at and not wants_slaves:
            return answer(ResponseCode.SUCCESS)
        wait = PutWait(self.elapsed())
        if is_alone:
            wait.code = ResponseCode.SLAVE_NOT_AVAILABLE
        elif wants_slaves:
            wait.wait_for(ResponseCode.FLUSH_SLAVE_TIMEOUT, self.settings.slave_timeout)
        if put.durable_at:
            wait.wait_for(ResponseCode.FLUSH_DISK_TIMEOUT, self.files.config.sync_flush_timeout)
            self.store.tell_when_on_disk(put.durable_at, lambda: wait.reached(ResponseCode.FLUSH_DISK_TIMEOUT))
        if wants_slaves and not is_alone:
            wait.forget = self.slaves.tell_when_acknowledged(
                self._written_end(),
                self.settings.slaves_to_wait_for,
                lambda: wait.reached(ResponseCode.FLUSH_SLAVE_TIMEOUT),
            )
        self._put_waits[wait] = None

        def answered() -> RemotingCommand:
            self._end_wait(wait)
            return answer(wait.code)

        return Promised(wait, answered)

    def _written_end(self) -> int:
        """Physical offset behind the last message, one that cannot be read yet included."""
        last = self.files.log.files[-1]
        return last.start_offset + last.wrote_position

    def _end_wait(self, wait: PutWait) -> None:
        self._put_waits.pop(wait, None)
        wait.forget()

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

    def see_to_topic(self, message: Message) -> None:
        """A message that waited has gone to its topic. A kill right after the first message to a topic may have come
        before topics.json was written: nobody would see what is delivered, until the next start finds its queue."""
        name = message.topic
        if self.topics.find(name) is None and not self.topics.is_deleted(name):
            self.create_topic(name, max(message.queue_id + 1, self.settings.default_topic_queue_nums))

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
        """Have the offsets written if it is time to; `now`, a date, does not say so."""
        now = self.elapsed()
        if self.offsets.has_changed and now - self._saved_at >= self.settings.flush_consumer_offset_interval:
            self._saved_at = now
            self.save_offsets()

    def step(self) -> None:
        """To be called some ten times a second: a little of all that goes on by itself."""
        elapsed, now = self.elapsed(), self.clock()
        for wait in list(self._put_waits):
            wait.expire(elapsed)
            if wait.done():
                # nobody asks for the answer to a oneway request
                self._end_wait(wait)
        self.counts.step(elapsed, now)
        for step in self.steps:
            step(now)

    def close(self) -> None:
        """Write what is not written yet. The store is closed by whoever opened it."""
        self.save_topics()
        self.save_groups()
        self.save_offsets()
        self.saver.close()
