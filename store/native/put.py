"""The fast path of an ordinary message into the log: everything that is the same for many messages is looked up.

Ordinary is a new message for a queue that the slow path (`write/put.py`) has put to before, without a delay, a
transaction, further queues or IPv6, which fits into the reserved space of the current file. The bytes are the same on
both paths; the tests hold one against the other.

A caller may pass any value: a value of another type than expected, an unknown or an unusual one is left to the slow
path, and nothing has changed then. Between the first look at what puts share and the last change of
it no code of Python's runs in the compiled form, but for a clock that a caller brought: exact integers, texts, bytes
and dicts of texts have none. So a put is whole or not there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from rmqctl.formats.checksums import CRC_MASK
from rmqctl.formats.layouts import BLANK_FRAME, FRAME_HEAD_44, MESSAGE_MAGIC_V1, PROPERTIES_LENGTH
from rmqctl.formats.message import NO_PROPERTIES, Host, Message
from rmqctl.formats.properties import MAXIMUM_PROPERTIES_SIZE, PROPERTY_SEPARATOR
from rmqctl.store.native import uncompiled as cython
from rmqctl.store.native.tables import Frame, FrameSpan

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.memory import (
        copy,
        copy_bytes,
        copy_text,
        crc_of_bytes,
        fence,
        item,
        set_int,
        set_long,
        set_short,
    )

if not cython.compiled:
    from rmqctl.store.native.memory import (
        copy,
        copy_bytes,
        copy_text,
        crc_of_bytes,
        fence,
        item,
        set_int,
        set_long,
        set_short,
    )
    from rmqctl.store.native.uncompiled import LongRows, WritableBytes, views

_FIELD = {name: place for place, name in enumerate(Message._fields)}
_TOPIC, _BODY, _QUEUE_ID, _FLAG = _FIELD["topic"], _FIELD["body"], _FIELD["queue_id"], _FIELD["flag"]
_PROPERTIES, _PROPERTY_BYTES = _FIELD["properties"], _FIELD["property_bytes"]
_SYS_FLAG, _BORN, _BORN_HOST = _FIELD["sys_flag"], _FIELD["born_timestamp"], _FIELD["born_host"]
_STORED, _STORE_HOST = _FIELD["store_timestamp"], _FIELD["store_host"]
_RECONSUMED, _PREPARED = _FIELD["reconsume_times"], _FIELD["prepared_transaction_offset"]
_FIELDS, _HOST_FIELDS = len(Message._fields), len(Host._fields)

_AT = {name: at for name, _, at, _ in FRAME_HEAD_44.fields}
_SIZE_AT, _MAGIC_AT, _CRC_AT = _AT["total_size"], _AT["magic_code"], _AT["body_crc"]
_QUEUE_ID_AT, _FLAG_AT, _QUEUE_OFFSET_AT = _AT["queue_id"], _AT["flag"], _AT["queue_offset"]
_PHYSICAL_AT, _SYS_FLAG_AT, _BORN_AT = _AT["physical_offset"], _AT["sys_flag"], _AT["born_timestamp"]
_BORN_IP_AT, _BORN_PORT_AT, _STORED_AT = _AT["born_host_ip"], _AT["born_host_port"], _AT["store_timestamp"]
_STORE_IP_AT, _STORE_PORT_AT = _AT["store_host_ip"], _AT["store_host_port"]
_RECONSUMED_AT, _PREPARED_AT = _AT["reconsume_times"], _AT["prepared_transaction_offset"]
_BODY_LENGTH_AT, _HEAD, _LENGTH = _AT["body_length"], FRAME_HEAD_44.size, PROPERTIES_LENGTH.size
# size and magic number: what makes a frame one that is seen is written last
_FIRST = BLANK_FRAME.size
_IP_SIZE = _BORN_PORT_AT - _BORN_IP_AT
_MAGIC, _CRC_MASK, _PROPERTY_END = MESSAGE_MAGIC_V1, CRC_MASK, PROPERTY_SEPARATOR[0]
_LOWEST_INT, _HIGHEST_INT, _MILLION = -(1 << 31), (1 << 31) - 1, 1_000_000

# what `_write_properties` gives for what it does not write: names that are not known yet, anything that is unusual,
# and what takes more room than there is
_UNKNOWN, _UNUSUAL, _NO_ROOM = -2, -3, -4

# in a row: a time that is to be filled in
_NO_TIME = -(1 << 63)
_COLUMN_QUEUE_ID, _COLUMN_FLAG, _COLUMN_SYS_FLAG = int(Frame.QUEUE_ID), int(Frame.FLAG), int(Frame.SYS_FLAG)
_COLUMN_BORN, _COLUMN_BORN_HOST, _COLUMN_TOPIC = int(Frame.BORN_TIMESTAMP), int(Frame.BORN_HOST), int(Frame.TOPIC)
_COLUMN_RECONSUMED, _COLUMN_PREPARED = int(Frame.RECONSUME_TIMES), int(Frame.PREPARED)
_COLUMN_STORED = int(Frame.STORE_TIMESTAMP)
_BODY_SPAN, _PROPERTY_SPAN = int(FrameSpan.BODY), int(FrameSpan.PROPERTIES)


class KnownTopic(NamedTuple):
    """`field`: the topic with its length before it, as in the frame; `queues`: the next offsets of queues that were put
    to."""

    field: bytes
    queues: dict[int, NextOffset]


class PutParts(NamedTuple):
    """What the fast path of a store works with.

    `topics` by name. `names` of properties, each with its stored form and the separator behind it; `learn` gets
    properties with a name that is not among them. `is_busy` says whether the lock has been held for too long.
    `clock`: None for that of the system. `follower` is woken when it is idle. `slow` gets what is left.
    """

    topics: dict[str, KnownTopic]
    names: dict[str, bytes]
    learn: Callable[[Mapping[str, str]], object]
    state: PutState
    is_busy: Callable[[], bool]
    io: ModuleType
    clock: Callable[[], int] | None
    follower: Any
    slow: Callable[[Message, bool], Any]
    store_host: Host
    largest_body: int
    unusual_flags: int
    result_type: type[tuple[Any, ...]]
    stored: object


class NextOffset:
    """The offset that a queue's next message gets."""

    def __init__(self, value: int = 0) -> None:
        self.value = value


class Window:
    """The part of the current file that ordinary messages may use: the bytes before `limit`. The first byte of the file
    has `start_offset`."""

    def __init__(self, file: Any, mapped: Any, limit: int, start_offset: int) -> None:
        self.file = file
        self.view = mapped if cython.compiled else memoryview(mapped).cast("B")
        self.limit = limit
        self.start_offset = start_offset
        if not cython.compiled and self.view.readonly:
            raise BufferError("the map may only be read")

    def let_go(self) -> None:
        """Let the map be closed."""
        if cython.compiled:
            self.view = None
        else:
            self.view.release()


class PutState:
    """What all puts of a store share, on both paths. All of it is changed under `lock` only, but for
    `close_window`.

    `last_timestamp`: the store time of the last message, in ms of the writer's clock. `begin_in_lock`: since when the
    lock is held, in ms of the monotonic clock. `window`: None until the slow path has opened it.
    """

    def __init__(self, last_timestamp: int) -> None:
        self.lock = threading.Lock()
        self.last_timestamp = last_timestamp
        self.begin_in_lock: int | None = None
        self.window: Window | None = None
        self.is_open = False

    def room_of(self, file: Any, limit: int) -> int:
        """Bytes of `file` between the end of the log and `limit` that are not in the window yet."""
        begin: int = file.wrote_position
        if self.is_open and self.window is not None and self.window.file is file:
            begin = max(begin, self.window.limit)
        return max(0, limit - begin)

    def open_window(self, file: Any, mapped: Any, limit: int, start_offset: int) -> None:
        """Make the bytes before `limit` of `file`, the last one, the window."""
        if self.window is not None and self.window.file is file:
            self.window.limit = limit
        else:
            self.drop_window()
            self.window = Window(file, mapped, limit, start_offset)
        self.is_open = True

    def close_window(self) -> None:
        """Send every message to the slow path from now on. Needs no lock."""
        self.is_open = False

    def drop_window(self) -> None:
        """The same under the lock, so that the file can be closed."""
        self.is_open = False
        window = self.window
        self.window = None
        if window is not None:
            window.let_go()


class OrdinaryPuts:
    """Puts ordinary messages, and hands all others to the slow path."""

    def __init__(self, parts: PutParts) -> None:
        self._topics = parts.topics
        self._names = parts.names
        self._learn = parts.learn
        self._state = parts.state
        self._acquire = parts.state.lock.acquire
        self._release = parts.state.lock.release
        self._is_busy = parts.is_busy
        # the module's own: an attribute of a module takes twice the time
        self._io = vars(parts.io)
        self._clock = parts.clock
        self._nanoseconds = time.time_ns
        self._follower = parts.follower
        self._slow = parts.slow
        self._largest_body = parts.largest_body
        self._unusual_flags = parts.unusual_flags
        self._message_type = Message
        self._host_type = Host
        self._no_properties = NO_PROPERTIES
        self._result_type = parts.result_type
        self._stored = parts.stored
        self._new_result = tuple.__new__
        self._store_host = parts.store_host
        # used under the lock only
        self._head = bytearray(FRAME_HEAD_44.size)
        self._properties = bytearray(MAXIMUM_PROPERTIES_SIZE)
        set_int(self._head, _MAGIC_AT, _MAGIC)
        if not parts.store_host.is_v6:
            copy_bytes(self._head, _STORE_IP_AT, parts.store_host.ip)
            set_int(self._head, _STORE_PORT_AT, parts.store_host.port)

    @cython.binding(False)
    def put(self, message: Any) -> Any:
        """Put a new message."""
        answer = self.put_if_ordinary(message)
        return self._slow(message, False) if answer is None else answer

    def put_if_ordinary(self, message: Any) -> Any:
        """Put a message and answer at once; None, with nothing done, if it must take the slow path."""
        if type(message) is not self._message_type or not self._is_new(message):
            return None
        if self._state.begin_in_lock is not None and self._is_busy():
            return None
        answer = self._locked(message)
        if answer is False:
            self._learn(item(message, _PROPERTIES))
            answer = self._locked(message)
        if answer is None or answer is False:
            return None
        if self._follower.is_idle:
            self._follower.wake()
        return answer

    def _locked(self, message: Any) -> Any:
        """The same under the put lock; False if a name of a property is not known yet."""
        if cython.compiled:
            # half the time of `with`, and no signal is handled between these
            self._acquire()
            try:
                return self._put(message)
            finally:
                self._release()
        with self._state.lock:
            return self._put(message)

    def _put(self, message: Any) -> Any:
        state = self._state
        if not state.is_open or state.window is None or self._io.get("observer") is not None:
            return None
        known = self._topics.get(item(message, _TOPIC))
        if known is None:
            return None
        queues: dict[int, NextOffset] = item(known, 1)
        # an exact integer, whose comparison runs no code of anybody's
        next_offset: NextOffset | None = queues.get(item(message, _QUEUE_ID))
        if next_offset is None:
            return None
        now: cython.longlong
        now = number(self._nanoseconds()) // _MILLION if self._clock is None else number(self._clock())
        if now < state.last_timestamp:
            return None
        return self._write(message, item(known, 0), next_offset, now)

    def _is_new(self, message: Any) -> bool:
        """Whether all fields are there and have a type that is left alone."""
        return (
            # made by tuple.__new__ one can have fewer
            len(message) == _FIELDS
            and item(message, _PROPERTY_BYTES) is None
            and item(message, _STORED) is None
            and item(message, _STORE_HOST) is None
            and type(item(message, _TOPIC)) is str
            and type(item(message, _BODY)) is bytes
            and type(item(message, _QUEUE_ID)) is int
        )

    def _write_numbers(self, message: Any) -> None:
        """The numbers of a message to the head."""
        set_int(self._head, _QUEUE_ID_AT, int_number(item(message, _QUEUE_ID)))
        set_int(self._head, _FLAG_AT, int_number(item(message, _FLAG)))
        set_int(self._head, _SYS_FLAG_AT, int_number(item(message, _SYS_FLAG)))
        set_int(self._head, _RECONSUMED_AT, int_number(item(message, _RECONSUMED)))
        set_long(self._head, _PREPARED_AT, number(item(message, _PREPARED)))

    def _write_host(self, host: Any) -> None:
        """The host of a producer to the head. TypeError for one of IPv6."""
        if type(host) is not self._host_type or len(host) != _HOST_FIELDS:
            raise TypeError
        ip = item(host, 0)
        if type(ip) is not bytes or len(ip) != _IP_SIZE:
            raise TypeError
        copy_bytes(self._head, _BORN_IP_AT, ip)
        set_int(self._head, _BORN_PORT_AT, int_number(item(host, 1)))

    def _write_properties(self, target: WritableBytes, begin: cython.Py_ssize_t, properties: Any) -> cython.Py_ssize_t:
        """The stored form of properties to `target` from `begin` on; how many bytes these are."""
        used: cython.Py_ssize_t = begin
        if properties is self._no_properties:
            return 0
        if type(properties) is not dict:
            return _UNUSUAL
        given: dict[Any, Any] = properties
        try:
            for name, value in given.items():
                if type(name) is not str or type(value) is not str:
                    return _UNUSUAL
                stored_name = self._names.get(name)
                if stored_name is None:
                    return _UNKNOWN
                copy_bytes(target, used, stored_name)
                used += len(stored_name)
                used += copy_text(target, used, value, _PROPERTY_END)
                target[used] = _PROPERTY_END
                used += 1
        except IndexError:
            return _NO_ROOM
        except ValueError:
            return _UNUSUAL
        return used - begin

    def _write(self, message: Any, topic: bytes, next_offset: NextOffset, now: cython.longlong) -> Any:
        """Write the frame to its place, and note it in what puts share."""
        window = self._state.window
        body: bytes = item(message, _BODY)
        size: cython.Py_ssize_t
        born = item(message, _BORN)
        position: cython.longlong
        offset: cython.longlong
        end: cython.longlong
        at: cython.longlong
        try:
            self._write_numbers(message)
            self._write_host(item(message, _BORN_HOST))
            set_long(self._head, _BORN_AT, now if born is None else number(born))
        except (TypeError, OverflowError):
            return None  # a value of another type, or that no field holds: the slow path says which
        if len(body) > self._largest_body or number(item(message, _SYS_FLAG)) & self._unusual_flags:
            return None
        size = self._write_properties(self._properties, 0, item(message, _PROPERTIES))
        if size < 0:
            return False if size == _UNKNOWN else None
        if window is None:
            return None
        position = number(window.file.wrote_position)
        offset = next_offset.value
        end = position + _HEAD + len(body) + len(topic) + _LENGTH + size
        if end > window.limit:
            return None
        # made before anything is changed, because memory can be used up
        stored_end: object = end
        stored_time: object = now
        queue_offset: object = offset
        physical_offset: object = window.start_offset + position
        set_int(self._head, _SIZE_AT, end - position)
        set_int(self._head, _CRC_AT, crc_of_bytes(body) & _CRC_MASK)
        set_long(self._head, _QUEUE_OFFSET_AT, offset)
        set_long(self._head, _PHYSICAL_AT, window.start_offset + position)
        set_long(self._head, _STORED_AT, now)
        set_int(self._head, _BODY_LENGTH_AT, len(body))
        # a place beyond the map raises, and what was written before it lies behind the end of the log
        at = position + _HEAD
        copy_bytes(window.view, at, body)
        at += len(body)
        copy_bytes(window.view, at, topic)
        at += len(topic)
        set_short(window.view, at, size)
        copy(window.view, at + _LENGTH, self._properties, 0, size)
        copy(window.view, position + _FIRST, self._head, _FIRST, _HEAD - _FIRST)
        # the moment in which somebody else sees the frame, whole; nothing comes between this and what tells of it
        fence()
        copy(window.view, position, self._head, 0, _FIRST)
        window.file.wrote_position = stored_end
        window.file.committed_position = stored_end
        window.file.store_timestamp = stored_time
        self._state.last_timestamp = now
        next_offset.value = offset + 1
        return self._new_result(self._result_type, (self._stored, queue_offset, physical_offset, "", self._store_host))

    def fill_rows(
        self,
        messages: tuple[Any, ...],
        begin: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        topics: dict[str, int],
        hosts: dict[Host, int],
        columns: LongRows,
        starts: LongRows,
        ends: LongRows,
        usual: WritableBytes,
        text: WritableBytes,
        bodies: list[bytes],
    ) -> cython.Py_ssize_t:
        """Turn messages into rows [begin, end), and return up to where: `end`, or a row whose properties do not fit
        into what is left of `text`. A row that is not ordinary is not `usual` any more.

        `topics` and `hosts` give each its number, those of hosts from 1 on. `starts` and `ends` have a row for the
        places in `bodies` joined, and one for those in `text`.
        """
        row: cython.Py_ssize_t
        size: cython.Py_ssize_t
        body_at: cython.longlong = 0
        text_at: cython.longlong = 0
        if not cython.compiled:
            columns, starts, ends, usual, text = views(columns, starts, ends, usual, text)
        if begin:
            body_at, text_at = ends[_BODY_SPAN, begin - 1], ends[_PROPERTY_SPAN, begin - 1]
        for row in range(begin, end):
            message = messages[row]
            size = _UNUSUAL
            if self._fill_row(message, topics, hosts, columns, row):
                size = self._write_properties(text, text_at, item(message, _PROPERTIES))
                if size == _UNKNOWN:
                    self._learn(item(message, _PROPERTIES))
                    size = self._write_properties(text, text_at, item(message, _PROPERTIES))
                if size == _NO_ROOM:
                    return row
            starts[_BODY_SPAN, row] = body_at
            starts[_PROPERTY_SPAN, row] = text_at
            if size < 0:
                usual[row] = 0
            else:
                body = item(message, _BODY)
                bodies.append(body)
                body_at += len(body)
                text_at += size
            ends[_BODY_SPAN, row] = body_at
            ends[_PROPERTY_SPAN, row] = text_at
        return end

    def _fill_row(
        self,
        message: Any,
        topics: Any,
        hosts: Any,
        columns: LongRows,
        row: cython.Py_ssize_t,
    ) -> bool:
        """The numbers of a row; False for a message that is not ordinary."""
        if type(message) is not self._message_type or not self._is_new(message):
            return False
        host = item(message, _BORN_HOST)
        if type(host) is not self._host_type or len(host) != _HOST_FIELDS or type(item(host, 0)) is not bytes:
            return False
        born = item(message, _BORN)
        try:
            int_number(item(host, 1))
            columns[_COLUMN_QUEUE_ID, row] = number(item(message, _QUEUE_ID))
            columns[_COLUMN_FLAG, row] = number(item(message, _FLAG))
            columns[_COLUMN_SYS_FLAG, row] = number(item(message, _SYS_FLAG))
            columns[_COLUMN_RECONSUMED, row] = number(item(message, _RECONSUMED))
            columns[_COLUMN_PREPARED, row] = number(item(message, _PREPARED))
            columns[_COLUMN_BORN, row] = _NO_TIME if born is None else number(born)
        except (TypeError, OverflowError):
            return False
        if len(item(host, 0)) != _IP_SIZE:
            return False
        columns[_COLUMN_STORED, row] = _NO_TIME
        columns[_COLUMN_TOPIC, row] = topics.setdefault(item(message, _TOPIC), len(topics))
        columns[_COLUMN_BORN_HOST, row] = hosts.setdefault(host, len(hosts) + 1)
        return True


def number(value: object) -> cython.longlong:
    """An exact integer of 64 bits. TypeError and OverflowError for anything else."""
    if type(value) is not int:
        raise TypeError
    if not cython.compiled and not -(1 << 63) <= value < 1 << 63:
        raise OverflowError
    return value


def int_number(value: object) -> cython.longlong:
    """The same of 32 bits."""
    found: cython.longlong = number(value)
    if found < _LOWEST_INT or found > _HIGHEST_INT:
        raise OverflowError
    return found
