"""The one family of errors: every failure a user can meet carries a stable code, a place and what to do next."""

from __future__ import annotations

import errno
import functools
import os
from typing import Any, ClassVar, Literal

# How things are written in a text: a number of them, `1 unit points`, `2 units point`, lengths of time, moments.


def counted(number: int, one: str, several: str | None = None) -> str:
    """The number with `one` or `several` behind it; `several` is `one` with an s if it is not given."""
    return f"{number} {one if number == 1 else several or one + 's'}"


_SPANS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


def lasting(milliseconds: int) -> str:
    """A length of time in its two largest units: `2 days 3 hours`; milliseconds where it is below a second."""
    rest = abs(milliseconds)
    parts: list[str] = []
    for unit, size in _SPANS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(counted(count, unit))
        if len(parts) == 2 or (parts and not count):
            break
    return " ".join(parts[:2]) or f"{abs(milliseconds)} ms"


def lasting_in_short(milliseconds: int) -> str:
    """The same for a cell of a table, as exact as `lasting`: `2d 3h`, `16s`, `709ms`; with its sign."""
    if -1000 < milliseconds < 1000:
        return f"{milliseconds}ms"
    words = lasting(milliseconds).split()
    short = " ".join(count + unit[0] for count, unit in zip(words[::2], words[1::2], strict=True))
    return f"-{short}" if milliseconds < 0 else short


def format_time(milliseconds: int) -> str:
    """ISO 8601 in UTC with milliseconds, `2023-11-14T22:13:20.000Z`.

    The bare number for what no calendar holds (before the year 1 or after 9999), which damaged bytes may well say.
    """
    seconds, rest = divmod(milliseconds, 1000)
    second = _second(seconds)
    return str(milliseconds) if second is None else f"{second}.{rest:03}Z"


@functools.lru_cache(maxsize=64)
def _second(seconds: int) -> str | None:
    """A second as ISO 8601, None beyond the calendar. Messages that stand together are stored in few seconds."""
    from datetime import datetime, timedelta  # not for who only counts

    try:
        return (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        return None


def joined_hints(*hints: str | None) -> str:
    """Several hints as one."""
    return "; ".join(hint for hint in hints if hint)


_addresses: dict[str, str] = {}


def stand_for(folder: str, address: str) -> None:
    """Report everything below `folder`, a unique absolute path, as below `address` from now on."""
    _addresses[folder] = address


def forget_place(folder: str) -> None:
    """Take `stand_for` back."""
    _addresses.pop(folder, None)


def told(text: str) -> str:
    """The text with addresses in the place of folders that stand for them."""
    if _addresses:
        for folder, address in tuple(_addresses.items()):
            text = text.replace(folder, address)
    return text


class RmqctlError(Exception):
    """Base class of all errors.

    `file` and `physical_offset` name the place, `hint` says what to do next. `code` is stable across releases.
    `notes` are further lines for people, `details` further fields for programs.
    """

    code: ClassVar[str] = "RMQ-E-000"

    def __init__(
        self,
        message: str,
        *,
        file: str | os.PathLike[str] | None = None,
        physical_offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = None if file is None else os.fspath(file)
        self.physical_offset = physical_offset
        self.hint = hint
        self.notes: tuple[str, ...] = ()
        self.details: dict[str, Any] = {}

    def __str__(self) -> str:
        place = self.file or ""
        if self.physical_offset is not None:
            place += f"{' ' if place else ''}at offset {self.physical_offset}"
        return told(f"{place}: {self.message}" if place else self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process, which knows a store on a server by its address only."""
        return type(self), (told(self.message),), self._told()

    def _told(self) -> dict[str, Any]:
        return {name: told(value) if isinstance(value, str) else value for name, value in self.__dict__.items()}

    def keep_addresses(self) -> None:
        """Name addresses from now on, as their folders are forgotten before this error is printed."""
        self.__dict__.update(self._told())


class UsageError(RmqctlError):
    """Invalid call: a malformed id, time, option or input line."""

    code = "RMQ-E-002"


class NotAStoreError(RmqctlError):
    """The path is missing, empty, or not a RocketMQ store."""

    code = "RMQ-E-003"


class UnreadableError(RmqctlError):
    """A store file cannot be read (permissions, I/O error, it shrank during reading)."""

    code = "RMQ-E-004"


class RemovedError(UnreadableError):
    """A file was removed during reading. If the log's beginning has moved, a cleaner removed it, and the reader
    continues there: neither damage nor an I/O error."""

    code = "RMQ-E-016"


class CorruptError(RmqctlError):
    """Damaged data. Never reported as absence."""

    code = "RMQ-E-005"


class UncertainError(CorruptError):
    """The answer depends on a part of the store that was not read or lags the log. Nothing is damaged, but the answer
    may be wrong."""

    code = "RMQ-E-040"


class UnreadPartError(CorruptError):
    """A small file beside the messages cannot be read. The answer lacks only its content."""

    code = "RMQ-E-050"


class NotFoundError(RmqctlError):
    """The store does not have it, and no damage could hide it."""

    code = "RMQ-E-006"


class HiddenByDamageError(CorruptError):
    """It was not found, and damage may hide it."""

    code = "RMQ-E-020"


class UnsupportedError(RmqctlError):
    """A recognised format that is not supported (RocksDB queues, DLedger, ...)."""

    code = "RMQ-E-007"


class StoreInUseError(RmqctlError):
    """A broker or another writer holds the store."""

    code = "RMQ-E-008"


class RefusedError(RmqctlError):
    """The operation needs a decision or a flag of the user."""

    code = "RMQ-E-009"


class WriteFailedError(RmqctlError):
    """An I/O error while writing (disk full, failed fsync). No partial output is visible."""

    code = "RMQ-E-010"


class DiskFullError(WriteFailedError):
    """No space left, or the quota is exhausted."""

    code = "RMQ-E-013"


class EngineError(RmqctlError):
    """Spark did not start or lost its executors. The store is unchanged."""

    code = "RMQ-E-015"


class RemoteError(RmqctlError):
    """A name server or broker cannot be reached, does not answer, or answers with an error."""

    code = "RMQ-E-018"


EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Error numbers of opening a file that say nothing of the file: the process has too little."""


# how the dynamic loader says so, inside an ImportError
_NO_FOLDER = "something else is where a folder belongs: look what it is, and move it elsewhere"
_SIGNS_OF_LOADING = ("failed to map segment", "annot allocate memory", "oo many open files")


class ExhaustedError(WriteFailedError):
    """Too few file descriptors, too little memory or no thread. The store is unaffected: raise the limit."""

    code = "RMQ-E-021"


def exhausted(error: BaseException, file: str | os.PathLike[str] | None = None) -> ExhaustedError | None:
    """Return what to raise for an error that says that the process lacks something; None for any other error."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        of_all = error.errno == errno.ENFILE
        return ExhaustedError(
            f"cannot be opened: {error.strerror}" if file or error.filename else str(error.strerror),
            file=file or error.filename,
            hint="raise the limit of the machine (fs.file-max)" if of_all else "raise the limit (ulimit -n)",
        )
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return ExhaustedError("out of memory", file=file, hint="raise the limit of memory (ulimit -v, cgroup)")
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return ExhaustedError(
            "no thread can be started",
            file=file,
            hint="raise the limits of processes and memory (ulimit -u, ulimit -v)",
        )
    if isinstance(error, ImportError) and any(sign in str(error) for sign in _SIGNS_OF_LOADING):
        return ExhaustedError(
            f"a library cannot be loaded: {str(error).rpartition(': ')[2].rstrip(')')}",
            hint="raise the limits of memory and of open files (ulimit -v, ulimit -n)",
        )
    return None


def refuse_exhausted(error: Exception, file: str | os.PathLike[str] | None = None) -> None:
    """Raise ExhaustedError where `error` says that the process lacks something: then nothing is known of the file."""
    found = exhausted(error, file)
    if found is not None:
        raise found from error


def unreadable(
    error: OSError,
    file: str | os.PathLike[str],
    what: Literal["read", "listed", "opened"] = "read",
    hint: str | None = None,
) -> UnreadableError:
    """Return the error of a file that cannot be read, listed or opened. ExhaustedError as `refuse_exhausted`."""
    refuse_exhausted(error, file)
    # in full, for the translations
    texts = {
        "read": f"cannot be read: {error.strerror}",
        "listed": f"cannot be listed: {error.strerror}",
        "opened": f"cannot be opened: {error.strerror}",
    }
    if what == "listed" and error.errno == errno.ENOTDIR:
        hint = hint or _NO_FOLDER
    return UnreadableError(texts[what], file=file, hint=hint)
