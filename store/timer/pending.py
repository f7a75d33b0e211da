"""What the timer still has to deliver: messages on the wheel as a broker recovers it, those that it puts there when it
starts, and those that no broker delivers. The one rule for `delays`, `check` and `repair`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.hashing import whole_number
from rmqctl.formats.message import StoredMessage
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage
from rmqctl.store.timer.recovered import RecoveredTimer
from rmqctl.store.timer.timer_log import TimerUnits
from rmqctl.store.timer.waiting import due_time

# TimerMessageStore.TIMER_WHEEL_TTL_DAY, less TIMER_BLANK_SLOTS: a broker that was down for longer does not look back
WHEEL_MS = (7 * 86_400 - 60) * 1000
# how far the delivery of a broker may be behind the clock when it stops
_DELIVERED_AT_ONCE_MS = 60_000


class TimedMessage(NamedTuple):
    """One message of the timer's queue that is not delivered. `out`: when it is due (ms).

    `on_wheel`: a slot leads to it; `to_enqueue`: a broker puts it there when it starts. Neither: no broker delivers it.
    """

    queue_offset: int
    physical_offset: int
    size: int
    out: int
    topic: str
    queue_id: int | None
    unique_key: str
    on_wheel: bool
    to_enqueue: bool

    @property
    def is_lost(self) -> bool:
        """Whether no broker delivers it."""
        return not (self.on_wheel or self.to_enqueue)


@dataclass(slots=True)
class PendingTimer:
    """What waits in the timer, in the order of its queue. `recalls`: messages that take others back, by their place in
    the commitlog; `recalled`: how many are taken back so; `old_recalls`: those of them in the form of 5.3.3, which a
    broker 5.5.0 ignores. `again`: messages that were delivered and are put on the wheel once more. `damaged`: messages
    that cannot be read; `foreign`: units and slots that lead to something else than a message of the timer."""

    messages: list[TimedMessage] = field(default_factory=list)
    recalls: list[TimedMessage] = field(default_factory=list)
    recalled: int = 0
    old_recalls: int = 0
    again: int = 0
    damaged: int = 0
    foreign: int = 0

    @property
    def lost(self) -> list[TimedMessage]:
        """Messages that no broker delivers."""
        return [one for one in self.messages if one.is_lost]

    @property
    def twice(self) -> int:
        """How many are on the wheel and are put there once more: a broker delivers them twice."""
        return sum(one.on_wheel and one.to_enqueue for one in self.messages)


def pending_messages(
    reader: StoreReader, queue: AnyConsumeQueue | None, timer: RecoveredTimer, on_damage: OnDamage
) -> PendingTimer:
    """Return what the recovered `timer` has still to deliver of its `queue`. UnreadableError."""
    return _Pending(reader, queue, timer, on_damage).read()


class _Pending:
    def __init__(
        self, reader: StoreReader, queue: AnyConsumeQueue | None, timer: RecoveredTimer, on_damage: OnDamage
    ) -> None:
        self._reader = reader
        self._queue = queue
        self._timer = timer
        self._on_damage = on_damage
        self._found = PendingTimer()
        self._by_place: dict[int, TimedMessage] = {}
        self._rolled: set[tuple[str, int]] = set()
        # unique keys by the time when what takes them back is due
        self._taken_back: dict[int, set[str]] = {}

    def read(self) -> PendingTimer:
        """Read every message that may wait."""
        for place, size in dict.fromkeys(_targets(self._timer.linked)):
            self._take(self._at(place, size), on_wheel=True)
        for message in self._queued(self._timer.queue_offset, self._timer.queue_end):
            self._take(message, to_enqueue=True)
        for place, size in dict.fromkeys(_targets(self._timer.unlinked)):
            self._take(self._at(place, size))
        for message in self._without_unit():
            self._take(message)
        found = self._found
        for one in sorted(self._by_place.values(), key=lambda one: one.queue_offset):
            keys = self._taken_back.get(one.out, set())
            old_form = f"{one.topic}+{one.unique_key}" in keys
            if one.is_lost and (one.unique_key, one.out) in self._rolled:
                continue  # stored once more when the wheel was too small for it
            if one.unique_key in keys or old_form:
                found.recalled += 1
                # what no broker delivers needs no recall
                found.old_recalls += old_form and not one.is_lost
            else:
                found.messages.append(one)
        return found

    def _at(self, place: int, size: int) -> StoredMessage | None:
        try:
            message = self._reader.lookup(place)
            if message.total_size == size:
                return message
            self._found.foreign += 1
        except NotFoundError:
            # what expired before it was due is no damage
            self._found.foreign += place >= self._reader.files.log.min_offset
        except CorruptError as error:
            self._damage(error)
        return None

    def _queued(self, begin: int, end: int) -> Iterator[StoredMessage]:
        if self._queue is None:
            return
        view = self._reader.view_without_ext(self._queue)
        for unit in self._queue.units(begin, end):
            try:
                yield view.message_of(unit)
            except NotFoundError:  # removed by a cleaner while we looked
                continue
            except CorruptError as error:
                self._damage(error)

    def _without_unit(self) -> Iterator[StoredMessage]:
        """Messages that the timer has passed and has no unit of: it delivered them at once, or it never had them."""
        timer, queue = self._timer, self._queue
        begin, end = timer.queue_begin, timer.queue_offset
        if queue is None or end <= begin:
            return
        last = queue.unit(timer.queue_end - 1)
        # a log that was cut without the timer leaves units of messages that are gone
        is_sound = last is not None and not (timer.known > last.physical_offset).any()
        if is_sound and np.count_nonzero(np.unique(timer.known) >= self._reader.files.log.min_offset) >= end - begin:
            return
        places = set(zip(timer.known.tolist(), timer.known_sizes.tolist(), strict=True))
        # what was due already when the timer read it was delivered at once, and has no unit
        stopped = self._reader.files.checkpoint()
        last_stored = 0 if stopped is None else stopped.physic_msg_timestamp
        at_once = min(last_stored, timer.checkpoint.last_read_time_ms + _DELIVERED_AT_ONCE_MS)
        view = self._reader.view_without_ext(queue)
        for unit in queue.units(begin, end):
            if unit.is_written and (unit.physical_offset, unit.size) not in places:
                try:
                    message = view.message_of(unit)
                except NotFoundError:
                    continue
                except CorruptError as error:
                    self._damage(error)
                    continue
                out = due_time(message.properties().get(names.TIMER_OUT_MS, ""))
                if out is None or out >= at_once:
                    yield message

    def _take(self, message: StoredMessage | None, *, on_wheel: bool = False, to_enqueue: bool = False) -> None:
        if message is None:
            return
        known = self._by_place.get(message.physical_offset)
        if known is not None:
            self._by_place[message.physical_offset] = known._replace(to_enqueue=known.to_enqueue or to_enqueue)
            return
        properties = message.properties()
        out = due_time(properties.get(names.TIMER_OUT_MS, ""))
        if out is None or names.REAL_TOPIC not in properties:
            self._found.foreign += 1
            return
        checkpoint = self._timer.checkpoint
        if not on_wheel and out < checkpoint.last_read_time_ms:
            is_before = message.queue_offset < checkpoint.last_timer_queue_offset
            if not to_enqueue or is_before:
                self._found.again += to_enqueue
                return
        key = properties.get(names.UNIQUE_KEY, "")
        if names.TIMER_ROLL_TIMES in properties:
            self._rolled.add((key, out))
        one = TimedMessage(
            message.queue_offset,
            message.physical_offset,
            message.total_size,
            out,
            properties[names.REAL_TOPIC],
            whole_number(properties.get(names.REAL_QUEUE_ID, "")),
            key,
            on_wheel,
            to_enqueue,
        )
        taken_back = properties.get(names.TIMER_DELETE_UNIQUE_KEY)
        if taken_back is None:
            self._by_place[message.physical_offset] = one
        else:
            self._taken_back.setdefault(out, set()).add(taken_back)
            self._found.recalls.append(one)

    def _damage(self, error: CorruptError) -> None:
        self._on_damage(error)
        self._found.damaged += 1


def _targets(units: TimerUnits) -> Iterator[tuple[int, int]]:
    """Return the commitlog offset and the size of what each unit leads to."""
    return zip(units["physical_offset"].tolist(), units["size"].tolist(), strict=True)
