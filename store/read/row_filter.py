"""Criteria held against runs of messages: on the columns first, then on the messages that are left, exactly."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from rmqctl.formats.checksums import java_hash, key_hash
from rmqctl.formats.layouts import TRANSACTION_MASK
from rmqctl.formats.message import LATEST_TIME, FrameDamage
from rmqctl.formats.properties import TRANSACTION_ROLLBACK, parse_properties
from rmqctl.store.log.columns import Flags, Int64s, MessageColumns, distinct
from rmqctl.store.native.tables import Columns
from rmqctl.store.read.filter import Criteria, rows_with

# Which messages of a run may have one of some keys, by the hashes of their index entries.

KEY_NEEDS = Columns.KEYS | Columns.HEAD | Columns.TOPIC
"""What the walk has to give for `may_have_keys`."""


def may_have_keys(batch: MessageColumns, keys: Collection[str]) -> Flags:
    """For each row whether it may: an entry has its hash, which depends on the topic. Rolled back ones have none."""
    mask: Flags = (batch.sys_flag & TRANSACTION_MASK) == TRANSACTION_ROLLBACK
    topic_ids = batch.topic_id
    entry_rows = batch.key_row
    for key in keys:
        wanted = np.zeros(int(topic_ids.max()) + 1, np.int32)
        for topic_id in distinct(topic_ids).tolist():
            wanted[topic_id] = key_hash(batch.topics.names[topic_id], key)
        mask[entry_rows[batch.key_hash == wanted[topic_ids[entry_rows]]]] = True
    return mask


def row_properties(batch: MessageColumns, row: int) -> dict[str, str]:
    """The properties of a row. FrameDamage where the message is no longer what the walk passed."""
    if batch.asked & Columns.BYTES:
        return parse_properties(bytes(batch.property_bytes(row)))
    return batch.message(row).properties()


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
        if criteria.sql is not None or (criteria.grep is not None and criteria.grep.literals):
            self.needs |= Columns.BYTES
        if not criteria.tag_filter.is_all:
            self.needs |= Columns.TAGS
        if criteria.key is not None:
            self.needs |= KEY_NEEDS
        self._tags_codes = np.array([java_hash(tag) for tag in criteria.tag_filter.tags], np.int64)

    def rows(self, batch: MessageColumns) -> Int64s | None:
        """The rows that are meant, ascending; None for all of them."""
        mask = self._mask(batch)
        times = self._times(batch)
        if times is not None:
            self._note_undated(batch, mask, times)
            mask = times if mask is None else mask & times
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
        if len(self._tags_codes):
            masks.append(np.isin(batch.tags_code, self._tags_codes))
        if criteria.key is not None:
            masks.append(may_have_keys(batch, (criteria.key,)))
        if criteria.grep is not None and criteria.grep.literals:
            masks.append(rows_with(batch, criteria.grep.literals))
        return np.logical_and.reduce(masks) if masks else None

    def _times(self, batch: MessageColumns) -> Flags | None:
        criteria = self._criteria
        masks: list[Flags] = []
        if criteria.begin_time is not None:
            masks.append(batch.store_timestamp >= criteria.begin_time)
        if criteria.end_time is not None:
            masks.append(batch.store_timestamp <= criteria.end_time)
        return np.logical_and.reduce(masks) if masks else None

    def _note_undated(self, batch: MessageColumns, others: Flags | None, times: Flags) -> None:
        """Note the messages that only an impossible store time leaves out: see `Criteria.undated`."""
        left_out = ((batch.store_timestamp < 0) | (batch.store_timestamp > LATEST_TIME)) & ~times
        if not left_out.any():
            return
        for row in np.flatnonzero(left_out if others is None else left_out & others).tolist():
            if self._is_meant(batch, row):
                self._criteria.undated[int(batch.physical_offset[row])] = int(batch.store_timestamp[row])

    def _of_topics(self, batch: MessageColumns) -> Flags:
        matches = self._criteria.topic_filter.matches
        meant = [topic_id for topic_id in distinct(batch.topic_id).tolist() if matches(batch.topics.names[topic_id])]
        mask: Flags = np.isin(batch.topic_id, meant)
        return mask

    def _is_meant(self, batch: MessageColumns, row: int) -> bool:
        """The part of Criteria.matches that columns cannot answer."""
        criteria = self._criteria
        if criteria.needs_properties and not criteria.matches_properties(row_properties(batch, row)):
            return False
        if criteria.grep is None:
            return True
        try:
            message = batch.message(row)
        except FrameDamage:
            return True  # whoever reads it next tells that it has changed
        return criteria.grep.matches(message)
