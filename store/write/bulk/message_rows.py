"""Messages as rows for a bulk append by the compiled fast path; the plain form is `bulk_rows.rows_of_messages`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmqctl.formats.message import Message
from rmqctl.store.columns.frame_columns import Frame, FrameSpan
from rmqctl.store.columns.frames import Held
from rmqctl.store.write.bulk.bulk_rows import BulkRows
from rmqctl.store.write.fast.extension import FastPath
from rmqctl.store.write.fast.known import Known

# so many rows at a time, so that Ctrl-C and other threads have their turn
_ROWS_AT_ONCE = 4096
_TEXT_OF_A_ROW = 128


def compiled_rows_of_messages(messages: Sequence[Message], known: Known, fast: FastPath) -> BulkRows:
    """Rows of new `messages`. Whatever a row cannot hold is unusual, and so are properties in stored form."""
    # keeps alive what the rows tell the places of, whatever becomes of `messages`
    held = tuple(messages)
    count = len(held)
    columns = np.zeros((len(Frame), count), np.int64)
    starts, ends = np.zeros((len(FrameSpan), count), np.int64), np.zeros((len(FrameSpan), count), np.int64)
    usual = np.ones(count, np.bool_)
    text = np.empty(count * _TEXT_OF_A_ROW, np.uint8)
    # by topic and by the eight bytes of a host, in the order of their numbers; number 0 is the store's own host
    topics: dict[str, int] = {}
    hosts: dict[bytes | None, int] = {None: 0}
    begin, looked_at, skipped = 0, -1, -1
    while begin < count:
        end = min(begin + _ROWS_AT_ONCE, count)
        # up to where it came: the end; or a row with a name of a property that is not known yet; or -1 - row for one
        # whose properties do not fit into what is left of `text`
        reached = fast.fill_rows(held, begin, end, skipped, topics, hosts, columns, starts, ends, usual, text)
        if reached < 0:
            reached = -1 - reached
            text = np.concatenate((text, np.empty_like(text)))
        elif reached < end and reached == looked_at:
            # what is not known after a look either makes the row an unusual one
            skipped = reached
        elif reached < end:
            looked_at = reached
            known.properties_of(held[reached].properties)
        begin = reached
    owner = held, text
    return BulkRows(
        columns, starts, ends, Held(0, owner), Held(text.ctypes.data, owner),
        # what is unusual has the first topic, whatever its own is
        list(topics) or [""], [one or bytes(8) for one in hosts], usual, held.__getitem__,
    )  # fmt: skip
