"""The kernel that puts one ordinary message, from its tuple to the answer. Plain twin: `OrdinaryPuts.put_plain`.

It takes Python objects as they are and holds the GIL. No code of Python's runs before everything is done, so that one
such put excludes another, and nothing can come between a frame and the positions behind it; whoever holds the put lock
excludes all of them. Importing this module imports numba.
"""

from __future__ import annotations

from formats.layouts import FRAME_HEAD_44, MESSAGE_MAGIC_V1, PROPERTIES_LENGTH
from formats.message import Message
from formats.properties import MAXIMUM_PROPERTIES_SIZE
from store.columns.compiling import inner
from store.columns.kernel_frames import write_head
from store.columns.kernel_memory import copy_bytes, long_at, set_long, set_short, store_word, word_at
from store.columns.kernel_objects import (
    BUFFER_WORDS,
    WRITABLE,
    answer_of,
    attribute_of,
    bytes_address,
    bytes_size,
    exact_int,
    fill_tuple,
    forget_failure,
    found_in_dict,
    give_buffer_back,
    int_attribute_of,
    int_of_object,
    item_of_tuple,
    milliseconds_now,
    new_int,
    new_tuple,
    object_at,
    release,
    retained,
    set_attribute,
    take_buffer,
    type_of,
    words_of_stack,
    writes_before,
)
from store.columns.native import Native
from store.write.kernel_message import is_new_message
from store.write.kernel_property_text import write_properties
from store.write.known import UNUSUAL_FLAGS, KnownTopic, Window
from store.write.put_context import Kinds, PutContext, places_of
from store.write.result import PutResult

_HEAD, _LENGTH, _MAGIC = FRAME_HEAD_44.size, PROPERTIES_LENGTH.size, MESSAGE_MAGIC_V1
_LARGEST_PROPERTIES, _UNUSUAL = MAXIMUM_PROPERTIES_SIZE, UNUSUAL_FLAGS
_INTS = 1 << 31
_TOPIC, _BODY, _QUEUE_ID, _FLAG, _PROPERTIES = places_of(Message, "topic", "body", "queue_id", "flag", "properties")
_SYS_FLAG, _BORN, _BORN_HOST = places_of(Message, "sys_flag", "born_timestamp", "born_host")
_RECONSUMED, _PREPARED = places_of(Message, "reconsume_times", "prepared_transaction_offset")
_FILE, _MAPPED, _LIMIT, _START_OFFSET = places_of(Window, "file", "mapped", "limit", "start_offset")
_FIELD, _QUEUES = places_of(KnownTopic, "field", "queues")
_STATUS, _QUEUE_OFFSET, _PHYSICAL, _DETAIL, _HOST = places_of(PutResult, *PutResult._fields)
_RESULT_SIZE = len(PutResult._fields)
_ORDINARY, _IO, _FOLLOWER, _IS_LOCKED, _WAKE = places_of(PutContext, "ordinary", "io", "follower", "is_locked", "wake")
_KNOWN_TOPICS, _NAMES, _OWN_HOST = places_of(PutContext, "known_topics", "names", "store_host")
_PACKED, _LARGEST_BODY, _CRC_FUNCTION = places_of(PutContext, "packed_host", "largest_body", "crc_function")
_KINDS, _TRUE, _EMPTY, _SCRATCH = places_of(PutContext, "kinds", "true", "empty", "scratch")
_NONE, _INT_TYPE, _BYTES_TYPE = places_of(Kinds, "none", "int_type", "bytes_type")
_RESULT_TYPE, _STORED = places_of(PutContext, "result_type", "stored")
_WINDOW, _BORN_HOST_NAME, _LAST_TIME = places_of(PutContext, "window_name", "born_host_name", "last_timestamp_name")
_WROTE, _COMMITTED, _FILE_TIME = places_of(PutContext, "wrote_name", "committed_name", "store_timestamp_name")
_VALUE, _OBSERVER, _IS_IDLE = places_of(PutContext, "value_name", "observer_name", "is_idle_name")


@inner
def _is_int(number: int) -> bool:
    return -_INTS <= number < _INTS


@inner
def _is_open(bound: int) -> int:
    """The window, if a put may go into it now; else None's address."""
    none = item_of_tuple(object_at(bound, _KINDS), _NONE)
    if answer_of(object_at(bound, _IS_LOCKED)) == object_at(bound, _TRUE):
        return none
    if attribute_of(object_at(bound, _IO), object_at(bound, _OBSERVER)) != none:
        return none
    return attribute_of(object_at(bound, _ORDINARY), object_at(bound, _WINDOW))


@inner
def _next_offset(bound: int, message: int, topic: int) -> int:
    """The queue's next offset, an object; 0 for a queue that is not known, or no number."""
    queue_id = item_of_tuple(message, _QUEUE_ID)
    if type_of(queue_id) != item_of_tuple(object_at(bound, _KINDS), _INT_TYPE):
        return 0
    return found_in_dict(item_of_tuple(topic, _QUEUES), queue_id)


@inner
def _write_in_scratch(bound: int, properties: int) -> int:
    """Write the stored form of properties into the scratch; its length, negative for unusual ones."""
    scratch = int_of_object(object_at(bound, _SCRATCH))
    return write_properties(
        object_at(bound, _KINDS), properties, object_at(bound, _NAMES), scratch, _LARGEST_PROPERTIES
    )


@inner
def _write(
    bound: int, window: int, message: int, field: int, born_host: int, position: int, queue_offset: int, now: int
) -> int:
    """Write the frame of `message` to `position` of the window's file; where it ends, 0 with nothing written if it must
    go the whole way."""
    none, int_type = item_of_tuple(object_at(bound, _KINDS), _NONE), item_of_tuple(object_at(bound, _KINDS), _INT_TYPE)
    failed = words_of_stack(1)
    store_word(failed, 0)
    queue_id = exact_int(item_of_tuple(message, _QUEUE_ID), int_type, failed)
    flag = exact_int(item_of_tuple(message, _FLAG), int_type, failed)
    sys_flag = exact_int(item_of_tuple(message, _SYS_FLAG), int_type, failed)
    reconsume_times = exact_int(item_of_tuple(message, _RECONSUMED), int_type, failed)
    prepared = exact_int(item_of_tuple(message, _PREPARED), int_type, failed)
    born = item_of_tuple(message, _BORN)
    born_timestamp = now if born == none else exact_int(born, int_type, failed)
    if word_at(failed) or sys_flag & _UNUSUAL:
        return 0
    if not (_is_int(queue_id) and _is_int(flag) and _is_int(sys_flag) and _is_int(reconsume_times)):
        return 0
    body = item_of_tuple(message, _BODY)
    if type_of(body) != item_of_tuple(object_at(bound, _KINDS), _BYTES_TYPE):
        return 0
    length, size = bytes_size(body), _write_in_scratch(bound, item_of_tuple(message, _PROPERTIES))
    if size < 0 or length > int_of_object(object_at(bound, _LARGEST_BODY)):
        return 0
    field_size = bytes_size(field)
    end = position + _HEAD + length + field_size + _LENGTH + size
    if end > int_of_object(item_of_tuple(window, _LIMIT)):
        return 0
    # a file that was closed says so here
    buffer = words_of_stack(BUFFER_WORDS)
    if take_buffer(item_of_tuple(window, _MAPPED), buffer, WRITABLE) != 0:
        forget_failure()
        return 0
    at = word_at(buffer) + position
    write_head(
        at, int_of_object(object_at(bound, _CRC_FUNCTION)), queue_id, flag, queue_offset,
        int_of_object(item_of_tuple(window, _START_OFFSET)) + position, sys_flag, born_timestamp,
        long_at(bytes_address(born_host)), now, long_at(bytes_address(object_at(bound, _PACKED))),
        reconsume_times, prepared, bytes_address(body), length,
    )  # fmt: skip
    place = at + _HEAD
    copy_bytes(place, bytes_address(body), length)
    place += length
    copy_bytes(place, bytes_address(field), field_size)
    place += field_size
    set_short(place, size)
    copy_bytes(place + _LENGTH, int_of_object(object_at(bound, _SCRATCH)), size)
    # the moment in which somebody else sees the frame, whole
    writes_before()
    set_long(at, (end - position) << 32 | _MAGIC)
    give_buffer_back(buffer)
    return end


@inner
def _set_int(thing: int, name: int, value: int) -> None:
    number = new_int(value)
    set_attribute(thing, name, number)
    release(number)


@inner
def _answer(bound: int, queue_offset: int, physical_offset: int) -> int:
    """The answer, once the follower is awake. `queue_offset`: a new reference to a number. From here on code of
    Python's can run."""
    follower, is_idle = object_at(bound, _FOLLOWER), object_at(bound, _IS_IDLE)
    if attribute_of(follower, is_idle) == object_at(bound, _TRUE) and not answer_of(object_at(bound, _WAKE)):
        release(queue_offset)
        return 0
    answer = new_tuple(object_at(bound, _RESULT_TYPE), _RESULT_SIZE)
    if answer == 0:
        release(queue_offset)
        return 0
    fill_tuple(answer, _STATUS, retained(object_at(bound, _STORED)))
    fill_tuple(answer, _QUEUE_OFFSET, queue_offset)
    fill_tuple(answer, _PHYSICAL, new_int(physical_offset))
    fill_tuple(answer, _DETAIL, retained(object_at(bound, _EMPTY)))
    fill_tuple(answer, _HOST, retained(object_at(bound, _OWN_HOST)))
    return answer


@inner
def _put(bound: int, message: int, given_now: int) -> int:
    """Put `message`; a new reference to the answer, 0 with an exception, or the address of None with nothing done if it
    must go another way. `given_now`: ms, 0 to ask the system."""
    none = item_of_tuple(object_at(bound, _KINDS), _NONE)
    window = _is_open(bound)
    if window == none or not is_new_message(object_at(bound, _KINDS), message):
        return none
    ordinary = object_at(bound, _ORDINARY)
    last_host = attribute_of(ordinary, object_at(bound, _BORN_HOST_NAME))
    born_host = item_of_tuple(last_host, 1)
    if item_of_tuple(last_host, 0) != item_of_tuple(message, _BORN_HOST) or born_host == none:
        return none
    topic = found_in_dict(object_at(bound, _KNOWN_TOPICS), item_of_tuple(message, _TOPIC))
    next_offset = _next_offset(bound, message, topic) if topic else 0
    if next_offset == 0:
        return none
    now = given_now if given_now else milliseconds_now()
    last_timestamp = int_attribute_of(ordinary, object_at(bound, _LAST_TIME))
    if now < last_timestamp:
        return none
    file = item_of_tuple(window, _FILE)
    position = int_attribute_of(file, object_at(bound, _WROTE))
    queue_offset = int_attribute_of(next_offset, object_at(bound, _VALUE))
    end = _write(bound, window, message, item_of_tuple(topic, _FIELD), born_host, position, queue_offset, now)
    if end == 0:
        return none
    used_offset = retained(attribute_of(next_offset, object_at(bound, _VALUE)))
    _set_int(next_offset, object_at(bound, _VALUE), queue_offset + 1)
    reached = new_int(end)
    set_attribute(file, object_at(bound, _WROTE), reached)
    set_attribute(file, object_at(bound, _COMMITTED), reached)
    release(reached)
    if now > last_timestamp:
        _set_int(ordinary, object_at(bound, _LAST_TIME), now)
    if now != int_attribute_of(file, object_at(bound, _FILE_TIME)):
        _set_int(file, object_at(bound, _FILE_TIME), now)
    return _answer(bound, used_offset, int_of_object(item_of_tuple(window, _START_OFFSET)) + position)


def make_put(stamp: int) -> Native:
    """`put`, to be bound to a PutContext; `stamp` is `compiling.source_stamp()`, without which a kept kernel would
    outlive a change of what it calls."""

    def put(bound: int, arguments: int, count: int) -> int:
        """See `_put`: a message, and the time if it is given."""
        given_now = int_of_object(object_at(arguments, 1)) if count > 1 else 0
        table = bytes_address(bound)
        answer = _put(table, object_at(arguments, 0), given_now)
        is_none = answer == item_of_tuple(object_at(table, _KINDS), _NONE)
        return retained(answer) if is_none and count != stamp else answer

    return Native(put)
