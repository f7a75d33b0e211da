"""The fast path of an ordinary message into the log: everything that is the same for many messages is looked up.

Ordinary is: a new message for a queue that the slow path (`write/put.py`) has put to before, without a delay, a
transaction, further queues or IPv6, which fits into the reserved room of the current file. The bytes are the same on
both paths; the tests hold one against the other. The compiled form of this module is `fast_path.c`.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any, cast
from zlib import crc32

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import CRC_MASK
from rmqctl.formats.hosts import Host
from rmqctl.formats.layouts import BLANK_FRAME, FRAME_HEAD_44, MESSAGE_MAGIC_V1
from rmqctl.formats.message import Message
from rmqctl.store.files.background import Background
from rmqctl.store.files.mapped_file import monotonic_ms
from rmqctl.store.write.fast.known import UNUSUAL_FLAGS, Known, packed_host
from rmqctl.store.write.put import STORED, PutResult, PutState, new_result

Put = Callable[[Message, bool], PutResult]
"""put(message, as_stored): puts one message, whatever path it takes."""
PutIfOrdinary = Callable[[Message, bool], PutResult | None]
"""The same on the fast path; None, with nothing done, for what must take the slow one."""

# The head behind its first eight bytes, and those, which are written last. The hosts are packed beforehand.
_pack_head = struct.Struct(
    ">" + "".join({"4s": "8s"}.get(kind, kind) for name, kind, _, _ in FRAME_HEAD_44.fields[2:] if "port" not in name)
).pack
_pack_first = BLANK_FRAME.struct.pack
_HEAD = FRAME_HEAD_44.size
# from here on the CRC of isal is the faster one
_SHORT = 256


def left_alone(message: Message, as_stored: bool) -> Any:
    """In the place of the slow path: makes a `Put` a `PutIfOrdinary`."""
    return None


def wall_clock() -> int:
    """Now, in ms since 1970."""
    return time.time_ns() // 1_000_000


class OrdinaryPuts:
    """Puts ordinary messages, and hands all others to `slow`."""

    def __init__(
        self, known: Known, state: PutState, clock: Callable[[], int], busy_after: int, follower: Background, slow: Put
    ) -> None:
        """`clock` tells ms. `busy_after`: ms for which somebody may hold the lock before a put is refused.
        `follower` is woken when he is idle and there is more to follow, or, before that, to flush."""
        self._known = known
        self._topics = known.topics
        self._state = state
        self._clock = clock
        self._busy_after = busy_after
        self._follower = follower
        self._slow = slow
        self._store_host = known.store_host
        self._packed_store_host = known.packed_store_host
        self._born_host: tuple[Host | None, bytes | None] = (None, None)
        self._crc32 = _fastest_crc32()

    def put(self, message: Message, as_stored: bool) -> PutResult:
        """Put a message; see MessageStore.put."""
        return (None if as_stored else self.put_if_ordinary(message)) or self._slow(message, as_stored)

    def put_if_ordinary(self, message: Message) -> PutResult | None:
        """Put `message` and answer at once; None, with nothing done, if it must take the slow path."""
        try:
            (
                topic, body, queue_id, flag, properties, property_bytes, sys_flag, born, host, store_timestamp,
                store_host, reconsume_times, prepared,
            ) = message  # fmt: skip
            known = self._topics.get(topic)
            next_offset = None if known is None else known.queues.get(queue_id)
            if (
                known is None
                or next_offset is None
                or type(body) is not bytes
                or property_bytes is not None
                or store_host is not None
                or store_timestamp is not None
                or sys_flag & UNUSUAL_FLAGS
                or (self._state.begin_in_lock is not None and self._is_busy())
            ):
                return None
        except (TypeError, ValueError):
            return None  # a value of another type: the slow path says which
        stored = self._known.properties_of(properties)
        last_host, born_host = self._born_host
        if host is not last_host:
            born_host = packed_host(host)
            self._born_host = host, born_host
        length = len(body)
        if stored is None or born_host is None or length > self._known.largest_body:
            return None
        if len(stored) > names.MAXIMUM_PROPERTIES_SIZE:
            return None
        # of the stored body, 0 for none (UtilAll#crc32)
        crc = (crc32(body) if length < _SHORT else self._crc32(body)) & CRC_MASK
        rest = b"".join((body, known.field, len(stored).to_bytes(2, "big"), stored))
        state = self._state
        with state.lock:
            window, now = state.window, self._clock()
            if window is None or now < state.last_timestamp:
                return None
            file = window.file
            position, queue_offset = file.wrote_position, next_offset.value
            end = position + _HEAD + len(rest)
            if end > window.limit:
                return None
            state.begin_in_lock = monotonic_ms()
            physical_offset = window.start_offset + position
            try:
                head = _pack_head(
                    crc, queue_id, flag, queue_offset, physical_offset, sys_flag, now if born is None else born,
                    born_host, now, self._packed_store_host, reconsume_times, prepared, length,
                )  # fmt: skip
                file.writable_map.write_frame(position, _pack_first(end - position, MESSAGE_MAGIC_V1), head + rest)
                # no calls from here on, so that nothing comes between these
                file.wrote_position = file.committed_position = end
                file.store_timestamp = state.last_timestamp = now
                next_offset.value = queue_offset + 1
            except struct.error:
                return None  # a value that no field holds: the slow path says which
            finally:
                state.begin_in_lock = None
        if self._follower.is_idle:
            self._follower.wake()
        return new_result(PutResult, (STORED, queue_offset, physical_offset, "", self._store_host))

    def _is_busy(self) -> bool:
        begin = self._state.begin_in_lock
        return begin is not None and monotonic_ms() - begin > self._busy_after


def _fastest_crc32() -> Callable[[bytes], int]:
    """A function that answers as `zlib.crc32` does: that of the wheel isal where it is installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        return crc32
    return cast(Callable[[bytes], int], isal_zlib.crc32)
