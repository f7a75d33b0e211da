"""Stores of which a part is a link to another disk: what a change does there can be undone, finished, taken back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rmqctl.store.files import io, lock
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.log import changes, unfinished_change
from rmqctl.store.journal.undo import resume, undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, TreeState, tree_state
from tests.store.files.crashing import crashed, recorded

AT = 601709  # a message of golden `clean` begins there


def _linked(store: Path, name: str) -> Path:
    """Move a part of the store to another folder and put a link in its place; where it is now."""
    there = store.parent / "disk" / name.replace("/", "-")
    there.parent.mkdir(exist_ok=True)
    path = store / name
    status = path.parent.stat()
    shutil.move(path, there)
    path.symlink_to(there)
    os.utime(path.parent, ns=(status.st_atime_ns, status.st_mtime_ns))
    return there


def _state(store: Path) -> TreeState:
    """Store and other disk, but for the lock file, which taking the broker's lock makes, and the folder it is in."""
    found = tree_state(store) | {f"disk/{name}": state for name, state in tree_state(store.parent / "disk").items()}
    return {name: state for name, state in found.items() if name not in ("lock", ".", "disk/.")}


def _truncate(store: Path) -> None:
    with StoreFiles(store) as files:
        truncate(files, AT)


def _rebuild(store: Path) -> None:
    with StoreFiles(store) as files:
        rebuild(files)


def _first_queue_file(store: Path) -> str:
    return next(path for path in sorted(store.glob("consumequeue/TopicTest/0/*"))).relative_to(store).as_posix()


@pytest.mark.parametrize("work", [_truncate, _rebuild])
@pytest.mark.parametrize(
    "name", ["consumequeue", "commitlog", "index", "consumequeue/TopicTest", "consumequeue/TopicTest/0", "file", "log"]
)
def test_a_change_through_a_link_is_undone(golden_store: GoldenStore, name: str, work: Callable[[Path], None]) -> None:
    store = golden_store("clean")
    if name == "file":
        name = _first_queue_file(store)
    elif name == "log":
        name = max(store.glob("commitlog/*")).relative_to(store).as_posix()
    _linked(store, name)
    before = _state(store)
    work(store)
    after = _state(store)
    assert after != before
    if name in ("consumequeue", "commitlog", "index", "consumequeue/TopicTest"):
        assert (store / name).is_symlink()  # what is behind it is where its owner wants it
    # done once more it changes nothing, so it was complete
    with StoreFiles(store) as files:
        assert recover(files, change=ChangeOptions(dry_run=True)).operations == []
    undo(StoreLayout(store, (store / "commitlog",)))
    assert _state(store) == before


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["one disk", "two disks"])
def test_killed_anywhere(
    golden_store: GoldenStore, tmp_path: Path, is_elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery of queues that are behind a link; nothing can be renamed from there where it is another disk."""
    store = golden_store("cq-short")
    _linked(store, "consumequeue")
    whole = store.parent
    before = _state(store)
    real = io.rename_within

    def elsewhere(source: Path, target: Path) -> bool:
        if ("disk" in Path(source).resolve().parts) != ("disk" in target.parent.resolve().parts):
            if io.observer is not None:
                io.observer("move", str(source), 0, 0)
            return False
        return real(source, target)

    if is_elsewhere:
        monkeypatch.setattr(io, "rename_within", elsewhere)

    def copy(number: int) -> Path:
        target = tmp_path / f"copy{number}"
        shutil.copytree(whole, target, symlinks=True)
        link = target / store.name / "consumequeue"
        link.unlink()
        link.symlink_to(target / "disk" / "consumequeue")
        return target / store.name

    total = len(recorded(partial(_truncate, copy(0))))
    hit = 0
    for number in (total // 3, total // 2, total * 3 // 4, total - 3):
        for end in (undo, resume):
            one = copy(number if end is undo else -number)
            assert crashed(partial(_truncate, one), number)
            lock._held.clear()
            layout = StoreLayout(one, (one / "commitlog",))
            if unfinished_change(layout) is None:
                continue
            hit += 1
            end(layout)
            if end is resume:
                assert changes(layout)[-1].state == "applied"
                undo(layout)
            left, wanted = _state(one), dict(before)
            left.pop("consumequeue"), wanted.pop("consumequeue")
            assert {name: state[::2] for name, state in left.items()} == {
                name: state[::2] for name, state in wanted.items()
            }
    assert hit >= 4
