"""`make any-day`: every verb at every moment of `clock.moments`, in every zone; prints what failed as commands."""

from __future__ import annotations

import argparse
import shlex
import sys
from datetime import datetime
from zoneinfo import ZoneInfo

from tests.anyday.clock import LEAD_S, ZONES, environment, moment_of, moments, why_not
from tests.processes import run


def tried(moment: float, zone: str) -> str:
    """Run every verb with the clock just before `moment`; return what was wrong, "" if nothing."""
    ended = run([sys.executable, "-m", "tests.anyday.walk"], env=environment(moment - LEAD_S, zone), seconds=900)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr[-2000:]


def main() -> int:
    """Try what the command line names, or everything; 1 if anything failed."""
    parser = argparse.ArgumentParser(description="Run every verb by another clock, in other zones.")
    parser.add_argument("--zone", action="append", help="only this time zone; may be repeated")
    parser.add_argument("--at", metavar="TIME", help="only this moment, ISO 8601, local time of the zone")
    chosen = parser.parse_args()
    why = why_not()
    if why is not None:
        sys.exit(f"any-day: {why}")
    failed = []
    for zone in chosen.zone or ZONES:
        wanted = moments(zone) if chosen.at is None else {chosen.at: moment_of(chosen.at, zone)}
        for name, moment in wanted.items():
            at = datetime.fromtimestamp(moment, ZoneInfo(zone)).isoformat(timespec="milliseconds")
            wrong = tried(moment, zone)
            print(f"{'FAILED' if wrong else 'ok':7} {zone:18} {at}  {name}", flush=True)
            if wrong:
                print("".join(f"        {line}\n" for line in wrong.splitlines()), end="", flush=True)
                failed.append(["make", "any-day", f"ARGS=--zone {zone} --at {at}"])
    for command in failed:
        print(f"again: {shlex.join(command)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
