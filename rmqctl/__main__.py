"""`python -m rmqctl`: the same as the console script."""

import sys

from rmqctl.start import main

if __name__ == "__main__":
    code = main()
    # Python remembers a Ctrl-C that came while some exec() ran, as imports of dataclasses do, and `python -m` would end
    # by SIGINT instead of with the code of what was interrupted; the next exec() clears that
    exec("")  # noqa: S102 - nothing
    sys.exit(code)
