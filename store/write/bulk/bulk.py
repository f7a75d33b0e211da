"""Puts rows of ordinary messages as whole stretches of the log; all others take the slow path, in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, cast, overload

import numpy as np

from rmqctl.formats.errors import UsageError, WriteFailedError
from rmqctl.formats.layouts import BLANK_FRAME, TOPIC_LENGTH_V1
from rmqctl.formats.message import Host, Message
from rmqctl.formats.notebook import as_html
from rmqctl.formats.properties import PROPERTY_SEPARATOR
from rmqctl.store.files.mapped_file import monotonic_ms
from rmqctl.store.log.append import Room
from rmqctl.store.log.columns import Flags, Int64s
from rmqctl.store.native.bulk import give_offsets, judge_rows, number_queues, write_first_bytes, write_frames
from rmqctl.store.native.put import NextOffset, OrdinaryPuts
from rmqctl.store.native.tables import HOST_TABLE, Frame, FrameSpan
from rmqctl.store.native.uncompiled import Bytes
from rmqctl.store.write.checks import MAXIMUM_TOPIC_SIZE, STORE_TIMES
from rmqctl.store.write.prepare import joined_alike, property_template, usual_stored
from rmqctl.store.write.put import STORED, UNUSUAL_FLAGS, Known, PutResult, PutServices, packed_host

# Messages as rows for a bulk append: numbers in tables, bytes one behind the other; and why some could not be stored,
# before any of them is.

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


def refused_rows(rows: BulkRows, check: Check, accepted: set[str]) -> dict[int, str]:
    """Why rows of `rows`, which are judged, would be refused; rows that would be stored are not in it.
    WriteFailedError where the store takes none at all now.

    What a store asks of a usual row it asks of its topic: one row speaks for all usual ones of that topic. What it
    asks of numbers and sizes is looked at in `BulkRows.judge`; the rest are asked for one by one. `accepted`: topics
    whose usual rows need not be asked for; those found good are added.
    """
    usual = np.flatnonzero(rows.usual)
    topics = rows.columns[Frame.TOPIC, usual]
    numbers, firsts = np.unique(topics, return_index=True)
    asked = {
        row: rows.topics[number]
        for number, row in zip(numbers.tolist(), usual[firsts].tolist(), strict=True)
        if rows.topics[number] not in accepted
    }
    refused = refused_messages(asked, rows.message, check)
    accepted.update(topic for row, topic in asked.items() if row not in refused)
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


# How a put of rows ended: columns of offsets, and single results only for those that are looked at.


class CopiedHosts(NamedTuple):
    """Store hosts that messages brought along: by row a place in `packed`, where that of HOST_TABLE is the store's."""

    numbers: Int64s
    packed: list[bytes]

    def host(self, row: int) -> Host | None:
        """That of a row; None for the store's own."""
        number = int(self.numbers[row])
        one = self.packed[number]
        return Host(one[:4], int.from_bytes(one[4:], "big", signed=True)) if number > HOST_TABLE else None


class ColumnsResult(NamedTuple):
    """Result of a put of rows. Both columns of offsets are -1 if a row is not stored; `refused` has the reason.

    `answers`: by row, those of messages that took the slow path. `copied_hosts`: of copies.
    """

    queue_offset: Int64s
    physical_offset: Int64s
    answers: dict[int, PutResult]
    copied_hosts: CopiedHosts | None = None

    def _repr_html_(self) -> str:
        return as_html(self)

    @classmethod
    def of(cls, rows: int, copied_hosts: CopiedHosts | None = None) -> ColumnsResult:
        """That of `rows` rows none of which is stored yet."""
        return cls(np.full(rows, -1, np.int64), np.full(rows, -1, np.int64), {}, copied_hosts)

    @property
    def refused(self) -> dict[int, PutResult]:
        """Why rows are not stored."""
        return {row: answer for row, answer in self.answers.items() if not answer.status.is_stored}

    @property
    def stored(self) -> int:
        """Rows that are in the log."""
        return int(np.count_nonzero(self.physical_offset >= 0))

    @property
    def first_physical_offset(self) -> int | None:
        """Physical offset of the first stored row; None without one."""
        offsets = self.physical_offset[self.physical_offset >= 0]
        return int(offsets[0]) if len(offsets) else None

    def note(self, row: int, answer: PutResult) -> None:
        """A row was put as a message, and this is how it ended."""
        self.answers[row] = answer
        if answer.physical_offset is not None and answer.queue_offset is not None:
            self.physical_offset[row], self.queue_offset[row] = answer.physical_offset, answer.queue_offset

    def give_up(self, row: int, answer: PutResult) -> None:
        """The store could not take a row: it and all behind it are not stored, for this reason."""
        self.answers.update(dict.fromkeys(range(row, len(self.physical_offset)), answer))

    def results(self, store_host: Host) -> Sequence[PutResult]:
        """The same as one result for each row."""
        return _Results(self, store_host)


class _Results(Sequence[PutResult]):
    """Results are made when they are looked at: most callers look at few of many."""

    def __init__(self, found: ColumnsResult, store_host: Host) -> None:
        self._found = found
        self._store_host = store_host

    def __len__(self) -> int:
        return len(self._found.physical_offset)

    def _one(self, row: int) -> PutResult:
        answer = self._found.answers.get(row)
        if answer is not None:
            return answer
        queue_offset, physical_offset = int(self._found.queue_offset[row]), int(self._found.physical_offset[row])
        copied = self._found.copied_hosts
        host = None if copied is None else copied.host(row)
        return PutResult(STORED, queue_offset, physical_offset, "", host or self._store_host)

    @overload
    def __getitem__(self, index: int) -> PutResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[PutResult]: ...

    def __getitem__(self, index: int | slice) -> PutResult | list[PutResult]:
        rows = range(len(self))[index]
        return self._one(rows) if isinstance(rows, int) else [self._one(row) for row in rows]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list's


# a stretch of this many bytes is appended under one lock
_STRETCH = 4 * 1024 * 1024
# so many messages become objects at a time where nothing is compiled
_SINGLES = 256

PutOne = Callable[[Message], PutResult]


def put_one_by_one(rows: BulkRows, put_many: Callable[[list[Message]], Sequence[PutResult]]) -> ColumnsResult:
    """The plain twin of `BulkPuts.put`. `put_many` waits for the disk once, where it waits at all."""
    result = ColumnsResult.of(len(rows))
    for begin in range(0, len(rows), _SINGLES):
        some = range(begin, min(begin + _SINGLES, len(rows)))
        for row, answer in zip(some, put_many([rows.message(row) for row in some]), strict=True):
            if answer.is_failure:
                result.give_up(row, answer)
                return result
            result.note(row, answer)
    return result


class BulkPuts:
    """Puts rows for one store. `put_new` and `put_copy` put a single message, on the slow path if need be."""

    def __init__(
        self, services: PutServices, file_size: int, clock: Callable[[], int], put_new: PutOne, put_copy: PutOne
    ) -> None:
        self._services = services
        self._file_size = file_size
        self._clock = clock
        self._put_new = put_new
        self._put_copy = put_copy

    def put(self, rows: BulkRows) -> ColumnsResult:
        """Put rows one after the other."""
        services = self._services
        rows.judge(services.config.max_message_size, self._file_size)
        copied = CopiedHosts(rows.columns[Frame.STORE_HOST], rows.hosts) if rows.is_copy else None
        result = ColumnsResult.of(len(rows), copied)
        work = _Work(rows, services.known)
        row = 0
        while row < len(rows):
            end = work.end_of_ready(row)
            reached = self._stretch(work, row, end, result) if row < end else row
            if reached == row:
                answer = (self._put_copy if rows.is_copy else self._put_new)(rows.message(row))
                if answer.is_failure:
                    result.give_up(row, answer)
                    break
                result.note(row, answer)
                work.learn(row)
                reached = row + 1
            row = reached
        return result

    def _stretch(self, work: _Work, begin: int, end: int, result: ColumnsResult) -> int:
        """Append some of the rows [begin, end), all of which are ready; where those end that were. `begin` if there is
        no path now but the slow one, which also tells why."""
        services, puts = self._services, self._services.puts
        services.headroom.settle(services.appender.end_offset)
        with puts.lock:
            if not services.state.is_writeable or services.headroom.is_over_ratio:
                return begin
            now, puts.begin_in_lock = self._clock(), monotonic_ms()
            try:
                file = services.appender.last_file
                left = file.size - file.wrote_position if file is not None else self._file_size
                stop = work.fitting(begin, end, min(left - BLANK_FRAME.size, _STRETCH))
                if stop == begin:
                    stop = work.fitting(begin, end, min(self._file_size - BLANK_FRAME.size, _STRETCH))
                size = work.size(begin, stop)
                if not work.is_copy and now < puts.last_timestamp:
                    return begin
                if stop == begin or not services.headroom.admit_ordinary(size):
                    return begin
                try:
                    room = services.appender.reserve(size)
                except WriteFailedError:
                    return begin  # fewer may still fit
                self._append(room, work, begin, stop, now, result)
            finally:
                puts.begin_in_lock = None
        services.on_append()
        return stop

    def _append(self, room: Room, work: _Work, begin: int, end: int, now: int, result: ColumnsResult) -> None:
        """Under the put lock: append the frames of the rows [begin, end), for which space is reserved."""
        services = self._services
        size, physical_offset, columns = work.size(begin, end), room.physical_offset, work.columns
        taken = work.assign(begin, end)
        for place in (Frame.BORN_TIMESTAMP, Frame.STORE_TIMESTAMP):
            times = columns[place, begin:end]
            times[times == NO_TIME] = now
        places = physical_offset + work.before[begin:end] - work.before[begin]
        last = int(columns[Frame.STORE_TIMESTAMP, end - 1])
        if work.is_copy:
            self._lower_checkpoint(columns[Frame.STORE_TIMESTAMP, begin:end], places)
        if room.is_new_file:
            services.puts.drop_window()
        services.appender.enter(room)
        position = room.file.wrote_position
        mapped = room.file.writable_map
        mapped.will_write(position, size)
        with mapped.view(position, position + size) as view:
            work.write(view, begin, end, physical_offset)
        try:
            room.file.publish(position + size, last)
        finally:
            # whatever interrupts us: what is in the log has used up its offsets
            if room.file.wrote_position == position + size:
                for entry, count in taken:
                    entry.value += count
        services.puts.last_timestamp = last
        result.queue_offset[begin:end] = columns[Frame.QUEUE_OFFSET, begin:end]
        result.physical_offset[begin:end] = places
        services.appender.leave(room)

    def _lower_checkpoint(self, times: Int64s, places: Int64s) -> None:
        """Before messages with these store times come to stand at `places`: what goes back in time among them."""
        back = times < np.concatenate(([self._services.puts.last_timestamp], times[:-1]))
        if back.any():
            self._services.checkpoint.lower(int(times[back].min()), int(places[back][-1]))


class _Work:
    """What is known about the rows: their sizes, their queues, and which of them may go as columns now."""

    def __init__(self, rows: BulkRows, known: Known) -> None:
        """`rows` as judged."""
        self._rows = rows
        self._known = known.topics
        self.is_copy = rows.is_copy
        self.columns = columns = rows.columns
        # a longer topic has no such field, and no row of it is usual
        names = [name[:MAXIMUM_TOPIC_SIZE] for name in rows.encoded_topics()]
        fields = [TOPIC_LENGTH_V1.struct.pack(len(name)) + name for name in names]
        self._topics = b"".join(fields), np.cumsum([0, *map(len, fields)])
        hosts = [known.packed_store_host, *rows.hosts[HOST_TABLE + 1 :]]
        self._hosts = np.frombuffer(b"".join(hosts), ">i8").astype(np.int64)
        self.before = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(columns[Frame.SIZE], out=self.before[1:])
        first_rows, self._queues = numbered_queues(columns)
        self._entries: list[NextOffset | None] = [self._entry(row) for row in first_rows.tolist()]
        found = np.array([entry is not None for entry in self._entries], np.bool_)
        self._ready: Flags = rows.usual & found[self._queues] if len(rows) else rows.usual

    def _entry(self, row: int) -> NextOffset | None:
        columns = self._rows.columns
        topic = self._known.get(self._rows.topics[int(columns[Frame.TOPIC, row])])
        return topic.queues.get(int(columns[Frame.QUEUE_ID, row])) if topic is not None else None

    def write(self, view: memoryview, begin: int, end: int, physical_offset: int) -> None:
        """Write the frames of rows [begin, end). Their first eight bytes come after everything else, so that a reader
        sees whole frames only."""
        rows = self._rows
        write_frames(
            view, physical_offset, rows.columns, self._hosts, rows.starts, rows.ends, rows.bodies, rows.properties,
            *self._topics, begin, end,
        )  # fmt: skip
        write_first_bytes(view, rows.columns, begin, end)

    def end_of_ready(self, row: int) -> int:
        """Where the stretch of ready rows from `row` on ends."""
        left = self._ready[row:]
        return row + (int(np.argmin(left)) if not left.all() else len(left))

    def learn(self, row: int) -> None:
        """A row has taken the slow path: its queue may be known now."""
        queue = int(self._queues[row])
        if self._entries[queue] is None:
            self._entries[queue] = self._entry(row)
            if self._entries[queue] is not None:
                self._ready |= self._rows.usual & (self._queues == queue)

    def size(self, begin: int, end: int) -> int:
        """Bytes of the frames of rows [begin, end)."""
        return int(self.before[end] - self.before[begin])

    def fitting(self, begin: int, end: int, room: int) -> int:
        """Up to which row the frames from `begin` on fit into `room` bytes."""
        return min(end, int(np.searchsorted(self.before, self.before[begin] + room, "right")) - 1)

    def assign(self, begin: int, end: int) -> list[tuple[NextOffset, int]]:
        """Fill in the queue offsets of rows [begin, end); how many offsets each queue gives away for them."""
        before = [0 if entry is None else entry.value for entry in self._entries]
        after = np.array(before, np.int64)
        give_offsets(self._queues, after, self._rows.columns[Frame.QUEUE_OFFSET], begin, end)
        counts = (count - first for first, count in zip(before, after.tolist(), strict=True))
        return [(entry, count) for entry, count in zip(self._entries, counts, strict=True) if entry and count]


def numbered_queues(columns: Int64s) -> tuple[Int64s, Int64s]:
    """The first row of each queue, by the queue's number, and the number for each row."""
    count = columns.shape[1]
    first_rows, queues = np.empty(count, np.int64), np.empty(count, np.int64)
    slots = np.full(1 << (2 * count).bit_length(), -1, np.int64)
    found = number_queues(columns, slots, first_rows, queues)
    return first_rows[:found], queues
