"""The parts of the walk kernel that write a message's row: head, spans, topic, tag code and index keys."""

from __future__ import annotations

from typing import Any

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import TAG_KEY_PREFIX
from rmqctl.formats.layouts import FRAME_HEADS, SYS_FLAG_INNER_BATCH, TRANSACTION_MASK
from rmqctl.formats.properties import TRANSACTION_ROLLBACK
from rmqctl.store.compiled.compiling import inner
from rmqctl.store.compiled.kernel_memory import byte_at, int_at, long_at, word_at
from rmqctl.store.compiled.kernel_text import as_int, find_byte, hash_on, same_bytes
from rmqctl.store.log.columns import (
    HASH_MULTIPLIER,
    INTS,
    IS_SCHEDULE,
    KEY_STATE,
    KEYS_OF_A_ROW,
    LONGS,
    MAXIMUM_PROBES,
    TEXT_BEGIN,
    TEXT_LENGTH,
    Columns,
    NeedsPlain,
    WalkState,
)

_LONG = {name: index for index, name in enumerate(LONGS)}
_INT = {name: index for index, name in enumerate(INTS)}
_QUEUE_OFFSET, _BORN, _STORED = _LONG["queue_offset"], _LONG["born_timestamp"], _LONG["store_timestamp"]
_PREPARED, _TAGS_CODE = _LONG["prepared_transaction_offset"], _LONG["tags_code"]
_QUEUE_ID, _FLAG, _SYS_FLAG, _BODY_CRC = _INT["queue_id"], _INT["flag"], _INT["sys_flag"], _INT["body_crc"]
_RECONSUMED, _BORN_PORT, _STORE_PORT = _INT["reconsume_times"], _INT["born_host_port"], _INT["store_host_port"]
_DELAY_LEVEL, _NEEDS_PLAIN = _INT["delay_level"], _INT["needs_plain"]
_BODY_POSITION, _BODY_LENGTH = _INT["body_position"], _INT["body_length"]
_PROPERTY_POSITION, _PROPERTY_LENGTH = _INT["property_position"], _INT["property_length"]
_BORN_POSITION, _STORE_POSITION = _INT["born_host_position"], _INT["store_host_position"]
_BORN_START, _STORE_START = _INT["born_host_start"], _INT["store_host_start"]

_IPV4 = FRAME_HEADS[0]
_QUEUE_ID_AT, _FLAG_AT, _QUEUE_OFFSET_AT = _IPV4.offset("queue_id"), _IPV4.offset("flag"), _IPV4.offset("queue_offset")
_SYS_FLAG_AT, _BODY_CRC_AT, _BORN_AT = (
    _IPV4.offset("sys_flag"),
    _IPV4.offset("body_crc"),
    _IPV4.offset("born_timestamp"),
)
_BORN_HOST_AT, _BORN_PORT_AT = _IPV4.offset("born_host_ip"), _IPV4.offset("born_host_port")
_STORED_AT, _STORE_HOST_AT = _IPV4.offset("store_timestamp"), _IPV4.offset("store_host_ip")
_STORE_PORT_AT, _RECONSUMED_AT = _IPV4.offset("store_host_port"), _IPV4.offset("reconsume_times")
_PREPARED_AT = _IPV4.offset("prepared_transaction_offset")

_SEPARATOR = 2
_SEPARATORS = 0x0202020202020202
_SPACES = 0x2020202020202020
_SPACE = 0x20


def _word(text: str, at: int = 0) -> int:
    """Eight bytes of `text` and of the 0x01 behind it, as `word_at` reads them."""
    data = (text.encode("ascii") + b"\x01")[at : at + 8]
    return int.from_bytes(data.ljust(8, b"\0"), "little")


_TAGS, _KEYS, _DELAY, _UNIQUE = _word(names.TAGS), _word(names.KEYS), _word(names.DELAY), _word(names.UNIQUE_KEY)
_FIVE_BYTES, _SIX_BYTES = (1 << 40) - 1, (1 << 48) - 1
_TAGS_SIZE, _KEYS_SIZE, _DELAY_SIZE = len(names.TAGS) + 1, len(names.KEYS) + 1, len(names.DELAY) + 1
_UNIQUE_SIZE = len(names.UNIQUE_KEY) + 1
_MULTI = _word(names.INNER_MULTI_DISPATCH)
_MULTI_DISPATCH = _word(names.INNER_MULTI_DISPATCH, 8), _word(names.INNER_MULTI_DISPATCH, 16)
_MULTI_DISPATCH_SIZE = len(names.INNER_MULTI_DISPATCH) + 1
_MULTI_OFFSET = _word(names.INNER_MULTI_QUEUE_OFFSET, 8), _word(names.INNER_MULTI_QUEUE_OFFSET, 16)
_MULTI_OFFSET_SIZE = len(names.INNER_MULTI_QUEUE_OFFSET) + 1
_BATCH, _BATCH_END, _BATCH_SIZE = _word(names.INNER_NUM), _word(names.INNER_NUM, 2), len(names.INNER_NUM) + 1

_WANT_TAGS, _WANT_KEYS, _WANT_TAG_KEYS = int(Columns.TAGS), int(Columns.KEYS), int(Columns.TAG_KEYS)
_PREFIX = TAG_KEY_PREFIX.encode("ascii")
_PREFIX_FIRST, _PREFIX_SECOND = _PREFIX
_PREFIX_SIZE = len(_PREFIX)
_PLAIN_MULTI, _PLAIN_BATCH = int(NeedsPlain.MULTI_DISPATCH), int(NeedsPlain.INNER_BATCH)
_PLAIN_DELAY, _PLAIN_KEYS = int(NeedsPlain.DELAY), int(NeedsPlain.KEYS)
_LONGEST_LEVEL = 9
_PLAIN_ROWS = int(WalkState.PLAIN_ROWS)


@inner
def find_topic(topic: int, length: int, slots: Any, entries: Any, text: int, seed: int) -> int:
    """The id of a topic, -1 if it is not found. `text`: address of the table's text. (TopicIds.hash_of)"""
    state = seed ^ length
    at = 0
    while at < length:
        word = word_at(topic + at)
        if length - at < 8:
            word &= (1 << (8 * (length - at))) - 1
        state = (state ^ word) * HASH_MULTIPLIER
        state ^= (state >> 32) & 0xFFFFFFFF
        at += 8
    for probe in range(MAXIMUM_PROBES):
        number = int(slots[(state + probe) & (len(slots) - 1)])
        if number < 0:
            return -1
        if entries[number, TEXT_LENGTH] == length and same_bytes(text + entries[number, TEXT_BEGIN], topic, length):
            return number
    return -1


@inner
def write_numbers(at: int, born: int, stored: int, row: int, longs: Any, ints: Any) -> None:
    """The numbers of the head. `born`, `stored`: how much longer than for IPv4 the hosts are."""
    longs[_QUEUE_OFFSET, row] = long_at(at + _QUEUE_OFFSET_AT)
    longs[_BORN, row] = long_at(at + _BORN_AT)
    longs[_STORED, row] = long_at(at + _STORED_AT + born)
    longs[_PREPARED, row] = long_at(at + _PREPARED_AT + born + stored)
    ints[_QUEUE_ID, row] = int_at(at + _QUEUE_ID_AT)
    ints[_FLAG, row] = int_at(at + _FLAG_AT)
    ints[_SYS_FLAG, row] = int_at(at + _SYS_FLAG_AT)
    ints[_BODY_CRC, row] = int_at(at + _BODY_CRC_AT)
    ints[_RECONSUMED, row] = int_at(at + _RECONSUMED_AT + born + stored)
    ints[_BORN_PORT, row] = int_at(at + _BORN_PORT_AT + born)
    ints[_STORE_PORT, row] = int_at(at + _STORE_PORT_AT + born + stored)


@inner
def write_bytes(
    window: int, at: int, born: int, body: int, body_length: int, properties: int, property_length: int,
    row: int, ints: Any,
) -> None:  # fmt: skip
    """Where the parts of a message lie in the window, and what the hosts begin with."""
    ints[_BODY_POSITION, row] = body - window
    ints[_BODY_LENGTH, row] = body_length
    ints[_PROPERTY_POSITION, row] = properties - window
    ints[_PROPERTY_LENGTH, row] = property_length
    ints[_BORN_POSITION, row] = at + _BORN_HOST_AT - window
    ints[_STORE_POSITION, row] = at + _STORE_HOST_AT + born - window
    ints[_BORN_START, row] = int_at(at + _BORN_HOST_AT)
    ints[_STORE_START, row] = int_at(at + _STORE_HOST_AT + born)


@inner
def find_values(properties: int, length: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Address and length of the values of TAGS, KEYS, UNIQ_KEY and DELAY, length 0 without; what else is left to Python
    by its property (NeedsPlain). A later value replaces an earlier one, an empty one is none. (parse_properties)"""
    plain = 0
    tags = tags_length = keys = keys_length = unique = unique_length = delay = delay_length = 0
    has_queues = has_offsets = False
    at = properties
    end = properties + length
    while at < end:
        stop = find_byte(at, end, _SEPARATORS)
        word = word_at(at)
        if word & _FIVE_BYTES == _TAGS:
            if stop - at > _TAGS_SIZE:
                tags, tags_length = at + _TAGS_SIZE, stop - at - _TAGS_SIZE
        elif word & _FIVE_BYTES == _KEYS:
            if stop - at > _KEYS_SIZE:
                keys, keys_length = at + _KEYS_SIZE, stop - at - _KEYS_SIZE
        elif word == _UNIQUE:
            if stop - at > _UNIQUE_SIZE and byte_at(at + _UNIQUE_SIZE - 1) == 1:
                unique, unique_length = at + _UNIQUE_SIZE, stop - at - _UNIQUE_SIZE
        elif word & _SIX_BYTES == _DELAY:
            if stop - at > _DELAY_SIZE:
                delay, delay_length = at + _DELAY_SIZE, stop - at - _DELAY_SIZE
        elif word == _BATCH:
            if stop - at > _BATCH_SIZE and word_at(at + 2) == _BATCH_END:
                plain = _PLAIN_BATCH
        elif word == _MULTI and stop - at > _MULTI_DISPATCH_SIZE:
            second, third = word_at(at + 8), word_at(at + 16)
            if second == _MULTI_DISPATCH[0] and third & _FIVE_BYTES == _MULTI_DISPATCH[1]:
                has_queues = True
            elif (
                second == _MULTI_OFFSET[0]
                and third == _MULTI_OFFSET[1]
                and stop - at > _MULTI_OFFSET_SIZE
                and byte_at(at + _MULTI_OFFSET_SIZE - 1) == 1
            ):
                has_offsets = True
        at = stop + 1
    if has_queues and has_offsets:
        plain |= _PLAIN_MULTI
    return tags, tags_length, keys, keys_length, unique, unique_length, delay, delay_length, plain


@inner
def level_of(delay: int, length: int) -> int:
    """The delay level that a few ASCII digits say; -1 for anything else, which Java may still read as a number."""
    if length > _LONGEST_LEVEL:
        return -1
    level = 0
    for at in range(delay, delay + length):
        digit = byte_at(at) - 0x30
        if digit < 0 or digit > 9:
            return -1
        level = level * 10 + digit
    return level


@inner
def add_key(
    key: int, length: int, key_state: int, row: int, first: int, keys: int, key_hash: Any, key_row: Any, scratch: Any
) -> int:
    """Add a key unless it is among those from entry `first` on; the number of entries then. (index_keys, key_hash)"""
    value = abs(as_int(hash_on(key_state, key, length)))
    if value > 0x7FFFFFFF:
        value = 0
    for entry in range(first, keys):
        number = entry - first
        if key_hash[entry] == value and scratch[1, number] == length and same_bytes(scratch[0, number], key, length):
            return keys
    key_hash[keys] = value
    key_row[keys] = row
    scratch[0, keys - first] = key
    scratch[1, keys - first] = length
    return keys + 1


@inner
def add_tag_key(
    tags: int, length: int, key_state: int, row: int, first: int, keys: int, key_hash: Any, key_row: Any, scratch: Any
) -> int:
    """Add the entry of a tag, unless one of the keys reads the same; the number of entries then. (tag_key)"""
    state = ((key_state & 0xFFFFFFFF) * 31 + _PREFIX_FIRST) * 31 + _PREFIX_SECOND
    value = abs(as_int(hash_on(state, tags, length)))
    if value > 0x7FFFFFFF:
        value = 0
    for entry in range(first, keys):
        number = entry - first
        if key_hash[entry] != value or scratch[1, number] != _PREFIX_SIZE + length:
            continue
        key = scratch[0, number]
        is_prefixed = byte_at(key) == _PREFIX_FIRST and byte_at(key + 1) == _PREFIX_SECOND
        if is_prefixed and same_bytes(key + _PREFIX_SIZE, tags, length):
            return keys
    key_hash[keys] = value
    key_row[keys] = ~row
    return keys + 1


@inner
def write_properties(
    at: int, properties: int, length: int, asked: int, topic: int, row: int, keys: int, longs: Any, ints: Any,
    key_hash: Any, key_row: Any, entries: Any, scratch: Any, state: Any,
) -> int:  # fmt: skip
    """What the properties say: tag code, delay level, what is left to Python, keys. The number of key entries then."""
    tags, tags_length, words, words_length, unique, unique_length, delay, delay_length, plain = find_values(
        properties, length
    )
    sys_flag = int_at(at + _SYS_FLAG_AT)
    if sys_flag & SYS_FLAG_INNER_BATCH:
        plain |= _PLAIN_BATCH
    if asked & _WANT_TAGS:
        longs[_TAGS_CODE, row] = as_int(hash_on(0, tags, tags_length))
        level = 0
        if delay_length and entries[topic, IS_SCHEDULE]:
            level = level_of(delay, delay_length)
            if level < 0:
                plain |= _PLAIN_DELAY
        ints[_DELAY_LEVEL, row] = level
    first = keys
    if asked & _WANT_KEYS and sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
        key_state = entries[topic, KEY_STATE]
        if unique_length:
            keys = add_key(unique, unique_length, key_state, row, first, keys, key_hash, key_row, scratch)
        end = words + words_length
        while words < end:
            stop = find_byte(words, end, _SPACES)
            if keys - first == KEYS_OF_A_ROW:
                plain |= _PLAIN_KEYS
                keys = first
                break
            if stop > words:
                keys = add_key(words, stop - words, key_state, row, first, keys, key_hash, key_row, scratch)
            words = stop + 1
        if asked & _WANT_TAG_KEYS and tags_length and not plain & _PLAIN_KEYS:
            if keys - first == KEYS_OF_A_ROW:
                plain |= _PLAIN_KEYS
                keys = first
            else:
                keys = add_tag_key(tags, tags_length, key_state, row, first, keys, key_hash, key_row, scratch)
    if plain & (_PLAIN_DELAY | _PLAIN_KEYS):
        state[_PLAIN_ROWS] += 1
    ints[_NEEDS_PLAIN, row] = plain
    return keys
