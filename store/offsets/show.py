"""What the files of offsets say, queue by queue, each beside its backup: `rmqctl offsets show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rmqctl.formats.checksums import whole_number
from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import CorruptError, UncertainError, UnreadableError, counted
from rmqctl.store.answers.config_offsets import (
    DELAY_FILE,
    OFFSET_TABLE,
    UNKNOWN_GROUP,
    UNKNOWN_TOPIC,
    KnownNames,
    in_one,
    is_queue_id,
    light_offsets,
    offset_key,
    offsets_of,
    unread_part,
)
from rmqctl.store.answers.undispatched import Undispatched, lost_queues, undispatched
from rmqctl.store.config.config_database import database_of
from rmqctl.store.config.config_files import (
    MISSING,
    ConfigFile,
    backup_of,
    how_it_is,
    in_database,
    load_config,
    look_at,
    offsets_home,
    parse_config_file,
    read_config_bytes,
)
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.reading import is_there
from rmqctl.store.options import Events
from rmqctl.store.pop.records import RETRY_PREFIX, pop_retry_topics
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.read.filter import TopicFilter
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles

CONSUMER = "consumer"
BROADCAST = "broadcast"
DELAY = "delay"


class KeptOffset(NamedTuple):
    """One offset as config/ keeps it. `kind`: of a consumer group, of the clients of a broadcasting one (the smallest
    of theirs), or of a delay level (the next message to be delivered; `queue_id` is the level - 1, `group` None).

    `offset` is from the file, `backup_offset` from its backup; None if missing there. `min_offset` and `max_offset` are
    those of the queue, None where it has no files.
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
    reader: StoreReader, group: str | None, topic: str | None, queue_id: int | None
) -> Iterator[KeptOffset]:
    """All offsets, or those of one group, topic or queue: groups by name, then delay levels. UnreadableError."""
    config = reader.files.layout.config
    home = offsets_home(config, reader.files.config)
    if home.note:
        reader.events.noted(home.note)
    elsewhere = in_database(home.path)
    pair = _pair(home.path, reader.events) if elsewhere is None else _of_database(home.path, reader.events)
    rows = [*_consumers(pair, reader.events, home.path)]
    if group is None:
        rows += _delays(_pair(config / DELAY_FILE, reader.events))
    wanted = [row for row in rows if group in (None, row.group) and topic in (None, row.topic)]
    wanted = [row for row in wanted if queue_id in (None, row.queue_id)]
    if not wanted:
        return  # queues that are lost hide no offset
    meant = TopicFilter() if topic is None else TopicFilter.of_one(topic)
    bounds = _Bounds(reader, undispatched(reader.files, reader.events, meant))
    for row in sorted(wanted, key=lambda row: (row.kind == DELAY, row.group or "", row.topic, row.kind, row.queue_id)):
        yield bounds.told(row)


class _Bounds:
    """Beginning and end of queues, as far as they can be known."""

    def __init__(self, reader: StoreReader, behind: Undispatched) -> None:
        self._reader = reader
        self._behind = behind
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
        except CorruptError as error:
            self._is_readable = False
            self._reader.events.noted(f"{error.message}: where queues begin and end is not known")
            return row
        if queue is None:
            return row
        if new := self._behind.slots[row.topic, row.queue_id]:
            row = row._replace(detail=in_one(row.detail, f"the log holds {counted(new, 'message')} after its end"))
        return row._replace(min_offset=queue.min_offset(files.log.min_offset), max_offset=queue.max_offset)


def _pair(path: Path, events: Events) -> _Pair:
    tables: list[Mapping[Any, Any] | None] = []
    for one in (path, backup_of(path)):
        try:
            content = parse_config_file(one)
        except CorruptError as error:
            events.damaged(error)
            tables.append(None)
            continue
        except UnreadableError as error:
            events.damaged(unread_part(error))
            tables.append(None)
            continue
        if content is None:
            events.noted(f"{one} {how_it_is(look_at(one))}")
        table = content.content.get(OFFSET_TABLE) if content and isinstance(content.content, dict) else None
        if content is not None and not isinstance(table, dict):
            events.damaged(CorruptError(f"holds no table {OFFSET_TABLE}", file=one))
        tables.append(
            {**table, **light_offsets(content.content if content else None)} if isinstance(table, dict) else None
        )
    return _Pair(*tables)


def _of_database(path: Path, events: Events) -> _Pair:
    """Return the offsets of a RocksDB; where it cannot be read, those of the file that it replaced, which is said."""
    try:
        loaded = load_config(path)
    except CorruptError as error:
        events.damaged(error)
        events.noted(f"what follows is of {path.name}, which the broker no longer uses since it has the RocksDB")
        return _pair(path, events)
    table = loaded.content.get(OFFSET_TABLE) if loaded is not None and isinstance(loaded.content, dict) else None
    if loaded is not None:
        events.noted(f"offsets are those of {loaded.source}")
    return _Pair(table if isinstance(table, dict) else None, None)


def _consumers(pair: _Pair, events: Events, path: Path) -> Iterator[KeptOffset]:
    file, backup = pair.tables()
    for key in dict.fromkeys([*file, *backup]):
        owner = offset_key(key)
        here, before = file.get(key, {}), backup.get(key, {})
        if owner is None or not isinstance(here, dict):
            events.damaged(CorruptError(f"{key!r} names no topic and group with offsets", file=path))
            continue
        offsets, others = offsets_of(here), offsets_of(before) if isinstance(before, dict) else {}
        for number, offset in here.items():
            if not offsets_of({number: offset}):
                events.damaged(
                    CorruptError(
                        f"{owner.topic}@{owner.group} queue {number}: {offset!r} is not a valid offset", file=path
                    )
                )
        kind = BROADCAST if owner.is_broadcast else CONSUMER
        for number in dict.fromkeys([*offsets, *others]):
            yield KeptOffset(kind, owner.group, owner.topic, number, offsets.get(number), others.get(number))


def _delays(pair: _Pair) -> Iterator[KeptOffset]:
    offsets, others = (offsets_of(table) for table in pair.tables())
    for level in dict.fromkeys([*offsets, *others]):
        yield KeptOffset(DELAY, None, SCHEDULE_TOPIC, level - 1, offsets.get(level), others.get(level))


# What is wrong with the files of offsets, or odd about them: `rmqctl offsets lint`.

Weight = Literal["error", "warning", "notice"]
_DAY_MS = 86_400_000


class OffsetProblem(NamedTuple):
    """One thing in `file`. `weight`: error where offsets are lost or the broker does not load them; warning where a
    group gets messages twice or not at all; notice for what is only odd. `expected`: what would be right, where that
    is known."""

    weight: Weight
    problem: str
    file: Path
    group: str | None = None
    topic: str | None = None
    queue_id: int | None = None
    found: int | str | None = None
    expected: int | None = None
    detail: str = ""


def lint_offsets(files: StoreFiles, now: int, events: Events) -> Iterator[OffsetProblem]:
    """All of consumerOffset.json and delayOffset.json, and of their backups, at `now` (ms). UnreadableError."""
    look = _Lint(files, now, events)
    home = offsets_home(files.layout.config, files.config)
    if home.note:
        events.noted(home.note)
    for path in (home.path, files.layout.config / DELAY_FILE):
        if database_of(path.parent, path.name) is not None:
            yield from look.database(path)
            continue
        file, backup = look.loaded(path), look.loaded(backup_of(path))
        yield from look.problems
        look.problems.clear()
        yield from look.version(file, backup)
        table, older = look.table(file), look.table(backup)
        if table is not None:
            yield from look.consumers(path, table) if path == home.path else look.delays(path, table)
        if table is not None and older is not None:
            yield from _against_backup(path, table, older)


def _in_spite_of_its_shape(path: Path) -> ConfigFile | None:
    """Return what a file holds that no broker loads, so that all that is wrong in it is named; None if it is not even
    JSON."""
    try:
        content = parse_config_json(read_config_bytes(path).decode("utf-8", "replace"))
    except (CorruptError, UnreadableError, FileNotFoundError):
        return None
    return ConfigFile(_with_numbers(content), path) if isinstance(content, dict) else None


def _with_numbers(table: dict[Any, Any]) -> dict[Any, Any]:
    """Return a table and those in it with whole numbers as keys where a broker has them."""
    return {
        int(key) if is_queue_id(str(key)) else key: _with_numbers(value) if isinstance(value, dict) else value
        for key, value in table.items()
    }


class _Lint:
    def __init__(self, files: StoreFiles, now: int, events: Events) -> None:
        self.problems: list[OffsetProblem] = []
        self._files = files
        self._now = now
        self._behind = undispatched(files, events)
        self._lost = {(one.topic, one.queue_id) for one in lost_queues(files).found}
        # each group of a topic asks for the same queues
        self._find = cache(files.queues.find)
        self._names_known = KnownNames.of(files)
        self._groups, self._topics = self._names_known.groups, self._names_known.topics
        if self._groups is None or self._topics is None:
            events.noted(f"{self._names_known.why_unknown()}: names are not compared with it")

    def database(self, path: Path) -> Iterator[OffsetProblem]:
        """Yield what is wrong with the offsets that a RocksDB has in the place of the file `path`."""
        folder = database_of(path.parent, path.name) or path
        try:
            loaded = load_config(path)
        except CorruptError as error:
            weight: Weight = "warning" if isinstance(error, UncertainError) else "error"
            yield OffsetProblem(weight, "in-rocksdb", folder, detail=error.message)
            return
        if loaded is not None and loaded.source == folder and is_there(path):
            yield OffsetProblem("notice", "in-rocksdb", path, detail=in_database(path) or "")
        table = self.table(loaded)
        if table is not None:
            yield from self.consumers(folder, table)

    def loaded(self, path: Path) -> ConfigFile | None:
        """One of the two files; what is wrong with it as a whole is among the problems."""
        is_backup = path.suffix == ".bak"
        try:
            found = parse_config_file(path)
        except CorruptError as error:
            why = "a broker would take its backup" if not is_backup else "a broker could not fall back to it"
            self.problems.append(
                OffsetProblem("warning" if is_backup else "error", "damaged", path, detail=f"{error.message}: {why}")
            )
            return _in_spite_of_its_shape(path)
        except UnreadableError as error:
            self.problems.append(OffsetProblem("error", "unreadable", path, detail=error.message))
            return None
        if found is None:
            self._without_content(path)
        elif not isinstance(found.content, dict) or not isinstance(found.content.get(OFFSET_TABLE), dict):
            self.problems.append(OffsetProblem("error", "damaged", path, detail=f"holds no table {OFFSET_TABLE}"))
        return found

    def _without_content(self, path: Path) -> None:
        """Report a file that is absent, or empty: no broker writes an empty one, so that is damage."""
        found = look_at(path)
        if found.state == MISSING:
            self.problems.append(OffsetProblem("notice", "missing", path, detail="is not there"))
            return
        is_backup = path.suffix == ".bak"
        why = "a broker cannot fall back to it" if is_backup else "a broker takes its backup, or starts without offsets"
        weight: Weight = "notice" if is_backup else "error"
        self.problems.append(OffsetProblem(weight, "damaged", path, detail=f"{how_it_is(found)}: {why}"))

    def table(self, loaded: ConfigFile | None) -> Mapping[Any, Any] | None:
        """Return the table of offsets, None without one."""
        table = loaded.content.get(OFFSET_TABLE) if loaded and isinstance(loaded.content, dict) else None
        return {**table, **light_offsets(loaded.content if loaded else None)} if isinstance(table, dict) else None

    def version(self, file: ConfigFile | None, backup: ConfigFile | None) -> Iterator[OffsetProblem]:
        """The version of the data: that it is one, not of the future, and not older than that of the backup."""
        if file is None or not isinstance(file.content, dict) or "dataVersion" not in file.content:
            return  # 4.x has none
        version = file.content["dataVersion"]
        fields = ("counter", "stateVersion", "timestamp")
        if not isinstance(version, dict) or not all(isinstance(version.get(name), int) for name in fields):
            yield OffsetProblem(
                "error", "data-version", file.source, detail="dataVersion is invalid: not three numbers"
            )
            return
        if min(version[name] for name in fields) < 0:
            yield OffsetProblem("warning", "data-version", file.source, detail="dataVersion has a negative number")
        if version["timestamp"] > self._now + _DAY_MS:
            detail = "dataVersion is in the future: a slave's offsets may never count as newer"
            yield OffsetProblem("warning", "data-version", file.source, found=version["timestamp"], detail=detail)
        before = backup.content.get("dataVersion") if backup and isinstance(backup.content, dict) else None
        counter = before.get("counter") if isinstance(before, dict) else None
        if isinstance(counter, int) and counter > version["counter"]:
            detail = "the counter of dataVersion is smaller than that of the backup, which is to be older"
            yield OffsetProblem(
                "warning", "data-version", file.source, found=version["counter"], expected=counter, detail=detail
            )

    def consumers(self, path: Path, table: Mapping[Any, Any]) -> Iterator[OffsetProblem]:
        """Every entry of consumerOffset.json."""
        for key, queues in table.items():
            owner = offset_key(key)
            if owner is None:
                detail = "no topic@group: neither the broker nor its tools find it"
                yield OffsetProblem("error", "malformed-key", path, found=str(key), detail=detail)
                continue
            here = OffsetProblem("error", "malformed-entry", path, owner.group, owner.topic)
            if not isinstance(queues, dict):
                yield here._replace(detail=f"{type(queues).__name__} instead of offsets by queue")
                continue
            yield from self._names(here)
            yield from self._queues(here, owner.topic, queues)

    def delays(self, path: Path, table: Mapping[Any, Any]) -> Iterator[OffsetProblem]:
        """Every level of delayOffset.json; a level is its queue's id + 1."""
        levels = len(self._files.config.delay_levels())
        here = OffsetProblem("error", "malformed-entry", path, topic=SCHEDULE_TOPIC)
        queues: dict[Any, Any] = {}
        for level, offset in table.items():
            number = whole_number(str(level))
            if number is None or number < 1:
                yield here._replace(found=str(level), detail="no delay level")
                continue
            if number > levels:
                detail = f"messageDelayLevel has {levels} levels"
                yield here._replace(weight="notice", problem="unknown-level", found=number, detail=detail)
            queues[number - 1] = offset
        yield from self._queues(here, SCHEDULE_TOPIC, queues)

    def _names(self, here: OffsetProblem) -> Iterator[OffsetProblem]:
        group, topic = here.group or "", here.topic or ""
        groups = self._groups
        owner = topic.removeprefix(RETRY_PREFIX)
        # a group that consumes by POP has a retry topic for each topic
        is_by_pop = topic.startswith(pop_retry_topics(group)) and owner not in (groups or ())
        if topic.startswith(RETRY_PREFIX) and not is_by_pop:
            if owner != group:
                detail = f"the retry topic of group {owner!r}, for which it is reserved"
                yield here._replace(weight="notice", problem="retry-of-another", detail=detail)
            if groups is not None and owner not in groups:
                detail = f"there is no group {owner!r}"
                yield here._replace(weight="warning", problem="retry-without-group", detail=detail)
        if self._names_known.lacks_group(group):
            yield here._replace(weight="notice", problem="unknown-group", detail=UNKNOWN_GROUP)
        if self._names_known.lacks_topic(topic):
            yield here._replace(weight="warning", problem="unknown-topic", detail=UNKNOWN_TOPIC)

    def _queues(self, here: OffsetProblem, topic: str, queues: Mapping[Any, Any]) -> Iterator[OffsetProblem]:
        seen: set[int] = set()
        for number, offset in queues.items():
            if not is_queue_id(str(number)):
                yield here._replace(found=str(number), detail="no queue id")
                continue
            queue_id = int(number)
            at = here._replace(queue_id=queue_id, found=offset if isinstance(offset, int | str) else None)
            if queue_id in seen:
                yield at._replace(problem="queue-twice", detail="the file has the queue twice, once in quotes")
            seen.add(queue_id)
            if not isinstance(offset, int) or isinstance(offset, bool):
                yield at._replace(problem="malformed-offset", detail=f"{offset!r} is no offset")
            elif offset < 0:
                detail = "negative offsets are ignored: clients decide where they begin"
                yield at._replace(weight="warning", problem="negative", detail=detail)
            else:
                yield from self._place(at, topic, queue_id, offset)

    def _place(self, at: OffsetProblem, topic: str, queue_id: int, offset: int) -> Iterator[OffsetProblem]:
        try:
            queue = self._find(topic, queue_id) if is_safe_topic(topic) else None
        except CorruptError:
            return
        if queue is None:
            count = (self._topics or {}).get(topic)
            if offset and (count is None or queue_id >= count):
                detail = "neither a queue nor topics.json has it"
                yield at._replace(weight="warning", problem="unknown-queue", detail=detail)
            elif offset and (topic, queue_id) in self._lost:
                detail = "the queue has no files, so its end is not known: `rmqctl recover` makes it from the log"
                yield at._replace(weight="notice", problem="past-end", detail=detail)
            elif offset:
                detail = f"the queue has no files: {counted(offset, 'message')} past its end, if it is lost"
                yield at._replace(weight="warning", problem="past-end", expected=0, detail=detail)
            return
        begin, end = queue.min_offset(self._files.log.min_offset), queue.max_offset
        if end < offset <= end + self._behind.slots[topic, queue_id]:
            detail = "within what the log holds after the end of the queue"
            yield at._replace(weight="notice", problem="past-end", expected=end, detail=detail)
        elif offset > end:
            detail = f"{counted(offset - end, 'message')} past the end"
            yield at._replace(weight="warning", problem="past-end", expected=end, detail=detail)
        elif offset < begin:
            detail = f"{counted(begin - offset, 'message')} before the first one that is left"
            yield at._replace(weight="notice", problem="before-beginning", expected=begin, detail=detail)


def _against_backup(path: Path, table: Mapping[Any, Any], older: Mapping[Any, Any]) -> Iterator[OffsetProblem]:
    """What the backup, which was written before, has more of."""
    here = OffsetProblem("warning", "backup-differs", path)
    for key, before in older.items():
        owner = offset_key(key)
        if path.name == DELAY_FILE:
            rows = {None: (table.get(key), before)}
            at = here._replace(topic=SCHEDULE_TOPIC)
            if is_queue_id(str(key)):
                at = at._replace(queue_id=int(key) - 1)
        elif owner is None or not isinstance(before, dict):
            continue
        else:
            queues = table.get(key)
            now = queues if isinstance(queues, dict) else {}
            rows = {number: (now.get(number), offset) for number, offset in before.items()}
            at = here._replace(group=owner.group, topic=owner.topic)
        for number, (offset, was) in rows.items():
            if not isinstance(was, int) or (isinstance(offset, int) and offset >= was):
                continue
            queue_id = int(str(number)) if is_queue_id(str(number)) else at.queue_id
            found = offset if isinstance(offset, int | str) else None
            row = at._replace(queue_id=queue_id, found=found, expected=was)
            if offset is None:
                yield row._replace(detail="only the backup has it")
            else:
                yield row._replace(weight="notice", detail="smaller than in the backup: reset, or it went back")
