"""The broker: all that its services share. It takes decoded requests and gives answers; it knows no socket."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rmqctl.network.broker.tables.clients import ClientManager
from rmqctl.network.broker.tables.groups import GroupTable
from rmqctl.network.broker.tables.identity import BrokerIdentity
from rmqctl.network.broker.tables.locks import QueueLocks
from rmqctl.network.broker.tables.offsets import ConsumerOffsets
from rmqctl.network.broker.tables.settings import settings_from_properties
from rmqctl.network.broker.tables.topics import TopicTable
from rmqctl.network.ha.slaves import Slaves
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.services import FAQ, Caller, RequestError, Tell
from rmqctl.network.topic_config import TopicConfig
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.get import GetResult, QueueView, get_messages, no_queue
from rmqctl.store.read.message_filter import TagFilter
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles

_MOST_TOLD = 10_000


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
    ) -> None:
        """UnsupportedError where the queues cannot be read; what is damaged beside them is told. `clock`: ms.
        `properties`: what the broker.conf says."""
        self.files = files
        self.identity = identity
        self.tell = tell
        self.clock = clock
        self.properties = properties or {}
        self.started_at = clock()
        self.reader = StoreReader(files)
        self.settings = settings_from_properties(self.properties)
        self.topics = TopicTable(files, tell, is_written=self.is_writable)
        may_create = self.settings.auto_create_subscription_group or not self.is_writable
        self.groups = GroupTable(files, tell, is_written=self.is_writable, may_create=may_create)
        self.offsets = ConsumerOffsets(files, tell, is_written=self.is_writable)
        self.clients = ClientManager()
        self.locks = QueueLocks()
        self.slaves = Slaves()
        self.topics.add_retry_topics({*self.groups.names(), *self.offsets.groups()})
        # finding out what belongs to a queue takes as long as reading a message of it
        self._views: dict[tuple[str, int], QueueView] = {}
        self._told: set[tuple[str, int]] = set()
        self._log_end = self._find_log_end()
        # clients ask for queues without a file again and again, and delays ten times a second
        files.queues.settle()

    @property
    def log_end(self) -> int:
        """Physical offset behind the last message."""
        return self._log_end

    def hand_on_up_to(self, end: int) -> None:
        """The log is handed on to slaves up to here, further than queues may know after a crash: so far it goes."""
        self._log_end = max(self._log_end, end)

    def _find_log_end(self) -> int:
        """Physical offset behind the last message that a queue knows: zeros may fill the rest of the log."""
        ends = [0]
        for queue in self.files.queues.all():
            unit = queue.unit(queue.max_offset - 1) if queue.max_offset else None
            if unit is not None and unit.is_written:
                ends.append(unit.end)
        return max(ends)

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
        self.clients.expire(self.clock())
        self.locks.expire(self.clock())
