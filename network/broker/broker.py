"""The broker: all that its services share. It takes decoded requests and gives answers; it knows no socket."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.wording import counted
from rmqctl.network.broker.tables.clients import ClientManager
from rmqctl.network.broker.tables.counts import Counts
from rmqctl.network.broker.tables.groups import GroupTable
from rmqctl.network.broker.tables.identity import BrokerIdentity
from rmqctl.network.broker.tables.locks import QueueLocks
from rmqctl.network.broker.tables.offsets import ConsumerOffsets
from rmqctl.network.broker.tables.settings import settings_from_properties
from rmqctl.network.broker.tables.system import system_groups
from rmqctl.network.broker.tables.topics import TopicTable, is_system_topic
from rmqctl.network.ha.slaves import Slaves
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.services import FAQ, Caller, RequestError, Tell
from rmqctl.network.topic_config import TopicConfig
from rmqctl.store.commitlog.walk import Empty, walk
from rmqctl.store.files.lock import lock_holder
from rmqctl.store.files.reference import monotonic_ms
from rmqctl.store.queues.dispatch import queue_slots
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.queues.unit import QueueUnit
from rmqctl.store.read.get import GetResult, QueueView, get_messages, no_queue
from rmqctl.store.read.good_frames import frame_checks
from rmqctl.store.read.message_filter import TagFilter
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.tail import look_at_tail

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
        self.reader = StoreReader(files)
        # loaded before anybody asks: the first pull would wait for it, and all others with it
        frame_checks()
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

    def frames(self, topic: str, queue_id: int, offset: int, limit: int, tags: TagFilter) -> GetResult:
        """Messages of a queue from `offset` on with their frames as they are stored; see get_messages."""
        view = self.view(topic, queue_id)
        return no_queue() if view is None else get_messages(view, offset, limit, tags, frames=True)

    def view(self, topic: str, queue_id: int) -> QueueView | None:
        """A queue with all that is needed to read its messages; None as for `queue`."""
        view = self._views.get((topic, queue_id))
        if view is None:
            queue = self.queue(topic, queue_id)
            if queue is None:
                return None
            view = self._views[topic, queue_id] = self.reader.view(queue)
        return view

    def has_match(self, topic: str, queue_id: int, offset: int, end: int, tags: TagFilter) -> bool:
        """Whether a queue has a message from `offset` up to `end` that `tags` may want, going by its unit alone."""
        view = self.view(topic, queue_id)
        if view is None:
            return False
        return any(tags.may_match(view.resolved_code(unit)) for unit in view.queue.units(offset, end))

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

    def join(self, group: str) -> None:
        """A member of a group comes: its retry topic is there from now on. RequestError as for `group`."""
        self.group(group)
        self.topics.add_retry_topics([group])

    def routes(self) -> Mapping[str, TopicConfig]:
        """All topics as name servers show them (BrokerController#registerBrokerAll)."""
        return self.topics.routes(self.settings.broker_permission)

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
        self.clients.expire(self.elapsed())
        self.locks.expire(self.elapsed())
