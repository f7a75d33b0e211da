"""What a caller may say beside the question itself: how a change is made, and who hears of what happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Self, TypedDict

from rmqctl.formats.errors import CorruptError

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.formats.message import Host


class Events(NamedTuple):
    """Who hears of what happens while a store is read. `progress` gets the bytes read, again and again; `damage` what
    is damaged, and the rest is read: without it the first is raised; `note` sentences about an answer as a whole."""

    progress: Callable[[int], None] | None = None
    damage: Callable[[CorruptError], None] | None = None
    note: Callable[[str], None] | None = None

    def passed(self, size: int) -> None:
        """Report that number of read bytes, if there is a callback."""
        if self.progress is not None:
            self.progress(size)

    def damaged(self, error: CorruptError) -> None:
        """Report damage. Raises: the error, where nothing takes it."""
        if self.damage is None:
            raise error
        self.damage(error)

    def noted(self, sentence: str) -> None:
        """Report a note, if something takes it."""
        if self.note is not None:
            self.note(sentence)


UNHEARD = Events(damage=lambda error: None)
"""Nothing is reported, and damage is read past."""


class KeyChoice(TypedDict, total=False):
    """What chooses among the messages with a key. `tags` ('TagA || TagB') and `grep`, a regular expression, as in
    Criteria. `index_type` "T": messages whose TAGS value is the key instead. `scan`: search the commitlog where the
    index does not reach or is damaged."""

    tags: str | None
    grep: str | None
    index_type: str
    scan: bool


class WriteOptions(TypedDict, total=False):
    """How a store is opened for writing.

    `create`: make a missing or empty directory a new store. `full_check`: check the CRCs of the whole log, not of its
    last three files. `allocate_ahead` (the default): let a thread create the next commitlog file early.
    `obey_disk_ratio`: refuse puts from diskSpaceWarningLevelRatio on, as a broker does. `clean_expired`: remove expired
    files every cleanResourceInterval (10 s) by the broker's rules, which take young files too from a disk that is
    nearly full. `store_host`: of new messages; None: that of the last message, 127.0.0.1:10911 in an empty store.
    `clock`: ms since 1970. `progress`: gets the bytes read, again and again.
    """

    create: bool
    full_check: bool
    allocate_ahead: bool
    obey_disk_ratio: bool
    clean_expired: bool
    store_host: Host | None
    clock: Callable[[], int] | None
    progress: Callable[[int], None] | None


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
    `below_confirm`: of a store under a controller, the log may be cut before what in-sync replicas have confirmed.
    """

    dry_run: bool = False
    keep_undo: bool = True
    command_line: list[str] | None = None
    journal_in: Path | None = None
    progress: Callable[[int], None] | None = None
    confirm: Callable[[Loss], None] | None = None
    below_confirm: bool = False

    @property
    def events(self) -> Events:
        """Who hears of what happens meanwhile."""
        return Events(self.progress)

    def reporting(self, progress: Callable[[int], None]) -> Self:
        """Return the same with a receiver of `progress`."""
        return self._replace(progress=progress)


# Sentences for whoever waits for an answer, of the whole process: each is said once.

_listeners: list[Callable[[str], None]] = []
_said: set[str] = set()


def tell_notices(listener: Callable[[str], None] | None) -> None:
    """Call `listener` with sentences for people; None for no listener. A new listener gets each sentence once."""
    wanted = [listener] if listener is not None else []
    if wanted != _listeners:
        _listeners[:] = wanted
        _said.clear()


def notice(sentence: str) -> None:
    """Notify the listener of a sentence, once."""
    if _listeners and sentence not in _said:
        _said.add(sentence)
        for listener in tuple(_listeners):
            listener(sentence)


def say(sentence: str) -> None:
    """Say what a reader has to know of its answer: to the listeners, each time; without any, as a warning of the logger
    `rmqctl.store`, which Python prints to stderr where no handler is set."""
    if _listeners:
        for listener in tuple(_listeners):
            listener(sentence)
        return
    import logging  # here, because most commands never log

    logging.getLogger("rmqctl.store").warning(sentence)
