"""What a broker keeps for POP beside its tables: what is handed out, who waits, and what comes again."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import parse_int, parse_long
from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, UsageError, WriteFailedError, counted
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.formats.properties import in_java_order
from rmqctl.network.broker.broker import WritableBroker
from rmqctl.network.broker.pop.records import OrderedPops, Outstanding, PopRecords, original_topic
from rmqctl.network.remoting.requests import Reply, RequestError
from rmqctl.network.topic_config import TopicConfig
from rmqctl.store.files import io
from rmqctl.store.pop.load import kv_entries, revive_messages
from rmqctl.store.pop.records import (
    KV_FOLDER,
    RETRY_PREFIX,
    REVIVE_GROUP,
    KvEntry,
    PopCheckpoint,
    PopKey,
    RecordError,
    pop_retry_topics,
    revive_record,
)
from rmqctl.store.pop.state import FIRST_POP_TIME
from rmqctl.store.read.get import QueueView

# Puts messages that were popped and not acknowledged in time into retry topics (PopReviveService).
#
# Checkpoints and acknowledgements reach the revive topic by the timer, an acknowledgement never before its checkpoint.
# Those that are read and not settled are in memory; how far a queue is settled is one of the consumer offsets: that of
# the last record, where other groups have that of the next.

_ORIGIN_GROUP = "ORIGIN_GROUP"
# acknowledgements come a second after their checkpoint, and a second is allowed for (ackTimeInterval + 1 s)
_ACKS_WITHIN_MS = 2000
# without new records for so long the clock says how far the revive topic is
_IDLE_MS = 3000
# of one queue in one step: clients must not wait for a queue that is far behind
_MOST_AT_ONCE = 100
# a retry that no queue takes is tried again after these (ckRewriteIntervalsInSeconds)
_AGAIN_SECONDS = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


class _ReviveQueue:
    """One queue of the revive topic: what was read of it and is not settled."""

    def __init__(self, settled: int) -> None:
        self.settled = settled
        self.next = settled + 1
        # the latest delivery time of what was read (ms): how far the queue is
        self.reached = 0
        self.waiting: dict[PopKey, tuple[int, Outstanding]] = {}
        # the last acknowledgement without a checkpoint, and when it was delivered (ms)
        self.single = -1, 0


class ReviveService:
    """Reads the revive queues, matches acknowledgements with checkpoints, and revives the rest when it is time."""

    def __init__(self, broker: WritableBroker, records: PopRecords) -> None:
        self._broker = broker
        self._records = records
        self._queues: dict[int, _ReviveQueue] = {}

    def step(self, now: int, delivered_until: int) -> None:
        """Go on at `now`. `delivered_until`: the timer has delivered all that is due earlier (ms)."""
        topic = self._broker.topics.find(self._records.topic)
        for queue_id in range(0 if topic is None else topic.read_queue_nums):
            view = self._broker.view(self._records.topic, queue_id)
            if view is None:
                continue
            if queue_id not in self._queues:
                self._queues[queue_id] = self._begun(queue_id)
            queue = self._queues[queue_id]
            has_read_all = self._read(view, queue_id, queue)
            if queue.waiting:
                if has_read_all and now - queue.reached > _IDLE_MS:
                    queue.reached = now
                self._settle(queue_id, queue, min(queue.reached - _ACKS_WITHIN_MS, delivered_until - 1))
            elif self._broker.settings.enable_skip_long_awaiting_ack:
                self._pass_over(queue_id, queue, now)

    def _pass_over(self, queue_id: int, queue: _ReviveQueue, now: int) -> None:
        """Go behind acknowledgements whose checkpoint has not come for long (mockCkForAck)."""
        offset, delivered = queue.single
        if offset > queue.settled and now - delivered > self._broker.settings.revive_ack_wait_ms:
            queue.settled = offset
            self._broker.offsets.commit(REVIVE_GROUP, self._records.topic, queue_id, offset)

    def _begun(self, queue_id: int) -> _ReviveQueue:
        settled = self._broker.offsets.find(REVIVE_GROUP, self._records.topic, queue_id)
        first = self._broker.bounds(self._records.topic, queue_id)[0]
        return _ReviveQueue(max(first - 1, -1 if settled is None else settled))

    # ---- what comes

    def _read(self, view: QueueView, queue_id: int, queue: _ReviveQueue) -> bool:
        """Read new records; whether none is left."""
        end = view.queue.max_offset
        for unit in view.queue.units(queue.next, min(end, queue.next + _MOST_AT_ONCE)):
            try:
                self._take(view.message_of(unit), unit.queue_offset, queue_id, queue)
            except (RecordError, RmqctlError) as error:
                place = (self._records.topic, unit.queue_offset)
                self._broker.tell_once(place, f"a record of POP is passed over: {error}")
            queue.next = unit.next_queue_offset
        return queue.next >= end

    def _take(self, message: StoredMessage, offset: int, queue_id: int, queue: _ReviveQueue) -> None:
        properties = message.properties()
        delivered = parse_long(properties.get(names.TIMER_PROPERTIES[2], "")) or 0
        queue.reached = max(queue.reached, delivered)
        record = revive_record(properties.get(names.TAGS), message.plain_body())
        if record is None:
            return
        key = record.key
        if not key.broker:
            key = key._replace(broker=self._broker.identity.name)
        if isinstance(record, PopCheckpoint):
            # one that comes again takes the place of the first
            queue.waiting.pop(key, None)
            queue.waiting[key] = offset, Outstanding(record, queue_id)
        elif key not in queue.waiting:
            queue.single = offset, delivered
        else:
            found = queue.waiting[key][1]
            for one in record.offsets:
                index = found.checkpoint.index_of(one)
                found.acked |= 0 if index is None else 1 << index

    # ---- what is over

    def _settle(self, queue_id: int, queue: _ReviveQueue, until: int) -> None:
        """Settle checkpoints in their order, as far as their messages were visible before `until` (ms)."""
        settled = queue.settled
        for key, (offset, found) in list(queue.waiting.items())[:_MOST_AT_ONCE]:
            if found.checkpoint.deadline >= until or not self._is_settled(found):
                break
            del queue.waiting[key]
            self._records.settle(key)
            queue.settled = offset
        if queue.settled > settled:
            self._broker.offsets.commit(REVIVE_GROUP, self._records.topic, queue_id, queue.settled)

    def _is_settled(self, found: Outstanding) -> bool:
        """Put what is not acknowledged into its retry topic; False where that has to be tried again."""
        checkpoint = found.checkpoint
        if self._broker.topics.find(original_topic(checkpoint.topic, checkpoint.group)) is None:
            return True
        try:
            self._broker.group(checkpoint.group)
        except RequestError:
            return True  # the group is gone
        for at, distance in enumerate(checkpoint.distances):
            if found.acked >> at & 1:
                continue
            message = self._message(checkpoint, checkpoint.start + distance)
            if message is not None and not self._is_put(checkpoint, message, found.revive_queue):
                return False
            found.acked |= 1 << at
        return True

    def _message(self, checkpoint: PopCheckpoint, offset: int) -> StoredMessage | None:
        """Return a message that was popped; None where it is gone, or damaged, which is reported."""
        view = self._broker.view(checkpoint.topic, checkpoint.queue_id)
        unit = None if view is None else view.queue.unit(offset)
        if view is None or unit is None:
            return None
        try:
            return view.message_of(unit)
        except NotFoundError:
            return None
        except CorruptError as error:
            place = (f"{checkpoint.topic}@{checkpoint.queue_id}", offset)
            self._broker.tell_once(place, f"a popped message cannot be handed out again, it is damaged: {error}")
            return None

    def _is_put(self, checkpoint: PopCheckpoint, stored: StoredMessage, revive_queue: int) -> bool:
        """Store the copy of a message that is to be consumed again; False where the store takes none now."""
        message = self._copy(checkpoint, stored)
        try:
            result = self._broker.put([message]).results[0]
        except (UsageError, WriteFailedError) as error:
            self._broker.tell_once((message.topic, -1), f"messages for {message.topic} wait on: {error}")
            return False
        if result.status.is_stored:
            return True
        text = f"a message for {message.topic} waits on: {result.status}: {result.detail}"
        self._broker.tell_once((message.topic, -1), text)
        if not result.status.is_about_message:
            return False
        return self._records.put_checkpoint(self._again(checkpoint, stored.queue_offset), revive_queue) is not None

    def _copy(self, checkpoint: PopCheckpoint, stored: StoredMessage) -> Message:
        group, topic, properties = checkpoint.group, self._retry_topic(checkpoint), stored.properties()
        if stored.reconsume_times == 0 or FIRST_POP_TIME not in properties:
            properties[FIRST_POP_TIME] = str(checkpoint.popped_at)
        properties[_ORIGIN_GROUP] = group
        return Message(
            topic.name, stored.body, self._retry_queue(topic, stored), stored.flag, in_java_order(properties),
            sys_flag=stored.sys_flag, born_timestamp=stored.born_timestamp,
            reconsume_times=stored.reconsume_times + (0 if checkpoint.suspend else 1),
        )  # fmt: skip

    def _retry_queue(self, topic: TopicConfig, stored: StoredMessage) -> int:
        is_there = self._broker.settings.use_separate_retry_queue and stored.queue_id < topic.write_queue_nums
        return stored.queue_id if is_there else 0

    def _retry_topic(self, checkpoint: PopCheckpoint) -> TopicConfig:
        """Return the topic for retries of a popped one, which is there from now on."""
        group, topic = checkpoint.group, checkpoint.topic
        original, count = self._broker.topics.find(original_topic(topic, group)), 1
        if self._broker.settings.use_separate_retry_queue and original is not None:
            count = original.write_queue_nums
        if not topic.startswith(RETRY_PREFIX):
            second, first = pop_retry_topics(group, topic)
            topic = second if self._broker.files.config.enable_retry_topic_v2 else first
        found = self._broker.topics.find(topic)
        if found is None or found.write_queue_nums < count:
            found = self._broker.topics.put(TopicConfig(topic, count, count))
            self._broker.save_topics()
            for queue_id in range(count):
                if self._broker.offsets.find(group, topic, queue_id) is None:
                    self._broker.offsets.commit(group, topic, queue_id, 0)
        return found

    @staticmethod
    def _again(checkpoint: PopCheckpoint, offset: int) -> PopCheckpoint:
        """Return the checkpoint of one message that comes again later, because no retry could be stored (rePutCK)."""
        times = min(parse_int(checkpoint.put_again or "0") or 0, len(_AGAIN_SECONDS) - 1)
        invisible = checkpoint.invisible + _AGAIN_SECONDS[times] * 1000
        return checkpoint._replace(
            start=offset, distances=(0,), acked=0, suspend=False, invisible=invisible, put_again=str(times + 1)
        )


Waiter = tuple[str, str, int]
"""A topic, a group and a queue, below 0 for all queues."""


class PopService:
    """What a broker keeps for POP: what is handed out, and who waits."""

    def __init__(self, broker: WritableBroker) -> None:
        """Errors as for OrderedPops."""
        self._broker = broker
        self.records = PopRecords(broker)
        _move_entries(broker, self.records)
        self.orders = OrderedPops(broker)
        self.revive = ReviveService(broker, self.records)
        self.waiting = Counter[Waiter]()
        self.draw: Callable[[], int] = lambda: random.randrange(100)
        """Return a number below 100: where a pop begins, and whether with retries."""

    def may_wait(self, waiter: Waiter) -> bool:
        """Return whether one more may wait."""
        settings = self._broker.settings
        is_full = self.waiting[waiter] > settings.pop_polling_size
        return not is_full and self.waiting.total() < settings.max_pop_polling_size

    def wait(self, waiter: Waiter) -> None:
        """Count one that waits."""
        self.waiting[waiter] += 1

    def end_wait(self, waiter: Waiter) -> None:
        """Count one that waits no longer."""
        self.waiting[waiter] -= 1
        if not self.waiting[waiter]:
            del self.waiting[waiter]


def _move_entries(broker: WritableBroker, records: PopRecords) -> None:
    """Store checkpoints for the entries of kvStore/, as PopConsumerService#transferToFsStore, which keep `suspend`; the
    database, which is never written, gets another name. After a kill in between none is stored twice."""
    folder = broker.files.root / KV_FOLDER
    entries = [entry for _, entry in kv_entries(broker.reader) if isinstance(entry, KvEntry)]
    if not entries:
        return
    kept = f"{KV_FOLDER}: {counted(len(entries), 'message')} popped by kvStore/"
    if not broker.files.config.timer_wheel_enable:
        broker.tell(f"{kept} stay there: without a timer there is no POP")
        return
    known = {(one.group, one.topic, one.queue_id, one.start, one.popped_at) for one in _checkpoints(broker)}
    for entry in entries:
        place = (entry.group, entry.topic, entry.queue_id, entry.offset, entry.popped_at)
        own = PopCheckpoint(
            *place, broker.identity.name, entry.invisible, (0,), suspend=entry.suspend, put_again=str(entry.put_again)
        )
        revive_queue = entry.offset % max(1, broker.settings.revive_queue_num)
        if place not in known and records.hand_out(own, revive_queue) is None and records.get(own.key) is None:
            broker.tell(f"{kept} stay there: not all of their checkpoints could be stored")
            return
    broker.store.flush()
    targets = (folder.with_name(f"{KV_FOLDER}.moved{number or ''}") for number in itertools.count())
    target = next(path for path in targets if not path.exists())
    io.rename(folder, target)
    broker.tell(f"{kept} are in the revive topic now, and kvStore/ is {target.name}/")


def _checkpoints(broker: WritableBroker) -> Iterator[PopCheckpoint]:
    """Yield those that are left in the revive topic, settled or not, and in the timer."""
    for one in revive_messages(broker.reader, lambda group, topic, queue_id: None):
        with contextlib.suppress(RecordError, RmqctlError):
            record = revive_record(one.message.properties().get(names.TAGS), one.message.plain_body())
            if isinstance(record, PopCheckpoint):
                yield record


_Handler = TypeVar("_Handler", bound=Callable[..., Reply])


def refusing_with(**fields: str) -> Callable[[_Handler], _Handler]:
    """Have what a handler refuses carry the fields of its answers, as brokers do."""

    def wrapped(handler: _Handler) -> _Handler:
        @functools.wraps(handler)
        def handle(*arguments: object) -> Reply:
            try:
                return handler(*arguments)
            except RequestError as error:
                error.fields = {**fields, **error.fields}
                raise

        return handle  # type: ignore[return-value]  # it takes and gives the same

    return wrapped


class PopBroker(WritableBroker):
    """A writable broker that messages can be popped from."""

    pop: PopService
