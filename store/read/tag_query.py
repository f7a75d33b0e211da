"""Messages of a topic by their tag, as brokers since 5.4 find them by the tag entries of the index (`topic#T#tag`).

One function, so that the way may change: the queues are read, whose units hold the hash of each tag.
"""

from __future__ import annotations

import heapq

from rmqctl.formats import properties as names
from rmqctl.formats.message import StoredMessage
from rmqctl.store.read.key_query import QueryResult
from rmqctl.store.read.message_filter import newest_first
from rmqctl.store.read.reader import StoreReader


def messages_with_tag(reader: StoreReader, topic: str, tag: str, begin: int, end: int, limit: int) -> QueryResult:
    """Return the newest messages of `topic` whose whole TAGS value is `tag`, stored between two times (ms).

    Damaged messages whose unit has the tag's hash are in `damaged`.
    """
    result = QueryResult()
    newest: list[tuple[int, StoredMessage]] = []
    # a value with || is one tag here, and no expression
    wanted = tag if "||" not in tag and tag.strip() == tag and tag not in ("", "*") else None
    for queue in (one for one in reader.files.queues.all() if one.topic == topic):
        offset = reader.offset_at(topic, queue.queue_id, begin) if begin > 0 else 0
        while offset < queue.max_offset:
            found = reader.get(topic, queue.queue_id, offset, tags=wanted)
            result.damaged += [unit.error for unit in found.damaged]
            for message in found.messages:
                if begin <= message.store_timestamp <= end and message.properties().get(names.TAGS) == tag:
                    heapq.heappush(newest, (message.physical_offset, message))
                    if len(newest) > limit:
                        heapq.heappop(newest)
            if found.next_offset <= offset:
                break
            offset = found.next_offset
    result.messages = newest_first(message for _, message in newest)
    return result
