"""The kernel that turns messages into rows: numbers into columns, bodies into places, properties into stored ones.

Plain twin: `bulk_rows.rows_of_messages`. It takes Python objects as they are, holds the GIL and runs no code of
Python's. Importing this module imports numba.
"""

from __future__ import annotations

from formats.message import Message
from store.columns.compiling import inner
from store.columns.frame_columns import Frame, Span
from store.columns.kernel_memory import set_byte, store_word, word_at
from store.columns.kernel_objects import (
    bytes_address,
    bytes_size,
    exact_int,
    found_in_dict,
    int_of_object,
    item_of_tuple,
    new_int,
    object_at,
    release,
    type_of,
    words_of_stack,
)
from store.columns.native import Native
from store.write.bulk_rows import NO_TIME
from store.write.kernel_message import is_new_message
from store.write.kernel_property_text import TOO_LONG, UNKNOWN, UNUSUAL, write_properties
from store.write.put_context import Kinds, RowsArguments, RowsContext, places_of

_NO_TIME = NO_TIME
_TOPIC, _BODY, _QUEUE_ID, _FLAG, _PROPERTIES = places_of(Message, "topic", "body", "queue_id", "flag", "properties")
_SYS_FLAG, _BORN, _BORN_HOST = places_of(Message, "sys_flag", "born_timestamp", "born_host")
_RECONSUMED, _PREPARED = places_of(Message, "reconsume_times", "prepared_transaction_offset")
_NAMES, _KINDS = places_of(RowsContext, "names", "kinds")
_NONE, _INT_TYPE, _BYTES_TYPE = places_of(Kinds, "none", "int_type", "bytes_type")
_MESSAGES, _BEGIN, _END, _SKIPPED, _ROWS = places_of(RowsArguments, "messages", "begin", "end", "skipped", "rows")
_COLUMNS, _STARTS, _ENDS, _USUAL = places_of(RowsArguments, "columns", "starts", "ends", "usual")
_TOPICS, _HOSTS, _TEXT, _ROOM = places_of(RowsArguments, "topics", "hosts", "text", "room")
_TOPIC_COLUMN, _QUEUE_COLUMN, _FLAG_COLUMN = int(Frame.TOPIC), int(Frame.QUEUE_ID), int(Frame.FLAG)
_SYS_FLAG_COLUMN, _BORN_COLUMN, _HOST_COLUMN = int(Frame.SYS_FLAG), int(Frame.BORN_TIMESTAMP), int(Frame.BORN_HOST)
_RECONSUMED_COLUMN, _PREPARED_COLUMN = int(Frame.RECONSUME_TIMES), int(Frame.PREPARED)
_STORED_COLUMN = int(Frame.STORE_TIMESTAMP)
_BODY_SPAN, _PROPERTIES_SPAN = int(Span.BODY), int(Span.PROPERTIES)
# what a row turns out to be, instead of the length of its properties
_UNKNOWN, _TOO_LONG, _UNUSUAL = UNKNOWN, TOO_LONG, UNUSUAL


@inner
def _set(table: int, rows: int, place: int, row: int, value: int) -> None:
    store_word(table + 8 * (place * rows + row), value)


@inner
def _number_of_host(arguments: int, host: int, last: int) -> int:
    """Its number, 0 for one that cannot be packed; _UNKNOWN where it was not seen before. `last`: the address of two
    words, of the last host and its number: most messages that follow each other come from one producer."""
    if word_at(last) == host:
        return word_at(last + 8)
    address = new_int(host)
    found = found_in_dict(object_at(arguments, _HOSTS), address)
    release(address)
    if found == 0:
        return _UNKNOWN
    store_word(last, host)
    store_word(last + 8, int_of_object(found))
    return word_at(last + 8)


@inner
def _numbers(bound: int, arguments: int, message: int, row: int, columns: int, rows: int, last_host: int) -> int:
    """Fill in the numbers of a row. _UNUSUAL for one that goes the whole way, _UNKNOWN where its topic or host must be
    looked at first; else 0."""
    kinds = object_at(bound, _KINDS)
    none, int_type = item_of_tuple(kinds, _NONE), item_of_tuple(kinds, _INT_TYPE)
    if not is_new_message(kinds, message):
        return _UNUSUAL
    known = found_in_dict(object_at(arguments, _TOPICS), item_of_tuple(message, _TOPIC))
    number = _number_of_host(arguments, item_of_tuple(message, _BORN_HOST), last_host)
    if known == 0 or number < 0:
        return _UNKNOWN
    failed = words_of_stack(1)
    store_word(failed, 0)
    born = item_of_tuple(message, _BORN)
    born_timestamp = _NO_TIME if born == none else exact_int(born, int_type, failed)
    _set(columns, rows, _TOPIC_COLUMN, row, int_of_object(known))
    _set(columns, rows, _HOST_COLUMN, row, number)
    _set(columns, rows, _BORN_COLUMN, row, born_timestamp)
    _set(columns, rows, _STORED_COLUMN, row, _NO_TIME)
    _set(columns, rows, _QUEUE_COLUMN, row, exact_int(item_of_tuple(message, _QUEUE_ID), int_type, failed))
    _set(columns, rows, _FLAG_COLUMN, row, exact_int(item_of_tuple(message, _FLAG), int_type, failed))
    _set(columns, rows, _SYS_FLAG_COLUMN, row, exact_int(item_of_tuple(message, _SYS_FLAG), int_type, failed))
    _set(columns, rows, _RECONSUMED_COLUMN, row, exact_int(item_of_tuple(message, _RECONSUMED), int_type, failed))
    _set(columns, rows, _PREPARED_COLUMN, row, exact_int(item_of_tuple(message, _PREPARED), int_type, failed))
    if word_at(failed) or number == 0 or type_of(item_of_tuple(message, _BODY)) != item_of_tuple(kinds, _BYTES_TYPE):
        return _UNUSUAL
    return 0


@inner
def _fill(bound: int, arguments: int) -> int:
    """See `RowsArguments`."""
    messages, rows = object_at(arguments, _MESSAGES), int_of_object(object_at(arguments, _ROWS))
    columns, usual = int_of_object(object_at(arguments, _COLUMNS)), int_of_object(object_at(arguments, _USUAL))
    starts, ends = int_of_object(object_at(arguments, _STARTS)), int_of_object(object_at(arguments, _ENDS))
    text, room = int_of_object(object_at(arguments, _TEXT)), int_of_object(object_at(arguments, _ROOM))
    skipped, row = int_of_object(object_at(arguments, _SKIPPED)), int_of_object(object_at(arguments, _BEGIN))
    kinds, names = object_at(bound, _KINDS), object_at(bound, _NAMES)
    last_host = words_of_stack(2)
    store_word(last_host, 0)
    used = word_at(ends + 8 * (_PROPERTIES_SPAN * rows + row - 1)) if row else 0
    end = int_of_object(object_at(arguments, _END))
    for number in range(row, end):
        row = number
        message = item_of_tuple(messages, row)
        size = _numbers(bound, arguments, message, row, columns, rows, last_host) if row != skipped else _UNUSUAL
        if size == 0:
            properties = item_of_tuple(message, _PROPERTIES)
            size = write_properties(kinds, properties, names, text + used, room - used)
        if size == _UNKNOWN:
            return row
        if size == _TOO_LONG:
            return -1 - row
        _set(starts, rows, _PROPERTIES_SPAN, row, used)
        if size == _UNUSUAL:
            set_byte(usual + row, 0)
        else:
            body = item_of_tuple(message, _BODY)
            _set(starts, rows, _BODY_SPAN, row, bytes_address(body))
            _set(ends, rows, _BODY_SPAN, row, bytes_address(body) + bytes_size(body))
            used += size
        _set(ends, rows, _PROPERTIES_SPAN, row, used)
    return int_of_object(object_at(arguments, _END))


def make_fill_rows(stamp: int) -> Native:
    """`fill_rows`, to be bound to a RowsContext and called with RowsArguments; `stamp` is `compiling.source_stamp()`,
    without which a kept kernel would outlive a change of what it calls."""

    def fill_rows(bound: int, arguments: int, count: int) -> int:
        """See `RowsArguments`."""
        return new_int(_fill(bytes_address(bound), arguments) if count != stamp else 0)

    return Native(fill_rows)
