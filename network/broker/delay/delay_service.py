"""Delivers delayed messages when they are due, level by level (ScheduleMessageService)."""

from __future__ import annotations

from typing import Any

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.broker.delay.delivery import delivered, is_put
from rmqctl.network.broker.tables.config_table import config_table
from rmqctl.network.broker.writable_broker import WritableBroker
from rmqctl.store.answers.config_offsets import DELAY_FILE, OFFSET_TABLE, offsets_of
from rmqctl.store.answers.half_topics import HALF_TOPIC
from rmqctl.store.config.config_files import next_version
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.queues.unit import QueueUnit

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
        for level in range(1, len(self._delays) + 1):
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
