"""Delivers messages that have a delivery time of their own, to the second (TimerMessageStore).

The messages wait in the timer's queue, and what is due when is held in memory: a wheel of files is not needed, because
two numbers say which of them were delivered, and are saved once that is on disk (`TimerCheckpoint`). Whatever was
delivered since the last save comes once more after a crash. Broker and `serve` take over from each other: for a broker
the log of what waits is written at the end; one that starts after a crash of ours reads the queue again from the
first message that waits, and delivers what came behind it a second time.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.hashing import java_long
from rmqctl.formats.java_map import in_java_order
from rmqctl.network.broker.delay.delivery import delivered, is_put
from rmqctl.network.broker.delay.timer_files import (
    TimerState,
    fits,
    has_timer_log,
    remove_timer_log,
    write_timer_checkpoint,
    write_timer_state,
)
from rmqctl.network.broker.writable_broker import WritableBroker
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.unit import QueueUnit
from rmqctl.store.read.get import QueueView, units_ahead
from rmqctl.store.timer.timer_state import CHECKPOINT_FILE, TimerCheckpoint, TimerUnit, read_timer_checkpoint
from rmqctl.store.timer.waiting import WaitingMessages, first_to_read

# in one step at least so many, and more for so long: clients must not wait for a timer that is far behind
_AT_LEAST = 200
_STEP_SECONDS = 0.02
_LOOK_AFTER = 20
_PRECISION_MS = 1000
# timerFlushIntervalMs
_SAVE_MS = 1000
# what is due when, and the offset in the timer's queue, in one number, so that many may wait
_OFFSET_BITS = 40
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class TimerService:
    """What waits for its time, by its offset in the timer's queue."""

    def __init__(self, broker: WritableBroker) -> None:
        """Goes on where the checkpoint says. CorruptError and UnreadableError for a damaged one."""
        self._broker = broker
        layout = broker.files.layout
        self._checkpoint = found = read_timer_checkpoint(layout.config)
        first, end = broker.bounds(TIMER_TOPIC, 0)
        self._offset = first_to_read(found, first)
        self._messages = WaitingMessages(found, end)
        self._due: list[int] = []
        self._has_changed = False
        self.is_behind = False
        """Whether there is more to take than one step could."""
        self._saved_at = broker.elapsed()
        self._state = TimerState(found)
        if has_timer_log(layout):
            # whatever happens now, a broker that starts reads the queue again
            write_timer_checkpoint(
                layout.config / CHECKPOINT_FILE,
                found._replace(last_timer_log_flush_pos=0, master_timer_queue_offset=self._offset),
            )
            remove_timer_log(layout)

    @property
    def _knows_all(self) -> bool:
        """Whether all that waited when it began is found: until then nothing can be saved."""
        return self._offset >= self._messages.known

    @property
    def waiting(self) -> int:
        """How many messages wait, as far as is known."""
        return len(self._messages.due)

    def waiting_by_topic(self) -> dict[str, int]:
        """Return how many messages wait for each topic. It reads all of them."""
        view = self._broker.view(TIMER_TOPIC, 0)
        counts: Counter[str] = Counter()
        for offset in sorted([*self._messages.due]) if view is not None else ():
            unit = view.queue.unit(offset) if view is not None else None
            if view is None or unit is None:
                continue
            try:
                counts[view.message_of(unit).properties().get(names.REAL_TOPIC, "")] += 1
            except (CorruptError, NotFoundError):
                continue  # delivering it says so
        return dict(counts)

    def step(self, now: int) -> None:
        """Take new messages, deliver what is due at `now` (ms); save from time to time."""
        view = self._broker.view(TIMER_TOPIC, 0)
        if view is None:
            return
        self._read(view)
        self._deliver(view, now)
        if self._has_changed and self._knows_all and self._broker.elapsed() - self._saved_at >= _SAVE_MS:
            self._save(TimerState(self._current(now)))

    # ---- what waits

    def _read(self, view: QueueView) -> None:
        self.is_behind = False
        end = view.queue.max_offset
        if self._offset >= end:
            return
        until = time.monotonic() + _STEP_SECONDS
        for count, (unit, ahead) in enumerate(units_ahead(view, self._offset, end, _AT_LEAST)):
            if count >= _AT_LEAST and count % _LOOK_AFTER == 0 and time.monotonic() >= until:
                self.is_behind = True
                return
            try:
                out = self._messages.take(unit.queue_offset, view.frame_of(unit, ahead)[1])
                if out is not None:
                    heapq.heappush(self._due, out << _OFFSET_BITS | unit.queue_offset)
            except (CorruptError, NotFoundError) as error:
                self._pass_over(unit.queue_offset, str(error))
            self._offset = unit.next_queue_offset
            self._has_changed = True

    # ---- what is due

    def _deliver(self, view: QueueView, now: int) -> None:
        count, until = 0, time.monotonic() + _STEP_SECONDS
        while self._due:
            out, offset = self._due[0] >> _OFFSET_BITS, self._due[0] & _OFFSET_MASK
            if offset in self._messages.due:
                if out + _PRECISION_MS > now or (count >= _AT_LEAST and time.monotonic() >= until):
                    break
                if not self._is_delivered(view, offset, out, now):
                    return
                del self._messages.due[offset]
                self._has_changed = True
                count += 1
            heapq.heappop(self._due)
        taken_back = self._messages.taken_back
        for out in [out for out in taken_back if out + _PRECISION_MS <= now and not self._is_next(out)]:
            del taken_back[out]

    def _is_next(self, out: int) -> bool:
        return bool(self._due) and self._due[0] >> _OFFSET_BITS <= out

    def _is_delivered(self, view: QueueView, offset: int, out: int, now: int) -> bool:
        """Whether the message has gone where it is to go, or goes nowhere; False if it has to be tried again."""
        unit = view.queue.unit(offset)
        try:
            if unit is None:
                raise NotFoundError(f"the timer's queue has no offset {offset} any more")
            stored = view.message_of(unit)
            properties = stored.properties()
            key, topic = properties.get(names.UNIQUE_KEY, ""), properties.get(names.REAL_TOPIC, "")
            # 5.3.3 writes the topic before the key
            if self._messages.is_taken_back(key, out) or self._messages.is_taken_back(f"{topic}+{key}", out):
                return True
            properties["TIMER_ENQUEUE_MS"] = str(stored.store_timestamp // _PRECISION_MS * _PRECISION_MS)
            properties["TIMER_DEQUEUE_MS"] = str(now)
            return is_put(self._broker, delivered(stored, in_java_order(properties), as_stored=False))
        except (CorruptError, NotFoundError) as error:
            self._pass_over(offset, str(error))
            return True

    def _pass_over(self, offset: int, error: str) -> None:
        self._broker.tell_once((TIMER_TOPIC, offset), f"a message that waits for its time is passed over: {error}")

    # ---- what is kept

    def _current(self, now: int) -> TimerCheckpoint:
        """How far the timer is: what waits is due at that time or later."""
        nearest = self._due[0] >> _OFFSET_BITS if self._due else now
        reached = min(now, nearest) // _PRECISION_MS * _PRECISION_MS
        return self._checkpoint._replace(
            last_read_time_ms=reached,
            last_timer_log_flush_pos=0,
            last_timer_queue_offset=self._offset,
            master_timer_queue_offset=next(iter(self._messages.due), self._offset),
            timestamp=now,
            counter=java_long(self._checkpoint.counter + 1),
        )

    def _save(self, state: TimerState) -> None:
        """Have it written, once all that was delivered is on disk."""
        broker = self._broker
        self._state, self._checkpoint = state, state.checkpoint
        self._saved_at, self._has_changed = broker.elapsed(), False
        size = broker.settings.mapped_file_size_timer_log
        broker.saver.save(
            CHECKPOINT_FILE,
            lambda: self._state,
            broker.store.flush,
            write=lambda path, found: write_timer_state(broker.files.layout, found, state.checkpoint.timestamp, size),
        )

    def close(self) -> None:
        """Write what the next broker needs, whichever it is."""
        if not self._knows_all:
            return
        now = self._broker.clock()
        checkpoint = self._current(now)
        units = self._units(checkpoint)
        if units is None or not fits(units, now, self._broker.settings.mapped_file_size_timer_log):
            self._save(TimerState(checkpoint))
        else:
            self._save(TimerState(checkpoint._replace(master_timer_queue_offset=self._offset), units))

    def _units(self, checkpoint: TimerCheckpoint) -> list[TimerUnit] | None:
        """The log of what waits, in the order of the queue; None where it cannot be made. Its last unit tells a broker
        where to go on in the queue: if need be a message that is delivered, in a slot that nobody reads any more."""
        if not self._messages.due:
            return []
        view = self._broker.view(TIMER_TOPIC, 0)
        wanted = {offset: (out, False) for offset, out in self._messages.due.items()}
        for out, keys in self._messages.taken_back.items():
            wanted |= dict.fromkeys(keys.values(), (out, True))
        wanted.setdefault(self._offset - 1, (checkpoint.last_read_time_ms - _PRECISION_MS, False))
        units: list[TimerUnit] = []
        for offset, (out, takes_back) in sorted(wanted.items()):
            unit: QueueUnit | None = None if view is None else view.queue.unit(offset)
            if unit is None or not unit.is_written:
                return None
            units.append(TimerUnit(out, unit.physical_offset, unit.size, takes_back))
        return units
