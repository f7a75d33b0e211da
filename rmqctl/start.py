"""Where the process starts: the short way for a plain lookup, click for everything else."""

from __future__ import annotations

import sys

from rmqctl import quick
from rmqctl.outcome import concluded


def main() -> int:
    """Run the process's command line and return its exit code."""
    short = quick.understood(sys.argv[1:])
    if short is not None:
        return concluded(lambda: quick.run(short))
    from rmqctl.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
