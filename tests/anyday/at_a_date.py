"""Run a command, such as the tests, on a set day: the wall clock and the times of files move together (shift.c).

RMQCTL_CLOCK chooses the day. The year is one after all golden stores were written, so that no store is of the future.
"""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tests.anyday.clock import IS_NEEDED, ZONES, clock_changes, moment_of, real_now

CLOCK = "RMQCTL_CLOCK"
"""Variable of the environment: a MOMENT@ZONE, `any` for a drawn one, `real` for the real clock."""
SHIFT = "RMQCTL_CLOCK_SHIFT"
"""Variable of the environment of processes whose clock is set: by how many seconds."""
BEGAN = "RMQCTL_CLOCK_BEGAN"
OF_A_SET_CLOCK = ("LD_PRELOAD", SHIFT, BEGAN, "FAKETIME")
"""How the names of variables begin that set a clock: ours and libfaketime's."""
FIXED = "2027-06-16T10:30:00@UTC"
"""An ordinary day."""
YEAR = 2028
_SOURCE = Path(__file__).parent / "shift.c"
_SHOW = (
    "import os, tempfile, time; file = tempfile.TemporaryFile(); print(time.time(), os.fstat(file.fileno()).st_mtime)"
)
_SPECIAL = ("01-31T23:50", "02-29T12:00", "02-29T23:50", "03-01T00:05", "03-31T23:50", "08-25T20:30", "12-31T23:50")


def drawn() -> str:
    """Return a MOMENT@ZONE of the whole year: every second one is a day on which software fails."""
    zone = random.choice(ZONES)
    if random.random() < 0.5:
        return f"{random.choice(special(zone))}@{zone}"
    moment = moment_of(f"{YEAR}-01-01T00:00", zone) + random.randrange(366 * 86_400)
    return f"{_local(moment, zone)}@{zone}"


def special(zone: str) -> list[str]:
    """Return local times shortly before the ends of months and the like, and before clocks change."""
    return [f"{YEAR}-{name}:00" for name in _SPECIAL] + [
        _local(change - 300, zone) for change in clock_changes(zone, YEAR)
    ]


def _local(moment: float, zone: str) -> str:
    return datetime.fromtimestamp(moment, ZoneInfo(zone)).replace(tzinfo=None).isoformat(timespec="seconds")


def shifted_by() -> int:
    """Return by how many seconds the clock of this process is set forward."""
    return int(os.environ.get(SHIFT, "0"))


def real_environment() -> dict[str, str]:
    """Return the environment of a process that has the real clock: it asks servers that have certificates."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OF_A_SET_CLOCK)}


def environment(clock: str) -> dict[str, str]:
    """Return the environment of a process whose clock shows `clock`, a MOMENT@ZONE, now.

    Raises: OSError, SubprocessError where the library cannot be compiled or does not work.
    """
    text, _, zone = clock.partition("@")
    now = int(real_now())
    wanted = moment_of(text, zone)
    # even: FAT keeps every second second
    shift = (int(wanted) - now) // 2 * 2
    found = {**real_environment(), "TZ": zone, "LD_PRELOAD": str(_library()), SHIFT: str(shift), BEGAN: str(now)}
    said = subprocess.run(
        [sys.executable, "-c", _SHOW], env=found, capture_output=True, text=True, timeout=60, check=True
    )
    if said.stderr or not all(abs(float(word) - wanted) < 60 for word in said.stdout.split()):
        raise subprocess.SubprocessError(f"the preloaded library does not set the clock: {said.stdout}{said.stderr}")
    return found


def _library() -> Path:
    """Compile shift.c, once for each version of it; return the library."""
    library = Path(sys.prefix) / f"rmqctl-shift-{zlib.crc32(_SOURCE.read_bytes()):08x}.so"
    if not library.exists():
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
        with tempfile.TemporaryDirectory(dir=sys.prefix) as folder:
            made = Path(folder, "shift.so")
            subprocess.run(
                [compiler, "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", made, _SOURCE, "-ldl"],
                capture_output=True, text=True, timeout=60, check=True,
            )  # fmt: skip
            made.rename(library)
    return library


def main() -> None:
    """Run the command in place of this process."""
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: python -m tests.anyday.at_a_date COMMAND...")
    given = os.environ.get(CLOCK) or FIXED
    found = dict(os.environ)
    if given != "real":
        try:
            clock = drawn() if given == "any" else given
            found = environment(clock)
        except ValueError as error:
            sys.exit(f"clock: {CLOCK}={given}: {error}; give a MOMENT@ZONE such as {FIXED}, `any` or `real`")
        except (OSError, subprocess.SubprocessError, ZoneInfoNotFoundError) as error:
            why = f"{error} {getattr(error, 'stderr', None) or ''}".strip()
            if os.environ.get(IS_NEEDED) or given not in ("any", FIXED):
                sys.exit(f"clock: cannot be set: {why}")
            print(f"clock: the real one. Setting it needs a C compiler, glibc and time zones: {why}", flush=True)
        else:
            print(f"clock: {clock} (to repeat: {CLOCK}={clock}; by the real clock: {CLOCK}=real)", flush=True)
    os.execvpe(command[0], command, found)


if __name__ == "__main__":
    main()
