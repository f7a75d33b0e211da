"""Loads and tries the kernel that puts one message."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from formats.hosts import LOCAL_HOST, Host
from formats.layouts import TOPIC_LENGTH_V1
from formats.message import Message, frame_bytes, prepare_frame
from formats.properties import MAXIMUM_PROPERTIES_SIZE
from store.columns.engine import engine
from store.columns.tried import tried_native
from store.write.known import KnownTopic, Window, packed_host
from store.write.put_context import PutContext
from store.write.result import STORED, PutResult

if TYPE_CHECKING:
    from store.columns.native import Native
    from store.files.background import Background
    from store.write.ordinary import OrdinaryPuts

Put = Callable[..., PutResult | None]
"""put(message) or put(message, now): puts an ordinary message at `now` (ms, 0 for the time of the system) and answers;
None, with nothing done, if it must go another way."""


def compiled_put(
    ordinary: OrdinaryPuts, follower: Background, names: Mapping[str, bytes], store_host: Host, largest_body: int
) -> Put | None:
    """The compiled form for a store; None where nothing is compiled. Loads numba where it is installed.

    `names`: see PutContext.
    """
    used = engine()
    kernel = None if used.walk_window is None else _load(used.crc_function)
    if kernel is None:
        return None
    lock, wake, topics, packed = ordinary.lock, follower.wake, ordinary.known_topics, ordinary.packed_host
    parts = lock.locked, follower, wake, topics, names, store_host, packed, largest_body, used.crc_function, *_scratch()
    return kernel.bound_to(PutContext(ordinary, *parts))


def _scratch() -> tuple[int, object]:
    owner = ctypes.create_string_buffer(MAXIMUM_PROPERTIES_SIZE)
    return ctypes.addressof(owner), owner


@functools.cache
def _load(crc_function: int) -> Native | None:
    from store.write.kernel_put import make_put

    return tried_native(make_put, lambda kernel: _is_right(kernel.bound_to, crc_function))


def _is_right(made: Callable[[PutContext], Put], crc_function: int) -> bool:
    """Whether it puts as the plain form does, and refuses what it should, tried on small messages."""
    message = Message("Topic", b"body" * 20, 3, 4, {"KEYS": "ä"}, reconsume_times=5, prepared_transaction_offset=6)
    wanted = frame_bytes(prepare_frame(message, LOCAL_HOST, 77), 8, 1005, 77)
    packed, field = packed_host(LOCAL_HOST) or b"", TOPIC_LENGTH_V1.struct.pack(len(message.topic)) + b"Topic"
    target = bytearray(5 + len(wanted) + 5)
    file: Any = SimpleNamespace(wrote_position=5, committed_position=5, store_timestamp=0)
    next_offset: Any = SimpleNamespace(value=8)
    end = 5 + len(wanted)
    ordinary: Any = SimpleNamespace(window=None, born_host=(LOCAL_HOST, packed), last_timestamp=76)
    awake: Any = SimpleNamespace(is_idle=False)
    topics = {message.topic: KnownTopic(field, {3: next_offset})}
    parts = (
        lambda: None,
        topics,
        {"KEYS": b"KEYS\x01"},
        LOCAL_HOST,
        packed,
        len(message.body),
        crc_function,
        *_scratch(),
    )
    context = PutContext(ordinary, lambda: False, awake, *parts)
    put = made(context)
    refused: list[object] = [put(message, 77)]  # there is no window
    ordinary.window = Window(file, target, end - 1, 1000)
    refused.append(put(message, 77))
    ordinary.window = Window(file, target, end, 1000)
    refused += [put(message, 75), made(context._replace(is_locked=lambda: True))(message, 77), put((*message,), 77)]
    refused += [put(message._replace(**{name: value}), 77) for name, value in _REFUSED]
    if any(refused) or any(target):
        return False
    answer = put(message, 77)
    positions = (file.wrote_position, file.committed_position, file.store_timestamp, ordinary.last_timestamp)
    return (
        answer == PutResult(STORED, 8, 1005, "", LOCAL_HOST)
        and type(answer) is PutResult
        and (*positions, next_offset.value) == (end, end, 77, 77, 9)
        and target == bytes(5) + wanted + bytes(5)
    )


_REFUSED: tuple[tuple[str, Any], ...] = (
    ("topic", "Other"), ("body", "text"), ("body", b"a" * 81), ("flag", 1 << 31), ("queue_id", None), ("queue_id", 4),
    ("sys_flag", 4), ("born_timestamp", 1 << 63), ("born_host", Host(b"\x01\x02\x03\x04", 5)), ("property_bytes", b""),
    ("store_timestamp", 0), ("store_host", LOCAL_HOST), ("properties", {"A": ""}), ("properties", {"KEYS": "\x02"}),
    ("properties", {"KEYS": 1}), ("properties", ()),
)  # fmt: skip
