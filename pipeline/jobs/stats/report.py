"""The statistics as plain rows and records, in one order whatever engine made them: what `rmqctl stats` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.properties import UNIQUE_KEY
from rmqctl.pipeline.jobs.stats.duplicates import Duplicate, repeats_by_design
from rmqctl.pipeline.jobs.stats.groups import DIMENSIONS, GroupKey, GroupNumbers, add_groups
from rmqctl.pipeline.jobs.stats.histogram import Histogram, at_most, bars
from rmqctl.pipeline.jobs.stats.offsets import OffsetNumbers, offset_numbers
from rmqctl.pipeline.jobs.stats.stats import Stats
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.queues.unit import QueueKey
from rmqctl.store.read.frames import message_at

_Row = dict[str, Any]
LISTED_SPANS = 10
LISTED_QUEUES = 20
_NAMES = {
    "topic": "topic",
    "queue": "queue_id",
    "tag": "tag",
    "host": "producer_host",
    "hour": "hour_timestamp",
    "day": "day_timestamp",
}
# groups of these follow one another; all others come largest first
_IN_ORDER = ("queue", "hour", "day")


def dimensions_of(names: Iterable[str]) -> tuple[str, ...]:
    """Dimensions in their own order; a queue is nothing without its topic."""
    chosen = set(names) | ({"topic"} if "queue" in names else set())
    return tuple(name for name in DIMENSIONS if name in chosen)


def key_names(dimensions: Sequence[str]) -> list[str]:
    """The names that the rows of groups give to these dimensions."""
    return [_NAMES[name] for name in dimensions]


def group_rows(found: Stats, dimensions: Sequence[str]) -> list[_Row]:
    """A row a group, of statistics that were made with these dimensions, as `dimensions_of` gives them.

    By queue, hour or day in that order, else the group with the most bytes first. Sizes in bytes, delays in ms.
    `missing_offsets` and `repeated_offsets` are there by topic and by queue only: no other group has its own offsets.
    """
    with_topic = "topic" in dimensions
    sums: dict[GroupKey, GroupNumbers] = {}
    repeats: dict[GroupKey, int] = {}
    for key, numbers in found.groups.items():
        add_groups(sums, [(key if with_topic else key[1:], numbers)])
    for key, count in (found.duplicates.repeats if found.duplicates else {}).items():
        short = key if with_topic else key[1:]
        repeats[short] = repeats.get(short, 0) + count
    offsets = _offsets_by(found, dimensions)
    rows = []
    for key, numbers in sums.items():
        row: _Row = dict(zip(key_names(dimensions), key, strict=True))
        row |= _numbers_row(numbers)
        row["duplicates"] = repeats.get(key, 0) if found.duplicates is not None else None
        if offsets is not None:
            row["missing_offsets"], row["repeated_offsets"] = offsets.get(key, (0, 0))
        row["sizes"], row["delays"] = _bars(numbers.sizes), _bars(numbers.delays)
        rows.append(row)
    names = key_names(dimensions)
    is_in_order = not set(_IN_ORDER).isdisjoint(dimensions)

    def place(row: _Row) -> tuple[Any, ...]:
        by_name = [(row[name] is not None, row[name]) for name in names]
        return (*by_name,) if is_in_order else (-row["bytes"], *by_name)

    if is_in_order and "queue" not in dimensions:
        names.reverse()  # by time first, whatever else
    return sorted(rows, key=place)


def _offsets_by(found: Stats, dimensions: Sequence[str]) -> dict[GroupKey, tuple[int, int]] | None:
    if tuple(dimensions) not in (("topic",), ("topic", "queue")):
        return None
    made: dict[GroupKey, tuple[int, int]] = {}
    for (topic, queue_id), offsets in found.queues.items():
        key: GroupKey = (topic, queue_id) if "queue" in dimensions else (topic,)
        numbers = offset_numbers(offsets, 0)
        missing, repeated = made.get(key, (0, 0))
        made[key] = missing + numbers.missing, repeated + numbers.repeated
    return made


def _numbers_row(numbers: GroupNumbers) -> _Row:
    return {
        "messages": numbers.messages,
        "bytes": numbers.bytes,
        "average_size": round(numbers.bytes / numbers.messages),
        "smallest": numbers.smallest,
        "largest": numbers.largest,
        "first_store_timestamp": numbers.first_store_timestamp,
        "last_store_timestamp": numbers.last_store_timestamp,
        "shortest_delay": numbers.shortest_delay,
        "median_delay": _delay(numbers, 0.5),
        "p99_delay": _delay(numbers, 0.99),
        "longest_delay": numbers.longest_delay,
        "clock_jumps": numbers.clock_jumps,
        "in_future": numbers.in_future,
    }


def _delay(numbers: GroupNumbers, share: float) -> int | None:
    """A delay that this share of the messages does not exceed: as exact as the bars of the histogram."""
    found = at_most(numbers.delays, share)
    return None if found is None else min(found, numbers.longest_delay)


def _bars(histogram: Histogram) -> list[_Row]:
    return [bar._asdict() for bar in bars(histogram)]


def stats_summary(found: Stats, log: MappedFileQueue) -> _Row:
    """Everything about statistics that were made without dimensions; `log` is read for the keys of duplicates."""
    sums: dict[GroupKey, GroupNumbers] = {}
    for numbers in found.groups.values():
        add_groups(sums, [((), numbers)])
    total = sums.get(())
    row: _Row = {"messages": 0, "bytes": 0} if total is None else _numbers_row(total)
    for name in ("clock_jumps", "in_future"):
        row.pop(name, None)
    row["duplicates"] = _duplicates(found, log)
    row["queue_offsets"] = _queue_offsets(found)
    row["clock"] = _clock(found, total.in_future if total is not None else 0)
    row["damage"] = _damage(found)
    row["sizes"] = _bars(total.sizes) if total is not None else []
    row["delays"] = _bars(total.delays) if total is not None else []
    row["topics"] = group_rows(found, ("topic",))
    return row


def _duplicates(found: Stats, log: MappedFileQueue) -> _Row | None:
    duplicates = found.duplicates
    if duplicates is None:
        return None
    by_design = {True: 0, False: 0}
    for key, count in duplicates.repeats.items():
        by_design[repeats_by_design(str(key[0]))] += count
    keys = sum(count for topic, count in duplicates.keys.items() if not repeats_by_design(topic))
    return {
        "messages": by_design[False],
        "keys": keys,
        "stored_again_by_design": by_design[True],
        "first": [_duplicate(one, log) for one in duplicates.first],
    }


def _duplicate(one: Duplicate, log: MappedFileQueue) -> _Row:
    unique_key = None
    for place in one.places:
        try:
            unique_key = message_at(log, place).properties().get(UNIQUE_KEY)
            break
        except RmqctlError:  # a file that was removed since it was read
            continue
    return {
        "topic": one.topic,
        "unique_key": unique_key,
        "messages": one.messages,
        "physical_offsets": list(one.places),
    }


def _queue_offsets(found: Stats) -> _Row:
    numbered = sorted((queue, offset_numbers(offsets, LISTED_SPANS)) for queue, offsets in found.queues.items())
    odd = [(queue, numbers) for queue, numbers in numbered if numbers.missing or numbers.repeated]
    return {
        "queues": len(numbered),
        "missing": sum(numbers.missing for _, numbers in odd),
        "repeated": sum(numbers.repeated for _, numbers in odd),
        "uneven_queues": len(odd),
        "first": [_queue(queue, numbers) for queue, numbers in odd[:LISTED_QUEUES]],
    }


def _queue(queue: QueueKey, numbers: OffsetNumbers) -> _Row:
    return {
        "topic": queue[0],
        "queue_id": queue[1],
        "min_offset": numbers.min_offset,
        "max_offset": numbers.max_offset + 1,
        "missing": numbers.missing,
        "missing_spans": [list(span) for span in numbers.missing_spans],
        "repeated": numbers.repeated,
        "repeated_spans": [list(span) for span in numbers.repeated_spans],
    }


def _clock(found: Stats, in_future: int) -> _Row:
    clock = found.clock
    return {
        "jumps": clock.jumps if clock is not None else 0,
        "in_future": in_future,
        "largest": [jump._asdict() for jump in (clock.largest if clock is not None else ())],
    }


def _damage(found: Stats) -> _Row:
    spans = [
        {
            "file": span.file,
            "physical_offset": span.physical_offset,
            "end_offset": span.end,
            "reason": span.reason.value,
            "detail": span.detail,
        }
        for span in found.damage.first
    ]
    return {"spans": found.damage.spans, "bytes": found.damage.bytes, "first": spans}
