"""Where the process starts: the short way for a plain lookup, click for everything else."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys

from rmqctl import quick
from rmqctl.address_space import guard_imports, load_unwinder
from rmqctl.output.outcome import concluded


def main() -> int:
    """Run the process's command line and return its exit code."""
    _open_standard_files()
    # a command makes many objects that live to its end: looking for circles among them again and again finds none
    gc.set_threshold(150_000, 50, 100)
    # numpy's linear algebra, which nothing here uses, would start a thread for each core and let it spin
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _speak_utf8()
    _buffer_output()
    _be_somewhere()
    guard_imports()
    load_unwinder()
    short = quick.understood(sys.argv[1:])
    if short is not None:
        return leave(concluded(lambda: quick.run(short), as_json=short.as_json))
    from rmqctl.main import main as run

    code = run()
    # nor does it when the process ends; DuckDB complains of objects that are left then
    if "duckdb" not in sys.modules:
        gc.freeze()
    return code


def _open_standard_files() -> None:
    """Open /dev/null where standard input, output or error is closed: no file or socket of ours may get their numbers,
    which C libraries write to. Python's own `sys.stdout` stays None, so that what is printed there fails."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # the lowest free number is this one
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            os.set_inheritable(number, True)


def _buffer_output() -> None:
    """Buffer standard output where Python does not (PYTHONUNBUFFERED): what a short write leaves is lost without a
    word then, the end of the last line on a disk that fills. Commands flush what is to be seen at once."""
    stream = sys.stdout
    if stream is not None and isinstance(getattr(stream, "buffer", None), io.FileIO):
        buffered = io.BufferedWriter(io.FileIO(stream.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(buffered, encoding=stream.encoding, errors=stream.errors)


def _be_somewhere() -> None:
    """Leave a working folder that was removed, where DuckDB and others abort, for one that holds no relative path."""
    try:
        os.getcwd()
    except OSError:
        for place in ("/proc/self/fdinfo", "/"):
            with contextlib.suppress(OSError):
                os.chdir(place)
                return


def _speak_utf8() -> None:
    """Start again in UTF-8 mode where the locale knows ASCII only and that mode is forbidden (LC_ALL=C, PYTHONUTF8=0):
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
