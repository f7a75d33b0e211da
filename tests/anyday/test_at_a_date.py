"""The clock of test runs: drawn days, and that the clock, waits and the times of files agree."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.anyday import at_a_date
from tests.anyday.at_a_date import CLOCK, FIXED, drawn, environment, special
from tests.anyday.clock import IS_NEEDED, ZONES, moment_of, real_now
from tests.processes import ROOT, run

_LEAP_DAY = "2028-02-29T23:50:00@Pacific/Chatham"
_WAITS = """
import ctypes, time

class Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]

def after(seconds, now):
    return ctypes.byref(Time(*divmod(int((now() + seconds) * 1e9), 10**9)))

libc = ctypes.CDLL(None)
semaphore, condition, mutex, attributes = (ctypes.create_string_buffer(64) for _ in range(4))
steady = ctypes.create_string_buffer(64)
libc.pthread_condattr_init(attributes)
libc.pthread_condattr_setclock(attributes, 1)
libc.pthread_cond_init(steady, attributes)
libc.pthread_mutex_lock(mutex)
waits = [
    lambda: libc.sem_timedwait(semaphore, after(0.2, time.time)),
    lambda: libc.sem_clockwait(semaphore, 0, after(0.2, time.time)),
    lambda: libc.pthread_cond_timedwait(condition, mutex, after(0.2, time.time)),
    lambda: libc.pthread_cond_timedwait(steady, mutex, after(0.2, time.monotonic)),
    lambda: libc.pthread_cond_clockwait(condition, mutex, 0, after(0.2, time.time)),
    lambda: libc.clock_nanosleep(0, 1, after(0.2, time.time), None),
    lambda: libc.clock_nanosleep(1, 0, ctypes.byref(Time(0, 200_000_000)), None),
    lambda: time.sleep(0.2),
]
for wait in waits:
    begin = time.monotonic()
    wait()
    print(round(time.monotonic() - begin, 1))
"""


@pytest.fixture
def settable() -> None:
    """Skip where there is no C compiler, unless the clock has to be set."""
    if shutil.which("cc") is None and not os.environ.get(IS_NEEDED):
        pytest.skip("there is no C compiler, which makes the library that sets the clock")


def on_leap_day(code: str, *arguments: object) -> list[str]:
    """Run Python code on 29 February; return the lines that it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return run(command, env=environment(_LEAP_DAY), check=True).stdout.splitlines()


@pytest.mark.usefixtures("settable")
def test_a_process_and_its_children_have_the_day_and_the_zone() -> None:
    show = "import time; print(time.strftime('%m-%dT%H:%M %z', time.localtime()), flush=True)"
    said = on_leap_day(f"import subprocess, sys; {show}; subprocess.run([sys.executable, '-c', {show!r}], timeout=60)")
    said += run(["date", "+%m-%dT%H:%M %z"], env=environment(_LEAP_DAY)).stdout.splitlines()
    assert len(said) == 3
    assert all(line.startswith(("02-29T23:5", "02-29T23:49")) and line.endswith("+1345") for line in said)


@pytest.mark.usefixtures("settable")
def test_new_files_have_times_of_that_day_and_old_ones_keep_theirs(tmp_path: Path) -> None:
    # the kernel's own clock, in which file times are kept, ticks some ms late
    began = real_now()
    code = """if True:
        import os, sys, time
        made, set_to, old = sys.argv[1] + "/made", sys.argv[1] + "/set", sys.argv[2]
        open(made, "w").close()
        open(set_to, "w").close()
        os.utime(set_to, (1000, 2000))
        found, listed = os.stat(made), next(entry.stat() for entry in os.scandir(sys.argv[1]) if entry.name == "made")
        print(all(abs(time.time() - one) < 5 for one in (found.st_atime, found.st_mtime, found.st_ctime)))
        print(listed.st_mtime_ns == found.st_mtime_ns == os.lstat(made).st_mtime_ns)
        print(os.stat(set_to).st_atime, os.stat(set_to).st_mtime)
        print(os.stat(old).st_mtime)
        os.utime(made)
        os.utime(made, ns=(1, os.stat(made).st_mtime_ns))
        print(abs(time.time() - os.stat(made).st_mtime) < 5)
    """
    old = ROOT / "constraints.txt"
    assert on_leap_day(code, tmp_path, old) == ["True", "True", "1000.0 2000.0", str(old.stat().st_mtime), "True"]
    by_real_clock: list[str | Path] = ["stat", "-c", "%Y", tmp_path / "made"]
    assert abs(int(run(by_real_clock, env=at_a_date.real_environment()).stdout) - began) < 60


@pytest.mark.usefixtures("settable")
def test_waits_are_as_long_as_by_the_real_clock() -> None:
    assert set(on_leap_day(_WAITS)) <= {"0.2", "0.3", "0.4", "0.5"}


@pytest.mark.parametrize("zone", ZONES)
def test_special_days_are_in_every_zone(zone: str) -> None:
    found = special(zone)
    assert {"2028-01-31T23:50:00", "2028-02-29T23:50:00", "2028-03-01T00:05:00", "2028-12-31T23:50:00"} <= set(found)
    offsets = [
        (datetime.fromtimestamp(moment_of(text, zone) + after, ZoneInfo(zone)).utcoffset())
        for text in found
        for after in (0, 600)
    ]
    assert len(set(offsets)) == (1 if zone in ("UTC", "Asia/Shanghai") else 2)


def test_days_are_drawn_from_the_whole_year(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_a_date, "random", random.Random(1))
    clocks = [drawn().partition("@") for _ in range(400)]
    assert {zone for _, _, zone in clocks} == set(ZONES)
    assert {datetime.fromisoformat(text).month for text, _, _ in clocks} == set(range(1, 13))
    assert all(text.startswith("2028-") and moment_of(text, zone) for text, _, zone in clocks)
    assert sum(text in special(zone) for text, _, zone in clocks) in range(150, 250)


def _started(clock: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.anyday.at_a_date", "date", "+%F"]
    return run(command, env=at_a_date.real_environment() | {CLOCK: clock, **more})


@pytest.mark.usefixtures("settable")
def test_the_day_is_printed_and_is_fixed_by_default() -> None:
    first, second = _started("").stdout.splitlines()
    assert first.startswith(f"clock: {FIXED} (to repeat: {CLOCK}={FIXED};")
    assert second == FIXED[:10]
    assert _started("2028-02-29T12:00@UTC").stdout.splitlines()[1] == "2028-02-29"


def test_a_day_that_is_none_is_refused() -> None:
    ended = _started("yesterday")
    assert ended.returncode == 1
    assert "give a MOMENT@ZONE" in ended.stderr


@pytest.mark.parametrize(("clock", "is_needed"), [("", False), ("any", False), ("", True), (_LEAP_DAY, False)])
def test_without_a_compiler_tests_run_by_the_real_clock_unless_a_day_has_to_be_set(
    clock: str, is_needed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(at_a_date, "_SOURCE", tmp_path / "shift.c")
    (tmp_path / "shift.c").write_text("another one, which is not compiled yet")
    monkeypatch.setenv("CC", str(tmp_path / "no-compiler"))
    monkeypatch.setenv(CLOCK, clock)
    monkeypatch.setenv(IS_NEEDED, "1" if is_needed else "")
    monkeypatch.setattr(sys, "argv", ["at_a_date", "true"])
    started: list[dict[str, str]] = []
    monkeypatch.setattr(os, "execvpe", lambda _name, _arguments, environment: started.append(environment))
    if is_needed or clock == _LEAP_DAY:
        with pytest.raises(SystemExit, match=r"clock: cannot be set: .*no-compiler"):
            at_a_date.main()
        return
    at_a_date.main()
    assert started == [dict(os.environ)]
    assert "clock: the real one. Setting it needs a C compiler" in capsys.readouterr().out
