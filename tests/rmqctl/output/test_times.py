"""Times as people write them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, tzinfo

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
        ("1700000000", NOW),
        ("1700000000.5", NOW + 500),
        ("@0", 0),
        ("@1700000000.25", NOW + 250),
        ("2023-11-14#22:13:20:007", NOW + 7),
        ("2023-11-14#22:13:20", NOW),
        ("-1h", NOW - 3_600_000),
        ("-1d12h", NOW - 129_600_000),
        ("- 90 s", NOW - 90_000),
        ("today", 1_699_920_000_000),
        ("Today 9:00", 1_699_952_400_000),
        ("today 09:00:00.5", 1_699_952_400_500),
        ("yesterday", 1_699_833_600_000),
        ("yesterday 22:13:20", NOW - 86_400_000),
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
        "tomorrow",
        "today 25:00",
        "today 9",
        "yesterdaynoon",
        "2023-11-14#22:13",
        "2023-13-14#22:13:20:000",
        "-2y",
        "@",
        "@-1",
        "170000000.5",
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
def test_ten_digits_are_seconds(text: str) -> None:
    """As milliseconds they would be weeks of 1970, before any message."""
    assert times.parse_time(text) == int(text) * 1000 == times.parse_time(f"@{text}")


BERLIN = times.parse_zone("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-11-14T23:13:20", NOW),
        ("2023-11-14#23:13:20:000", NOW),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14", 1_699_920_000_000 - 3_600_000),
        ("today", 1_699_920_000_000 - 3_600_000),
        ("today 23:13:20", NOW),
        ("yesterday", 1_699_833_600_000 - 3_600_000),
        ("2h ago", NOW - 7_200_000),
        ("2023-07-01T02:00", 1_688_169_600_000),
    ],
)
def test_in_a_zone(text: str, expected: int) -> None:
    assert times.parse_time(text, NOW, BERLIN) == expected


def test_today_is_that_of_the_zone() -> None:
    late = 1_699_999_200_000  # 22:00 of the 14th in UTC, 06:00 of the 15th in Shanghai
    shanghai = times.parse_zone("Asia/Shanghai")
    assert times.parse_time("today", late, shanghai) - times.parse_time("today", late) == 16 * 3_600_000


def test_clocks_that_are_set_forward_or_back_are_said() -> None:
    with pytest.raises(UsageError, match="does not exist in Europe/Berlin") as caught:
        times.parse_time("2024-03-31T02:30", zone=BERLIN)
    assert "+01:00 or +02:00" in str(caught.value.hint)
    with pytest.raises(UsageError, match="is there twice in Europe/Berlin") as caught:
        times.parse_time("2024-10-27T02:30", zone=BERLIN)
    assert "+02:00 or +01:00" in str(caught.value.hint)
    first, second = (times.parse_time(f"2024-10-27T02:30{offset}", zone=BERLIN) for offset in ("+02:00", "+01:00"))
    assert second - first == 3_600_000


@pytest.mark.parametrize(("name", "minutes"), [("UTC", 0), ("z", 0), ("+08:00", 480), ("-0330", -210)])
def test_zones(name: str, minutes: int) -> None:
    found = times.parse_zone(name).utcoffset(datetime(2024, 1, 1))
    assert found is not None
    assert found.total_seconds() == minutes * 60


def test_the_zone_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert times.parse_time("2023-11-15T07:13:20", zone=times.parse_zone("local")) == NOW


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "/etc/passwd", "+25:00", "Europe", "a\0b"])
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(UsageError, match="no time zone"):
        times.parse_zone(name)


def test_a_time_of_day_alone_is_taken_for_a_slip() -> None:
    with pytest.raises(UsageError) as caught:
        times.parse_time("9:00", now=NOW)
    assert caught.value.hint == "did you mean 'today 9:00'?"


_WORDS = st.sampled_from([*"today yesterday ago now @ - + # T : . h ms 2024-03-31 02:30 0 99".split(), " "])


@given(st.lists(_WORDS, max_size=6).map("".join), st.sampled_from([UTC, BERLIN]))
def test_what_looks_like_a_time_is_one_or_a_usage_error(text: str, zone: tzinfo) -> None:
    try:
        milliseconds = times.parse_time(text, NOW, zone)
    except UsageError:
        return
    assert 0 <= milliseconds < 2**63


@given(st.datetimes(datetime(1980, 1, 1), datetime(2100, 1, 1)), st.sampled_from(["Europe/Berlin", "Asia/Shanghai"]))
def test_every_moment_of_a_zone_is_understood_in_each_form(moment: datetime, name: str) -> None:
    zone = times.parse_zone(name)
    local = moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC).astimezone(zone)
    expected = (local - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert times.parse_time(local.isoformat(timespec="milliseconds"), zone=zone) == expected
    if local.replace(fold=0).utcoffset() == local.replace(fold=1).utcoffset():
        assert (
            times.parse_time(local.strftime("%Y-%m-%d#%H:%M:%S:") + f"{local.microsecond // 1000:03d}", zone=zone)
            == expected
        )
        assert times.parse_time(local.replace(tzinfo=None).isoformat(), zone=zone) == expected
