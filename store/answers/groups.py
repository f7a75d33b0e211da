"""How far consumer groups have come, queue by queue: `rmqctl groups`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError, counted
from rmqctl.formats.notebook import as_html
from rmqctl.store.answers.config_offsets import (
    GROUP_TABLE,
    KnownNames,
    OffsetKey,
    consumer_table,
    in_one,
    no_unit,
    offset_key,
    offsets_of,
    table_in,
    topic_entries,
    why_hidden,
)
from rmqctl.store.answers.undispatched import undispatched
from rmqctl.store.answers.unread import unread_messages, unread_queues
from rmqctl.store.pop.records import FS
from rmqctl.store.pop.state import PopState
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.filter import TagFilter, TopicFilter
from rmqctl.store.read.reader import StoreReader

# What consumer groups filter by, as far as a broker keeps it: clients tell it their filters, and most stay unwritten.
#
# Kept are expressions that are no tags (config/consumerFilter.json, ConsumerFilterManager) and those that were set
# with a group (`subscriptionDataSet` in config/subscriptionGroup.json, SubscriptionGroupConfig). A push consumer's
# tags are in neither.

FILTER_FILE = "consumerFilter.json"
FILTER_TABLE = "filterDataByTopic"
_TAG = "TAG"


class KnownFilter(NamedTuple):
    """What a group takes of a topic, and what says so. `tags` is None for an SQL92 expression."""

    expression: str
    tags: TagFilter | None
    source: str


class KnownFilters:
    """The filters of all groups."""

    def __init__(self, groups: Mapping[Any, Any], by_topic: Mapping[Any, Any], given: str | None = None) -> None:
        """`groups`: the subscriptionGroupTable; `by_topic`: the FILTER_TABLE of FILTER_FILE. `given`: tags that the
        caller gives for the groups; they override stored ones. UsageError for tags that are none."""
        self._given = None if given is None else KnownFilter(given, TagFilter(given), "as given")
        self._groups = groups
        self._by_topic = by_topic

    def of(self, group: str, topic: str) -> KnownFilter | None:
        """Return the filter of `group` for `topic`; None if it is unknown."""
        return self._given or self._of_subscription(group, topic) or self._kept(group, topic)

    def _of_subscription(self, group: str, topic: str) -> KnownFilter | None:
        listed = _mapping(self._groups.get(group)).get("subscriptionDataSet")
        for one in listed if isinstance(listed, list) else ():
            if _mapping(one).get("topic") == topic:
                return _filter(_mapping(one), "subscriptionGroup.json")
        return None

    def _kept(self, group: str, topic: str) -> KnownFilter | None:
        by_group = _mapping(_mapping(self._by_topic.get(topic)).get("groupFilterData"))
        return _filter(_mapping(by_group.get(group)), FILTER_FILE)


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _filter(entry: Mapping[Any, Any], source: str) -> KnownFilter | None:
    expression = entry.get("expression")
    if not isinstance(expression, str):
        return None
    if entry.get("expressionType") not in (_TAG, None):
        return KnownFilter(expression, None, source)
    try:
        return KnownFilter(expression, TagFilter(expression), source)
    except UsageError:  # which a broker refuses as well (FilterAPI#buildSubscriptionData)
        return None


GROUP_FILE = "subscriptionGroup.json"

CAUGHT_UP = "caught-up"
BEHIND = "behind"
BEFORE_BEGINNING = "before-beginning"
PAST_END = "past-end"
DAMAGED = "damaged"
UNKNOWN = "unknown"


class GroupQueue(NamedTuple):
    """One group in one queue. Offsets are queue offsets, `lag` is in messages, `lag_ms` the time from the first unread
    message to the queue's last, both by their store times (ms). None is what is not known; `detail` says why.

    `offset`: of the next message to be consumed (ConsumerOffsetManager). `lag` counts what can still be read, and
    `tagged_lag` those of it that the group's tags take (`tags`, where they are known), by the hashes in the queue.
    `in_flight`: handed out by POP and not acknowledged, the overdue included. As RocketMQ has it, these count in `lag`
    where their checkpoints are in the revive topic (ConsumerLagCalculator#getConsumerLagStats).
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
    tags: str | None = None
    tagged_lag: int | None = None
    in_flight: int | None = None
    detail: str = ""

    def _repr_html_(self) -> str:
        return as_html(self)


def group_queues(
    reader: StoreReader, group: str | None, topic: str | None, tags: str | None = None
) -> Iterator[GroupQueue]:
    """All groups, or `group`, in all topics, or `topic`, by group, topic and queue.

    Groups are those of consumerOffset.json and, where none of their offsets is known, those of subscriptionGroup.json.
    One message is read for a queue that is not read to its end, two heads at most besides; and the unread units where
    the group's tags are known, or given as `tags`. UnreadableError; UsageError for tags that are none.
    """
    config = reader.files.layout.config
    kept = consumer_table(config, reader.files.config, reader.events)
    table = kept.table
    configured = table_in(config / GROUP_FILE, GROUP_TABLE, reader.events) or {}
    missing = "no offset of it is kept: it has not consumed, or keeps its offsets itself (broadcasting)"
    for stale in kept.stale:
        if group in (None, stale.group) and topic in (None, stale.topic):
            detail = "its offsets are in a RocksDB that cannot be read"
            yield GroupQueue(stale.group, stale.topic, None, UNKNOWN, detail=detail)
    if table is None:
        missing = f"{kept.missing}: how far the group is cannot be known"
    known: list[tuple[OffsetKey, Any]] = []
    for key, queues in (table or {}).items():
        owner = offset_key(key)
        if owner is None or not isinstance(queues, dict):
            reader.events.damaged(CorruptError(f"{key!r} names no topic and group with offsets", file=kept.path))
        else:
            known.append((owner, queues))
    wanted = [
        (owner, queues) for owner, queues in known if group in (None, owner.group) and topic in (None, owner.topic)
    ]
    with_offsets = {owner.group for owner, _ in known} | {owner.group for owner in kept.stale}
    without = [
        name for name in map(str, configured) if name not in with_offsets and group in (None, name) and topic is None
    ]
    by_topic = table_in(config / FILTER_FILE, FILTER_TABLE, reader.events) or {}
    filters = KnownFilters(configured, by_topic, tags)
    committed = {(owner.group, owner.topic): offsets_of(queues) for owner, queues in known if not owner.is_broadcast}
    # without a clock: what is overdue counts as what is in flight
    handed_out = PopState(reader, 0, lambda group, topic, queue_id: committed.get((group, topic), {}).get(queue_id))
    queues_of = _Queues(reader, kept.path, {owner.topic for owner, _ in wanted}, filters, handed_out)
    by_group: dict[str, list[tuple[OffsetKey, Any]]] = {name: [] for name in without}
    for owner, queues in sorted(wanted, key=lambda one: one[0]):
        by_group.setdefault(owner.group, []).append((owner, queues))
    for name, entries in sorted(by_group.items()):
        if not entries:
            yield GroupQueue(name, None, None, UNKNOWN, detail=missing)
        for owner, queues in entries:
            yield from queues_of.rows(owner, queues)


class _Standing(NamedTuple):
    """Position of a group in a queue: the fields of a GroupQueue that are found together."""

    state: str
    lag: int | None = None
    first: int = 0
    detail: str = ""


class _Delay(NamedTuple):
    """Delay of a group: store times (ms) of the first unread message and the queue's last, None if unknown;
    `is_damaged`, and what to report about it."""

    begun: int | None = None
    ended: int | None = None
    is_damaged: bool = False
    detail: str | None = None

    @property
    def lasts(self) -> int | None:
        """The time between the two."""
        return None if self.begun is None or self.ended is None else max(0, self.ended - self.begun)


class _Queues:
    """The queues of some topics, and what an offset means in each."""

    def __init__(
        self, reader: StoreReader, offsets: Path, topics: set[str], filters: KnownFilters, handed_out: PopState
    ) -> None:
        """`offsets`: the file that they are from."""
        self._reader = reader
        self._offsets = offsets
        self._names = KnownNames.of(reader.files)
        self._entries = topic_entries(reader.files.layout)
        self._behind = undispatched(reader.files, reader.events, TopicFilter(topics) if topics else None)
        self._unread = {(one.copy.topic, one.copy.queue_id): one for one in unread_queues(reader.files)}
        self._log = reader.files.log
        self._filters = filters
        self._handed_out = handed_out
        self._queues: dict[str, dict[int, AnyConsumeQueue]] = {}
        self._why_unknown = ""
        try:
            for queue in reader.files.queues.of_topics(topics.__contains__):
                self._queues.setdefault(queue.topic, {})[queue.queue_id] = queue
        except CorruptError as error:
            self._why_unknown = error.message

    def rows(self, owner: OffsetKey, queues: dict[Any, Any]) -> Iterator[GroupQueue]:
        """The group in all queues of the topic, those too that it has no offset of; orphans are marked."""
        why = self._names.orphaned(owner)
        entry = self._entries.get(owner.topic)
        for row in self._rows(owner, queues):
            hidden = None if row.queue_id is None else why_hidden(entry, row.queue_id)
            yield row if why is hidden is None else row._replace(detail=in_one(why, hidden, row.detail))

    def _rows(self, owner: OffsetKey, queues: dict[Any, Any]) -> Iterator[GroupQueue]:
        kept = offsets_of(queues)
        if len(kept) < len(queues):
            for number, offset in queues.items():
                if not offsets_of({number: offset}):
                    said = f"{owner.topic}@{owner.group} queue {number}: {offset!r} is not a valid offset"
                    self._reader.events.damaged(CorruptError(said, file=self._offsets))
        offsets = {number: offset for number, offset in kept.items() if offset >= 0}
        there = self._queues.get(owner.topic, {})
        known = self._filters.of(owner.group, owner.topic)
        for queue_id in sorted({*offsets, *there}):
            yield self._row(owner, queue_id, offsets.get(queue_id), there.get(queue_id), known)

    def _row(
        self,
        owner: OffsetKey,
        queue_id: int,
        offset: int | None,
        queue: AnyConsumeQueue | None,
        known: KnownFilter | None,
    ) -> GroupQueue:
        who = (owner.group, owner.topic, queue_id)
        tags = None if known is None else known.expression
        if queue is None:
            missing = self._why_unknown or "the queue has no files, so its end is not known"
            return GroupQueue(*who, UNKNOWN, offset, is_broadcast=owner.is_broadcast, tags=tags, detail=missing)
        end = queue.max_offset
        begin = queue.min_offset(self._log.min_offset)
        stands = _standing(offset, begin, end)
        unread = self._unread.get((owner.topic, queue_id))
        if unread is not None and offset is not None and offset < unread.until:
            for error in unread_messages(self._reader.files, owner.topic):
                self._reader.events.damaged(error)
            stands = _Standing(UNKNOWN, detail=f"messages before {unread.until} are in a log that is not read yet")
        read_by_tags = stands
        held = None if owner.is_broadcast else self._handed_out.handed_out(*who)
        if held is not None and held[0] and held[1] == FS and stands.lag is not None:
            stands = _with_in_flight(stands, held[0], begin, end)
        delay = _Delay(0, 0) if stands.lag == 0 else _Delay()
        if stands.lag:
            delay = self._delay(queue, stands.first, end)
        is_timed = bool(stands.lag)
        new = self._behind.slots[owner.topic, queue_id]
        if new and stands.lag is not None:
            detail = in_one(stands.detail, f"{counted(new, 'message')} of them in no queue yet")
            state = BEHIND if stands.state == CAUGHT_UP else stands.state
            stands = stands._replace(state=state, lag=stands.lag + new, detail=detail)
            delay = delay if is_timed else _Delay()
        tagged = self._tagged(queue, read_by_tags, end, known)
        taken = None if tagged is None or not is_timed else f"{tagged} of them are of its tags {tags!r}"
        return GroupQueue(
            *who,
            DAMAGED if delay.is_damaged else stands.state,
            offset,
            begin,
            end,
            stands.lag,
            delay.lasts,
            delay.begun if is_timed else None,
            delay.ended if is_timed else None,
            owner.is_broadcast,
            tags,
            tagged,
            None if held is None else held[0],
            in_one(stands.detail, delay.detail, taken),
        )

    def _tagged(self, queue: AnyConsumeQueue, stands: _Standing, end: int, known: KnownFilter | None) -> int | None:
        """How many of the unread messages the group's tags take; None where these are not known."""
        if known is None or known.tags is None or stands.lag is None:
            return None
        if known.tags.is_all or not stands.lag:
            return stands.lag
        view = self._reader.view(queue)
        units = queue.units(stands.first, end)
        return sum(unit.batch_size for unit in units if known.tags.may_match(view.resolved_code(unit)))

    def _delay(self, queue: AnyConsumeQueue, first: int, end: int) -> _Delay:
        """How late a group is that has `first` before it. That message is read whole: damage would stop the group."""
        unit, last = queue.unit(first), end - 1
        begun = ended = detail = None
        is_damaged = False
        try:
            if unit is None:
                raise no_unit(queue, first)
            begun = self._reader.view_without_ext(queue).message_of(unit).store_timestamp
        except NotFoundError as error:  # a cleaner has taken it away while we looked
            detail = error.message
        except CorruptError as error:
            self._reader.events.damaged(error)
            is_damaged = True
            detail = f"the group stops here: {error.message}"
            begun = self._reader.unit_store_time(unit) if unit is not None else None
        if unit is not None and begun is not None and last < unit.next_queue_offset:
            ended = begun
        else:
            last_unit = queue.unit(last)
            ended = self._reader.unit_store_time(last_unit) if last_unit is not None else None
        if ended is None:
            self._reader.events.damaged(
                CorruptError(f"unit {last}, the last one, leads to no message", file=queue.directory)
            )
            is_damaged = True
            detail = in_one(detail, "the last message is damaged, so the delay of the group is unknown")
        return _Delay(begun, ended, is_damaged, detail)


def _with_in_flight(stands: _Standing, count: int, begin: int, end: int) -> _Standing:
    """Return the progress of a group with what it was handed out by POP counted as not consumed."""
    first = max(begin, (stands.first if stands.lag else end) - count)
    state = BEHIND if stands.state == CAUGHT_UP else stands.state
    detail = in_one(stands.detail, f"{counted(count, 'message')} of them in flight by POP")
    return _Standing(state, (stands.lag or 0) + count, first, detail)


def _standing(offset: int | None, begin: int, end: int) -> _Standing:
    """What a group's offset says in a queue that holds [begin, end)."""
    if offset is None:
        return _Standing(UNKNOWN, detail="no offset of this queue is kept: its clients decide where they begin")
    if offset > end:
        past = counted(offset - end, "message")
        return _Standing(PAST_END, detail=f"{past} past the end, where a broker sets the group back to")
    if offset == end:
        return _Standing(CAUGHT_UP, 0)
    first = max(offset, begin)
    if offset >= begin:
        return _Standing(BEHIND, end - first, first)
    expired = counted(begin - offset, "message")
    return _Standing(BEFORE_BEGINNING, end - first, first, f"{expired} before the first one that is left")
