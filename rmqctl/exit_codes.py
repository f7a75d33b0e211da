"""The exit codes of the command line: what each means, and which error ends with which."""

from __future__ import annotations

from rmqctl.formats.errors import (
    CorruptError,
    EngineError,
    NotAStoreError,
    NotFoundError,
    RefusedError,
    RemoteError,
    RmqctlError,
    StoreInUseError,
    UncertainError,
    UnreadableError,
    UnsupportedError,
    UsageError,
    WriteFailedError,
)

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
    DAMAGE_IN_THE_WAY: "a lookup cannot be answered: damage may hide what was asked for",
    BUG: "a bug of rmqctl",
    HUNG_UP: "ended because its terminal was closed (SIGHUP)",
    INTERRUPTED: "interrupted by Ctrl-C",
    TERMINATED: "ended by SIGTERM",
}

EXIT_CODES: dict[type[RmqctlError], int] = {
    CorruptError: DAMAGE_IN_THE_WAY,
    NotFoundError: DAMAGE_OR_NOTHING,
    UncertainError: DAMAGE_OR_NOTHING,
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
