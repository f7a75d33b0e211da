"""The times of an index file's entries; native/test_units.py has the rest of them."""

from __future__ import annotations

import numpy as np
import pytest

from rmqctl.store.log.implied import time_differences


@pytest.mark.parametrize(("first", "expected"), [(-1, [0, 0, 0]), (0, [0, 0, 0]), (1, [0, 0, 1]), (1001, [0, 0, 0])])
def test_a_file_whose_first_entry_has_no_time_has_none_at_all(first: int, expected: list[int]) -> None:
    assert time_differences(np.array([0, 1000, 1001], np.int64), first).tolist() == expected
