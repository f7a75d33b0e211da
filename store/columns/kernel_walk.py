"""The kernel that walks a window of the commitlog: checks frames as `decode_message` does (law 3)."""

from __future__ import annotations

from typing import Any

from rmqctl.formats.checksums import CRC_MASK, PROPERTY_CRC_NAME, PROPERTY_CRC_SIZE
from rmqctl.formats.layouts import (
    FRAME_HEADS,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    PROPERTIES_LENGTH,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)
from rmqctl.formats.message import MINIMUM_FRAME_SIZE
from rmqctl.store.columns.kernel_rows import find_topic, write_bytes, write_numbers, write_properties
from rmqctl.store.compiled.compiling import inner, kernel
from rmqctl.store.compiled.kernel_memory import (
    byte_at,
    crc_by_address,
    int_at,
    long_at,
    short_at,
    signed_byte_at,
    word_at,
)
from rmqctl.store.compiled.kernel_text import is_utf8
from rmqctl.store.log.columns import FULL, INTS, KEYS_OF_A_ROW, NEW_TOPIC, STOPPED, WINDOW_END, Columns, WalkState

_GOOD = 4

_HEAD = FRAME_HEADS[0].size
# what an IPv6 address has more
_WIDER = FRAME_HEADS[1].size - FRAME_HEADS[0].size
_MAGIC_AT = FRAME_HEADS[0].offset("magic_code")
_CRC_AT = FRAME_HEADS[0].offset("body_crc")
_POSITION_AT = FRAME_HEADS[0].offset("physical_offset")
_SYS_FLAG_AT = FRAME_HEADS[0].offset("sys_flag")
_BODY_LENGTH_SIZE = 4
_WINDOW, _LENGTH, _STOP, _ASKED = (
    int(WalkState.WINDOW),
    int(WalkState.LENGTH),
    int(WalkState.STOP),
    int(WalkState.ASKED),
)
_PHYSICAL_OFFSET, _CRC_FROM = int(WalkState.PHYSICAL_OFFSET), int(WalkState.CRC_FROM)
_CRC_FUNCTION, _TEXT, _SEED = int(WalkState.CRC_FUNCTION), int(WalkState.TEXT), int(WalkState.SEED)
_POSITION, _ROW, _KEYS = int(WalkState.POSITION), int(WalkState.ROW), int(WalkState.KEYS)
_TOPIC_HINT, _STAMP = int(WalkState.TOPIC_HINT), int(WalkState.STAMP)
_V1 = MESSAGE_MAGIC_V1 - (1 << 32)
_V2 = MESSAGE_MAGIC_V2 - (1 << 32)
_TOPIC_LENGTH_V1 = TOPIC_LENGTH_V1.size
_TOPIC_LENGTH_V2 = TOPIC_LENGTH_V2.size
_PROPERTIES_LENGTH = PROPERTIES_LENGTH.size
_CRC_NAME = len(PROPERTY_CRC_NAME)
_CRC_NAME_WORD = int.from_bytes(PROPERTY_CRC_NAME[:8], "little")
_CRC_NAME_END = PROPERTY_CRC_NAME[8]

_TOPIC = int(Columns.TOPIC | Columns.TAGS | Columns.KEYS)
_TOPIC_ID = list(INTS).index("topic_id")
_HEAD_COLUMNS = int(Columns.HEAD)
_PROPERTIES = int(Columns.TAGS | Columns.KEYS)
_BYTES = int(Columns.BYTES)


@inner
def host_bits(at: int) -> tuple[int, int]:
    """How many bytes longer than for IPv4 the born host and the store host are."""
    flag = int_at(at + _SYS_FLAG_AT)
    born = _WIDER if flag & SYS_FLAG_BORN_HOST_V6 else 0
    stored = _WIDER if flag & SYS_FLAG_STORE_HOST_V6 else 0
    return born, stored


@inner
def spans_of(at: int, left: int, physical_offset: int) -> tuple[int, int, int, int]:
    """(status, body, topic, properties): addresses, where size, magic, position and lengths of a frame hold.

    `left`: bytes of the window from `at` on. (decode_message and _variable_parts)
    """
    if left < _HEAD:
        return WINDOW_END, 0, 0, 0
    size = int_at(at)
    magic = int_at(at + _MAGIC_AT)
    if magic not in (_V1, _V2) or size < MINIMUM_FRAME_SIZE:
        return STOPPED, 0, 0, 0
    if long_at(at + _POSITION_AT) != physical_offset:
        return STOPPED, 0, 0, 0
    if size > left:
        return WINDOW_END, 0, 0, 0
    born, stored = host_bits(at)
    head = _HEAD + born + stored
    if size < head:
        return STOPPED, 0, 0, 0
    topic_field = _TOPIC_LENGTH_V2 if magic == _V2 else _TOPIC_LENGTH_V1
    variable = size - head - topic_field - _PROPERTIES_LENGTH
    body_length = int_at(at + head - _BODY_LENGTH_SIZE)
    if body_length < 0 or body_length > variable:
        return STOPPED, 0, 0, 0
    body = at + head
    topic_length = short_at(body + body_length) if magic == _V2 else signed_byte_at(body + body_length)
    if topic_length <= 0 or topic_length > variable - body_length:
        return STOPPED, 0, 0, 0
    topic = body + body_length + topic_field
    if short_at(topic + topic_length) != variable - body_length - topic_length:
        return STOPPED, 0, 0, 0
    return _GOOD, body, topic, topic + topic_length + _PROPERTIES_LENGTH


@inner
def has_good_crc(at: int, body: int, body_length: int, properties: int, crc_function: int) -> bool:
    """Whether the body's CRC holds, and that of the frame if its properties end with one. (_check_crcs)"""
    if body_length and crc_by_address(crc_function, body, body_length) & CRC_MASK != int_at(at + _CRC_AT):
        return False
    end = at + int_at(at)
    tail = end - PROPERTY_CRC_SIZE
    if tail < properties or word_at(tail) != _CRC_NAME_WORD or byte_at(tail + 8) != _CRC_NAME_END:
        return True
    if byte_at(end - 1) != 2:
        return True
    value = 0
    digit = end - 2
    while digit >= tail + _CRC_NAME:
        if byte_at(digit) < 0x30 or byte_at(digit) > 0x39:
            return False
        value = value * 10 + byte_at(digit) - 0x30
        digit -= 1
    return crc_by_address(crc_function, at, tail - at) & CRC_MASK == value


def make_kernels(stamp: int) -> tuple[Any]:
    """`walk_window`; see `compiling.load_kernels`."""

    @kernel
    def walk_window(
        state: Any, longs: Any, ints: Any, key_hash: Any, key_row: Any, slots: Any, entries: Any, scratch: Any
    ) -> int:
        state[_STAMP] = stamp
        return _walk(state, longs, ints, key_hash, key_row, slots, entries, scratch)

    return (walk_window,)


@inner
def _walk(
    state: Any, longs: Any, ints: Any, key_hash: Any, key_row: Any, slots: Any, entries: Any, scratch: Any
) -> int:
    """Good messages of a window from POSITION on, one row each from ROW on; how it ended. See `WalkState`."""
    window, length, stop, asked = state[_WINDOW], state[_LENGTH], state[_STOP], state[_ASKED]
    base, crc_from, crc_function = state[_PHYSICAL_OFFSET], state[_CRC_FROM], state[_CRC_FUNCTION]
    position, row, keys, hint = state[_POSITION], state[_ROW], state[_KEYS], state[_TOPIC_HINT]
    text, seed = state[_TEXT], state[_SEED]
    status = WINDOW_END
    while position < stop:
        if row >= longs.shape[1] or keys + KEYS_OF_A_ROW > len(key_hash):
            status = FULL
            break
        at = window + position
        status, body, topic, properties = spans_of(at, length - position, base + position)
        if status != _GOOD:
            break
        size = int_at(at)
        property_length = at + size - properties
        topic_length = properties - _PROPERTIES_LENGTH - topic
        born, stored = host_bits(at)
        body_length = int_at(body - _BODY_LENGTH_SIZE)
        status = STOPPED
        if base + position >= crc_from and not has_good_crc(at, body, body_length, properties, crc_function):
            break
        if not is_utf8(topic, topic_length) or not is_utf8(properties, property_length):
            break
        longs[0, row] = base + position
        ints[0, row] = size
        if asked & _TOPIC:
            if hint < 0:
                hint = find_topic(topic, topic_length, slots, entries, text, seed)
            if hint < 0:
                status = NEW_TOPIC
                break
            keys = write_properties(
                at, properties, property_length, asked, hint, row, keys, longs, ints, key_hash, key_row, entries,
                scratch, state,
            ) if asked & _PROPERTIES else keys  # fmt: skip
            ints[_TOPIC_ID, row] = hint
            hint = -1
        if asked & _HEAD_COLUMNS:
            write_numbers(at, born, stored, row, longs, ints)
        if asked & _BYTES:
            write_bytes(window, at, born, body, body_length, properties, property_length, row, ints)
        row += 1
        position += size
        status = WINDOW_END
    state[_POSITION], state[_ROW], state[_KEYS] = position, row, keys
    return status
