"""Whoever else may use a store between two steps of a command of ours, and what a user is told to do then."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import RmqctlError
from tests.store.journal.commands import COMMANDS, Kept, messages, put


class Use(NamedTuple):
    """What somebody did: messages that were acknowledged to him, and those that he took away."""

    stored: frozenset[Kept] = frozenset()
    taken: frozenset[Kept] = frozenset()


Outsider = Callable[[Path], Use]


def _linked(root: Path) -> Path:
    link = root.with_name("link")
    link.symlink_to(root)
    return link


def _append(root: Path) -> Use:
    with contextlib.suppress(RmqctlError):
        return Use(frozenset(put(root, "other")))
    return Use()


def _command(name: str, place: Callable[[Path], Path] = lambda root: root) -> Outsider:
    """One of our commands, which may refuse."""

    def use(root: Path) -> Use:
        with contextlib.suppress(RmqctlError):
            COMMANDS[name](place(root))
        return Use()

    return use


def _clean(root: Path) -> Use:
    """Ours, which refuses where a change was interrupted, and else takes what is old."""
    before = messages(root)
    with contextlib.suppress(RmqctlError):
        COMMANDS["clean"](root)
    return Use(taken=frozenset(before - messages(root)))


def _cleaner(root: Path) -> Use:
    """The oldest file of the log goes, as a broker's cleaner begins."""
    oldest, *others = sorted((root / "commitlog").iterdir())
    if not others:
        return Use()
    before = messages(root)
    oldest.unlink()
    return Use(taken=frozenset(before - messages(root)))


def _broker(root: Path) -> Use:
    """What a broker does, which knows of no journal: it recovers in its own way, keeps what it stores, and stops."""
    before = messages(root)
    away = root.with_name("away") / root.name
    away.parent.mkdir()
    root.rename(away)
    stored: frozenset[Kept] = frozenset()
    with contextlib.suppress(RmqctlError):  # it does not start, either
        COMMANDS["a broker's recovery"](away)
        stored = frozenset(put(away, "broker"))
        (away / "lock").write_text("lock")
    away.rename(root)
    shutil.rmtree(away.parent)
    return Use(stored, frozenset(before - messages(root)))


OUTSIDERS: dict[str, Outsider] = {
    "nobody": lambda root: Use(),
    "append": _append,
    "broker": _broker,
    "cleaner": _cleaner,
    "append by a link": lambda root: _append(_linked(root)),
    "recover by a link": _command("recover", _linked),
    "undo by a link": _command("undo", _linked),
    "resume": _command("resume"),
    "rebuild --no-journal": _command("rebuild --no-journal"),
    "log --prune": _command("log --prune"),
    "clean": _clean,
}


def way_out(root: Path, prefers: str) -> list[str]:
    """Append, and as long as that is refused do what the hint says, `prefers` (undo or resume) where both are named.
    Returns the commands that were run; AssertionError at a dead end."""
    done: list[str] = []
    while len(done) < 8:
        try:
            put(root, "last", 1)
            return done
        except RmqctlError as error:
            refusal = error
        failed: list[str] = []
        while True:
            named = [name for name in _commands_in(refusal, root) if name not in failed]
            assert named, f"a dead end after {done}: {refusal} [{refusal.hint}], tried {failed}"
            name = prefers if prefers in named else named[0]
            done.append(name)
            try:
                COMMANDS[name](root)
                break
            except RmqctlError as error:
                refusal = error
                failed.append(name)
    raise AssertionError(f"no end: {done}")


def _commands_in(error: RmqctlError, root: Path) -> list[str]:
    """The commands that a hint names, the first first: each as it can be pasted into a shell."""
    found = []
    for text in re.findall(r"`rmqctl ([^`]+)`", str(error.hint)):
        verb, *words = shlex.split(text)
        if "-s" in words:
            assert words[words.index("-s") + 1 :] == [str(root)], text
        found.append(" ".join([verb, *(word for word in words if word.startswith("--"))]))
    return [name for name in found if name in COMMANDS]
