"""Which messages of a run may have one of some keys, by the hashes of their index entries."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from rmqctl.formats.hashing import key_hash
from rmqctl.formats.layouts import TRANSACTION_MASK
from rmqctl.formats.properties import parse_properties
from rmqctl.formats.sys_flag import TRANSACTION_ROLLBACK
from rmqctl.store.columns.batch import Columns, Flags, MessageColumns

KEY_NEEDS = Columns.KEYS | Columns.HEAD | Columns.TOPIC
"""What the walk has to give for `may_have_keys`."""


def may_have_keys(batch: MessageColumns, keys: Collection[str]) -> Flags:
    """For each row whether it may: an entry has its hash, which depends on the topic. Rolled back ones have none."""
    mask: Flags = (batch.sys_flag & TRANSACTION_MASK) == TRANSACTION_ROLLBACK
    topic_ids = batch.topic_id
    entry_rows = batch.key_row
    for key in keys:
        wanted = np.zeros(int(topic_ids.max()) + 1, np.int32)
        for topic_id in np.unique(topic_ids).tolist():
            wanted[topic_id] = key_hash(batch.topics.names[topic_id], key)
        mask[entry_rows[batch.key_hash == wanted[topic_ids[entry_rows]]]] = True
    return mask


def row_properties(batch: MessageColumns, row: int) -> dict[str, str]:
    """The properties of a row. FrameDamage where the message is no longer what the walk passed."""
    if batch.asked & Columns.BYTES:
        return parse_properties(bytes(batch.property_bytes(row)))
    return batch.message(row).properties()
