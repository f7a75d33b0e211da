"""Turns every outcome of a command into a message on stderr and an exit code. Knows nothing of click."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from rmqctl import exit_codes
from rmqctl.formats.errors import (
    NotAStoreError,
    RmqctlError,
    UnreadableError,
    UnsupportedError,
    UsageError,
    exhausted,
)
from rmqctl.output.done import forget_done, output_lost
from rmqctl.output.lines import json_line
from rmqctl.output.output import output_failed, talk
from rmqctl.store.installed import how_to_add, version

PROGRAM = "rmqctl"
DEBUG_VARIABLE = "RMQCTL_DEBUG"
_STOPPED = {
    exit_codes.INTERRUPTED: "interrupted",
    exit_codes.TERMINATED: "terminated",
    exit_codes.HUNG_UP: "its terminal was closed",
}
# seconds, far more than the thread that waits for them needs to begin
_A_MOMENT = 0.2
_ENDING = {signal.SIGTERM: exit_codes.TERMINATED, signal.SIGHUP: exit_codes.HUNG_UP}


def ending_signals() -> tuple[signal.Signals, ...]:
    """What ends a command that goes on until it is told to; SIGHUP not where nohup has it ignored, and means it."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangs_up else []))


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: for everybody but a prompt, which Ctrl-C does not end, the same as Ctrl-C."""


_REFUSALS = {
    errno.EIO,
    errno.EINTR,
    errno.ENXIO,
    errno.ENODEV,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EUCLEAN,
    errno.EACCES,
    errno.EPERM,
}


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether a command line asks for JSON, before anything else of it is understood."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own or "--format=json" in own or ("--format", "json") in itertools.pairwise(own)


def concluded(command: Callable[[], int], *, as_json: bool = False) -> int:
    """Run `command` and return its exit code, or that of how it failed (rmqctl/exit_codes.py). Never raises.

    `as_json`: an error is one JSON object on stderr.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a locale that cannot print a character shows its escape instead of failing
            stream.reconfigure(errors="backslashreplace")
    with _terminable() as signals, _heard(signals):
        code = _concluded(command, as_json)
    # who says something to a terminal that is gone gets an error for it, which nobody can foresee
    if signals and (code == exit_codes.INTERRUPTED or (signal.SIGHUP in signals and code == exit_codes.BUG)):
        code = _ENDING[signals[0]]
    if code in _STOPPED:
        talk(f"{PROGRAM}: {_STOPPED[code]}")
    _give_up_full_stderr()
    return code


@contextlib.contextmanager
def _terminable() -> Iterator[list[signal.Signals]]:
    """SIGTERM, and SIGHUP of a closed terminal, end a command as Ctrl-C does: what it began is tidied up, and it says
    how far it came. Yields where such a signal is noted. One that somebody handles already, or ignores as nohup does,
    stays as it is."""
    noted: list[signal.Signals] = []

    def stop(number: int, _frame: object) -> None:
        noted.append(signal.Signals(number))
        raise Terminated

    is_ours = threading.current_thread() is threading.main_thread()
    ours = [number for number in _ENDING if is_ours and signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield noted
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _heard(noted: list[signal.Signals]) -> Iterator[None]:
    """What is to end a command may come while a finalizer runs, or an import lets go of its lock: nothing can be raised
    there, and Python would print it and go on. It comes again a moment later."""
    before, again = sys.unraisablehook, []

    def hear(lost: sys.UnraisableHookArgs) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            before(lost)
            return
        number = noted[-1] if isinstance(lost.exc_value, Terminated) else signal.SIGINT
        timer = threading.Timer(_A_MOMENT, signal.pthread_kill, [threading.main_thread().ident, number])
        timer.daemon = True
        again.append(timer)
        timer.start()

    sys.unraisablehook = hear
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in again:
            timer.cancel()


def _concluded(command: Callable[[], int], as_json: bool) -> int:
    code = exit_codes.OK
    forget_done()
    try:
        code = _answered(command, as_json)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _closed_pipe(as_json)
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except OSError as error:
        # only the last flush of stdout can end here: _answered turns everything else into a code
        _discard(sys.stdout)
        if code != exit_codes.WRITE_FAILED:  # else that was said already
            say_error(output_failed(error), as_json)
        return exit_codes.WRITE_FAILED


def _answered(command: Callable[[], int], as_json: bool) -> int:
    try:
        return command()
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except RmqctlError as error:
        return _known_error(error, as_json)
    except ModuleNotFoundError as error:
        return _missing_extra(error, as_json)
    except Exception as error:  # the last resort: the user gets a sentence and code 70
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11 wraps what comes while a class is made
            raise KeyboardInterrupt from error
        known = exhausted(error) or _unreadable(error)
        if known is None:
            return _bug(error, as_json)
        known.__cause__ = error
        return _known_error(known, as_json)


def _unreadable(error: Exception) -> RmqctlError | None:
    """What the disk or the system refused while something was looked at, such as the size of a file: what fails in a
    change is reported where it fails. None where rmqctl itself must be wrong."""
    if not isinstance(error, OSError) or error.errno not in _REFUSALS or error.filename is None:
        return None
    return UnreadableError(
        f"cannot be read: {error.strerror}", file=error.filename, hint="check the permissions and the disk (dmesg)"
    )


def say_error(error: RmqctlError, as_json: bool, exit_code: int | None = None, usage: str | None = None) -> int:
    """Print an error on stderr, as JSON on one line, and return its exit code; `usage` is of a wrong command line."""
    code = exit_codes.exit_code_of(error) if exit_code is None else exit_code
    if as_json:
        fields = {"file": error.file, "physical_offset": error.physical_offset, "hint": error.hint, "usage": usage}
        known = {name: value for name, value in fields.items() if value is not None}
        talk(
            json_line(
                {"error": error.code, "exit_code": code, "message": error.message, **known, **error.details}
            ).rstrip("\n")
        )
        return code
    talk(f"{PROGRAM}: {error}")
    if error.hint:
        talk(f"  {error.hint}")
    for note in error.notes:
        talk(f"  {note}")
    if usage:
        talk(usage, keep_newlines=True)
    return code


def wrong_usage(message: str, as_json: bool, usage: str | None) -> int:
    """Print what is wrong with a command line, and return the exit code."""
    return say_error(UsageError(message), as_json, usage=usage)


def _known_error(error: RmqctlError, as_json: bool) -> int:
    if error.hint is None and isinstance(error, NotAStoreError):
        error.hint = "name the store with -s DIR, $RMQCTL_STORE or -c broker.conf"
    code = say_error(error, as_json)
    _show_traceback(error)
    return code


def _missing_extra(error: ModuleNotFoundError, as_json: bool) -> int:
    """What an extra brings may be missing, and then there is nothing wrong with us; all else is ours to have."""
    hint = how_to_add(error.name)
    if hint is None:
        return _bug(error, as_json)
    name = str(error.name).partition(".")[0]
    return _known_error(UnsupportedError(f"this needs {name}, which is not installed here", hint=hint), as_json)


def _bug(error: Exception, as_json: bool) -> int:
    shown = _show_traceback(error)
    advice = "please report it with the traceback" if shown else f"{DEBUG_VARIABLE}=1 shows where it comes from"
    hint = f"This is a bug in {PROGRAM} {version()}; {advice}."
    return say_error(RmqctlError(f"unexpected {type(error).__name__}: {error}", hint=hint), as_json, exit_codes.BUG)


def _show_traceback(error: Exception) -> bool:
    if os.environ.get(DEBUG_VARIABLE, "0") in ("", "0"):
        return False
    import traceback

    text = "".join(traceback.format_exception(error))
    talk(text.rstrip("\n"), keep_newlines=True)
    return True


def _closed_pipe(as_json: bool) -> int:
    """Nobody reads stdout any more, which is how `| head` ends: no error, and the interpreter must not flush again.

    A change whose result went unread is named: the caller must not make it twice. It is done, so the exit code is 0.
    """
    _discard(sys.stdout)
    lost = output_lost("its reader has gone")
    if lost is not None:
        say_error(lost, as_json, exit_codes.OK)
    return exit_codes.OK


def _give_up_full_stderr() -> None:
    """What stderr did not take stays in its buffer: the interpreter would try once more as it ends, and turn the exit
    code into 120."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """From here on all that is written to `stream` goes nowhere."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
