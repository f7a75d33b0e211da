"""No power cut costs what was acknowledged, or leaves half of a change; and a product that forgot a flush is caught."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from rmqctl.store.clean import cleaner
from rmqctl.store.files import io
from rmqctl.store.files import outputs as publish
from rmqctl.store.index import index_file
from rmqctl.store.journal import journal
from rmqctl.store.journal import journal as roll_back
from rmqctl.store.journal import kept as moving
from rmqctl.store.journal.plan import Entry
from rmqctl.store.log import append as log_flush
from rmqctl.store.log.append import FlushService
from rmqctl.store.queues import queue_table as queue_flush
from rmqctl.store.write import writer
from rmqctl.store.write.dispatch import QueueFlushService
from rmqctl.store.write.opening import unmark
from rmqctl.store.write.writer import StoreWriter
from tests import quick
from tests.proof.crash.cases import cases_of
from tests.proof.crash.cuts import Cut, History, cut_of, files_at, left_by, put_on_disk
from tests.proof.crash.recording import Data, Names, recorded
from tests.proof.crash.workloads import WORKLOADS
from tests.proof.proving import assert_proved

# ---- the model


def lost(history: History, *numbers: int, torn: dict[int, frozenset[int]] | None = None) -> dict[str, bytes | None]:
    """What is there if these events are lost from all that was recorded."""
    cut = Cut(len(history.recording.events), "", frozenset(numbers), torn or {}, frozenset())
    return {left.path: left.content for left in left_by(history, cut)}


def test_a_store_through_a_map_and_a_torn_write_are_seen(tmp_path: Path) -> None:
    with recorded(tmp_path) as recording:
        io.create_file(tmp_path / "f", 2048)
        io.flush_file(tmp_path / "f")
        io.flush_directory(tmp_path)
        descriptor = io.open_for_writing(tmp_path / "f")
        mapped = io.map_for_writing(descriptor, tmp_path / "f", 2048)
        mapped[500:1100] = b"x" * 600
        recording.note("written")
        mapped.close()
        os.close(descriptor)
    history = History(recording)
    number = next(
        at
        for at, event in enumerate(recording.events)
        if isinstance(event, Data) and 0 in event.sectors and 2 in event.sectors
    )
    assert number in history.pending(len(recording.events))
    assert files_at(history, len(recording.events)) == {"f": bytes(500) + b"x" * 600 + bytes(948)}
    assert lost(history, number) == {"f": bytes(2048)}
    assert lost(history, torn={number: frozenset((1,))}) == {
        "f": bytes(500) + b"x" * 12 + bytes(512) + b"x" * 76 + bytes(948)
    }


def test_a_name_is_safe_once_the_flush_of_its_folder_has_returned(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "f").write_bytes(b"f")
    with recorded(tmp_path) as recording:
        io.rename(tmp_path / "a" / "f", tmp_path / "b" / "f")
        recording.note("renamed")
        io.flush_directory(tmp_path / "b")
        io.flush_directory(tmp_path / "a")
    history = History(recording)
    renamed = next(
        at for at, event in enumerate(recording.events) if isinstance(event, Names) and at >= recording.begun
    )
    in_new, in_both = safe_ends(history, renamed)
    assert renamed in history.pending(in_both)
    assert renamed not in history.pending(in_both + 1)
    before = Cut(in_new, "", frozenset((renamed,)), {}, frozenset())
    assert {left.path for left in left_by(history, before)} == {"a", "a/f", "b"}
    twice = before._replace(lost=frozenset(), halves=frozenset((renamed,)))
    assert {left.path for left in left_by(history, twice)} == {"a", "a/f", "b", "b/f"}
    between = before._replace(after=in_both)
    assert {left.path for left in left_by(history, between)} == {"a", "a/f", "b", "b/f"}
    (tmp_path / "state").mkdir()
    put_on_disk(history, twice, tmp_path / "state")
    assert (tmp_path / "state" / "a" / "f").samefile(tmp_path / "state" / "b" / "f")


def safe_ends(history: History, number: int) -> list[int]:
    """When the entries of a renaming were safe, the first one first."""
    event = history.recording.events[number]
    assert isinstance(event, Names)
    return sorted(history.safe_in(number, entry.directory) for entry in event.entries)


def test_few_events_are_lost_in_every_combination(tmp_path: Path) -> None:
    with recorded(tmp_path) as recording:
        for name in "ab":
            io.create_file(tmp_path / name, 0)
    history = History(recording)
    draws = 40 * len(recording.events)
    found = set()
    for position in range(draws):
        cut = cut_of(history, position, draws, Random(position))
        found.add((cut.after, frozenset(left.path for left in left_by(history, cut))))
    last = len(recording.events)
    assert {paths for after, paths in found if after == last} == {frozenset(x) for x in ("", "a", "b", "ab")}


# ---- the proof


@pytest.mark.skipif(not quick.is_quick, reason="the full size below has these cases too")
def test_crash_states_quickly(tmp_path: Path) -> None:
    assert_proved("crash", tmp_path)


@pytest.mark.thorough
def test_crash_states(tmp_path: Path) -> None:
    assert_proved("crash", tmp_path)


def failures(names: list[str], count: int, folder: Path) -> Iterator[str]:
    """What the cases of these workloads say that fail."""
    for name, work in cases_of(names, 1, count):
        folder.mkdir()
        try:
            work(folder)
        except AssertionError as error:  # anything else is no finding of the proof
            yield f"{name}: {error}"
        finally:
            shutil.rmtree(folder)


def test_a_case_that_failed_is_run_again_with_its_own_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With threads at work another recording would be another case."""
    told: list[str] = []
    for is_broken in (True, True, False):
        _, work = list(cases_of(["append, put_many"], 1, 60, tmp_path / "kept"))[50]
        (tmp_path / "case").mkdir()
        with monkeypatch.context() as patch:
            if is_broken:
                patch.setattr("tests.proof.crash.appending.check_closed", broken)
            try:
                work(tmp_path / "case")
            except AssertionError as error:
                told.append(str(error))
        shutil.rmtree(tmp_path / "case")
        assert len(list((tmp_path / "kept").iterdir())) == is_broken
    assert len(told) == 2
    assert told[0] == told[1]


def broken(*_: object) -> None:
    raise AssertionError("broken on purpose")


# ---- the proof fails where the product does

Patch = pytest.MonkeyPatch


def without(patch: Patch, module: ModuleType, *names: str) -> None:
    """In one module these functions of io do nothing."""

    class Lazy:
        def __getattr__(self, name: str) -> Any:
            return (lambda *_: None) if name in names else getattr(io, name)

    patch.setattr(module, "io", Lazy())


def no_directory_is_flushed(patch: Patch) -> None:
    patch.setattr(io, "flush_directory", lambda _: None)


def new_log_files_are_not_flushed_with_their_folder(patch: Patch) -> None:
    without(patch, log_flush, "flush_directory")


def new_queues_are_not_flushed_with_their_folders(patch: Patch) -> None:
    without(patch, queue_flush, "flush_directory")


def what_is_replaced_is_not_flushed(patch: Patch) -> None:
    patch.setattr(io, "flush_descriptor", lambda *_: None)


def the_checkpoint_comes_before_the_queues(patch: Patch) -> None:
    flush = QueueFlushService.flush_queues

    def ahead(self: Any, is_thorough: bool = True) -> None:
        physic, logics = self._log_flusher.flushed_timestamp, self._follower.last_timestamp
        self._checkpoint.set(physic=physic, logics=logics)
        self._checkpoint.write()
        flush(self, is_thorough)

    patch.setattr(QueueFlushService, "flush_queues", ahead)


def the_pool_is_flushed_before_it_is_committed(patch: Patch) -> None:
    def flush_now(self: Any) -> None:
        self._flusher.flush()
        self._sink.commit()
        self._tell()
        self.listener()

    patch.setattr(FlushService, "flush_now", flush_now)


def abort_goes_before_the_last_flush(patch: Patch) -> None:
    finish = StoreWriter._finish

    def early(self: Any) -> None:
        unmark(self._opened.files.layout)
        finish(self)

    patch.setattr(writer, "unmark", lambda _: None)
    patch.setattr(StoreWriter, "_finish", early)


def the_index_is_not_flushed(patch: Patch) -> None:
    without(patch, writer, "flush_file")
    without(patch, index_file, "flush_descriptor")


def operations_are_undone_in_forward_order(patch: Patch) -> None:
    def forward(items: Any) -> Iterator[Any]:
        """Of entries alone: the operations of a plan are still carried out in their order."""
        return iter(items) if all(isinstance(item, Entry) for item in items) else reversed(items)

    patch.setattr(roll_back, "reversed", forward, raising=False)


def an_undo_is_not_flushed(patch: Patch) -> None:
    without(patch, roll_back, "flush_file", "flush_directory")


def a_change_is_not_flushed(patch: Patch) -> None:
    without(patch, journal, "flush_file", "flush_directory")


def a_journal_is_not_flushed_with_its_folder(patch: Patch) -> None:
    without(patch, journal, "flush_directory")


def folders_for_what_is_moved_are_not_flushed(patch: Patch) -> None:
    make = io.make_directories

    class Lazy:
        def __getattr__(self, name: str) -> Any:
            return (lambda path, **_: make(path)) if name == "make_directories" else getattr(io, name)

    patch.setattr(moving, "io", Lazy())


def a_copy_is_not_flushed_with_its_folder(patch: Patch) -> None:
    without(patch, publish, "flush_directory")


def cleaned_log_files_are_not_gone_before_their_queues(patch: Patch) -> None:
    without(patch, cleaner, "flush_directory")


# with what is flushed in the background, how soon a case shows it depends on how busy the machine is
_MUTANTS: dict[Callable[[Patch], None], tuple[str, int]] = {
    no_directory_is_flushed: ("append, sync", 40),
    the_checkpoint_comes_before_the_queues: ("append, async", 300),
    new_log_files_are_not_flushed_with_their_folder: ("append, sync", 60),
    new_queues_are_not_flushed_with_their_folders: ("append, async", 300),
    what_is_replaced_is_not_flushed: ("recover", 60),
    the_pool_is_flushed_before_it_is_committed: ("append, pool", 60),
    abort_goes_before_the_last_flush: ("append, async", 300),
    the_index_is_not_flushed: ("append, sync", 60),
    operations_are_undone_in_forward_order: ("move and create", 60),
    an_undo_is_not_flushed: ("undo", 60),
    a_change_is_not_flushed: ("recover", 60),
    a_journal_is_not_flushed_with_its_folder: ("recover", 60),
    folders_for_what_is_moved_are_not_flushed: ("truncate", 300),
    a_copy_is_not_flushed_with_its_folder: ("snapshot", 60),
    cleaned_log_files_are_not_gone_before_their_queues: ("clean", 60),
}


@pytest.mark.parametrize(
    "mutant", quick.sample(_MUTANTS, [no_directory_is_flushed]), ids=lambda mutant: mutant.__name__
)
def test_a_defect_is_found(mutant: Callable[[Patch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, count = _MUTANTS[mutant]
    assert name in WORKLOADS
    mutant(monkeypatch)
    assert next(failures([name], count, tmp_path / "case"), None), "the proof does not see it"
