"""What `rmqctl browse` reads of a store: topics, queues and messages by row number, a screen at a time."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqctl.browse.rows import RowColumn, ScreenRow
from rmqctl.formats import properties as names
from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.properties import compression_name
from rmqctl.output.table import cell, human_size, padded, said, said_title
from rmqctl.output.times import format_time
from rmqctl.store.info.counts import SIGNS

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage
    from rmqctl.opening import StoreLocation
    from rmqctl.store.info.counts import LogCells
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.queues.consumequeue import QueueUnit
    from rmqctl.store.queues.queue_table import AnyConsumeQueue

_PREVIEW = 200


def command_line(location: StoreLocation, verb: str, *arguments: object) -> str:
    """Return the `rmqctl` command that answers the same for the store."""
    words = ["rmqctl", verb, "-s", str(location.path)]
    if location.config_path is not None:
        words += ["-c", str(location.config_path)]
    return shlex.join([*words, *map(str, arguments)])


def preview(message: StoredMessage) -> str:
    """Return the beginning of a body; of a compressed one only what it is: nothing is unpacked for a list."""
    packed = compression_name(message.sys_flag)
    if packed is not None:
        return f"({packed}, {human_size(len(message.body))})"
    return bytes(message.body[:_PREVIEW]).decode("utf-8", "backslashreplace")


class TopicRows:
    """Topics by name, with the sums over the queues of those on the screen."""

    columns: Sequence[RowColumn] = (RowColumn("topic"), RowColumn("queues", 6, True), RowColumn("messages", 12, True))

    def __init__(self, store: MessageStore) -> None:
        """List the names. CorruptError for a damaged RocksDB, UnreadableError."""
        self.store = store
        self.names = store.files.queues.topics()

    @property
    def count(self) -> int:
        """Number of topics."""
        return len(self.names)

    def read(self, begin: int, count: int) -> list[ScreenRow]:
        """Return topics with the numbers of their queues and messages."""
        shown = self.names[begin : begin + count]
        wanted = set(shown)
        files = self.store.files
        queues: dict[str, list[AnyConsumeQueue]] = {name: [] for name in shown}
        for queue in files.queues.of_topics(wanted.__contains__):
            queues[queue.topic].append(queue)
        if any(not found for found in queues.values()):
            for queue in files.queues.light():
                if queue.topic in wanted:
                    queues[queue.topic].append(queue)
        rows = []
        for name in shown:
            minimum = files.log.min_offset
            try:
                messages = sum(max(0, queue.max_offset - queue.min_offset(minimum)) for queue in queues[name])
                rows.append(ScreenRow((name, str(len(queues[name])), str(messages))))
            except RmqctlError as error:
                rows.append(ScreenRow((name, str(len(queues[name])), error.message), is_bad=True))
        return rows


class QueueRows:
    """Queues of a topic."""

    columns: Sequence[RowColumn] = (
        RowColumn("queue", 5, True),
        RowColumn("first", 12, True),
        RowColumn("end", 12, True),
        RowColumn("messages", 10, True),
        RowColumn("last stored"),
    )

    def __init__(self, store: MessageStore, topic: str) -> None:
        """List the queues of `topic`. NotFoundError, CorruptError, UnreadableError."""
        self.store = store
        self.topic = topic
        queues = store.files.queues.of_topics(topic.__eq__) or store.reader.queues(topic)
        self.queues = sorted(queues, key=lambda queue: queue.queue_id)

    @property
    def count(self) -> int:
        """Number of queues."""
        return len(self.queues)

    def read(self, begin: int, count: int) -> list[ScreenRow]:
        """Return queues with their offsets and the time of their last message."""
        return [self._row(queue) for queue in self.queues[begin : begin + count]]

    def _row(self, queue: AnyConsumeQueue) -> ScreenRow:
        try:
            first, end = queue.min_offset(self.store.files.log.min_offset), queue.max_offset
            unit = queue.unit(end - 1) if first < end else None
            time = None if unit is None else self.store.reader.unit_store_time(unit)
        except RmqctlError as error:
            return ScreenRow((str(queue.queue_id), "", "", "", said(error.message)), is_bad=True)
        return ScreenRow(
            (str(queue.queue_id), str(first), str(end), str(end - first), cell(time, "last_store_timestamp"))
        )


class QueueMessageRows:
    """Messages of a queue: row n is queue offset `first` + n. A row reads one unit, and one frame."""

    columns: Sequence[RowColumn] = (
        RowColumn("offset", 9, True),
        RowColumn("stored", 19),
        RowColumn("size", 9, True),
        RowColumn("tags", 8),
        RowColumn("keys", 12),
        RowColumn("body"),
    )

    def __init__(self, store: MessageStore, queue: AnyConsumeQueue) -> None:
        self.store = store
        self.queue = queue
        self.view = store.reader.view_without_ext(queue)
        self.first = queue.min_offset(store.files.log.min_offset)

    @property
    def count(self) -> int:
        """Number of slots from the first message on."""
        return max(0, self.queue.max_offset - self.first)

    def unit(self, number: int) -> QueueUnit | None:
        """Return the unit of a row; None for a slot of a file that is missing."""
        return self.queue.unit(self.first + number)

    def message(self, number: int) -> StoredMessage:
        """Return the message of a row. CorruptError where it is missing or damaged; MessageRemovedError."""
        from rmqctl.formats.errors import CorruptError

        unit = self.unit(number)
        if unit is None:
            raise CorruptError(f"no unit for slot {self.first + number}", file=self.queue.directory)
        return self.view.message_of(unit)

    def read(self, begin: int, count: int) -> list[ScreenRow]:
        """Return messages; what is damaged in its place."""
        return [self._row(number) for number in range(begin, begin + count)]

    def _row(self, number: int) -> ScreenRow:
        try:
            return message_row(self.message(number), self.first + number)
        except RmqctlError as error:
            return ScreenRow((f"{self.first + number}  {said(error.message)}",), is_bad=True)

    def number_at(self, timestamp: int) -> int:
        """Return the row of the first message stored at or after a time (ms)."""
        return self.store.offset_at(self.queue.topic, self.queue.queue_id, timestamp) - self.first


def message_row(message: StoredMessage, offset: int) -> ScreenRow:
    """Return a message as a row of QueueMessageRows, at `offset`."""
    properties = message.properties()
    return ScreenRow((
        str(offset),
        format_time(message.store_timestamp)[:19],
        human_size(message.total_size),
        properties.get(names.TAGS, ""),
        properties.get(names.KEYS, ""),
        preview(message),
    ))  # fmt: skip


class FoundRows:
    """Messages of a search or of a page of the log, and the damage met on the way."""

    columns: Sequence[RowColumn] = (
        RowColumn("offset", 12, True),
        RowColumn("topic", 14),
        RowColumn("stored", 19),
        RowColumn("keys", 12),
        RowColumn("body"),
    )

    def __init__(self, messages: Sequence[StoredMessage], damage: Sequence[RmqctlError] = ()) -> None:
        self.messages = messages
        self.damage = damage

    @property
    def count(self) -> int:
        """Number of messages and damaged places."""
        return len(self.messages) + len(self.damage)

    def message(self, number: int) -> StoredMessage:
        """Return the message of a row. Raises: the damage of a row that has none."""
        if number < len(self.messages):
            return self.messages[number]
        raise self.damage[number - len(self.messages)]

    def read(self, begin: int, count: int) -> list[ScreenRow]:
        """Return messages, then damage."""
        return [self._row(number) for number in range(begin, begin + count)]

    def _row(self, number: int) -> ScreenRow:
        try:
            message = self.message(number)
        except RmqctlError as error:
            return ScreenRow((str(error),), is_bad=True)
        keys = message.properties().get(names.KEYS, "")
        time = format_time(message.store_timestamp)[:19]
        return ScreenRow((str(message.physical_offset), message.topic, time, keys, preview(message)))


def map_lines(found: LogCells) -> list[str]:
    """Return what `du --map` prints, as lines of 80 columns."""
    sums = [
        f"  {SIGNS.get(kind, ' ')}  {padded(said_title(kind), 14, right=False)}{cell(size, 'bytes'):>12}"
        for kind, size in found.sizes.items()
    ]
    covered = [
        f"  {one.part:<14}{cell(one.first_offset):>14}{cell(one.last_offset):>14}  {one.problem or ''}".rstrip()
        for one in found.coverage
    ]
    return [*map(said, found.bar()), "", *sums, "", said("offsets of the first and last message in"), *covered]
