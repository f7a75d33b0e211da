"""Finishes the few rows whose properties a kernel leaves to Python, so that callers never see the difference."""

from __future__ import annotations

import numpy as np

from rmqctl.formats.hashing import key_hash
from rmqctl.store.columns.batch import Columns, MessageColumns, NeedsPlain
from rmqctl.store.columns.plain import delay_level
from rmqctl.store.queues.dispatch import index_keys

_INTERNAL = NeedsPlain.DELAY | NeedsPlain.KEYS


def complete(batch: MessageColumns) -> MessageColumns:
    """The batch with delay levels and keys of the rows that have the internal bits of NeedsPlain, and without these."""
    levels, bits = batch.column("delay_level"), batch.column("needs_plain")
    hashes: list[int] = []
    rows: list[int] = []
    for row in np.flatnonzero(bits & int(_INTERNAL)).tolist():
        message = batch.message(row)
        if bits[row] & NeedsPlain.DELAY:
            levels[row] = delay_level(message, message.properties())
        if bits[row] & NeedsPlain.KEYS:
            keys = index_keys(message)
            hashes += [key_hash(message.topic, key) for key in keys]
            rows += [row] * len(keys)
        bits[row] &= ~int(_INTERNAL)
    if rows and batch.asked & Columns.KEYS:
        all_rows = np.concatenate([batch.key_row, np.array(rows, np.int32)])
        all_hashes = np.concatenate([batch.key_hash, np.array(hashes, np.int32)])
        order = np.argsort(all_rows, kind="stable")
        batch.set_keys(all_hashes[order], all_rows[order])
    return batch
