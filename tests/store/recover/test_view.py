"""The store as a recovery would leave it is what a recovery leaves of a copy, file by file; the store stays as it is.

What a broker has in its queues after its own recovery, by its truth, is there too.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from rmqctl.formats.errors import DiskFullError, RefusedError, RmqctlError, StoreInUseError, UnsupportedError
from rmqctl.store import Message
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.files.lock import StoreLock
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import UNHEARD
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.recover.view import looks_unrecovered, recovered_view
from rmqctl.store.store_files import StoreFiles
from tests import goldens
from tests.goldens import GoldenStore, broker_conf, tree_state, truth
from tests.quick import goldens_of

ALL = sorted(
    name
    for name in (*goldens.GOLDENS, *goldens.OF_5_5)
    if goldens.is_broken(name) or goldens.is_crashed(name) or name in ("clean", "multipath", "v55-clean")
)
UNSERVED = ("log-gone-abort", "v55-log-gone-abort")
SHOWN_AS_THEY_ARE = ("short-middle", "v55-short-middle")
"""Recovery refuses these for a file of the log that has a wrong length."""
# what a recovery writes beside queues, index, log and configuration, or a broker alone
_LEFT_OUT = ("lock", "abort")


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def opened(store: Path) -> StoreFiles:
    return StoreFiles(store, read_broker_conf(broker_conf(store.name, store.parent)))


def contents(files: StoreFiles) -> dict[str, str]:
    """Files by their path, with a digest; those of the log as if they were in one folder."""
    found = {}
    for root in (files.root, *files.layout.commitlog):
        for folder, _, names in os.walk(root, followlinks=True):
            for path in (Path(folder) / name for name in names):
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                is_log = path.parent in files.layout.commitlog
                found[f"commitlog/{path.name}" if is_log else str(path.relative_to(root))] = digest
    return {name: digest for name, digest in found.items() if name not in _LEFT_OUT}


def queued(files: StoreFiles) -> set[tuple[str, int, int, int]]:
    """Topic, queue, queue offset and physical offset of every message that can be read by its queue."""
    found = MessageStore(files, None).messages(order="queue", events=UNHEARD)
    return {(one.topic, one.queue_id, one.queue_offset, one.physical_offset) for one in found}


@pytest.mark.parametrize("name", goldens_of(ALL, "cq-lost", "torn-zero", "v55-torn-garbage", "multipath"))
def test_it_is_what_recovery_leaves(golden_store: GoldenStore, name: str) -> None:
    store, copy = golden_store(name), golden_store(name)
    before = tree_state(store)
    refusal = refused(copy)
    if refusal is not None and "good message" in refusal.message:
        # there recovery asks what to do; every message that can be read has its place all the same
        with opened(copy) as files:
            rebuild(files)
    elif name not in SHOWN_AS_THEY_ARE and refusal is not None:
        with pytest.raises(type(refusal)) as caught, opened(store) as files, recovered_view(files):
            pass
        assert caught.value.message == refusal.message
        return
    with opened(store) as files, recovered_view(files) as view, StoreFiles(view.root, view.config) as shown:
        with opened(copy) as wanted:
            if refusal is None:
                assert contents(shown) == contents(wanted)
            else:
                assert queued(shown) == queued(wanted)
        assert_holds_what_the_broker_has(shown, name)
    assert tree_state(store) == before
    assert not list(Path(tempfile.gettempdir()).iterdir())


def refused(store: Path) -> RmqctlError | None:
    """Recover a store; return why that is refused."""
    try:
        with opened(store) as files:
            recover(files)
    except (RefusedError, UnsupportedError) as error:
        return error
    return None


def assert_holds_what_the_broker_has(shown: StoreFiles, name: str) -> None:
    """Every message that RocketMQ has in a queue after its own recovery is in the same slot here."""
    missing = []
    for row in truth(name).messages:
        cq = row.get("cq")
        if cq is None:
            continue
        queue = shown.queues.find(row["topic"], row["queueId"])
        unit = None if queue is None else queue.unit(row["queueOffset"])
        if unit is None or unit.physical_offset != row["phyOffset"]:
            missing.append(row)
    assert not missing


@pytest.mark.parametrize("name", goldens_of((*goldens.GOLDENS, *goldens.OF_5_5), "cq-lost", "index-lost", "torn-zero"))
def test_a_glance_takes_no_whole_store_for_a_broken_one(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    config = read_broker_conf(broker_conf(name, store.parent)) if goldens.file_of(name, ".props").exists() else None
    with StoreFiles(store, config) as files:
        seen = looks_unrecovered(files)
    if goldens.is_crashed(name) or name.endswith(("cq-garbage", "cq-lost", "index-lost", "cq-short", "cq-truncated")):
        assert seen or name in UNSERVED
    elif not goldens.is_broken(name):
        assert not seen


def test_a_topic_that_was_created_again_lags_nothing(tmp_path: Path) -> None:
    """The last bytes of the log hold messages of both lives; the slots of the first one are behind the queue's end."""
    store = tmp_path / "store"
    for messages in (40, 3):
        with MessageStore.open(store, "rw", create=True) as opened:
            for topic in ("Other", *["Topic"] * messages):
                opened.put(Message(topic, b"x"))
        if messages == 40:
            shutil.rmtree(store / "consumequeue" / "Topic")
            (store / "config").mkdir()
            (store / "config/topics.json").write_text('{"topicConfigTable":{"Other":{"readQueueNums":1}}}')
    with StoreFiles(store) as files:
        assert not looks_unrecovered(files)


def test_a_store_in_use_is_not_shown(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    with opened(store) as files:
        lock = StoreLock(files.layout.lock)
        try:
            assert not looks_unrecovered(files)
            with pytest.raises(StoreInUseError), recovered_view(files):
                pass
        finally:
            lock.release()


def test_a_full_disk_says_where_else(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_store("cq-lost")
    before = tree_state(store)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with opened(store) as files, pytest.raises(DiskFullError) as caught, recovered_view(files):
        pass
    assert "TMPDIR" in str(caught.value.hint)
    assert tree_state(store) == before
    assert not list(Path(tempfile.gettempdir()).iterdir())
