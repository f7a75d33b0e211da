"""A state that a cut has left, opened as its user would, and what has to hold of it whatever was going on."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

from rmqctl.formats.errors import NotAStoreError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.check.check import check
from rmqctl.store.checkpoint import read_checkpoint
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.presence import exists, is_directory
from rmqctl.store.message_store import MessageStore
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.recover.bridge.bridge import recover_bridging
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.proof.crash.cuts import Cut, History
from tests.store.journal.commands import CONFIG
from tests.store.write.writing import stored_messages


class Kept(NamedTuple):
    """A message by where it is and what it says."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    body: bytes


class Acknowledged(NamedTuple):
    """A note of the work: the message at this physical offset and all before it were promised to be on disk."""

    physical_offset: int


class Done(NamedTuple):
    """A note of the work: a step has returned, and promises all it did."""

    step: str


class State(NamedTuple):
    """`root`: the store in the case's own folder. `before`, `after`: the messages in the log before the work and after
    it, in their order."""

    root: Path
    history: History
    cut: Cut
    random: Random
    before: list[Kept]
    after: list[Kept]
    config: StoreConfig


def kept(message: StoredMessage) -> Kept:
    """What is compared of a message."""
    return Kept(
        message.physical_offset,
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.store_timestamp,
        bytes(message.body),
    )


def in_log(root: Path, config: StoreConfig = CONFIG) -> list[Kept]:
    """Every good message of the log, in its order."""
    return [kept(message) for message in stored_messages(root, config)]


def in_queues(root: Path, config: StoreConfig = CONFIG) -> list[Kept]:
    """Every message that a consumer gets, in the order of the log; each was found in its own slot."""
    with MessageStore.open(root, "r", config) as store:
        return sorted(kept(message) for message in store.messages(order="queue"))


def files_of(root: Path) -> dict[str, bytes | None]:
    """What is below a folder, as cuts.files_at gives it, but for the lock file, which says nothing."""
    paths = (path for path in sorted(root.rglob("*")) if path.name != "lock")
    return {path.relative_to(root).as_posix(): None if path.is_dir() else path.read_bytes() for path in paths}


def check_checkpoint(root: Path, expected: list[Kept], config: StoreConfig = CONFIG) -> None:
    """A checkpoint names nothing that is not on disk: a broker begins to read behind what it says."""
    if not is_directory(root / "commitlog"):
        return
    named = read_checkpoint(root / "checkpoint")
    if named is None:
        return
    found = set(in_log(root, config))
    in_time = [one for one in expected if one.store_timestamp <= named.physic_msg_timestamp]
    assert not [one for one in in_time if one not in found], "the checkpoint names messages that are not in the log"
    with StoreFiles(root, config) as files:
        reader = StoreReader(files)
        for one in expected:
            if one.store_timestamp <= named.logics_msg_timestamp:
                got = reader.get(one.topic, one.queue_id, one.queue_offset, 1).messages
                assert [kept(message) for message in got] == [one], "the checkpoint names a unit that is not in its queue"


def check_closed(root: Path, config: StoreConfig = CONFIG) -> None:
    """Where nothing says that a store was not closed cleanly, it takes messages as it is and hides none."""
    if exists(root / "abort") or not is_directory(root / "commitlog"):
        return
    assert in_queues(root, config) == in_log(root, config), "a store without abort lacks units"
    check_alarms(root, config)
    MessageStore.open(root, "rw", config).close()


def check_alarms(root: Path, config: StoreConfig = CONFIG) -> None:
    """`check` has nothing to say."""
    with StoreFiles(root, config) as files:
        alarms = [f"{one.code} {one.message}" for one in check(files) if one.severity.is_alarm]
    assert not alarms, f"check after recover: {alarms}"


def recovered(root: Path, config: StoreConfig = CONFIG, *, bridging: bool = False) -> list[Kept]:
    """What is in the log of a store after `recover`: the same is in the queues, `check` is content, and a second
    recovery has nothing to do. Nothing at all where there is no store."""
    how = recover_bridging if bridging else recover
    try:
        with StoreFiles(root, config) as files:
            how(files)
    except NotAStoreError:
        return []
    found = in_log(root, config)
    assert in_queues(root, config) == found, "after recover the queues have other messages than the log"
    check_alarms(root, config)
    before = files_of(root)
    with StoreFiles(root, config) as files:
        again = recover(files)
    assert not again.operations, f"a second recovery has something to do: {again.operations}"
    assert files_of(root) == before, "a second recovery changed something"
    return found
