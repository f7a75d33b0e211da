"""A window walked by a form of store/native/walk, and all that came of it."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import numpy as np

from rmqctl.formats.message import decode_message
from rmqctl.store.log.columns import TopicIds
from rmqctl.store.native.tables import FULL, INTS, KEYS_OF_A_ROW, LONGS, NEW_TOPIC, Columns


class Walked(NamedTuple):
    """How the walk ended, where, and the rows of its columns."""

    status: int
    position: int
    plain_rows: int
    longs: list[list[int]]
    ints: list[list[int]]
    keys: list[tuple[int, int]]
    topics: list[str]


def _topic_at(topics: TopicIds, data: bytes, position: int) -> int:
    size = int.from_bytes(data[position : position + 4], "big")
    frame = data[position : position + size]
    return topics.id_of(decode_message(frame, 0, size, None, check_crc=False).topic.encode("utf-8"))


def walked(form: ModuleType, data: bytes, base: int, asked: Columns, rows: int, crc_from: int = 0) -> Walked:
    """All good messages from the begin of a window on, at most `rows` in one call."""

    topics = TopicIds()
    walk = form.WindowWalk(int(asked), crc_from, topics.seed)
    found = Walked(0, 0, 0, [], [], [], topics.names)
    before = 0
    while True:
        longs, ints = np.full((len(LONGS), rows), -7, np.int64), np.full((len(INTS), rows), -7, np.int32)
        key_hash, key_row = np.zeros(2 * rows + KEYS_OF_A_ROW, np.int32), np.zeros(2 * rows + KEYS_OF_A_ROW, np.int32)
        walk.write_into(longs, ints, key_hash, key_row)
        status = NEW_TOPIC
        while status == NEW_TOPIC:
            status = walk.walk(data, len(data), base, topics.slots, topics.entries, topics.text)
            walk.topic_hint = _topic_at(topics, data, walk.position) if status == NEW_TOPIC else -1
        found.longs.extend(longs[:, : walk.row].T.tolist())
        found.ints.extend(ints[:, : walk.row].T.tolist())
        rows_of_keys = [row + before if row >= 0 else ~(~row + before) for row in key_row[: walk.keys].tolist()]
        found.keys.extend(zip(key_hash[: walk.keys].tolist(), rows_of_keys, strict=True))
        found = found._replace(status=status, position=walk.position, plain_rows=found.plain_rows + walk.plain_rows)
        before += walk.row
        if status != FULL:
            return found
