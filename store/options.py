"""What a caller may say beside the question itself: how a change is made, and who hears of what happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from pathlib import Path


class Loss(NamedTuple):
    """What a change takes away: good messages that the log does not have afterwards; and where nothing is kept, files
    that are removed or overwritten, with the bytes of them that are gone for good. `skipped`: messages that groups have
    not read and are set behind."""

    messages: int = 0
    files: int = 0
    bytes: int = 0
    skipped: int = 0


class ChangeOptions(NamedTuple):
    """How a change of a store is made.

    `dry_run`: only plan. `keep_undo`: keep what is removed or overwritten in a journal; without it there is no undo.
    `command_line`: the arguments that `rmqctl log` shows. `journal_in`: the directory of the journal; None: beside the
    store. `progress`: gets the bytes read, again and again. `confirm`: gets the Loss where the change takes messages
    away, or anything for good, under the lock and before anything changes; it raises to stop the change.
    """

    dry_run: bool = False
    keep_undo: bool = True
    command_line: list[str] | None = None
    journal_in: Path | None = None
    progress: Callable[[int], None] | None = None
    confirm: Callable[[Loss], None] | None = None

    def reporting(self, progress: Callable[[int], None]) -> Self:
        """Return the same with a receiver of `progress`."""
        return self._replace(progress=progress)
