"""Messages as rows for a bulk append: numbers in tables, bytes one behind the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from formats.message import Message
from formats.properties import MAXIMUM_PROPERTIES_SIZE
from store.columns.batch import Flags, Int64s
from store.columns.frame_columns import Frame, Span
from store.columns.frames import Held
from store.write.ordinary import UNUSUAL_FLAGS, OrdinaryPuts, packed_host

# a born time that is to be filled in
NO_TIME = -(1 << 63)
_INT = 1 << 31


@dataclass(slots=True)
class BulkRows:
    """`columns` by `Frame`, where SIZE, QUEUE_OFFSET and missing born times (NO_TIME) are still to be filled in;
    `starts` and `ends` by `Span`: bytes of `bodies` and `properties`. A topic's and a host's number is its place in
    `topics` and `hosts` (packed; None stands for the store's own).

    `usual`: rows that may go to the log as columns. `message(row)`: any row as a message, for the whole way.
    """

    columns: Int64s
    starts: Int64s
    ends: Int64s
    bodies: Held
    properties: Held
    topics: list[str]
    hosts: list[bytes]
    usual: Flags
    message: Callable[[int], Message]

    def __len__(self) -> int:
        return self.columns.shape[1]

    @property
    def lengths(self) -> Int64s:
        """Bytes of bodies and properties, by `Span`."""
        return self.ends - self.starts

    def judge(self, largest_body: int) -> None:
        """Let rows go the whole way that fields cannot hold, or that are unusual by their numbers."""
        columns, lengths = self.columns, self.lengths
        self.usual &= (
            (columns[Frame.SYS_FLAG] & UNUSUAL_FLAGS == 0)
            & (columns[Frame.QUEUE_ID] >= 0)
            & (lengths[Span.BODY] <= largest_body)
            & (lengths[Span.PROPERTIES] <= MAXIMUM_PROPERTIES_SIZE)
        )
        for name in (Frame.QUEUE_ID, Frame.FLAG, Frame.SYS_FLAG, Frame.RECONSUME_TIMES):
            self.usual &= (columns[name] >= -_INT) & (columns[name] < _INT)


def rows_of_messages(messages: Sequence[Message], ordinary: OrdinaryPuts) -> BulkRows | None:
    """Rows of `messages`; None where a number does not fit into 64 bits or is none, which the whole way tells."""
    columns = np.zeros((len(Frame), len(messages)), np.int64)
    numbers: dict[str, int] = {}
    hosts: dict[bytes | None, int] = {None: 0}
    host_numbers: dict[int, int] = {}
    encoded: list[bytes] = []
    unusual: list[int] = []
    encode = ordinary.properties_of
    for row, message in enumerate(messages):
        found = encode(message)
        if found is None:
            unusual.append(row)
            found = b""
        encoded.append(found)
        host = message.born_host
        if id(host) not in host_numbers:
            packed = packed_host(host)
            if packed is None:
                unusual.append(row)
            host_numbers[id(host)] = hosts.setdefault(packed, len(hosts))
    bodies = [message.body if type(message.body) is bytes else b"" for message in messages]
    times = [message.born_timestamp for message in messages]
    try:
        columns[Frame.TOPIC] = [numbers.setdefault(message.topic, len(numbers)) for message in messages]
        columns[Frame.QUEUE_ID] = [message.queue_id for message in messages]
        columns[Frame.FLAG] = [message.flag for message in messages]
        columns[Frame.SYS_FLAG] = [message.sys_flag for message in messages]
        columns[Frame.BORN_TIMESTAMP] = [NO_TIME if time is None else time for time in times]
        columns[Frame.BORN_HOST] = [host_numbers[id(message.born_host)] for message in messages]
        columns[Frame.RECONSUME_TIMES] = [message.reconsume_times for message in messages]
        columns[Frame.PREPARED] = [message.prepared_transaction_offset for message in messages]
    except (OverflowError, TypeError, ValueError):
        return None
    starts, ends = np.zeros((len(Span), len(messages)), np.int64), np.zeros((len(Span), len(messages)), np.int64)
    for span, parts in ((Span.BODY, bodies), (Span.PROPERTIES, encoded)):
        ends[span] = np.fromiter(accumulate(map(len, parts)), np.int64, len(parts))
        starts[span, 1:] = ends[span, :-1]
    usual = np.ones(len(messages), np.bool_)
    usual[unusual] = False
    return BulkRows(
        columns, starts, ends, Held.of(b"".join(bodies)), Held.of(b"".join(encoded)),
        list(numbers), [host or bytes(8) for host in hosts], usual, messages.__getitem__,
    )  # fmt: skip
