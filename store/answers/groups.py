"""How far consumer groups have come, queue by queue: `rmqctl groups`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError, UnsupportedError
from rmqctl.formats.wording import counted
from rmqctl.store.answers.config_offsets import (
    CONSUMER_FILE,
    OFFSET_TABLE,
    OffsetKey,
    Say,
    in_one,
    no_unit,
    offset_key,
    offsets_of,
    table_in,
)
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage

GROUP_FILE = "subscriptionGroup.json"
GROUP_TABLE = "subscriptionGroupTable"

CAUGHT_UP = "caught-up"
BEHIND = "behind"
BEFORE_BEGINNING = "before-beginning"
PAST_END = "past-end"
DAMAGED = "damaged"
UNKNOWN = "unknown"


class GroupQueue(NamedTuple):
    """One group in one queue. Offsets are queue offsets, `lag` is in messages, `lag_ms` the time from the first unread
    message to the queue's last, both by their store times (ms). None is what is not known; `detail` says why.

    `offset`: of the next message to be consumed (ConsumerOffsetManager). `lag` counts what can still be read.
    """

    group: str
    topic: str | None
    queue_id: int | None
    state: str
    offset: int | None = None
    min_offset: int | None = None
    max_offset: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    first_unread_timestamp: int | None = None
    last_store_timestamp: int | None = None
    is_broadcast: bool = False
    detail: str = ""


def group_queues(
    reader: StoreReader,
    group: str | None,
    topic: str | None,
    tell: Say,
    on_damage: OnDamage,
    tags: str | None = None,
) -> Iterator[GroupQueue]:
    """All groups, or `group`, in all topics, or `topic`, by group, topic and queue.

    Groups are those of consumerOffset.json and, where none of their offsets is known, those of subscriptionGroup.json.
    One message is read for a queue that is not read to its end, two heads at most besides. UnreadableError.
    """
    config = reader.files.layout.config
    table = table_in(config / CONSUMER_FILE, OFFSET_TABLE, tell, on_damage)
    configured = table_in(config / GROUP_FILE, GROUP_TABLE, tell, on_damage) or {}
    missing = "no offset of it is kept: it has not consumed, or keeps its offsets itself (broadcasting)"
    if table is None:
        missing = f"{config / CONSUMER_FILE} cannot be read or is not there: nobody knows how far the group is"
    known: list[tuple[OffsetKey, Any]] = []
    for key, queues in (table or {}).items():
        owner = offset_key(key)
        if owner is None or not isinstance(queues, dict):
            on_damage(CorruptError(f"{key!r} names no topic and group with offsets", file=config / CONSUMER_FILE))
        else:
            known.append((owner, queues))
    wanted = [
        (owner, queues) for owner, queues in known if group in (None, owner.group) and topic in (None, owner.topic)
    ]
    with_offsets = {owner.group for owner, _ in known}
    without = [
        name for name in map(str, configured) if name not in with_offsets and group in (None, name) and topic is None
    ]
    queues_of = _Queues(reader, {owner.topic for owner, _ in wanted})
    by_group: dict[str, list[tuple[OffsetKey, Any]]] = {name: [] for name in without}
    for owner, queues in sorted(wanted, key=lambda one: one[0]):
        by_group.setdefault(owner.group, []).append((owner, queues))
    for name, entries in sorted(by_group.items()):
        if not entries:
            yield GroupQueue(name, None, None, UNKNOWN, detail=missing)
        for owner, queues in entries:
            yield from queues_of.rows(owner, queues, on_damage)


class _Queues:
    """The queues of some topics, and what an offset means in each."""

    def __init__(self, reader: StoreReader, topics: set[str]) -> None:
        self._reader = reader
        self._log = reader.files.log
        self._queues: dict[str, dict[int, AnyConsumeQueue]] = {}
        self._why_unknown = ""
        try:
            for queue in reader.files.queues.of_topics(topics.__contains__):
                self._queues.setdefault(queue.topic, {})[queue.queue_id] = queue
        except UnsupportedError as error:
            self._why_unknown = error.message

    def rows(self, owner: OffsetKey, queues: dict[Any, Any], on_damage: OnDamage) -> Iterator[GroupQueue]:
        """The group in all queues of the topic, those too that it has no offset of."""
        offsets = {number: offset for number, offset in offsets_of(queues).items() if offset >= 0}
        for number, offset in queues.items():
            if not offsets_of({number: offset}):
                where = self._reader.files.layout.config / CONSUMER_FILE
                on_damage(CorruptError(f"{owner.topic}@{owner.group} queue {number}: {offset!r} is none", file=where))
        there = self._queues.get(owner.topic, {})
        for queue_id in sorted({*offsets, *there}):
            row = GroupQueue(owner.group, owner.topic, queue_id, UNKNOWN, is_broadcast=owner.is_broadcast)
            yield self._judged(row._replace(offset=offsets.get(queue_id)), there.get(queue_id), on_damage)

    def _judged(self, row: GroupQueue, queue: AnyConsumeQueue | None, on_damage: OnDamage) -> GroupQueue:
        if queue is None:
            missing = self._why_unknown or "the queue has no files, so its end is not known"
            return row._replace(detail=missing)
        end = queue.max_offset
        begin = queue.min_offset(self._log.min_offset)
        row = row._replace(min_offset=begin, max_offset=end)
        if row.offset is None:
            return row._replace(detail="no offset of this queue is kept: its clients decide where they begin")
        if row.offset > end:
            past = counted(row.offset - end, "message")
            return row._replace(state=PAST_END, detail=f"{past} past the end, where a broker sets the group back to")
        if row.offset == end:
            return row._replace(state=CAUGHT_UP, lag=0, lag_ms=0)
        offset = row.offset
        row = row._replace(state=BEHIND, lag=end - max(offset, begin))
        if offset < begin:
            expired = counted(begin - offset, "message")
            row = row._replace(state=BEFORE_BEGINNING, detail=f"{expired} before the first one that is left")
        return self._timed(row, queue, max(offset, begin), on_damage) if row.lag else row._replace(lag_ms=0)

    def _timed(self, row: GroupQueue, queue: AnyConsumeQueue, first: int, on_damage: OnDamage) -> GroupQueue:
        """`row` with its lag in time. The first unread message is read whole: a group stops at a damaged one."""
        unit, last = queue.unit(first), (row.max_offset or 0) - 1
        begun = detail = None
        try:
            if unit is None:
                raise no_unit(queue, first)
            begun = self._reader.view_without_ext(queue).message_of(unit).store_timestamp
        except NotFoundError as error:  # a cleaner has taken it away while we looked
            detail = error.message
        except CorruptError as error:
            on_damage(error)
            row = row._replace(state=DAMAGED)
            detail = f"the group stops here: {error.message}"
            begun = self._reader.unit_store_time(unit) if unit is not None else None
        if unit is not None and begun is not None and last < unit.next_queue_offset:
            ended: int | None = begun
        else:
            last_unit = queue.unit(last)
            ended = self._reader.unit_store_time(last_unit) if last_unit is not None else None
        if ended is None:
            on_damage(CorruptError(f"unit {last}, the last one, leads to no message", file=queue.directory))
            row = row._replace(state=DAMAGED)
            detail = in_one(detail, "the last message is damaged, so how late the group is cannot be told")
        return row._replace(
            lag_ms=None if begun is None or ended is None else max(0, ended - begun),
            first_unread_timestamp=begun,
            last_store_timestamp=ended,
            detail=in_one(row.detail, detail),
        )
