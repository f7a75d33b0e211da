"""What offsets a group is to have: at a time, at an offset, at either end, as another group, as another file says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from rmqctl.formats.errors import NotFoundError, RefusedError, UsageError
from rmqctl.formats.wording import counted
from rmqctl.store.answers.dead_letters import RETRY_PREFIX
from rmqctl.store.answers.known_names import KnownNames, known_groups
from rmqctl.store.offsets.change import Deciding, Decision, OffsetChange
from rmqctl.store.offsets.offset_file import read_offset_file
from rmqctl.store.queues.queue_table import AnyConsumeQueue

Preference = Literal["larger", "smaller", "replace"]
PREFERENCES: tuple[Preference, ...] = ("larger", "smaller", "replace")
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
    """All queues of a topic that have files, or one. A time gives the first message stored at or after it, the end
    where there is none (ConsumeQueue#getOffsetInQueueByTime).

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
    hint = f"`rmqctl offsets {verb} --anywhere` sets it all the same; `rmqctl ls --queues` lists the ends"
    place = f"of {row.topic} queue {row.queue_id}"
    if row.max_offset is None or row.min_offset is None:
        raise RefusedError(f"the end {place} is not known: it has no files", hint=hint)
    if row.after is not None and not row.min_offset <= row.after <= row.max_offset:
        raise RefusedError(
            f"{row.after} lies outside {place}, which is {row.min_offset} to {row.max_offset}", hint=hint
        )


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
