"""Entries of kvStore/, many at once. Those that are as brokers write them are taken here; every other one is left to
`records`, by whose fields these go."""

from __future__ import annotations

import numpy as np

from rmqctl.store.log.columns import Bytes, Flags, Int64s
from rmqctl.store.native import json_fields
from rmqctl.store.native.json_fields import same_spans
from rmqctl.store.native.uncompiled import views
from rmqctl.store.pop import records
from rmqctl.store.pop.columns import KINDS, FieldTables, KvRows
from rmqctl.store.pop.records import KV, KV_ENTRY, RETRY_PREFIX, PopOwner

_KINDS = {one.name: KINDS[one.kind] for one in KV_ENTRY} | {"queueId": json_fields.OWNER_NUMBER}
_REQUIRED = sum(1 << number for number, one in enumerate(KV_ENTRY) if one.is_required)
_LARGEST_INT = (1 << 31) - 1
# a key has these beside the names: deadline, queue and offset, and three separators
_DEADLINE, _QUEUE, _OFFSET, _SEPARATOR = 8, 4, 8, np.uint8(ord("@"))
_BESIDE = _DEADLINE + _QUEUE + _OFFSET + 3


class KvReader(FieldTables):
    """Reads entries."""

    def __init__(self) -> None:
        super().__init__([*_KINDS], [*_KINDS.values()], 0)

    def read(self, keys: list[bytes], values: list[bytes]) -> tuple[KvRows, list[int]]:
        """Return the entries with these keys and values, and the rows that are left."""
        window, begins, lengths = _joined(values)
        seen, count = self.fill(
            window, begins.astype(np.int32), lengths.astype(np.int32), np.zeros(len(keys), np.int64)
        )
        good: Flags = (seen != json_fields.LEFT) & (seen & _REQUIRED == _REQUIRED)
        fields = {name: self.known(name, seen) for name, kind in _KINDS.items() if kind != json_fields.NAME}
        for field in KV_ENTRY:
            if field.name in fields:
                good &= fields[field.name] >= 0
                good &= (field.kind != records.INT) | (fields[field.name] <= _LARGEST_INT)
        owners = [
            PopOwner(self.text(window, "groupId", row), self.text(window, "topicId", row), queue_id, KV, "", -1)
            for row, queue_id in zip(
                self._firsts[:count].tolist(), fields["queueId"][self._firsts[:count]].tolist(), strict=True
            )
        ]
        owner = np.where(good, self._owners[: len(keys)], count).astype(np.int32)
        is_retry = np.array([*(one.topic.startswith(RETRY_PREFIX) for one in owners), False])[owner]
        flag = fields["retryFlag"]
        good &= (
            np.isin(flag, records.RETRY_FLAGS) & ((flag != 0) == is_retry) & self._have_keys(keys, good, window, fields)
        )
        rows = np.flatnonzero(good)
        taken = (fields[name][rows] for name in ("offset", "popTime", "invisibleTime", "suspend"))
        return KvRows(owners, owner[rows], *taken), np.flatnonzero(~good).tolist()

    def _have_keys(self, keys: list[bytes], good: Flags, window: Bytes, fields: dict[str, Int64s]) -> Flags:
        """Return which entries have the key that a broker keeps them under (KvEntry#key)."""
        data, begins, lengths = _joined(keys)
        spans = [(self.of(name, len(keys)), self._ends[self._at[name], : len(keys)]) for name in ("groupId", "topicId")]
        (group, group_end), (topic, topic_end) = spans
        rows = np.flatnonzero(good & (lengths == group_end - group + topic_end - topic + _BESIDE))
        at, found = begins[rows], np.zeros(len(keys), np.bool_)
        is_same = _number_at(data, at, _DEADLINE) == (fields["popTime"] + fields["invisibleTime"])[rows]
        at = at + _DEADLINE
        for begin, end in spans:
            sizes, same = (end - begin)[rows], np.zeros(len(rows), np.uint8)
            same_spans(*views(data, at, window, np.ascontiguousarray(begin[rows]), sizes, same))
            at = at + sizes
            is_same &= same.view(np.bool_) & (data[at] == _SEPARATOR)
            at = at + 1
        is_same &= _number_at(data, at, _QUEUE) == fields["queueId"][rows]
        is_same &= data[at + _QUEUE] == _SEPARATOR
        is_same &= _number_at(data, at + _QUEUE + 1, _OFFSET) == fields["offset"][rows]
        found[rows] = is_same
        return found


def _joined(parts: list[bytes]) -> tuple[Bytes, Int64s, Int64s]:
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum(lengths) - lengths, lengths


def _number_at(data: Bytes, at: Int64s, width: int) -> Int64s:
    found: Int64s = data[at[:, None] + np.arange(width)].view(f">i{width}")[:, 0].astype(np.int64)
    return found
