"""Times as people write them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.errors import UsageError
from rmqctl.output import times

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("999999999", 999_999_999),
        ("10000000000", 10_000_000_000),
        ("1700000000123", 1_700_000_000_123),
        (str(2**63 - 1), 2**63 - 1),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14t22:13:20z", NOW),
        ("2023-11-14T22:13:20", NOW),
        ("2023-11-14 22:13:20", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
        ("2023-11-14T22:13:20.5", NOW + 500),
        ("2023-11-14T22:13:20.123999Z", NOW + 123),
        ("2023-11-14T22:13", NOW - 20_000),
        ("2023-11-14", 1_699_920_000_000),
        ("now", NOW),
        (" NOW ", NOW),
        ("90s ago", NOW - 90_000),
        ("250ms ago", NOW - 250),
        ("2h ago", NOW - 7_200_000),
        ("2 hours ago", NOW - 7_200_000),
        ("2hago", NOW - 7_200_000),
        ("1.5h ago", NOW - 5_400_000),
        ("1d12h ago", NOW - 129_600_000),
        ("3d ago", NOW - 259_200_000),
        ("1w ago", NOW - 604_800_000),
    ],
)
def test_understood(text: str, expected: int) -> None:
    assert times.parse_time(text, now=NOW) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ago",
        " ago",
        "yesterday",
        "2h",
        "h ago",
        "2y ago",
        "2h, 3m ago",
        "-1",
        "1e3",
        "١٢",
        "2023-13-01",
        "2023-02-30",
        "2023-11-14T25:00",
        "2023-11-14T",
        "20231114",
        "0001-01-01T00:00:00+05:00",
        "1969-12-31T23:59:59Z",
        str(2**63),
        "9" * 5000,
        "9" * 400 + "h ago",
        "99999999d ago",
        "2023-11-14T22:13:20\x1b[31m",
    ],
)
def test_refused(text: str) -> None:
    if text == "20231114":
        # all digits are milliseconds, never a date: the short ISO form would be ambiguous
        assert times.parse_time(text) == 20_231_114
        return
    with pytest.raises(UsageError) as caught:
        times.parse_time(text, now=NOW)
    assert caught.value.hint


def test_no_zone_is_utc_wherever_this_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert times.parse_time("2023-11-14T22:13:20") == NOW
        assert times.format_time(NOW) == "2023-11-14T22:13:20.000Z"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_bare_span_is_taken_for_a_slip() -> None:
    with pytest.raises(UsageError) as caught:
        times.parse_time("2h", now=NOW)
    assert caught.value.hint == "did you mean '2h ago'?"


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(UsageError, match="'fortnights' is no unit"):
        times.parse_time("2 fortnights ago", now=NOW)


def test_spans_count_from_this_machines_clock() -> None:
    before = times.now_ms()
    assert before - 1000 <= times.parse_time("1s ago") <= times.now_ms() - 1000


def test_the_clock_is_in_milliseconds() -> None:
    assert abs(times.now_ms() - datetime.now(tz=UTC).timestamp() * 1000) < 5000


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (NOW + 7, "2023-11-14T22:13:20.007Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000"),
        (2**63 - 1, str(2**63 - 1)),
        (-(2**63), str(-(2**63))),
    ],
)
def test_format(milliseconds: int, expected: str) -> None:
    assert times.format_time(milliseconds) == expected


@given(st.integers(min_value=0, max_value=253_402_300_799_999))
def test_what_is_printed_is_understood(milliseconds: int) -> None:
    assert times.parse_time(times.format_time(milliseconds)) == milliseconds


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_a_usage_error(text: str) -> None:
    try:
        milliseconds = times.parse_time(text, now=NOW)
    except UsageError:
        return
    assert 0 <= milliseconds < 2**63


@pytest.mark.parametrize("text", ["1000000000", "1795218537", "9999999999"])
def test_seconds_are_not_taken_for_milliseconds(text: str) -> None:
    with pytest.raises(UsageError, match="in milliseconds") as caught:
        times.parse_time(text)
    assert f"write {text}000" in str(caught.value.hint)
    assert times.format_time(int(text) * 1000) in str(caught.value.hint)
