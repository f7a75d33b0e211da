"""The broker: all that its services share. It takes decoded requests and gives answers; it knows no socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import rmqctl.store.native.good_frames  # noqa: F401 - the first pull, and all others with it, would wait for it
from rmqctl.formats.errors import UnreadableError, counted
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.broker.members import ClientManager, QueueLocks, system_groups, system_topics
from rmqctl.network.broker.settings import BrokerIdentity, Counts, TimerFigures, changed, settings_from_properties
from rmqctl.network.broker.tables import ConfigSaver, ConsumerOffsets, GroupTable, TopicTable, is_system_topic
from rmqctl.network.ha.master import Slaves
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, ResponseCode
from rmqctl.network.remoting.requests import FAQ, Caller, Promised, Reply, RequestError, Tell
from rmqctl.network.topic_config import UNIT_SUBSCRIPTION, TopicConfig, retry_topic
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

_MOST_TOLD = 10_000
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
        self.identity = identity
        self.tell = tell
        self.clock = clock
        self.elapsed = elapsed
        self.properties = dict(properties or {})
        self.started_at = clock()
        self._begun = elapsed()
        self.counts = Counts(identity.cluster, self._begun, self.started_at)
        self._system_topics: dict[str, bool] = {}
        self.slow_requests: Callable[[], int] = lambda: 0
        self.name_servers = ""
        """Addresses of the name servers that know this broker, separated by `;`."""
        self.queues_of: Callable[[str], list[MessageQueue] | None] = self.own_queues_of
        """Return the queues of a topic in the whole cluster that can be read; None for an unknown topic."""
        self.reader = StoreReader(files)
        self.settings = settings_from_properties(self.properties)
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

    def timer_figures(self) -> TimerFigures:
        """Return how far the timer is; no timer runs here."""
        return TimerFigures()

    def hand_on_up_to(self, end: int) -> None:
        """The log is handed on to slaves up to here, further than queues may know after a crash: so far it goes."""
        self._log_end = max(self._log_end, end)

    def _last_unit_of_tail(self) -> QueueUnit | None:
        """The unit of the last message that its queue knows; None if that is none of the last ones in the log. Almost
        always it is the very last, and to ask every queue for its end takes as long as all else at the beginning."""
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
        """Tell of messages behind the last one that a queue knows, as a broker that was killed leaves them: no consumer
        gets them, and each would take that for the end. One that still runs is about to put them into their queues."""
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
                    "them before `rmqctl recover`; `rmqctl cat` shows them"
                )
                break

    # ---- what requests name

    def topic(self, name: str, remark: str | None = None) -> TopicConfig:
        """The topic; RequestError, which says `remark`, if there is none."""
        found = self.topics.find(name)
        if found is None:
            remark = remark or f"topic[{name}] not exist, apply first please! \n{FAQ}"
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark)
        return found

    def queue(self, topic: str, queue_id: int) -> AnyConsumeQueue | None:
        """The queue; None if it has no files, or nobody knows its topic."""
        return self.files.queues.find(topic, queue_id) if self.topics.find(topic) is not None else None

    def frames(self, topic: str, queue_id: int, offset: int, limit: int, message_filter: MessageFilter) -> GetResult:
        """Messages of a queue from `offset` on with their frames as they are stored; see get_messages."""
        view = self.view(topic, queue_id)
        return no_queue() if view is None else get_messages(view, offset, limit, message_filter, frames=True)

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
        """Smallest and next offset of a queue, 0 and 0 if there is none."""
        queue = self.queue(topic, queue_id)
        return (0, 0) if queue is None else (queue.min_offset(self.files.log.min_offset), queue.max_offset)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time (ms) of the message at a queue offset; 0 where there is none."""
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
        return self.topics.routes(self.settings.broker_permission)

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
        """Tell of damage when it is met first: clients come back to it again and again."""
        if place not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(place)
            self.tell(line)

    def lost(self, caller: Caller) -> None:
        """A client's connection ended."""
        self.clients.lost(caller)

    def tick(self) -> None:
        """To be called every few seconds: sends silent clients away, and frees what they had for themselves."""
        self.counts.step(self.elapsed(), self.clock())
        self.clients.notifies = self.settings.notify_consumer_ids_changed_enable
        self.clients.expire(self.elapsed(), self.settings.channel_expired_timeout)
        self.locks.expire(self.elapsed())


# A put that is not answered before it is on disk, on slaves, or both; or it has waited for too long.


class PutWait:
    """What a put waits for, by the code that it is answered with if that does not come in time. Any thread may tell.

    `code`: how it ended, once it is `done`; slaves that are late count more than a disk that is
    (CommitLog#handleDiskFlushAndHA). `forget`: to be called when nobody waits any more. It is an Awaited: a Future
    would take longer to be made and told than all the rest of a put.
    """

    __slots__ = ("_deadlines", "_is_over", "_lock", "_now", "_told", "code", "forget")

    def __init__(self, now: int) -> None:
        """`now`: ms of the monotonic clock."""
        self.code = ResponseCode.SUCCESS
        self.forget: Callable[[], None] = _nothing
        self._is_over = False
        self._told: Callable[[Any], object] | None = None
        self._now = now
        self._lock = threading.Lock()
        self._deadlines: dict[ResponseCode, int] = {}

    def done(self) -> bool:
        """See Awaited."""
        return self._is_over

    def add_done_callback(self, told: Callable[[Any], object], /) -> None:
        """See Awaited; there may be one."""
        with self._lock:
            if not self._is_over:
                self._told = told
                return
        told(self)

    def wait_for(self, late: ResponseCode, milliseconds: int) -> None:
        """Wait so long for something more. To be said before anybody tells."""
        self._deadlines[late] = self._now + milliseconds

    def reached(self, late: ResponseCode) -> None:
        """It is there."""
        self._end(late, None)

    def expire(self, now: int) -> None:
        """Wait no more for what should be there by now (ms of the monotonic clock)."""
        for late, deadline in list(self._deadlines.items()):
            if deadline <= now:
                self._end(late, late)

    def _end(self, late: ResponseCode, code: ResponseCode | None) -> None:
        with self._lock:
            if self._deadlines.pop(late, None) is None:
                return
            if code is not None:
                self.code = max(self.code, code)
            if self._deadlines:
                return
            self._is_over = True
            # not kept: who is told knows us, and such circles wait for a collection of garbage
            told, self._told = self._told, None
        if told is not None:
            told(self)


def _nothing() -> None:
    """Nobody has to forget anything."""


# The broker of a store that is open for writing: what its services share beside what every broker has.


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
        self.request_modes: dict[str, dict[str, Any]] | None = None
        """Content of messageRequestMode.json: how groups ask for messages of topics, once one was set."""
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

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of the log that were written and are not yet flushed to disk."""
        return self.store.unflushed_bytes

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
                self._written_end(),
                self.settings.slaves_to_wait_for,
                lambda: wait.reached(ResponseCode.FLUSH_SLAVE_TIMEOUT),
            )
        self._put_waits[wait] = None

        def answered() -> RemotingCommand:
            self._end_wait(wait)
            return answer(wait.code)

        return Promised(wait, answered)

    def _slaves_in_sync(self) -> int:
        return self.slaves.keeping_up(self.log_end, self.settings.ha_max_gap_not_in_sync)

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
