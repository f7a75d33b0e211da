"""The compiled fast path (fast_path.c) of a store, tried before it is used; none where there is none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, Protocol, cast

from rmqctl.formats.hosts import LOCAL_HOST, Host
from rmqctl.formats.layouts import TOPIC_LENGTH_V1
from rmqctl.formats.message import NO_PROPERTIES, Message, frame_bytes, prepare_frame
from rmqctl.store.compiled.extensions import crc_address, load_extension
from rmqctl.store.files import io
from rmqctl.store.files.background import Background
from rmqctl.store.status import PutStatus
from rmqctl.store.write.fast.known import UNUSUAL_FLAGS, Known, KnownTopic, packed_host
from rmqctl.store.write.fast.ordinary import Put, wall_clock
from rmqctl.store.write.put import STORED, PutResult, PutState, Window

_SOURCES = ("store/write/fast/fast_path.c", "formats/layouts.h", "store/compiled/crc32.h")


class FastPath(Protocol):
    """The compiled fast path of one store."""

    def put(self, message: Message, as_stored: bool, /) -> PutResult:
        """See `OrdinaryPuts.put`."""

    def fill_rows(self, *arguments: object) -> int:
        """See `message_rows`."""


class FastParts(NamedTuple):
    """What a FastPath holds, in the order in which fast_path.c names it. `is_locked` and `wake` are those of `state`
    and `follower`; `clock`: None for that of the system; `otherwise` puts what is not put here."""

    state: PutState
    is_locked: Callable[[], bool]
    topics: Mapping[str, KnownTopic]
    names: Mapping[str, bytes]
    io: ModuleType
    follower: Background
    wake: Callable[[], None]
    clock: Callable[[], int] | None
    otherwise: Put
    store_host: Host
    result_type: type = PutResult
    stored: PutStatus = STORED
    message_type: type = Message
    host_type: type = Host
    no_properties: Mapping[str, str] = NO_PROPERTIES


def fast_path(
    known: Known, state: PutState, follower: Background, clock: Callable[[], int], otherwise: Put
) -> FastPath | None:
    """The compiled fast path of a store; None where there is none (see `why_slow`)."""
    module, _ = _load()
    if module is None or not known.is_possible:
        return None
    parts = FastParts(
        state, state.lock.locked, known.topics, known.names, io, follower, follower.wake,
        None if clock is wall_clock else clock, otherwise, known.store_host,
    )  # fmt: skip
    return _made(module, parts, known.packed_store_host, known.largest_body)


def why_slow() -> str | None:
    """Why messages are put more slowly here than they could be, as a sentence for people; None where they are not."""
    return _load()[1]


def _made(module: ModuleType, parts: FastParts, packed_store_host: bytes, largest_body: int) -> FastPath:
    return cast(FastPath, module.FastPath(tuple(parts), packed_store_host, largest_body, UNUSUAL_FLAGS, crc_address()))


@functools.cache
def _load() -> tuple[ModuleType | None, str | None]:
    """The module, or why there is none."""
    module, why = load_extension("rmqctl.store.write.fast.fast_path", "fast path", _SOURCES, _is_right)
    return module, None if why is None else f"messages are put more slowly because {why}"


def _is_right(module: ModuleType) -> bool:
    """Whether it puts as the plain form does, and refuses what it should, tried on small messages."""
    message = Message("Topic", b"body" * 20, 3, 4, {"KEYS": "ä"}, reconsume_times=5, prepared_transaction_offset=6)
    wanted = frame_bytes(prepare_frame(message, LOCAL_HOST, 77), 8, 1005, 77)
    packed, end = packed_host(LOCAL_HOST) or b"", 5 + len(wanted)
    target = bytearray(end + 5)
    file: Any = SimpleNamespace(wrote_position=5, committed_position=5, store_timestamp=0)
    next_offset: Any = SimpleNamespace(value=8)
    awake: Any = SimpleNamespace(is_idle=False)
    topics = {message.topic: KnownTopic(TOPIC_LENGTH_V1.struct.pack(len(message.topic)) + b"Topic", {3: next_offset})}
    state = PutState(76)
    left: Any = lambda *_: None  # noqa: E731 - what is left to the plain form
    # whoever watches what is written now leaves every put to the plain form, which says nothing about this one
    unwatched: Any = SimpleNamespace(observer=None)
    parts = FastParts(
        state, state.lock.locked, topics, {"KEYS": b"KEYS\x01"}, unwatched, awake, left, lambda: 77, left, LOCAL_HOST
    )

    def put(one: Any, changed: FastParts = parts) -> PutResult | None:
        return _made(module, changed, packed, len(message.body)).put(one, False)

    refused: list[object] = [put(message)]  # there is no window
    state.window = Window(file, target, end - 1, 1000)
    refused.append(put(message))
    state.window = Window(file, target, end, 1000)
    refused += [put(message, parts._replace(clock=lambda: 75)), put(message, parts._replace(is_locked=lambda: True))]
    refused += [put((*message,)), *(put(message._replace(**{name: value})) for name, value in _REFUSED)]
    if any(refused) or any(target):
        return False
    answer = put(message)
    positions = (file.wrote_position, file.committed_position, file.store_timestamp, state.last_timestamp)
    return (
        answer == PutResult(STORED, 8, 1005, "", LOCAL_HOST)
        and type(answer) is PutResult
        and (*positions, next_offset.value) == (end, end, 77, 77, 9)
        and target == bytes(5) + wanted + bytes(5)
    )


_REFUSED: tuple[tuple[str, Any], ...] = (
    ("topic", "Other"), ("body", "text"), ("body", b"a" * 81), ("flag", 1 << 31), ("queue_id", None), ("queue_id", 4),
    ("sys_flag", 4), ("born_timestamp", 1 << 63), ("born_host", Host(bytes(16), 5)), ("property_bytes", b""),
    ("store_timestamp", 0), ("store_host", LOCAL_HOST), ("properties", {"A": ""}), ("properties", {"KEYS": "\x02"}),
    ("properties", {"KEYS": 1}), ("properties", ()),
)  # fmt: skip
