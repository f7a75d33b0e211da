"""The journal: a change interrupted at any write leaves the store as it was, or all that is needed to put it back."""

from __future__ import annotations

import errno
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.folder import read_state
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.plan import ClearRange, CreateFile, Plan, Resize, WriteRange
from rmqctl.store.journal.undo import undo
from tests.goldens import TreeState, tree_state
from tests.quick import shares
from tests.store.files.crashing import crashed
from tests.store.journal.changing import content, expected, plan_of_everything, small_store


@pytest.fixture(autouse=True)
def no_observer() -> Iterator[None]:
    yield
    io.observer = None


Observed = tuple[str, str, int, int]


def _run(folder: Path, how: Callable[[Observed], None]) -> tuple[StoreLayout, Journal, TreeState, BaseException | None]:
    """Carry out the plan on a new store; `how` meets every change of a file first, and may raise."""
    layout = small_store(folder)
    before = tree_state(layout.root)
    journal = Journal(layout, "test")
    plan = plan_of_everything(layout, journal)
    io.observer = lambda *observed: how(observed)
    try:
        journal.apply(plan)
    except WriteFailedError as error:
        return layout, journal, before, error
    finally:
        io.observer = None
    return layout, journal, before, None


def _at(number: int, how: Callable[[Observed], None], *, once: bool) -> Callable[[Observed], None]:
    """`how` at the change of that number, counted from 1, and unless `once` at all later ones."""
    count = 0

    def counting(observed: Observed) -> None:
        nonlocal count
        count += 1
        if count == number or (count > number and not once):
            how(observed)

    return counting


def _operations(folder: Path) -> list[Observed]:
    seen: list[Observed] = []
    _run(folder, seen.append)
    return seen


def _is_prepared(journal: Journal) -> bool:
    return read_state(journal.folder)["state"] in ("prepared", "applied")


def test_a_plan_is_carried_out(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    before = content(layout.root)
    journal = Journal(layout, "test", ["--flag"])
    journal.apply(plan_of_everything(layout, journal))
    assert content(layout.root) == expected(before)
    head = json.loads((journal.folder / "journal.json").read_text())
    assert (head["verb"], head["arguments"], head["paths"]) == ("test", ["--flag"], 11)
    assert head["store"] == str(layout.root)
    assert read_state(journal.folder)["state"] == "applied"
    assert journal.folder.parent == tmp_path / "store.rmqctl"
    # the bytes to come are kept as well, so that it can be done again
    after = (journal.folder / "after.bin").read_bytes()
    entry = head["operations"][0]
    assert after[entry["after_at"] :][: entry["length"]] == b"X" * 50
    # what it changed carries one time, whenever it was written
    changed = [layout.root / name for name in ("commitlog/0", "checkpoint", "queues/V/3/d", "queues/V/3", "queues")]
    assert {path.stat().st_mtime_ns for path in changed} == {head["moment_ns"]}
    assert (layout.root / "queues" / "T" / "1").stat().st_mtime_ns == head["moment_ns"]
    assert (layout.root / "queues" / "T" / "0").stat().st_mtime_ns != head["moment_ns"]


def test_the_journal_holds_the_hash_of_everything_kept(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    gone = (layout.root / "queues" / "U" / "0" / "c").read_bytes()
    journal = Journal(layout, "test")
    journal.apply(plan_of_everything(layout, journal))
    text = (journal.folder / "journal.json").read_text()
    head = json.loads(text)
    for name in ("before.bin", "after.bin"):
        assert head["files"][name] == hashlib.sha256((journal.folder / name).read_bytes()).hexdigest()
    assert hashlib.sha256(text.replace(head["sha256"], "0" * 64).encode()).hexdigest() == head["sha256"]
    [moved] = [row for row in head["operations"] if row["path"] == "queues/U"]
    hashes = {name: digest for name, _, _, digest in moved["moved_items"]}
    assert hashes == {".": None, "0": None, "0/c": hashlib.sha256(gone).hexdigest()}


def test_only_what_is_overwritten_is_kept(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    journal = Journal(layout, "test")
    journal.apply(
        Plan([WriteRange(layout.root / "commitlog" / "0", 7000, b"new"), ClearRange(layout.checkpoint, 40, 9)])
    )
    assert (journal.folder / "before.bin").stat().st_size == 3 + 9


def test_holes_are_not_copied(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    big = layout.root / "commitlog" / "big"
    with big.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"x")
    before = big.stat().st_mtime_ns
    journal = Journal(layout, "test")
    journal.apply(Plan([Resize(big, 1000)]))
    assert (journal.folder / "before.bin").stat().st_size < 1 << 20
    undo(layout)
    assert (big.stat().st_size, big.stat().st_mtime_ns) == (1 << 40, before)
    with big.open("rb") as file:
        file.seek(1 << 39)
        assert file.read(2) == b"x\0"


def _store_of(observed: Observed) -> bool:
    return "/store/" in observed[1]


def test_nothing_of_the_store_changes_before_the_journal_is_on_disk(tmp_path: Path) -> None:
    seen = _operations(tmp_path)
    first = next(number for number, observed in enumerate(seen) if _store_of(observed) and observed[0] != "fsync")
    before = seen[:first]
    renamed = [number for number, observed in enumerate(before) if observed[0] == "rename"]
    assert len(renamed) == 1  # journal.json under its final name
    assert "journal.json" in before[renamed[0]][1]
    flushed = [Path(observed[1]).name for observed in before if observed[0] == "fsync"]
    folder = Path(before[renamed[0]][1]).parent.name
    assert {"before.bin", "after.bin", folder, "store.rmqctl"} <= set(flushed)
    # the rename itself is made durable before the first change
    assert [observed[0] for observed in before[renamed[0] + 1 :]] == ["rename to", "fsync"]
    assert Path(before[-1][1]).name == folder


def test_everything_written_is_flushed_before_it_says_applied(tmp_path: Path) -> None:
    seen = _operations(tmp_path)
    last = max(number for number, observed in enumerate(seen) if observed[0] == "rename")
    assert "state.json" in seen[last][1]
    flushed = [observed[1] for observed in seen[:last] if observed[0] == "fsync"]
    written = {
        observed[1] for observed in seen if observed[0] in ("write", "create", "truncate") and _store_of(observed)
    }
    assert len(written) >= 5
    assert written <= set(flushed)
    root = tmp_path / "store"
    # new directories, and those they were made in
    for directory in ("queues/V/3", "queues/V", "queues", "batch", "index", "."):
        assert str(root / directory) in flushed, directory


@pytest.mark.parametrize("share", shares(7))
@pytest.mark.parametrize("torn", [False, True], ids=["between", "within"])
def test_killed_at_any_operation(tmp_path: Path, torn: bool, share: slice) -> None:
    """For every operation in turn: killed just before it, or in the middle of the write that it is."""
    operations = _operations(tmp_path / "all")
    assert len(operations) > 60
    untouched = prepared = 0
    for number in range(1, len(operations) + 1)[share]:
        layout = small_store(tmp_path / str(number))
        before = tree_state(layout.root)
        journal = Journal(layout, "test")
        plan = plan_of_everything(layout, journal)
        assert crashed(lambda journal=journal, plan=plan: journal.apply(plan), number, torn=torn)  # type: ignore[misc]
        if not _is_prepared(journal):
            assert tree_state(layout.root) == before, operations[number - 1]
            untouched += 1
        else:
            undo(layout)
            assert tree_state(layout.root) == before, operations[number - 1]
            prepared += 1
    # of more than 8 and more than 40
    assert untouched >= 8 // 7
    assert prepared >= 40 // 7


def _anonymous(path: str, folder: Path) -> str:
    """A path without what differs from run to run."""
    return re.sub(r"\d{8}T\d{9}Z", "TIME", str(Path(path).relative_to(folder)))


def test_every_failing_flush_is_loud_and_names_its_file(tmp_path: Path) -> None:
    def fail(observed: Observed) -> None:
        raise OSError(errno.EIO, "Input/output error")

    operations = _operations(tmp_path / "all")
    flushes = [number for number, observed in enumerate(operations, start=1) if observed[0] == "fsync"]
    assert len(flushes) > 20
    for number in flushes:
        folder = tmp_path / str(number)
        layout, journal, before, error = _run(folder, _at(number, fail, once=True))
        assert isinstance(error, WriteFailedError)
        assert "Input/output error" in error.message
        expected = _anonymous(operations[number - 1][1], tmp_path / "all")
        assert _anonymous(error.file or "", folder) == expected
        if _is_prepared(journal):
            undo(layout)
        assert tree_state(layout.root) == before


def test_full_disk_says_what_to_do(tmp_path: Path) -> None:
    def fail(observed: Observed) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    _, _, _, error = _run(tmp_path, _at(5, fail, once=False))
    assert isinstance(error, WriteFailedError)
    assert "No space left" in error.message
    assert "free some space" in (error.hint or "")


@pytest.mark.parametrize(
    "operation",
    [
        lambda root: WriteRange(root / "checkpoint", 5, b"12345"),
        lambda root: ClearRange(root / "checkpoint", 0, 50),
        lambda root: ClearRange(root / "commitlog" / "0", 0, 5000),
    ],
)
def test_what_reads_back_differently_is_an_error(
    tmp_path: Path, operation: Callable[[Path], WriteRange | ClearRange], monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = small_store(tmp_path)
    changed = operation(layout.root)
    real = io.write_at

    def lose_last_byte(descriptor: int, path: str | Path, offset: int, data: bytes) -> None:
        is_store = "/store/" in str(path)
        real(descriptor, path, offset, data[:-1] + b"\xee" if is_store else data)

    monkeypatch.setattr(io, "write_at", lose_last_byte)
    journal = Journal(layout, "test")
    with pytest.raises(WriteFailedError, match="reads back differently") as failed:
        journal.apply(Plan([changed]))
    assert failed.value.file == str(changed.path)
    assert read_state(journal.folder)["state"] == "prepared"
    assert "rmqctl undo" in (failed.value.hint or "")


def test_clearing_is_verified_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = small_store(tmp_path)
    long = layout.root / "commitlog" / "long"
    long.write_bytes(b"x" * 3_000_000)
    real = io.write_at

    def skip_the_end(descriptor: int, path: str | Path, offset: int, data: bytes) -> None:
        if str(path) != str(long) or offset < 2_000_000:
            real(descriptor, path, offset, data)

    monkeypatch.setattr(io, "write_at", skip_the_end)
    with pytest.raises(WriteFailedError, match="reads back differently"):
        Journal(layout, "test").apply(Plan([ClearRange(long, 0, 3_000_000)]))


def test_a_file_that_came_up_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    before = tree_state(layout.root)
    with pytest.raises(RefusedError, match="exists") as refused:
        Journal(layout, "test").apply(Plan([CreateFile(layout.root / "checkpoint", 10)]))
    assert refused.value.file == str(layout.root / "checkpoint")
    assert tree_state(layout.root) == before


def test_discard_leaves_nothing_but_the_journals_of_others(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    journal = Journal(layout, "test")
    assert journal.staging.is_dir()
    journal.discard()
    assert not layout.kept.exists()
    other = layout.kept / "20200101T000000000Z-recover"
    other.mkdir(parents=True)
    journal = Journal(layout, "test")
    _ = journal.staging
    journal.discard()
    assert list(layout.kept.iterdir()) == [other]


def test_a_journal_that_was_never_used_makes_nothing(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    Journal(layout, "test").discard()
    assert not layout.kept.exists()


def test_a_plan_that_fails_names_no_way_out_of_a_change_that_was_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though what it had kept stays: nothing is prepared, so there is nothing to undo."""

    def fails(self: Journal) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Journal, "discard", fails)
    with pytest.raises(RefusedError) as refused, Journal(small_store(tmp_path), "test").planning():
        raise RefusedError("no", hint="do something else")
    assert refused.value.hint == "do something else"
