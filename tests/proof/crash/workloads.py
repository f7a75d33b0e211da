"""What is recorded and cut: each workload, the store that it finds, its steps, and what has to hold of every cut."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from rmqctl.store.config.config import StoreConfig
from rmqctl.store.journal.journal import changing
from rmqctl.store.journal.plan import CreateFile, MoveAway, WriteRange
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.bridge import recover_bridging
from rmqctl.store.store_files import StoreFiles
from tests.proof.crash import appending, copying
from tests.proof.crash.changing import AFTER, BEFORE, UNKNOWN, check_changed, check_cleaned, check_mended
from tests.proof.crash.state import State
from tests.store.journal import verbs
from tests.store.journal.commands import COMMANDS, CONFIG, disk_of
from tests.store.small_dledger import into_dledger, small_index

Tell = Callable[[object], None]


class Step(NamedTuple):
    """`run` gets the store and what it tells of its progress. `check` raises AssertionError if a state is not as
    promised."""

    run: Callable[[Path, Tell], object]
    check: Callable[[State], None]


class Workload(NamedTuple):
    """`prepare` makes what lies around the store before the steps; it is given the store's path."""

    prepare: Callable[[Path], object]
    steps: tuple[Step, ...]
    config: StoreConfig = CONFIG


def _nothing(_root: Path) -> None:
    """A store that is not there yet."""


def _append(work: Callable[[Path, Tell, StoreConfig], None], config: StoreConfig) -> Workload:
    step = Step(lambda root, tell: work(root, tell, config), appending.check_appended)
    return Workload(_nothing, (step,), config)


def _command(name: str, check: Callable[[State], None] = check_changed) -> Step:
    return Step(lambda root, _tell: COMMANDS[name](root), check)


def _change(name: str, prepare: Callable[[Path], object], check: Callable[[State], None] = check_changed) -> Workload:
    return Workload(prepare, (_command(name, check),))


def _of_verb(name: str, undone: str, resumed: str) -> Workload:
    """A command on the store that tests.store.journal.verbs makes for it, with a change that is not finished."""
    verb = verbs.VERBS[name]
    check = partial(check_changed, undone=undone, resumed=resumed)
    return Workload(verb.prepare, (Step(lambda root, _tell: verb.work(root), check),))


@contextmanager
def _two_disks(root: Path) -> Iterator[None]:
    """Nothing is renamed between the place that `--journal` names and all else."""
    disk = f"{disk_of(root)}{os.sep}"

    def within(real: Callable[[Path, Path], None], source: Path, target: Path) -> None:
        if str(source).startswith(disk) != str(target).startswith(disk):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real(source, target)

    with mock.patch("os.rename", partial(within, os.rename)), mock.patch("os.replace", partial(within, os.replace)):
        yield


def _elsewhere(name: str, undone: str = BEFORE, resumed: str = AFTER) -> Workload:
    """A command whose journal is on another disk, on the store that tests.store.journal.verbs makes for it."""
    prepare_here, (step,), _ = _of_verb(name, undone, resumed)

    def prepare(root: Path) -> None:
        with _two_disks(root):
            prepare_here(root)

    def run(root: Path, tell: Tell) -> None:
        with _two_disks(root):
            step.run(root, tell)

    def check(state: State) -> None:
        with _two_disks(state.root):
            step.check(state)

    return Workload(prepare, (Step(run, check),))


def _broken_entries(root: Path) -> None:
    """A member of a DLedger group that was killed: the last entry is half there, units and a queue file are missing."""
    verbs.whole(root)
    into_dledger(root, CONFIG)
    (root / "abort").write_text("1")
    last = sorted((root / "dledger-n0" / "data").iterdir())[-1]
    end = len(last.read_bytes().rstrip(b"\0"))
    first, *_, tail = sorted((root / "dledger-n0" / "index").iterdir())
    for path, at, data in ((last, end - 250, bytes(250)), (first, 70, b"\7" * 100), (tail, 900, b"\7" * 40)):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)
    sorted((root / "consumequeue" / "T" / "0").iterdir())[0].unlink()


def _unmade_entries(root: Path) -> None:
    """A member of a DLedger group without queues and index."""
    verbs.whole(root)
    into_dledger(root, CONFIG)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")


def _of_entries(name: str, broken: Callable[[Path], None]) -> Workload:
    """A command on a DLedger log."""

    def prepare(root: Path) -> None:
        with small_index():
            broken(root)

    def run(root: Path, _tell: Tell) -> None:
        with small_index():
            COMMANDS[name](root)

    def check(state: State) -> None:
        with small_index():
            check_changed(state)

    return Workload(prepare, (Step(run, check),))


def _unmade(root: Path) -> None:
    """A store without queues and index."""
    verbs.whole(root)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")


def _replaced(root: Path) -> None:
    """The index is moved away and made anew in its place: operations of which each needs the one before it."""
    with StoreFiles(root, CONFIG) as files, changing(files, "rebuild", ChangeOptions()) as change:
        index = root / "index"
        change.plan.add(MoveAway(index))
        for path in sorted(index.iterdir()):
            renamed = index / f"{int(path.name) + 1}"
            change.plan.add(CreateFile(renamed, path.stat().st_size))
            change.plan.add(WriteRange(renamed, 0, path.read_bytes()))


def _copy(work: Callable[[Path], object], check: Callable[[State], None]) -> Workload:
    return Workload(verbs.whole, (Step(lambda root, _tell: work(root), check),))


# whoever resumes an undo that was interrupted finishes the undo
_UNDO = partial(check_changed, undone=AFTER, resumed=AFTER)
_APPEND_MORE = Step(partial(appending.append_one_by_one, config=appending.SYNC, count=12), appending.check_appended)
_APPEND_LATER = Step(partial(appending.append_one_by_one, config=appending.ASYNC, count=12), appending.check_appended)


def _pairs() -> Iterator[tuple[str, Workload]]:
    """Two steps, one after the other, on one store: what the first leaves to be flushed the second may need."""
    yield "recover, append", Workload(verbs.broken, (_command("recover"), _APPEND_MORE))
    yield "rebuild, append", Workload(_unmade, (_command("rebuild"), _APPEND_LATER))
    yield "truncate, append", Workload(verbs.whole, (_command("truncate"), _APPEND_MORE))
    yield "recover, undo", Workload(verbs.broken, (_command("recover"), _command("undo", _UNDO)))
    yield "truncate, undo", Workload(verbs.whole, (_command("truncate"), _command("undo", _UNDO)))
    yield "append, truncate", Workload(verbs.whole, (_APPEND_MORE, _command("truncate")))
    yield "append, rebuild", Workload(verbs.whole, (_APPEND_LATER, _command("rebuild")))
    yield "append, append", Workload(_nothing, (_APPEND_LATER, _APPEND_MORE))
    yield "rebuild, clean", Workload(verbs.whole, (_command("rebuild"), _command("clean", check_cleaned)))
    yield "clean, append", Workload(verbs.whole, (_command("clean", check_cleaned), _APPEND_MORE))
    yield "undo, recover", Workload(_after(verbs.broken, "recover"), (_command("undo", _UNDO), _command("recover")))
    yield "repair, rebuild", Workload(verbs.broken, (_command("repair"), _command("rebuild")))


def _after(prepare: Callable[[Path], object], name: str) -> Callable[[Path], None]:
    def work(root: Path) -> None:
        prepare(root)
        COMMANDS[name](root)

    return work


_BRIDGE = partial(check_changed, damaged=recover_bridging)

WORKLOADS: dict[str, Workload] = {
    "append, sync": _append(appending.append_one_by_one, appending.SYNC),
    "recover": _change("recover", verbs.broken),
    "recover, DLedger": _of_entries("recover", _broken_entries),
    "rebuild, DLedger": _of_entries("rebuild", _unmade_entries),
    "undo": Workload(_after(verbs.broken, "recover"), (_command("undo", _UNDO),)),
    "append, async": _append(appending.append_one_by_one, appending.ASYNC),
    "append, pool": _append(appending.append_one_by_one, appending.POOL),
    "append, put_many": _append(appending.append_many, appending.ASYNC),
    "append, put_many sync": _append(appending.append_many, appending.SYNC),
    "append, put_columns": _append(appending.append_columns, appending.ASYNC),
    "move and create": Workload(verbs.whole, (Step(lambda root, _tell: _replaced(root), check_changed),)),
    "resume": _of_verb("resume", UNKNOWN, AFTER),
    "truncate": _change("truncate", verbs.whole),
    "clean": _change("clean", verbs.whole, check_cleaned),
    "rebuild": _change("rebuild", _unmade),
    "bridge": _change("recover --bridge", verbs.damaged, _BRIDGE),
    "repair": _change("repair", verbs.broken),
    "snapshot": _copy(copying.snapshot, copying.check_snapshot),
    "snapshot, links": _copy(partial(copying.snapshot, hard_links=True), copying.check_snapshot),
    "salvage": _copy(copying.salvaged, copying.check_salvaged),
    "export": _copy(copying.exported, copying.check_exported),
    "undo of a killed recover": _of_verb("undo of a killed one", AFTER, UNKNOWN),
    "undo of a killed undo": _of_verb("undo of a killed undo", AFTER, AFTER),
    "undo of truncate": _of_verb("undo of truncate", AFTER, AFTER),
    "resume of an undo": _of_verb("resume of an undo", AFTER, AFTER),
    "resume of truncate": _of_verb("resume of truncate", UNKNOWN, AFTER),
    "log --prune": _of_verb("log --prune", UNKNOWN, UNKNOWN),
    "recover --no-journal": _change("recover --no-journal", verbs.broken, check_mended),
    "rebuild --no-journal": _change("rebuild --no-journal", _unmade, check_mended),
    "repair --no-journal": _change("repair --no-journal", verbs.broken, check_mended),
    "recover --journal": _elsewhere("recover --journal"),
    "rebuild --journal": _elsewhere("rebuild --journal"),
    "repair --journal": _elsewhere("repair --journal"),
    "truncate --journal": _elsewhere("truncate --journal"),
    "undo of --journal": _elsewhere("undo of --journal", AFTER, AFTER),
    "resume of --journal": _elsewhere("resume of --journal", UNKNOWN, AFTER),
    "log --prune of --journal": _elsewhere("log --prune of --journal", UNKNOWN, UNKNOWN),
    **dict(_pairs()),
}
"""By name; a short run has the first ones."""
