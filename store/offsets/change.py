"""A change of offsets: decided under the store's lock, journalled like every change, written as a broker writes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, UsageError, counted
from rmqctl.formats.notebook import as_html
from rmqctl.store.answers.config_offsets import (
    LMQ_TABLE,
    OFFSET_TABLE,
    KnownNames,
    OffsetKey,
    in_one,
    is_queue_id,
    known_groups,
    light_offsets,
    offset_key,
    offsets_of,
)
from rmqctl.store.answers.undispatched import undispatched
from rmqctl.store.config.config_database import LMQ_OFFSETS
from rmqctl.store.config.config_files import (
    ConfigFile,
    backup_of,
    load_config,
    load_what_is_left,
    next_backup,
    next_version,
    offsets_home,
    refuse_database,
)
from rmqctl.store.journal.journal import PlannedChange, changing
from rmqctl.store.journal.plan import install_config
from rmqctl.store.options import ChangeOptions, Events
from rmqctl.store.pop.records import RETRY_PREFIX
from rmqctl.store.queues.dispatch import LMQ_PREFIX
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles

# The file of the groups' offsets: what it says, and what it is to hold after a change, as a broker would write it.

_VERSION = "dataVersion"
# what 5.x derives from the table and writes beside it
_TOPICS_BY_GROUP = "groupTopicMap"

QueueOffsets = dict[int, int]
"""Offsets by queue id."""
ChangedOffsets = Mapping[int, int | None]
"""New offsets by queue id; None for one that is removed."""


class OffsetFile(NamedTuple):
    """`content`: all of the file `path`, or of its backup where `source` says so; both empty where there is neither.
    `note`: which file it is, where that is not the usual one."""

    path: Path
    source: Path | None
    content: Mapping[Any, Any]
    note: str = ""

    @property
    def table(self) -> Mapping[Any, Any]:
        """The offsets by `topic@group`, as they stand there."""
        table = self.content.get(OFFSET_TABLE)
        table = table if isinstance(table, dict) else {}
        return {**table, **light_offsets(self.content)} if self.is_lmq else table

    @property
    def is_lmq(self) -> bool:
        """Return whether it is the file of a broker with enableLmq, which has a second table."""
        return self.path.name == LMQ_OFFSETS

    def owners(self) -> Iterator[tuple[OffsetKey, QueueOffsets]]:
        """Whose offsets there are, and the offsets; what is malformed is left out."""
        for key, queues in self.table.items():
            owner = offset_key(key)
            if owner is not None and isinstance(queues, dict):
                yield owner, offsets_of(queues)

    def offsets(self, group: str, topic: str) -> QueueOffsets:
        """The offsets of a group in a topic by queue id. Negative ones are none."""
        queues = self.table.get(f"{topic}@{group}")
        found = offsets_of(queues) if isinstance(queues, dict) else {}
        return {queue_id: offset for queue_id, offset in found.items() if offset >= 0}

    def topics_of(self, group: str) -> list[str]:
        """Topics in which a group has offsets of its own, not those of a broadcasting one."""
        return sorted({owner.topic for owner, _ in self.owners() if owner.group == group and not owner.is_broadcast})


def read_offset_file(path: Path) -> OffsetFile:
    """The offsets in the file `path`, or in its backup, as a broker would load them.

    CorruptError where neither can be parsed or there is no table of offsets in it; UnsupportedError where the broker
    has them in a RocksDB beside it; UnreadableError.
    """
    refuse_database(path)
    return _offsets_in(path, load_config(path))


def _offsets_in(path: Path, loaded: ConfigFile | None) -> OffsetFile:
    if loaded is None:
        return OffsetFile(path, None, {})
    content = loaded.content
    if not isinstance(content, dict) or not isinstance(content.get(OFFSET_TABLE), dict):
        raise CorruptError(
            f"holds no table {OFFSET_TABLE}", file=loaded.source, hint="`rmqctl offsets lint` says what it holds"
        )
    return OffsetFile(path, loaded.source, content)


def offset_file_of(files: StoreFiles) -> OffsetFile:
    """Return the offsets of a store to be changed, from the file that its broker reads; of a damaged one without an
    intact backup what can still be read. Errors as of `read_offset_file`."""
    home = offsets_home(files.layout.config, files.config)
    refuse_database(home.path)
    loaded, note = load_what_is_left(home.path)
    return _offsets_in(home.path, loaded)._replace(note=in_one(home.note, note))


def content_with(file: OffsetFile, changed: Mapping[tuple[str, str], ChangedOffsets], now: int) -> bytes:
    """Return what the file is to hold with the `changed` offsets, by (group, topic), at `now` (ms).

    As ConsumerOffsetManager#encode and LmqConsumerOffsetManager#encode write it. The version of the data goes on where
    there is one (4.x has none): a master that comes back takes over the offsets of a slave that acted for it unless its
    own are newer (BrokerPreOnlineService).
    """
    light = file.content.get(LMQ_TABLE) if file.is_lmq else None
    light = dict(light) if isinstance(light, dict) else {}
    table = {key: _with_whole_keys(queues) for key, queues in file.table.items() if key not in light}
    for (group, topic), offsets in changed.items():
        key = f"{topic}@{group}"
        if file.is_lmq and group.startswith(LMQ_PREFIX):
            _change(light, key, offsets.get(0))
            continue
        before = table.get(key)
        after = {**(before if isinstance(before, dict) else {}), **offsets}
        _change(table, key, {queue_id: offset for queue_id, offset in after.items() if offset is not None} or None)
    content = {**file.content, OFFSET_TABLE: table}
    if file.is_lmq:
        content[LMQ_TABLE] = light
    if isinstance(content.get(_VERSION), dict):
        content[_VERSION] = next_version(content[_VERSION], now)
    if isinstance(content.get(_TOPICS_BY_GROUP), dict):
        content[_TOPICS_BY_GROUP] = _topics_by_group(content[_TOPICS_BY_GROUP], table, changed)
    return format_config_json(content).encode("utf-8")


def _change(table: dict[Any, Any], key: str, value: Any) -> None:
    """Set a row of `table`; None removes it."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _with_whole_keys(queues: Any) -> Any:
    """Offsets with queue ids as numbers, which a broker writes without quotes and reads with them, too."""
    if not isinstance(queues, dict):
        return queues
    return {int(key) if is_queue_id(str(key)) else key: offset for key, offset in queues.items()}


def _topics_by_group(
    before: Mapping[Any, Any], table: Mapping[Any, Any], changed: Mapping[tuple[str, str], ChangedOffsets]
) -> dict[Any, Any]:
    """Return the map as it was, with the topics and groups that came to the table and without those that `changed` took
    from it (ConsumerOffsetManager#getGroupTopicMap)."""
    found = {group: [*topics] if isinstance(topics, list) else [] for group, topics in before.items()}
    for key in table:
        owner = offset_key(key)
        if owner is not None and not owner.is_broadcast and owner.topic not in found.setdefault(owner.group, []):
            found[owner.group].append(owner.topic)
    for group, topic in changed:
        if f"{topic}@{group}" not in table and topic in found.get(group, ()):
            found[group].remove(topic)
            if not found[group]:
                del found[group]
    return found


class OffsetChange(NamedTuple):
    """One group in one queue: its offset `before` and `after`, None where it has none. `skipped`: messages that it has
    not read and does not get any more; `again`: those that it gets once more; None where the queue's beginning and end,
    or the offset before, are not known."""

    group: str
    topic: str
    queue_id: int
    before: int | None
    after: int | None
    min_offset: int | None = None
    max_offset: int | None = None
    skipped: int | None = None
    again: int | None = None
    detail: str = ""

    @property
    def is_change(self) -> bool:
        """Whether the offset is another one afterwards."""
        return self.before != self.after


@dataclass(slots=True)
class OffsetsReport:
    """What was changed, or with `dry_run` would be. `rows`: every queue looked at, those too that stay as they are."""

    _repr_html_ = as_html

    rows: list[OffsetChange] = field(default_factory=list)
    changed: int = 0
    skipped: int = 0
    again: int = 0
    notes: list[str] = field(default_factory=list)
    journal: str | None = None
    dry_run: bool = False
    operations: list[dict[str, Any]] = field(default_factory=list)


class Deciding(NamedTuple):
    """What a change of offsets decides by: the store under its lock, and its offsets. `tell` takes what is to be said
    of the change as a whole, `write` another config file that is to change with it; `planned` what else is to change.
    `behind`: what queues lack at their ends."""

    reader: StoreReader
    file: OffsetFile
    tell: Callable[[str], None]
    write: Callable[[Path, bytes], None]
    planned: PlannedChange
    behind: Mapping[tuple[str, int], int] = {}

    def row(self, group: str, topic: str, queue_id: int, after: int | None, detail: str = "") -> OffsetChange:
        """The change of one queue to the offset `after`, with what follows from it."""
        before = self.file.offsets(group, topic).get(queue_id)
        row = OffsetChange(group, topic, queue_id, before, after, detail=detail)
        return with_bounds(self.reader, row, self.behind)

    def bounds(self, queue: AnyConsumeQueue) -> tuple[int, int]:
        """First offset and end of a queue."""
        return bounds_of(self.reader, queue)


def queues_lack(files: StoreFiles, tell: Callable[[str], None]) -> Mapping[tuple[str, int], int]:
    """Return how many messages of the log's end are in no queue after a crash, by queue, and tell that there are."""
    return undispatched(files, Events(damage=lambda error: tell(error.message))).slots


def with_bounds(reader: StoreReader, row: OffsetChange, behind: Mapping[tuple[str, int], int] = {}) -> OffsetChange:
    """Return `row` with the beginning and the end of its queue, and what follows from the change. `behind`: messages
    that the log holds after the ends of queues."""
    queue = reader.files.queues.find(row.topic, row.queue_id)
    if queue is None:
        return row._replace(detail=row.detail or "the queue has no files, so its end is not known")
    begin, end = bounds_of(reader, queue)
    end += behind.get((row.topic, row.queue_id), 0)
    row = row._replace(min_offset=begin, max_offset=end)
    if row.before is None or row.after is None:
        return row
    first, last = min(max(row.before, begin), end), min(max(row.after, begin), end)
    return row._replace(skipped=max(0, last - first), again=max(0, first - last))


def bounds_of(reader: StoreReader, queue: AnyConsumeQueue) -> tuple[int, int]:
    """Return the first offset and the end of a queue."""
    return queue.min_offset(reader.files.log.min_offset), queue.max_offset


Decision = Callable[[Deciding], list[OffsetChange]]


def change_offsets(files: StoreFiles, decide: Decision, change: ChangeOptions) -> OffsetsReport:
    """Change offsets in the store opened as `files`, as `decide` says. What the file held goes to its backup, as a
    broker does it (MixAll#string2File), and both as they were into the journal.

    StoreInUseError; CorruptError where offsets are kept that cannot be read; what `decide` raises.
    """
    report = OffsetsReport(dry_run=change.dry_run)
    with changing(files, "offsets", change, mends=False) as planned:
        file = offset_file_of(planned.files)
        if file.note:
            report.notes.append(file.note)
        if file.source not in (None, file.path):
            report.notes.append(f"{file.path} is missing, empty or damaged: its backup is what is changed")
        others: dict[Path, bytes] = {}
        tell = report.notes.append
        behind = queues_lack(planned.files, tell)
        report.rows = decide(Deciding(StoreReader(planned.files), file, tell, others.__setitem__, planned, behind))
        _plan(planned, file, report)
        for path, data in others.items():
            plan_file(planned, path, data)
        report.operations = planned.rows()
    report.journal = planned.kept_in
    return report


def _plan(change: PlannedChange, file: OffsetFile, report: OffsetsReport) -> None:
    changed: dict[tuple[str, str], dict[int, int | None]] = {}
    for row in report.rows:
        is_patched = bool(change.plan.operations)
        if row.is_change or is_patched:
            report.skipped += row.skipped or 0
            report.again += row.again or 0
        if row.is_change:
            changed.setdefault((row.group, row.topic), {})[row.queue_id] = row.after
            report.changed += 1
    change.plan.messages_skipped = report.skipped
    if not changed:
        return
    _require_plain(file)
    plan_file(change, file.path, content_with(file, changed, time.time_ns() // 1_000_000))


def plan_file(change: PlannedChange, path: Path, data: bytes) -> None:
    """Plan that the config file `path` is to hold `data`, and its backup what the file holds now."""
    old = next_backup(path)
    if old is not None:
        install_config(change.plan, change.staging, backup_of(path), old)
    install_config(change.plan, change.staging, path, data)


def _require_plain(file: OffsetFile) -> None:
    """A broker ignores a whole file in which an offset is invalid: a change of the file would have no effect."""
    for key, queues in file.table.items():
        good = isinstance(queues, dict) and all(
            isinstance(offset, int) and not isinstance(offset, bool) for offset in queues.values()
        )
        if not good:
            raise CorruptError(
                f"{key!r} holds no offsets by queue: a broker may not load the file",
                file=file.source,
                hint="`rmqctl offsets lint` names all that is wrong; correct it, or take its backup, first",
            )


# What offsets a group is to have: at a time, at an offset, at either end, as another group, as another file says.

Preference = Literal["larger", "smaller", "replace"]
_SEPARATOR = "@"
_NEW_GROUP = "--new-group lets a group begin there that is not known yet"


class ResetTo(NamedTuple):
    """Where a group is set to. `value`: the offset, or the time in ms."""

    kind: Literal["time", "offset", "earliest", "latest"]
    value: int = 0


def set_offset(
    group: str, topic: str, queue_id: int, offset: int, *, new_group: bool = False, anywhere: bool = False
) -> Decision:
    """One queue to `offset`. RefusedError outside of the queue unless `anywhere`; NotFoundError for an unknown group
    unless `new_group`."""

    def decide(deciding: Deciding) -> list[OffsetChange]:
        _require_group(deciding, group, new_group)
        row = deciding.row(group, topic, queue_id, offset)
        if not anywhere:
            require_inside(row)
        return [row]

    return decide


def reset_offsets(
    group: str, topic: str, to: ResetTo, queue_id: int | None = None, *, new_group: bool = False
) -> Decision:
    """All queues of a topic that have files, or one. A time gives the first message stored at or after it, else the end
    (ConsumeQueue#getOffsetInQueueByTime).

    RefusedError for an offset outside of a queue, and for a store that was not closed cleanly: the ends of its queues
    are not certain. NotFoundError for an unknown group (unless `new_group`), topic or queue; UnsupportedError for
    queues in a RocksDB.
    """

    def decide(deciding: Deciding) -> list[OffsetChange]:
        files = deciding.reader.files
        if files.has_abort():
            raise RefusedError(
                "the store was not closed cleanly, so the ends of its queues are not certain",
                file=files.layout.abort,
                hint="run `rmqctl recover` first; `rmqctl offsets set` takes an offset as it is given",
            )
        _require_group(deciding, group, new_group)
        queues = deciding.reader.queues(topic, queue_id)
        rows = [deciding.row(group, topic, queue.queue_id, _place(deciding, queue, to)) for queue in queues]
        if to.kind == "offset":
            for row in rows:
                require_inside(row)
        there = {queue.queue_id for queue in queues}
        for other, offset in deciding.file.offsets(group, topic).items():
            if queue_id is None and other not in there:
                rows.append(OffsetChange(group, topic, other, offset, offset, detail="the queue has no files: left"))
        return sorted(rows)

    return decide


def copy_offsets(source: str, target: str, topic: str | None = None, *, new_group: bool = False) -> Decision:
    """The offsets of the group `source` for the group `target`, in all topics of `source` or in one. Its retry topic
    is its own and is left out. NotFoundError where there is nothing to copy."""

    def decide(deciding: Deciding) -> list[OffsetChange]:
        if source == target:
            raise UsageError("both groups are the same", hint="name another one to copy to")
        _require_group(deciding, target, new_group)
        topics = [name for name in deciding.file.topics_of(source) if topic in (None, name)]
        own = [name for name in topics if name.startswith(RETRY_PREFIX)]
        for name in own:
            deciding.tell(f"{name} is the retry topic of one group: its offsets are not copied")
        rows = [
            deciding.row(target, name, queue_id, offset)
            for name in topics
            if name not in own
            for queue_id, offset in sorted(deciding.file.offsets(source, name).items())
        ]
        if not rows:
            where = f" in topic {topic!r}" if topic else ""
            raise NotFoundError(
                f"no offset of group {source!r}{where} is kept", hint="`rmqctl offsets show` lists what is kept"
            )
        return rows

    return decide


def merge_offsets(
    other: Path,
    prefer: Preference | None = None,
    group: str | None = None,
    topic: str | None = None,
    *,
    only_shown: bool = False,
) -> Decision:
    """The offsets of another file of the same kind: those that are missing here, and those that differ by `prefer`:
    the larger, the smaller, or that of the file. Without it RefusedError where any differ, with the first of them; or
    those stay, where the plan is `only_shown`.

    Offsets of broadcasting groups are left as they are. CorruptError, UnreadableError for the other file; NotFoundError
    where it is not there or holds nothing of what is wanted.
    """

    def decide(deciding: Deciding) -> list[OffsetChange]:
        found = read_offset_file(other)
        if found.source is None:
            raise NotFoundError("there is no such file, or it is empty", file=other)
        if found.source != other:
            deciding.tell(f"{other} is damaged: what is taken is from its backup")
        rows = []
        for owner, offsets in found.owners():
            if owner.is_broadcast or group not in (None, owner.group) or topic not in (None, owner.topic):
                continue
            for queue_id, theirs in sorted(offsets.items()):
                if theirs >= 0:
                    rows.append(_merged(deciding, owner.group, owner.topic, queue_id, theirs, prefer))
        if not rows:
            raise NotFoundError("it holds no such offsets", file=other, hint="`rmqctl dump` shows what it holds")
        conflicts = [row for row in rows if row.detail.startswith(_CONFLICT)]
        if conflicts and prefer is None:
            first = conflicts[0]
            what = f"{counted(len(conflicts), 'offset differs', 'offsets differ')} from those of the other file"
            which = "say which to take: --take larger, smaller or replace"
            if not only_shown:
                place = f"{first.group} in {first.topic} queue {first.queue_id}: {first.detail}"
                raise RefusedError(
                    f"{what}, the first of {place}", file=other, hint=f"{which}; --dry-run shows them all"
                )
            deciding.tell(f"{what}: {which}")
        return sorted(rows, key=lambda row: row[:3])

    return decide


def delete_offsets(group: str, topic: str | None = None, queue_id: int | None = None) -> Decision:
    """Remove the offsets of a group: all, or those of a topic, or of one queue. Offsets of broadcasting clients stay.
    NotFoundError where none is kept."""

    def decide(deciding: Deciding) -> list[OffsetChange]:
        rows = [
            OffsetChange(owner.group, owner.topic, number, offset, None, detail="removed")
            for owner, offsets in deciding.file.owners()
            if owner.group == group and topic in (None, owner.topic) and not owner.is_broadcast
            for number, offset in offsets.items()
            if queue_id in (None, number)
        ]
        if not rows:
            raise NotFoundError(
                f"no offset of group {group!r} matched", hint="`rmqctl offsets show` lists what is kept"
            )
        return sorted(rows, key=lambda row: row[:3])

    return decide


def delete_orphans() -> Decision:
    """Remove the offsets of groups that subscriptionGroup.json does not name, and of topics that topics.json does not
    name and that have no queue. RefusedError where one of the files is not there or cannot be read."""

    def decide(deciding: Deciding) -> list[OffsetChange]:
        names = KnownNames.of(deciding.reader.files)
        if names.groups is None or names.topics is None:
            raise RefusedError(
                f"{names.why_unknown()}: orphans cannot be identified",
                file=deciding.reader.files.layout.config,
                hint="name the group: `rmqctl offsets delete -g GROUP`",
            )
        rows = []
        for owner, offsets in deciding.file.owners():
            why = None if owner.is_broadcast else names.orphaned(owner)
            for number, offset in offsets.items() if why is not None else ():
                rows.append(OffsetChange(owner.group, owner.topic, number, offset, None, detail=why or ""))
        return sorted(rows, key=lambda row: row[:3])

    return decide


_CONFLICT = "conflict: "


def _merged(
    deciding: Deciding, group: str, topic: str, queue_id: int, theirs: int, prefer: Preference | None
) -> OffsetChange:
    ours = deciding.file.offsets(group, topic).get(queue_id)
    if ours is None:
        return deciding.row(group, topic, queue_id, theirs, "only in the other file")
    if ours == theirs:
        return deciding.row(group, topic, queue_id, ours)
    chosen = {"larger": max(ours, theirs), "smaller": min(ours, theirs), "replace": theirs, None: ours}[prefer]
    return deciding.row(group, topic, queue_id, chosen, f"{_CONFLICT}{ours} here, {theirs} there")


def _place(deciding: Deciding, queue: AnyConsumeQueue, to: ResetTo) -> int:
    begin, end = deciding.bounds(queue)
    if to.kind == "time":
        return deciding.reader.offset_at(queue.topic, queue.queue_id, to.value)
    return {"earliest": begin, "latest": end, "offset": to.value}[to.kind]


def require_inside(row: OffsetChange, verb: str = "set") -> None:
    """As a broker refuses a target outside of the queue (AdminBrokerProcessor#resetOffsetInner)."""
    hint = f"`rmqctl offsets {verb} --anywhere` sets the offset anyway; `rmqctl ls --queues` lists the ends"
    place = f"{row.topic} queue {row.queue_id}"
    if row.max_offset is None or row.min_offset is None:
        raise RefusedError(f"the end of {place} is unknown: it has no files", hint=hint)
    if row.after is not None and not row.min_offset <= row.after <= row.max_offset:
        raise RefusedError(f"{row.after} is outside {place}, which has {row.min_offset} to {row.max_offset}", hint=hint)


def _require_group(deciding: Deciding, group: str, new_group: bool) -> None:
    if _SEPARATOR in group:
        raise UsageError(f"a group cannot have a {_SEPARATOR!r} in its name", hint="offsets are kept by topic@group")
    if new_group or deciding.file.topics_of(group):
        return
    known = known_groups(deciding.reader.files.layout)
    if group not in known:
        raise NotFoundError(f"there is no group {group!r}{_nearest(group, known, deciding)}", hint=_NEW_GROUP)


def _nearest(group: str, known: Iterable[str], deciding: Deciding) -> str:
    from difflib import get_close_matches

    near = get_close_matches(group, {*known, *(owner.group for owner, _ in deciding.file.owners())}, n=1)
    return f": did you mean {near[0]!r}?" if near else ""
