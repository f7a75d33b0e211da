"""The broker: all that its services share. It takes decoded requests and gives answers; it knows no socket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import rmqctl.store.native.good_frames  # noqa: F401 - the first pull, and all others with it, would wait for it
from rmqctl.formats.errors import UnreadableError, counted
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.broker.members import ClientManager, ConsumerFilters, system_groups, system_topics
from rmqctl.network.broker.settings import (
    BrokerIdentity,
    Counts,
    TimerFigures,
    changed,
    settings_from_properties,
    written_by,
)
from rmqctl.network.broker.tables import (
    ConfigSaver,
    ConsumerOffsets,
    GroupTable,
    QueueLocks,
    TopicTable,
    is_system_topic,
)
from rmqctl.network.ha.master import Slaves
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, ResponseCode
from rmqctl.network.remoting.requests import FAQ, Caller, Intercept, Promised, PutWait, Reply, RequestError, Tell
from rmqctl.network.topic_config import UNIT_SUBSCRIPTION, TopicConfig, retry_topic
from rmqctl.store.config.config_files import read_config
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.lock import lock_holder
from rmqctl.store.files.mapped_file import monotonic_ms
from rmqctl.store.log.survey import look_at_tail
from rmqctl.store.log.walk import Empty, walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.queues.dispatch import queue_slots
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.filter import MessageFilter
from rmqctl.store.read.get import GetResult, QueueView, get_messages, no_queue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.prepare import topic_in_log, wants_durability
from rmqctl.store.write.put import PendingPut

if TYPE_CHECKING:
    from rmqctl.network.remoting.authentication import Guard

_MOST_TOLD = 10_000
# how often members hear of others where that is not done at once (DefaultConsumerIdsChangeListener)
_NOTIFIED_MS = 15_000
_FILTERS_SAVED_MS = 10_000
# among these there is a message that a queue knows, unless its broker was killed or the queues are gone
_LAST_BYTES = 64 * 1024


def wall_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Broker:
    """A store, looked at as it was when it was opened, and the clients that look at it. Nothing is ever written: that
    is for `WritableBroker`."""

    is_writable = False

    def __init__(
        self,
        files: StoreFiles,
        identity: BrokerIdentity,
        tell: Tell,
        clock: Callable[[], int] = wall_clock,
        properties: dict[str, str] | None = None,
        elapsed: Callable[[], int] = monotonic_ms,
    ) -> None:
        """Open the broker of a store; problems beside the queues are reported to `tell`.

        `clock`: ms since 1970, for dates. `elapsed`: ms of a clock that is never set, for intervals and limits.
        `properties`: what the broker.conf says.

        Raises: UnsupportedError where the queues cannot be read.
        """
        self.files = files
        files.config = written_by(identity.release, files.config)
        self.identity = identity
        self.tell = tell
        self.clock = clock
        self.elapsed = elapsed
        self.properties = dict(properties or {})
        self.started_at = clock()
        self._begun = self._notified_at = elapsed()
        self.counts = Counts(identity.cluster, self._begun, self.started_at, of_users=not identity.release.is_of_4)
        self._system_topics: dict[str, bool] = {}
        self.slow_requests: Callable[[], int] = lambda: 0
        self.name_servers = ""
        """Addresses of the name servers that know this broker, separated by `;`."""
        self.intercept: Intercept | None = None
        """What requests go through first, if anything."""
        self.guard: Guard | None = None
        """Refuses requests and calls that are not permitted."""
        self.bytes_behind: dict[tuple[int, str, str], int] = {}
        """Bytes of the log that a group was behind at its last pull, by queue, topic and group, where that counts."""
        self.queues_of: Callable[[str], list[MessageQueue] | None] = self.own_queues_of
        """Return the queues of a topic in the whole cluster that can be read; None for an unknown topic."""
        self.reader = StoreReader(files)
        self.settings = settings_from_properties(self.properties, tell)
        self.topics = TopicTable(files, tell, is_written=self.is_writable)
        may_create = self.settings.auto_create_subscription_group or not self.is_writable
        self.groups = GroupTable(
            files, tell, is_written=self.is_writable, may_create=may_create, release=identity.release
        )
        self.offsets = ConsumerOffsets(files, tell, is_written=self.is_writable)
        self.clients = ClientManager()
        self.locks = QueueLocks()
        self.slaves = Slaves()
        # a group that never came has no retry topic, as with a broker: mqadmin would list it as one that consumes
        self.topics.add_retry_topics(set(self.offsets.groups()) - set(system_groups()))
        # finding out what belongs to a queue takes as long as reading a message of it
        self._views: dict[tuple[str, int], QueueView] = {}
        self._told: set[tuple[str, int]] = set()
        self.last_unit = self._last_unit_of_tail() or self._last_unit_of_queues()
        self._log_end = 0 if self.last_unit is None else self.last_unit.end
        # clients ask for queues without a file again and again, and delays ten times a second
        files.queues.settle()

    @property
    def running_ms(self) -> int:
        """Return for how many ms this broker has been running."""
        return self.elapsed() - self._begun

    @property
    def log_end(self) -> int:
        """Physical offset behind the last message."""
        return self._log_end

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of the log that were written and are not yet flushed to disk."""
        return 0

    def delay_offsets(self) -> Any:
        """Return what delayOffset.json has. Raises: CorruptError, UnreadableError."""
        return read_config(self.files.layout.config / "delayOffset.json")

    def timer_figures(self) -> TimerFigures:
        """Return how far the timer is; no timer runs here."""
        return TimerFigures()

    def hand_on_up_to(self, end: int) -> None:
        """The log is handed on to slaves up to here, further than queues may know after a crash: so far it goes."""
        self._log_end = max(self._log_end, end)

    def _last_unit_of_tail(self) -> QueueUnit | None:
        """Return the unit of the last message that its queue knows; None if that is not among the last ones in the log.
        Almost always it is the very last, and to ask every queue for its end takes as long as all else at the
        beginning."""
        log, delay_levels = self.files.log, self.files.config.delay_levels()
        messages: list[StoredMessage] = []
        try:
            for record in walk(log, look_at_tail(log, _LAST_BYTES).begin):
                if isinstance(record, Empty):
                    break
                if isinstance(record, StoredMessage):
                    messages.append(record)
        except UnreadableError:
            return None
        for message in reversed(messages):
            for slot in queue_slots(message, delay_levels):
                queue = self.files.queues.find(slot.topic, slot.queue_id)
                unit = None if queue is None else queue.unit(slot.unit.queue_offset)
                if unit is not None and unit.is_written and unit.physical_offset == message.physical_offset:
                    return unit
        return None

    def _last_unit_of_queues(self) -> QueueUnit | None:
        """The last unit of the queue that reaches furthest into the log: zeros may fill the rest of that."""
        ends = (queue.unit(queue.max_offset - 1) for queue in self.files.queues.all() if queue.max_offset)
        written = (unit for unit in ends if unit is not None and unit.is_written)
        return max(written, key=lambda unit: unit.end, default=None)

    def tell_of_unserved(self) -> None:
        """Report messages after the last one that a queue knows, as a killed broker leaves them: no consumer gets them,
        and each would take that for the end. One that still runs is about to put them into their queues."""
        missing = self.files.missing_log()
        if missing is not None:
            self.tell(f"{missing}: no message can be given; -c broker.conf with storePathCommitLog names its place")
            return
        try:
            tail = look_at_tail(self.files.log)
        except UnreadableError as error:
            # what can be read is served all the same
            self.tell(f"the end of the log cannot be looked at: {error}")
            return
        if tail.end <= self.log_end or lock_holder(self.files.layout.lock) is not None:
            return
        delay_levels = self.files.config.delay_levels()
        for record in walk(self.files.log, self.log_end):
            if isinstance(record, Empty):
                break
            if isinstance(record, StoredMessage) and any(queue_slots(record, delay_levels)):
                self.tell(
                    f"the last {counted(tail.end - record.physical_offset, 'byte')} of the log, from physical offset "
                    f"{record.physical_offset} on, are in no queue, as after a crash: no consumer gets the messages in "
                    "them before `rmqctl recover`; `serve --as-recovered` serves them"
                )
                break

    # ---- what requests name

    def topic(self, name: str, remark: str | None = None) -> TopicConfig:
        """Return the topic; RequestError with `remark` if it is missing."""
        found = self.topics.find(name)
        if found is None:
            remark = remark or f"topic[{name}] not exist, apply first please! \n{FAQ}"
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark)
        return found

    def queue(self, topic: str, queue_id: int) -> AnyConsumeQueue | None:
        """Return the queue; None if it has no files, or its topic is unknown."""
        return self.files.queues.find(topic, queue_id) if self.topics.find(topic) is not None else None

    def frames(self, topic: str, queue_id: int, offset: int, limit: int, message_filter: MessageFilter) -> GetResult:
        """Messages of a queue from `offset` on with their frames as they are stored; see get_messages."""
        view = self.view(topic, queue_id)
        result = no_queue() if view is None else get_messages(view, offset, limit, message_filter, frames=True)
        for unit in result.damaged:
            place = (f"{topic}@{queue_id}", unit.queue_offset)
            self.tell_once(place, f"a message is passed over, it is damaged: {unit.error}")
        return result

    def view(self, topic: str, queue_id: int) -> QueueView | None:
        """A queue with all that is needed to read its messages; None as for `queue`."""
        view = self._views.get((topic, queue_id))
        if view is None:
            queue = self.queue(topic, queue_id)
            if queue is None:
                return None
            view = self._views[topic, queue_id] = self.reader.view(queue)
        return view

    def has_match(self, topic: str, queue_id: int, offset: int, end: int, message_filter: MessageFilter) -> bool:
        """Whether a queue has a message from `offset` up to `end` that may pass, going by its unit alone."""
        view = self.view(topic, queue_id)
        if view is None:
            return False
        return any(message_filter.may_match(view.resolved_code(unit)) for unit in view.queue.units(offset, end))

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the smallest and the next offset of a queue, 0 and 0 without one."""
        queue = self.queue(topic, queue_id)
        return (0, 0) if queue is None else (queue.min_offset(self.files.log.min_offset), queue.max_offset)

    def is_young(self, topic: str, queue_id: int) -> bool:
        """Whether the first message that a queue ever had is near the end of the log: within that part of the memory
        (accessMessageInMemoryMaxRatio), where the system is likely to have it."""
        queue = self.queue(topic, queue_id)
        first = queue.unit(0) if queue is not None and queue.min_offset(self.files.log.min_offset) == 0 else None
        if first is None or not first.is_written:
            return False
        return self.log_end - first.physical_offset <= self.settings.bytes_in_memory

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time (ms) of the message at a queue offset; 0 without one."""
        return 0 if self.queue(topic, queue_id) is None else max(0, self.reader.store_time(topic, queue_id, offset))

    def group(self, name: str) -> dict[str, Any]:
        """Settings of a group that a client comes with, known from now on; RequestError for one that cannot be."""
        return self.groups.find_or_default(name)

    def join(self, group: str, *, is_unit_mode: bool = False) -> None:
        """A member of a group comes: its retry topic is there from now on. RequestError as for `group`."""
        self.group(group)
        self.topics.add_retry_topics([group])

    def routes(self) -> Mapping[str, TopicConfig]:
        """All topics as name servers show them (BrokerController#registerBrokerAll)."""
        return {} if self.is_hidden else self.topics.routes(self.settings.broker_permission)

    @property
    def is_hidden(self) -> bool:
        """Return whether the broker is not registered yet, and delivers no timed messages (disappearTimeAfterStart)."""
        return max(0, self.running_ms) < self.settings.disappear_time_after_start

    def own_queues_of(self, topic: str) -> list[MessageQueue] | None:
        """Return the queues of a topic at this broker that can be read; None for a topic without a route."""
        config = self.routes().get(topic)
        return None if config is None else config.readable_queues(self.identity.name)

    def is_system_topic(self, name: str) -> bool:
        """Whether the broker has a topic for itself; asked for each message."""
        found = self._system_topics.get(name)
        if found is None:
            found = is_system_topic(name, self.identity.cluster, self.identity.name)
            if len(self._system_topics) < _MOST_TOLD:
                self._system_topics[name] = found
        return found

    # ---- what goes on

    def tell_once(self, place: tuple[str, int], line: str) -> None:
        """Report damage when it is met first: clients come back to it again and again."""
        if place not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(place)
            self.tell(line)

    def lost(self, caller: Caller) -> None:
        """A client's connection ended."""
        self.clients.lost(caller)

    def tick(self) -> None:
        """To be called every few seconds: sends silent clients away, and frees what they had for themselves."""
        self.counts.step(self.elapsed(), self.clock())
        settings, now = self.settings, self.elapsed()
        self.clients.notifies = settings.notify_consumer_ids_changed_enable
        self.clients.at_once = settings.real_time_notify_consumer_change
        self.clients.expire(now, settings.channel_expired_timeout)
        self.clients.forget_pulls(now - settings.subscription_expired_timeout)
        if now - self._notified_at >= _NOTIFIED_MS:
            self._notified_at = now
            self.clients.notify_changed()
        self.locks.expire(self.elapsed())


# The broker of a store that is open for writing: what its services share beside what every broker has.


class WritableBroker(Broker):
    """A store that messages are put to. Its tables belong to the thread that serves; slow work runs beside it.

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
        self.request_modes: dict[str, dict[str, Any]] | None = None
        """Content of messageRequestMode.json: how groups ask for messages of topics, once one was set."""
        self.wake: Callable[[Iterable[tuple[str, int]]], None] = lambda keys: None
        """Answer what waits for these queues, if it has something now. In the thread that serves."""
        self.steps: list[Callable[[int], None]] = []
        self._put_waits: dict[PutWait, None] = {}
        self._saved_at = self._filters_saved_at = elapsed()
        self.filters = ConsumerFilters(store.files, self.settings, tell, clock())
        self.clients.subscribed = lambda group, wanted: self.filters.register(group, wanted, self.clock())
        self.clients.gone = lambda group: self.filters.unregister(group, self.clock())
        self._add_system_topics()
        for name in system_groups() if self.settings.enable_create_sys_group else ():
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

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of the log that were written and are not yet flushed to disk."""
        return self.store.unflushed_bytes

    def end_of(self, topic: str, queue_id: int) -> int:
        """The offset of a queue's next message; 0 for a queue without files, whether its topic is known or not."""
        queue = self.files.queues.find(topic, queue_id) if is_safe_topic(topic) else None
        return 0 if queue is None else queue.max_offset

    def _add_system_topics(self) -> None:
        timer = bool(self.files.config.timer_wheel_enable)
        self._add_topics(system_topics(self.identity, self.settings, has_timer=timer))

    def _add_topics(self, topics: Iterable[TopicConfig]) -> None:
        for topic in (one for one in topics if self.topics.find(one.name) is None):
            self.topics.put(topic)

    def change_settings(self, properties: Mapping[str, str]) -> None:
        """Go by other settings from now on, until the broker ends; keys as `is_changeable` has them. UsageError for an
        invalid value: then nothing changes."""
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
        topic = topic_in_log(message, self.files.config)
        size, spent = self.written_end - first.physical_offset, self.elapsed() - begun
        is_system = self.is_system_topic(topic)
        self.counts.put(topic, message.queue_id or 0, len(messages), size, spent, is_system=is_system)
        return put

    def congestion(self, message: Message) -> str:
        """Return why too many timed messages are due at once for one more; "" where they are not."""
        return ""

    def is_waited_for(self, put: PendingPut) -> bool:
        """Whether `when_durable` may give anything but the answer at once."""
        return put.durable_at != 0 or self.is_sync_master

    def when_durable(
        self, messages: Sequence[Message], put: PendingPut, answer: Callable[[ResponseCode], RemotingCommand]
    ) -> Reply:
        """What `answer` gives when the put is as durable as it asked to be: on disk with SYNC_FLUSH, on slaves with
        SYNC_MASTER. Its argument says whether that was in time (syncFlushTimeout, slaveTimeout), and what was not."""
        wants_slaves = self.is_sync_master and wants_durability(messages[0].properties)
        is_alone = wants_slaves and self._slaves_in_sync() < self.settings.slaves_to_wait_for
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
                self.written_end,
                self.settings.slaves_to_wait_for,
                lambda: wait.reached(ResponseCode.FLUSH_SLAVE_TIMEOUT),
            )
        self._put_waits[wait] = None

        def answered() -> RemotingCommand:
            self._end_wait(wait)
            return answer(wait.code)

        return Promised(wait, answered)

    def _slaves_in_sync(self) -> int:
        is_of_4, settings = self.identity.release.is_of_4, self.settings
        gap = settings.ha_slave_fallbehind_max if is_of_4 else settings.ha_max_gap_not_in_sync
        return self.slaves.keeping_up(self.log_end, gap)

    @property
    def written_end(self) -> int:
        """Physical offset behind the last message, one that cannot be read yet included."""
        last = next(reversed(self.files.log.files), None)
        return 0 if last is None else last.start_offset + last.wrote_position

    def _end_wait(self, wait: PutWait) -> None:
        self._put_waits.pop(wait, None)
        wait.forget()

    def group(self, name: str) -> dict[str, Any]:
        """As for every broker; a group that is new is written."""
        is_new = self.groups.find(name) is None
        settings = super().group(name)
        if is_new:
            self.save_groups()
        return settings

    def join(self, group: str, *, is_unit_mode: bool = False) -> None:
        """As for every broker; what is new is written."""
        settings = self.group(group)
        flag = UNIT_SUBSCRIPTION if is_unit_mode else 0
        self.create_topic(retry_topic(group), max(0, int(settings["retryQueueNums"])), flag)

    def create_topic(self, name: str, queues: int, sys_flag: int = 0) -> TopicConfig:
        """A topic of the broker's own making, unless it is there (createTopicInSendMessageBackMethod)."""
        found = self.topics.find(name)
        if found is None:
            found = self.topics.put(TopicConfig(name, queues, queues, sys_flag=sys_flag))
            self.save_topics()
        return found

    def have_topics(self, topics: Iterable[TopicConfig]) -> None:
        """Create the topics that are missing. Those of 4.x have no attributes."""
        self._add_topics(one._replace(attributes={}) if self.identity.release.is_of_4 else one for one in topics)
        self.save_topics()

    def see_to_topic(self, message: Message) -> None:
        """A message that waited has gone to its topic. A kill right after the first message to a topic may have come
        before topics.json was written: what is delivered would be invisible until the next start finds its queue."""
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

    def _save_filters(self) -> None:
        if self.filters.take_change(self.clock()):
            self.saver.save(self.filters.FILE, self.filters.content)

    def _save_offsets(self, now: int) -> None:
        """Have offsets and filters written if it is time to; `now`, a date, does not say so."""
        now = self.elapsed()
        if self.offsets.has_changed and now - self._saved_at >= self.settings.flush_consumer_offset_interval:
            self._saved_at = now
            self.save_offsets()
        if now - self._filters_saved_at >= _FILTERS_SAVED_MS:
            self._filters_saved_at = now
            self._save_filters()

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
        """Write what is not written yet. The opener of the store closes it."""
        self.save_topics()
        self.save_groups()
        self.save_offsets()
        self._save_filters()
        self.saver.close()
