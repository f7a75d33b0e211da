"""Set the wall clock of processes that are started here: libfaketime, and the moments that are worth trying."""

from __future__ import annotations

import functools
import glob
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_PLACES = (
    "/usr/lib/*/faketime/libfaketimeMT.so.1",
    "/usr/lib*/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)
ZONES = ("UTC", "Asia/Shanghai", "America/New_York", "Pacific/Chatham")
LEAD_S = 2.0
"""How long before a moment a clock starts, so that a run is on both sides of it."""
IS_NEEDED = "RMQCTL_NEEDS_FAKETIME"
"""Set in the environment where a missing libfaketime is an error: in CI."""


@functools.cache
def library() -> str | None:
    """Return the path of libfaketime; None where it is not installed."""
    return next((found for place in _PLACES for found in sorted(glob.glob(place))), None)


@functools.cache
def why_not() -> str | None:
    """Return why clocks cannot be set here; None if they can."""
    if library() is None:
        return "libfaketime is not installed (Debian: apt-get install faketime)"
    wanted = datetime(2031, 5, 6, 7, 8, tzinfo=UTC).timestamp()
    pause = "select.select([], [], [], 0.01)"
    code = f"import select, time; a = time.monotonic(); {pause}; print(time.time(), 0 < time.monotonic() - a < 60)"
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment(wanted, "UTC"), capture_output=True, text=True, timeout=60
    ).stdout.split()
    is_set = len(said) == 2 and abs(float(said[0]) - wanted) < 60 and said[1] == "True"
    return None if is_set else f"libfaketime does not set the clock here: {' '.join(said)}"


def real_now() -> float:
    """Return the time by the real clock, in s since 1970, also where the clock of this process is set."""
    return time.time() - float(os.environ.get("FAKETIME") or os.environ.get("RMQCTL_CLOCK_SHIFT") or 0)


def environment(moment: float, zone: str) -> dict[str, str]:
    """Return the environment of a process whose clock shows `moment` (s since 1970) now, and those it starts.

    The monotonic clock and the times of files stay real.
    """
    return {
        **os.environ,
        "TZ": zone,
        "LD_PRELOAD": library() or "",
        "FAKETIME": f"{moment - real_now():+.3f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def moment_of(text: str, zone: str) -> float:
    """Return the moment, s since 1970, of an ISO 8601 text, which is local time of `zone` unless it names another."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo is not None else found.replace(tzinfo=ZoneInfo(zone))).timestamp()


def moments(zone: str) -> dict[str, float]:
    """Return what is tried in `zone`: name -> moment, s since 1970."""
    local = {
        "the last ms of a month of 31 days": "2026-01-31T23:59:59.999",
        "the last ms of February": "2026-02-28T23:59:59.999",
        "the last ms of a month of 30 days": "2026-04-30T23:59:59.999",
        "2^31 ms after the month began": "2026-08-25T20:31:23.648",
        "29 February": "2028-02-29T12:00:00",
        "the end of 29 February": "2028-02-29T23:59:59.999",
        "the end of a year": "2026-12-31T23:59:59.999",
        "2^31 s after 1970": "2038-01-19T03:14:08+00:00",
        "2^32 s after 1970": "2106-02-07T06:28:16+00:00",
    }
    changes = [datetime.fromtimestamp(change, ZoneInfo(zone)) for change in clock_changes(zone, 2026)]
    names = ("the first change of daylight saving time", "the second change of daylight saving time")
    return {
        **{name: moment_of(text, zone) for name, text in local.items()},
        **{name: change.timestamp() for name, change in zip(names, changes, strict=False)},
    }


def clock_changes(zone: str, year: int) -> list[int]:
    """Return the moments of `year` (s since 1970) at which local time changes its offset."""
    place = ZoneInfo(zone)

    def offset(moment: int) -> timedelta | None:
        return datetime.fromtimestamp(moment, place).utcoffset()

    found = []
    begin = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    for day in range(begin, begin + 365 * 86_400, 86_400):
        before, after = day, day + 86_400
        if offset(before) == offset(after):
            continue
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if offset(middle) == offset(before) else (before, middle)
        found.append(after)
    return found
