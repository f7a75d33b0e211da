"""How far a check of a store came that is done bit by bit: kept in a file beside the store, never inside it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.store.files import io

VERSION = 1
SAVED_EVERY_S = 60.0
"""How much time of a check an interruption may cost."""


class ScrubState(NamedTuple):
    """`next_offset`: physical offset of the file to begin with, None where a pass is complete. Times in ms.

    `passes`: how often the whole was checked since the file was made; `alarms` of the pass that is under way.
    """

    level: str
    subset: str | None = None
    next_offset: int | None = None
    pass_started: int = 0
    passes: int = 0
    alarms: int = 0
    updated: int = 0


def default_path(root: Path) -> Path:
    """Where the state goes if nobody says: beside the store."""
    return root.with_name(root.name + ".check.json")


def load_state(path: Path, level: str, subset: str | None) -> ScrubState:
    """The state in `path`; a new one if there is none, or if it is of another level or subset.

    UsageError for a file that is something else: it is not overwritten.
    """
    now = time.time_ns() // 1_000_000
    new = ScrubState(level, subset, None, now)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("version") != VERSION:
            raise ValueError
        state = ScrubState(**content)
        if not _is_possible(state):
            raise ValueError
    except FileNotFoundError:
        return new
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(
            "is no state of a check", file=path, hint="name another file, or remove it to begin anew"
        ) from error
    return state if (state.level, state.subset) == (level, subset) else new


def _is_possible(state: ScrubState) -> bool:
    """Whether every number is one that a check writes; JSON of Python's may say Infinity."""
    numbers = [state.pass_started, state.passes, state.alarms, state.updated]
    if state.next_offset is not None:
        numbers.append(state.next_offset)
    return all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)


def save_state(path: Path, state: ScrubState) -> None:
    """Replace the file: the old or the new state, never half."""
    now = time.time_ns() // 1_000_000
    text = json.dumps({"version": VERSION, **state._replace(updated=now)._asdict()}, indent=1)
    io.write_whole(path, text.encode("utf-8"))
