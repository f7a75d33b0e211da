"""Turns every outcome of a command into a message on stderr and an exit code. Knows nothing of click."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from rmqctl import exit_codes
from rmqctl.formats.errors import NotAStoreError, RmqctlError
from rmqctl.output.output import output_failed, talk
from rmqctl.store.version import version

PROGRAM = "rmqctl"
DEBUG_VARIABLE = "RMQCTL_DEBUG"


def concluded(command: Callable[[], int]) -> int:
    """Run `command` and return its exit code, or that of how it failed (rmqctl/exit_codes.py). Never raises."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a locale that cannot print a character shows its escape instead of failing
            stream.reconfigure(errors="backslashreplace")
    code = exit_codes.OK
    try:
        code = _answered(command)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _closed_pipe()
    except KeyboardInterrupt:
        talk(f"{PROGRAM}: interrupted")
        return exit_codes.INTERRUPTED
    except OSError as error:
        # only the last flush of stdout can end here: _answered turns everything else into a code
        _discard_stdout()
        if code != exit_codes.WRITE_FAILED:  # else that was said already
            talk(f"{PROGRAM}: {output_failed(error)}")
        return exit_codes.WRITE_FAILED


def _answered(command: Callable[[], int]) -> int:
    try:
        return command()
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except RmqctlError as error:
        return _known_error(error)
    except Exception as error:  # noqa: BLE001 - the last resort: whatever it is, the user gets a sentence and code 70
        return _bug(error)


def _known_error(error: RmqctlError) -> int:
    talk(f"{PROGRAM}: {error}")
    hint = error.hint
    if hint is None and isinstance(error, NotAStoreError):
        hint = "name the store with -s DIR, $RMQCTL_STORE or -c broker.conf"
    if hint:
        talk(f"  {hint}")
    _show_traceback(error)
    return exit_codes.exit_code_of(error)


def _bug(error: Exception) -> int:
    talk(f"{PROGRAM}: unexpected {type(error).__name__}: {error}")
    shown = _show_traceback(error)
    advice = "please report it with the text above" if shown else f"{DEBUG_VARIABLE}=1 shows where it comes from"
    talk(f"  This is a bug in {PROGRAM} {version()}; {advice}.")
    return exit_codes.BUG


def _show_traceback(error: Exception) -> bool:
    if os.environ.get(DEBUG_VARIABLE, "0") in ("", "0"):
        return False
    import traceback

    text = "".join(traceback.format_exception(error))
    talk(text.rstrip("\n"), keep_newlines=True)
    return True


def _closed_pipe() -> int:
    """Nobody reads stdout any more, which is how `| head` ends: no error, and the interpreter must not flush again."""
    _discard_stdout()
    return exit_codes.OK


def _discard_stdout() -> None:
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
