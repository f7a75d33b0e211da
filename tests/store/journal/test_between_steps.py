"""Whatever step of a verb was its last, and whoever used the store then: no message that was stored is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.errors import RmqctlError
from rmqctl.store.clean import CleanOptions, clean
from rmqctl.store.files import lock
from rmqctl.store.journal.forget import forget
from rmqctl.store.journal.give_up import give_up
from rmqctl.store.journal.log import changes, unfinished_change
from rmqctl.store.journal.undo import resume, undo
from rmqctl.store.message_store import MessageStore
from rmqctl.store.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.quick import shares
from tests.store.files.crashing import crashed, recorded
from tests.store.write.writing import SMALL, message, stored_messages

Step = Callable[[Path], object]


def _with_files(verb: Callable[[StoreFiles], object]) -> Step:
    def work(root: Path) -> object:
        with StoreFiles(root, SMALL) as files:
            return verb(files)

    return work


def _whole(root: Path) -> None:
    """40 messages in three files of the log."""
    with MessageStore.open(root, "rw", SMALL, create=True) as store:
        for one in range(40):
            store.put(message(4000, properties={"KEYS": f"k{one}"}))


def _broken(root: Path) -> None:
    """The process was killed, and a queue file is missing."""
    _whole(root)
    (root / "abort").write_text("1")
    next((root / "consumequeue").rglob("0" * 20)).unlink()


def _recovered(root: Path) -> None:
    _broken(root)
    _with_files(recover)(root)


def _interrupted(root: Path) -> None:
    beside = root.with_name("whole")
    _broken(beside)
    operations = len(recorded(lambda: _with_files(recover)(beside)))
    _broken(root)
    assert crashed(lambda: _with_files(recover)(root), operations * 3 // 4)
    lock._held.clear()
    assert unfinished_change(StoreFiles(root, SMALL).layout)


def _forget(root: Path) -> None:
    layout = StoreFiles(root, SMALL).layout
    forget(layout, changes(layout))


def _append(root: Path) -> None:
    with MessageStore.open(root, "rw", SMALL) as store:
        for _ in range(20):  # into a further file
            store.put(message(4000))
        store.flush()


def _clean(root: Path) -> None:
    with StoreFiles(root, SMALL) as files:
        clean(files, CleanOptions(pause=0, at_once=True))


VERBS: dict[str, tuple[Callable[[Path], None], Step]] = {
    "recover": (_broken, _with_files(recover)),
    "rebuild --no-journal": (_broken, _with_files(lambda files: rebuild(files, keeps=False))),
    "undo": (_recovered, lambda root: undo(StoreFiles(root, SMALL).layout)),
    "resume": (_interrupted, lambda root: resume(StoreFiles(root, SMALL).layout)),
    "log --prune": (_recovered, _forget),
    "append": (_whole, _append),
    "clean": (_whole, _clean),
}


def _nobody(_root: Path) -> None:
    pass


def _append_through_a_link(root: Path) -> None:
    link = root.with_name("link")
    link.symlink_to(root)
    with contextlib.suppress(RmqctlError), MessageStore.open(link, "rw", SMALL) as store:
        store.put(message(55))


def _recovery_through_a_link(root: Path) -> None:
    link = root.with_name("link")
    link.symlink_to(root)
    with contextlib.suppress(RmqctlError):
        _with_files(recover)(link)


def _cleaned(root: Path) -> None:
    """What a broker's cleaner does first: the oldest file of the log goes."""
    oldest, *others = sorted((root / "commitlog").iterdir())
    if others:
        oldest.unlink()


def _undone(root: Path) -> None:
    with contextlib.suppress(RmqctlError):
        undo(StoreFiles(root, SMALL).layout)


def _end(root: Path) -> None:
    """What a user is told to do, whatever it was."""
    layout = StoreFiles(root, SMALL).layout
    if unfinished_change(layout) is not None:
        try:
            undo(layout)
        except RmqctlError:
            with contextlib.suppress(RmqctlError):  # one that kept nothing waits for `recover` anyway
                give_up(layout)
    _with_files(recover)(root)


@pytest.mark.parametrize("share", shares(6))
@pytest.mark.parametrize("between", [_nobody, _append_through_a_link, _recovery_through_a_link, _cleaned, _undone])
@pytest.mark.parametrize("name", VERBS)
def test_nothing_stored_is_lost(name: str, between: Step, share: slice, tmp_path: Path) -> None:
    prepare, verb = VERBS[name]
    prepare(tmp_path / "all" / "s")
    seen = recorded(lambda: verb(tmp_path / "all" / "s"))
    assert len(seen) > 2
    points = list(range(1, len(seen) + 1, max(1, len(seen) // 12)))[share]
    assert points
    for number in points:
        root = tmp_path / f"{number}" / "s"
        prepare(root)
        crashed(lambda root=root: verb(root), number)  # type: ignore[misc]
        lock._held.clear()
        between(root)
        stored = [one.body for one in stored_messages(root, SMALL)]
        assert len(stored) >= 5
        _end(root)
        assert [one.body for one in stored_messages(root, SMALL)] == stored
        MessageStore.open(root, "rw", SMALL, full_check=True).close()
