"""Turns every outcome of a command into a message on stderr and an exit code, and confirms losses beforehand.

The short way of a lookup (start.py) needs it: click is imported only where it prompts.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from rmqctl.formats.errors import (
    CorruptError,
    EngineError,
    HiddenByDamageError,
    NotAStoreError,
    NotFoundError,
    RefusedError,
    RemoteError,
    RmqctlError,
    StoreInUseError,
    UncertainError,
    UnreadableError,
    UnreadPartError,
    UnsupportedError,
    UsageError,
    WriteFailedError,
    counted,
    exhausted,
)
from rmqctl.output.output import forget_done, json_line, output_failed, output_lost, talk
from rmqctl.output.table import said
from rmqctl.output.terminal import aside
from rmqctl.store.status import how_to_add, version

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.options import Events, Loss
    from rmqctl.store.read.filter import Criteria


# The exit codes of the command line: what each means, and which error ends with which.

OK = 0
DAMAGE_OR_NOTHING = 1
USAGE = 2
UNREADABLE = 3
IN_USE = 4
REFUSED = 5
WRITE_FAILED = 6
DAMAGE_IN_THE_WAY = 7
BUG = 70
HUNG_UP = 129
INTERRUPTED = 130
TERMINATED = 143

MEANINGS: dict[int, str] = {
    OK: "done, all well",
    DAMAGE_OR_NOTHING: "damage was found beside the answer, or nothing matched",
    USAGE: "the command line or its input is wrong",
    UNREADABLE: "not a store, or it cannot be read; no server that answers as it should",
    IN_USE: "the store is in use by a broker or another writer",
    REFUSED: "refused: it needs a flag, a decision or something that is not here; or the format is not supported",
    WRITE_FAILED: "an I/O error while writing; or too few file descriptors, too little memory, no thread",
    DAMAGE_IN_THE_WAY: "a lookup cannot be answered: damage or an unread part may hide it",
    BUG: "a bug of rmqctl",
    HUNG_UP: "ended because its terminal was closed (SIGHUP)",
    INTERRUPTED: "interrupted by Ctrl-C",
    TERMINATED: "ended by SIGTERM",
}

EXIT_CODES: dict[type[RmqctlError], int] = {
    CorruptError: DAMAGE_IN_THE_WAY,
    NotFoundError: DAMAGE_OR_NOTHING,
    UsageError: USAGE,
    NotAStoreError: UNREADABLE,
    UnreadableError: UNREADABLE,
    RemoteError: UNREADABLE,
    StoreInUseError: IN_USE,
    RefusedError: REFUSED,
    UnsupportedError: REFUSED,
    EngineError: REFUSED,
    WriteFailedError: WRITE_FAILED,
}


def exit_code_of(error: RmqctlError) -> int:
    """The exit code for `error`: that of its nearest numbered class, BUG if no class of it is numbered."""
    for cls in type(error).__mro__:
        if cls in EXIT_CODES:
            return EXIT_CODES[cls]
    return BUG


PROGRAM = "rmqctl"
DEBUG_VARIABLE = "RMQCTL_DEBUG"
_STOPPED = {INTERRUPTED: "interrupted", TERMINATED: "terminated", HUNG_UP: "its terminal was closed"}
# seconds, far more than the thread that waits for them needs to begin
_A_MOMENT = 0.2
_ENDING = {signal.SIGTERM: TERMINATED, signal.SIGHUP: HUNG_UP}


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a command without an end of its own; SIGHUP not if nohup has it ignored on
    purpose."""
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
    """Run `command` and return its exit code, or that of how it failed (rmqctl/output/outcome.py). Never raises.

    `as_json`: an error is one JSON object on stderr.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a locale that cannot print a character shows its escape instead of failing
            stream.reconfigure(errors="backslashreplace")
    with _terminable() as signals, _heard(signals):
        code = _concluded(command, as_json)
    # who says something to a terminal that is gone gets an error for it, which nobody can foresee
    if signals and (code == INTERRUPTED or (signal.SIGHUP in signals and code == BUG)):
        code = _ENDING[signals[0]]
    if code in _STOPPED:
        talk(f"{PROGRAM}: {said(_STOPPED[code])}")
    _give_up_full_stderr()
    return code


@contextlib.contextmanager
def _terminable() -> Iterator[list[signal.Signals]]:
    """SIGTERM, and SIGHUP of a closed terminal, end a command as Ctrl-C does: what it began is tidied up, and it says
    how far it came. Yields where such a signal is noted. A signal that already has a handler, or is ignored as by
    nohup, stays as it is."""
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
            # what it has sent already is raised here, where the command is over: later it would end the process
            with contextlib.suppress(KeyboardInterrupt):
                timer.join()


def _concluded(command: Callable[[], int], as_json: bool) -> int:
    code = OK
    forget_done()
    try:
        code = _answered(command, as_json)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _closed_pipe(as_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        # only the last flush of stdout can end here: _answered turns everything else into a code
        _discard(sys.stdout)
        if code != WRITE_FAILED:  # else that was said already
            say_error(output_failed(error), as_json)
        return WRITE_FAILED


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
    code = exit_code_of(error) if exit_code is None else exit_code
    if as_json:
        talk(error_line(error, code, usage))
        return code
    talk(f"{PROGRAM}: {said(str(error))}")
    for more in filter(None, (error.hint, *error.notes)):
        talk(f"  {said(more)}")
    if usage:
        talk(usage, keep_newlines=True)
    return code


def error_line(error: RmqctlError, exit_code: int | None = None, usage: str | None = None) -> str:
    """Return an error as a JSON object on one line, without its end; `exit_code` is by default that of its class."""
    code = exit_code_of(error) if exit_code is None else exit_code
    fields = {"file": error.file, "physical_offset": error.physical_offset, "hint": error.hint, "usage": usage}
    known = {name: value for name, value in fields.items() if value is not None}
    row = {"error": error.code, "exit_code": code, "message": error.message, **known, **error.details}
    return json_line(row).rstrip("\n")


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
    return say_error(RmqctlError(f"unexpected {type(error).__name__}: {error}", hint=hint), as_json, BUG)


def _show_traceback(error: Exception) -> bool:
    if os.environ.get(DEBUG_VARIABLE, "0") in ("", "0"):
        return False
    import traceback

    text = "".join(traceback.format_exception(error))
    talk(text.rstrip("\n"), keep_newlines=True)
    return True


def _closed_pipe(as_json: bool) -> int:
    """Handle a closed stdout, which is how `| head` ends: no error, and the interpreter must not flush again.

    A change whose result went unread is named: the caller must not make it twice. It is done, so the exit code is 0.
    """
    _discard(sys.stdout)
    lost = output_lost("its reader has gone")
    if lost is not None:
        say_error(lost, as_json, OK)
    return OK


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


# Report damage, unread parts of the store and bad items on stderr, and count them.

# beyond this, damage and bad items are only counted on stderr
_TOLD = 20


class ToldDamage:
    """Report damage as it is met, once where it has no place, and what makes an answer uncertain once each; count
    both."""

    def __init__(self, output: Output) -> None:
        self.count = 0
        self._output = output
        self._uncertain: set[str] = set()
        self._placeless: set[str] = set()

    @property
    def is_uncertain(self) -> bool:
        """Return whether a part of the store that counts was not read, or lags behind the log."""
        return bool(self._uncertain)

    def __call__(self, error: CorruptError) -> None:
        """Report one damaged place, or one part that was not read."""
        if isinstance(error, UncertainError):
            self._report_uncertain(error)
            return
        if error.physical_offset is None:
            if str(error) in self._placeless:
                return
            self._placeless.add(str(error))
        self.count += 1
        if isinstance(error, UnreadPartError):
            self._output.talk(f"not read: {error}{_hint(error)}")
        elif self.count <= _TOLD:
            self._output.talk(f"damage: {error}")
        elif self.count == _TOLD + 1:
            self._output.talk("damage: more of it follows, which is only counted")

    def _report_uncertain(self, error: CorruptError) -> None:
        if str(error) not in self._uncertain:
            self._uncertain.add(str(error))
            self._output.talk(f"not certain: {error}{_hint(error)}")


def report_unsearched(criteria: Criteria, damage: ToldDamage) -> None:
    """Report the messages that may be meant: of bodies that --grep could not search, and of impossible times."""
    for error in criteria.unsure_errors():
        damage(error)


def _hint(error: CorruptError) -> str:
    return f"; {error.hint}" if error.hint else ""


def tell_bad_items(output: Output, item: str, errors: dict[int, str], before: int) -> int:
    """Name what is wrong with some items, behind as many `before` them; how many there are then."""
    for count, (number, why) in enumerate(sorted(errors.items()), start=before + 1):
        if count <= _TOLD:
            output.talk(f"{item} {number}: {why}")
        elif count == _TOLD + 1:
            output.talk(f"further bad {item}s are only counted")
    return before + len(errors)


# How the answer to a question of consumers is told: its rows as data, damage in its way and what it lacks as talk.


class AnswerRow(Protocol):
    """A row of an answer: a named tuple."""

    def _asdict(self) -> dict[str, Any]: ...


def tell_answer(
    output: Output,
    columns: Sequence[str],
    ask: Callable[[Events], Iterable[AnswerRow | dict[str, Any]]],
    otherwise: NotFoundError,
    droppable: Sequence[str] = (),
) -> int:
    """Print what `ask(events)` gives, and return the exit code.

    Raises: `otherwise` for an answer without rows; HiddenByDamageError if damage may be what hides them.
    """
    from rmqctl.store.options import Events

    damage = ToldDamage(output)
    rows = (row if isinstance(row, dict) else row._asdict() for row in ask(Events(damage=damage, note=output.talk)))
    count = output.rows(columns, rows, droppable=droppable)
    if not count and damage.count:
        raise hidden_by_damage(damage.count, otherwise)
    if not count and not damage.is_uncertain:
        raise otherwise
    return DAMAGE_OR_NOTHING if damage.count or damage.is_uncertain else OK


def hidden_by_damage(places: int, otherwise: NotFoundError, hint: str | None = None) -> HiddenByDamageError:
    """Return the error for a lookup without a result in a store with damaged `places`. `hint`: a way past it."""
    found = counted(places, "damaged place")
    return HiddenByDamageError(
        f"not found, but {found} may hide it: {otherwise.message}",
        hint=hint or otherwise.hint or "`rmqctl check` lists the damage",
    )


# How servers that did not answer are told: one sentence each on stderr, and the exit code.


class Unanswered:
    """Takes errors of servers."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._told: set[str] = set()

    def __call__(self, error: RemoteError) -> None:
        """Report a server, once."""
        if error.message not in self._told:
            self._told.add(error.message)
            self._output.talk(error.message)

    def exit_code(self) -> int:
        """What the command ends with: UNREADABLE where something is missing."""
        return UNREADABLE if self._told else OK


# Confirmation of losses: a command prints their size and prompts on a terminal, and needs --yes elsewhere.
#
# Losses are valid messages that the store lacks afterwards, kept or not; data removed without undo (a change without a
# journal, files that `clean` removes, undo data, a file that is replaced); unread messages that a group skips. Data
# moved into a journal is not gone; nor are damaged bytes, whose number of messages is unknown.


def agrees(what: str, *, yes: bool) -> bool:
    """Return whether a command may do `what`, such as "deletes 3 messages": at once with `yes`, else after a prompt.
    RefusedError without a terminal to prompt on."""
    if yes:
        return True
    if not _is_terminal():
        raise RefusedError(f"this {what}; no terminal to prompt on", hint="confirm with --yes")
    import click

    from rmqctl.output.table import visible

    with aside():
        return click.confirm(visible(said(f"This {what}. Continue?")), default=False, err=True)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def confirm_loss(yes: bool, unread: str = "that the group has not read") -> Callable[[Loss], None]:
    """Return the callback that confirms a loss. `unread` describes the messages that a group skips. click.Abort if
    the user declines; RefusedError as `agrees`."""

    def confirm(loss: Loss) -> None:
        _require_agreed(_told(loss, unread), yes)

    return confirm


def _require_agreed(what: str, yes: bool) -> None:
    if not agrees(what, yes=yes):
        import click

        raise click.Abort


def _told(loss: Loss, unread: str) -> str:
    from rmqctl.output.table import human_size

    told = []
    if loss.messages:
        told.append(f"deletes {counted(loss.messages, 'message')}")
    if loss.skipped:
        told.append(f"skips {counted(loss.skipped, 'message')} {unread}")
    if loss.files:
        size = f"{human_size(loss.bytes)} in {counted(loss.files, 'file')}"
        told.append(f"removes or overwrites {size} without undo")
    return ", ".join(told)


def require_agreed_file(path: Path, overwrite: bool, yes: bool) -> None:
    """Confirm that an existing file may be replaced. click.Abort and RefusedError as `agrees`."""
    from rmqctl.output.table import human_size
    from rmqctl.store.files.reading import is_file

    if overwrite and is_file(path):  # into devices and pipes is written, they are not replaced
        _require_agreed(f"replaces {path} ({human_size(path.stat().st_size)})", yes)
