"""Numbers of things and lengths of time in texts."""

from __future__ import annotations

import pytest

from rmqctl.formats.errors import counted, format_time, lasting, lasting_in_short


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 second"),
        (61_999, "1 minute 1 second"),
        (3_600_000, "1 hour"),
        (3_601_000, "1 hour"),
        (90_061_000, "1 day 1 hour"),
        (100_000_000_000, "1157 days 9 hours"),
        (-120_000, "2 minutes"),
    ],
)
def test_a_length_of_time_has_its_two_largest_units(milliseconds: int, expected: str) -> None:
    assert lasting(milliseconds) == expected


def test_one_is_one() -> None:
    assert (counted(1, "damaged span"), counted(2, "damaged span")) == ("1 damaged span", "2 damaged spans")


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1 << 62, str(1 << 62)),
    ],
)
def test_a_time_is_of_utc(milliseconds: int, expected: str) -> None:
    assert format_time(milliseconds) == expected


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [(0, "0ms"), (999, "999ms"), (-999, "-999ms"), (1000, "1s"), (-1000, "-1s"), (183_600_000, "2d 3h")],
)
def test_a_length_of_time_in_a_cell(milliseconds: int, expected: str) -> None:
    assert lasting_in_short(milliseconds) == expected
