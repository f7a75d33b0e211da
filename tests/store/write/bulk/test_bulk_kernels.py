"""The kernels that judge and number rows: the limits of what is usual, and that wrong ones are not taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rmqctl.formats.layouts import BLANK_FRAME, SYS_FLAG_INNER_BATCH
from rmqctl.store.columns.frames import Held
from rmqctl.store.native.tables import Frame, FrameSpan
from rmqctl.store.write.bulk import bulk_kernels
from rmqctl.store.write.bulk.bulk_kernels import BulkKernels
from rmqctl.store.write.bulk.bulk_rows import NO_TIME, BulkRows
from rmqctl.store.write.known import OVERHEAD


@pytest.fixture(scope="module")
def kernels() -> BulkKernels:
    """The compiled ones; this machine must have them."""
    found = bulk_kernels.bulk_kernels()
    assert found is not None
    return found


_INT = 1 << 31
_LIMITS: list[tuple[str, int, bool]] = [
    *((name, value, -_INT <= value < _INT) for name in ("FLAG", "RECONSUME_TIMES") for value in (-_INT, _INT - 1)),
    *((name, value, False) for name in ("FLAG", "RECONSUME_TIMES") for value in (-_INT - 1, _INT)),
    *(("QUEUE_ID", value, 0 <= value < _INT) for value in (-_INT, -1, 0, _INT - 1, _INT)),
    *(("SYS_FLAG", value, True) for value in (0, 1, 2, 0x700, -_INT)),
    *(("SYS_FLAG", value, False) for value in (4, 8, 12, 0x10, 0x20, SYS_FLAG_INNER_BATCH, _INT, -2 * _INT)),
    *(("STORE_TIMESTAMP", value, True) for value in (NO_TIME, 0, 253_402_300_799_999)),
    *(("STORE_TIMESTAMP", value, False) for value in (NO_TIME + 1, -1, 253_402_300_800_000)),
    *(("TOPIC", value, value < 2) for value in range(3)),
    *(("BODY", value, value <= 100) for value in (0, 100, 101)),
    *(("PROPERTIES", value, value <= 32767) for value in (0, 32767, 32768)),
]


def judged(judge: Any, name: str, value: int, largest_body: int = 100, file_size: int = 100_000) -> bool:
    """Whether a row is usual that is so but for one value."""
    columns = np.zeros((len(Frame), 1), np.int64)
    columns[Frame.STORE_TIMESTAMP] = NO_TIME
    starts, ends = np.zeros((len(FrameSpan), 1), np.int64), np.full((len(FrameSpan), 1), 5, np.int64)
    if name in FrameSpan.__members__:
        ends[FrameSpan[name]] = value
    else:
        columns[Frame[name]] = value
    topics = ["a", "b" * 127, "c" * 128]
    rows = BulkRows(
        columns, starts, ends, Held(0, None), Held(0, None), topics, [], np.ones(1, np.bool_), [].__getitem__
    )
    judge(rows, largest_body, file_size)
    return bool(rows.usual[0])


def test_rows_are_usual_up_to_each_limit_and_no_further(kernels: BulkKernels) -> None:
    """Compiled and plainly."""
    for judge in (kernels.judge, BulkRows.judge):
        for name, value, is_usual in _LIMITS:
            assert judged(judge, name, value) == is_usual, (name, value)
        needed = OVERHEAD + len("a") + 50 + 5 + BLANK_FRAME.size
        for file_size, is_usual in ((needed, True), (needed - 1, False)):
            assert judged(judge, "BODY", 50, file_size=file_size) == is_usual


def _one_too_many(kernels: BulkKernels, place: Frame) -> Any:
    """Judges as it should, but for a number."""

    def judge(columns: Any, *others: Any) -> int:
        kernels.judge_rows(columns, *others)
        columns[place, 3] += 1
        return 0

    return judge


def _reversed_queues(kernels: BulkKernels) -> Any:
    def number(columns: Any, slots: Any, first_rows: Any, queues: Any) -> int:
        found = kernels.number_queues(columns, slots, first_rows, queues)
        first_rows[:found] = first_rows[:found][::-1].copy()
        return found

    return number


def test_kernels_that_are_wrong_in_one_thing_are_noticed(kernels: BulkKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any) -> int:
        return 0

    assert bulk_kernels._is_right(kernels)
    for place in (Frame.SIZE, Frame.QUEUE_ID):
        assert not bulk_kernels._is_right(kernels._replace(judge_rows=_one_too_many(kernels, place)))
    assert not bulk_kernels._is_right(kernels._replace(judge_rows=nothing))
    assert not bulk_kernels._is_right(kernels._replace(number_queues=_reversed_queues(kernels)))
    assert not bulk_kernels._is_right(kernels._replace(give_offsets=nothing))
    # nor does it help that the plain form agrees
    monkeypatch.setattr(BulkRows, "judge", nothing)
    assert not bulk_kernels._is_right(kernels._replace(judge_rows=nothing))
