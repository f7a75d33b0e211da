"""Loads and tries the kernels that look at rows before they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rmqctl.store.columns.frames import Held
from rmqctl.store.compiled.tried import loaded_once, tried_kernels
from rmqctl.store.log.columns import Int64s
from rmqctl.store.native.tables import Frame, FrameSpan
from rmqctl.store.write.bulk.bulk_rows import NO_TIME, BulkRows


class BulkKernels(NamedTuple):
    """See `kernel_bulk.make_bulk_kernels`."""

    judge_rows: Callable[..., int]
    number_queues: Callable[..., int]
    give_offsets: Callable[..., int]

    def judge(self, rows: BulkRows, largest_body: int, file_size: int) -> None:
        """See BulkRows.judge."""
        self.judge_rows(rows.columns, rows.starts, rows.ends, rows.topic_sizes(), rows.usual, largest_body, file_size)

    def queues(self, columns: Int64s) -> tuple[Int64s, Int64s]:
        """The first row of each queue, by the queue's number, and the number for each row."""
        count = columns.shape[1]
        first_rows, queues = np.empty(count, np.int64), np.empty(count, np.int64)
        slots = np.full(1 << (2 * count).bit_length(), -1, np.int64)
        found = self.number_queues(columns, slots, first_rows, queues)
        return first_rows[:found], queues


def bulk_kernels() -> BulkKernels | None:
    """The compiled kernels, None where nothing is compiled."""
    return _load()


@loaded_once
def _load() -> BulkKernels | None:
    found = tried_kernels(
        "rmqctl.store.write.bulk.kernel_bulk", lambda tried: _is_right(BulkKernels(*tried)), is_waited_for=False
    )
    return None if found is None else BulkKernels(*found)


def _is_right(kernels: BulkKernels) -> bool:
    """Whether they do what the plain forms do, tried on a few rows."""
    columns = np.zeros((len(Frame), 6), np.int64)
    columns[Frame.TOPIC] = 0, 1, 0, 1, 0, 0
    columns[Frame.QUEUE_ID] = 0, 1, 0, 1, 1, -1
    columns[Frame.FLAG] = 0, 1 << 31, 0, 0, 0, 0
    columns[Frame.STORE_TIMESTAMP] = NO_TIME, 5, -1, 7, NO_TIME, 8
    starts, ends = np.zeros((len(FrameSpan), 6), np.int64), np.ones((len(FrameSpan), 6), np.int64)
    ends[FrameSpan.BODY] = 5, 6, 7, 8, 100, 9
    both = []
    for judge in (kernels.judge, BulkRows.judge):
        rows = BulkRows(
            columns.copy(),
            starts,
            ends,
            Held(0, None),
            Held(0, None),
            ["a", "bc"],
            [],
            np.ones(6, np.bool_),
            [].__getitem__,
        )
        judge(rows, 10, 1000)
        both.append((rows.columns.tolist(), rows.usual.tolist()))
    first_rows, queues = kernels.queues(columns)
    next_offsets, offsets = np.array([10, 20, 30, 40]), np.zeros(6, np.int64)
    kernels.give_offsets(queues, next_offsets, offsets, 1, len(queues))
    return (
        both[0] == both[1]
        and both[0][1] == [True, False, False, True, False, False]
        and (first_rows.tolist(), queues.tolist()) == ([0, 1, 4, 5], [0, 1, 0, 1, 2, 3])
        and (next_offsets.tolist(), offsets.tolist()) == ([11, 22, 31, 41], [0, 20, 10, 21, 30, 40])
    )
