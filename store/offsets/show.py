"""What the files of offsets say, queue by queue, each beside its backup: `rmqctl offsets show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, UnreadableError, UnsupportedError
from rmqctl.store.answers.config_offsets import (
    DELAY_FILE,
    OFFSET_TABLE,
    Say,
    in_one,
    light_offsets,
    offset_key,
    offsets_of,
    unread_part,
)
from rmqctl.store.config.config_files import backup_of, parse_config_file
from rmqctl.store.config.config_start import how_it_is, look_at
from rmqctl.store.config.homes import offsets_home, uncertain_in
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage

CONSUMER = "consumer"
BROADCAST = "broadcast"
DELAY = "delay"


class KeptOffset(NamedTuple):
    """One offset as config/ keeps it. `kind`: of a consumer group, of the clients of a broadcasting one (the smallest
    of theirs), or of a delay level (the next message to be delivered; `queue_id` is the level - 1, `group` None).

    `offset` stands in the file, `backup_offset` in its backup; None where it does not. `min_offset` and `max_offset`
    are those of the queue, None where it has no files.
    """

    kind: str
    group: str | None
    topic: str
    queue_id: int
    offset: int | None
    backup_offset: int | None
    min_offset: int | None = None
    max_offset: int | None = None
    detail: str = ""


class _Pair(NamedTuple):
    file: Mapping[Any, Any] | None
    backup: Mapping[Any, Any] | None

    def tables(self) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        return self.file or {}, self.backup or {}


def kept_offsets(
    reader: StoreReader, group: str | None, topic: str | None, queue_id: int | None, tell: Say, on_damage: OnDamage
) -> Iterator[KeptOffset]:
    """All offsets, or those of one group, topic or queue: groups by name, then delay levels. UnreadableError."""
    config = reader.files.layout.config
    home = offsets_home(config, reader.files.config)
    if home.note:
        tell(home.note)
    stale = uncertain_in(home.path)
    if stale is not None:
        on_damage(stale)
    rows = [*_consumers(_pair(home.path, tell, on_damage), on_damage, home.path)]
    if stale is not None:
        rows = [row._replace(detail="of a file that the broker no longer uses") for row in rows]
    if group is None:
        rows += _delays(_pair(config / DELAY_FILE, tell, on_damage))
    bounds = _Bounds(reader, tell)
    for row in sorted(rows, key=lambda row: (row.kind == DELAY, row.group or "", row.topic, row.kind, row.queue_id)):
        if group in (None, row.group) and topic in (None, row.topic) and queue_id in (None, row.queue_id):
            yield bounds.told(row)


class _Bounds:
    """Beginning and end of queues, as far as they can be known."""

    def __init__(self, reader: StoreReader, tell: Say) -> None:
        self._reader = reader
        self._tell = tell
        self._is_readable = True

    def told(self, row: KeptOffset) -> KeptOffset:
        """`row` with the ends of its queue, and what a backup that differs is to say."""
        if row.offset is None:
            row = row._replace(detail=in_one(row.detail, "only in the backup"))
        elif row.backup_offset is not None and row.backup_offset > row.offset:
            row = row._replace(detail=in_one(row.detail, "smaller than in the backup"))
        if not self._is_readable:
            return row
        try:
            files = self._reader.files
            queue = files.queues.find(row.topic, row.queue_id) if is_safe_topic(row.topic) else None
        except UnsupportedError as error:
            self._is_readable = False
            self._tell(f"{error.message}: where queues begin and end is not known")
            return row
        if queue is None:
            return row
        return row._replace(min_offset=queue.min_offset(files.log.min_offset), max_offset=queue.max_offset)


def _pair(path: Path, tell: Say, on_damage: OnDamage) -> _Pair:
    tables: list[Mapping[Any, Any] | None] = []
    for one in (path, backup_of(path)):
        try:
            content = parse_config_file(one)
        except CorruptError as error:
            on_damage(error)
            tables.append(None)
            continue
        except UnreadableError as error:
            on_damage(unread_part(error))
            tables.append(None)
            continue
        if content is None:
            tell(f"{one} {how_it_is(look_at(one))}")
        table = content.content.get(OFFSET_TABLE) if content and isinstance(content.content, dict) else None
        if content is not None and not isinstance(table, dict):
            on_damage(CorruptError(f"holds no table {OFFSET_TABLE}", file=one))
        tables.append(
            {**table, **light_offsets(content.content if content else None)} if isinstance(table, dict) else None
        )
    return _Pair(*tables)


def _consumers(pair: _Pair, on_damage: OnDamage, path: Path) -> Iterator[KeptOffset]:
    file, backup = pair.tables()
    for key in dict.fromkeys([*file, *backup]):
        owner = offset_key(key)
        here, before = file.get(key, {}), backup.get(key, {})
        if owner is None or not isinstance(here, dict):
            on_damage(CorruptError(f"{key!r} names no topic and group with offsets", file=path))
            continue
        offsets, others = offsets_of(here), offsets_of(before) if isinstance(before, dict) else {}
        for number, offset in here.items():
            if not offsets_of({number: offset}):
                on_damage(CorruptError(f"{owner.topic}@{owner.group} queue {number}: {offset!r} is none", file=path))
        kind = BROADCAST if owner.is_broadcast else CONSUMER
        for number in dict.fromkeys([*offsets, *others]):
            yield KeptOffset(kind, owner.group, owner.topic, number, offsets.get(number), others.get(number))


def _delays(pair: _Pair) -> Iterator[KeptOffset]:
    offsets, others = (offsets_of(table) for table in pair.tables())
    for level in dict.fromkeys([*offsets, *others]):
        yield KeptOffset(DELAY, None, SCHEDULE_TOPIC, level - 1, offsets.get(level), others.get(level))
