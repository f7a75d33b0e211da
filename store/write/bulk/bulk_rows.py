"""Messages as rows for a bulk append: numbers in tables, bytes one behind the other; and why some could not be stored,
before any of them is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import cast

import numpy as np

from rmqctl.formats.errors import UsageError
from rmqctl.formats.hosts import Host
from rmqctl.formats.message import Message
from rmqctl.formats.properties import PROPERTY_SEPARATOR
from rmqctl.store.log.columns import Flags, Int64s
from rmqctl.store.native.bulk import judge_rows
from rmqctl.store.native.put import OrdinaryPuts
from rmqctl.store.native.tables import Frame, FrameSpan
from rmqctl.store.native.uncompiled import Bytes
from rmqctl.store.write.checks import MAXIMUM_TOPIC_SIZE, STORE_TIMES
from rmqctl.store.write.prepare import joined_alike, property_template, usual_stored
from rmqctl.store.write.put import UNUSUAL_FLAGS, Known, PutResult, packed_host

# a born time that is to be filled in
NO_TIME = -(1 << 63)

Check = Callable[[Message], PutResult | None]
"""How a put would be refused; None if nothing speaks against it. (MessageStore.check_message)"""


@dataclass(slots=True)
class BulkRows:
    """`columns` by `Frame`, where SIZE, QUEUE_OFFSET and missing times (NO_TIME) are still to be filled in; `starts`
    and `ends` by `FrameSpan`: bytes of `bodies` and `properties`. A topic's and a host's number is its place in
    `topics` and `hosts` (packed; HOST_TABLE always is the store's own).

    `usual`: rows that may go to the log as columns. `message(row)`: any row as a message, for the slow path.
    `is_copy`: they are put as stored.
    """

    columns: Int64s
    starts: Int64s
    ends: Int64s
    bodies: Bytes
    properties: Bytes
    topics: list[str]
    hosts: list[bytes]
    usual: Flags
    message: Callable[[int], Message]
    is_copy: bool = False

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    def take(self, places: Int64s) -> BulkRows:
        """The rows at these places, in the order given."""
        message = self.message
        return replace(
            self, columns=self.columns.take(places, axis=1), starts=self.starts.take(places, axis=1),
            ends=self.ends.take(places, axis=1), usual=self.usual[places],
            message=lambda row: message(int(places[row])),
        )  # fmt: skip

    def encoded_topics(self) -> list[bytes]:
        """The topics as they are stored; never empty, so that places can be looked up in what is made of it."""
        return [topic.encode("utf-8", "replace") for topic in self.topics] or [b""]

    def judge(self, largest_body: int, file_size: int) -> None:
        """Fill in SIZE, and let rows take the slow path that fields or files cannot hold, or that are unusual by their
        numbers."""
        sizes = np.array(list(map(len, self.encoded_topics())), np.int64)
        judge_rows(
            self.columns, self.starts, self.ends, len(self.bodies), len(self.properties), sizes,
            self.usual.view(np.uint8).data, largest_body, file_size, MAXIMUM_TOPIC_SIZE, UNUSUAL_FLAGS,
            STORE_TIMES.stop,
        )  # fmt: skip


def rows_of_messages(messages: Sequence[Message], known: Known, is_copy: bool = False) -> BulkRows | None:
    """Return rows of `messages`, at least one; None if a number does not fit into 64 bits or is invalid, which the slow
    path reports."""
    count = len(messages)
    columns = np.zeros((len(Frame), count), np.int64)
    usual = np.ones(count, np.bool_)
    (
        topics, bodies, queue_ids, flags, properties, stored_properties, sys_flags, born_timestamps, born_hosts,
        store_timestamps, store_hosts, reconsume_times, prepared,
    ) = zip(*messages, strict=True)  # fmt: skip
    if set(map(type, topics)) != {str}:
        return None
    numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
    hosts, places = _hosts(born_hosts)
    columns[Frame.STORE_TIMESTAMP] = NO_TIME
    try:
        if len(numbers) > 1:
            columns[Frame.TOPIC] = list(map(numbers.__getitem__, topics))
        columns[Frame.BORN_TIMESTAMP] = _times(born_timestamps)
        columns[Frame.BORN_HOST] = places
        if is_copy:
            columns[Frame.STORE_TIMESTAMP] = _times(store_timestamps)
            hosts = _add_store_hosts(store_hosts, columns, usual, hosts)
        for place, values in (
            (Frame.QUEUE_ID, queue_ids), (Frame.FLAG, flags), (Frame.SYS_FLAG, sys_flags),
            (Frame.RECONSUME_TIMES, reconsume_times), (Frame.PREPARED, prepared),
        ):  # fmt: skip
            columns[place] = _once(values)
    except (OverflowError, TypeError, ValueError):
        return None
    usual &= columns[Frame.BORN_HOST] > 0
    if set(map(type, bodies)) != {bytes}:
        usual &= np.array([type(body) is bytes for body in bodies], np.bool_)
        bodies = tuple(body if type(body) is bytes else b"" for body in bodies)
    for given in () if is_copy else (store_hosts, store_timestamps):
        if given.count(None) < count:
            usual &= np.array([value is None for value in given], np.bool_)
    starts, ends = np.zeros((len(FrameSpan), count), np.int64), np.zeros((len(FrameSpan), count), np.int64)
    encoded, ends[FrameSpan.PROPERTIES] = _properties(properties, stored_properties, known, usual)
    np.cumsum(np.fromiter(map(len, bodies), np.int64, count), out=ends[FrameSpan.BODY])
    starts[:, 1:] = ends[:, :-1]
    return BulkRows(
        columns, starts, ends, b"".join(bodies), encoded,
        list(numbers), hosts, usual, messages.__getitem__, is_copy,
    )  # fmt: skip


def _once(values: tuple[int, ...]) -> int | tuple[int, ...]:
    """The one value if all are the same: counting is many times faster than making an array of objects."""
    return values[0] if values.count(values[0]) == len(values) else values


def _times(values: tuple[int | None, ...]) -> int | list[int]:
    if values.count(None) == len(values):
        return NO_TIME
    return [NO_TIME if time is None else time for time in values]


def _add_store_hosts(
    given: tuple[Host | None, ...], columns: Int64s, usual: Flags, born_hosts: list[bytes]
) -> list[bytes]:
    """Fill in the places of store hosts behind those of the born hosts; all hosts then."""
    hosts, places = _hosts(given)
    columns[Frame.STORE_HOST] = places
    found = columns[Frame.STORE_HOST] > 0
    missing = np.array([host is None for host in given], np.bool_)
    usual &= found | missing
    columns[Frame.STORE_HOST, found] += len(born_hosts) - 1
    return born_hosts + hosts[1:]


def _hosts(hosts: tuple[Host | None, ...]) -> tuple[list[bytes], int | list[int]]:
    """The packed hosts, and the number of each one given: 0 if it cannot be packed."""
    if hosts.count(hosts[0]) == len(hosts):
        packed = packed_host(hosts[0])
        return [bytes(8), packed or bytes(8)], int(packed is not None)
    # objects are told apart before hosts are: most producers send many messages from one address
    objects = {id(host): packed_host(host) for host in hosts}
    numbers: dict[bytes | None, int] = {None: 0}
    for packed in objects.values():
        numbers.setdefault(packed, len(numbers))
    places = {key: numbers[packed] for key, packed in objects.items()}
    return [packed or bytes(8) for packed in numbers], [places[id(host)] for host in hosts]


def _properties(
    properties: tuple[Mapping[str, str], ...], given: tuple[bytes | None, ...], known: Known, usual: Flags
) -> tuple[bytes, Int64s]:
    """The stored properties one behind the other, and where each end; rows with unusual ones are no longer `usual`.
    Those `given` as bytes replace the others."""
    if given.count(None) == len(given):
        if set(map(type, properties)) == {dict}:
            found = _alike(cast(tuple[dict[str, str], ...], properties))
            if found is not None:
                return found
        encoded = [known.properties_of(one) for one in properties]
    else:
        encoded = [
            known.properties_of(one) if stored is None else usual_stored(stored)
            for one, stored in zip(properties, given, strict=True)
        ]
    usual &= np.array([one is not None for one in encoded], np.bool_)
    usual_ones = [one or b"" for one in encoded]
    return b"".join(usual_ones), np.cumsum(np.fromiter(map(len, usual_ones), np.int64, len(usual_ones)))


def _alike(properties: tuple[dict[str, str], ...]) -> tuple[bytes, Int64s] | None:
    """The same for messages that all have the same names: joined at once, and cut where the separators are."""
    names = tuple(properties[0])
    each = len(names)
    # as no name comes twice in one of them, the names of all in a row tell those of each
    if list(chain.from_iterable(properties)) != [*names] * len(properties) or property_template(names) in (None, ""):
        return None
    values = list(chain.from_iterable(map(dict.values, properties)))
    try:
        encoded = joined_alike(names, values).encode()
    except (UnicodeError, TypeError):
        return None
    separators = np.flatnonzero(np.frombuffer(encoded, np.uint8) == ord(PROPERTY_SEPARATOR))
    if len(separators) != len(values):
        return None  # a value holds one
    return encoded, separators[each - 1 :: each] + 1


def refused_rows(rows: BulkRows, check: Check) -> dict[int, str]:
    """Why rows of `rows`, which are judged, would be refused; rows that would be stored are not in it.
    WriteFailedError where the store takes none at all now.

    What a store asks of a usual row it asks of its topic: one row speaks for all usual ones of that topic. What it
    asks of numbers and sizes is looked at in `BulkRows.judge`; the rest are asked for one by one.
    """
    usual = np.flatnonzero(rows.usual)
    topics = rows.columns[Frame.TOPIC, usual]
    _, firsts = np.unique(topics, return_index=True)
    refused = refused_messages(usual[firsts].tolist(), rows.message, check)
    for row, why in list(refused.items()):
        refused.update(dict.fromkeys(usual[topics == rows.columns[Frame.TOPIC, row]].tolist(), why))
    refused.update(refused_messages(np.flatnonzero(~rows.usual).tolist(), rows.message, check))
    return dict(sorted(refused.items()))


def refused_messages(numbers: Iterable[int], message: Callable[[int], Message], check: Check) -> dict[int, str]:
    """The plain twin: each message by itself."""
    refused: dict[int, str] = {}
    for number in numbers:
        try:
            answer = check(message(number))
        except UsageError as error:
            refused[number] = error.message
            continue
        if answer is not None:
            answer.raise_failure()
            refused[number] = f"{answer.status}: {answer.detail}"
    return refused


# Messages as rows for a bulk append by the compiled fast path; the plain form is `bulk_rows.rows_of_messages`.

# so many rows at a time, so that Ctrl-C and other threads have their turn
_ROWS_AT_ONCE = 4096
_TEXT_OF_A_ROW = 128


def rows_of_new_messages(messages: Sequence[Message], puts: OrdinaryPuts) -> BulkRows:
    """Rows of new `messages`. Values that a row cannot hold are unusual, and so are properties in stored form."""
    held = tuple(messages)
    count = len(held)
    columns = np.zeros((len(Frame), count), np.int64)
    starts, ends = np.zeros((len(FrameSpan), count), np.int64), np.zeros((len(FrameSpan), count), np.int64)
    usual = np.ones(count, np.bool_)
    text = np.empty(count * _TEXT_OF_A_ROW, np.uint8)
    # in the order of their numbers; number 0 is the store's own host
    topics: dict[str, int] = {}
    hosts: dict[Host, int] = {}
    bodies: list[bytes] = []
    begin = 0
    while begin < count:
        end = min(begin + _ROWS_AT_ONCE, count)
        tables = columns, starts, ends, usual.view(np.uint8).data, text.data
        begin = puts.fill_rows(held, begin, end, topics, hosts, *tables, bodies)
        if begin < end:
            text = np.concatenate((text, np.empty_like(text)))
    return BulkRows(
        columns, starts, ends, b"".join(bodies), text.data,
        # what is unusual has the first topic, whatever its own is
        list(topics) or [""], [bytes(8), *(packed_host(one) or bytes(8) for one in hosts)], usual, held.__getitem__,
    )  # fmt: skip
