"""Run a command, such as the tests, by a clock that is set to a day which a seed chooses.

`RMQCTL_CLOCK=SEED` repeats the day of a run.
"""

from __future__ import annotations

import os
import secrets
import sys
from datetime import datetime
from zoneinfo import ZoneInfo

from tests.anyday.clock import any_moment, environment, why_not

CLOCK = "RMQCTL_CLOCK"
"""Variable of the environment: a seed."""


def main() -> None:
    """Run the command in place of this process."""
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: python -m tests.anyday.at_a_date COMMAND...")
    why = why_not()
    if why is not None:
        sys.exit(f"the clock has to be set: {why}")
    seed = os.environ.get(CLOCK) or secrets.token_hex(3)
    moment, zone = any_moment(seed)
    print(f"clock: {datetime.fromtimestamp(moment, ZoneInfo(zone)).isoformat()} {zone} ({CLOCK}={seed})", flush=True)
    os.execvpe(command[0], command, environment(moment, zone))


if __name__ == "__main__":
    main()
