"""Messages as rows for a bulk append by compiled code; the plain form is `bulk_rows.rows_of_messages`."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from formats.hosts import LOCAL_HOST, Host
from formats.message import Message
from store.columns.engine import engine
from store.columns.frame_columns import Frame, Span
from store.columns.frames import Held
from store.columns.tried import tried_native
from store.write.bulk_rows import NO_TIME, BulkRows
from store.write.known import packed_host
from store.write.ordinary import OrdinaryPuts
from store.write.put_context import RowsArguments, RowsContext

if TYPE_CHECKING:
    from store.columns.native import Native

FillRows = Callable[..., int]
"""See RowsArguments."""
# so many rows at a time, so that Ctrl-C and other threads have their turn
_ROWS_AT_ONCE = 4096
_TEXT_OF_A_ROW = 128


def fill_rows(ordinary: OrdinaryPuts) -> FillRows | None:
    """The compiled code for a store; None where nothing is compiled. Loads numba where it is installed."""
    kernel = None if engine().walk_window is None else _load()
    return None if kernel is None else kernel.bound_to(RowsContext(ordinary.names))


def compiled_rows_of_messages(messages: Sequence[Message], ordinary: OrdinaryPuts, fill: FillRows) -> BulkRows:
    """Rows of new `messages`. Whatever a row cannot hold is unusual, and so are properties in stored form."""
    return _filled(messages, fill, lambda message: ordinary.properties_of(message.properties))


def _filled(messages: Sequence[Message], fill: FillRows, learn_names: Callable[[Message], object]) -> BulkRows:
    # keeps alive what the rows tell the places of, whatever becomes of `messages`
    held = tuple(messages)
    count = len(held)
    columns = np.zeros((len(Frame), count), np.int64)
    starts, ends = np.zeros((len(Span), count), np.int64), np.zeros((len(Span), count), np.int64)
    usual = np.ones(count, np.bool_)
    text = np.empty(count * _TEXT_OF_A_ROW, np.uint8)
    topics: dict[str, int] = {}
    hosts: dict[int, int] = {}
    packed: dict[bytes | None, int] = {None: 0}
    begin, looked_at, skipped = 0, -1, -1
    while begin < count:
        end = min(begin + _ROWS_AT_ONCE, count)
        tables = columns.ctypes.data, starts.ctypes.data, ends.ctypes.data, usual.ctypes.data
        found = topics, hosts, text.ctypes.data, len(text)
        reached = fill(*RowsArguments(held, begin, end, skipped, count, *tables, *found))
        if reached < 0:
            reached = -1 - reached
            text = np.concatenate((text, np.empty_like(text)))
        elif reached < end and reached == looked_at:
            # what is not known after a look either makes the row an unusual one
            skipped = reached
        elif reached < end:
            looked_at = reached
            message = held[reached]
            topics.setdefault(message.topic, len(topics))
            hosts[id(message.born_host)] = packed.setdefault(packed_host(message.born_host), len(packed))
            learn_names(message)
        begin = reached
    owner = held, text
    return BulkRows(
        columns, starts, ends, Held(0, owner), Held(text.ctypes.data, owner),
        # what is unusual has the first topic, whatever its own is
        list(topics) or [""], [one or bytes(8) for one in packed], usual, held.__getitem__,
    )  # fmt: skip


@functools.cache
def _load() -> Native | None:
    from store.write.kernel_message_rows import make_fill_rows

    return tried_native(make_fill_rows, lambda kernel: _is_right(kernel.bound_to))


def _is_right(bound_to: Callable[[RowsContext], FillRows]) -> bool:
    """Whether it fills in what it should, tried on small messages."""
    other, names = Host(b"\x01\x02\x03\x04", 5), {"KEYS": b"KEYS\x01"}
    message = Message(
        "Topic", b"body", 3, 4, {"KEYS": "ä"}, None, 5, 6, reconsume_times=7, prepared_transaction_offset=8
    )
    unusual: list[dict[str, Any]] = [{"flag": None}, {"queue_id": 1 << 63}, {"body": ""}, {"topic": 1}]
    unusual += [{"properties": one} for one in ({"KEYS": "\x02"}, {"DELAY": "1"}, ())]
    unusual += [{"property_bytes": b""}, {"store_host": other}]
    messages = [
        message,
        Message("Other", bytes(3), born_host=other),
        *(message._replace(**changes) for changes in unusual),
        message._replace(properties={"KEYS": "x" * 1000 * _TEXT_OF_A_ROW, "A": ""}),
    ]
    rows = _filled(messages, bound_to(RowsContext(names)), lambda _: names.update(A=b"A\x01"))
    usual = [0, 1, len(messages) - 1]
    bodies, texts = (
        [_bytes_of(held, rows, span, row) for row in usual]
        for held, span in ((rows.bodies, Span.BODY), (rows.properties, Span.PROPERTIES))
    )
    numbers = {
        Frame.QUEUE_ID: [3, 0, 3], Frame.FLAG: [4, 0, 4], Frame.SYS_FLAG: [5, 0, 5],
        Frame.BORN_TIMESTAMP: [6, NO_TIME, 6], Frame.RECONSUME_TIMES: [7, 0, 7], Frame.PREPARED: [8, 0, 8],
        Frame.TOPIC: [0, 1, 0], Frame.BORN_HOST: [1, 2, 1], Frame.STORE_TIMESTAMP: [NO_TIME] * 3,
    }  # fmt: skip
    return (
        np.flatnonzero(rows.usual).tolist() == usual
        and all(rows.columns[name, usual].tolist() == values for name, values in numbers.items())
        and bodies == [b"body", bytes(3), b"body"]
        and texts == ["KEYS\x01ä\x02".encode(), b"", b"KEYS\x01" + b"x" * 1000 * _TEXT_OF_A_ROW + b"\x02A\x01\x02"]
        and rows.topics == ["Topic", "Other"]
        and rows.hosts[1:] == [packed_host(LOCAL_HOST), packed_host(other)]
    )


def _bytes_of(held: Held, rows: BulkRows, span: Span, row: int) -> bytes:
    return ctypes.string_at(held.address + int(rows.starts[span, row]), int(rows.lengths[span, row]))
