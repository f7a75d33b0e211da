"""Puts rows of ordinary messages as whole stretches of the log; all others take the slow path, in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, overload

import numpy as np

from rmqctl.formats.errors import WriteFailedError
from rmqctl.formats.hosts import Host
from rmqctl.formats.layouts import BLANK_FRAME, TOPIC_LENGTH_V1
from rmqctl.formats.message import Message
from rmqctl.formats.notebook import as_html
from rmqctl.store.files.mapped_file import monotonic_ms
from rmqctl.store.log.append import Room
from rmqctl.store.log.columns import Flags, Int64s
from rmqctl.store.native.bulk import give_offsets, number_queues, write_first_bytes, write_frames
from rmqctl.store.native.put import NextOffset
from rmqctl.store.native.tables import HOST_TABLE, Frame
from rmqctl.store.write.bulk.bulk_rows import NO_TIME, BulkRows
from rmqctl.store.write.checks import MAXIMUM_TOPIC_SIZE
from rmqctl.store.write.put import STORED, Known, PutResult, PutServices

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
        self,
        services: PutServices,
        file_size: int,
        clock: Callable[[], int],
        put_new: PutOne,
        put_copy: PutOne,
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
