"""The short way of an ordinary message into the log: everything that is the same for many messages is looked up.

Ordinary is: a new message for a queue that the whole way (`store.write.put`) has put to before, without a delay, a
transaction, further queues or IPv6, which fits into the reserved room of the current file. The bytes are the same on
both ways; the tests hold one against the other.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple
from zlib import crc32

from formats import properties as names
from formats.checksums import CRC_MASK
from formats.hosts import Host
from formats.layouts import (
    BLANK_FRAME,
    FRAME_HEAD_44,
    MESSAGE_MAGIC_V1,
    PROPERTIES_LENGTH,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
    TRANSACTION_MASK,
)
from formats.message import NO_PROPERTIES, Message
from store.config import StoreConfig
from store.files.background import Background
from store.files.mapped_file import MappedFile
from store.queues.offset_table import NextOffset
from store.write.crc import fastest_crc32
from store.write.property_text import Writer, property_writer
from store.write.result import STORED, PutResult, new_result

# flags that make a message take the whole way
UNUSUAL_FLAGS = TRANSACTION_MASK | SYS_FLAG_INNER_BATCH | SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_REMEMBERED = 4096
# The head behind its first eight bytes, and those, which are written last. The hosts are packed beforehand.
_pack_head = struct.Struct(
    ">" + "".join({"4s": "8s"}.get(kind, kind) for name, kind, _, _ in FRAME_HEAD_44.fields[2:] if "port" not in name)
).pack
_pack_first = BLANK_FRAME.struct.pack
_OVERHEAD = FRAME_HEAD_44.size + TOPIC_LENGTH_V1.size + PROPERTIES_LENGTH.size
# from here on the CRC of isal is the faster one
_SHORT = 256


class KnownTopic(NamedTuple):
    """`field`: the topic with its length before it, as in the frame; `overhead`: bytes of a frame besides body and
    properties; `queues`: the next offsets of queues that were put to."""

    field: bytes
    overhead: int
    queues: dict[int, NextOffset]

    @staticmethod
    def overhead_of(size: int) -> int:
        """Bytes of a frame besides body and properties, for a topic of `size` bytes."""
        return _OVERHEAD + size


def wall_clock() -> int:
    """Now, in ms since 1970."""
    return time.time_ns() // 1_000_000


def _no_window(position: int, first: bytes, rest: bytes) -> None:
    raise AssertionError("a write before there was a window")


def is_ordinary_store(config: StoreConfig) -> bool:
    """Whether messages of this store can go the short way at all: not where puts wait or frames are completed late."""
    return (
        config.flush_disk_type != "SYNC_FLUSH"
        and not config.transient_store_pool_enable
        and not config.enabled_append_prop_crc
        and (config.broker_role != "SLAVE" or config.duplication_enable)
    )


class OrdinaryPuts:
    """Puts ordinary messages, and keeps what all puts share: `lock`, `last_timestamp`, and since when the lock is held.

    `begin_in_lock` and `last_timestamp` in ms of `clock`. The window is the room in the current file that such
    messages may use: none where the store is not ordinary, is closed or failed.
    """

    def __init__(
        self,
        config: StoreConfig,
        store_host: Host,
        clock: Callable[[], int],
        last_timestamp: int,
        follower: Background,
    ) -> None:
        """`follower` is woken when he is idle and there is more to follow."""
        self.lock = threading.Lock()
        self._acquire, self._release = self.lock.acquire, self.lock.release
        self.last_timestamp = last_timestamp
        self.begin_in_lock: int | None = None
        self._follower = follower
        self.is_possible = is_ordinary_store(config) and not store_host.is_v6
        self._clock = clock
        self._nanoseconds = time.time_ns if clock is wall_clock else lambda: clock() * 1_000_000
        self._busy_after = config.os_page_cache_busy_time_out_mills
        self._largest_body = config.max_message_size
        self._store_host = store_host
        self.packed_host = packed_host(store_host) or b""
        self._born_host: tuple[Host | None, bytes | None] = (None, None)
        self._writers: dict[tuple[str, ...], Writer] = {}
        self.known_topics: dict[str, KnownTopic] = {}
        self._crc32 = fastest_crc32()
        self._file: MappedFile | None = None
        self._write_frame: Callable[[int, bytes, bytes], None] = _no_window
        self._limit = 0

    # ---- under the put lock

    def learn(self, topic: str, queue_id: int, entry: NextOffset) -> None:
        """A message for this queue has gone the whole way, as new and into this very queue of 20-byte units."""
        known = self.known_topics.get(topic)
        if known is None:
            encoded = topic.encode("utf-8")
            if len(encoded) > 127:
                return
            field = TOPIC_LENGTH_V1.struct.pack(len(encoded)) + encoded
            known = self.known_topics[topic] = KnownTopic(field, KnownTopic.overhead_of(len(encoded)), {})
        known.queues[queue_id] = entry

    def window_of(self, file: MappedFile) -> int:
        """Bytes of reserved room in `file` behind the end of the log that are not in the window yet."""
        limit = min(file.writable_map.reserved, file.size - BLANK_FRAME.size)
        used = self._limit if file is self._file else file.wrote_position
        return max(0, limit - max(used, file.wrote_position))

    def open_window(self, file: MappedFile) -> None:
        """From now on the reserved room of `file`, which is the last one, is the window."""
        mapped = file.writable_map
        self._file, self._write_frame = file, mapped.write_frame
        self._limit = min(mapped.reserved, file.size - BLANK_FRAME.size)

    def close_window(self) -> None:
        """Send every message the whole way from now on. Needs no lock."""
        self._limit = 0

    # ---- without it

    def _learn_host(self, host: Host) -> bytes | None:
        packed = packed_host(host)
        self._born_host = host, packed
        return packed

    def properties_of(self, properties: Mapping[str, str]) -> bytes | None:
        """The stored form of ordinary properties; None for any other, and for what is no text."""
        if type(properties) is not dict and properties is not NO_PROPERTIES:
            return None
        write = self._writer_of(tuple(properties))
        if write is None:
            return None
        try:
            text = write(properties)
            return None if text is None else text.encode()
        except (UnicodeError, TypeError):
            return None

    def _writer_of(self, property_names: tuple[str, ...]) -> Writer | None:
        write = self._writers.get(property_names)
        if write is None:
            write = property_writer(property_names)
            if write is not None and len(self._writers) < _REMEMBERED:
                self._writers[property_names] = write
        return write

    def put(self, message: Message) -> PutResult | None:
        """Put `message` and answer at once; None, with nothing done, if it must go the whole way."""
        # a slice of a named tuple is a plain one, which is taken apart at once
        (
            topic_name, body, queue_id, flag, properties, property_bytes, sys_flag, born, born_host,
            store_timestamp, store_host, reconsume_times, prepared,
        ) = message[:]  # fmt: skip
        topic = self.known_topics.get(topic_name)
        if (
            topic is None
            or (type(properties) is not dict and properties is not NO_PROPERTIES)
            or type(body) is not bytes
            or property_bytes is not None
            or sys_flag & UNUSUAL_FLAGS
            or store_host is not None
            or store_timestamp is not None
        ):
            return None
        field, overhead, queues = topic
        next_offset = queues.get(queue_id)
        shape = tuple(properties)
        write = self._writers.get(shape) or self._writer_of(shape)
        last_host, packed_born = self._born_host
        if born_host is not last_host:
            packed_born = self._learn_host(born_host)
        if next_offset is None or write is None or packed_born is None:
            return None
        begin = self.begin_in_lock
        if begin is not None and self._clock() - begin > self._busy_after:
            return None
        try:
            text = write(properties)
            if text is None:
                return None
            encoded = text.encode()
        except (UnicodeError, TypeError):  # half a surrogate pair, or no text at all
            return None
        length, properties_size = len(body), len(encoded)
        if length > self._largest_body or properties_size > names.MAXIMUM_PROPERTIES_SIZE:
            return None
        # of the stored body, 0 for none (UtilAll#crc32)
        crc = (crc32(body) if length < _SHORT else self._crc32(body)) & CRC_MASK
        self._acquire()  # `with` takes twice as long
        try:
            file = self._file
            if file is None:
                return None
            position = file.wrote_position
            end = position + overhead + length + properties_size
            now = self._nanoseconds() // 1_000_000
            if end > self._limit or now < self.last_timestamp:
                return None
            self.begin_in_lock = now
            queue_offset, physical_offset = next_offset.value, file.start_offset + position
            head = _pack_head(
                crc, queue_id, flag, queue_offset, physical_offset, sys_flag,
                now if born is None else born, packed_born, now, self.packed_host, reconsume_times, prepared, length,
            )  # fmt: skip
            self._write_frame(
                position,
                _pack_first(end - position, MESSAGE_MAGIC_V1),
                b"".join((head, body, field, properties_size.to_bytes(2, "big"), encoded)),
            )
            # no calls from here on, so that nothing comes between these
            file.wrote_position = file.committed_position = end
            file.store_timestamp = self.last_timestamp = now
            next_offset.value = queue_offset + 1
        except struct.error:
            return None  # a value that no field holds: the whole way says which
        finally:
            self.begin_in_lock = None
            self._release()
        if self._follower.is_idle:
            self._follower.wake()
        return new_result(PutResult, (STORED, queue_offset, physical_offset, "", self._store_host))


def packed_host(host: Host | None) -> bytes | None:
    """The eight bytes of an IPv4 host in a frame; None for IPv6, and for what is no host at all."""
    if host is None:
        return None
    try:
        return host.ip + host.port.to_bytes(4, "big", signed=True) if len(host.ip) == 4 else None
    except (AttributeError, OverflowError, TypeError):
        return None
