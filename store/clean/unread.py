"""What a cleaning takes from consumer groups: messages that go and that they have not read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError, UnsupportedError
from rmqctl.store.answers.config_offsets import (
    DELAY_FILE,
    GROUP_TABLE,
    OFFSET_TABLE,
    Say,
    consumer_table,
    is_own_group,
    offset_key,
    offsets_of,
    table_in,
)
from rmqctl.store.answers.groups import GROUP_FILE
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage
from rmqctl.store.store_files import StoreFiles

LOST = "lost"
UNKNOWN = "unknown"


class Unread(NamedTuple):
    """What one group loses of one topic: `messages` of `queues`, stored from `first_timestamp` to `last_timestamp` (ms,
    None where they cannot be read). `state` unknown: no offset of the group is kept for these queues, so that nobody
    knows whether it has read them. `group` None: delayed messages that have not been delivered."""

    group: str | None
    topic: str
    state: str
    queues: tuple[int, ...]
    messages: int
    first_timestamp: int | None = None
    last_timestamp: int | None = None


def unread_before(files: StoreFiles, min_offset: int, tell: Say, on_damage: OnDamage) -> list[Unread]:
    """What groups lose if the commitlog begins at physical offset `min_offset`, by group and topic.

    What cannot be known is told: without offsets, and where queues are in a RocksDB. UnreadableError.
    """
    config = files.layout.config
    losing = _losing(files, min_offset, tell)
    if not losing:
        return []
    reader = StoreReader(files)
    kept = consumer_table(config, files.config, tell, on_damage)
    table = kept.table
    if table is None:
        tell(f"{kept.missing}: what groups have not read is not known")
    rows: list[Unread] = []
    with_offsets: set[str] = set()
    for key, queues in (table or {}).items():
        owner = offset_key(key)
        if owner is None or not isinstance(queues, dict):
            on_damage(CorruptError(f"{key!r} names no topic and group with offsets", file=kept.path))
            continue
        with_offsets.add(owner.group)
        if owner.topic in losing and not owner.is_broadcast:
            rows += _of_group(reader, owner.group, owner.topic, losing[owner.topic], offsets_of(queues))
    if SCHEDULE_TOPIC in losing:
        levels = offsets_of(table_in(config / DELAY_FILE, OFFSET_TABLE, tell, on_damage) or {})
        delayed = {queue.queue_id: levels.get(queue.queue_id + 1, 0) for queue, _, _ in losing[SCHEDULE_TOPIC]}
        rows += _of_group(reader, None, SCHEDULE_TOPIC, losing[SCHEDULE_TOPIC], delayed)
    configured = table_in(config / GROUP_FILE, GROUP_TABLE, tell, on_damage) or {}
    for name in sorted(map(str, configured)):
        if table is not None and name not in with_offsets and not is_own_group(name):
            tell(f"no offset of group {name} is kept: whether it loses anything is not known")
    return sorted(rows, key=lambda row: (row.group or "", row.topic, row.state))


_Losing = dict[str, list[tuple[AnyConsumeQueue, int, int]]]


def _losing(files: StoreFiles, min_offset: int, tell: Say) -> _Losing:
    """By topic its queues that lose messages, with the first offset of each now and then."""
    found: _Losing = {}
    if not files.log.files:
        return found
    now = files.log.min_offset
    try:
        queues: Iterable[AnyConsumeQueue] = files.queues.all()
    except UnsupportedError as error:
        tell(f"{error.message}: what groups have not read is not known")
        return found
    for queue in queues:
        begin, then = queue.min_offset(now), queue.min_offset(max(now, min_offset))
        if then > begin:
            found.setdefault(queue.topic, []).append((queue, begin, then))
    return found


def _of_group(
    reader: StoreReader,
    group: str | None,
    topic: str,
    losing: list[tuple[AnyConsumeQueue, int, int]],
    offsets: dict[int, int],
) -> list[Unread]:
    rows = []
    for state in (LOST, UNKNOWN):
        row = Unread(group, topic, state, (), 0)
        for queue, begin, then in losing:
            offset = offsets.get(queue.queue_id, -1)
            first = max(begin, offset)
            if (offset < 0) == (state == UNKNOWN) and first < then:
                row = _joined(row, reader, queue, first, then)
        if row.queues:
            rows.append(row)
    return rows


def _joined(row: Unread, reader: StoreReader, queue: AnyConsumeQueue, first: int, then: int) -> Unread:
    """`row` with the messages [first, then) of a queue."""
    units = (queue.unit(first), queue.unit(then - 1))
    begun, ended = (reader.unit_store_time(unit) if unit is not None else None for unit in units)
    known = [time for time in (row.first_timestamp, begun) if time is not None]
    last = [time for time in (row.last_timestamp, ended) if time is not None]
    return row._replace(
        queues=(*row.queues, queue.queue_id),
        messages=row.messages + then - first,
        first_timestamp=min(known, default=None),
        last_timestamp=max(last, default=None),
    )
