"""The diff of two stores: where their commitlogs part, and which messages one of them has and the other has not.

Two passes: the first walks both logs and compares their bytes, the second makes digests and matches what is not the
same at the same place, by an exchange in partitions. Memory grows with queues and damage, not with messages.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import CorruptError, RmqctlError, UnreadableError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import UNIQUE_KEY
from rmqctl.pipeline.engine import Engine
from rmqctl.pipeline.exchange import exchange
from rmqctl.pipeline.jobs.diff_compare import (
    LISTED_DAMAGE,
    Compared,
    Pair,
    Side,
    Sums,
    compare,
    hexadecimal,
    plan_pairs,
)
from rmqctl.pipeline.jobs.diff_match import (
    CHANGED,
    MOVED,
    REASONS,
    REPLACED,
    SAME,
    SIDES,
    Difference,
    Facts,
    Knowledge,
    Likeness,
    Matched,
    digest,
    match,
)
from rmqctl.pipeline.splits import SPLIT_SIZE, on_done_telling, whole_files_at_need
from rmqctl.pipeline.views import require_duckdb
from rmqctl.store.answers.config_offsets import DELAY_FILE, GROUP_TABLE, OFFSET_TABLE, light_offsets
from rmqctl.store.config.config_database import GROUPS, TOPICS
from rmqctl.store.config.config_files import offsets_home, read_config
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import is_directory
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.log.walk import Blank, Damage, Record
from rmqctl.store.native.tables import Columns
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import QueueKey
from rmqctl.store.read.frames import message_at, span_of
from rmqctl.store.store_files import StoreFiles

# the unmatched messages of this many bytes of log make a partition: 60 bytes of hundreds, twice, for each message
PARTITION_BYTES = 512 * 1024 * 1024
_EVERYTHING = (-(1 << 63), (1 << 63) - 1)
_PASSES = 2


@dataclass(slots=True)
class Diff:
    """The two stores side by side.

    `is_shared`: they are copies of one log (some message is the same, at the same physical offset, and so is the size
    of the files: with another one, all messages behind the first file have other places). Then `agree_until`
    is the physical offset from which on they do not agree, because they part there (`divergence`, the first byte that
    is not the same) or because the shorter one ends. `last_same`: the last message that both have at one place; in
    front of the divergence, if each log went its own way, behind it, if one was damaged. `same_again`: how many
    messages behind the divergence are the same. `matched` has all differences; `sums` digests by queue of what both
    could have: of copies the stretch that both cover.
    """

    a: Side
    b: Side
    min_offsets: tuple[int, int]
    content: bool = False
    is_shared: bool = False
    divergence: int | None = None
    agree_until: int | None = None
    last_same: int | None = None
    same_again: int = 0
    matched: Matched = field(default_factory=Matched)
    sums: tuple[dict[QueueKey, Sums], dict[QueueKey, Sums]] = field(default_factory=lambda: ({}, {}))

    @property
    def is_parted(self) -> bool:
        """Whether the logs are one up to the divergence, and have nothing in common behind it."""
        if self.divergence is None or self.last_same is None:
            return False
        return self.last_same < self.divergence

    @property
    def is_same(self) -> bool:
        """Whether both hold the same messages, and copies of one log also the same bytes as far as their records go,
        unless only content counts."""
        states = {state for _, _, state in self.matched.counts}
        places_count = self.is_shared and not self.content
        same_bytes = not places_count or (self.divergence is None and self.a.end == self.b.end)
        return states <= {SAME} and same_bytes


def diff(
    engine: Engine,
    a: StoreFiles,
    b: StoreFiles,
    *,
    content: bool = False,
    limit: int = 20,
    split_size: int = SPLIT_SIZE,
    events: Events = Events(),
) -> Diff:
    """Compare two stores; the same for any engine and any split size.

    `content`: compare what producers said only, not what a broker adds (store time and host, and the like). `limit`:
    differences that are kept with their places. `progress` gets bytes, in all as many as `work_of` returns.
    UnsupportedError without duckdb, errors of reading as of `split_columns`. Damage is counted and reported as such,
    never raised.
    """
    require_duckdb("comparing stores")

    def work(size: int, told: Events) -> Diff:
        return _over(engine, a, b, plan_pairs(a, b, size), content, limit, told)

    return whole_files_at_need(split_size, work, events)


def work_of(a: StoreFiles, b: StoreFiles) -> int:
    """Return how many bytes a diff will report: those that one of the logs has, or both, once for each pass."""
    return _PASSES * _length(a, b, plan_pairs(a, b, SPLIT_SIZE))


def _length(a: StoreFiles, b: StoreFiles, pairs: Sequence[Pair]) -> int:
    """Return the bytes of the stretches, without the zeros of files that were made ahead."""
    end = max(a.log.written_end(), b.log.written_end())
    return sum(max(0, min(pair.end, end) - pair.begin) for pair in pairs)


def _over(
    engine: Engine, a: StoreFiles, b: StoreFiles, pairs: Sequence[Pair], content: bool, limit: int, events: Events
) -> Diff:
    """The diff, by these stretches of the logs."""
    length = _length(a, b, pairs)
    compared = engine.run("comparing", compare, pairs, on_done_telling(events, length, len(pairs)))
    found = _first_look(a, b, content, compared)
    size = sum(pair.end - pair.begin for pair, look in zip(pairs, compared, strict=True) if not look.is_same)
    plan = Likeness(content, *_common(found), max(1, -(-size // PARTITION_BYTES)), found.divergence)
    knowledge = Knowledge(_facts(found, 0), _facts(found, 1), found.is_shared, found.is_parted, limit)
    # what is not kept of a look need not travel
    items = [(pair, look.is_same) for pair, look in zip(pairs, compared, strict=True)]
    task, reduce = functools.partial(digest, plan), functools.partial(match, knowledge)
    on_done = on_done_telling(events, length, len(items))
    digested, matched = exchange(engine, "matching", task, items, 2 * plan.partitions, reduce, on_done)
    for part in digested:
        for sums, more in zip(found.sums, (part.a, part.b), strict=True):
            for queue, later in more.items():
                sums.setdefault(queue, Sums()).join(later)
        found.same_again += part.again
        found.matched.counts += Counter({(topic, "", SAME): count for topic, count in part.in_place.items()})
    for one in matched:
        found.matched.add(one, limit)
    return found


def _first_look(a: StoreFiles, b: StoreFiles, content: bool, compared: Sequence[Compared]) -> Diff:
    """What the first pass says of the stores."""
    found = Diff(Side(), Side(), (a.log.min_offset, b.log.min_offset), content)
    for look in compared:
        found.a.add(look.a)
        found.b.add(look.b)
    found.last_same = max((look.last_same for look in compared if look.last_same is not None), default=None)
    # the size of an only file may be anything
    same_sizes = a.log.file_size == b.log.file_size or min(len(a.log.files), len(b.log.files)) < 2
    found.is_shared = found.last_same is not None and same_sizes
    if found.is_shared and found.a.end is not None and found.b.end is not None:
        shorter = min(found.a.end, found.b.end)
        first = next((look.first_difference for look in compared if look.first_difference is not None), None)
        found.divergence = first if first is not None and first < shorter else None
        found.agree_until = shorter if found.divergence is None else found.divergence
    return found


def _common(found: Diff) -> tuple[int, int]:
    """The physical offsets that digests are made of: of copies what both cover."""
    if not found.is_shared or found.a.end is None or found.b.end is None:
        return _EVERYTHING
    return max(found.min_offsets), min(found.a.end, found.b.end)


def _facts(found: Diff, side: int) -> Facts:
    seen = (found.a, found.b)[side]
    damage = [(span.physical_offset, span.end) for span in seen.damage]
    return Facts(found.min_offsets[side], seen.end or 0, damage, seen.queues)


# Two configurations compared: topics, groups, consumer offsets and delay offsets, name by name.

TOPIC, GROUP, OFFSET, DELAY = "topic", "group", "offset", "delay offset"
_Table = dict[str, Any]


@dataclass
class ConfigDiff:
    """`rows`: what differs, each with kind, name and both values, None where a side has none. `notes`: what could not
    be compared; `is_certain`: nothing was in the way of comparing."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_certain: bool = True

    @property
    def is_same(self) -> bool:
        """Return whether nothing differs in what could be compared."""
        return not self.rows


def diff_config(a: StoreFiles, b: StoreFiles) -> ConfigDiff:
    """Compare what the folders config/ of two stores say. Where only one of them has that folder nothing is compared,
    which a note says."""
    found = ConfigDiff()
    without = [side for side, files in (("a", a), ("b", b)) if not is_directory(files.layout.config)]
    if len(without) == 1:
        found.notes.append(f"{without[0]} has no folder config: topics, groups and offsets are not compared")
    if without:
        return found
    for kind in (TOPIC, GROUP, OFFSET, DELAY):
        try:
            here, there = _table(a, kind), _table(b, kind)
        except (CorruptError, UnreadableError) as error:
            found.is_certain = False
            found.notes.append(f"{kind}s are not compared: {error}")
            continue
        for name in sorted({*here, *there}):
            if here.get(name) != there.get(name):
                found.rows.append({"kind": kind, "name": name, **_values(here.get(name), there.get(name))})
    return found


def _table(files: StoreFiles, kind: str) -> _Table:
    """Return the rows of a table by their names. CorruptError, UnreadableError."""
    config = files.layout.config
    if kind == TOPIC:
        return _by_name(config / TOPICS, "topicConfigTable")
    if kind == GROUP:
        return _by_name(config / GROUPS, GROUP_TABLE)
    if kind == DELAY:
        return {f"level {level}": offset for level, offset in _by_name(config / DELAY_FILE, OFFSET_TABLE).items()}
    return dict(_offsets(offsets_home(config, files.config).path))


def _by_name(path: Path, table: str) -> _Table:
    content = read_config(path)
    found = content.get(table) if isinstance(content, dict) else None
    return {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}


def _offsets(path: Path) -> Iterator[tuple[str, Any]]:
    for key, queues in {**_by_name(path, OFFSET_TABLE), **light_offsets(read_config(path))}.items():
        topic, _, group = key.partition("@")
        for queue_id, offset in queues.items() if isinstance(queues, dict) else [("", queues)]:
            yield f"{group} in {topic} queue {queue_id}", offset


def _values(a: Any, b: Any) -> dict[str, Any]:
    """Return both values: of objects the fields that differ, as text."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
        a, b = ({name: side[name] for name in names if name in side} for side in (a, b))
    return {"a": _shown(a), "b": _shown(b)}


def _shown(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else value


# A diff as plain rows and records, in one order whatever engine made it: what `rmqctl diff` prints.

_Row = dict[str, Any]
_TWO_PLACES = (CHANGED, REPLACED, MOVED)
# compared by themselves
_OWN_FIELDS = ("property_bytes", "physical_offset", "total_size")


def diff_summary(found: Diff, a: StoreFiles, b: StoreFiles) -> _Row:
    """Return the whole result of a diff; the stores are read at the places that it names."""
    counts = found.matched.counts
    row: _Row = {"same": found.is_same}
    for side, seen, files in zip(SIDES, (found.a, found.b), (a, b), strict=True):
        row[side] = _store_row(seen, files)
    row["copies_of_one_log"] = found.is_shared
    row["parted"] = found.is_parted
    row["agree_until"] = found.agree_until
    row["first_divergence"] = None
    if found.divergence is not None:
        row["first_divergence"] = _divergence(found, found.divergence, a.log, b.log)
        row["agree_until"] = row["first_divergence"]["record_offset"]
    row["messages"] = _counts_row(counts)
    row["topics"] = _topic_rows(found)
    row["differences"] = [_difference(one, a.log, b.log) for one in found.matched.first]
    return row


def _store_row(seen: Side, files: StoreFiles) -> _Row:
    return {
        "path": str(files.root),
        "file_size": files.log.file_size,
        "min_offset": max(files.log.min_offset, 0),
        "end_offset": seen.end,
        "messages": seen.messages,
        "bytes": seen.bytes,
        "damaged_spans": len(seen.damage),
        "damaged_bytes": sum(span.end - span.physical_offset for span in seen.damage),
        "damage": [_damage(span) for span in seen.damage[:LISTED_DAMAGE]],
    }


def _damage(span: Damage) -> _Row:
    return {
        "file": span.file,
        "physical_offset": span.physical_offset,
        "end_offset": span.end,
        "reason": span.reason.value,
        "detail": span.detail,
    }


def _counts_row(counts: Counter[tuple[str, str, str]]) -> _Row:
    sums: Counter[tuple[str, str]] = Counter()
    for (_, side, state), count in counts.items():
        sums[side, state] += count
    row: _Row = {state: sums["", state] for state in (SAME, CHANGED, REPLACED, MOVED)}
    for side in SIDES:
        row[f"only_{side}"] = sum(sums[side, reason] for reason in REASONS)
        row[f"only_{side}_because"] = {reason: sums[side, reason] for reason in REASONS}
    return row


def _topic_rows(found: Diff) -> list[_Row]:
    """A row a topic: those that differ first, then by name."""
    by_topic: dict[str, Counter[tuple[str, str, str]]] = {}
    for (topic, side, state), count in found.matched.counts.items():
        by_topic.setdefault(topic, Counter())[topic, side, state] += count
    digests = [_topic_digests(sums) for sums in found.sums]
    rows = []
    for topic in sorted({*found.a.topics, *found.b.topics}):
        row: _Row = {"topic": topic}
        for side, seen in zip(SIDES, (found.a, found.b), strict=True):
            row[f"messages_{side}"], row[f"bytes_{side}"] = seen.topics.get(topic, (0, 0))
        counted = _counts_row(by_topic.get(topic, Counter()))
        row |= {name: value for name, value in counted.items() if not name.endswith("_because")}
        for side, of_topics in zip(SIDES, digests, strict=True):
            row[f"digest_{side}"], row[f"ordered_digest_{side}"] = of_topics.get(topic, (None, None))
        rows.append(row)
    return sorted(rows, key=lambda row: row["same"] == row["messages_a"] == row["messages_b"])


def _topic_digests(sums: dict[QueueKey, Sums]) -> dict[str, tuple[str, str]]:
    """By topic the digest of its messages in any order, and that of its queues, each in order."""
    found: dict[str, tuple[Sums, Sums]] = {}
    for (topic, queue_id), of_queue in sorted(sums.items()):
        of_all, ordered = found.setdefault(topic, (Sums(), Sums()))
        of_all.join(of_queue)
        # queues have no order among them, but each has its number
        ordered.join(of_queue.marked(queue_id))
    return {
        topic: (hexadecimal(of_all.of_all), hexadecimal(ordered.in_order)) for topic, (of_all, ordered) in found.items()
    }


def _divergence(found: Diff, offset: int, a: MappedFileQueue, b: MappedFileQueue) -> _Row:
    """The first byte that differs, and the records that it belongs to."""
    records = [_record_around(log, offset) for log in (a, b)]
    starts = [span_of(record)[0] for record in records if record is not None]
    row: _Row = {"physical_offset": offset, "record_offset": min(starts, default=offset)}
    for side, log, record in zip(SIDES, (a, b), records, strict=True):
        row[side] = _record_row(log, offset, record)
    row["fields"] = None
    if isinstance(records[0], StoredMessage) and isinstance(records[1], StoredMessage):
        row["fields"] = other_fields(records[0], records[1])
    row["same_again_behind"] = found.same_again
    return row


def _record_around(log: MappedFileQueue, offset: int) -> Record | None:
    """The record that covers a physical offset, None where there is no file."""
    file = log.find(offset)
    if file is None:
        return None
    for record in walk_columns(log, file.start_offset, offset + 1, columns=Columns.HEAD):
        if not isinstance(record, MessageColumns):
            begin, end = span_of(record)
            if begin <= offset < end:
                return record
        elif record.begin <= offset < record.end:
            row = int(record.physical_offset.searchsorted(offset, side="right")) - 1
            return record.message(row)
    return None


def _record_row(log: MappedFileQueue, offset: int, record: Record | None) -> _Row:
    file = log.find(offset)
    row: _Row = {"file": str(file.path) if file is not None else None}
    if record is None:
        return {"record": "nothing", **row}
    begin, end = span_of(record)
    row |= {"physical_offset": begin, "end_offset": end}
    if isinstance(record, StoredMessage):
        return {"record": "message", **row, **_message_row(record)}
    if isinstance(record, Damage):
        return {"record": "damage", **row, "reason": record.reason.value, "detail": record.detail}
    return {"record": "blank" if isinstance(record, Blank) else "empty", **row}


def _message_row(message: StoredMessage) -> _Row:
    """What tells one message from others."""
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "unique_key": message.properties().get(UNIQUE_KEY),
        "msg_id": message.message_id,
        "size": message.total_size,
        "store_timestamp": message.store_timestamp,
    }


def other_fields(one: StoredMessage, other: StoredMessage) -> list[str]:
    """The names of the fields in which two messages differ, but for their place; properties as `properties.NAME`."""
    names = [
        name for name in StoredMessage._fields if name not in _OWN_FIELDS and getattr(one, name) != getattr(other, name)
    ]
    properties = one.properties(), other.properties()
    names += [
        f"properties.{name}"
        for name in {**properties[0], **properties[1]}
        if properties[0].get(name) != properties[1].get(name)
    ]
    if not names and one.property_bytes != other.property_bytes:
        names.append("properties")
    return names


def _difference(one: Difference, a: MappedFileQueue, b: MappedFileQueue) -> _Row:
    messages = [_message(log, offset) for log, offset in ((a, one.offset_a), (b, one.offset_b))]
    in_both = one.state in _TWO_PLACES
    row: _Row = {
        "state": one.state,
        "only": None if in_both else SIDES[one.offset_a < 0],
        "topic": one.topic,
        "queue_id": one.queue_id,
        "queue_offset": one.queue_offset,
        "physical_offset_a": one.offset_a if one.offset_a >= 0 else None,
        "physical_offset_b": one.offset_b if one.offset_b >= 0 else None,
        "fields": None,
        "a": _message_row(messages[0]) if messages[0] is not None else None,
        "b": _message_row(messages[1]) if messages[1] is not None else None,
    }
    if in_both and messages[0] is not None and messages[1] is not None:
        row["fields"] = other_fields(messages[0], messages[1])
    return row


def _message(log: MappedFileQueue, offset: int) -> StoredMessage | None:
    if offset < 0:
        return None
    try:
        return message_at(log, offset)
    except RmqctlError:  # removed since it was read
        return None
