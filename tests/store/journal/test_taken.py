"""Whatever a change decides it decides under the store's lock: what others did just before counts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from rmqctl.formats.errors import NotAStoreError, RefusedError, StoreInUseError
from rmqctl.store.clean.cleaner import clean
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.files import outputs as publish_module
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import StoreLock, take_lock
from rmqctl.store.journal import log as taken_module
from rmqctl.store.message_store import MessageStore
from rmqctl.store.recover.bridge import recover_bridging
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.repair.repair import repair
from rmqctl.store.salvage import salvage as salvage_module
from rmqctl.store.salvage.salvage import salvage
from rmqctl.store.snapshot import snapshot as snapshot_module
from rmqctl.store.snapshot.snapshot import take_snapshot
from rmqctl.store.store_files import StoreFiles
from tests.store.write.writing import SMALL, lines_of, log_file, message, run_python, stored_messages

Before = Callable[[Callable[[], object]], None]


@pytest.fixture
def before_the_lock(monkeypatch: pytest.MonkeyPatch) -> Before:
    """Has something happen after a change looked at the store, and before it gets the lock; once."""

    def arrange(happens: Callable[[], object]) -> None:
        waiting = [happens]

        def take(layout: StoreLayout) -> StoreLock:
            if waiting:
                waiting.pop()()
            return take_lock(layout)

        monkeypatch.setattr(taken_module, "take_lock", take)

    return arrange


def put(root: Path, count: int = 3, *, queue_id: int = 0, size: int = 100) -> None:
    with MessageStore.open(root, "rw", SMALL, create=True) as store:
        for number in range(count):
            assert store.put(message(size, queue_id=queue_id, properties={"KEYS": f"k{number}"})).status.is_stored


def assert_whole(root: Path, messages: int) -> None:
    """`messages` are in the log, which queues and index agree with: it can be appended to."""
    assert len(stored_messages(root, SMALL)) == messages
    MessageStore.open(root, "rw", SMALL, full_check=True).close()
    with MessageStore.open(root, "r", SMALL) as store:
        assert not [finding for finding in store.check() if finding.severity.is_alarm]


# ---- a store that is not there yet


def test_a_store_that_another_process_just_made_is_gone_on_with(tmp_path: Path, before_the_lock: Before) -> None:
    root = tmp_path / "s"
    before_the_lock(lambda: put(root, 3))
    put(root, 2)
    assert [path.name for path in (root / "commitlog").iterdir()] == [log_file(root, 0).name]
    assert [one.queue_offset for one in stored_messages(root, SMALL)] == [0, 1, 2, 3, 4]
    assert_whole(root, 5)


def test_a_store_whose_maker_was_killed_is_refused(tmp_path: Path, before_the_lock: Before) -> None:
    root = tmp_path / "s"

    def killed() -> None:
        put(root, 3)
        (root / "abort").write_text("1")

    before_the_lock(killed)
    with pytest.raises(RefusedError, match="not closed cleanly") as caught:
        put(root)
    assert f"rmqctl recover -s {root}" in (caught.value.hint or "")
    assert_whole_after_recovery(root, 3)
    put(root)  # the lock was given back


def assert_whole_after_recovery(root: Path, messages: int) -> None:
    with StoreFiles(root, SMALL) as files:
        recover(files)
    assert_whole(root, messages)


def test_a_store_that_is_gone_again_is_not_made_anew(tmp_path: Path, before_the_lock: Before) -> None:
    root = tmp_path / "s"
    put(root)

    def emptied() -> None:
        for name in ("commitlog", "consumequeue", "index", "checkpoint"):
            (root / name).rename(tmp_path / name)

    before_the_lock(emptied)
    with pytest.raises(NotAStoreError):
        MessageStore.open(root, "rw", SMALL)
    put(root)  # the lock was given back
    assert_whole(root, 3)


_CREATE = """
import os, sys, time
from pathlib import Path
from rmqctl.formats.errors import StoreInUseError
from rmqctl.formats.message import Message
from rmqctl.store.message_store import MessageStore
from tests.store.write.writing import SMALL

root, name = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
put = 0
for _ in range(400):
    try:
        with MessageStore.open(root, "rw", SMALL, create=True) as store:
            put += store.put(Message("TopicA", name.encode())).status.is_stored
        break
    except StoreInUseError:
        time.sleep(0.01)
print(put, flush=True)
"""


def test_two_processes_that_make_the_same_store(tmp_path: Path) -> None:
    """Whichever is first makes it, the other one waits for the lock and goes on: nothing begins anew."""
    root = tmp_path / "s"
    programs = [run_python(_CREATE, root, name, is_talked_to=True) for name in ("one", "two")]
    try:
        for program in programs:
            assert next(lines_of(program)) == "ready"
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("\n")
            program.stdin.flush()
        for program in programs:
            assert program.communicate(timeout=120)[0].split() == ["1"]
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    assert {one.body for one in stored_messages(root, SMALL)} == {b"one", b"two"}
    assert_whole(root, 2)


# ---- changes of a store that was written to meanwhile


def looked_at(root: Path) -> StoreFiles:
    """The store as a command opens it: its parts were looked at."""
    files = StoreFiles(root, SMALL)
    assert files.log.files
    assert files.queues.all()
    assert files.index.files
    return files


@pytest.mark.parametrize("change", [recover, recover_bridging, rebuild, repair])
def test_what_came_before_the_lock_is_mended_too(
    tmp_path: Path, before_the_lock: Before, change: Callable[[StoreFiles], object]
) -> None:
    """Messages, a file of the log, a queue and an index file that were not there when the command began."""
    root = tmp_path / "s"
    put(root, 3)

    def written_to() -> None:
        put(root, 4, queue_id=1, size=30_000)
        put(root, 500)

    with looked_at(root) as files:
        before_the_lock(written_to)
        change(files)
    assert_whole(root, 507)


def test_truncate_counts_what_is_there_under_the_lock(tmp_path: Path, before_the_lock: Before) -> None:
    root = tmp_path / "s"
    put(root, 3)
    at = stored_messages(root, SMALL)[1].physical_offset
    with looked_at(root) as files:
        before_the_lock(lambda: put(root, 4, queue_id=1, size=30_000))
        assert truncate(files, at).messages_cut == 6
    assert_whole(root, 1)


def test_clean_keeps_the_last_file_that_is_there_under_the_lock(tmp_path: Path, before_the_lock: Before) -> None:
    root = tmp_path / "s"
    put(root, 3)
    with looked_at(root) as files:
        before_the_lock(lambda: put(root, 4, size=30_000))
        for path in (root / "commitlog").iterdir():
            os.utime(path, (0, 0))
        report = clean(files, CleanOptions(pause=0, at_once=True), now=1 << 50)
    assert [one.path.name for one in report.removed if one.kind == "commitlog"] == [log_file(root, 0).name]
    MessageStore.open(root, "rw", SMALL).close()


def test_repair_looks_only_once_nobody_else_can_write(tmp_path: Path, before_the_lock: Before) -> None:
    """Only a queue was changed since it was opened: neither the log nor the checkpoint tell of that."""
    root = tmp_path / "s"
    put(root, 3)
    queue = root / "consumequeue" / "TopicA" / "0" / f"{0:020}"
    with looked_at(root) as files:
        before_the_lock(lambda: queue.write_bytes(bytes(2000)))
        assert repair(files).queues_changed == 1
    assert_whole(root, 3)


def test_a_change_gives_the_lock_back_when_the_store_is_gone(tmp_path: Path, before_the_lock: Before) -> None:
    root = tmp_path / "s"
    put(root, 3)
    with looked_at(root) as files:
        before_the_lock(lambda: [(root / name).rename(tmp_path / name) for name in os.listdir(root) if name != "lock"])
        with pytest.raises(NotAStoreError):
            recover(files)
    put(root, 1)


def test_a_store_in_use_is_not_checked_before_it_is_repaired(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with MessageStore.open(root, "rw", SMALL, create=True) as store:
        store.put(message())
        with StoreFiles(root, SMALL) as files, pytest.raises(StoreInUseError):
            repair(files)
    assert_whole(root, 1)


# ---- what comes up at a target


@pytest.mark.parametrize(
    ("module", "name"),
    [(snapshot_module, "new"), (salvage_module, "new"), (salvage_module, "new.lost-and-found.jsonl")],
)
def test_a_target_that_came_up_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    root, others, publish = tmp_path / "s", tmp_path / "folder" / name, publish_module.publish
    put(root, 3)
    others.parent.mkdir()

    def other_first(staging: Path, target: Path) -> None:
        if target == others and staging.is_dir():
            (others / "commitlog").mkdir(parents=True)
        elif target == others:
            others.write_text("another's")
        publish(staging, target)

    monkeypatch.setattr(module, "publish", other_first)
    with pytest.raises(RefusedError, match="has come up meanwhile"):
        _copy(module, root, tmp_path / "folder" / "new")
    assert list(others.parent.iterdir()) == [others]
    assert [path.name for path in others.iterdir()] == ["commitlog"] if others.is_dir() else others.read_text()


def _copy(module: ModuleType, root: Path, target: Path) -> None:
    if module is snapshot_module:
        with StoreFiles(root, SMALL) as files:
            take_snapshot(files, target, "test")
    else:
        salvage([root], target)
