"""Where the process starts: what guards the process, the short way for a plain lookup, click for everything else.

The short way is a plain `rmqctl query` by id or physical offset, understood without click, whose import takes longer
than the whole lookup. Only the flags of _WITH_VALUE are known here, each given once and with a plain value; everything
else, every mistake included, is left to click. A test holds that what is understood here is exactly what click would
have made of it.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from rmqctl.finding import Question, find_and_show
from rmqctl.formats.errors import ExhaustedError
from rmqctl.opening import COMPLETION_VARIABLE, STORE_VARIABLE, config_file, locate_store
from rmqctl.output.outcome import concluded
from rmqctl.output.output import Output

_VERB = "query"
_JSON = "--json"
_WITH_VALUE = {
    "-s": "store",
    "--store": "store",
    "-i": "message_id",
    "--id": "message_id",
    "-o": "offset",
    "--offset": "offset",
    "-t": "topic",
    "--topic": "topic",
}
# digits of the largest 64-bit integer, less one
_LONGEST_OFFSET = 18
_MIB = 1 << 20
# free MiB of address space with which the library loads and works; with less its C code ends the process
NEEDED_MIB = {"numpy": 96, "pyarrow": 384, "duckdb": 2300}
_FEW_DESCRIPTORS = 64


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
    if any("zh" in os.environ.get(name, "").lower() for name in ("RMQCTL_LANG", "LC_ALL", "LC_MESSAGES", "LANG")):
        from rmqctl.language.speech import speak

        speak(os.environ)
    guard_imports()
    load_unwinder()
    short = understood(sys.argv[1:])
    if short is not None:
        return leave(concluded(lambda: look_up(short), as_json=short.as_json))
    from rmqctl.main import main as run

    code = run()
    # nor does it when the process ends; DuckDB complains of objects that are left then
    if "duckdb" not in sys.modules:
        gc.freeze()
    return code


def _open_standard_files() -> None:
    """Open /dev/null if standard input, output or error is closed: no other file or socket may get their numbers, which
    C libraries write to. Python's own `sys.stdout` stays None, so that what is printed there fails."""
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


# The short way.


class Short(NamedTuple):
    """A command line that was understood."""

    store: str | None
    wanted: Question
    as_json: bool


def understood(arguments: list[str]) -> Short | None:
    """Return the meaning of a plain `query`; None for other command lines."""
    if arguments[:1] != [_VERB] or os.environ.get(COMPLETION_VARIABLE):
        return None
    defaults = config_file()
    if defaults and os.path.lexists(defaults):
        return None
    given: dict[str, str] = {}
    as_json = False
    rest = iter(arguments[1:])
    for flag in rest:
        if flag == _JSON:
            as_json = True
            continue
        name = _WITH_VALUE.get(flag)
        value = next(rest, "")
        # what is not ASCII may be no text at all, which click tells
        if name is None or name in given or not value or value.startswith("-") or not value.isascii():
            return None
        if name == "topic" and any(character in value for character in "*?["):
            return None  # a pattern, which only a search by key takes
        given[name] = value
    wanted = _wanted(given.get("message_id"), given.get("offset"), given.get("topic"))
    if wanted is None:
        return None
    return Short(given.get("store") or os.environ.get(STORE_VARIABLE) or None, wanted, as_json)


def _wanted(message_id: str | None, offset: str | None, topic: str | None) -> Question | None:
    if offset is None:
        return None if message_id is None else Question(message_id=message_id, topic=topic)
    if message_id is not None or topic is not None:
        return None
    is_plain = offset.isascii() and offset.isdigit() and len(offset) <= _LONGEST_OFFSET
    return Question(offset=int(offset)) if is_plain else None


def look_up(short: Short) -> int:
    """Carry out the lookup and return the exit code."""
    output = Output(short.as_json)
    code = find_and_show(locate_store(None if short.store is None else Path(short.store), None), output, short.wanted)
    output.flush()
    return code


# Libraries abort the process where its address space is limited (ulimit -v): they are not loaded then.


def guard_imports() -> None:
    """Check the free address space before each library of NEEDED_MIB is imported; nothing where it is unlimited."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        sys.meta_path.insert(0, _Guard(limit))


def load_unwinder() -> None:
    """Load what glibc needs where a thread ends, while there is a descriptor for it: without it, glibc aborts."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < _FEW_DESCRIPTORS:
        import ctypes

        with contextlib.suppress(OSError):  # another C library has no such file, and no need of it
            ctypes.CDLL("libgcc_s.so.1")


class _Guard:
    """Find no module; raise where a library would not have the address space that it needs."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Return None; ExhaustedError where too little is free."""
        needed = NEEDED_MIB.get(fullname)
        if needed is None or self._limit - _used() >= needed * _MIB:
            return
        said = f"{fullname} needs {needed} MiB of address space, and {max(0, self._limit - _used()) // _MIB} are free"
        raise ExhaustedError(said, hint="raise the limit of memory (ulimit -v)")


def _used() -> int:
    """Return the bytes of address space that the process has mapped."""
    with open("/proc/self/statm", encoding="ascii") as fields:
        return int(fields.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main())
