"""Looks at a store whose oldest files a cleaner removes between two reads: no damage, and no I/O error."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import StoredMessage
from rmqctl.output import outcome as exit_codes
from rmqctl.pipeline.splits import Split, open_split, split_columns
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.clean.plan import plan_clean
from rmqctl.store.info.info import file_rows
from rmqctl.store.log.walk import Damage, walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.native import is_compiled
from rmqctl.store.options import Events
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Selection
from rmqctl.store.store_files import StoreFiles
from tests.processes import start
from tests.rmqctl.looking import Done, run
from tests.store.write.writing import FILE_SIZE, SMALL, message

MESSAGES = 500
REMOVED = "its oldest files were removed while it was read"
EXACT = "were removed by a cleaner before they were read"


def said(talk: str) -> int:
    """Return how many kinds of sentences are about removed messages: each queue may have one of its own."""
    return talk.count(REMOVED) + (EXACT in talk)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of some commitlog files, with queue and index files that go with them."""
    root = tmp_path_factory.mktemp("filled") / "store"
    with MessageStore.open(root, "rw", SMALL, create=True, clock=itertools.count(1_700_000_000_000).__next__) as store:
        for number in range(MESSAGES):
            store.put(
                message(500, queue_id=number % 2, properties={"KEYS": f"k{number}", "UNIQ_KEY": f"U{number:031d}"})
            )
    return root


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Path:
    """A copy of one's own."""
    return Path(shutil.copytree(filled, tmp_path / "store"))


def doomed(store: Path, count: int) -> list[Path]:
    """The files that a cleaning of `count` commitlog files removes, in its order."""
    with StoreFiles(store, SMALL) as files:
        plan = plan_clean(files, CleanOptions(at_once=True, batch_maximum=count), now=0)
        return [decision.path for decision in (*plan.commitlog, *plan.followers) if decision.goes]


@pytest.fixture
def before_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], list[int]]:
    """`step` is carried out before the read of that number; the answer grows by one with every read of this process."""

    def arrange(number: int, step: Callable[[], None]) -> list[int]:
        reads: list[int] = []

        def counted(read: Callable[..., object]) -> Callable[..., object]:
            def reading(*arguments: object) -> object:
                reads.append(1)
                if len(reads) == number:
                    step()
                return read(*arguments)

            return reading

        for name in ("pread", "preadv"):
            monkeypatch.setattr(os, name, counted(getattr(os, name)))
        return reads

    return arrange


@pytest.fixture
def before_log_opens(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """`step` is carried out when the files of the log are listed, and before any of them is open."""

    def arrange(step: Callable[[], None]) -> None:
        opening, steps = os.open, [step]

        def counted(path: object, *arguments: int, **named: int) -> int:
            if steps and "commitlog" in str(path):
                steps.pop()()
            return opening(path, *arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "open", counted)

    return arrange


LOOKS: dict[str, list[object]] = {
    "cat": ["cat", "--json"],
    "cat by queue": ["cat", "--json", "--order", "queue"],
    "doctor": ["doctor", "--json"],
    "info": ["info", "--json"],
    "ls": ["ls", "--json"],
    "du": ["du", "--json"],
    "ls queues": ["ls", "--queues", "--json"],
    "query by key": ["query", "-t", "TopicA", "-k", f"k{MESSAGES - 1}", "--json"],
    "query by unique key": ["query", "-i", f"U{MESSAGES - 1:031d}", "--json"],
    "query by scan": ["query", "-t", "TopicA", "-k", f"k{MESSAGES - 1}", "--scan", "--json"],
    "check": ["check", "--json"],
    "predict": ["predict", "--json"],
    "report": ["report", "-o", "/dev/null", "--json"],
    "export": ["export", "EXPORTED", "--format", "jsonl"],
}


def look(store: Path, name: str) -> Done:
    verb, *rest = LOOKS[name]
    target = store.parent / "exported"
    target.unlink(missing_ok=True)
    return run(verb, "-s", store, *(target if one == "EXPORTED" else one for one in rest))


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


@pytest.mark.parametrize("name", LOOKS)
def test_a_file_that_a_cleaner_removes_between_two_reads_is_no_damage(
    name: str, store: Path, before_read: Callable[[int, Callable[[], None]], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # every read is one more chance: the first, those in between, the last
    counted = before_read(0, lambda: None)
    calm = look(store, name)
    assert calm.code == exit_codes.OK, calm
    assert said(calm.err) == 0
    reads = len(counted)
    aside = store.parent / "aside"
    for number in sorted({1, reads // 3, reads * 2 // 3}):
        shutil.copytree(store, aside)
        gone = doomed(store, 3)
        monkeypatch.undo()
        before_read(number, lambda gone=gone: _remove(gone))  # type: ignore[misc]
        done = look(store, name)
        monkeypatch.undo()
        assert not any(path.exists() for path in gone)
        assert done.code == exit_codes.OK, (number, reads, done.err, done.out[-300:])
        assert "damage" not in done.err, (number, done.err)
        assert "permission" not in done.err, (number, done.err)
        assert said(done.err) <= 1, (number, done.err)
        shutil.rmtree(store)
        aside.rename(store)


def test_what_was_removed_is_said_once_and_reading_goes_on_at_the_new_beginning(
    store: Path, before_log_opens: Callable[[Callable[[], None]], None]
) -> None:
    gone = doomed(store, 3)
    with StoreFiles(store, SMALL) as files:
        begin = files.log.files[3].start_offset
    before_log_opens(lambda: _remove(gone))
    done = run("cat", "-s", store, "--json")
    assert (done.code, said(done.err)) == (exit_codes.OK, 1), done.err
    offsets = [one["physical_offset"] for one in done.objects]
    with StoreFiles(store, SMALL) as files:
        left = [record.physical_offset for record in walk(files.log) if isinstance(record, StoredMessage)]
    assert left[0] == begin
    assert [offset for offset in offsets if offset >= begin] == left


def test_a_file_that_is_gone_from_the_middle_is_damage(
    store: Path, before_log_opens: Callable[[Callable[[], None]], None]
) -> None:
    with StoreFiles(store, SMALL) as files:
        middle = files.log.files[2].path
    before_log_opens(middle.unlink)
    done = run("cat", "-s", store, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "a commitlog file is missing" in done.err
    assert REMOVED not in done.err


def test_a_file_that_is_held_is_read_to_its_end(store: Path) -> None:
    with StoreFiles(store, SMALL) as files:
        whole = [record.physical_offset for record in walk(files.log)]
    read: list[int] = []
    with StoreFiles(store, SMALL) as files:
        for record in walk(files.log):
            if not read:
                _remove(doomed(store, 3))
            read.append(record.physical_offset)
    first_file = [offset for offset in whole if offset < FILE_SIZE]
    assert read[: len(first_file)] == first_file, "the file in hand"
    assert read[len(first_file) :] == [offset for offset in whole if offset >= 3 * FILE_SIZE]


def test_a_log_that_rolls_while_a_queue_is_read_has_no_damage(tmp_path: Path) -> None:
    root = tmp_path / "live"
    with MessageStore.open(root, "rw", SMALL, create=True, allocate_ahead=False) as writer:
        writer.put(message(500))
        writer.flush()
        with StoreFiles(root, SMALL) as files:
            assert len(files.log.files) == 1, "listed before the log rolls"
            for _ in range(400):
                writer.put(message(500))
            writer.flush()
            damage: list[CorruptError] = []
            found = list(StoreReader(files).telling(Events(damage=damage.append)).messages(Selection(), "queue"))
    assert not damage
    assert len(found) == 401


def test_files_that_go_while_files_are_listed_are_left_out(store: Path) -> None:
    gone = doomed(store, 3)
    with StoreFiles(store, SMALL) as files:
        rows = file_rows(files)
        next(rows)
        _remove(gone)
        listed = [row["path"] for row in rows]
    left = {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}
    assert set(listed) <= left


def test_a_split_whose_files_are_removed_is_empty(store: Path) -> None:
    planned = [Split(str(store), SMALL, begin, begin + FILE_SIZE) for begin in (1000, FILE_SIZE, 2 * FILE_SIZE)]
    for split in planned:
        with open_split(split) as files:
            assert files.log.files[0].start_offset == 0
            aside = [(path, path.read_bytes()) for path in doomed(store, 3)]
            _remove([path for path, _ in aside])
            found = list(split_columns(files, split))
            for path, data in aside:
                path.write_bytes(data)
        assert not [record for record in found if isinstance(record, Damage)]


@pytest.mark.parametrize("order", ["log", "queue"])
def test_another_process_cleans_and_rolls_while_a_slow_reader_prints(order: str, store: Path) -> None:
    """The reader waits for its pipe, which holds far less than it has to print. What it has not printed, it says. The
    compiled walk of the log has its files open by then, so nothing is missing."""
    with StoreFiles(store, SMALL) as files:
        before = [record.physical_offset for record in walk(files.log) if isinstance(record, StoredMessage)]
    talk = store.parent / "talk"
    command = [sys.executable, "-m", "rmqctl", "cat", "-s", str(store), "--json", "--order", order]
    with (
        MessageStore.open(store, "rw", SMALL) as writer,
        talk.open("w") as talking,
        start(command, stdout=subprocess.PIPE, stderr=talking, text=True) as reader,
    ):
        try:
            assert reader.stdout is not None
            lines = [reader.stdout.readline()]
            for _ in range(200):
                writer.put(message(500))
            writer.flush()
            subprocess.run(["rm", *map(str, doomed(store, 3))], check=True, timeout=60)
            # not by communicate(), which leaves out what readline() has read ahead
            lines += reader.stdout
            reader.wait(timeout=60)
        finally:
            reader.kill()
    assert reader.returncode == exit_codes.OK, talk.read_text()
    printed = [json.loads(line) for line in lines]
    offsets = [one["physical_offset"] for one in printed]
    missing = set(before).difference(offsets)
    assert len(set(offsets)) == len(offsets)
    assert all(offset < 3 * FILE_SIZE for offset in missing)
    assert said(talk.read_text()) == bool(missing), talk.read_text()
    assert "damage" not in talk.read_text()
    if order == "log":
        assert [offset for offset in before if offset not in missing] == offsets[: len(before) - len(missing)]
        assert not (missing and is_compiled()), missing
    assert printed[-1]["queue_offset"] >= MESSAGES // 2 - 1
