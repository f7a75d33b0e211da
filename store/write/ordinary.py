"""The short way of an ordinary message into the log: everything that is the same for many messages is looked up.

Ordinary is: a new message for a queue that the whole way (`store.write.put`) has put to before, without a delay, a
transaction, further queues or IPv6, which fits into the reserved room of the current file. The bytes are the same on
both ways; the tests hold one against the other.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections.abc import Callable, Mapping
from zlib import crc32

from formats import properties as names
from formats.checksums import CRC_MASK
from formats.hosts import Host
from formats.layouts import BLANK_FRAME, FRAME_HEAD_44, MESSAGE_MAGIC_V1, TOPIC_LENGTH_V1
from formats.message import NO_PROPERTIES, Message
from store.config import StoreConfig
from store.files.background import Background
from store.files.mapped_file import MappedFile
from store.queues.offset_table import NextOffset
from store.write.crc import fastest_crc32
from store.write.known import UNUSUAL_FLAGS, KnownTopic, Window, packed_host
from store.write.property_text import Writer, property_writer
from store.write.result import STORED, PutResult, new_result

_REMEMBERED = 4096
_WORTH_COMPILING = 2000
# The head behind its first eight bytes, and those, which are written last. The hosts are packed beforehand.
_pack_head = struct.Struct(
    ">" + "".join({"4s": "8s"}.get(kind, kind) for name, kind, _, _ in FRAME_HEAD_44.fields[2:] if "port" not in name)
).pack
_pack_first = BLANK_FRAME.struct.pack
# from here on the CRC of isal is the faster one
_SHORT = 256


def wall_clock() -> int:
    """Now, in ms since 1970."""
    return time.time_ns() // 1_000_000


def _not_compiled(message: Message) -> PutResult | None:
    return None


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
        self.last_timestamp = last_timestamp
        self.begin_in_lock: int | None = None
        self._follower = follower
        self.is_possible = is_ordinary_store(config) and not store_host.is_v6
        self._clock = clock
        self._busy_after = config.os_page_cache_busy_time_out_mills
        self._largest_body = config.max_message_size
        self._store_host = store_host
        self.packed_host = packed_host(store_host) or b""
        self.born_host: tuple[Host | None, bytes | None] = (None, None)
        self._writers: dict[tuple[str, ...], Writer] = {}
        self.names: dict[str, bytes] = {}
        self.known_topics: dict[str, KnownTopic] = {}
        self._crc32 = fastest_crc32()
        self.window: Window | None = None
        self._plain_puts = 0
        self._is_compiled = False
        self.put_compiled: Callable[[Message], PutResult | None] = _not_compiled
        """Puts a message and answers at once; None, with nothing done, if it must go another way."""

    # ---- under the put lock

    def learn(self, topic: str, queue_id: int, entry: NextOffset) -> None:
        """A message for this queue has gone the whole way, as new and into this very queue of 20-byte units."""
        known = self.known_topics.get(topic)
        if known is None:
            encoded = topic.encode("utf-8")
            if len(encoded) > 127:
                return
            field = TOPIC_LENGTH_V1.struct.pack(len(encoded)) + encoded
            known = self.known_topics[topic] = KnownTopic(field, {})
        known.queues[queue_id] = entry

    def window_of(self, file: MappedFile) -> int:
        """Bytes of reserved room in `file` behind the end of the log that are not in the window yet."""
        limit = min(file.writable_map.reserved, file.size - BLANK_FRAME.size)
        window = self.window
        used = window.limit if window is not None and window.file is file else file.wrote_position
        return max(0, limit - max(used, file.wrote_position))

    def open_window(self, file: MappedFile) -> None:
        """From now on the reserved room of `file`, which is the last one, is the window."""
        mapped = file.writable_map
        limit = min(mapped.reserved, file.size - BLANK_FRAME.size)
        self.window = Window(file, mapped.map, limit, file.start_offset)

    def close_window(self) -> None:
        """Send every message the whole way from now on. Needs no lock."""
        self.window = None

    # ---- without it

    def _learn_host(self, host: Host) -> bytes | None:
        packed = packed_host(host)
        self.born_host = host, packed
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
                self._learn_names(property_names)
        return write

    def _learn_names(self, property_names: tuple[str, ...]) -> None:
        with contextlib.suppress(UnicodeError):
            for name in property_names:
                self.names[name] = f"{name}\x01".encode()

    def put_plain(self, message: Message) -> PutResult | None:
        """Put `message` and answer at once; None, with nothing done, if it must go the whole way."""
        try:
            topic = self.known_topics.get(message.topic)
            next_offset = None if topic is None else topic.queues.get(message.queue_id)
            if topic is None or next_offset is None or not _may_be_ordinary(message) or self._is_busy():
                return None
        except (AttributeError, TypeError):
            return None  # of no message's types: the whole way says which
        body, properties = message.body, self.properties_of(message.properties)
        last_host, born_host = self.born_host
        if message.born_host is not last_host:
            born_host = self._learn_host(message.born_host)
        if properties is None or born_host is None:
            return None
        if len(body) > self._largest_body or len(properties) > names.MAXIMUM_PROPERTIES_SIZE:
            return None
        # of the stored body, 0 for none (UtilAll#crc32)
        crc = (crc32(body) if len(body) < _SHORT else self._crc32(body)) & CRC_MASK
        rest = b"".join((body, topic.field, len(properties).to_bytes(2, "big"), properties))
        with self.lock:
            try:
                result = self._append(message, crc, born_host, rest, next_offset)
            except struct.error:
                return None  # a value that no field holds: the whole way says which
            finally:
                self.begin_in_lock = None
        if result is not None:
            self._plain_puts += 1
            if self._follower.is_idle:
                self._follower.wake()
        return result

    def _is_busy(self) -> bool:
        begin = self.begin_in_lock
        return begin is not None and self._clock() - begin > self._busy_after

    def _append(
        self, message: Message, crc: int, born_host: bytes, rest: bytes, next_offset: NextOffset
    ) -> PutResult | None:
        """Under the put lock: a frame, whose head `rest` follows, if there is a window that it fits into."""
        window, now = self.window, self._clock()
        if window is None or now < self.last_timestamp:
            return None
        file = window.file
        position, queue_offset = file.wrote_position, next_offset.value
        end = position + FRAME_HEAD_44.size + len(rest)
        if end > window.limit:
            return None
        self.begin_in_lock = now
        physical_offset, born = window.start_offset + position, message.born_timestamp
        head = _pack_head(
            crc, message.queue_id, message.flag, queue_offset, physical_offset, message.sys_flag,
            now if born is None else born, born_host, now, self.packed_host, message.reconsume_times,
            message.prepared_transaction_offset, len(message.body),
        )  # fmt: skip
        file.writable_map.write_frame(position, _pack_first(end - position, MESSAGE_MAGIC_V1), head + rest)
        # no calls from here on, so that nothing comes between these
        file.wrote_position = file.committed_position = end
        file.store_timestamp = self.last_timestamp = now
        next_offset.value = queue_offset + 1
        return new_result(PutResult, (STORED, queue_offset, physical_offset, "", self._store_host))

    def use_compiled_if_worth_it(self) -> None:
        """Use compiled code once so many messages were put one by one that some seconds of compiling, at worst, are
        made up for."""
        if self._plain_puts >= _WORTH_COMPILING and not self._is_compiled:
            self._is_compiled = True
            self.use_compiled()

    def use_compiled(self) -> None:
        """Put by compiled code first from now on, if there is any. Loads numba where it is installed."""
        from store.write.compiled_put import compiled_put

        put = compiled_put(self, self._follower, self.names, self._store_host, self._largest_body)
        if put is None or self._clock is wall_clock:
            self.put_compiled = put or _not_compiled
        else:
            clock = self._clock
            self.put_compiled = lambda message: put(message, clock())


def _may_be_ordinary(message: Message) -> bool:
    return (
        type(message.body) is bytes
        and message.property_bytes is None
        and message.store_host is None
        and message.store_timestamp is None
        and not message.sys_flag & UNUSUAL_FLAGS
    )
