"""Criteria held against runs of messages: on the columns first, then on the messages that are left, exactly."""

from __future__ import annotations

import numpy as np

from rmqctl.formats.hashing import java_hash, key_hash
from rmqctl.formats.layouts import TRANSACTION_MASK
from rmqctl.formats.message import FrameDamage
from rmqctl.formats.properties import parse_properties
from rmqctl.formats.sys_flag import TRANSACTION_ROLLBACK
from rmqctl.store.columns.batch import Columns, Flags, Int64s, MessageColumns
from rmqctl.store.read.message_filter import Criteria


class RowChooser:
    """Chooses the rows of `criteria` from physical offset `begin` on. `needs`: what the walk has to give."""

    def __init__(self, criteria: Criteria, begin: int = 0) -> None:
        self._criteria = criteria
        self._begin = begin
        self.needs = Columns.NONE
        if not criteria.topic_filter.is_all:
            self.needs |= Columns.TOPIC
        of_the_head = (criteria.queue_id, criteria.begin_time, criteria.end_time, criteria.grep)
        if any(one is not None for one in of_the_head):
            self.needs |= Columns.HEAD
        if not criteria.tag_filter.is_all:
            self.needs |= Columns.TAGS
        if criteria.key is not None:
            self.needs |= Columns.KEYS | Columns.HEAD | Columns.TOPIC
        self._tags_codes = np.array([java_hash(tag) for tag in criteria.tag_filter.tags], np.int64)

    def rows(self, batch: MessageColumns) -> Int64s | None:
        """The rows that are meant, ascending; None for all of them."""
        mask = self._mask(batch)
        if not self._criteria.needs_content:
            return None if mask is None or mask.all() else np.flatnonzero(mask)
        candidates = np.arange(batch.rows) if mask is None else np.flatnonzero(mask)
        return np.array([row for row in candidates.tolist() if self._is_meant(batch, row)], np.int64)

    def _mask(self, batch: MessageColumns) -> Flags | None:
        criteria = self._criteria
        masks: list[Flags] = []
        if batch.begin < self._begin:
            masks.append(batch.physical_offset >= self._begin)
        if not criteria.topic_filter.is_all:
            masks.append(self._of_topics(batch))
        if criteria.queue_id is not None:
            masks.append(batch.queue_id == criteria.queue_id)
        if criteria.begin_time is not None:
            masks.append(batch.store_timestamp >= criteria.begin_time)
        if criteria.end_time is not None:
            masks.append(batch.store_timestamp <= criteria.end_time)
        if len(self._tags_codes):
            masks.append(np.isin(batch.tags_code, self._tags_codes))
        if criteria.key is not None:
            masks.append(self._may_have_key(batch, criteria.key))
        return np.logical_and.reduce(masks) if masks else None

    def _may_have_key(self, batch: MessageColumns, key: str) -> Flags:
        """By the hashes of the index entries, which depend on the topic. Rolled back messages have none."""
        mask: Flags = (batch.sys_flag & TRANSACTION_MASK) == TRANSACTION_ROLLBACK
        topic_ids = batch.topic_id
        wanted = np.zeros(int(topic_ids.max()) + 1, np.int32)
        for topic_id in np.unique(topic_ids).tolist():
            wanted[topic_id] = key_hash(batch.topics.names[topic_id], key)
        entry_rows = batch.key_row
        mask[entry_rows[batch.key_hash == wanted[topic_ids[entry_rows]]]] = True
        return mask

    def _of_topics(self, batch: MessageColumns) -> Flags:
        matches = self._criteria.topic_filter.matches
        meant = [topic_id for topic_id in np.unique(batch.topic_id).tolist() if matches(batch.topics.names[topic_id])]
        mask: Flags = np.isin(batch.topic_id, meant)
        return mask

    def _is_meant(self, batch: MessageColumns, row: int) -> bool:
        """The part of Criteria.matches that columns cannot answer."""
        criteria = self._criteria
        if criteria.key is not None or not criteria.tag_filter.is_all:
            if batch.asked & Columns.BYTES:
                properties = parse_properties(bytes(batch.property_bytes(row)))
            else:
                properties = batch.message(row).properties()
            if not criteria.matches_properties(properties):
                return False
        if criteria.grep is None:
            return True
        try:
            message = batch.message(row)
        except FrameDamage:
            return True  # whoever reads it next tells that it has changed
        return criteria.grep.matches(message)
