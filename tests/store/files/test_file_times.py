"""File times as file systems keep them."""

from __future__ import annotations

import pytest

from rmqctl.store.files.reading import is_same_time

SECOND = 1_000_000_000
SET = 1_700_000_001 * SECOND + 987_654_321
LAST = (2**31 - 1) * SECOND


@pytest.mark.parametrize("unit", [1, 100, 1_000, 1_000_000, 10_000_000, SECOND, 2 * SECOND])
def test_a_time_that_was_rounded_is_the_same(unit: int) -> None:
    down = SET // unit * unit
    assert is_same_time(down, SET)
    assert is_same_time(-(-SET // unit) * unit, SET)
    assert is_same_time(down, down)
    assert is_same_time(-SET // unit * unit, -SET), "before 1970"


@pytest.mark.parametrize(
    "found", [SET + 1, SET - 1, SET - 321 - 100, SET + 3 * SECOND, SET // SECOND * SECOND - 2 * SECOND]
)
def test_another_time_is_another(found: int) -> None:
    assert not is_same_time(found, SET)


def test_a_time_is_not_made_finer() -> None:
    """What was read as whole seconds and has a fraction now was written since."""
    assert not is_same_time(SET, SET // SECOND * SECOND)


def test_a_time_beyond_2038_where_seconds_have_32_bits() -> None:
    assert is_same_time(LAST, LAST + 86_400 * SECOND + 7)
    assert not is_same_time(LAST, LAST - 86_400 * SECOND)
    assert is_same_time(LAST, LAST)
