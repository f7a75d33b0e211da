"""The table of tiered storage, written again from its segments (DefaultMetadataStore)."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rmqctl.formats.checksums import key_hash
from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, RefusedError
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, TIERED_INDEX_HEADER
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.config.config_files import read_config
from rmqctl.store.config.tiered_table import TABLE
from rmqctl.store.files.reading import status_of
from rmqctl.store.journal.plan import Plan, Staging, install_config
from rmqctl.store.options import UNHEARD
from rmqctl.store.read.tiered import INDEX_TOPIC, Segment, TieredQueue, TieredStorage, tiered_storage
from rmqctl.store.read.tiered_index import IndexSegment, LocalIndex, all_items, index_segments, keys_of, local_indexes
from rmqctl.store.store_files import StoreFiles

_NOTHING = (1 << 63) - 1  # the times of a segment without messages
_TRIED_ITEMS = 64
_LOG, _UNITS, _INDEX = 0, 1, 2


_NEVER_WRITTEN = frozenset(f"RMQ-TIER-{number:03}" for number in (1, 2, 3, 5, 7, 9))
REFUSAL = (
    "repair writes nothing into tiered storage: a broker believes the lengths in its table, and no other file has what "
    "a segment lacks. Restore what the findings name, or save what can be read: `rmqctl cat --tiered -t TOPIC --json "
    "--stored-bodies`"
)
"""Why findings about segments are left."""


def is_never_written(code: str) -> bool:
    """Return whether a finding is about what no repair writes."""
    return code in _NEVER_WRITTEN


def mend_table(files: StoreFiles, findings: Iterable[Finding], plan: Plan, staging: Staging) -> None:
    """Plan a new table where it is lost (RMQ-TIER-006); else queues that it does not name, and offsets of -1, as for a
    new queue, where they cannot be (RMQ-TIER-008).

    RefusedError where segments are missing or cut: a broker believes the table, and would go on at a wrong place.
    """
    chosen = list(findings)
    storage = tiered_storage(files, UNHEARD)
    try:
        copies = storage.queues()
    except CorruptError as error:
        hint = "move the folders of other brokers away first"
        raise RefusedError(error.message, file=storage.folder, hint=hint) from error
    path = files.layout.config / TABLE
    if storage.table is None:
        content = _new_table(storage, copies)
    else:
        content = read_config(path)
        wanted = {(one.topic, one.queue_id) for one in chosen}
        numbers = _topic_numbers(storage, copies)
        for copy in copies:
            if (copy.topic, copy.queue_id) in wanted:
                _name(content, copy, numbers[copy.topic])
    install_config(plan, staging, path, format_config_json(content).encode("utf-8"))


def _new_table(storage: TieredStorage, copies: list[TieredQueue]) -> dict[str, Any]:
    numbers = _topic_numbers(storage, copies)
    content: dict[str, Any] = {
        "commitLogFileSegmentTable": {},
        "consumeQueueFileSegmentTable": {},
        "indexFileSegmentTable": {},
        "queueMetadataTable": {},
        "topicMetadataTable": {},
        "topicSerialNumber": -1,
    }
    for copy in copies:
        if not any(one.length for one in copy.units):
            continue
        _refuse_unfit(copy)
        _name(content, copy, numbers[copy.topic])
        place = f"{copy.folder.parent.parent.name}/{copy.topic}/{copy.queue_id}"
        logs, units = (content[f"{name}FileSegmentTable"] for name in ("commitLog", "consumeQueue"))
        logs[place] = {one.base: _segment(place, _LOG, one, *_times_of_log(copy, one)) for one in copy.logs}
        units[place] = {one.base: _segment(place, _UNITS, one, *_times_of_units(copy, one)) for one in copy.units}
    for broker in storage.brokers():
        place = f"{broker.name}/{INDEX_TOPIC}/0"
        entries = dict(_index_entries(storage, place))
        if entries:
            content["indexFileSegmentTable"][place] = entries
    return content


def _name(content: dict[str, Any], copy: TieredQueue, number: int) -> None:
    """Give a queue its entry, and its topic one; the topic gets the next number where another one has its own."""
    topics, queues = content.setdefault("topicMetadataTable", {}), content.setdefault("queueMetadataTable", {})
    if copy.topic not in topics:
        if number in {one.get("topicId") for one in topics.values()}:
            number = int(content.get("topicSerialNumber", -1)) + 1
        content["topicSerialNumber"] = max(number, content.get("topicSerialNumber", -1))
        topics[copy.topic] = {
            "topicId": number,
            "topic": copy.topic,
            "status": 0,
            "reserveTime": -1,  # as every broker writes it: none of these versions sets another
            "updateTimestamp": _modified(copy.units[0]),
        }
    queue = {"brokerName": copy.folder.parent.parent.name, "queueId": copy.queue_id, "topic": copy.topic}
    queues.setdefault(copy.topic, {})[copy.queue_id] = {
        "queue": queue,
        "minOffset": -1,
        "maxOffset": -1,
        "updateTimestamp": _modified(copy.units[0]),
    }


def _refuse_unfit(copy: TieredQueue) -> None:
    hint = f"restore it, or move {copy.folder} away: a broker begins this copy again"
    for segments in (copy.logs, copy.units):
        for one, following in itertools.pairwise(segments):
            if one.end != following.base:
                text = f"it ends at {one.end}, and the next one begins at {following.base}"
                raise RefusedError(text, file=one.path, hint=hint)
    last = copy.units[-1]
    if last.end % CONSUMEQUEUE_UNIT.size:
        text = f"it ends within a unit, at {last.end}: a broker would write the next one there"
        raise RefusedError(text, file=last.path, hint=hint)
    for queue_offset in {copy.min_offset, copy.max_offset - 1}:
        found = copy.message(queue_offset)
        if found is None or found.message is None:
            text = f"message {queue_offset} is damaged or missing: {'' if found is None else found.problem}"
            raise RefusedError(text, file=copy.folder, hint=hint)


def _segment(place: str, kind: int, segment: Segment, begin: int, end: int) -> dict[str, Any]:
    return {
        "path": place,
        "type": kind,
        "baseOffset": segment.base,
        "status": 0,
        "size": segment.length or 0,
        "createTimestamp": _modified(segment),
        "beginTimestamp": begin,
        "endTimestamp": end,
        "sealTimestamp": 0,
    }


def _modified(segment: Segment) -> int:
    status = status_of(segment.path)
    return 0 if status is None else status.st_mtime_ns // 1_000_000


def _times_of_log(copy: TieredQueue, segment: Segment) -> tuple[int, int]:
    offsets = range(copy.max_offset)
    first, last = (
        bisect.bisect_left(offsets, place, copy.min_offset, copy.max_offset, key=copy.place)
        for place in (segment.base, segment.end)
    )
    return _times(copy, first, last)


def _times_of_units(copy: TieredQueue, segment: Segment) -> tuple[int, int]:
    width = CONSUMEQUEUE_UNIT.size
    first = max(-(-segment.base // width), copy.min_offset)
    # of messages that expired, it is known that they were stored before the first that is left
    return _times(copy, first, max(segment.end // width, copy.min_offset + 1))


def _times(copy: TieredQueue, first: int, end: int) -> tuple[int, int]:
    """Return the store times of the first and the last good message at the queue offsets [first, end)."""
    if first >= end:
        return _NOTHING, _NOTHING
    forwards, backwards = copy.messages(first, end), (copy.message(offset) for offset in range(end - 1, first - 1, -1))
    begin, last = (
        next((one.message.store_timestamp for one in found if one is not None and one.message is not None), _NOTHING)
        for found in (forwards, backwards)
    )
    return begin, last


def _index_entries(storage: TieredStorage, place: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the entries of uploaded files of the key index."""
    for index in index_segments(storage, UNHEARD):
        head = storage.files.descriptors.read(index.path, 0, TIERED_INDEX_HEADER.size)
        _, begin, end, _, _ = TIERED_INDEX_HEADER.unpack_from(head, 0)
        status = status_of(index.path)
        base = int(index.path.name[8:])
        segment = Segment(index.path, base, None, 0 if status is None else status.st_size)
        yield base, _segment(place, _INDEX, segment, begin, end)


def _topic_numbers(storage: TieredStorage, copies: list[TieredQueue]) -> dict[str, int]:
    """Return the numbers that items of the key index have for topics; topics without a key get the next ones."""
    found: dict[int, str] = {}
    tried: Counter[int] = Counter()
    uploaded, local = index_segments(storage, UNHEARD), local_indexes(storage.files, UNHEARD)
    for index in itertools.chain[IndexSegment | LocalIndex](uploaded, local):
        for item in all_items(storage.files, index):
            # of a topic that was deleted no item is found
            if item.topic in found or tried[item.topic] > _TRIED_ITEMS:
                continue
            tried[item.topic] += 1
            for copy in copies:
                if copy.queue_id != item.queue_id or copy.topic in found.values():
                    continue
                message, _ = copy.decoded(item.place, item.size)
                keys = () if message is None or message.topic != copy.topic else keys_of(message)
                if any(key_hash(copy.topic, key) == item.key_hash for key in keys):
                    found[item.topic] = copy.topic
    numbers = {topic: number for number, topic in found.items()}
    for topic in sorted({copy.topic for copy in copies} - set(numbers)):
        numbers[topic] = max([*tried, *numbers.values()], default=-1) + 1
    return numbers
