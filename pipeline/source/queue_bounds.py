"""Queue offsets that a read begins or ends with, as the source `kafka` of Spark has them: `{"Pay": {"0": 23}}`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from rmqctl.formats.errors import UsageError

_EARLIEST, _LATEST = -2, -1
_HIGHEST = (1 << 63) - 1
_LARGEST_QUEUE_ID = (1 << 31) - 1

OffsetsByQueue = Mapping[tuple[str, int], int]
"""A queue offset for some queues, each a topic and a queue id."""


class QueueBounds(NamedTuple):
    """Of a queue only the messages with a queue offset in [begin, end) are meant."""

    topic: str
    queue_id: int
    begin: int = 0
    end: int = _HIGHEST


def is_by_queue(text: str) -> bool:
    """Whether an option says offsets queue by queue, and not one for all."""
    return text.lstrip().startswith("{")


def queue_offsets(option: str, text: str) -> OffsetsByQueue:
    """The offsets that an option says; UsageError for what is none. -2: the earliest one, -1: behind the last one."""
    hint = f'write .option("{option}", \'{{"TopicA": {{"0": 23, "1": -2}}}}\')'
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UsageError(f"option {option} is no JSON: {error}", hint=hint) from error
    found: dict[tuple[str, int], int] = {}
    for topic, offsets in content.items():
        if not isinstance(offsets, dict) or not topic:
            raise UsageError(f"option {option} says {offsets!r} of {topic!r}, and no offset of a queue", hint=hint)
        for queue, offset in offsets.items():
            is_queue = queue.isascii() and queue.isdigit() and int(queue) <= _LARGEST_QUEUE_ID
            if not is_queue or type(offset) is not int or not _EARLIEST <= offset <= _HIGHEST:
                raise UsageError(f"option {option} says {offset!r} of queue {queue!r} of {topic}", hint=hint)
            found[topic, int(queue)] = offset
    if not found:
        raise UsageError(f"option {option} names no queue", hint=hint)
    return found


def bounds_between(starting: OffsetsByQueue, ending: OffsetsByQueue) -> tuple[QueueBounds, ...]:
    """What is meant of the queues that are named; of others, all. UsageError for an end before everything."""
    if _EARLIEST in ending.values():
        raise UsageError("option ending_offset says -2, the earliest: nothing lies before it", hint="-1 is the end")
    begins = {_EARLIEST: 0, _LATEST: _HIGHEST}
    ends = {_LATEST: _HIGHEST}
    return tuple(
        QueueBounds(
            *queue,
            begins.get(starting.get(queue, _EARLIEST), starting.get(queue, 0)),
            ends.get(ending.get(queue, _LATEST), ending.get(queue, 0)),
        )
        for queue in sorted({**starting, **ending})
    )
