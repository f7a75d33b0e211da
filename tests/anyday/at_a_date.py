"""Run a command, such as the tests, by a clock that is set: to a fixed day, or to one that a seed chooses.

`RMQCTL_CLOCK=SEED` repeats the day of a run; `RMQCTL_CLOCK=real` leaves the clock alone.
"""

from __future__ import annotations

import os
import secrets
import sys
from datetime import datetime
from zoneinfo import ZoneInfo

from tests.anyday.clock import IS_NEEDED, any_moment, environment, moment_of, why_not

CLOCK = "RMQCTL_CLOCK"
"""Variable of the environment: a seed, or `real`."""
FIXED = moment_of("2026-06-15T12:00:00", "UTC"), "UTC"


def chosen(is_any: bool) -> tuple[float, str, str] | None:
    """Return moment, zone and what repeats them; None for the real clock."""
    seed = os.environ.get(CLOCK) or (secrets.token_hex(3) if is_any else "")
    if seed == "real":
        return None
    return (*any_moment(seed), f"{CLOCK}={seed}") if seed else (*FIXED, f"the fixed day of tests; {CLOCK} sets another")


def main() -> None:
    """Run the command behind `fixed` or `any` in place of this process."""
    how, *command = sys.argv[1:]
    if how not in ("fixed", "any") or not command:
        sys.exit("usage: python -m tests.anyday.at_a_date fixed|any COMMAND...")
    found, why = chosen(how == "any"), why_not()
    if found is None or why is not None:
        if found is not None and os.environ.get(IS_NEEDED):
            sys.exit(f"the clock has to be set: {why}")
        print(f"clock: real ({why or f'{CLOCK}=real'})", flush=True)
        os.execvp(command[0], command)
    moment, zone, again = found
    print(f"clock: {datetime.fromtimestamp(moment, ZoneInfo(zone)).isoformat()} {zone} ({again})", flush=True)
    os.execvpe(command[0], command, environment(moment, zone))


if __name__ == "__main__":
    main()
