"""Delivers delayed messages when they are due, level by level (ScheduleMessageService)."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import java_long, whole_number
from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError, WriteFailedError
from rmqctl.formats.layouts import TIMER_CHECKPOINT, TIMER_CHECKPOINT_SIZE, TIMER_LOG_UNIT, TIMER_WHEEL_SLOTS
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.formats.properties import in_java_order
from rmqctl.network.broker.broker import WritableBroker
from rmqctl.network.broker.settings import TIMER_DEQUEUE, TIMER_ENQUEUE, TimerFigures
from rmqctl.network.broker.tables import config_table
from rmqctl.store.answers.config_offsets import DELAY_FILE, OFFSET_TABLE, offsets_of
from rmqctl.store.answers.undispatched import HALF_TOPIC
from rmqctl.store.config.config_files import next_version
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, file_name
from rmqctl.store.files.reading import exists, is_directory, is_file
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.read.get import QueueView, units_ahead
from rmqctl.store.timer.recovered import WaitingMessages, first_to_read, refuse_waiting_in_rocksdb
from rmqctl.store.timer.wheel import (
    CHECKPOINT_FILE,
    LOG_FOLDER,
    MAGIC_DEFAULT,
    MAGIC_TAKES_BACK,
    TimerCheckpoint,
    TimerUnit,
    read_timer_checkpoint,
    roll_window_ms,
    timer_precision,
)

# A message whose time has come: put into its topic, or told why that cannot be yet.


def delivered(stored: StoredMessage, properties: Mapping[str, str], *, as_stored: bool) -> Message:
    """The message as it goes to the topic and queue that its properties name (ScheduleMessageService#messageTimeUp,
    TimerMessageStore#convertMessage). They stay with it, which keeps it from being delayed again. `as_stored`: the
    bytes of its properties stay as they are. CorruptError for a message that names no place."""
    topic, queue_id = properties.get(names.REAL_TOPIC), whole_number(properties.get(names.REAL_QUEUE_ID, ""))
    if topic is None or queue_id is None:
        raise CorruptError(f"the message at {stored.physical_offset} does not say where it is to be delivered")
    return Message(
        topic,
        stored.body,
        queue_id,
        stored.flag,
        properties,
        stored.property_bytes if as_stored else None,
        sys_flag=stored.sys_flag,
        born_timestamp=stored.born_timestamp,
        born_host=stored.born_host,
        store_host=stored.store_host,
        reconsume_times=stored.reconsume_times,
    )


def is_put(broker: WritableBroker, message: Message) -> bool:
    """Put a message; return False, and report the reason once a topic, if it has to wait."""
    try:
        result = broker.put([message]).results[0]
    except (UsageError, WriteFailedError) as error:
        broker.tell_once((message.topic, -1), f"a delayed message for {message.topic} waits on: {error}")
        return False
    if result.status.is_stored:
        broker.see_to_topic(message)
        return True
    text = f"a delayed message for {message.topic} waits on: {result.status}: {result.detail}"
    broker.tell_once((message.topic, -1), text)
    return False


# of one level in one step: clients must not wait for a level that is far behind
_MOST_AT_ONCE = 200


class DelayService:
    """By level, the offset of the next message to be delivered in the level's queue of SCHEDULE_TOPIC_XXXX. Delivered
    messages are at least once in the log: after a crash those since the last save come once more."""

    def __init__(self, broker: WritableBroker) -> None:
        """Goes on where delayOffset.json says. CorruptError and UnreadableError for a damaged one."""
        found = config_table(broker.files, DELAY_FILE, OFFSET_TABLE, broker.tell, "", is_written=True)
        self._broker = broker
        self._delays = broker.files.config.delay_levels_to_write()
        self._version, self._content = found.version, found.content
        self._offsets = offsets_of(found.rows)
        # when a level's next message is due (ms)
        self._next: dict[int, int] = {}
        self._saved_at = broker.elapsed()
        self._has_changed = False
        # levels whose queue is there, as of so many queues
        self._levels: list[int] = []
        self._queues = -1
        for level in range(1, len(self._delays) + 1):
            self._clamp(level)

    def _clamp(self, level: int) -> None:
        """A level's queue may have lost its beginning to a cleaner, its end to a power failure."""
        first, end = self._broker.bounds(SCHEDULE_TOPIC, level - 1)
        offset = self._offsets.get(level, 0)
        if not first <= offset <= end:
            self._offsets[level] = min(max(offset, first), end)
            self._has_changed = True

    def table(self) -> dict[str, Any]:
        """How far the levels are, as delayOffset.json has it."""
        offsets = dict(sorted(self._offsets.items()))
        return {**self._content, "dataVersion": self._version, "offsetTable": offsets}

    def step(self, now: int) -> None:
        """Deliver what is due at `now` (ms); save from time to time."""
        count = self._broker.files.queues.count
        if count != self._queues:
            self._queues = count
            levels = range(1, len(self._delays) + 1)
            self._levels = [level for level in levels if self._broker.view(SCHEDULE_TOPIC, level - 1) is not None]
        for level in self._levels:
            self._deliver_level(level, now)
        interval = self._broker.settings.flush_delay_offset_interval
        if self._has_changed and self._broker.elapsed() - self._saved_at >= interval:
            self.save()

    def save(self) -> None:
        """Have the offsets written, once all that was delivered is on disk."""
        self._saved_at, self._has_changed = self._broker.elapsed(), False
        self._version = next_version(self._version, self._broker.clock())
        self._broker.saver.save(DELAY_FILE, self.table, self._broker.store.flush)

    def _deliver_level(self, level: int, now: int) -> None:
        view = self._broker.view(SCHEDULE_TOPIC, level - 1)
        if view is None:
            return
        end, offset = view.queue.max_offset, self._offsets.get(level, 0)
        latest = now + self._delays[level - 1]
        if offset >= end or now < self._next.get(level, 0) <= latest:
            return
        for count, unit in enumerate(view.queue.units(offset, end)):
            # a due time that no delay leads to: the clock was set back
            due = unit.tags_code if unit.tags_code <= latest else now
            if due > now or count >= _MOST_AT_ONCE:
                self._next[level] = due
                if level not in self._offsets:  # a level without an offset would be delivered from its first message
                    self._offsets[level], self._has_changed = offset, True
                return
            try:
                message = self._due_message(view.message_of(unit))
            except (CorruptError, NotFoundError) as error:
                self._pass_over(level, unit, str(error))
                message = None
            if message is not None and not is_put(self._broker, message):
                self._next.pop(level, None)
                return
            self._offsets[level] = unit.next_queue_offset
            self._has_changed = True
        self._next.pop(level, None)

    def _due_message(self, stored: StoredMessage) -> Message | None:
        """The message as it is delivered; None for one that goes nowhere."""
        properties = stored.properties()
        return None if properties.get(names.REAL_TOPIC) == HALF_TOPIC else delivered(stored, properties, as_stored=True)

    def _pass_over(self, level: int, unit: QueueUnit, error: str) -> None:
        place = (SCHEDULE_TOPIC, unit.queue_offset)
        self._broker.tell_once(place, f"a message delayed by level {level} is passed over: {error}")


# Writes what is kept of the timer beside its messages: how far it is, and, for the next broker, what waits.

_WHEEL = "timerwheel"
_NONE = -1
# what TimerLog leaves free at the end of a file
_BLANK_SIZE = 16


class TimerState(NamedTuple):
    """What is to be written. `units`: None to leave the timer log alone."""

    checkpoint: TimerCheckpoint
    units: Sequence[TimerUnit] | None = None


def write_timer_checkpoint(path: Path, checkpoint: TimerCheckpoint) -> None:
    """Replace the file, old or new but never half."""
    io.make_directories(path.parent)
    io.write_whole(path, TIMER_CHECKPOINT.struct.pack(*checkpoint).ljust(TIMER_CHECKPOINT_SIZE, b"\0"))


def remove_timer_log(layout: StoreLayout) -> None:
    """Remove wheel and log, which say the same as the messages in the timer's queue and its checkpoint."""
    wheel, log = layout.root / _WHEEL, layout.root / LOG_FOLDER
    for path in [wheel, *(sorted(log.iterdir()) if is_directory(log) else [])]:
        if is_file(path):
            io.remove(path)


def has_timer_log(layout: StoreLayout) -> bool:
    """Whether a broker has left a wheel or a log."""
    log = layout.root / LOG_FOLDER
    return exists(layout.root / _WHEEL) or (is_directory(log) and any(log.iterdir()))


def fits(units: Sequence[TimerUnit], now: int, log_size: int, precision: int) -> bool:
    """Return whether one file of the log holds `units`, and a wheel with slots of `precision` (ms) all of their times
    around `now` (ms).

    Half a turn of the wheel is at most a week; the field for a delay has 32 bits, which is less than 25 days.
    """
    is_near = all(abs(unit.out - now) <= TIMER_WHEEL_SLOTS // 2 * precision for unit in units)
    return is_near and (len(units) + 1) * TIMER_LOG_UNIT.size + _BLANK_SIZE <= log_size


def write_timer_log(layout: StoreLayout, units: Sequence[TimerUnit], now: int, log_size: int) -> int:
    """Make the log of the units, whose wheel a broker makes of it when it starts, and return where it ends. There must
    be none. `now`: ms."""
    slots: dict[int, int] = {}
    packed = bytearray()
    for unit in units:
        place = len(packed)
        packed += TIMER_LOG_UNIT.struct.pack(
            TIMER_LOG_UNIT.size,
            slots.get(unit.out, _NONE),
            MAGIC_DEFAULT | (MAGIC_TAKES_BACK if unit.takes_back else 0),
            now,
            unit.out - now,
            unit.physical_offset,
            unit.size,
            0,
            0,
        )
        slots[unit.out] = place
    path = layout.root / LOG_FOLDER / file_name(0)
    io.make_directories(path.parent, flushed=True)
    io.create_file(path, log_size)
    io.write_range(path, 0, packed)
    io.flush_file(path)
    return len(packed)


def write_timer_state(layout: StoreLayout, state: TimerState, now: int, log_size: int) -> None:
    """Write the checkpoint, and before it the log if there is to be one."""
    checkpoint = state.checkpoint
    if state.units is not None:
        remove_timer_log(layout)
        end = write_timer_log(layout, state.units, now, log_size) if state.units else 0
        checkpoint = checkpoint._replace(last_timer_log_flush_pos=end)
    write_timer_checkpoint(layout.config / CHECKPOINT_FILE, checkpoint)


# Delivers messages that have a delivery time of their own, to the second (TimerMessageStore).
#
# The messages wait in the timer's queue, and what is due when is held in memory: a wheel of files is not needed,
# because two numbers say which of them were delivered, and are saved once that is on disk (`TimerCheckpoint`).
# Whatever was delivered since the last save comes once more after a crash. Broker and `serve` take over from each
# other: for a broker the log of what waits is written at the end; one that starts after a crash of ours reads the
# queue again from the first message that waits, and delivers what came behind it a second time.

# in one step at least so many, and more for so long: clients must not wait for a timer that is far behind
_AT_LEAST = 200
_STEP_SECONDS = 0.02
_LOOK_AFTER = 20
_SECOND_MS = 1000
# what is due when, and the offset in the timer's queue, in one number, so that many may wait
_OFFSET_BITS = 40
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class TimerService:
    """What waits for its time, by its offset in the timer's queue."""

    def __init__(self, broker: WritableBroker, found_waiting: Callable[[StoredMessage], None]) -> None:
        """Goes on where the checkpoint says. CorruptError and UnreadableError for a damaged one; RefusedError where the
        messages wait in a RocksDB. `found_waiting` gets each message that waits since before the broker began."""
        refuse_waiting_in_rocksdb(broker.files)
        self._broker = broker
        self._found_waiting = found_waiting
        layout = broker.files.layout
        self._checkpoint = found = read_timer_checkpoint(layout.config)
        first, end = broker.bounds(TIMER_TOPIC, 0)
        self._offset = first_to_read(found, first)
        # before the wheel goes, which says so
        files = broker.files
        self.precision = timer_precision(files.layout, files.config, files.descriptors)
        files.config = files.config._replace(timer_precision_ms=self.precision)
        self._messages = WaitingMessages(found, end, roll_window_ms(broker.files.config, self.precision))
        self._begun_at = end
        self._due: list[int] = []
        # by their times, once that is asked
        self._at: Counter[int] | None = None
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

    def figures(self) -> TimerFigures:
        """Return how far the timer is (TimerMessageStore#getDequeueBehind and the like); rates of the last minute."""
        broker, counts = self._broker, self._broker.counts
        nearest = self._due[0] >> _OFFSET_BITS if self._due else broker.clock()
        return TimerFigures(
            read_behind=max(0, broker.clock() - nearest) // _SECOND_MS,
            offset_behind=max(0, broker.bounds(TIMER_TOPIC, 0)[1] - self._offset),
            waiting=self.waiting,
            enqueue_tps=counts.per_second(TIMER_ENQUEUE, TIMER_TOPIC, broker.elapsed()),
            dequeue_tps=counts.per_second(TIMER_DEQUEUE, TIMER_TOPIC, broker.elapsed()),
        )

    def due_at(self, out: int) -> int:
        """Return how many messages wait for a time (ms)."""
        if self._at is None:
            self._at = Counter(self._messages.due.values())
        return self._at[out]

    def _count(self, out: int, change: int) -> None:
        if self._at is not None:
            self._at[out] += change
            if not self._at[out]:
                del self._at[out]

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
        if view is None or self._broker.is_hidden:
            return
        settings = self._broker.settings
        if not settings.timer_stop_enqueue:
            self._read(view)
        if not settings.timer_stop_dequeue:
            self._deliver(view, now)
        is_due = self._broker.elapsed() - self._saved_at >= settings.timer_flush_interval_ms
        if self._has_changed and self._knows_all and is_due:
            self._save(TimerState(self._current(now)))

    def delivered_until(self, now: int) -> int:
        """Return the time (ms) before which all that was due is delivered; 0 where that is not known yet."""
        if self.is_behind or self._offset < self._begun_at:
            return 0
        return min(now, self._due[0] >> _OFFSET_BITS) if self._due else now

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
                message = view.frame_of(unit, ahead)[1]
                out = self._messages.take(unit.queue_offset, message)
                if out is not None:
                    self._count(out, 1)
                    if unit.queue_offset < self._begun_at:
                        self._found_waiting(message)
                    heapq.heappush(self._due, out << _OFFSET_BITS | unit.queue_offset)
                    self._broker.counts.add(TIMER_ENQUEUE, TIMER_TOPIC, 1)
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
                if out + self.precision > now or (count >= _AT_LEAST and time.monotonic() >= until):
                    break
                if not self._is_delivered(view, offset, out, now):
                    return
                del self._messages.due[offset]
                self._count(out, -1)
                self._broker.counts.add(TIMER_DEQUEUE, TIMER_TOPIC, 1)
                self._has_changed = True
                count += 1
            heapq.heappop(self._due)
        taken_back = self._messages.taken_back
        for out in [out for out in taken_back if out + self.precision <= now and not self._is_next(out)]:
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
            properties["TIMER_ENQUEUE_MS"] = str(stored.store_timestamp // self.precision * self.precision)
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
        reached = min(now, nearest) // self.precision * self.precision
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
        if units is None or not fits(units, now, self._broker.settings.mapped_file_size_timer_log, self.precision):
            self._save(TimerState(checkpoint))
        else:
            self._save(TimerState(checkpoint._replace(master_timer_queue_offset=self._offset), units))

    def _units(self, checkpoint: TimerCheckpoint) -> list[TimerUnit] | None:
        """The log of what waits, in the order of the queue; None where it cannot be made. Its last unit shows a broker
        where to continue in the queue: if need be a delivered message, in a slot that is never read."""
        if not self._messages.due:
            return []
        view = self._broker.view(TIMER_TOPIC, 0)
        wanted = {offset: (out, False) for offset, out in self._messages.due.items()}
        for out, keys in self._messages.taken_back.items():
            wanted |= dict.fromkeys(keys.values(), (out, True))
        wanted.setdefault(self._offset - 1, (checkpoint.last_read_time_ms - self.precision, False))
        units: list[TimerUnit] = []
        for offset, (out, takes_back) in sorted(wanted.items()):
            unit: QueueUnit | None = None if view is None else view.queue.unit(offset)
            if unit is None or not unit.is_written:
                return None
            units.append(TimerUnit(out, unit.physical_offset, unit.size, takes_back))
        return units
