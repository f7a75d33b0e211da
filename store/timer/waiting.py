"""Which messages of the timer's queue still wait: the one rule, for the timer of `serve` and for questions alike."""

from __future__ import annotations

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError
from rmqctl.formats.hashing import parse_long
from rmqctl.formats.message import StoredMessage
from rmqctl.store.timer.timer_state import TimerCheckpoint

# timerRollWindowSlot: what waits longer than so many seconds is stored once more by a broker when they are over
_ROLL_MS = 172_800_000


class WaitingMessages:
    """What waits, as far as `take` was told of it: when each is due (ms), by its offset in the timer's queue."""

    def __init__(self, checkpoint: TimerCheckpoint, end: int) -> None:
        """`end`: of the timer's queue."""
        self.due: dict[int, int] = {}
        self.taken_back: dict[int, dict[str, int]] = {}
        """By the time when they are due: unique keys that are not delivered then, and the offset of who said so."""
        # before this offset what was due before that time is delivered
        self.known = min(max(checkpoint.last_timer_queue_offset, 0), end)
        self._delivered_before = checkpoint.last_read_time_ms
        # by id and time, messages that a broker may have stored once more
        self._long: dict[tuple[str, int], int] = {}

    def take(self, offset: int, stored: StoredMessage) -> int | None:
        """When the message at `offset` of the queue is due, if it waits; None if it was delivered, or takes another one
        back. Messages come in the order of the queue. CorruptError for one that is none of the timer's."""
        properties = stored.properties()
        out = due_time(properties.get(names.TIMER_OUT_MS, ""))
        if out is None or names.REAL_TOPIC not in properties:
            raise CorruptError(f"the message at {stored.physical_offset} does not say when it is due, and where")
        unique_key = properties.get(names.UNIQUE_KEY, "")
        if offset < self.known and out < self._delivered_before:
            return None
        if names.TIMER_ROLL_TIMES in properties:
            self.due.pop(self._long.pop((unique_key, out), -1), None)
        taken_back = properties.get(names.TIMER_DELETE_UNIQUE_KEY)
        if taken_back is not None:
            self.taken_back.setdefault(out, {})[taken_back] = offset
            return None
        if offset < self.known and out - stored.store_timestamp >= _ROLL_MS:
            self._long[unique_key, out] = offset
        self.due[offset] = out
        return out

    def is_taken_back(self, unique_key: str, out: int) -> bool:
        """Whether the message with this key that is due at `out` is not to be delivered."""
        return unique_key in self.taken_back.get(out, {})


def due_time(text: str) -> int | None:
    """The time (ms) in the property TIMER_OUT_MS; None for what is none."""
    time = parse_long(text)
    return time if time is not None and time >= 0 else None


def first_to_read(checkpoint: TimerCheckpoint, begin: int) -> int:
    """The offset from which on the timer's queue, which begins at `begin`, has to be read to know all that waits."""
    again = checkpoint.master_timer_queue_offset
    return max(begin, again) if 0 <= again < checkpoint.last_timer_queue_offset else begin
