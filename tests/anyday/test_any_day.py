"""A sample of `make any-day`, and what it is made of."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.anyday.__main__ import tried
from tests.anyday.clock import (
    IS_NEEDED,
    ZONES,
    clock_changes,
    environment,
    moment_of,
    moments,
    why_not,
)
from tests.processes import run
from tests.quick import every

SAMPLE = [
    ("Asia/Shanghai", "the last ms of a month of 31 days"),
    ("America/New_York", "2^32 s after 1970"),
    ("Pacific/Chatham", "the second change of daylight saving time"),
]


@pytest.fixture
def settable() -> None:
    """Skip where clocks cannot be set, unless they have to be."""
    why = why_not()
    if why is not None:
        (pytest.fail if os.environ.get(IS_NEEDED) else pytest.skip)(why)


@pytest.mark.usefixtures("settable")
@pytest.mark.parametrize("place", every(3, SAMPLE))
def test_every_verb_works(place: tuple[str, str]) -> None:
    zone, name = place
    assert tried(moments(zone)[name], zone) == ""


@pytest.mark.usefixtures("settable")
def test_a_walk_that_fails_says_so() -> None:
    code = "from tests.anyday import walk; walk.VERBS = {**walk.VERBS, 'unheard': None}; raise SystemExit(walk.main())"
    assert "never run: ['unheard']" in run([sys.executable, "-c", code]).stdout


@pytest.mark.usefixtures("settable")
def test_the_clock_of_a_process_and_of_what_it_starts_is_set() -> None:
    wanted = moment_of("2028-02-29T12:00:00", "Asia/Shanghai")
    show = "import time; print(time.strftime('%Y-%m-%dT%H:%M', time.localtime()), flush=True)"
    code = f"import subprocess, sys; {show}; subprocess.run([sys.executable, '-c', {show!r}])"
    said = run([sys.executable, "-c", code], env=environment(wanted + 5, "Asia/Shanghai")).stdout.split()
    assert len(said) == 2
    assert all(line.startswith("2028-02-29T12:0") for line in said)


def test_changes_of_daylight_saving_time_are_found() -> None:
    assert clock_changes("UTC", 2026) == clock_changes("Asia/Shanghai", 2026) == []
    assert [datetime.fromtimestamp(change, UTC).isoformat() for change in clock_changes("America/New_York", 2026)] == [
        "2026-03-08T07:00:00+00:00",
        "2026-11-01T06:00:00+00:00",
    ]
    assert [datetime.fromtimestamp(change, UTC).isoformat() for change in clock_changes("Pacific/Chatham", 2026)] == [
        "2026-04-04T14:00:00+00:00",
        "2026-09-26T14:00:00+00:00",
    ]


@pytest.mark.parametrize("zone", ZONES)
def test_moments_are_local_times_but_for_those_of_the_epoch(zone: str) -> None:
    found = moments(zone)
    assert len(found) == 9 + len(clock_changes(zone, 2026))
    assert found["2^31 s after 1970"] == 2**31
    assert found["2^32 s after 1970"] == 2**32
    month_end = datetime.fromtimestamp(found["the last ms of a month of 31 days"], ZoneInfo(zone))
    assert month_end.isoformat(timespec="milliseconds").startswith("2026-01-31T23:59:59.999")
