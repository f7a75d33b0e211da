"""Where the process starts: the short way for a plain lookup, click for everything else."""

from __future__ import annotations

import gc
import os
import sys

from rmqctl import quick
from rmqctl.reports.outcome import concluded


def main() -> int:
    """Run the process's command line and return its exit code."""
    # a command makes many objects that live to its end: looking for circles among them again and again finds none
    gc.set_threshold(50_000, 50, 100)
    # numpy's linear algebra, which nothing here uses, would start a thread for each core and let it spin
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _speak_utf8()
    short = quick.understood(sys.argv[1:])
    if short is not None:
        return leave(concluded(lambda: quick.run(short), as_json=short.as_json))
    from rmqctl.main import main as run

    return run()


def _speak_utf8() -> None:
    """Begin anew in UTF-8 mode where the locale knows ASCII only and that mode is forbidden (LC_ALL=C, PYTHONUTF8=0):
    topics, keys and the names of directories made of them are UTF-8 in every store."""
    if sys.getfilesystemencoding() in ("ascii", "us-ascii") and "utf8" not in sys._xoptions:
        os.environ["PYTHONUTF8"] = "1"  # for processes that this one starts
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def leave(code: int) -> int:
    """End the process without the interpreter's tidying up, which would take a sixth of the whole lookup.

    All output is flushed by then, and a lookup has no threads and nothing to be closed.
    """
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
