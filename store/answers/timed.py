"""All that waits for its time, levels and then the timer, that by the queue it is for: `rmqctl delays`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError, UnreadableError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.wording import counted
from rmqctl.store.answers.config_offsets import Say, whole_number
from rmqctl.store.answers.delays import DAMAGED, DELIVERED, TIMER, UNKNOWN, WAITING, DelayLevel, delay_levels
from rmqctl.store.files.presence import exists
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage
from rmqctl.store.timer.timer_state import CHECKPOINT_FILE, TimerCheckpoint, read_timer_checkpoint, timer_log_units
from rmqctl.store.timer.waiting import WaitingMessages, first_to_read


class _Target(NamedTuple):
    """Where a message goes when it is due; None what it does not say."""

    topic: str | None
    queue_id: int | None


class _Timed(NamedTuple):
    """A message that waits."""

    unique_key: str
    target: _Target


def delays(reader: StoreReader, tell: Say, on_damage: OnDamage) -> Iterator[DelayLevel]:
    """The levels that have a queue, then what waits in the timer. UnsupportedError for queues in a RocksDB."""
    yield from delay_levels(reader, tell, on_damage)
    yield from timed(reader, tell, on_damage)


def timed(reader: StoreReader, tell: Say, on_damage: OnDamage) -> Iterator[DelayLevel]:
    """A row for each queue that messages wait for, the one that is due first at the top; one row without a target where
    none waits, where damage hides how many, or where it is not known; none where the timer was never used.

    What waits is in the timer's log, as far as the checkpoint says that it has been put there, and behind that in the
    timer's queue. Where the log cannot be read all of the queue is, which is told. UnsupportedError, UnreadableError.
    """
    queue = reader.files.queues.find(TIMER_TOPIC, 0)
    config = reader.files.layout.config
    if queue is None or not queue.max_offset:
        has_run = _checkpoint(reader, on_damage)
        if has_run is not None and has_run.last_timer_queue_offset > 0:
            taken = has_run.last_timer_queue_offset
            missing = f"the timer has taken {counted(taken, 'message')}, but its queue has no files"
            detail = f"{missing}: rmqctl rebuild --queues -t {TIMER_TOPIC}"
            yield DelayLevel(None, None, UNKNOWN, taken, None, None, None, kind=TIMER, detail=detail)
        return
    begin, end = queue.min_offset(reader.files.log.min_offset), queue.max_offset
    checkpoint = _checkpoint(reader, on_damage)
    if checkpoint is None:
        missing = f"{config / CHECKPOINT_FILE} is damaged: nobody knows what was delivered"
        yield DelayLevel(None, None, UNKNOWN, None, begin, end, None, kind=TIMER, detail=missing)
        return
    if not exists(config / CHECKPOINT_FILE):
        tell(f"{config / CHECKPOINT_FILE} is not there: a broker would deliver all that is in the timer's queue")
    search = _Search(reader, queue, checkpoint, tell, on_damage)
    search.read()
    row = DelayLevel(None, None, DELIVERED, checkpoint.last_timer_queue_offset, begin, end, 0, kind=TIMER)
    yield from search.rows(row)


def waiting_for(reader: StoreReader, is_wanted: Callable[[str], bool], on_damage: OnDamage) -> Iterator[StoredMessage]:
    """The messages that wait in the timer for topics that are wanted, in the order of the timer's queue. Errors as of
    `timed`; none where nobody knows what waits."""
    queue = reader.files.queues.find(TIMER_TOPIC, 0)
    checkpoint = _checkpoint(reader, on_damage)
    if queue is None or checkpoint is None:
        return
    search = _Search(reader, queue, checkpoint, lambda _: None, on_damage)
    search.read()
    yield from search.messages(is_wanted)


def _checkpoint(reader: StoreReader, on_damage: OnDamage) -> TimerCheckpoint | None:
    try:
        return read_timer_checkpoint(reader.files.layout.config)
    except CorruptError as error:
        on_damage(error)
        return None


class _Search:
    """Finds what waits, and counts what cannot be read."""

    def __init__(
        self, reader: StoreReader, queue: AnyConsumeQueue, checkpoint: TimerCheckpoint, tell: Say, on_damage: OnDamage
    ) -> None:
        self._reader = reader
        self._queue = queue
        self._view = reader.view_without_ext(queue)
        self._begin = queue.min_offset(reader.files.log.min_offset)
        self._checkpoint = checkpoint
        self._tell = tell
        self._on_damage = on_damage
        self._messages = WaitingMessages(checkpoint, queue.max_offset)
        self._found: dict[int, _Timed] = {}
        self._damaged = 0

    def read(self) -> None:
        """Take every message that may wait."""
        on_wheel = self._on_wheel()
        if on_wheel is None:
            self._take_queue(first_to_read(self._checkpoint, self._begin))
            return
        for message in sorted(on_wheel, key=lambda one: one.queue_offset):
            self._take(message.queue_offset, message)
        self._take_queue(max(self._begin, self._messages.known))

    def messages(self, is_wanted: Callable[[str], bool]) -> Iterator[StoredMessage]:
        """Those for topics that are wanted, read again."""
        for offset in sorted(self._messages.due):
            unit = self._queue.unit(offset) if is_wanted(self._found[offset].target.topic or "") else None
            if unit is not None:
                with contextlib.suppress(NotFoundError):  # removed by a cleaner while we looked
                    yield self._view.message_of(unit)

    def rows(self, row: DelayLevel) -> Iterator[DelayLevel]:
        """One for each target."""
        of_target: dict[_Target, list[int]] = {}
        taken_back = 0
        for offset, out in self._messages.due.items():
            message = self._found[offset]
            if self._messages.is_taken_back(message.unique_key, out):
                taken_back += 1
            else:
                of_target.setdefault(message.target, []).append(out)
        if taken_back:
            self._tell(f"{counted(taken_back, 'message')} of the timer were taken back, and are not among these")
        for target, times in sorted(of_target.items(), key=lambda one: min(one[1])):
            yield row._replace(
                state=WAITING,
                pending=len(times),
                first_due_timestamp=min(times),
                last_due_timestamp=max(times),
                target_topic=target.topic,
                target_queue_id=target.queue_id,
            )
        if self._damaged:
            hidden = f"{counted(self._damaged, 'message')} of the timer cannot be read, and may wait"
            yield row._replace(state=DAMAGED, pending=None, detail=hidden)
        elif not of_target:
            yield row

    def _on_wheel(self) -> list[StoredMessage] | None:
        """Messages in the timer's log that may wait; None where it cannot be read, or was never written to."""
        end = self._checkpoint.last_timer_log_flush_pos
        if end <= 0:
            return None
        files = self._reader.files
        found: dict[int, StoredMessage] = {}
        try:
            for unit in timer_log_units(files.layout, files.descriptors, end):
                if unit.out < self._checkpoint.last_read_time_ms:
                    continue
                try:
                    found[unit.physical_offset] = self._reader.lookup(unit.physical_offset)
                except NotFoundError:  # expired before it was due
                    continue
                except CorruptError as error:
                    self._damage(error)
        except (CorruptError, UnreadableError) as error:
            count = counted(self._queue.max_offset - self._begin, "message")
            self._tell(f"the timer's log cannot be read ({error}): {count} of its queue were read instead")
            self._damaged = 0
            return None
        return list(found.values())

    def _take_queue(self, begin: int) -> None:
        for unit in self._queue.units(begin, self._queue.max_offset):
            try:
                self._take(unit.queue_offset, self._view.message_of(unit))
            except NotFoundError:  # removed by a cleaner while we looked
                continue
            except CorruptError as error:
                self._damage(error)

    def _take(self, offset: int, message: StoredMessage) -> None:
        if offset in self._found:
            return
        try:
            if self._messages.take(offset, message) is None:
                return
        except CorruptError as error:
            self._tell(f"passed over, as a broker does: {error.message}")
            return
        properties = message.properties()
        target = _Target(properties.get(names.REAL_TOPIC), whole_number(properties.get(names.REAL_QUEUE_ID, "")))
        self._found[offset] = _Timed(properties.get(names.UNIQUE_KEY, ""), target)

    def _damage(self, error: CorruptError) -> None:
        self._on_damage(error)
        self._damaged += 1
