"""Which messages a query can want at all: comparisons as ranges and sets, held against columns of the walk."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import FrameDamage, parse_offset_message_id
from rmqctl.store.log.columns import Flags, Int64s, MessageColumns
from rmqctl.store.native.tables import Columns
from rmqctl.store.read.filter import message_keys
from rmqctl.store.read.row_filter import KEY_NEEDS, may_have_keys, row_properties

# Queue offsets that a read begins or ends with, as the source `kafka` of Spark has them: `{"Pay": {"0": 23}}`.

_EARLIEST, _LATEST = -2, -1
_QUEUE_BOUNDS_HIGHEST = (1 << 63) - 1
_LARGEST_QUEUE_ID = (1 << 31) - 1

OffsetsByQueue = Mapping[tuple[str, int], int]
"""A queue offset for some queues, each a topic and a queue id."""


class QueueBounds(NamedTuple):
    """Of a queue only the messages with a queue offset in [begin, end) are meant."""

    topic: str
    queue_id: int
    begin: int = 0
    end: int = _QUEUE_BOUNDS_HIGHEST


def is_by_queue(text: str) -> bool:
    """Whether an option says offsets queue by queue, and not one for all."""
    return text.lstrip().startswith("{")


def queue_offsets(option: str, text: str) -> OffsetsByQueue:
    """Return the offsets of an option; UsageError if invalid. -2: the earliest one, -1: after the last one."""
    hint = f'write .option("{option}", \'{{"TopicA": {{"0": 23, "1": -2}}}}\')'
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UsageError(f"option {option} is no JSON: {error}", hint=hint) from error
    found: dict[tuple[str, int], int] = {}
    for topic, offsets in content.items():
        if not isinstance(offsets, dict) or not topic:
            raise UsageError(f"option {option} says {offsets!r} of {topic!r}, and no offset of a queue", hint=hint)
        for queue, offset in offsets.items():
            is_queue = queue.isascii() and queue.isdigit() and int(queue) <= _LARGEST_QUEUE_ID
            if not is_queue or type(offset) is not int or not _EARLIEST <= offset <= _QUEUE_BOUNDS_HIGHEST:
                raise UsageError(f"option {option} says {offset!r} of queue {queue!r} of {topic}", hint=hint)
            found[topic, int(queue)] = offset
    if not found:
        raise UsageError(f"option {option} names no queue", hint=hint)
    return found


def bounds_between(starting: OffsetsByQueue, ending: OffsetsByQueue) -> tuple[QueueBounds, ...]:
    """Return the bounds of the named queues; other queues are read whole. UsageError for an end before everything."""
    if _EARLIEST in ending.values():
        raise UsageError("option ending_offset is -2, the earliest: no message is before it", hint="use -1 for the end")
    begins = {_EARLIEST: 0, _LATEST: _QUEUE_BOUNDS_HIGHEST}
    ends = {_LATEST: _QUEUE_BOUNDS_HIGHEST}
    return tuple(
        QueueBounds(
            *queue,
            begins.get(starting.get(queue, _EARLIEST), starting.get(queue, 0)),
            ends.get(ending.get(queue, _LATEST), ending.get(queue, 0)),
        )
        for queue in sorted({**starting, **ending})
    )


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)
# stands for bytes that are no UTF-8
_REPLACEMENT = "\ufffd"
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


class Range(NamedTuple):
    """Whole numbers from `low` to `high`, both included."""

    low: int = _LOWEST
    high: int = _HIGHEST

    @property
    def is_all(self) -> bool:
        """Return whether it contains every number."""
        return self == Range()

    def narrowed(self, low: int, high: int) -> Range:
        """What this range and [low, high] have in common."""
        return Range(max(self.low, low), min(self.high, high))


class Wanted(NamedTuple):
    """A message outside of any of these cannot be in the result; one inside may be. Times in ms, None: any.

    `places`: the only physical offsets, where these are few; `topic_pattern`: what a whole topic has to match; `keys`:
    a message has one of each of these sets, be it its unique key or one of its KEYS; `queue_bounds`: what is wanted of
    single queues, each at most once.
    """

    physical_offsets: Range = Range()
    store_times: Range = Range()
    queue_ids: Range = Range()
    topics: frozenset[str] | None = None
    places: frozenset[int] | None = None
    topic_pattern: str | None = None
    queue_offsets: Range = Range()
    keys: tuple[frozenset[str], ...] = ()
    born_times: Range = Range()
    queue_bounds: tuple[QueueBounds, ...] = ()

    @property
    def is_about_queues(self) -> bool:
        """Whether consume queues know more of it than the log: topics, queues or offsets in them are asked for."""
        asks_for_topics = self.topics is not None or self.topic_pattern is not None
        asks_for_queues = not self.queue_ids.is_all or not self.queue_offsets.is_all
        return asks_for_topics or asks_for_queues or bool(self.queue_bounds)

    def slots(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """The queue offsets [begin, end) that may be wanted of a queue; None for none."""
        if not self.has_topic(topic) or not self.queue_ids.low <= queue_id <= self.queue_ids.high:
            return None
        begin, end = max(self.queue_offsets.low, 0), min(self.queue_offsets.high, _HIGHEST - 1) + 1
        for one in self.queue_bounds:
            if (one.topic, one.queue_id) == (topic, queue_id):
                begin, end = max(begin, one.begin), min(end, one.end)
        return (begin, end) if begin < end else None

    @property
    def needs(self) -> Columns:
        """What `rows` needs of the walk."""
        of_head = (self.store_times, self.born_times, self.queue_ids, self.queue_offsets)
        is_of_head = self.queue_bounds or not all(wanted.is_all for wanted in of_head)
        is_of_topics = self.queue_bounds or self.topics is not None or self.topic_pattern is not None
        needs = Columns.HEAD if is_of_head else Columns.NONE
        if self.keys:
            needs |= KEY_NEEDS
        return needs | Columns.TOPIC if is_of_topics else needs

    def has_topic(self, name: str) -> bool:
        """Whether messages of a topic may be wanted."""
        if self.topics is not None and name not in self.topics:
            return False
        return self.topic_pattern is None or re.fullmatch(self.topic_pattern, name) is not None

    def at(self, places: Iterable[int]) -> Wanted:
        """What of this has one of these physical offsets."""
        offsets = frozenset(places)
        kept = offsets if self.places is None else offsets & self.places
        bounds = (min(kept), max(kept)) if kept else (0, -1)
        return self._replace(places=kept, physical_offsets=self.physical_offsets.narrowed(*bounds))

    @property
    def fewest_keys(self) -> frozenset[str] | None:
        """The set of keys by which messages are found with the least effort; None if any will do."""
        return min(self.keys, key=len, default=None)

    def rows(self, batch: MessageColumns) -> Int64s | None:
        """The rows that may be wanted, ascending; None for all of them."""
        masks = [
            _inside(values, wanted)
            for values, wanted in (
                (lambda: batch.physical_offset, self.physical_offsets),
                (lambda: batch.store_timestamp, self.store_times),
                (lambda: batch.born_timestamp, self.born_times),
                (lambda: batch.queue_id.astype(np.int64), self.queue_ids),
                (lambda: batch.queue_offset, self.queue_offsets),
            )
            if not wanted.is_all
        ]
        if self.topics is not None or self.topic_pattern is not None:
            names = batch.topics.names
            ids = [number for number, name in enumerate(names[: len(names)]) if self.has_topic(name)]
            masks.append(np.isin(batch.topic_id, ids))
        masks += [may_have_keys(batch, keys) for keys in self.keys]
        masks += [_in_bounds(batch, one) for one in self.queue_bounds]
        if not masks:
            return None
        mask = np.logical_and.reduce(masks)
        if self.keys:
            for row in np.flatnonzero(mask).tolist():
                mask[row] = _has_keys(batch, row, self.keys)
        return None if mask.all() else np.flatnonzero(mask)


_ALL = Wanted()


def _inside(values: Any, wanted: Range) -> Flags:
    numbers = values()
    flags: Flags = (numbers >= wanted.low) & (numbers <= wanted.high)
    return flags


def _has_keys(batch: MessageColumns, row: int, wanted: Sequence[frozenset[str]]) -> bool:
    try:
        there = message_keys(row_properties(batch, row))
    except FrameDamage:
        return True  # whoever reads it next tells that it has changed
    return not any(keys.isdisjoint(there) for keys in wanted)


def _in_bounds(batch: MessageColumns, one: QueueBounds) -> Flags:
    """Which rows are of another queue, or within the bounds of this one."""
    names = batch.topics.names
    topics = [number for number, name in enumerate(names[: len(names)]) if name == one.topic]
    is_there = np.isin(batch.topic_id, topics) & (batch.queue_id == one.queue_id)
    flags: Flags = ~is_there | ((batch.queue_offset >= one.begin) & (batch.queue_offset < one.end))
    return flags


class Comparison(NamedTuple):
    """A column compared with constants: texts, whole numbers, moments with a time zone, or other values.

    `sign`: "=" and "in" for one and for any of the values; "<" and ">" for bounds, which may be reached.
    """

    column: str
    sign: Literal["=", "in", "<", ">"]
    values: tuple[Any, ...]


_RANGES = {
    "physical_offset": "physical_offsets",
    "store_timestamp": "store_times",
    "queue_id": "queue_ids",
    "queue_offset": "queue_offsets",
    "born_timestamp": "born_times",
}
_TIMES = ("store_timestamp", "born_timestamp")


def wanted_by(comparisons: Iterable[Comparison], wanted: Wanted = _ALL) -> Wanted:
    """What comparisons that all have to hold leave over of `wanted`. What is not understood narrows nothing."""
    for one in comparisons:
        wanted = _narrowed(wanted, one)
    return wanted


def may_pass(labels: Mapping[str, str | None], comparisons: Iterable[Comparison]) -> bool:
    """Whether rows in which columns hold these texts, all the same ones, can pass comparisons that all have to hold."""
    for one in comparisons:
        texts = _texts(one)
        if texts is not None and one.column.lower() in labels and labels[one.column.lower()] not in texts:
            return False
    return True


def _narrowed(wanted: Wanted, one: Comparison) -> Wanted:
    name = one.column.lower()
    if name == "topic":
        topics = _texts(one)
        if topics is None:
            return wanted
        return wanted._replace(topics=topics if wanted.topics is None else wanted.topics & topics)
    if name in ("unique_key", "keys"):
        keys = _keys(_texts(one) if name == "unique_key" else _first_texts(one))
        return wanted if keys is None else wanted._replace(keys=(*wanted.keys, keys))
    if name == "msg_id":
        texts = _texts(one)
        return wanted if texts is None else wanted.at(_id_offsets(texts))
    if name == "physical_offset" and one.sign == "in" and all(map(_number_bounds, one.values)):
        return wanted.at(one.values)
    field = _RANGES.get(name)
    bounds = _bounds(one, _time_bounds if name in _TIMES else _number_bounds)
    if field is None or bounds is None:
        return wanted
    return wanted._replace(**{field: getattr(wanted, field).narrowed(*bounds)})


def _texts(one: Comparison) -> frozenset[str] | None:
    """The only values of a text column that a comparison lets pass; None if it is no such comparison."""
    if one.sign not in ("=", "in") or not all(isinstance(value, str) for value in one.values):
        return None
    return frozenset(one.values)


def _first_texts(one: Comparison) -> frozenset[str] | None:
    """A text each of the only lists of texts that a comparison lets pass; None if it is no such comparison."""
    lists = [value for value in one.values if isinstance(value, list | tuple) and value]
    if one.sign not in ("=", "in") or len(lists) < len(one.values):
        return None
    firsts = [value[0] for value in lists]
    return frozenset(firsts) if all(isinstance(first, str) for first in firsts) else None


def _keys(texts: frozenset[str] | None) -> frozenset[str] | None:
    """Those texts, None where they may be something else than keys as they are stored: none at all, or not decoded."""
    return None if texts is None or any(not text or _REPLACEMENT in text for text in texts) else texts


def _id_offsets(ids: frozenset[str]) -> Iterator[int]:
    """The physical offsets that message ids speak of. Invalid message ids match no message."""
    for text in ids:
        with contextlib.suppress(UsageError):
            yield parse_offset_message_id(text)[1]


def _bounds(one: Comparison, bounds_of: Any) -> Range | None:
    """Return the range that a comparison selects; None if unknown."""
    found = [bounds_of(value) for value in one.values]
    if not found or None in found:
        return None
    low, high = min(low for low, _ in found), max(high for _, high in found)
    if one.sign == ">":
        return Range(low=low)
    return Range(high=high) if one.sign == "<" else Range(low, high)


def _number_bounds(value: Any) -> tuple[int, int] | None:
    return (value, value) if isinstance(value, int) and not isinstance(value, bool) else None


def _time_bounds(value: Any) -> tuple[int, int] | None:
    """The milliseconds on both sides of a moment."""
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    elapsed = value - _EPOCH
    return elapsed // _MS, -(-elapsed // _MS)
