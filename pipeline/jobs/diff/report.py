"""A diff as plain rows and records, in one order whatever engine made it: what `rmqctl diff` prints."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import UNIQUE_KEY
from rmqctl.pipeline.jobs.diff.compare import LISTED_DAMAGE, Side
from rmqctl.pipeline.jobs.diff.diff import Diff
from rmqctl.pipeline.jobs.diff.match import CHANGED, MOVED, REASONS, REPLACED, SAME, SIDES, Difference
from rmqctl.pipeline.jobs.digests import Sums, hexadecimal
from rmqctl.store.columns.batch import Columns, MessageColumns
from rmqctl.store.columns.walk import walk_columns
from rmqctl.store.commitlog.walk import Blank, Damage, Record
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.queues.unit import QueueKey
from rmqctl.store.read.frames import message_at, span_of
from rmqctl.store.store_files import StoreFiles

_Row = dict[str, Any]
_TWO_PLACES = (CHANGED, REPLACED, MOVED)
# compared by themselves
_OWN_FIELDS = ("property_bytes", "physical_offset", "total_size")


def diff_summary(found: Diff, a: StoreFiles, b: StoreFiles) -> _Row:
    """Everything about a diff; the stores are read for what stands at the places that it names."""
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
