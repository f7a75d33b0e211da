"""A change of a store on a failing disk ends with an error of ours that says how to go on, and loses nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, RefusedError, RmqctlError, UnreadableError, WriteFailedError
from rmqctl.store.clean.cleaner import clean
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.files import io
from rmqctl.store.journal.folder import held
from rmqctl.store.journal.log import changes, unfinished_change
from rmqctl.store.journal.undo import give_up, resume, undo
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.repair.repair import repair
from rmqctl.store.store_files import StoreFiles
from tests import quick
from tests.goldens import TreeState, tree_state
from tests.store.files.crashing import CrashError
from tests.store.journal.failing import KINDS, failing
from tests.store.write.writing import SMALL, message, stored_messages

Verb = Callable[[Path], object]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three log files whose end, queues and index need mending."""
    root = tmp_path_factory.mktemp("broken") / "s"
    with MessageStore.open(root, "rw", SMALL, create=True) as store:
        for number in range(300):
            store.put(message(500, queue_id=number % 2, properties={"KEYS": f"k{number}"}))
    (root / "abort").write_text("1")
    (root / "consumequeue" / "TopicA" / "1" / f"{2000:020}").unlink()
    shutil.rmtree(root / "consumequeue" / "TopicA" / "0")
    for path in (root / "index").iterdir():
        with path.open("r+b") as file:
            file.seek(60)
            file.write(b"\xee" * 40)
    (root / "commitlog" / f"{3 * 65536:020}").write_bytes(bytes(65536))
    return root


@pytest.fixture
def fresh(broken: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes a copy of it."""
    numbers = iter(range(1 << 30))

    def copy() -> Path:
        folder = tmp_path / str(next(numbers))
        shutil.copytree(broken.parent, folder)
        for path in (broken, *broken.rglob("*")):
            status = path.stat()
            os.utime(folder / path.relative_to(broken.parent), ns=(status.st_atime_ns, status.st_mtime_ns))
        return folder / "s"

    return copy


def on_files(verb: Callable[..., object], *arguments: object) -> Verb:
    def work(root: Path) -> object:
        with StoreFiles(root, SMALL) as files:
            return verb(files, *arguments)

    return work


def truncated(root: Path) -> object:
    with StoreFiles(root, SMALL) as files:
        return truncate(files, stored_messages(root, SMALL)[150].physical_offset)


def interrupted(root: Path) -> None:
    """A recovery that was killed when it had begun to change the store."""

    def kill(operation: str, path: str, *_: int) -> None:
        if operation == "rename to" and path.startswith(str(root / "index")):
            raise CrashError

    io.observer = kill
    try:
        on_files(recover)(root)
    except CrashError:
        pass
    finally:
        io.observer = None
    assert unfinished_change(StoreFiles(root, SMALL).layout)


_VERBS: dict[str, tuple[Verb, Verb]] = {
    "recover": (lambda root: None, on_files(recover)),
    "rebuild": (lambda root: None, on_files(rebuild)),
    "repair": (lambda root: None, on_files(repair)),
    "truncate": (lambda root: None, truncated),
    "undo": (on_files(recover), lambda root: undo(StoreFiles(root, SMALL).layout)),
    "undo-interrupted": (interrupted, lambda root: undo(StoreFiles(root, SMALL).layout)),
    "resume": (interrupted, lambda root: resume(StoreFiles(root, SMALL).layout)),
}


def content(root: Path) -> TreeState:
    """The store and the times of everything in it; but for `lock`, which a refused change may leave."""
    found = tree_state(root)
    found.pop("lock", None)
    found.pop(".", None)
    return found


def sampled(count: int) -> list[int]:
    return sorted({count // 2, 4 * count // 5, count} & set(range(1, count + 1)))


# every kind of error in one direction and in the other; of the verbs that go the same way what they do most
_CASES = [
    *((name, kind) for name in ("recover", "resume") for kind in KINDS),
    *(("rebuild", kind) for kind in ("open", "read", "fsync")),
    *(("undo", kind) for kind in ("read", "write", "rename")),
    ("repair", "read"),
    ("truncate", "read"),
    ("undo-interrupted", "rename"),
]


@pytest.mark.parametrize(("name", "kind"), _CASES)
def test_an_error_of_the_disk(fresh: Callable[[], Path], name: str, kind: str) -> None:
    prepare, verb = _VERBS[name]
    original = content(fresh())
    root = fresh()
    prepare(root)
    with failing(root.parent, kind) as disk:
        verb(root)
    done = content(root)
    for at in sampled(disk.count) if quick.is_quick or kind != "look" else range(1, disk.count + 1, 5):
        root = fresh()
        prepare(root)
        begun_with = content(root)
        with failing(root.parent, kind, at):
            try:
                verb(root)
                error: RmqctlError | None = None
            except RmqctlError as caught:
                error = caught
        where = f"{kind} {at} of {disk.count}: {error!r}"
        assert error is None or isinstance(error, WriteFailedError | UnreadableError), where
        layout = StoreFiles(root, SMALL).layout
        if unfinished_change(layout) is None:
            if error is not None and content(root) != begun_with:  # only the last word of it could not be said
                assert isinstance(error, WriteFailedError), where
                assert comparable(content(root)) == comparable(done), where
            continue
        assert error is not None, where
        if content(root) != begun_with or prepare is not interrupted:
            assert isinstance(error, WriteFailedError), where
            assert "rmqctl undo" in (error.hint or ""), where
        undo(layout)
        assert content(root) == original, where


_DRY_RUNS: dict[str, tuple[Verb, Verb]] = {
    "recover": (lambda root: None, on_files(partial(recover, change=ChangeOptions(dry_run=True)))),
    "rebuild": (lambda root: None, on_files(partial(rebuild, change=ChangeOptions(dry_run=True)))),
    "repair": (lambda root: None, on_files(partial(repair, change=ChangeOptions(dry_run=True)))),
    "clean": (on_files(recover), on_files(partial(clean, change=ChangeOptions(dry_run=True)))),
    "undo": (interrupted, lambda root: undo(StoreFiles(root, SMALL).layout, change=ChangeOptions(dry_run=True))),
    "resume": (interrupted, lambda root: resume(StoreFiles(root, SMALL).layout, change=ChangeOptions(dry_run=True))),
}


@pytest.mark.parametrize("name", _DRY_RUNS)
def test_a_dry_run_that_cannot_look(fresh: Callable[[], Path], name: str) -> None:
    """Sizes and listings that the disk refuses are unreadable for a dry run, too."""
    prepare, verb = _DRY_RUNS[name]
    root = fresh()
    prepare(root)
    before = tree_state(root.parent)
    with failing(root.parent, "look") as disk:
        verb(root)
    errors: list[RmqctlError] = []
    for at in sorted({*range(1, min(disk.count, 60), 3), *sampled(disk.count)}):
        with failing(root.parent, "look", at):
            try:
                verb(root)
            except (UnreadableError, RefusedError, CorruptError) as error:
                errors.append(error)
        assert tree_state(root.parent) == before
    # a file of the log of which nothing is known is refused by name, and so is a change whose state cannot be read
    assert any(isinstance(error, UnreadableError) for error in errors)
    assert all(error.file and ("Input/output error" in error.message or error.hint) for error in errors), errors


def test_a_lock_that_cannot_be_opened(fresh: Callable[[], Path]) -> None:
    root = fresh()
    interrupted(root)
    before = tree_state(root.parent)
    layout = StoreFiles(root, SMALL).layout

    def refuse(operation: str, path: str, *_: int) -> None:
        if operation == "open" and path == str(layout.lock):
            raise OSError(5, os.strerror(5))

    for end in (undo, resume, give_up):
        io.observer = refuse
        try:
            with pytest.raises(WriteFailedError, match="open failed") as failed:
                end(layout)
        finally:
            io.observer = None
        assert "run the command again" in str(failed.value.hint)
        assert tree_state(root.parent) == before


def comparable(state: TreeState) -> dict[str, tuple[int, str]]:
    """Without times."""
    return {path: (size, digest) for path, (size, _, digest) in state.items()}


@pytest.mark.parametrize("kind", ["read", "remove"])
def test_clean_says_that_it_can_be_run_again(fresh: Callable[[], Path], kind: str) -> None:
    def prepared() -> Path:
        root = fresh()
        on_files(recover)(root)
        return root

    options = CleanOptions(pause=0, at_once=True)
    root = prepared()
    with failing(root.parent, kind) as disk:
        on_files(clean, options)(root)
    wanted = {path.name for path in (root / "commitlog").iterdir()}
    for at in sampled(disk.count):
        root = prepared()
        before = content(root)
        error: RmqctlError | None = None
        try:
            with failing(root.parent, kind, at):
                on_files(clean, options)(root)
        except (WriteFailedError, UnreadableError) as caught:
            error = caught
        if error is not None and content(root) != before:
            assert isinstance(error, WriteFailedError), at
            assert "rmqctl clean" in (error.hint or ""), at
        on_files(clean, options)(root)
        assert {path.name for path in (root / "commitlog").iterdir()} == wanted
        MessageStore.open(root, "rw", SMALL).close()


# ---- bad sectors in what is to be replaced


@pytest.fixture
def bad_files(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Inodes of files of which no byte can be read."""
    bad: set[int] = set()
    pread = os.pread

    def read(descriptor: int, length: int, position: int) -> bytes:
        if os.fstat(descriptor).st_ino in bad:
            raise OSError(5, os.strerror(5))
        return pread(descriptor, length, position)

    monkeypatch.setattr(os, "pread", read)
    return bad


@pytest.mark.parametrize(
    ("verb", "place"), [(rebuild, "consumequeue/TopicA/1/" + "0" * 20), (rebuild, "index/*"), (recover, "index/*")]
)
def test_what_cannot_be_read_is_replaced_and_kept(
    fresh: Callable[[], Path], bad_files: set[int], verb: Callable[..., object], place: str
) -> None:
    root = fresh()
    path = next(root.glob(place))
    bad_files.add(path.stat().st_ino)
    before = content(root)
    on_files(verb)(root)
    layout = StoreFiles(root, SMALL).layout
    (change,) = changes(layout)
    (kept,) = (one for one in Path(change.folder or "").rglob("moved/**/*") if one.stat().st_ino in bad_files)
    status = kept.stat()
    os.utime(kept, ns=(0, 0))
    with pytest.raises(CorruptError, match="size or time is another"):
        undo(layout)
    os.utime(kept, ns=(status.st_atime_ns, status.st_mtime_ns))
    # another file of this name, size and time is not taken for it
    kept.rename(root.parent / "aside")
    shutil.copyfile(root.parent / "aside", kept)
    os.utime(kept, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(CorruptError, match="could not be read, and is another"):
        undo(layout)
    kept.unlink()
    (root.parent / "aside").rename(kept)
    undo(layout)
    assert content(root) == before


def test_what_cannot_be_read_any_more_comes_back_all_the_same(fresh: Callable[[], Path], bad_files: set[int]) -> None:
    """The old queue was whole when it was moved away; the sector went bad later."""
    root = fresh()
    before = content(root)
    on_files(rebuild)(root)
    layout = StoreFiles(root, SMALL).layout
    (change,) = changes(layout)
    bad_files |= {one.stat().st_ino for one in Path(change.folder or "").rglob("moved/**/0*") if one.is_file()}
    assert bad_files
    undo(layout)
    assert content(root) == before


def test_a_journal_that_cannot_be_opened_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> int:
        raise WriteFailedError("open failed: Input/output error", file=path)

    monkeypatch.setattr(io, "open_for_writing", fail)
    with pytest.raises(WriteFailedError) as caught, held(tmp_path):
        pass
    assert caught.value.hint is not None
    assert "`rmqctl undo` or `rmqctl resume`" in caught.value.hint
