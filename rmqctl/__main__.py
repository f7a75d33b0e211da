"""`python -m rmqctl`: the same as the console script."""

import sys

from rmqctl.start import main

if __name__ == "__main__":
    sys.exit(main())
