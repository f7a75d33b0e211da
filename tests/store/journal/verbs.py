"""Everything that reads a journal or removes one, each with the store that it is run on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.message import Message
from rmqctl.store.files import io, lock
from rmqctl.store.journal.folder import GONE
from rmqctl.store.journal.log import unfinished_change
from rmqctl.store.message_store import MessageStore
from tests.store.files.crashing import crashed, recorded
from tests.store.journal.commands import (
    COMMANDS,
    CONFIG,
    FILE_SIZE,
    Command,
    Kept,
    disk_of,
    layout_of,
    messages,
    put,
    truncated_at,
)

STORED = 56
"""Messages of a store before anything happens to it: in four files."""

Prepare = Callable[[Path], object]


class Verb(NamedTuple):
    """`prepare` makes the store, `work` is what is stopped. `takes`: physical offsets, first and end, of the messages
    that it is asked to take away. `program`: the same as `work` in a process of its own, where it needs threads."""

    prepare: Prepare
    work: Command
    takes: Callable[[Path], tuple[int, int]] = lambda root: (0, 0)
    program: str = ""


def whole(root: Path) -> None:
    """A store that was closed cleanly."""
    disk_of(root).mkdir(parents=True)
    MessageStore.open(root, "rw", CONFIG, create=True).close()
    put(root, "before", STORED)
    root.with_name("cut").write_text(str(sorted(messages(root))[19].physical_offset))


def long(root: Path) -> None:
    """A store of so many files that a recovery does not look at the first ones."""
    whole(root)
    put(root, "further", STORED)


def broken(root: Path) -> None:
    """The process was killed: the last message is half there, a queue file is missing, another one's end is zeros."""
    whole(root)
    (root / "abort").write_text("1")
    last = sorted((root / "commitlog").iterdir())[-1]
    end = len(last.read_bytes().rstrip(b"\0"))
    with last.open("r+b") as file:
        file.seek(end)
        file.write(bytes((0, 0, 1, 200, 0xDA, 0xA3, 0x20, 0xA7)) + b"torn" * 20)
    first, *_, tail = sorted((root / "consumequeue" / "T" / "0").iterdir())
    first.unlink()
    os.truncate(tail, 0)
    os.truncate(tail, 400)


def damaged(root: Path) -> None:
    """Bytes of the second file of the log were overwritten, and good messages follow."""
    whole(root)
    hit = sorted(messages(root))[25]
    with (root / "commitlog" / f"{FILE_SIZE:020d}").open("r+b") as file:
        file.seek(hit.physical_offset - FILE_SIZE)
        file.write(b"\xff" * 40)


def _behind_the_damage(root: Path) -> tuple[int, int]:
    return sorted(messages(root))[25].physical_offset, 1 << 60


def _behind_the_cut(root: Path) -> tuple[int, int]:
    return truncated_at(root), 1 << 60


def _but_the_last_file(root: Path) -> tuple[int, int]:
    return 0, int(sorted((root / "commitlog").iterdir())[-1].name)


def _after(prepare: Prepare, *names: str) -> Prepare:
    """A store with which these commands were run."""

    def work(root: Path) -> None:
        prepare(root)
        for name in names:
            COMMANDS[name](root)

    return work


def _killed(prepare: Prepare, name: str, *then: Command, part: float = 0.7) -> Prepare:
    """A store with which a command was run that was killed when so much of its work was done, and what came then."""

    def work(root: Path) -> None:
        beside = root.parent / "beside" / root.name
        prepare(beside)
        changes = len(recorded(lambda: COMMANDS[name](beside)))
        io.remove_tree(beside.parent)
        prepare(root)
        assert crashed(lambda: COMMANDS[name](root), int(changes * part))
        lock._held.clear()
        for step in then:
            step(root)

    return work


def _is_unfinished(root: Path) -> None:
    assert unfinished_change(layout_of(root))


def _used(root: Path) -> None:
    """Somebody wrote to the log."""
    _is_unfinished(root)
    os.utime(root / "lock")
    last = sorted((root / "commitlog").iterdir())[-1]
    os.utime(last)


def _given_up(root: Path) -> None:
    _used(root)
    COMMANDS["undo --give-up"](root)


def _mended(root: Path) -> None:
    _given_up(root)
    COMMANDS["recover"](root)


def _has_leftovers(root: Path) -> None:
    assert [path.name for path in layout_of(root).kept.iterdir() if path.name.endswith(GONE)]


def _disk_gone(root: Path) -> None:
    disk_of(root).rename(root.with_name("unplugged"))


def _taken_back_by_ctrl_c(root: Path) -> None:
    """A recovery in which Ctrl-C comes when it is nearly done."""
    count = 0
    inner = io.observer

    def look(operation: str, path: str, offset: int, length: int) -> None:
        nonlocal count
        if inner is not None:
            inner(operation, path, offset, length)
        if operation == "move" and path.endswith("abort"):
            io.observer = inner
            raise KeyboardInterrupt

    io.observer = look
    with contextlib.suppress(KeyboardInterrupt):
        COMMANDS["recover"](root)


_APPEND = """
import sys
from pathlib import Path
from tests.store.journal.verbs import put_one_by_one
put_one_by_one(Path(sys.argv[1]))
"""


def put_one_by_one(root: Path) -> None:
    """Append into further files, and note beside the store how many are acknowledged."""
    with MessageStore.open(root, "rw", CONFIG) as store, root.with_name("acknowledged").open("wb", 0) as noted:
        for number in range(30):
            body = f"while {number} ".encode().ljust(300, b".")
            assert store.put(Message("T", body, 0, 0, {"KEYS": f"while-{number}"})).status.is_stored
            noted.write(b"+")
        store.flush()


def acknowledged(root: Path) -> frozenset[Kept]:
    """What `put_one_by_one` got an answer for until it was stopped."""
    noted = root.with_name("acknowledged")
    count = noted.stat().st_size if noted.is_file() else 0
    expected = {f"while {number}" for number in range(count)}
    found = frozenset(one for one in messages(root) if " ".join(one.body.decode().split()[:2]) in expected)
    assert len(found) == count, "an acknowledged message did not outlive the process"
    return found


def _plainly(name: str, prepare: Prepare, takes: Callable[[Path], tuple[int, int]] | None = None) -> Verb:
    return Verb(prepare, COMMANDS[name]) if takes is None else Verb(prepare, COMMANDS[name], takes)


VERBS: dict[str, Verb] = {
    "recover": _plainly("recover", broken),
    "recover --bridge": _plainly("recover --bridge", damaged),
    "recover --cut": _plainly("recover --cut", damaged, _behind_the_damage),
    "recover --cut --no-journal": _plainly("recover --cut --no-journal", damaged, _behind_the_damage),
    "recover --no-journal": _plainly("recover --no-journal", broken),
    "recover --journal": _plainly("recover --journal", broken),
    "recover, Ctrl-C": Verb(broken, _taken_back_by_ctrl_c),
    "recover behind rebuild --no-journal": _plainly("recover", _killed(broken, "rebuild --no-journal")),
    "recover of what was given up": _plainly("recover", _killed(broken, "recover", _given_up, part=0.56)),
    "rebuild": _plainly("rebuild", broken),
    "rebuild --no-journal": _plainly("rebuild --no-journal", broken),
    "rebuild --no-journal again": _plainly("rebuild --no-journal", _killed(broken, "rebuild --no-journal")),
    "rebuild --journal": _plainly("rebuild --journal", broken),
    "repair": _plainly("repair", broken),
    "repair --no-journal": _plainly("repair --no-journal", broken),
    "repair --journal": _plainly("repair --journal", broken),
    "truncate": _plainly("truncate", whole, _behind_the_cut),
    "truncate --no-journal": _plainly("truncate --no-journal", whole, _behind_the_cut),
    "truncate --no-journal again": _plainly(
        "truncate --no-journal", _killed(whole, "truncate --no-journal", part=0.42), _behind_the_cut
    ),
    "truncate, of many files": _plainly("truncate", long, _behind_the_cut),
    "truncate --no-journal, of many files": _plainly("truncate --no-journal", long, _behind_the_cut),
    "truncate --journal": _plainly("truncate --journal", whole, _behind_the_cut),
    "clean": _plainly("clean", _after(whole, "rebuild"), _but_the_last_file),
    "undo": _plainly("undo", _after(broken, "recover")),
    "undo of truncate": _plainly("undo", _after(whole, "truncate")),
    "undo of a killed one": _plainly("undo", _killed(broken, "recover")),
    "undo of a killed undo": _plainly("undo", _killed(_after(broken, "recover"), "undo")),
    "undo of --journal": _plainly("undo", _after(broken, "recover --journal")),
    "undo of a mend": _plainly("undo", _killed(broken, "recover", _mended, part=0.56)),
    "undo --give-up": _plainly("undo --give-up", _killed(broken, "recover", _used)),
    "undo --give-up, disk gone": _plainly("undo --give-up", _killed(broken, "recover --journal", _disk_gone)),
    "resume": _plainly("resume", _killed(broken, "recover")),
    "resume of an undo": _plainly("resume", _killed(_after(broken, "recover"), "undo")),
    "resume of truncate": _plainly("resume", _killed(whole, "truncate"), _behind_the_cut),
    "resume of --journal": _plainly("resume", _killed(broken, "recover --journal")),
    "log --prune": _plainly("log --prune", _after(broken, "recover", "rebuild")),
    "log --prune of what was undone": _plainly("log --prune", _after(broken, "recover", "undo")),
    "log --prune of --journal": _plainly("log --prune", _after(broken, "recover --journal")),
    "log --prune of what was mended": _plainly("log --prune", _killed(broken, "recover", _mended)),
    "log --prune of a killed one": _plainly(
        "log --prune", _killed(_after(broken, "recover"), "log --prune", _has_leftovers, part=0.85)
    ),
    "append": Verb(_after(whole, "rebuild"), put_one_by_one, program=_APPEND),
}
"""A verb's name, with the state that it finds where that matters."""
